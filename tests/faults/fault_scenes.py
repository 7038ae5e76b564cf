"""The commands in which faults happen: every way to begin, both backends, each with a record that is bad."""

import io
import json
from pathlib import Path

import numpy as np
from faulty_runs import Runner, Scene, make_scene
from PIL import Image

STEP = 20
"""Every how many calls a fault is tried in the tests that are not slow."""

PARTS = 4
"""Into how many tests a long series of faults is divided, so that none runs for minutes."""

SCENES = (
    "memmap photos quarantined",
    "memmap appended",
    "memmap replaced",
    "lmdb shuffled",
    "lmdb appended",
    "lmdb photos replaced",
)

_RECORDS_PER_SHARD = ("--records-per-shard", "2", "--workers", "0")
_NUMBERS = """
[fields.x]
type = "array"
dtype = "int64"
shape = [2]
[fields.note]
type = "text"
[fields.label]
type = "label"
num_classes = 3
[records]
on_bad = "skip"
"""


def make_raw(folder: Path) -> dict[str, Path]:
    """A contract, a table, another one to append, and a folder of photos; each with a record that is bad."""
    (folder / "photos").mkdir(parents=True)
    (folder / "contract.toml").write_text(_NUMBERS)
    write_table(folder / "first.jsonl", 0, 3)
    write_table(folder / "second.jsonl", 2, 6)  # record 2 is there already
    for number in range(3):
        (folder / "photos" / f"{number}.jpg").write_bytes(_photo(number))
    (folder / "photos" / "bad.jpg").write_bytes(b"no photo")
    return {path.stem: path for path in folder.iterdir()}


def write_table(path: Path, first: int, end: int) -> None:
    rows = [
        {"id": f"r{row}", "x": [row, -row], "note": "n" * row, "label": row % 3} for row in range(first, end)
    ]
    rows.insert(1, {"id": f"bad{first}", "x": [0, 0, 0], "note": "", "label": 0})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _photo(number: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 12, 3), 40 * number, np.uint8)).save(stream, "jpeg")
    return stream.getvalue()


def make(runner: Runner, folder: Path, raw: dict[str, Path], name: str) -> Scene:
    """Return the scene of a name of `SCENES`, in a folder of its own."""
    folder.mkdir()
    backend, *what = name.split()
    common = (str(folder / "out"), "--backend", backend, *_RECORDS_PER_SHARD)
    numbers = ("--contract", str(raw["contract"]))
    stands = "appended" in what or "replaced" in what
    if stands:
        assert runner.run(("ingest", str(raw["first"]), *common, *numbers), folder / "out").status == 0
    if "photos" in what:
        chosen = ("ingest", str(raw["photos"]), *common, "--on-bad", "quarantine")
    else:
        chosen = ("ingest", str(raw["second" if stands else "first"]), *common, *numbers)
    options = {"appended": "--append", "replaced": "--overwrite", "shuffled": "--shuffle-seed=5"}
    return make_scene(
        runner, folder, (*chosen, *(options[word] for word in what if word in options)), before=stands
    )
