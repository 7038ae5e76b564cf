"""Damaged tar files: what stands before the damage is kept, what may be lost is told, and nothing wrong is given."""

import contextlib
import gzip
import io
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tars import END, block, header, judged, member, outcomes, packed, write, write_both

from shardkit.contract import BytesField, CheckedRecord, Contract, LabelField, Reason, Rejection
from shardkit.errors import SourceError
from shardkit.sources.tar import container
from shardkit.sources.tar.bytes import GzipBytes, PlainBytes
from shardkit.sources.tar.index import TarIndex, index_tar
from shardkit.sources.tar.source import TarSource

A = Contract({"a": BytesField()})
AB = Contract({"a": BytesField(), "b": BytesField(default="none")})
RECORDS = [("0.a", b"zero"), ("0.b", b"0"), ("1.a", bytes(512)), ("1.b", b"1"), ("2.a", b"two"), ("2.b", b"")]
SMALL = b"".join(member(name, data) for name, data in RECORDS) + END


def index_of(data: bytes) -> TarIndex:
    stream = (
        GzipBytes(io.BytesIO(data))
        if data.startswith(b"\x1f\x8b")
        else PlainBytes(io.BytesIO(data), len(data))
    )
    return index_tar(stream, "t.tar")


def keys_of(index: TarIndex) -> list[str]:
    return [index.key(record) for record in range(len(index))]


def rejection_of(source: TarSource) -> Rejection:
    (rejection,) = [verdict for verdict in judged(source, A) if isinstance(verdict, Rejection)]
    assert rejection.reason == Reason.INCOMPLETE_SOURCE
    return rejection


def test_a_tar_cut_at_any_byte_gives_all_members_before_and_the_byte() -> None:
    ends = [516, 1537, 3072, 3585, 4611, len(SMALL) - len(END)]  # where the data of each member is there
    for cut in range(len(SMALL) + 1):
        index = index_of(SMALL[:cut])
        assert len(list(index.in_file_order())) == sum(cut >= end for end in ends), cut
        assert (index.damage is None) == (cut >= len(SMALL) - 512), cut
        assert index.damage is None or f"it is cut at byte {cut}, " in index.damage.sentence


def test_a_tar_cut_at_any_byte_gives_the_records_before_and_says_where_it_is_cut(tmp_path: Path) -> None:
    ends = [1537, 3585, len(SMALL) - len(END)]  # where all bytes of each record are there
    path = tmp_path / "t.tar"
    for cut in [
        *range(510, 525),
        *range(1020, 1030),
        *range(1530, 4200, 13),
        *range(4600, len(SMALL) + 1, 7),
    ]:
        path.write_bytes(SMALL[:cut])
        whole = sum(cut >= end for end in ends)
        if cut < 516:  # not even the first member is whole
            with pytest.raises(SourceError, match=r"t\.tar: no whole record can be read: it is cut"):
                TarSource(str(path))
            continue
        verdicts = judged(TarSource(str(path)), AB)
        stored = [verdict.id for verdict in verdicts if not isinstance(verdict, Rejection)]
        reasons = [verdict.reason.value for verdict in verdicts if isinstance(verdict, Rejection)]
        assert stored == ["0", "1", "2"][:whole], cut
        assert reasons[:-1] in ([], ["missing-field"])
        assert reasons[-1:] == ["incomplete-source"] * (cut < len(SMALL) - 512), cut


def test_a_cut_tar_ends_in_one_rejection_that_names_it_and_the_byte(tmp_path: Path) -> None:
    for source in write_both(tmp_path, SMALL[:4100]):
        *records, last = judged(source, AB)
        assert [record.id for record in records] == ["0", "1"]
        assert isinstance(last, Rejection)
        assert (last.id, last.reason) == (f"{source.name} at byte 4096", Reason.INCOMPLETE_SOURCE)
        assert "cut at byte 4100, in a header" in last.sentence


def test_a_record_that_may_have_lost_a_member_to_a_cut_is_given_no_default_for_it(tmp_path: Path) -> None:
    source = write(tmp_path, SMALL[: 4096 + 1024])  # 2.a is whole, 2.b is not there
    *records, partial, last = judged(source, AB)
    assert [record.id for record in records] == ["0", "1"]
    assert isinstance(partial, Rejection)
    assert isinstance(last, Rejection)
    assert (partial.id, partial.reason, partial.field) == ("2", Reason.MISSING_FIELD, "b")
    assert "it may be lost, for the tar is damaged: it is cut at byte 5120" in partial.sentence
    assert last.reason == Reason.INCOMPLETE_SOURCE


def test_a_record_that_never_had_the_member_is_given_the_default_before_the_damage(tmp_path: Path) -> None:
    data = packed([("0.a", b"0"), ("0.b", b"0"), ("1.a", b"1"), ("2.a", b"2" * 600)])
    for cut in (3 * 1024 + 512, 3 * 1024 + 600):  # the header of 2.a is there: nothing of 1 is lost
        verdicts = judged(write(tmp_path, data[:cut]), AB)
        assert [type(verdict) for verdict in verdicts] == [CheckedRecord, CheckedRecord, Rejection]


@pytest.mark.parametrize(
    "members", [("0.a", "1.a", "2.a", "0.b", "1.b", "2.b"), ("0.a", "1.a", "2.a", "3.a")]
)
def test_where_members_lie_apart_any_record_may_have_lost_some(
    tmp_path: Path, members: tuple[str, ...]
) -> None:
    data = packed([(name, b"x") for name in members])
    verdicts = judged(write(tmp_path, data[: (len(members) - 1) * 1024]), AB)
    lost = [verdict.id for verdict in verdicts if isinstance(verdict, Rejection) and verdict.field == "b"]
    assert lost == (["2"] if "0.b" in members else ["0", "1", "2"])


def test_a_tar_without_one_whole_record_is_refused_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"t\.tar: no whole record can be read: it is cut at byte 514, in the mem"
    ):
        write(tmp_path, SMALL[:514])
    with pytest.raises(
        SourceError, match="no whole record can be read: it is cut at byte 0, before its end marker"
    ):
        write(tmp_path, b"")
    with pytest.raises(
        SourceError, match="the tar holds no records; ignored were 1 x member without an extension"
    ):
        write(tmp_path, packed([("README", b"x")]))
    source = write(tmp_path, SMALL[:1024])
    with pytest.raises(SourceError, match=r"serves field 'b'.*; the tar is damaged: it is cut at byte 1024"):
        source.require(Contract({"b": LabelField(num_classes=2)}))


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04" + bytes(600), b"some text", gzip.compress(b"no tar" * 200, mtime=0), bytes(700)]
)
def test_what_is_no_tar_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(SourceError, match=r"t\.tar: "):
        write(tmp_path, data)


def test_the_other_tars_of_a_folder_go_on_behind_a_damaged_one(tmp_path: Path) -> None:
    write(tmp_path / "raw", member("0.a", b"0") + END, "1.tar")
    for name, data in [
        ("0.tar", b"nothing"),
        ("2.tar", packed([("x.a", b"x"), ("y.a", b"y")])[:1100]),
        ("3.tar", member("9.a", b"9") + END),
    ]:
        (tmp_path / "raw" / name).write_bytes(data)
    source = TarSource(str(tmp_path / "raw"))
    assert outcomes(source, A) == [
        (f"{tmp_path}/raw/0.tar at byte 0", "incomplete-source"),
        ("0", "0"),
        ("x", "x"),
        (f"{tmp_path}/raw/2.tar at byte 1024", "incomplete-source"),
        ("9", "9"),
    ]


def test_a_damaged_header_is_named(tmp_path: Path) -> None:
    data = bytearray(SMALL)
    data[2048 + 3] ^= 1
    for source in write_both(tmp_path, bytes(data)):
        assert "the header at byte 2048 is damaged: bad checksum" in rejection_of(source).sentence


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_a_hole_of_zeros_does_not_pass_for_the_end(tmp_path: Path, blocks: int) -> None:
    data = SMALL[:2048] + bytes(512 * blocks) + SMALL[2048 + 512 * blocks :]
    for source in write_both(tmp_path, data):
        assert "it seems to end at byte 2048, yet there is data at byte" in rejection_of(source).sentence


def test_a_second_tar_behind_the_end_of_the_first_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    for source in write_both(tmp_path, SMALL + SMALL):
        assert f"yet there is data at byte {len(SMALL)}" in rejection_of(source).sentence
        assert len(judged(source, A)) == 4


def test_padding_is_no_damage_but_a_download_that_stopped_is(tmp_path: Path) -> None:
    for padding in (b"", bytes(512), bytes(1 << 19)):
        for source in write_both(tmp_path, SMALL + padding):
            assert len(judged(source, A)) == 3
    assert (
        "zeros, as a download that was cut short"
        in rejection_of(write(tmp_path, SMALL + bytes(1 << 21))).sentence
    )


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (header("x.a", 2**40), "claims 1099511627776 bytes"),
        (header("x.a", 8**11 - 1), "claims 8589934591 bytes"),
        (header("x.a", -5), "a size below 0"),
        (member("././@PaxHeader", b"12 size=-5\n\n", tarfile.XHDTYPE) + member("x.a", b"1"), "pax header"),
        (
            member("././@PaxHeader", b"11 size=-5\n", tarfile.XHDTYPE) + member("x.a", b"1"),
            "no size that can be",
        ),
        (
            member("././@PaxHeader", b"99 path=a\n", tarfile.XHDTYPE) + member("x.a", b"1"),
            "the pax header at byte",
        ),
        (
            member("././@PaxHeader", b"nonsense", tarfile.XHDTYPE) + member("x.a", b"1"),
            "the pax header at byte",
        ),
        (header("././@LongLink", 2**30, tarfile.GNUTYPE_LONGNAME), "claims 1073741824 bytes, which none has"),
        (header("././@LongLink", 700, tarfile.GNUTYPE_LONGNAME), "member"),
        (
            member("././@LongLink", b"name", tarfile.GNUTYPE_LONGNAME),
            "where the member of an extended header should",
        ),
    ],
)
def test_a_header_that_lies_is_damage_that_takes_no_memory(tmp_path: Path, damage: bytes, word: str) -> None:
    data = SMALL[: -len(END)] + damage + END
    for source in write_both(tmp_path, data):
        rejection = rejection_of(source)
        assert word in rejection.sentence or "cut at byte" in rejection.sentence
        assert len(judged(source, A)) == 4


def test_a_long_chain_of_extended_headers_is_followed_without_recursion() -> None:
    chain = member("././@LongLink", b"long.a\0", tarfile.GNUTYPE_LONGNAME) * 5000
    index = index_of(chain + member("short.a", b"1") + END)
    assert keys_of(index) == ["long"]


def test_a_pax_header_may_give_name_and_size(tmp_path: Path) -> None:
    pax = member("././@PaxHeader", b"15 path=long.a\n9 size=3\n", tarfile.XHDTYPE)
    shared = member("pax_global_header", b"19 comment=0123456\n", tarfile.XGLTYPE)
    data = shared + pax + header("short.a", 0) + block(b"abc") + END
    assert outcomes(write(tmp_path, data), A) == [("long", "abc")]


def test_an_old_sparse_member_is_refused_and_its_neighbours_are_kept(tmp_path: Path) -> None:
    sparse = bytearray(header("1.a", 1024, tarfile.GNUTYPE_SPARSE))
    sparse[482] = 1
    sparse[148:156] = b" " * 8
    sparse[148:156] = b"%06o\0 " % sum(sparse)
    more, last = bytearray(512), bytearray(512)
    more[504] = 1
    data = member("0.a", b"0") + sparse + more + last + b"d" * 1024 + member("2.a", b"2") + END
    for source in write_both(tmp_path, data):
        first, second, third = judged(source, A)
        assert isinstance(second, Rejection)
        assert (first.id, second.id, second.reason, third.id) == ("0", "1", Reason.UNSUPPORTED, "2")
        assert "'1.a' is stored sparse" in second.sentence


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs GNU tar")
@pytest.mark.parametrize(
    "how", [["--format=gnu"], ["--format=pax"], ["--format=pax", "--sparse-version=0.1"]]
)
def test_gnu_tars_own_sparse_members_are_refused_by_their_real_name(tmp_path: Path, how: list[str]) -> None:
    for name in ("0.a", "2.a"):
        (tmp_path / name).write_bytes(b"data")
    with (tmp_path / "1.a").open("wb") as file:
        file.seek(1 << 20)
        file.write(b"end")
    subprocess.run(["tar", "-S", *how, "-cf", "s.tar", "0.a", "1.a", "2.a"], cwd=tmp_path, check=True)
    assert outcomes(TarSource(str(tmp_path / "s.tar")), A) == [
        ("0", "data"),
        ("1", "unsupported"),
        ("2", "data"),
    ]


def test_a_member_too_large_for_one_value_is_refused_and_not_read(tmp_path: Path) -> None:
    with (tmp_path / "t.tar").open("wb") as file:
        file.write(member("0.a", b"0") + header("1.a", 2**31))
        file.seek(2**31, io.SEEK_CUR)
        file.write(member("2.a", b"2") + END)
    assert outcomes(TarSource(str(tmp_path / "t.tar")), A) == [("0", "0"), ("1", "too-long"), ("2", "2")]


def test_gzip_data_cut_at_any_byte_gives_a_prefix_of_the_records() -> None:
    data = gzip.compress(SMALL, compresslevel=0)  # stored: every byte of the tar shows
    for cut in [*range(2, len(data), 5), len(data)]:
        index = index_of(data[:cut])
        assert keys_of(index) == ["0", "1", "2"][: len(index)]
        assert (index.damage is None) == (cut == len(data)), cut
    assert len(index_of(data[:-1])) == 3


def test_a_flipped_bit_in_gzip_data_never_gives_a_record_that_its_checksum_does_not_vouch_for() -> None:
    data = gzip.compress(SMALL)
    for position in range(10, len(data)):  # behind the header, which no checksum covers
        altered = bytearray(data)
        altered[position] ^= 0x10
        index = index_of(bytes(altered))
        stream = GzipBytes(io.BytesIO(altered))
        for (
            _,
            piece,
        ) in index.in_file_order():  # there are some where the bit makes the data look cut, or is not used
            stream.skip(piece.data - stream.position)
            assert stream.read(piece.size) == SMALL[piece.data : piece.data + piece.size]


def test_a_checksum_that_fails_is_told_with_the_records_it_costs(tmp_path: Path) -> None:
    write(tmp_path / "raw", member("9.a", b"9") + END, "1.tar")
    data = bytearray(gzip.compress(SMALL))
    data[-8] ^= 1
    (tmp_path / "raw" / "0.tar.gz").write_bytes(data)
    first, second = judged(TarSource(str(tmp_path / "raw")), A)
    assert isinstance(first, Rejection)
    assert (first.reason, second.id) == (Reason.INCOMPLETE_SOURCE, "9")
    assert "incorrect data check" in first.sentence
    assert "none is taken" in first.sentence


def test_gzip_members_may_follow_one_another_and_zeros_but_nothing_else_the_last(tmp_path: Path) -> None:
    pieces = b"".join(gzip.compress(SMALL[at : at + 700]) for at in range(0, len(SMALL), 700))
    for data in (pieces, pieces + bytes(100_000)):
        assert len(judged(write(tmp_path, data), A)) == 3
    assert (
        "further bytes behind the end of its gzip data"
        in rejection_of(write(tmp_path, pieces + b"x")).sentence
    )


def test_gzip_data_of_endless_zeros_takes_little_memory_and_time(tmp_path: Path) -> None:
    data = gzip.compress(member("0.a", b"0") + bytes(1 << 26))
    started = time.monotonic()
    index = index_of(data)
    assert index.damage is not None
    assert time.monotonic() - started < 20


def test_records_of_gzip_data_whose_members_lie_too_far_apart_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [(f"{key}.{extension}", bytes(100)) for extension in "ab" for key in "0123456789"]
    source = write(tmp_path, gzip.compress(packed(members)))
    monkeypatch.setattr(container, "_MAX_HELD_BYTES", 500)
    with pytest.raises(SourceError, match="decompress it with gunzip"):
        judged(source, A)


@given(
    changes=st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, len(SMALL)),
    is_gzip=st.booleans(),
)
def test_no_damage_ends_in_an_exception_of_another_kind(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int, is_gzip: bool
) -> None:
    data = bytearray(gzip.compress(SMALL) if is_gzip else SMALL)
    for position, value in changes:
        data[position % len(data)] = value
    path = tmp_path_factory.mktemp("tar") / "t.tar"
    path.write_bytes(data[:cut] if cut % 3 == 0 else data)
    with contextlib.suppress(SourceError):
        judged(TarSource(str(path)), A)


def test_many_repeats_of_one_name_take_no_long_time() -> None:
    started = time.monotonic()
    index = index_of(member("0.a", b"") * 10_000 + member("1.b", b"") + END)
    assert list(index.faults) == [0]
    assert time.monotonic() - started < 20
