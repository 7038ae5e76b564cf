"""Label tables as people have them: which rows are kept, which are rejected and where, which files are refused.

Every table stands here as bytes. Where there is a folder of such tables with their expectations (SHARDKIT_LABELS, or
../shared/labels), each of those is held against the same expectations as its twin here.
"""

import io
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardkit import Contract, ingest
from shardkit.contract import Field, ImageField, LabelField, RecordRules
from shardkit.errors import IngestError, SourceError
from shardkit.store import Store

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("SHARDKIT_LABELS", ROOT.parent / "shared" / "labels"))
MANIFEST = FOLDER / "MANIFEST.jsonl"
SHARED: list[dict[str, Any]] = (
    [json.loads(line) for line in MANIFEST.read_text("utf-8").splitlines()] if MANIFEST.exists() else []
)

LABEL = {"label": LabelField(num_classes=3)}
IMAGE_AND_LABEL = {"image": ImageField(), "label": LabelField(num_classes=5)}


@dataclass(frozen=True)
class Treatment:
    """What became of a table: either it was refused whole, or each of its rows was kept or rejected.

    Attributes:
        kept: Id -> label.
        rejected: Line and reason of each rejected row.
        said: The message of the refusal, or the sentences of the rejections.
        lookalikes: Pairs of ids that the report warns of.
        was_refused: Whether the file as a whole was refused.
    """

    kept: dict[str, int] = field(default_factory=dict)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    said: str = ""
    lookalikes: list[list[str]] = field(default_factory=list)
    was_refused: bool = False


SKIP = RecordRules(on_bad="skip")


def treat(
    table: Path, out: Path, fields: dict[str, Field] | None = None, rules: RecordRules = SKIP
) -> Treatment:
    """Ingest a table, leaving out what is rejected."""
    refusal = ""
    try:
        ingest(table, out, Contract(fields or LABEL, rules), workers=0)
    except SourceError as error:
        refusal = str(error)
    except IngestError as error:
        if "no record fits" not in str(error):
            raise
    if refusal:
        assert "\n" not in refusal
        assert not (out / "manifest.json").exists()
        return Treatment(said=refusal, was_refused=True)
    kept: dict[str, int] = {}
    if (out / "manifest.json").exists():
        with Store(out) as store:
            labels = store.column("label")
            kept = {record_id: int(labels[row]) for row, record_id in enumerate(store.ids)}
    lines = [
        json.loads(line) for line in (out / "reports" / "rejected.jsonl").read_text("utf-8").splitlines()
    ]
    summary = json.loads((out / "reports" / "summary.json").read_text("utf-8"))
    assert summary["seen"] == len(kept) + len(lines) + summary["ignored"]
    for line in lines:
        assert line["source"].startswith(f"{table} line ")
    return Treatment(
        kept,
        [(int(line["source"].rpartition(" ")[2]), line["reason"]) for line in lines],
        " | ".join(line["sentence"] for line in lines),
        summary["lookalike_ids"],
    )


@dataclass(frozen=True)
class Case:
    """A table and what has to become of it.

    Attributes:
        content: The file.
        kept: Id -> label.
        rejected: Line and reason of each rejected row.
        words: Parts of what is said, each of which must be there.
        lookalikes: Pairs of ids that the report must warn of.
    """

    content: bytes
    kept: dict[str, int] = field(default_factory=dict)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    words: tuple[str, ...] = ()
    lookalikes: list[list[str]] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        return not self.kept and not self.rejected

    def hold_against(self, treatment: Treatment) -> None:
        assert treatment.was_refused == self.is_refused, treatment
        assert treatment.kept == self.kept
        assert treatment.rejected == self.rejected
        assert treatment.lookalikes == self.lookalikes
        for word in self.words:
            assert word in treatment.said


def text(content: str) -> bytes:
    return content.encode("utf-8")


def rows(*reasons: str, first: int = 2) -> list[tuple[int, str]]:
    return list(enumerate(reasons, start=first))


KNOWN = {
    "ok.csv": Case(text("id,label\na.jpg,0\nb.jpg,1\nc.jpg,2\n"), {"a.jpg": 0, "b.jpg": 1, "c.jpg": 2}),
    "bom_crlf.csv": Case(b"\xef\xbb\xbfid,label\r\na.jpg,0\r\nb.jpg,1\r\n", {"a.jpg": 0, "b.jpg": 1}),
    "utf16le_bom.csv": Case(
        "\ufeffid,label\r\na.jpg,0\r\n".encode("utf-16-le"), words=("line 1", "UTF-16", "save it as UTF-8")
    ),
    "latin1.csv": Case(b"id,label\ncaf\xe9.jpg,0\n", words=("line 2", "not UTF-8", "0xe9")),
    "quoted.csv": Case(
        text('id,label\n"a, b.jpg",0\n"say ""hi"".jpg",1\n"two\nlines.jpg",2\n'),
        {"a, b.jpg": 0, 'say "hi".jpg': 1, "two\nlines.jpg": 2},
    ),
    "semicolon.csv": Case(
        text("id;label\na.jpg;0\n"),
        words=("no column 'label'", "found 'id;label'", "separated by semicolons"),
    ),
    "tab.tsv": Case(text("id\tlabel\na.jpg\t0\n"), {"a.jpg": 0}),
    "dup_same.csv": Case(
        text("id,label\na.jpg,0\na.jpg,0\n"), {"a.jpg": 0}, [(3, "duplicate-id")], ("line 2 has the same id",)
    ),
    "float_labels.csv": Case(
        text("id,label\na.jpg,0.0\nb.jpg,1.0\nc.jpg,1.5\nd.jpg,\n"),
        rejected=rows("label-type", "label-type", "label-type", "missing-field"),
        words=("'0.0'", "'1.5'", "no value for 'label'"),
    ),
    "nan_inf.csv": Case(
        text(
            "id,label\na.jpg,nan\nb.jpg,inf\nc.jpg,1e0\nd.jpg,+1\ne.jpg, 1\nf.jpg,0x1\ng.jpg,1_0\n"
            "h.jpg,\N{ARABIC-INDIC DIGIT ONE}\n"
        ),
        rejected=rows(*["label-type"] * 8),
        words=("'nan'", "'+1'", "' 1'", "'1_0'", "'\\u0661'", 'plain digits, such as "7"'),
    ),
    "one_based.csv": Case(
        text("id,label\na.jpg,1\nb.jpg,2\nc.jpg,3\n"),
        {"a.jpg": 1, "b.jpg": 2},
        [(4, "label-range")],
        ("the label is '3'; allowed are 0 to 2", "count from 1"),
    ),
    "negative_and_huge.csv": Case(
        text("id,label\na.jpg,-1\nb.jpg,9223372036854775808\nc.jpg,1\n"),
        {"c.jpg": 1},
        rows("label-range", "label-range"),
        ("'-1'", "'9223372036854775808'"),
    ),
    "ragged.csv": Case(
        text("id,label\na.jpg\nb.jpg,1,extra\n\n,2\n   ,3\n"),
        rejected=[(2, "bad-row"), (3, "bad-row"), (5, "bad-id"), (6, "bad-id")],
        words=("1 cell", "3 cells", "the id is empty", "the id is blank"),
    ),
    "nul_byte.csv": Case(b"id,label\na\0b.jpg,0\n", rejected=[(2, "bad-id")], words=("NUL",)),
    "nfc_nfd.csv": Case(
        text("id,label\ncaf\u00e9.jpg,0\ncafe\u0301.jpg,1\n"),
        {"caf\u00e9.jpg": 0, "cafe\u0301.jpg": 1},
        lookalikes=[["caf\u00e9.jpg", "cafe\u0301.jpg"]],
    ),
    "case_collision.csv": Case(
        text("id,label\nIMG.jpg,0\nimg.JPG,1\n"),
        {"IMG.jpg": 0, "img.JPG": 1},
        lookalikes=[["IMG.jpg", "img.JPG"]],
    ),
    "formula.csv": Case(text('id,label\n"=HYPERLINK(""http://x"")",0\n'), {'=HYPERLINK("http://x")': 0}),
    "trailing_space_header.csv": Case(
        text("id, label \na.jpg, 0 \n"), words=("no column 'label'", "' label '", "spaces around a name")
    ),
    "header_only.csv": Case(text("id,label\n"), words=("no rows",)),
    "huge_field.csv": Case(
        text(f"id,label\n{'a' * 140_000}.jpg,0\n"),
        rejected=[(2, "bad-id")],
        words=("140004 bytes", "at most 65535"),
    ),
    "celeba_style.txt": Case(
        text("3\nSmiling Male \n000001.jpg  1 -1\n000002.jpg -1  1\n000003.jpg  1  1\n"),
        words=("cannot ingest this kind of file", ".csv"),
    ),
    "bad.json": Case(text('{"a.jpg": 0, "a.jpg": 1}'), words=("cannot ingest this kind of file", ".jsonl")),
    "deep.json": Case(b"[" * 100_000 + b"]" * 100_000, words=("cannot ingest this kind of file", ".jsonl")),
}
"""Tables that were collected together with what should become of them."""

TRAVERSAL = text(
    "id,label\n../../etc/passwd,0\n/etc/hostname,1\nsub/../../x.jpg,2\nC:\\Windows\\x.jpg,3\n..\\x.jpg,4\n"
)

KIN = {
    # encodings
    "utf16be.csv": Case("\ufeffid,label\na,0\n".encode("utf-16-be"), words=("UTF-16",)),
    "utf32.csv": Case("\ufeffid,label\na,0\n".encode("utf-32-le"), words=("UTF-16", "save it as UTF-8")),
    "utf16-without-mark.csv": Case(
        "id,label\na,0\n".encode("utf-16-le"), words=("no column 'label'", "mean UTF-16")
    ),
    "bom.tsv": Case(b"\xef\xbb\xbfid\tlabel\na\t0\n", {"a": 0}),
    "bom.jsonl": Case(b'\xef\xbb\xbf{"id": "a", "label": 0}\r\n', {"a": 0}),
    "latin1.tsv": Case(b"id\tlabel\na\t0\n\xff\t1\n", words=("line 3", "0xff")),
    "latin1.jsonl": Case(b'{"id": "a", "label": 0}\n{"id": "\xe9", "label": 1}\n', words=("line 2", "0xe9")),
    "binary.csv": Case(bytes(range(256)), words=("line 2", "not UTF-8")),
    "two-boms.csv": Case(b"\xef\xbb\xbf\xef\xbb\xbfid,label\na,0\n", words=("'\\ufeffid'",)),
    # line ends and quotes
    "mixed-ends.csv": Case(b"id,label\r\na,0\nb,1\r\n", {"a": 0, "b": 1}),
    "no-last-end.csv": Case(b"id,label\na,0\nb,1", {"a": 0, "b": 1}),
    "quote-never-closed.csv": Case(b'id,label\na,0\n"b,1\nc,2\n', words=("line 3", "never closes")),
    "text-behind-quote.csv": Case(
        b'id,label\n"a"b,1\nc"d,2\n', {'c"d': 2}, [(2, "bad-row")], ("line 2 cannot be split",)
    ),
    "quoted-line-ends.csv": Case(b'id,label\n"a\r\nb",0\nc,9\n', {"a\r\nb": 0}, [(4, "label-range")]),
    "cr-alone.csv": Case(
        b"id,label\ra,0\rb,1\r", words=("line 1", "carriage return stands alone", "LF or CRLF")
    ),
    "cr-in-a-row.csv": Case(
        b"id,label\na\rb,0\nc,1\n", {"c": 1}, [(2, "bad-row")], ("carriage return stands alone",)
    ),
    # headers
    "empty.csv": Case(b"", words=("the table is empty", "names the columns")),
    "bom-alone.csv": Case(b"\xef\xbb\xbf", words=("the table is empty",)),
    "blank-lines.csv": Case(b"\n\n\n", words=("the table is empty",)),
    "empty.jsonl": Case(b"", words=("no rows",)),
    "header-alone.tsv": Case(b"id\tlabel\n\n", words=("no rows",)),
    "label-twice.csv": Case(b"id,label,label\na,0,1\n", words=("two columns are named 'label'",)),
    "other-case.csv": Case(b"ID,Label\na,0\n", words=("no column 'label'", "'ID', 'Label'")),
    "no-header.csv": Case(b"a.jpg,0\nb.jpg,1\n", words=("found 'a.jpg', '0'",)),
    "comment-first.csv": Case(b"# by hand\nid,label\na,0\n", words=("found '# by hand'",)),
    "excel-sep.csv": Case(b"sep=,\nid,label\na,0\n", words=("found 'sep='",)),
    "tabs.csv": Case(b"id\tlabel\na\t0\n", words=("separated by tabs",)),
    "semicolons.tsv": Case(b"id;label\na;0\n", words=("separated by semicolons", ".tsv tabs")),
    "bars.csv": Case(b"id|label\na|0\n", words=("separated by bars",)),
    "comma-behind-header.csv": Case(b"id,label,\na,0,\nb,1,\n", {"a": 0, "b": 1}),
    "upper.CSV": Case(b"id,label\na,0\n", {"a": 0}),
    # rows
    "comma-behind-row.csv": Case(b"id,label\na,0,\nb,1\n", {"b": 1}, [(2, "bad-row")]),
    "commas-alone.csv": Case(b"id,label\n,\na,0\n,,\n", {"a": 0}, [(2, "bad-id"), (4, "bad-row")]),
    "comments.csv": Case(b"id,label\n# by hand\n#,0\n", {"#": 0}, [(2, "bad-row")]),
    "blank-lines-between.csv": Case(b"id,label\n\na,0\n\n\nb,7\n\n", {"a": 0}, [(6, "label-range")]),
    # labels
    "words.csv": Case(
        b"id,label\na,nan\nb,None\nc,null\nd,NA\ne,True\nf,cat\n", rejected=rows(*["label-type"] * 6)
    ),
    "spellings.csv": Case(
        text('id,label\na,"1,000"\nb,007\nc,00\nd,-0\ne,1.\nf,.5\ng,1e0\nh,1L\ni,²\nj,１\nk,1 \n'),
        rejected=rows(*["label-type"] * 11),
    ),
    "large.csv": Case(
        text(f"id,label\na,99999999999999999999999999\nb,{'9' * 5000}\nc,-9223372036854775809\nd,3\n"),
        rejected=rows(*["label-range"] * 4),
    ),
    # ids
    "spaces-in-ids.csv": Case(b"id,label\n a,0\na ,1\na,2\n", {" a": 0, "a ": 1, "a": 2}),
    "signs-in-ids.csv": Case(
        text('id,label\n"a\tb",0\n\u202ea,1\na\u200bb,2\n'), {"a\tb": 0, "\u202ea": 1, "a\u200bb": 2}
    ),
    "formulas.csv": Case(
        text("id,label\n+1,0\n-1,1\n@SUM(A1),2\n=1+1,0\n"), {"+1": 0, "-1": 1, "@SUM(A1)": 2, "=1+1": 0}
    ),
    "same-id-other-label.csv": Case(
        b"id,label\na,0\nb,1\na,2\n", {"a": 0, "b": 1}, [(4, "duplicate-id")], ("line 2 has the same id",)
    ),
    "same-id-thrice.csv": Case(
        b"id,label\na,0\na,1\na,2\n", {"a": 0}, rows("duplicate-id", "duplicate-id", first=3)
    ),
    "id-of-the-limit.csv": Case(text(f"id,label\n{'a' * 65_535},0\n"), {"a" * 65_535: 0}),
    "id-over-the-limit.csv": Case(text(f"id,label\n{'é' * 32_768},0\n"), rejected=[(2, "bad-id")]),
    "sharp-s.csv": Case(
        text("id,label\nstraße,0\nSTRASSE,1\nother,2\n"),
        {"straße": 0, "STRASSE": 1, "other": 2},
        lookalikes=[["straße", "STRASSE"]],
    ),
    # JSON lines
    "same-key-twice.jsonl": Case(
        b'{"id": "a", "label": 0, "label": 1}\n{"id": "b", "label": 1}\n', {"b": 1}, [(1, "bad-row")]
    ),
    "deep.jsonl": Case(
        b'{"id": "a", "label": ' + b"[" * 100_000 + b"]" * 100_000 + b'}\n{"id": "b", "label": 1}\n',
        {"b": 1},
        [(1, "bad-row")],
        ("nested too deeply",),
    ),
    "no-objects.jsonl": Case(
        b'{"id": "a", "label": 0}\n[1]\n7\nnull\n"x"\n', {"a": 0}, rows(*["bad-row"] * 4)
    ),
    "no-json.jsonl": Case(
        b'{"id": "a", "label": 0}\n{"id": "b", "label": NaN}\n{"id": "c", "label": 1,}\n{"id": "d"\n'
        b'{"id": "e", "label": 1}{"id": "f", "label": 1}\n{"id": "g", "label": 1e400}\n',
        {"a": 0},
        rows(*["bad-row"] * 5),
    ),
    "types.jsonl": Case(
        b'{"id": "a", "label": "1"}\n{"id": "b", "label": true}\n{"id": "c", "label": 1.0}\n'
        b'{"id": "d", "label": null}\n{"id": "e"}\n{"id": "f", "label": [1]}\n',
        {"a": 1},
        rows("label-type", "label-type", "missing-field", "missing-field", "label-type"),
    ),
    "types-of-ids.jsonl": Case(
        b'{"id": 7, "label": 0}\n{"id": true, "label": 0}\n{"id": null, "label": 0}\n{"label": 0}\n'
        b'{"id": "\\ud800", "label": 0}\n{"id": "\\u0000", "label": 0}\n',
        {"7": 0},
        rows(*["bad-id"] * 5),
    ),
    "one-array.jsonl": Case(b'[{"id": "a", "label": 0},\n{"id": "b", "label": 1}]\n', words=("no column",)),
    # kinds of files
    "table.xlsx": Case(b"PK\x03\x04", words=("cannot ingest this kind of file",)),
    "table.csv.gz": Case(b"\x1f\x8b", words=("cannot ingest this kind of file",)),
    "table": Case(text("id,label\na,0\n"), words=("cannot ingest this kind of file",)),
}
"""Neighbours of those."""


@pytest.mark.parametrize("name", [*KNOWN, *KIN])
def test_a_table_is_treated_as_expected(tmp_path: Path, name: str) -> None:
    case = (KNOWN | KIN)[name]
    (tmp_path / name).write_bytes(case.content)
    case.hold_against(treat(tmp_path / name, tmp_path / "out"))


@pytest.mark.skipif(not SHARED, reason=f"no {MANIFEST}: set SHARDKIT_LABELS to a folder that has one")
def test_every_collected_table_is_treated_like_its_twin_here_and_as_its_expectation_begins(
    tmp_path: Path,
) -> None:
    for case in SHARED:
        out = tmp_path / case["name"]
        if case["name"] == "traversal.csv":
            found = treat(FOLDER / case["name"], out, IMAGE_AND_LABEL)
            assert found.rejected == TRAVERSAL_REJECTED
        else:
            found = treat(FOLDER / case["name"], out)
            KNOWN[case["name"]].hold_against(found)
        if case["expect"].startswith("reject file"):
            assert found.was_refused, case
        elif case["expect"].startswith("accept"):
            assert (found.kept and not found.rejected) or "no column" in found.said, case
        else:
            assert found.rejected or found.was_refused or case["expect"].startswith(("both", "keep both")), (
                case
            )


TRAVERSAL_REJECTED = rows(*["outside-source"] * 5)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (("nan", "inf", "1e0", "+1", " 1", "0x1", "1_0", "\u0661"), "not all in plain digits: ' 1'"),
        (("0", "1", "NA"), "not all in plain digits: 'NA'"),
        (("0", "1", "none", "2"), "'none'"),
        (("7", "07"), "'07'"),
        (('"1,000"', "2"), "'1,000'"),
        (("0.0", "1.0", "1.5", ""), "neither whole numbers from 0 nor names"),
        (("-1", "1"), "neither whole numbers from 0 nor names"),
    ],
)
def test_without_a_contract_no_meaning_is_guessed_into_labels_that_are_nearly_numbers(
    tmp_path: Path, labels: tuple[str, ...], words: str
) -> None:
    rows = "".join(f"{number},{label}\n" for number, label in enumerate(labels))
    (tmp_path / "t.csv").write_text(f"id,label\n{rows}", "utf-8")
    with pytest.raises(SourceError, match=re.escape(words)):
        ingest(tmp_path / "t.csv", tmp_path / "out", workers=0)


@pytest.mark.parametrize(
    "labels", [("01", "02", "12"), ("0", "1", "A"), ("+", "-"), ("True", "False"), ("cat", "n/a")]
)
def test_without_a_contract_other_labels_are_names(tmp_path: Path, labels: tuple[str, ...]) -> None:
    rows = "".join(f"{number},{label}\n" for number, label in enumerate(labels))
    (tmp_path / "t.csv").write_text(f"id,label\n{rows}", "utf-8")
    report = ingest(tmp_path / "t.csv", tmp_path / "out", workers=0)
    assert report.tally.kinds["label"] == dict.fromkeys(labels, 1)


def photo_bytes() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 90, 10)).save(buffer, "JPEG")
    return buffer.getvalue()


def test_ids_that_lead_out_of_the_tables_folder_are_rejected_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    (tmp_path / "deep" / "x.jpg").write_bytes(photo_bytes())
    (folder / "t.csv").write_bytes(TRAVERSAL)
    opened: list[str] = []
    true_open = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: opened.append(str(path)) or true_open(path, *rest, **more)
    )
    found = treat(folder / "t.csv", tmp_path / "out", IMAGE_AND_LABEL)
    assert found.kept == {}
    assert found.rejected == TRAVERSAL_REJECTED
    assert not [path for path in opened if path.endswith(("passwd", "hostname", "x.jpg"))]


@pytest.mark.parametrize(
    ("header", "is_kept"), [("id,label", False), ("id,path,label", True), ("name,label", True)]
)
def test_ids_that_lead_out_are_rejected_where_they_may_be_paths_themselves(
    tmp_path: Path, header: str, is_kept: bool
) -> None:
    (tmp_path / "a.jpg").write_bytes(photo_bytes())
    cells = "../x.jpg,a.jpg,1" if "path" in header else "../x.jpg,1"
    (tmp_path / "t.csv").write_text(f"{header}\n{cells}\n")
    fields = IMAGE_AND_LABEL if "path" in header else LABEL
    rules = RecordRules(on_bad="skip", id=header.partition(",")[0])
    found = treat(tmp_path / "t.csv", tmp_path / "out", fields, rules)
    assert found.kept == ({"../x.jpg": 1} if is_kept else {})
    assert found.rejected == ([] if is_kept else [(2, "outside-source")])


def test_a_file_is_found_by_the_other_unicode_form_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "cafe\u0301.jpg").write_bytes(photo_bytes())
    (tmp_path / "t.csv").write_text("id,label\ncaf\u00e9.jpg,0\ncaf\u00e8.jpg,1\n", "utf-8")
    found = treat(tmp_path / "t.csv", tmp_path / "out", IMAGE_AND_LABEL)
    assert found.kept == {"caf\u00e9.jpg": 0}
    assert found.rejected == [(3, "missing-file")]


def test_paths_that_are_no_files_are_rejected_each_for_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    os.mkfifo(folder / "pipe.jpg")
    (folder / "loop").symlink_to("loop")
    (folder / "gone").symlink_to("nowhere")
    (folder / "out.jpg").symlink_to(tmp_path / "secret.jpg")
    (tmp_path / "secret.jpg").write_bytes(photo_bytes())
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "a.jpg").write_bytes(photo_bytes())
    expected = {
        "a.jpg": "",
        "./a.jpg": "",
        "sub/../a.jpg": "",
        "sub": "not-a-file",
        ".": "not-a-file",
        "pipe.jpg": "not-a-file",
        "loop": "unreadable",
        "gone": "missing-file",
        "out.jpg": "outside-source",
        "empty.jpg": "empty",
        "a.jpg ": "missing-file",
        "A.jpg": "missing-file",
        "a.jpg/": "missing-file",
        "a.jpg/x": "missing-file",
        "sub\\..\\a.jpg": "missing-file",
        "~/a.jpg": "missing-file",
        "http://localhost/a.jpg": "missing-file",
        "file:///etc/hostname": "missing-file",
        "n" * 256: "missing-file",
        "..": "outside-source",
        "..\\folder\\a.jpg": "outside-source",
        "C:\\a.jpg": "outside-source",
        "sub/../../folder/a.jpg": "outside-source",
    }
    listed = "".join(f"{path},0\n" for path in expected)
    (folder / "t.csv").write_text(f"id,label\n{listed}", "utf-8")
    found = treat(folder / "t.csv", tmp_path / "out", IMAGE_AND_LABEL)
    kept = [path for path, reason in expected.items() if not reason]
    assert list(found.kept) == kept
    lines = dict(enumerate(expected, start=2))
    assert {lines[line]: reason for line, reason in found.rejected} == {
        path: reason for path, reason in expected.items() if reason
    }


def test_a_name_of_255_bytes_is_found(tmp_path: Path) -> None:
    name = "n" * 251 + ".jpg"
    (tmp_path / name).write_bytes(photo_bytes())
    (tmp_path / "t.csv").write_text(f"id,label\n{name},0\n")
    assert treat(tmp_path / "t.csv", tmp_path / "out", IMAGE_AND_LABEL).kept == {name: 0}
