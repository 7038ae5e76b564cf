"""How near does training on a GPU come to the speed of the model alone, and what does decoding on the GPU bring?

Photos of 500x400 pixels (JPEG, quality 90, 4:2:0) become batches ``uint8[B, 3, 224, 224]`` on the device, where a
stand-in for a model reads them and multiplies matrices for as long as it is told (``--step``, in multiples of the time
that the loader needs for a batch). An epoch is timed from its beginning until the device is done.

The first table of each step has the step alone, with one batch that is there already, which is the upper bound; then
``ShardLoader`` and a DataLoader with workers, from ordinary and from pinned memory: each with its batches copied in the
loop (``.to(device)``, with ``non_blocking`` from pinned memory), and by a ``DevicePrefetcher`` with 1 (none ahead), 2
and 3 batches on the device. The second table has the seconds of an epoch in which the loop waited for data and used
them, in which the device had nothing to do before a batch was copied, and how much of the copying was hidden behind
computing, at least. Where the device waited for longer than the copies take, it waited for something else (the loader,
or pinning), which says nothing about them: that is left out.

The last table has no model: images decoded by the CPU as a part of loading, against encoded ones that `DecodeImages`
decodes on the device by nvJPEG, in full size. Before, one batch of each is compared.

Run it with ``python benchmarks/gpu.py``; ``--help`` names the settings. ``--device cpu`` runs all of it without a GPU,
which tells that it works and nothing else.

Result: none yet. It has not been run on a GPU.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from command_line import run_benchmark
from measure import Contender, Missing, interleave, results_table, summarize, table
from model_step import ModelStep, copy_seconds, synchronize
from photos import PhotoSettings, make_photos
from torch.utils.data import DataLoader

from shardkit import DevicePrefetcher, ShardDataset, ShardIterableDataset, ShardLoader, ingest
from shardkit.errors import TransformError
from shardkit.transforms import CenterCrop, DecodeImages, Encoded, Transform
from shardkit.transforms.jpeg_libraries import find_jpeg_decoder

ALONE = "model step alone"
DECODED = "ShardLoader, decoded on the device, depth 2"
DEPTHS = (1, 2, 3)
CROP = CenterCrop(224, ratio=0.875)
MOST_DIFFERENCE = 6.0  # of 255, on average over a batch; a crop one pixel off makes 11 on the sharpest photo


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Attributes:
        device: ``cuda``, ``cuda:1``, ...; or ``cpu``, to see that the benchmark works.
        records: Photos.
        width, height: Pixels.
        batch: Photos a batch.
        workers: Threads of ``ShardLoader``, and processes of the DataLoader.
        repetitions: Timed epochs of each.
        step: Length of the model's step, as a multiple of the loader's time for a batch; 1, if none is given.
    """

    device: str = "cuda"
    records: int = 4096
    width: int = 500
    height: int = 400
    batch: int = 256
    workers: int = 8
    repetitions: int = 5
    step: tuple[str, ...] = ()


def main() -> None:
    """Measure, and print the tables."""
    run_benchmark(__doc__, Settings(), _measure)


def _measure(settings: Settings, folder: Path) -> dict[str, Any]:
    device = torch.device(settings.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        why = "torch sees no CUDA device"
        print(f"nothing was measured: {why} (--device cpu runs all of it, to see that it works)")
        return {"not_measured": why}
    if device.type not in ("cuda", "cpu"):
        raise SystemExit(f"--device {settings.device}: want cuda or cpu")
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else "the CPU: no figure here is one of a GPU"
    )
    print(f"device: {name}")
    photos = make_photos(folder / "photos", PhotoSettings(settings.records, settings.width, settings.height))
    ingest(photos.path, folder / "data")
    bench = Bench(settings, folder / "data", device, photos.total_bytes)
    feeding = {multiple: bench.feeding(float(multiple)) for multiple in settings.step or ("1",)}
    return {"device": name, "feeding": feeding, "decoding": bench.decoding()}


class Epoch:
    """One way to bring a data set to the device, an epoch at a time.

    Args:
        batches: On the device.
        records: In an epoch.
        step: What is done with the images of a batch.
        finish: Waits until that is done.

    Attributes:
        is_ahead: Whether the prefetcher copies, and keeps the time in which a device waited for it.
        times: Of each timed epoch, the seconds in which the loop waited and used its batches, and the device waited.
    """

    def __init__(
        self,
        batches: DevicePrefetcher,
        records: int,
        step: Callable[[torch.Tensor], object],
        finish: Callable[[], None],
    ) -> None:
        self._batches = batches
        self._records = records
        self._step = step
        self._finish = finish
        self.is_ahead = batches.device.type == "cuda"
        self.times: list[tuple[float, float, float]] = []

    def run(self, repetition: int) -> None:
        """Go through an epoch."""
        self._batches.set_epoch(repetition + 1)
        seen: list[str] = []
        for batch in self._batches:
            self._step(batch["image"])
            seen += batch["id"]
        self._finish()
        if len(set(seen)) != self._records or len(seen) != self._records:
            raise SystemExit(
                f"{len(seen)} records were delivered, {len(set(seen))} of them once: all should be"
            )
        timing = self._batches.timing
        if repetition >= 0:
            self.times.append((timing.waited, timing.used, timing.device_waited))


class Bench:
    """The data set and the device, and what is measured with them.

    Args:
        settings: What is measured.
        path: The data set.
        device: Where the batches go.
        total_bytes: Of the photos.
    """

    def __init__(self, settings: Settings, path: Path, device: torch.device, total_bytes: int) -> None:
        self._settings = settings
        self._path = path
        self._device = device
        self._total_bytes = total_bytes
        self._count = math.ceil(settings.records / settings.batch)
        self._step = ModelStep(device)
        self._decode = DecodeImages(ShardDataset(path).contract, CROP)
        self._loaders = {
            (name, pinned): make(CROP, pinned)
            for pinned in ([False, True] if device.type == "cuda" else [False])
            for name, make in (("ShardLoader", self._threads), ("DataLoader", self._processes))
        }
        self._first: dict[str, Any] = next(iter(self._threads(CROP)))
        self._images: torch.Tensor = self._first["image"]
        self._copy_seconds = copy_seconds(self._images, device)
        self._why_not_decoded = self._check_decoding()

    def feeding(self, multiple: float) -> dict[str, Any]:
        """Measure every way to feed a step of some length, and print the tables."""
        on_device = self._images.to(self._device)
        length = self._step.calibrate(on_device, multiple * self._loader_seconds())

        def alone(_: int) -> None:
            for _batch in range(self._count):
                self._step(on_device)
            self._step.finish()

        epochs = {name: self._epoch(batches) for name, batches in self._ways()}
        contenders = [Contender(ALONE, alone, "a batch that is there: the upper bound")]
        contenders += [Contender(name, epoch.run) for name, epoch in epochs.items()]
        missing = (
            [] if self._device.type == "cuda" else [Missing("from pinned memory", "it takes a CUDA device")]
        )
        print(
            f"\nmodel step of {length * 1000:.1f} ms, {multiple:g} times what ShardLoader needs for a batch of "
            f"{self._settings.batch}; {self._copy_seconds * 1000:.2f} ms to copy one; {self._settings.repetitions} "
            "repetitions"
        )
        report = self._compare(contenders, missing, ALONE)
        waits = {name: self._wait(epoch, is_copied=name != DECODED) for name, epoch in epochs.items()}
        print("\n" + _wait_table(waits))
        return {"step_seconds": length, "copy_seconds": self._copy_seconds, "waits": waits, **report}

    def decoding(self) -> dict[str, Any]:
        """Measure decoding on the CPU and on the device with no model, and print the table."""
        ways = {"ShardLoader": self._threads, "DataLoader": self._processes}
        contenders = [
            Contender(f"{name}, decoded by the CPU", self._epoch(self._prefetch(make(CROP)), idle=True).run)
            for name, make in ways.items()
        ]
        missing = []
        for name, make in ways.items():
            title = f"{name}, decoded on the device"
            if self._why_not_decoded:
                missing.append(Missing(title, self._why_not_decoded))
            else:
                epoch = self._epoch(self._decoded(make(Encoded())), idle=True)
                contenders.append(Contender(title, epoch.run, "DecodeImages, in full size"))
        print("\nno model; depth 2")
        return self._compare(contenders, missing, contenders[0].name)

    def _compare(
        self, contenders: Sequence[Contender], missing: Sequence[Missing], reference: str
    ) -> dict[str, Any]:
        runs = interleave(contenders, self._settings.repetitions)
        results = summarize(contenders, runs, reference, self._settings.records, self._total_bytes)
        print(results_table(results, missing, reference))
        return {
            "results": [asdict(result) for result in results],
            "not_measured": [asdict(each) for each in missing],
            "runs": {name: [asdict(taken) for taken in each] for name, each in runs.items()},
        }

    def _ways(self) -> Iterator[tuple[str, DevicePrefetcher]]:
        for (name, pinned), loader in self._loaders.items():
            title = f"{name}, pinned" if pinned else name
            yield f"{title}, copied in the loop", self._copied(loader, pinned)
            for depth in DEPTHS:
                yield f"{title}, depth {depth}", self._prefetch(loader, depth)
        if not self._why_not_decoded:
            yield DECODED, self._decoded(self._threads(Encoded()))

    def _epoch(self, batches: DevicePrefetcher, *, idle: bool = False) -> Epoch:
        if idle:
            return Epoch(batches, self._settings.records, len, lambda: synchronize(self._device))
        return Epoch(batches, self._settings.records, self._step, self._step.finish)

    def _threads(self, transform: Transform, pinned: bool = False) -> ShardLoader:
        return ShardLoader(
            self._path,
            self._settings.batch,
            threads=self._settings.workers,
            pin_memory=pinned,
            tail="exact",
            transform=transform,
        )

    def _processes(self, transform: Transform, pinned: bool = False) -> "DataLoader[Any]":
        return DataLoader(
            ShardIterableDataset(self._path, self._settings.batch, tail="exact", transform=transform),
            batch_size=None,
            num_workers=self._settings.workers,
            pin_memory=pinned,
            persistent_workers=True,
            multiprocessing_context="fork",
        )

    def _prefetch(self, loader: Any, depth: int = 2) -> DevicePrefetcher:
        return DevicePrefetcher(loader, self._device, depth)

    def _decoded(self, loader: Any) -> DevicePrefetcher:
        return DevicePrefetcher(loader, self._device, decode=self._decode)

    def _copied(self, loader: Any, pinned: bool) -> DevicePrefetcher:
        """Return batches that are moved as a training loop without a prefetcher does: from pinned memory at once."""

        def move(batch: Mapping[str, Any]) -> dict[str, Any]:
            return {**batch, "image": batch["image"].to(self._device, non_blocking=pinned)}

        return DevicePrefetcher(loader, "cpu", transform=move)

    def _loader_seconds(self) -> float:
        """Return the time that ShardLoader needs for a batch, with nothing done with it."""
        epoch = self._epoch(DevicePrefetcher(self._threads(CROP), "cpu"), idle=True)
        runs = interleave([Contender("loader", epoch.run)], self._settings.repetitions)
        return statistics.median(taken.wall for taken in runs["loader"]) / self._count

    def _check_decoding(self) -> str:
        """Return why images cannot be decoded on the device; nothing if they can, and come out as they should."""
        try:
            if self._device.type == "cuda":
                find_jpeg_decoder(self._device)
            there = next(iter(self._decoded(self._threads(Encoded()))))
        except TransformError as error:
            return str(error)
        if list(there["id"]) != list(self._first["id"]):
            return "other records: the first batch has other ids than the one decoded by the CPU"
        difference = (there["image"].cpu().float() - self._images.float()).abs().mean().item()
        return (
            ""
            if difference <= MOST_DIFFERENCE
            else f"other pixels: they differ by {difference:.1f} on average"
        )

    def _wait(self, epoch: Epoch, *, is_copied: bool) -> dict[str, float | None]:
        waited, used, device_waited = (statistics.median(each) for each in zip(*epoch.times, strict=True))
        copying = self._copy_seconds * self._count
        is_known = is_copied and epoch.is_ahead and device_waited <= copying
        return {
            "waited": waited,
            "used": used,
            "device_waited": device_waited,
            "hidden": 1 - device_waited / copying if is_known else None,
        }


def _wait_table(waits: Mapping[str, Mapping[str, float | None]]) -> str:
    rows = [["seconds of an epoch", "waited", "used", "device waited", "copying hidden, at least", ""]]
    for name, wait in waits.items():
        hidden = "-" if wait["hidden"] is None else f"{wait['hidden']:.0%}"
        rows.append([name, *(f"{wait[key]:.3f}" for key in ("waited", "used", "device_waited")), hidden, ""])
    return table(rows)


if __name__ == "__main__":
    main()
