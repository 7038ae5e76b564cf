"""How fast are the converters of other formats on the same photos, though they check nothing?

Each converter is a program of its own in ``peers/``, run by a Python of its own that has the peer installed:
``--python mds=/path/to/python``, and so for litdata, ffcv, webdataset and hf. A peer without one is listed as not
measured. Every converter lists the same folder of JPEG photos itself and is timed by itself, after its imports. Its
output must hold every record by the peer's own reader. What each does is in its file; in short, all but shardkit and
FFCV copy the bytes of a file and never decode it, none reads them whole to see if they are sound, and none waits for
the disk. FFCV takes pixels only, so it decodes, and stores them raw (its default) or encodes anew.

Run it with ``python benchmarks/ingest_peers.py --python mds=... --python ffcv=...``; ``--help`` names the settings.

Result (see benchmarks/README.md for figures): a converter that only copies in as many processes is a bound for one
that looks at what it copies.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from command_line import run_benchmark
from measure import Comparison, Contender, Missing, Taken, Target
from peer_process import parse_pythons
from photos import PhotoFolder, PhotoSettings, describe_run, make_photos

PROGRAMS = Path(__file__).parent / "peers"
SHARDKIT = "shardkit"
LIMIT_SECONDS = 1800


class Converter(NamedTuple):
    """A way to convert.

    Attributes:
        name: In the table.
        peer: What ``--python`` calls it, and whose program ``peers/write_PEER.py`` it is.
        is_parallel: Whether it takes more than one process.
        note: What it does.
        arguments: Further ones for its program.
    """

    name: str
    peer: str
    is_parallel: bool
    note: str
    arguments: tuple[str, ...] = ()


CONVERTERS = (
    Converter(SHARDKIT, SHARDKIT, True, "decoded, checked, checksummed, durable, indexed"),
    Converter("MDS", "mds", False, "as its ImageNet converter: opened, copied, hashed; one process"),
    Converter("MDS, parallel", "mds", True, "bytes copied by each process; no hashes"),
    Converter("LitData", "litdata", True, "optimize: bytes copied"),
    Converter("FFCV, raw", "ffcv", True, "its default: decoded, pixels stored", ("raw",)),
    Converter("FFCV, jpg", "ffcv", True, "decoded and encoded anew", ("jpg",)),
    Converter("WebDataset", "webdataset", False, "ShardWriter: bytes copied; one process"),
    Converter("HF datasets", "hf", True, "imagefolder, save_to_disk: bytes copied"),
)
PEERS = tuple(sorted({converter.peer for converter in CONVERTERS}))
TARGETS = tuple(Target(SHARDKIT, name, 1.0) for name in ("MDS", "LitData", "FFCV, raw", "FFCV, jpg"))


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        records: Photos.
        workers: Processes of each converter that takes more than one.
        repetitions: Timed runs of each.
        width, height: Of the photos.
        python: ``PEER=PATH`` of a Python that has the peer.
    """

    records: int = 3000
    workers: int = 2
    repetitions: int = 5
    width: int = 500
    height: int = 400
    python: tuple[str, ...] = ()


def main() -> None:
    """Measure, and print the table."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    pythons = {SHARDKIT: sys.executable} | parse_pythons(settings.python, PEERS)
    photos = make_photos(folder / "photos", PhotoSettings(settings.records, settings.width, settings.height))
    versions: dict[str, str] = {}
    contenders = [
        _contender(converter, pythons[converter.peer], photos, folder / "out", settings.workers, versions)
        for converter in CONVERTERS
        if converter.peer in pythons
    ]
    missing = [
        Missing(converter.name, f"give --python {converter.peer}=PATH of a Python that has it")
        for converter in CONVERTERS
        if converter.peer not in pythons
    ]
    print(describe_run(photos, settings) + "\n")
    comparison = Comparison(
        contenders, SHARDKIT, settings.repetitions, settings.records, photos.total_bytes, TARGETS, missing
    )
    report = comparison.run()
    print("\nversions: " + ", ".join(sorted(versions.values())))
    return report | {"versions": versions}


def _contender(
    converter: Converter, python: str, photos: PhotoFolder, out: Path, workers: int, versions: dict[str, str]
) -> Contender:
    program = PROGRAMS / f"write_{converter.peer}.py"
    processes = str(workers if converter.is_parallel else 1)
    command = [python, str(program), str(photos.path), str(out), processes, *converter.arguments]

    def run(_: int) -> Taken:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        if done.returncode:
            raise SystemExit(f"{converter.name}: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
        report = json.loads(done.stdout.splitlines()[-1])
        if report["records"] != len(photos.files):
            raise SystemExit(f"{converter.name}: holds {report['records']} of {len(photos.files)} records")
        versions[converter.peer] = report["version"]
        return Taken(report["wall"], report["cpu"])

    return Contender(converter.name, run, converter.note, lambda: _clear(out))


def _clear(out: Path) -> None:
    """Remove an output, be it a file or a folder."""
    out.unlink() if out.is_file() else shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()
