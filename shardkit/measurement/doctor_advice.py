"""Which stage limits the delivery of a data set, and what to change about it."""

import statistics
from collections.abc import Iterator, Sequence

from shardkit.measurement.stages import Findings, PictureFacts, Stage

_MUCH = 0.3  # share of the reading that checksums take, from where they are worth a thought
_LARGER = 2.0  # pixels decoded for each that is delivered, from where it pays to store fewer
_SLOWER = 4.0  # how many times as long the first reading takes as the second, from where it is the disk that takes it
_LARGE_SIDE = 320  # pixels of the shorter side, from where shrinking while decoding pays


def find_limit(findings: Findings) -> Stage | None:
    """Return the stage that takes longest, of those that loaders do for each sample; None if nothing was timed."""
    seconds = findings.counted
    return max(seconds, key=lambda stage: seconds[stage], default=None)


def advise(limit: Stage, findings: Findings, backends: Sequence[str]) -> list[str]:
    """Return what to change about the limit, a sentence each."""
    if findings.is_gathered:
        return ["whole batches are copied from the arrays, so that larger ones cost less a sample"]
    if limit == "read":
        return list(_about_reading(findings, backends))
    if limit == "decode":
        return list(_about_decoding(findings))
    return [_ABOUT[limit]]


def remarks(findings: Findings) -> list[str]:
    """Return what else a person should know of the samples, a sentence each."""
    found = [
        f"{name}: its tensors differ in shape or dtype, so that a batch holds a list of them; a transform can make "
        "them alike"
        for name in sorted(findings.uneven)
    ]
    if findings.filtered:
        found.append(
            f"the transform left {findings.filtered:,} of the samples out: training needs may_filter=True for it"
        )
    if findings.reshaping:
        found.append(f"the transform {findings.reshaping}: training needs may_reshape=True for it")
    return found


_ABOUT: dict[Stage, str] = {
    "transform": "image operations that come first in a Compose are part of decoding, and what suits a whole batch "
    "(Normalize, conversion to float) costs less there or on the device; workers share out the rest, and threads "
    "where it lets go of Python's lock",
    "collate": "return smaller tensors of one shape: uint8 need not become float before it is on the device",
    "transfer": 'DevicePrefetcher(loader, "cuda") copies while the model computes; uint8 need not become float before '
    "it is there",
}


def _about_reading(findings: Findings, backends: Sequence[str]) -> Iterator[str]:
    reading, again = findings.medians["read"], statistics.median(findings.rereading)
    checking = statistics.median(findings.checking)
    if reading - checking > _SLOWER * again:
        yield (
            f"most of it is waiting for the disk (once in memory it takes {again * 1000:.2f} ms): "
            'shuffle="block" reads neighbouring records together; or use a faster disk, or more memory'
        )
    elif checking > _MUCH * reading:
        yield (
            f"checksums are {checking / reading:.0%} of it: verify_checksums=False leaves them out, which "
            "`shardkit verify` can make up for"
        )
    if "lmdb" in backends:
        yield "`shardkit compact OUT --backend memmap` stores records where they are read without being copied"


def _about_decoding(findings: Findings) -> Iterator[str]:
    for name, pictures in findings.pictures.items():
        yield from _about_pictures(name, pictures)
    yield "threads or workers share it out, as far as there are CPUs"


def _about_pictures(name: str, pictures: Sequence[PictureFacts]) -> Iterator[str]:
    height, width = (round(statistics.median(facts.stored[axis] for facts in pictures)) for axis in (0, 1))
    stored = statistics.median(_pixels(facts.stored) for facts in pictures)
    delivered = statistics.median(_pixels(facts.delivered) for facts in pictures)
    if stored > _LARGER * delivered:
        yield (
            f"{name}: pictures of {height}x{width} are stored, {stored / delivered:.1f} times the pixels that are "
            'delivered: ingest them smaller, with store = "jpeg" and max_side in the contract'
        )
    elif stored == delivered and min(height, width) >= _LARGE_SIDE:
        yield (
            f"{name}: pictures of {height}x{width} are decoded in full: CenterCrop or RandomResizedCrop as transform "
            "shrinks them while they are decoded"
        )
    others = sorted({facts.format for facts in pictures} - {"jpeg", "raw"})
    if others:
        yield f'{name}: {", ".join(others)} takes longer to decode than jpeg, as which store = "jpeg" re-encodes it'


def _pixels(size: tuple[int, int]) -> int:
    return size[0] * size[1]
