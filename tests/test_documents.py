"""What the documents say of the contract and of raw input is what the code does."""

import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import lmdb
import pytest
from PIL import Image

from shardkit import (
    DevicePrefetcher,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    ShardSampler,
    Store,
    transforms,
)
from shardkit.contract import Contract, ImageField, Reason, Warned
from shardkit.sources import FILE_SOURCES, FOLDER_SOURCES, open_source
from shardkit.sources.files import find_junk

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRACT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
LOADING = (ROOT / "docs" / "loading.md").read_text(encoding="utf-8")
SOURCES = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")


def section(document: str, title: str) -> str:
    return document.split(f"\n## {title}\n")[1].split("\n## ")[0]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def example(title: str, folder: Path) -> Path:
    """Return a file with the one program in a section of docs/sources.md."""
    [program] = re.findall(r"```python\n(.*?)```", section(SOURCES, title), re.DOTALL)
    path = folder / "example.py"
    path.write_text(program, encoding="utf-8")
    return path


def run(program: Path) -> str:
    done = subprocess.run(
        [sys.executable, program.name], cwd=program.parent, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def stored_ids(folder: Path) -> list[str]:
    with Store(folder) as store:
        return list(store.ids)


def test_the_examples_are_contracts() -> None:
    for document in (CONTRACT, README):
        for text in re.findall(r"```toml\n(.*?)```", document, re.DOTALL):
            assert Contract.from_dict(tomllib.loads(text)).fields


def test_every_key_of_an_image_is_documented() -> None:
    assert [key.name for key in fields(ImageField) if f"`{key.name}`" not in CONTRACT] == []


def test_every_code_is_documented_and_no_other() -> None:
    documented = set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)*)`", section(CONTRACT, "Reasons")))
    assert documented == {code.value for code in (*Reason, *Warned)}


def test_every_kind_of_file_is_in_the_overview_and_is_recognised_by_the_names_there() -> None:
    overview = SOURCES.split("\n## ")[0]
    registered = {suffix for kind in FILE_SOURCES for suffix in kind.shown.split(", ")}
    suffixes = {name for name in quoted(overview.split("Suffixes count")[0]) if name.startswith(".")}
    assert registered <= suffixes
    assert [end for end in suffixes if not any(kind.recognise(f"name{end}") for kind in FILE_SOURCES)] == []


def test_every_kind_of_folder_has_a_section() -> None:
    words = {
        "a data set of Hugging Face": "state.json",
        "MDS shards": "index.json",
        ".parquet files": ".parquet",
        ".tar files": ".tar",
        "an LMDB": "data.mdb",
        ".tfrecord files": ".tfrecord",
    }
    assert [kind.shown for kind in FOLDER_SOURCES] == list(words)
    assert [word for word in words.values() if f"`{word}`" not in SOURCES] == []


def test_the_files_that_the_overview_calls_refused_are_of_no_kind() -> None:
    sentence = SOURCES.split("Anything else is refused by name: ")[1].split("\n")[0]
    refused = [name for name in quoted(sentence) if name.startswith(".")]
    assert len(refused) > 3
    assert [name for name in refused if any(kind.recognise(f"name{name}") for kind in FILE_SOURCES)] == []


def test_every_extra_is_one_that_can_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    rows = [line.split("|") for line in SOURCES.split("\n## ")[0].splitlines() if line.startswith("| [")]
    named = {extra for row in rows for extra in quoted(row[4])}
    assert named == {"parquet", "tfrecord", "hdf5"}
    assert named <= set(extras)


def test_every_link_leads_to_a_section() -> None:
    titles = re.findall(r"^## (.*)$", SOURCES, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]*)\)", SOURCES)) <= anchors


@pytest.mark.parametrize(("bullet", "is_folder"), [("- files: ", False), ("- folders: ", True)])
def test_what_is_said_to_be_passed_over_is(bullet: str, is_folder: bool) -> None:
    text = section(SOURCES, "Paths, links and junk").split(bullet)[1].split("\n- ")[0].split("\n\n")[0]
    names = quoted(text)
    assert len(names) >= 5
    assert [name for name in names if find_junk(name.encode(), is_folder) is None] == []


def test_the_table_in_the_documents_gives_the_contract_that_is_told(tmp_path: Path) -> None:
    lines = re.findall(r"^    (.*)$", section(SOURCES, "Tables"), re.MULTILINE)
    assert lines[0] == "$ cat labels.csv"
    (tmp_path / "labels.csv").write_text("\n".join(lines[1:]) + "\n", encoding="utf-8")
    source = open_source(tmp_path / "labels.csv")
    assert list(source.propose().fields) == ["image", "label", "age"]
    assert [list(part.ids) for part in source.parts(9)] == [["img/1.jpg", "img/2.jpg"]]


def put_entries(folder: Path) -> None:
    Image.new("RGB", (8, 8), "red").save(folder / "red.jpg")
    content = (folder / "red.jpg").read_bytes()
    with (
        lmdb.open(str(folder / "train.lmdb"), subdir=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number in range(2):
            transaction.put(b"%04d" % number, number.to_bytes(8, "little") + content)


def put_lines(folder: Path) -> None:
    (folder / "notes.txt").write_text("first\nsecond\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("title", "prepare", "out", "ids"),
    [
        ("LMDB", put_entries, "out", ["0000", "0001"]),
        (
            "Records of a program",
            lambda folder: None,
            "scans",
            [f"scan-{number:06d}" for number in range(10)],
        ),
        ("Adding a kind", put_lines, "notes", ["notes/0", "notes/1"]),
    ],
)
def test_the_programs_do_what_is_said(
    tmp_path: Path, title: str, prepare: Callable[[Path], None], out: str, ids: list[str]
) -> None:
    prepare(tmp_path)
    assert run(example(title, tmp_path)) == f"{len(ids)}\n"
    assert stored_ids(tmp_path / out) == ids


def defaults_of(kind: type) -> dict[str, str]:
    """Return each argument that may be left out, and its default as a document writes it."""
    found = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is not parameter.empty:
            found[name] = repr(parameter.default).replace("'", '"')
    return found


def told_defaults() -> list[dict[str, str]]:
    """Return what each table under the defaults of docs/loading.md says."""
    tables = section(LOADING, "Defaults of the loaders").split("| argument | default | meaning |")[1:]
    return [
        {
            name: default
            for names, default in re.findall(r"^\| (.*?) \| `(.*?)` \|", table, re.MULTILINE)
            for name in quoted(names)
        }
        for table in tables
    ]


def test_the_defaults_of_the_loaders_are_those_of_the_code() -> None:
    batches, samples, threads, prefetcher = told_defaults()
    assert defaults_of(ShardSampler) == batches
    assert defaults_of(ShardDataset) == samples
    assert defaults_of(ShardIterableDataset) == batches | samples
    assert defaults_of(ShardLoader) == batches | samples | threads
    assert defaults_of(DevicePrefetcher) == prefetcher


def arguments_of(kind: type) -> str:
    """Return the arguments of a class as a document writes them."""
    shown: list[str] = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(name if parameter.default is parameter.empty else f"{name}={parameter.default!r}")
    return ", ".join(shown).replace("(0.75, 1.3333333333333333)", "(3/4, 4/3)")


def test_every_transform_is_told_with_its_arguments() -> None:
    told = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", section(LOADING, "Transforms"), re.MULTILINE))
    kinds = [kind for name in transforms.__all__ if inspect.isclass(kind := getattr(transforms, name))]
    assert told == {kind.__name__: arguments_of(kind) for kind in kinds if kind is not transforms.ImageOp}
