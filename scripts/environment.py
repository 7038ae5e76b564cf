#!/usr/bin/env python3
"""Make the checkout's virtual environment and install shardkit into it. Needs Python 3.11+ and nothing else.

usage: environment.py [EXTRA ...]      prints the path of the environment's Python

The environment stands in .venv. It is made once, and brought up to date when pyproject.toml, the constraints
or the wanted extras have changed since. The versions are those of scripts/constraints.txt, with which the tests
were run.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
STAMP = ENVIRONMENT / "installed.txt"


def python_of(environment: Path) -> Path:
    """Return the path of an environment's Python."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ensure(*extras: str) -> Path:
    """Make or update the environment so that it holds shardkit with `extras`, and return its Python."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this is what tells a user of an older Python
        sys.exit(f"shardkit needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    installed = STAMP.read_text().split() if STAMP.exists() else []
    digest, known = _digest(), installed[1:] if installed else []
    python = python_of(ENVIRONMENT)
    if python.exists() and installed[:1] == [digest] and set(extras) <= set(known):
        return python
    if not python.exists():
        print(f"making a virtual environment in {ENVIRONMENT}", file=sys.stderr, flush=True)
        venv.create(ENVIRONMENT, with_pip=True)
    wanted = sorted(set(extras) | set(known))
    target = f"{ROOT}[{','.join(wanted)}]" if wanted else str(ROOT)
    print(
        "installing shardkit and what it needs (torch is large; this may take minutes)",
        file=sys.stderr,
        flush=True,
    )
    subprocess.run(
        [
            *(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--constraint", CONSTRAINTS, "--editable", target),
        ],
        check=True,
    )
    STAMP.write_text(" ".join([digest, *wanted]) + "\n")
    return python


def _digest() -> str:
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        print(ensure(*sys.argv[1:]))
    except subprocess.CalledProcessError as error:
        sys.exit(f"installing failed (pip ended with {error.returncode}); its messages stand above")
