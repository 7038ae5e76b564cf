"""`verify_loader`: what a loader delivers, held against the data set: nothing missing, nothing twice, no value wrong.

It looks at batches alone, so that any loader can be checked, whoever wrote it.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy.typing as npt

from shardkit.reading import ShardDataset
from shardkit.reading.selection import require_rows
from shardkit.verification.delivered_batch import Batch, read_batch
from shardkit.verification.delivery_report import DeliveryReport
from shardkit.verification.ledger import Ledger, StoredValues

__all__ = ["DeliveryReport", "verify_loader"]

MOST_TIMES = 10
"""A loader that has delivered so many times the samples expected of it has no end."""
_ALWAYS_TAKEN = 10_000  # samples, or batches, that are taken however few are expected


def verify_loader(
    loader: Iterable[Batch],
    dataset: ShardDataset,
    *,
    rows: npt.ArrayLike | None = None,
    get_ids: Callable[[Batch], Sequence[str]] | None = None,
    may_repeat: bool = False,
) -> DeliveryReport:
    """Iterate a loader once, and compare what it delivers with what it should.

    For several ranks, chain their loaders: ``verify_loader(itertools.chain(*loaders), dataset)``. Where batches name
    things otherwise, rename: ``verify_loader(({"id": ids, "label": y} for x, y, ids in loader), dataset)``.

    Where a batch has a label or scalar field of the data set under its own name, as one number a sample (``[B]`` or
    ``[B, 1]``, of any dtype), the values are compared with those in the shards. What cannot be compared, such as
    one-hot labels (``[B, C]``), is no fault: the report says it in ``not_compared``.

    A loader that has no end is stopped after 10 times as many samples as it should deliver (10,000 at least), and
    fails. With `may_repeat` it is not: cut it with `itertools.islice`.

    Args:
        loader: Any iterable of batches that carry ids: mappings with ``"id"``, a str or a sequence of str. Where a
            batch has ``"is_pad"``, one bool a sample, samples that are marked do not count.
        dataset: The data set that it reads.
        rows: The rows that should come once, as `ShardDataset.select` finds them; None for all.
        get_ids: Takes a batch and returns its ids, for batches that are no mappings with ``"id"``.
        may_repeat: Whether ids may come again, and others not at all, as of a sampler that draws with replacement:
            they are counted, and no fault.

    Raises:
        ShardkitError: A batch carries no ids, or marks or values that are not one a sample.
        ValueError: `rows` are not rows of the data set.
        CorruptShardError: A stored value is damaged.

    Example:
        >>> report = verify_loader(loader, ShardDataset("out/"))
        >>> assert report.ok, report.describe()
    """
    stored = StoredValues(dataset)
    ledger = Ledger(stored, None if rows is None else require_rows(rows, len(dataset)), may_repeat)
    most = max(_ALWAYS_TAKEN, MOST_TIMES * ledger.expected)
    for number, batch in enumerate(loader):
        ledger.take(read_batch(batch, number, stored.fields, get_ids))
        if not may_repeat and max(ledger.taken, number) > most:
            return ledger.report(is_endless=True)
    return ledger.report()
