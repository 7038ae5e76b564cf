"""Which records are looked at when not all can be."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest

from shardkit.contract import Contract, Reason, Rejection, TextField
from shardkit.ingestion import sampling
from shardkit.ingestion.sampling import choose_records, read_picked
from shardkit.sources import Part, RawRecord
from shardkit.sources.source import Stamp

CONTRACT = Contract({"text": TextField()})


class Numbered:
    """Records named by their number, of known sizes; counts what it is asked for."""

    name = "numbered"
    remarks: Mapping[str, str] = {}

    def __init__(self, sizes: list[int], names: dict[int, str] | None = None) -> None:
        self.ignored: Counter[str] = Counter()
        self.sizes = sizes
        self.names = names or {}
        self.stamped = 0
        self.given = 0

    def require(self, contract: Contract) -> None: ...

    def propose(self) -> Contract:
        return CONTRACT

    def count(self) -> int | None:
        return len(self.sizes)

    def parts(self, size: int) -> Iterator[Part]:
        for first in range(0, len(self.sizes), size):
            numbers = range(first, min(first + size, len(self.sizes)))
            ids = [self.names.get(number, str(number)) for number in numbers]
            bad = {
                position: Rejection("?", self.place(first + position), Reason.BAD_ID, "the id is empty")
                for position, name in enumerate(ids)
                if not name
            }
            yield Part(first, ids, numbers, None, bad)

    def place(self, mark: int) -> str:
        return f"record {mark}"

    def stamps(self, part: Part, contract: Contract) -> list[Stamp]:
        self.stamped += len(part.ids)
        return [Stamp(self.sizes[mark], 0) for mark in part.marks]

    def read(self, part: Part, contract: Contract) -> Iterator[RawRecord | Rejection]:
        for position, name in enumerate(part.ids):
            self.given += 1
            yield part.bad.get(position, RawRecord(name, "", {"text": name}))


class Uncounted(Numbered):
    def count(self) -> int | None:
        return None


def chosen(source: Numbered, samples: int) -> list[int]:
    sample = choose_records(source, CONTRACT, samples)
    numbers = [int(record.id) for record in read_picked(source, CONTRACT, sample)]
    assert sample.total == len(source.sizes)
    assert numbers == sorted(set(numbers))
    assert sample.chosen == len(numbers)
    return numbers


@pytest.mark.parametrize("count", [1, 15, 16, 17, 40, 333])
@pytest.mark.parametrize("kind", [Numbered, Uncounted])
def test_all_records_are_looked_at_where_the_sample_may_hold_them(count: int, kind: type[Numbered]) -> None:
    source = kind([5] * count)
    assert chosen(source, count) == list(range(count))
    assert source.stamped == 0


def test_the_first_the_last_and_evenly_spread_records_are_looked_at() -> None:
    numbers = chosen(Numbered([5] * 10_000), 320)
    assert 280 <= len(numbers) <= 340
    assert {0, 9_999} <= set(numbers)
    gaps = [right - left for left, right in pairwise(numbers)]
    assert max(gaps) <= 700


def test_the_smallest_and_the_largest_are_looked_at_wherever_they_are() -> None:
    sizes = [1000 + number % 7 for number in range(20_000)]
    extremes = {3_333: 1, 3_334: 0, 12_345: 10**9, 17_001: 2000}
    for number, size in extremes.items():
        sizes[number] = size
    without = set(chosen(Numbered([5] * 20_000), 320))
    assert not without & set(extremes)
    assert set(extremes) <= set(chosen(Numbered(sizes), 320))


def test_the_sizes_of_a_bounded_number_of_records_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_STAMPED", 1000)
    source = Numbered([5] * 30_000)
    chosen(source, 64)
    assert 500 <= source.stamped < 1000 + 16
    assert source.given <= 16 * 64


def test_no_more_of_a_part_is_read_than_up_to_the_last_record_wanted() -> None:
    sizes = [5] * 4096
    sizes[2048] = 9**9
    source = Numbered(sizes)
    sample = choose_records(source, CONTRACT, 32)
    for pick in sample.picks:
        before = source.given
        alone = sampling.Sample(picks=[pick])
        assert len(list(read_picked(source, CONTRACT, alone))) == len(pick.positions)
        assert source.given - before == max(pick.positions) + 1


def test_ids_that_are_bad_or_come_twice_are_found_in_the_whole_source() -> None:
    source = Numbered([5] * 9_000, {5_001: "", 7_003: "", 8_000: "12", 8_500: "12"})
    sample = choose_records(source, CONTRACT, 32)
    assert sample.rejected == {Reason.BAD_ID: 2, Reason.DUPLICATE_ID: 2}
    first = sample.rejections[Reason.DUPLICATE_ID]
    assert (first.id, first.source) == ("12", "record 8000")
    assert first.sentence.startswith("record 12 has the same id")
    assert sample.rejections[Reason.BAD_ID].source == "record 5001"


def test_a_record_that_cannot_be_tried_is_counted_and_not_read() -> None:
    source = Numbered([5] * 3, {1: ""})
    sample = choose_records(source, CONTRACT, 100)
    assert sample.chosen == 3
    assert [record.id for record in read_picked(source, CONTRACT, sample)] == ["0", "2"]
