"""What the figures of a benchmark depend on: the machine, the system, the packages."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGES = (
    "numpy",
    "torch",
    "torchcodec",
    "torchvision",
    "pillow",
    "simplejpeg",
    "lmdb",
    "msgpack",
    "datasets",
    "shardkit",
)


def machine_facts(folder: Path) -> dict[str, Any]:
    """Return what the figures depend on; `folder` is where the data lies."""
    return {
        "cpu": _cpu_name(),
        "usable_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "file_system": _file_system(folder),
        "load_average": round(os.getloadavg()[0], 2),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def machine_line(facts: Mapping[str, Any]) -> str:
    """Return the facts on one line."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    return (
        f"machine: {facts['cpu']}, {facts['usable_cpus']} CPUs; {facts['system']}; Python {facts['python']}; "
        f"{packages}; {facts['file_system']}; load average {facts['load_average']} at the start"
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown CPU"
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown CPU")


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds `folder`, from /proc/mounts."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown file system"
    real = folder.resolve()
    holding = [(len(mount[1]), mount[2]) for mount in mounts if real.is_relative_to(mount[1])]
    return max(holding)[1] if holding else "unknown file system"
