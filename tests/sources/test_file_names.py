"""File names as people have them: which files become records, which are passed over, which are rejected.

All files hold the same photo, so that the name alone decides. Where there is a list of collected names
(SHARDKIT_NAMES, or ../shared/names.jsonl), each of those must be among the ones here.
"""

import base64
import csv
import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardkit import Contract, ingest, verify
from shardkit.contract import ImageField, RecordRules
from shardkit.store import Store

ROOT = Path(__file__).parents[2]
NAMES = Path(os.environ.get("SHARDKIT_NAMES", ROOT.parent / "shared" / "names.jsonl"))
SHARED: list[dict[str, Any]] = (
    [json.loads(line) for line in NAMES.read_text("utf-8").splitlines()] if NAMES.exists() else []
)
CONTRACT = Contract({"image": ImageField()}, RecordRules(on_bad="skip"))

KEPT = [
    "nai\N{COMBINING DIAERESIS}ve cafe\N{COMBINING ACUTE ACCENT}.jpg",
    "two\nlines.jpg",
    "a\tb.jpg",
    "-rf.jpg",
    "a.jpg.",
    "a" * 251 + ".jpg",
    "\N{GRINNING FACE}" * 62 + "abc.jpg",
    "[a]*?.jpg",
    "100%#1.jpg",
    'it\'s "x".jpg',
    "CON.jpg",
    "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe.jpg",
    "a\N{ZERO WIDTH SPACE}b.jpg",
    "a.jpg.exe",
    "a.jpg.part",  # a whole picture is one, whatever the name; a cut one would be rejected as truncated
    "a.jpg~",
    "case.jpg",
    "dup.png",
    "a,b.jpg",
    "10.jpg",
    # their kin
    "CASE.jpg",
    "dup.jpg",
    "9.jpg",
    " leading.jpg",
    "trailing.jpg ",
    "a\\b.jpg",
    "C:\\x.jpg",
    "C:x.jpg",
    "~",
    "~root",
    "$HOME.jpg",
    "http:x.jpg",
    "file:x.jpg",
    "a\rb.jpg",
    "\x1b[31mred.jpg",
    "\x7f.jpg",
    "a\x85b.jpg",
    "\ufeffa.jpg",
    "\ue000.jpg",
    "\U0010ffff.jpg",
    "x..jpg",
    "x/y/z/deep.jpg",
    "x/10.jpg",
    "x /10.jpg",
    "no-extension",
    "=1+1.jpg",
    "a.crdownload",
    "a.jpg.tmp",
    "nul",
    "aux.jpg",
    "Thumbs.db.jpg",
    "DS_Store",
    "__MACOSX.jpg",
]
"""Names that a record has, as they stand."""

IGNORED = [
    ".jpg",
    ".DS_Store",
    "Thumbs.db",
    "__MACOSX/._a.jpg",
    "desktop.ini",
    # their kin
    "x/.DS_Store",
    "x/thumbs.DB",
    "x/Desktop.ini",
    "x/__MACOSX/a.jpg",
    "x/._10.jpg",
    ".ipynb_checkpoints/a-checkpoint.jpg",
    "x/.ipynb_checkpoints/a-checkpoint.jpg",
    "@eaDir/10.jpg",
    "x/@eaDir/10.jpg/SYNOPHOTO_THUMB_M.jpg",
    "$RECYCLE.BIN/a.jpg",
    "System Volume Information/a.jpg",
    "lost+found/a.jpg",
    "ehthumbs.db",
    "Icon\r",
    ".git/a.jpg",
    ".hidden.jpg",
    "..\\x.jpg",
    ".nfs000001",
]
"""What operating systems and programs leave behind: passed over, and counted."""

REJECTED = {
    b"caf\xe9.jpg": "caf\\xe9.jpg",
    b"\xff\xfe.jpg": "\\xff\\xfe.jpg",
    # their kin
    b"\xed\xa0\x80.jpg": "\\xed\\xa0\\x80.jpg",  # a surrogate
    b"\xc0\xaf.jpg": "\\xc0\\xaf.jpg",  # an overlong slash
    b"x\xff/10.jpg": "x\\xff/10.jpg",
    b"   ": "   ",
}
"""Names that no id can have -> how the report shows them."""


@pytest.fixture(scope="module")
def photo_bytes() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 90, 10)).save(buffer, "JPEG")
    return buffer.getvalue()


def lay_out(folder: Path, paths: list[bytes], content: bytes) -> None:
    """Write a file under each path; skip the test where the file system takes no such name."""
    for path in paths:
        full = os.path.join(os.fsencode(folder), path)
        try:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "xb") as file:
                file.write(content)
        except FileExistsError:
            pytest.skip("the file system takes names that differ in case or normal form for one")
        except OSError as error:
            if error.errno not in (errno.EILSEQ, errno.EINVAL, errno.ENAMETOOLONG):
                raise
            pytest.skip(f"the file system takes no name such as {path!r}")


def report_of(out: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the summary of an ingestion, and the reason by id of what it rejected."""
    lines = [
        json.loads(line) for line in (out / "reports" / "rejected.jsonl").read_text("utf-8").splitlines()
    ]
    summary = json.loads((out / "reports" / "summary.json").read_text("utf-8"))
    return summary, {line["id"]: line["reason"] for line in lines}


def test_every_name_becomes_a_record_is_passed_over_or_is_rejected(
    tmp_path: Path, photo_bytes: bytes
) -> None:
    paths = [*map(os.fsencode, KEPT + IGNORED), *REJECTED]
    lay_out(tmp_path / "raw", paths, photo_bytes)
    ingest(tmp_path / "raw", tmp_path / "out", CONTRACT, workers=0)
    summary, reasons = report_of(tmp_path / "out")
    with Store(tmp_path / "out") as store:
        assert list(store.ids) == sorted(KEPT, key=os.fsencode)
        for name in KEPT:
            assert bytes(store.payload(store.row_of(name), 0)) == photo_bytes
    assert reasons == dict.fromkeys(REJECTED.values(), "bad-id")
    kinds = {
        "hidden file": 4,
        "hidden folder": 1,
        "macOS folder settings (.DS_Store)": 2,
        "Windows thumbnails (Thumbs.db)": 2,
        "Windows folder settings (desktop.ini)": 2,
        "macOS metadata folder (__MACOSX)": 2,
        "macOS metadata file (._*)": 1,
        "notebook checkpoints (.ipynb_checkpoints)": 2,
        "Synology thumbnails (@eaDir)": 2,
        "Windows recycle bin ($RECYCLE.BIN)": 1,
        "Windows folder (System Volume Information)": 1,
        "file system's folder (lost+found)": 1,
        "Windows thumbnails (ehthumbs.db)": 1,
        "macOS folder icon (Icon)": 1,
    }
    assert summary["ignored_by_kind"] == kinds
    assert sum(kinds.values()) == len(IGNORED)
    assert summary["seen"] == len(paths)
    assert summary["lookalike_ids"] == [["CASE.jpg", "case.jpg"]]
    assert verify(tmp_path / "out", tmp_path / "raw", workers=0).ok


@pytest.mark.parametrize("layout", ["path", "id,path", "jsonl"])
def test_a_table_may_list_every_name_that_a_record_can_have(
    tmp_path: Path, photo_bytes: bytes, layout: str
) -> None:
    lay_out(tmp_path / "raw", [os.fsencode(name) for name in KEPT], photo_bytes)
    if layout == "jsonl":
        table = tmp_path / "raw" / "t.jsonl"
        table.write_text("".join(json.dumps({"path": name}) + "\n" for name in KEPT))
    else:
        table = tmp_path / "raw" / "t.csv"
        with open(table, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(layout.split(","))
            writer.writerows([name] if layout == "path" else [name, name] for name in KEPT)
    report = ingest(table, tmp_path / "out", Contract({"image": ImageField()}), workers=0)
    assert (report.stored, report.rejected) == (len(KEPT), 0)
    with Store(tmp_path / "out") as store:
        assert list(store.ids) == KEPT


def test_class_folders_may_have_any_name_that_is_text(tmp_path: Path, photo_bytes: bytes) -> None:
    folders = ["two\nlines", " a", "a ", "[a]*", "ü", "-rf", "a,b", "C:", "..."]
    lay_out(tmp_path / "raw", [os.fsencode(f"{name}/1.jpg") for name in folders], photo_bytes)
    report = ingest(tmp_path / "raw", tmp_path / "out", workers=0)
    assert report.tally.kinds["label"] == dict.fromkeys(
        ["two\nlines", " a", "a ", "[a]*", "ü", "-rf", "a,b", "C:"], 1
    )
    assert report.stored == len(folders) - 1


def test_a_partial_download_is_rejected_for_what_it_lacks(tmp_path: Path, photo_bytes: bytes) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.jpg.part").write_bytes(photo_bytes[: len(photo_bytes) // 2])
    (tmp_path / "raw" / "b.jpg.part").write_bytes(b"")
    (tmp_path / "raw" / "c.jpg").write_bytes(photo_bytes)
    report = ingest(tmp_path / "raw", tmp_path / "out", CONTRACT, workers=0)
    assert report.stored == 1
    _, reasons = report_of(tmp_path / "out")
    assert set(reasons) == {"a.jpg.part", "b.jpg.part"}
    assert reasons["b.jpg.part"] == "empty"


def test_quarantined_files_have_safe_names(tmp_path: Path) -> None:
    names = ["two\nlines.jpg", "x\\..\\up.jpg", "-rf.jpg", "n" * 251 + ".jpg", "a/b.jpg", "ü.jpg"]
    lay_out(tmp_path / "raw", [os.fsencode(name) for name in names], b"no picture")
    Image.new("RGB", (4, 4)).save(tmp_path / "raw" / "good.png")
    contract = Contract({"image": ImageField()}, RecordRules(on_bad="quarantine"))
    ingest(tmp_path / "raw", tmp_path / "out", contract, workers=0)
    aside = [path for path in (tmp_path / "out" / "reports" / "quarantine").rglob("*") if path.is_file()]
    assert len(aside) == len(names)
    for path in aside:
        assert path.name.isascii()
        assert path.name.isprintable()
        assert len(path.name) < 200


@pytest.mark.skipif(not SHARED, reason=f"no {NAMES}: set SHARDKIT_NAMES to such a file")
@pytest.mark.parametrize("case", SHARED, ids=lambda case: case["case"])
def test_every_collected_name_is_among_those_here_and_is_treated_like_its_kind(
    tmp_path: Path, photo_bytes: bytes, case: dict[str, Any]
) -> None:
    name = base64.b64decode(case["name_b64"])
    assert name in [*map(os.fsencode, KEPT + IGNORED), *REJECTED]
    lay_out(tmp_path / "raw", [name, b"other/b.png"], photo_bytes)
    ingest(tmp_path / "raw", tmp_path / "out", CONTRACT, workers=0)
    summary, reasons = report_of(tmp_path / "out")
    with Store(tmp_path / "out") as store:
        ids = [each for each in store.ids if each != "other/b.png"]
    if name in REJECTED:
        assert (ids, reasons) == ([], {REJECTED[name]: "bad-id"})
    elif name in map(os.fsencode, IGNORED):
        assert (ids, reasons) == ([], {})
        assert summary["ignored"] >= 1
    else:
        assert (ids, reasons, summary["ignored"]) == ([os.fsdecode(name)], {}, 0)
