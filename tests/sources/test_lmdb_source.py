"""LMDB files of others as a source."""

import io
import os
import pickle
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from lmdb_parsers import late, named, named_past_counters, nothing, past_counters, split, whole
from PIL import Image

from shardkit.contract import (
    BytesField,
    CheckedRecord,
    Contract,
    FileContent,
    ImageField,
    LabelField,
    Reason,
    RecordRules,
    Rejection,
    ScalarField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources import RawRecord, Source
from shardkit.sources.lmdb import container
from shardkit.sources.lmdb.file import is_lmdb_folder
from shardkit.sources.lmdb.source import LmdbSource

X = Contract({"x": BytesField()})


def write(path: Path, entries: Mapping[bytes, bytes]) -> Path:
    """Write an LMDB as its own package does, one transaction each hundred entries."""
    pairs = list(entries.items())
    with lmdb.open(str(path), map_size=1 << 28, subdir=False, lock=False) as environment:
        for start in range(0, max(1, len(pairs)), 100):
            with environment.begin(write=True) as transaction:
                for key, value in pairs[start : start + 100]:
                    transaction.put(key, value)
    return path


def judged(source: Source, contract: Contract, size: int = 2) -> list[CheckedRecord | Rejection]:
    source.require(contract)
    verdicts: list[CheckedRecord | Rejection] = []
    for part in source.parts(size):
        for raw in pickle.loads(pickle.dumps(source)).read(pickle.loads(pickle.dumps(part)), contract):
            is_raw = isinstance(raw, RawRecord)
            verdicts.append(contract.judge(raw.id, raw.source, raw.values) if is_raw else raw)
    assert len(verdicts) == source.count()
    return verdicts


def webp(number: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(stream, "WEBP", lossless=True)
    return stream.getvalue()


def test_entries_come_in_key_order_with_their_keys_as_ids(tmp_path: Path) -> None:
    source = LmdbSource(
        write(tmp_path / "x.lmdb", {b"b": b"2", b"a/1": b"1", "ü".encode(): b"", b"10": b"3"})
    )
    verdicts = judged(source, X)
    assert [verdict.id for verdict in verdicts] == ["10", "a/1", "b", "ü"]
    assert [v.values[0].payload for v in verdicts if isinstance(v, CheckedRecord)] == [b"3", b"1", b"2", b""]
    assert [verdict.source for verdict in verdicts][2] == f"{tmp_path}/x.lmdb entry 2"


def test_keys_of_any_length_and_values_of_any_size_come_whole(tmp_path: Path) -> None:
    draw = random.Random(0)
    sizes = [0, 9, 2500, 9000]
    entries = {
        draw.randbytes(draw.randrange(1, 400)): draw.randbytes(draw.choice(sizes)) for _ in range(3000)
    }
    source = LmdbSource(write(tmp_path / "x.lmdb", entries))
    source.require(X)
    rows = [
        row
        for part in source.parts(1000)
        for row in source._container.read(part.locator, part.marks, ("value",))
    ]
    assert [row.locator for row in rows] == sorted(entries)
    assert [row.values["value"].data for row in rows] == [entries[key] for key in sorted(entries)]


def test_a_folder_with_an_environment_is_taken_as_the_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    assert not is_lmdb_folder(str(tmp_path / "env"))
    write(tmp_path / "env" / "data.mdb", {b"a": b"1"})
    assert is_lmdb_folder(str(tmp_path / "env"))
    assert [verdict.id for verdict in judged(LmdbSource(tmp_path / "env"), X)] == ["a"]


def test_webp_in_lmdb_is_proposed_as_an_image_by_content(tmp_path: Path) -> None:
    path = write(tmp_path / "lsun", {b"%06x" % number: webp(number) for number in range(3)})
    source = LmdbSource(path)
    contract = source.propose()
    assert contract == Contract({"image": ImageField()})
    assert [type(verdict) for verdict in judged(source, contract)] == [CheckedRecord] * 3
    assert LmdbSource(write(tmp_path / "other", {b"a": b"some bytes"})).propose() == Contract(
        {"value": BytesField()}
    )


def test_a_key_that_is_not_utf8_is_a_bad_id(tmp_path: Path) -> None:
    first, second = judged(LmdbSource(write(tmp_path / "x", {b"caf\xe9": b"1", b"\xff\x00": b"2"})), X)
    assert isinstance(first, Rejection)
    assert isinstance(second, Rejection)
    assert (first.id, first.reason) == ("caf\\xe9", Reason.BAD_ID)
    assert (second.id, second.reason) == ("\\xff\\x00", Reason.BAD_ID)


def test_a_function_of_the_caller_takes_values_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "x", {b"%d" % number: bytes([number]) + webp(number) for number in range(3)})
    contract = Contract({"image": ImageField(), "label": LabelField(num_classes=3)})
    verdicts = judged(LmdbSource(path, parse=split), contract)
    assert [v.values[1].seen for v in verdicts if isinstance(v, CheckedRecord)] == ["0", "1", "2"]
    proposed = LmdbSource(path, parse=split).propose()
    assert proposed == Contract({"label": LabelField(num_classes=3), "image": ImageField()})


def test_the_function_may_name_the_records(tmp_path: Path) -> None:
    source = LmdbSource(write(tmp_path / "x", {b"1": b"a", b"2": b"b"}), parse=named)
    assert [verdict.id for verdict in judged(source, X)] == ["n1", "n2"]


def test_an_entry_on_which_the_function_fails_is_rejected_and_the_rest_kept(tmp_path: Path) -> None:
    source = LmdbSource(write(tmp_path / "x", {b"1": b"10", b"2": b"ten", b"3": b"30"}), parse=whole)
    first, second, third = judged(source, Contract({"x": ScalarField("int64")}))
    assert isinstance(second, Rejection)
    assert (second.id, second.reason) == ("2", Reason.BAD_ROW)
    assert "parse fails on this entry: ValueError" in second.sentence
    assert (first.id, third.id) == ("1", "3")


@pytest.mark.parametrize("parse", [whole, nothing])
def test_a_function_that_gives_nothing_for_any_of_the_first_entries_is_refused(
    tmp_path: Path, parse: object
) -> None:
    with pytest.raises(SourceError, match="parse gives no values for any of the first entries; a: parse"):
        LmdbSource(write(tmp_path / "x", {b"a": b"none"}), parse=parse)  # type: ignore[arg-type]


@pytest.mark.parametrize(("parse", "prefix"), [(past_counters, ""), (named_past_counters, "n")])
def test_an_entry_that_the_function_gives_none_for_is_passed_over_and_counted(
    tmp_path: Path, parse: Any, prefix: str
) -> None:
    entries = {b"1": b"a", b"_len": b"4", b"_size": b"9", b"b": b"c", b"d": b"e", b"__": b""}
    source = LmdbSource(write(tmp_path / "x", entries), parse=parse)
    verdicts = judged(source, X)
    assert [(verdict.id, verdict.source) for verdict in verdicts] == [
        (f"{prefix}1", f"{tmp_path}/x entry 0"),
        (f"{prefix}b", f"{tmp_path}/x entry 4"),
        (f"{prefix}d", f"{tmp_path}/x entry 5"),
    ]
    assert [v.values[0].payload for v in verdicts if isinstance(v, CheckedRecord)] == [b"a", b"c", b"e"]
    assert source.ignored == {"entry that is no record": 3}


def test_nothing_but_entries_that_are_no_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="parse gives no values for any entry"):
        LmdbSource(write(tmp_path / "x", {b"_len": b"1"}), parse=past_counters)


def test_a_value_that_appears_behind_the_first_entries_is_found(tmp_path: Path) -> None:
    entries = {b"1%03d" % number: b"v" for number in range(100)} | {b"9": b"v"}
    source = LmdbSource(write(tmp_path / "x", entries), parse=late)
    contract = Contract({"w": ScalarField("int64", default=0)})
    source.require(contract)
    found = [record for part in source.parts(40) for record in source.read(part, contract)]
    assert [item.values["w"] for item in found if isinstance(item, RawRecord)] == [None] * 100 + [5]


def test_a_function_that_no_worker_could_find_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="give a function at the top of a module"):
        LmdbSource(write(tmp_path / "x", {b"a": b"1"}), parse=lambda key, value: {"x": value})


def test_a_contract_of_several_fields_asks_for_a_function(tmp_path: Path) -> None:
    source = LmdbSource(write(tmp_path / "x", {b"a": b"text"}))
    with pytest.raises(SourceError, match=r"'x', 'label'; give a function.*parse="):
        source.require(Contract({"x": BytesField(), "label": LabelField(num_classes=2)}))
    with pytest.raises(SourceError, match="'label'; give a function"):
        source.require(Contract({"label": LabelField(num_classes=2)}))
    with pytest.raises(SourceError, match="leave it out"):
        source.require(Contract({"x": BytesField()}, RecordRules(id="x")))
    verdicts = judged(
        source, Contract({"caption": TextField(), "label": LabelField(num_classes=2, default=1)})
    )
    assert [type(verdict) for verdict in verdicts] == [CheckedRecord]


def test_a_value_too_large_for_a_field_is_refused_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = LmdbSource(write(tmp_path / "x", {b"a": b"1", b"b": bytes(200)}))
    monkeypatch.setattr(container, "MAX_FILE_BYTES", 100)
    first, second = judged(source, X)
    assert isinstance(first, CheckedRecord)
    assert isinstance(second, Rejection)
    assert (second.id, second.reason) == ("b", Reason.TOO_LONG)


def test_named_databases_and_several_values_a_key_are_refused_plainly(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "n"), subdir=False, max_dbs=2, lock=False) as environment:
        table = environment.open_db(b"images")
        with environment.begin(write=True, db=table) as transaction:
            transaction.put(b"a", b"1")
    with pytest.raises(SourceError, match=r"n: it holds named databases; only the main one is read"):
        LmdbSource(tmp_path / "n")
    altered = bytearray(write(tmp_path / "d", {b"a": b"1"}).read_bytes())
    for page in (0, 4096):
        altered[page + 92] = 0x04  # MDB_DUPSORT, in the flags of the main database
    (tmp_path / "d").write_bytes(altered)
    with pytest.raises(
        SourceError, match=r"d: its main database has flags 0x4, such as several values a key"
    ):
        LmdbSource(tmp_path / "d")


def test_an_empty_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="the LMDB has no rows"):
        LmdbSource(write(tmp_path / "x", {}))


@pytest.mark.parametrize("data", [b"", b"text", bytes(8192), os.urandom(5000)])
def test_what_is_no_lmdb_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.mdb").write_bytes(data)
    with pytest.raises(SourceError, match=r"x\.mdb: it "):
        LmdbSource(tmp_path / "x.mdb")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="not a regular file"):
        LmdbSource(tmp_path / "pipe")
    with pytest.raises(SourceError, match="No such file"):
        LmdbSource(tmp_path / "absent")


def test_a_file_that_changes_between_scan_and_read_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "x", {b"a": b"1"})
    source = LmdbSource(path)
    source.require(X)
    (part,) = source.parts(5)
    before = source.stamps(part, X)
    assert [stamp.bytes for stamp in before] == [1]
    write(path, {b"a": b"2"})
    os.utime(path, ns=(1, 1))
    with pytest.raises(SourceError, match="changed while it was ingested"):
        list(source.read(part, X))


def test_no_environment_stays_open_between_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "x", {b"a": b"1", b"b": b"2"})
    source = LmdbSource(path)
    source.require(X)
    parts = source.parts(1)
    part = next(parts)
    records = source.read(part, X)
    next(records)
    with lmdb.open(
        str(path), subdir=False, readonly=True, lock=False
    ):  # a second one in a process is an error
        pass


def end_of_reading(path: Path) -> int:
    """Read all of a file in a forked child and return its status: 0 or 1, or the signal that ended it, below 0."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            source = LmdbSource(path)
            source.require(X)
            status = 0
            for part in source.parts(50):
                for record in source.read(part, X):
                    content = None if isinstance(record, Rejection) else record.values["x"]
                    status = status if content is None or isinstance(content, FileContent) else 3
        except SourceError:
            status = 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_file_cut_anywhere_is_refused_and_never_ends_the_process(tmp_path: Path) -> None:
    entries = {b"%03d" % number: bytes(number * 37 % 9000) for number in range(200)}
    data = write(tmp_path / "x", entries).read_bytes()
    for size in range(0, len(data), 4096 * 7 + 100):
        (tmp_path / "cut").write_bytes(data[:size])
        assert end_of_reading(tmp_path / "cut") == 1
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match="cut: it is cut: its header speaks of"):
        LmdbSource(tmp_path / "cut")


def test_a_flipped_bit_never_ends_the_process(tmp_path: Path) -> None:
    entries = {b"%03d" % number * (number % 3 + 1): bytes(number * 37 % 3000) for number in range(200)}
    data = write(tmp_path / "x", entries).read_bytes()
    draw = random.Random(1)
    heads = [page * 4096 + draw.randrange(64) for page in range(len(data) // 4096)]
    for position in draw.sample(heads, min(60, len(heads))):
        altered = bytearray(data)
        altered[position] ^= 1 << draw.randrange(8)
        (tmp_path / "altered").write_bytes(altered)
        assert end_of_reading(tmp_path / "altered") in (0, 1), position
