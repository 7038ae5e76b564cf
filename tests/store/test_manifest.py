"""The manifest parser names the first fault, and never lets anything but its own errors out."""

import json
import os
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_datasets import CONTRACT, ROWS, write_dataset

from shardkit.contract import Contract, RecordRules
from shardkit.errors import FormatError, ManifestError
from shardkit.store import PastGeneration, Store, is_safe_path, make_manifest
from shardkit.store.history import history_path
from shardkit.store.manifest_parser import parse_manifest


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = write_dataset(tmp_path_factory.mktemp("valid"), "memmap", ROWS)
    top: dict[str, Any] = json.loads((root / "manifest.json").read_text())
    return top


def parse(top: Any) -> Any:
    return parse_manifest(json.dumps(top).encode(), "manifest.json")


def test_a_manifest_survives_writing_and_reading(valid: dict[str, Any]) -> None:
    manifest = parse(valid)
    assert manifest.to_dict() == valid
    assert manifest.count == 5
    assert [(shard.number, shard.backend, shard.count) for shard in manifest.shards] == [
        (0, "memmap", 3),
        (1, "memmap", 2),
    ]
    assert parse_manifest(manifest.to_bytes(), "m") == manifest


def test_unknown_keys_are_ignored(valid: dict[str, Any]) -> None:
    extended = deepcopy(valid) | {"version": "1.7", "colour": "blue"}
    extended["shards"][0]["colour"] = extended["index"]["files"][0]["colour"] = None
    assert parse(extended).shards == parse(valid).shards


def test_numbers_of_shards_need_not_increase(valid: dict[str, Any]) -> None:
    top = deepcopy(valid)
    top["shards"].reverse()
    assert [(shard.number, shard.count) for shard in parse(top).shards] == [(1, 2), (0, 3)]


REMOVED = object()
PAST = {"generation": 2, "dataset_id": "0" * 32}


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (["format"], "other", "format: must be 'shardkit'"),
        (["version"], "one", "version: must be like '1.0'"),
        (["version"], 1, "version: must be a string"),
        (["dataset_id"], "XYZ", "dataset_id: must be 32"),
        (["generation"], 0, "generation: must be at least 1"),
        (["generation"], True, "generation: must be an integer"),
        (["generation"], 1.0, "generation: must be an integer"),
        (["count"], 6, "count: says 6, the shards hold 5"),
        (["contract"], {"fields": {"x": {"type": "no-such"}}}, "contract: "),
        (["shards"], REMOVED, "shards: is missing"),
        (["shards"], {}, "shards: must be an array"),
        (["shards", 1, "number"], 0, r"shards\[1\].number: is 0, which another shard has"),
        (["next_shard"], 1, "next_shard: must be at least 2 and fit"),
        (["next_shard"], 1 << 63, "next_shard: must be at least 2 and fit"),
        (["next_shard"], REMOVED, "next_shard: is missing"),
        (["history"], REMOVED, "history: is missing"),
        (["history"], {}, "history: must be an array"),
        (["history"], [3], r"history\[0\]: must be an object"),
        (["history"], [PAST | {"generation": 0}], r"history\[0\].generation: must be at least 1"),
        (["history"], [PAST | {"generation": 4}], r"history\[0\].generation: is 4, but must .* below 4"),
        (["history"], [PAST, PAST], r"history\[1\].generation: is 2, but must increase"),
        (["history"], [PAST, PAST | {"generation": 1}], r"history\[1\].generation: is 1, but must increase"),
        (["history"], [PAST | {"dataset_id": "../../x"}], r"history\[0\].dataset_id: must be 32"),
        (["shards", 0, "number"], -1, r"shards\[0\].number: must be at least 0"),
        (["shards", 0, "count"], 0, r"shards\[0\].count: must be at least 1"),
        (["shards", 0, "count"], 1 << 64, r"shards\[0\].count: must be at least 1 and fit"),
        (["shards", 0, "backend"], "zip", r"shards\[0\].backend: is 'zip'; known are memmap, lmdb"),
        (["shards", 0], [], r"shards\[0\]: must be an object"),
        (["shards", 0, "files"], [], r"shards\[0\].files\[0\]: must be the file 'shards/00000/id.bin'"),
        (["shards", 0, "files", 0, "path"], "../../x", r"shards\[0\].files\[0\].path: '../../x' must be"),
        (["shards", 0, "files", 0, "path"], "/etc/x", r"shards\[0\].files\[0\].path: '/etc/x' must be"),
        (["shards", 0, "files", 0, "path"], "a/b", r"shards\[0\].files\[0\]: must be the file"),
        (["shards", 0, "files", 0, "bytes"], -1, r"shards\[0\].files\[0\].bytes: must be at least 0"),
        (["shards", 0, "files", 0, "xxh3_128"], "g" * 32, r"shards\[0\].files\[0\].xxh3_128: must be 32"),
        (["index", "rejected"], None, "index.rejected: must be an integer"),
        (["index", "generation"], 7, r"index.files\[0\]: must be the file 'index/00007/ids.bin'"),
        (["source"], None, "source: must be an object"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(valid: dict[str, Any], place: list[Any], value: Any, named: str) -> None:
    top = deepcopy(valid) | {"generation": 4, "history": [PAST]}
    inner: Any = top
    for key in place[:-1]:
        inner = inner[key]
    if value is REMOVED:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    with pytest.raises(ManifestError, match=f"^manifest.json: {named}"):
        parse(top)


def test_a_file_too_many_is_refused(valid: dict[str, Any]) -> None:
    top = deepcopy(valid)
    top["index"]["files"].append(top["index"]["files"][0])
    with pytest.raises(ManifestError, match=r"index.files\[7\]: is one file too many"):
        parse(top)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[]", "format: "),
        (b"null", "format: "),
        (b'{"format": "shardkit", "format": "shardkit"}', "same key twice"),
        (b'{"format": NaN}', "NaN, which is no JSON number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_not_json_is_refused(data: bytes, named: str) -> None:
    with pytest.raises(ManifestError, match=named):
        parse_manifest(data, "manifest.json")


def test_an_endless_manifest_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "manifest.json").open("wb") as stream:
        stream.truncate(300 << 20)  # sparse
    with pytest.raises(ManifestError, match="larger than"):
        Store(tmp_path)


def test_a_manifest_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    os.mkfifo(path)
    with pytest.raises(ManifestError, match="not a regular file"):
        Store(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ManifestError, match="symbolic links"):
        Store(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ManifestError, match="not a regular file"):
        Store(tmp_path)


def test_a_manifest_that_is_a_folder_leaves_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").mkdir()
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(ManifestError):
            Store(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_the_data_set_id_follows_from_fields_and_stored_bytes_and_not_from_what_is_done_with_bad_records(
    valid: dict[str, Any],
) -> None:
    manifest = parse(valid)
    tolerant = Contract(CONTRACT.fields, RecordRules(on_bad="skip"))
    other = Contract({"blob": CONTRACT.fields["blob"]})
    ids = [
        make_manifest(1, contract, manifest.shards, manifest.index).dataset_id
        for contract in (CONTRACT, tolerant, other)
    ]
    assert ids[0] == ids[1] == manifest.dataset_id != ids[2]
    assert make_manifest(1, CONTRACT, manifest.shards[:1], manifest.index).dataset_id != ids[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


past_generations = st.lists(
    st.builds(
        PastGeneration, st.integers(-2, 1 << 64), st.text("0123456789abcdef", min_size=32, max_size=32)
    ),
    max_size=6,
)


@settings(max_examples=200, deadline=None)
@given(history=past_generations, generation=st.integers(1, 1 << 63), is_sorted=st.booleans())
def test_a_history_is_read_if_it_increases_from_1_and_ends_below_the_generation(
    valid: dict[str, Any], history: list[PastGeneration], generation: int, is_sorted: bool
) -> None:
    if is_sorted:  # or hardly any would do
        history.sort(key=lambda past: past.generation)
    top = valid | {"generation": generation, "history": [past.to_dict() for past in history]}
    numbers = [0, *(past.generation for past in history), generation]
    if generation < 1 << 63 and all(below < above for below, above in pairwise(numbers)):
        manifest = parse(top)
        assert list(manifest.history) == history
        assert manifest.lineage == (*history, PastGeneration(generation, manifest.dataset_id))
        assert all(is_safe_path(history_path(past.generation)) for past in manifest.history)
    else:
        with pytest.raises(ManifestError, match="generation"):
            parse(top)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), value=json_values)
def test_any_other_value_anywhere_gives_a_manifest_or_a_format_error(
    valid: dict[str, Any], data: st.DataObject, value: Any
) -> None:
    top = deepcopy(valid)
    inner: Any = top
    while True:
        key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        if not isinstance(inner[key], (dict, list)) or not inner[key] or data.draw(st.booleans()):
            break
        inner = inner[key]
    inner[key] = value
    with suppress(FormatError):
        parse(top)


@pytest.mark.parametrize("path", ["a", "shards/00000/id.bin", "a-b_c.d/..e"])
def test_paths_inside_are_safe(path: str) -> None:
    assert is_safe_path(path)


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\0b", "ä", "c:a", "a b", "a\n", "x" * 256],
)
def test_paths_that_may_lead_out_are_not(path: str) -> None:
    assert not is_safe_path(path)
