"""The stages of a sample on its way to the device, one after the other in one process, each named before it is timed.

They do what the loaders do, but to one record at a time, so that the record and the stage at fault are known.
"""

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch

from shardkit.contract import ImageField, Payload
from shardkit.contract.images.sniff import sniff
from shardkit.measurement.doctor_steps import Announce, Failure, Located, Step
from shardkit.reading.collate import PaddedSample, Sample, collate
from shardkit.reading.decode import FieldReader, ops_by_field
from shardkit.reading.device import DevicePrefetcher
from shardkit.reading.guard import TransformGuard, find_change, forms_of
from shardkit.store import Store
from shardkit.transforms.compose import Transform, split
from shardkit.transforms.encoded import EncodedImage, EncodedImages
from shardkit.transforms.randomness import Draws, begin_sample, rng_of, transforming

Stage = Literal["read", "decode", "transform", "collate", "transfer"]
STAGES: tuple[Stage, ...] = get_args(Stage)

_DRAWS = Draws(Draws.key_of(0, 0))  # as of a loader's first epoch


@dataclass(frozen=True)
class PictureFacts:
    """What a picture is like.

    Attributes:
        format: In which it is stored, such as ``"jpeg"``, or ``"raw"``.
        stored: Height and width as stored.
        delivered: Height and width once it is decoded, image operations among that.
    """

    format: str
    stored: tuple[int, int]
    delivered: tuple[int, int]


@dataclass
class Findings:
    """What was measured and seen of the samples that were taken through.

    Attributes:
        is_gathered: Whether loaders take whole batches from arrays at once, with no step for each sample.
        skipped: Stage -> why it is not done here.
        saved: Stage -> why loaders do without it, though it is done here.
        seconds: Stage -> seconds a sample, as they were taken; those of a batch are shared out.
        checking: Seconds of "read" that went into checksums, one for each sample.
        rereading: Seconds that reading the same record once more took, unchecked, one for each sample.
        pictures: Image field -> its pictures.
        uneven: Fields whose tensors differ in shape or dtype, so that a batch holds a list of them.
        filtered: Samples that the transform left out.
        reshaping: The first change of the transform that training needs ``may_reshape=True`` for; empty if there was
            none.
    """

    is_gathered: bool
    skipped: dict[Stage, str] = field(default_factory=dict)
    saved: dict[Stage, str] = field(default_factory=dict)
    seconds: dict[Stage, list[float]] = field(default_factory=dict)
    checking: list[float] = field(default_factory=list)
    rereading: list[float] = field(default_factory=list)
    pictures: dict[str, list[PictureFacts]] = field(default_factory=dict)
    uneven: set[str] = field(default_factory=set)
    filtered: int = 0
    reshaping: str = ""

    @property
    def medians(self) -> dict[Stage, float]:
        """Stage -> median seconds a sample, in the order of the stages; those alone that something went through."""
        return {stage: statistics.median(self.seconds[stage]) for stage in STAGES if self.seconds.get(stage)}

    @property
    def counted(self) -> dict[Stage, float]:
        """The medians of the stages that loaders do for each sample."""
        return {stage: seconds for stage, seconds in self.medians.items() if stage not in self.saved}


class Stages:
    """Takes records of an open data set through all stages.

    Args:
        store: The data set.
        transform: As for `ShardDataset`; it may change shapes, and leave samples out.
        announce: Is told of each step before it is done.

    Attributes:
        findings: What came of those that were taken so far.

    Raises:
        ValueError: An image operation is for a field that is no image.
    """

    def __init__(self, store: Store, transform: Transform | None, announce: Announce) -> None:
        ops, rest = split(transform)
        names = list(store.contract.fields)
        by_field = ops_by_field(ops, store.contract, names)
        self._store = store
        self._announce = announce
        self._step = Step("open")
        self._readers = [FieldReader(store, name, False, by_field.get(name, ())) for name in names]
        self._columns = range(len(names))
        self._varying = [column for column in self._columns if not store.columns[column].layout.is_fixed]
        self._fixed = [column for column in self._columns if store.columns[column].layout.is_fixed]
        self._guard = None if rest is None else TransformGuard(rest, may_reshape=True, may_filter=True)
        self._paddings = {
            reader.name: reader.field.padding for reader in self._readers if reader.field.padding is not None
        }
        self.findings = Findings(
            is_gathered=self._guard is None
            and len(store) > 0
            and not any(reader.is_decoded for reader in self._readers),
        )
        if self._guard is None:
            self.findings.skipped["transform"] = "image operations are part of decoding" if ops else "none"
            self.findings.saved["collate"] = "loaders decode straight into the batch"
        if self.findings.is_gathered:
            for stage in ("decode", "collate"):
                self.findings.saved[stage] = "loaders copy whole batches from the arrays"
        self._device = self._find_device()

    def take(self, records: Sequence[Located]) -> Iterator[Failure]:
        """Take some records through the stages, as one batch in the end, and yield what fails."""
        taken: list[Located] = []
        samples: list[Sample] = []
        for record in records:
            try:
                sample = self._sample(record)
            except Exception as error:  # damage, or whatever a user's transform raises
                yield Failure.of(self._step, error)
                continue
            if sample is None:
                self.findings.filtered += 1
            else:
                taken.append(record)
                samples.append(sample)
        if samples:
            try:
                self._batch(tuple(taken), samples)
            except Exception as error:
                yield Failure.of(self._step, error)

    def _sample(self, record: Located) -> Sample | None:
        with self._timed("read", (record,)):
            payloads = [bytes(each) for each in self._store.payloads(record.row, self._columns)]
            began = time.perf_counter()
            self._check(record, payloads, self._varying)
            checking = time.perf_counter() - began
        self._check(record, payloads, self._fixed)  # which loaders leave out unless they are asked to
        self._note_reading(record, checking)
        with self._timed("decode", (record,)):
            sample = self._decode(record, payloads)
        self._note_pictures(payloads, sample)
        return sample if self._guard is None else self._transform(record, sample, self._guard)

    def _check(self, record: Located, payloads: Sequence[Payload], columns: Sequence[int]) -> None:
        for column in columns:
            self._store.check(record.row, column, payloads[column])

    def _decode(self, record: Located, payloads: Sequence[Payload]) -> Sample:
        sample: Sample = {"id": record.id}
        is_random = any(reader.is_random for reader in self._readers)
        rng: random.Random | None = rng_of(_DRAWS, 0, record.id) if is_random else None
        for reader, payload in zip(self._readers, payloads, strict=True):
            if reader.index is None:
                sample[reader.name] = reader.decode(record.row, payload, rng)
            else:
                sample[reader.name] = reader.from_index(record.row)
        return self._marked(sample)

    def _transform(self, record: Located, sample: Sample, guard: TransformGuard) -> Sample | None:
        before = forms_of(sample)
        with transforming(_DRAWS):
            begin_sample(_DRAWS, 0, record.id)
            with self._timed("transform", (record,)):
                result = guard(sample, lambda: self._store.where(record.row))
        if result is None:
            return None
        change = find_change(before, result)
        if change is not None and not self.findings.reshaping:
            self.findings.reshaping = change.sentence
        return self._marked(result)

    def _batch(self, records: tuple[Located, ...], samples: Sequence[Sample]) -> None:
        with self._timed("collate", records):
            batch = collate(samples)
        for name in self._store.contract.fields:
            value = batch.get(name)
            is_list = isinstance(value, list) and not isinstance(value, EncodedImages)
            if is_list and isinstance(samples[0].get(name), torch.Tensor):
                self.findings.uneven.add(name)
        if self._device is not None:
            with self._timed("transfer", records):
                for _ in DevicePrefetcher([batch], self._device, depth=1):
                    torch.cuda.synchronize()

    @contextmanager
    def _timed(self, stage: Stage, records: tuple[Located, ...]) -> Iterator[None]:
        """Surround a stage; if it raises, there is nothing to time."""
        self._step = Step(stage, records)
        self._announce(self._step)
        began = time.perf_counter()
        yield
        seconds = (time.perf_counter() - began) / len(records)
        self.findings.seconds.setdefault(stage, []).append(seconds)

    def _marked(self, sample: Sample) -> Sample:
        """Return the sample so that `collate` knows how its fields are padded."""
        if not self._paddings or isinstance(sample, PaddedSample):
            return sample
        return PaddedSample(sample, self._paddings)

    def _note_reading(self, record: Located, checking: float) -> None:
        began = time.perf_counter()
        for payload in self._store.payloads(record.row, self._columns):
            bytes(payload)
        self.findings.rereading.append(time.perf_counter() - began)
        self.findings.checking.append(checking)

    def _note_pictures(self, payloads: Sequence[Payload], sample: Sample) -> None:
        for reader, payload in zip(self._readers, payloads, strict=True):
            image = sample[reader.name]
            if isinstance(reader.field, ImageField) and not isinstance(image, EncodedImage):
                stored = reader.field.open(payload)
                height, width = image.shape[-2:]
                kind = "raw" if reader.field.layout.is_fixed else sniff(bytes(payload))
                facts = PictureFacts(kind, (stored.height, stored.width), (int(height), int(width)))
                self.findings.pictures.setdefault(reader.name, []).append(facts)

    def _find_device(self) -> torch.device | None:
        self._announce(Step("transfer", detail="looking for a CUDA device"))
        if not torch.cuda.is_available():
            self.findings.skipped["transfer"] = "there is no CUDA device"
            return None
        device = torch.device("cuda", torch.cuda.current_device())
        torch.zeros(1, device=device)  # the first one takes seconds
        return device
