"""What is concluded from passes whose times are known."""

from typing import Any

import pytest

from shardkit.measurement.bench_report import BenchRow, make_rows
from shardkit.measurement.memory import MemoryUse
from shardkit.measurement.setting import Setting
from shardkit.measurement.timed_pass import TimedPass

NONE, TWO, THREADS = Setting("workers", 0), Setting("workers", 2), Setting("threads", 2)


def timed(setting: Setting, repetition: int, seconds: float, **other: Any) -> TimedPass:
    """Return a pass of 100 samples."""
    facts: dict[str, Any] = {
        "epoch": 0,
        "samples": 100,
        "batches": 2,
        "pixels": None,
        "tokens": None,
        "first_batch_seconds": 0.5,
        "waiting_seconds": seconds / 4,
        "step_seconds": 0.0,
        "memory": None,
        "digest": "d",
    }
    return TimedPass(setting=setting, repetition=repetition, seconds=seconds, **facts | other)


def conclusions(*passes: TimedPass) -> dict[str, str]:
    return {row.name: row.conclusion for row in make_rows(passes, 100)}


def row_of(*passes: TimedPass) -> BenchRow:
    [row] = make_rows(passes, 100)
    return row


def test_rates_are_medians_over_what_counts_and_warm_ups_do_not() -> None:
    row = row_of(*(timed(NONE, number, seconds) for number, seconds in enumerate((99, 1, 2, 4), start=-1)))
    assert (row.samples_per_second.median, row.samples_per_second.least, row.samples_per_second.most) == (
        50,
        25,
        100,
    )
    assert (row.seconds.median, row.waiting_share.median) == (2, 0.25)
    assert row.first_batch_seconds is not None
    assert row.first_batch_seconds.median == 0.5


def test_each_repetition_is_compared_with_the_fastest_settings_same_one() -> None:
    # the machine is three times as slow in the second repetition, which says nothing of the settings
    passes = [timed(NONE, 0, 2.0), timed(TWO, 0, 1.0), timed(NONE, 1, 6.0), timed(TWO, 1, 3.0)]
    assert conclusions(*passes) == {
        "DataLoader, 0 workers": "50% of the fastest",
        "DataLoader, 2 workers": "fastest",
    }


def test_a_setting_that_was_ahead_once_is_not_called_slower() -> None:
    passes = [timed(NONE, 0, 1.0), timed(TWO, 0, 1.1), timed(NONE, 1, 1.0), timed(TWO, 1, 0.9)]
    passes += [timed(NONE, 2, 1.0), timed(TWO, 2, 1.25)]
    assert conclusions(*passes)["DataLoader, 2 workers"] == "91% of the fastest, or level with it"


def test_wrong_data_never_are_the_fastest() -> None:
    passes = [timed(NONE, 0, 2.0), timed(THREADS, 0, 0.1, digest="other"), timed(TWO, 0, 4.0)]
    assert conclusions(*passes) == {
        "DataLoader, 0 workers": "fastest",
        "ShardLoader, 2 threads": "WRONG: its ids or labels are not those of the first row",
        "DataLoader, 2 workers": "50% of the fastest",
    }


@pytest.mark.parametrize("repetition", [-1, 0])
def test_one_wrong_pass_makes_a_setting_wrong_even_a_warm_up(repetition: int) -> None:
    row = row_of(timed(NONE, repetition, 1.0, samples=99), timed(NONE, 1, 1.0))
    assert not row.verified
    assert row.conclusion == "WRONG: 99 samples came instead of 100"


def test_memory_is_the_most_of_all_passes_and_unknown_where_it_was_not_measured() -> None:
    uses = [MemoryUse(pss=5, files=4), MemoryUse(pss=9, files=2)]
    row = row_of(*(timed(NONE, number, 1.0, memory=use) for number, use in enumerate(uses)))
    assert (row.peak_pss, row.peak_mapped) == (9, 4)
    table = row_of(timed(NONE, 0, 1.0)).to_dict()
    assert (table["peak_pss"], table["peak_mapped"]) == (None, None)


def test_pixels_and_tokens_are_told_a_second() -> None:
    row = row_of(timed(NONE, 0, 2.0, pixels=600, tokens=50))
    assert row.pixels_per_second is not None
    assert row.tokens_per_second is not None
    assert (row.pixels_per_second.median, row.tokens_per_second.median) == (300, 25)
