"""Every setting is measured on the same data, and what it delivers is compared; where the time went is told apart."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import pytest
import torch
from PIL import Image

from shardkit import (
    BenchReport,
    Contract,
    ScalarField,
    ShardIterableDataset,
    ShardLoader,
    TextField,
    TokensField,
    bench,
    ingest,
)
from shardkit.errors import DatasetNotFoundError
from shardkit.measurement import page_cache
from shardkit.measurement.memory import MemoryWatch
from shardkit.reading.preloaded import preload_fields
from shardkit.store import Store, commit, make_manifest, write_index

NAMES = ["DataLoader, 0 workers", "DataLoader, 1 worker", "DataLoader, 1 worker, second epoch"]


@pytest.fixture
def out(raw: Path, tmp_path: Path) -> Path:
    """Twelve photos of 40x30 pixels in two classes."""
    ingest(raw, tmp_path / "out", workers=0, records_per_shard=5)
    return tmp_path / "out"


def measure(out: Path, **options: Any) -> BenchReport:
    """Measure a few passes of the settings that need no worker process."""
    few: dict[str, Any] = {"workers": [0], "threads": [2], "repetitions": 1, "warm_ups": 0, "batch_size": 5}
    return bench(out, **few | options)


def test_workers_their_second_epoch_and_threads_deliver_the_same(out: Path) -> None:
    report = measure(out, workers=[0, 1], threads=[1, 2])
    assert [row.name for row in report.rows] == [*NAMES, "ShardLoader, 1 thread", "ShardLoader, 2 threads"]
    assert report.ok
    assert {each.digest for each in report.passes} == {report.passes[0].digest}
    for each in report.passes:
        assert (each.samples, each.batches, each.pixels, each.tokens) == (12, 3, 12 * 40 * 30, None)
        assert each.first_batch_seconds is not None
        assert 0 < each.first_batch_seconds < each.waiting_seconds < each.seconds
        assert each.rate == each.samples / each.seconds


def test_every_pass_is_kept_and_the_settings_take_turns(out: Path) -> None:
    report = measure(out, repetitions=2, warm_ups=1)
    made = [(each.repetition, each.setting.kind, each.is_warm_up) for each in report.passes]
    assert made == [
        (-1, "workers", True),
        (-1, "threads", True),
        (0, "threads", False),
        (0, "workers", False),
        (1, "workers", False),
        (1, "threads", False),
    ]
    assert [len(row.passes) for row in report.rows] == [2, 2]
    assert [len(report.to_dict()[name]) for name in ("rows", "passes")] == [2, 6]
    assert report.conditions.page_cache == "warm, as the warm-up passes left it: nothing was dropped"


class Altered(ShardLoader):
    """Calls every third sample of a batch a cat."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in super().__iter__():
            batch["label"][::3] = 0
            yield batch


class Misnamed(ShardLoader):
    """Delivers the first sample of a batch in place of the last, with its label."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in super().__iter__():
            batch["id"][-1], batch["label"][-1] = batch["id"][0], batch["label"][0]
            yield batch


class Hasty(ShardLoader):
    """Delivers nothing but the first batch."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield next(super().__iter__())


@pytest.mark.parametrize(
    ("loader", "wrong"),
    [
        (Altered, "its ids or labels are not those of the first row"),
        (Misnamed, "its ids or labels are not those of the first row"),
        (Hasty, "5 samples came instead of 12"),
    ],
)
def test_a_setting_that_delivers_other_data_is_wrong_however_fast(
    out: Path, monkeypatch: pytest.MonkeyPatch, loader: type[ShardLoader], wrong: str
) -> None:
    monkeypatch.setattr("shardkit.measurement.setting.ShardLoader", loader)
    report = measure(out)
    right, other = report.rows
    assert (right.verified, right.conclusion) == (True, "fastest")
    assert (other.verified, other.conclusion) == (False, f"WRONG: {wrong}")
    assert not report.ok
    assert not report.to_dict()["ok"]


def test_a_large_data_set_is_measured_in_part_which_is_declared(out: Path) -> None:
    report = measure(out, samples=7)
    assert (report.conditions.samples, report.conditions.records) == (7, 12)
    assert [row.samples for row in report.rows] == [7, 7]
    assert report.ok
    assert measure(out, samples=None).conditions.samples == measure(out, samples=99).conditions.samples == 12


def test_the_step_that_stands_in_for_a_model_is_told_apart_from_waiting(out: Path) -> None:
    for each in measure(out, step_ms=20).passes:
        assert each.step_seconds >= 3 * 0.020  # batches of 5, 5 and 2
        assert each.waiting_seconds + each.step_seconds <= each.seconds
    assert [each.step_seconds for each in measure(out).passes] == [0, 0]


@pytest.mark.parametrize(
    ("transform", "pixels"), [("center:16", 16 * 16), ("random:8", 8 * 8), ("none", 40 * 30)]
)
def test_pixels_are_those_delivered(out: Path, transform: str, pixels: int) -> None:
    report = measure(out, transform=transform)
    assert report.conditions.transform == transform
    assert [each.pixels for each in report.passes] == [12 * pixels] * 2


def test_pixels_of_images_of_many_sizes_are_added(raw: Path, tmp_path: Path, photo: Image.Image) -> None:
    photo.crop((0, 0, 100, 50)).save(raw / "cat" / "wide.jpg")
    ingest(raw, tmp_path / "out", workers=0)
    assert [each.pixels for each in measure(tmp_path / "out").passes] == [12 * 40 * 30 + 100 * 50] * 2


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"image": torch.cat([sample["image"]] * 2, dim=1)}


def test_a_transform_of_the_callers_own_is_measured_under_its_name(out: Path) -> None:
    report = measure(out, transform=double)
    assert report.conditions.transform == "double"
    assert [each.pixels for each in report.passes] == [2 * 12 * 40 * 30] * 2


def test_tokens_are_counted_without_what_pads_them_and_no_image_or_label_is_needed(tmp_path: Path) -> None:
    contract = Contract({"words": TokensField(), "weight": ScalarField("float64")})
    records = [{"id": str(n), "words": list(range(n)), "weight": n / 2} for n in range(5)]
    ingest(records, tmp_path / "out", contract, workers=0)
    report = measure(tmp_path / "out", workers=[0, 1])
    assert report.ok
    assert [(each.tokens, each.pixels) for each in report.passes] == [(0 + 1 + 2 + 3 + 4, None)] * 4
    assert report.rows[0].pixels_per_second is None


def test_a_data_set_of_no_records_has_no_rate(tmp_path: Path) -> None:
    contract = Contract({"text": TextField()})
    commit(tmp_path, make_manifest(1, contract, [], write_index(tmp_path, 1, contract, []).entry))
    report = measure(tmp_path, workers=[0, 1])
    assert report.ok
    for row in report.rows:
        assert (row.samples, row.samples_per_second.most, row.first_batch_seconds) == (0, 0, None)
        assert row.conclusion == "nothing to deliver"


def test_the_second_epoch_has_another_order_and_the_workers_of_the_first(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs: list[int] = []
    processes: list[list[int]] = []

    class Recorded(ShardIterableDataset):
        def set_epoch(self, epoch: SupportsIndex) -> None:
            super().set_epoch(epoch)
            epochs.append(self.epoch)

    class Watch(MemoryWatch):
        def __exit__(self, *_: object) -> None:
            super().__exit__()
            processes.append(self.processes)

    monkeypatch.setattr("shardkit.measurement.setting.ShardIterableDataset", Recorded)
    monkeypatch.setattr("shardkit.measurement.timed_pass.MemoryWatch", Watch)
    assert measure(out, workers=[1], threads=[]).ok
    assert epochs == [0, 1]
    assert processes[0] == processes[1]


def drop_caches(out: Path) -> str:
    """Return what is declared of dropping them."""
    return measure(out, drop_caches=True).conditions.page_cache


def test_caches_are_dropped_by_the_system_where_that_is_allowed(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "DROP_CACHES", tmp_path / "drop_caches")
    said = drop_caches(out)
    assert (tmp_path / "drop_caches").read_text() == "3"
    # nobody obeyed, which is noticed
    assert re.search(r"by .*/drop_caches; [1-9]\d*% of the data set remained in memory$", said)


def test_caches_are_dropped_file_by_file_where_the_system_is_not_asked(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[Path] = []

    def advise(descriptor: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        dropped.append(Path(f"/proc/self/fd/{descriptor}").resolve())

    monkeypatch.setattr(page_cache, "DROP_CACHES", tmp_path / "nowhere" / "drop_caches")
    monkeypatch.setattr("os.posix_fadvise", advise)
    assert "by posix_fadvise on the data set's files" in drop_caches(out)
    files = [path for folder in ("index", "shards") for path in (out / folder).rglob("*") if path.is_file()]
    assert sorted(dropped) == sorted(2 * files)  # before each of two loaders


def test_caches_that_cannot_be_dropped_are_declared(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measure(out).conditions.page_cache == "as it was found: nothing was dropped"
    monkeypatch.setattr(page_cache, "DROP_CACHES", tmp_path / "nowhere" / "drop_caches")
    monkeypatch.delattr("os.posix_fadvise")
    assert drop_caches(out).startswith("NOT dropped")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": [-1]}, "workers must be whole numbers of 0 or more, not -1"),
        ({"threads": [0]}, "threads must be whole numbers of 1 or more, not 0"),
        ({"workers": [], "threads": []}, "nothing to measure"),
        ({"repetitions": 0}, "repetitions must be 1 or more, not 0"),
        ({"warm_ups": -1}, "warm_ups must be 0 or more"),
        ({"samples": 0}, "samples must be 1 or more"),
        ({"step_ms": -1.0}, "step_ms must be 0 or more"),
        ({"step_ms": float("nan")}, "step_ms must be 0 or more"),
        ({"batch_size": 0}, "batch_size must be 1 or more"),
        ({"shuffle": "wild"}, "shuffle"),
        ({"transform": "center:0"}, 'transform must be "none", "center:SIZE" or "random:SIZE"'),
        ({"transform": "middle:9"}, "middle:9"),
        ({"preload": True, "drop_caches": True}, "exclude each other"),
    ],
)
def test_an_argument_out_of_its_range_is_named(out: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(out, **options)


def test_a_transform_of_images_needs_images(tmp_path: Path) -> None:
    ingest([{"id": "a", "text": "b"}], tmp_path / "out", Contract({"text": TextField()}), workers=0)
    with pytest.raises(ValueError, match="no image field"):
        measure(tmp_path / "out", transform="center:8")


def test_what_is_no_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match=str(tmp_path)):
        measure(tmp_path)


def test_a_transform_of_ones_own_is_imported_by_its_name(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "to_bench.py").write_text(
        "def corner(sample):\n    return sample | {'image': sample['image'][:, :2, :3]}\n"
    )
    report = measure(out, transform="to_bench:corner")
    assert (report.ok, report.conditions.transform) == (True, "to_bench:corner")
    assert {each.pixels for each in report.passes} == {12 * 2 * 3}


def test_with_preload_each_loader_holds_the_fields_in_memory(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preloaded: list[Sequence[str]] = []

    def preload(store: Store, names: Sequence[str], *others: Any) -> Any:
        preloaded.append(names)
        return preload_fields(store, names, *others)

    monkeypatch.setattr("shardkit.reading.opened.preload_fields", preload)
    report = measure(out, preload=True)
    assert (report.ok, report.conditions.preload) == (True, True)
    assert preloaded == [["image", "label"]] * 2  # one for workers, one for threads
    measure(out)
    assert len(preloaded) == 2


def test_a_report_is_shown_in_one_line(out: Path) -> None:
    shown = repr(measure(out, threads=[]))
    assert shown.startswith(f"<BenchReport {out}: DataLoader, 0 workers: ")
    assert shown.endswith(" samples/s, all data equal>")
