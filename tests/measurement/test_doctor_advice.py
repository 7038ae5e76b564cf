"""What is said of the limit follows from what was measured; the simplest setting that is nearly the best is named."""

from typing import Any

import pytest

from shardkit.measurement.doctor_advice import advise, find_limit
from shardkit.measurement.doctor_settings import MeasuredSetting, choose_setting
from shardkit.measurement.setting import Setting
from shardkit.measurement.stages import Findings, PictureFacts


def findings(**known: Any) -> Findings:
    """Return findings of three samples: 1 ms for reading, of which 0.1 are checks, and 4 for decoding."""
    given: dict[str, Any] = {
        "is_gathered": False,
        "seconds": {"read": [0.001] * 3, "decode": [0.004, 0.0001, 0.9]},
        "checking": [0.0001] * 3,
        "rereading": [0.0009] * 3,
    }
    return Findings(**given | known)


def pictures(stored: tuple[int, int], delivered: tuple[int, int], kind: str = "jpeg") -> Findings:
    return findings(pictures={"image": [PictureFacts(kind, stored, delivered)] * 3})


def test_the_limit_is_the_stage_with_the_largest_median_of_those_that_loaders_do() -> None:
    assert find_limit(findings()) == "decode"
    assert find_limit(findings(seconds={"read": [0.001], "collate": [0.002]})) == "collate"
    saved = findings(seconds={"read": [0.001], "collate": [0.002]}, saved={"collate": "not needed"})
    assert find_limit(saved) == "read"
    assert find_limit(findings(seconds={})) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (findings(rereading=[0.0001] * 3), 'shuffle="block"'),
        (findings(checking=[0.0004] * 3), "checksums are 40% of it: verify_checksums=False"),
        (findings(), None),
    ],
)
def test_slow_reading_is_put_down_to_the_disk_or_to_checksums(found: Findings, said: str | None) -> None:
    advice = advise("read", found, ["memmap"])
    assert [said in sentence for sentence in advice if said] == [True] * len(advice)
    assert bool(advice) == bool(said)


def test_lmdb_is_named_where_reading_is_the_limit() -> None:
    (sentence,) = advise("read", findings(), ["lmdb"])
    assert "compact OUT --backend memmap" in sentence


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pictures((400, 500), (200, 200)), "400x500 are stored, 5.0 times the pixels that are delivered"),
        (pictures((400, 500), (400, 500)), "pictures of 400x500 are decoded in full: CenterCrop"),
        (pictures((256, 256), (224, 224), "png"), "png takes longer to decode than jpeg"),
    ],
)
def test_slow_decoding_is_put_down_to_size_and_format(found: Findings, said: str) -> None:
    sentence, rest = advise("decode", found, ["memmap"])
    assert said in sentence
    assert "threads or workers" in rest


def test_small_jpegs_need_nothing_but_cpus() -> None:
    assert len(advise("decode", pictures((256, 256), (224, 224)), ["memmap"])) == 1


@pytest.mark.parametrize(
    ("stage", "said"),
    [("transform", "Compose"), ("collate", "smaller tensors"), ("transfer", "DevicePrefetcher")],
)
def test_each_other_stage_has_its_advice(stage: Any, said: str) -> None:
    (sentence,) = advise(stage, findings(), ["memmap"])
    assert said in sentence


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ([100, 90, 80], "DataLoader, 0 workers"),
        ([95, 90, 100], "DataLoader, 0 workers"),
        ([94, 95, 100], "ShardLoader, 1 thread"),
        ([94, 94, 100], "DataLoader, 2 workers"),
    ],
)
def test_the_simplest_setting_within_five_per_cent_of_the_best_is_chosen(
    rates: list[float], chosen: str
) -> None:
    settings = [Setting("workers", 0), Setting("threads", 1), Setting("workers", 2)]
    measured = [
        MeasuredSetting(setting, (rate / 2, rate, rate * 3))
        for setting, rate in zip(settings, rates, strict=True)
    ]
    assert choose_setting(measured).setting.describe() == chosen


def test_settings_are_compared_round_by_round() -> None:
    measured = [
        MeasuredSetting(Setting("workers", 0), (97, 960, 40)),
        MeasuredSetting(Setting("threads", 2), (100, 1000, 41)),
    ]
    assert choose_setting(measured) is measured[0]
    worse = MeasuredSetting(Setting("workers", 0), (99, 700, 20))  # whose median is nearly the same
    assert choose_setting([worse, measured[1]]) is measured[1]


@pytest.mark.parametrize(
    ("other", "is_level"), [((101, 99), True), ((101, 101), False), ((99, 99), False), ((100, 100), False)]
)
def test_settings_that_change_places_between_rounds_are_level(
    other: tuple[float, ...], is_level: bool
) -> None:
    one = MeasuredSetting(Setting("workers", 0), (100, 100))
    assert MeasuredSetting(Setting("threads", 1), other).is_level_with(one) == is_level
