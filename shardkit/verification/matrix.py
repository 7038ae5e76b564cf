"""`verify_delivery`: the real loaders, in every setting that might break them, on the data set at hand."""

from collections.abc import Sequence
from os import PathLike

import numpy as np

from shardkit.permutation import Permutation
from shardkit.progress_bar import ProgressBar
from shardkit.reading import ShardDataset
from shardkit.reading.selection import Rows
from shardkit.verification.ledger import StoredValues
from shardkit.verification.mixing import measure_all
from shardkit.verification.proof import DeliveryProof, SettingResult
from shardkit.verification.setting import plan_settings
from shardkit.verification.trial import SEED, carry_out

__all__ = ["DeliveryProof", "verify_delivery"]

_SAMPLED = 2000
"""Rows that are delivered of a larger data set: each setting then takes a fraction of a second."""


def verify_delivery(
    out: str | PathLike[str],
    *,
    ranks: Sequence[int] = (1, 2, 3),
    workers: Sequence[int] = (0, 2),
    epochs: int = 2,
    batch_sizes: Sequence[int] = (64,),
    start_methods: Sequence[str] = ("fork",),
    sample: int | None = _SAMPLED,
    progress: bool = False,
) -> DeliveryProof:
    """Deliver epochs of `out` with the real loaders in many settings, and compare each with what it promises.

    Settings are all combinations of loader, ranks, workers, tail, batch size and epoch; each of them stopped in the
    middle and resumed (in smaller batches where a rank would have a single step, and not at all without two rows for
    each rank); and with one tail and batch size, workers that live on over all epochs, start methods other than the
    first, and the block order. Each compares ids, values of label and scalar fields as the shards hold them, the order,
    and the number of steps. How classes mix in batches is measured besides.

    Args:
        out: The data set.
        ranks: Numbers of ranks.
        workers: Numbers of worker processes, or threads; 0 threads is one.
        epochs: Epochs of each.
        batch_sizes: Batch sizes.
        start_methods: How workers are started: ``"fork"``, ``"spawn"``, ``"forkserver"``. All but ``"fork"``
            take seconds to start a worker, which imports torch.
        sample: Rows to deliver of a larger data set, chosen at random, 1 or more; None delivers all.
        progress: Show a progress bar on standard error.

    Raises:
        DatasetNotFoundError, FormatError: `out` cannot be opened.
        ShardkitError: A loader failed; names the setting.
        ValueError: A setting is out of its range.
    """
    data = ShardDataset(out)
    rows = _choose_rows(len(data), sample)
    length = len(data) if rows is None else len(rows)
    plan = plan_settings(length, ranks, workers, epochs, batch_sizes, start_methods)
    stored = StoredValues(data)
    results: list[SettingResult] = []
    total = sum(map(len, plan))
    with ProgressBar(total, "delivery", is_wanted=progress, unit="settings") as bar:
        for settings in plan:
            results += carry_out(stored, rows, settings)
            bar.update(len(settings))
    return DeliveryProof(
        records=len(data),
        rows=length,
        fields=tuple(stored.fields),
        results=tuple(results),
        mixing=measure_all(data, batch_sizes, SEED),
    )


def _choose_rows(count: int, sample: int | None) -> Rows | None:
    """Return some rows from all over the data set, ascending, or None for all."""
    if sample is None:
        return None
    if sample < 1:
        raise ValueError(f"sample must be 1 or more, or None for all rows, not {sample}")
    if sample >= count:
        return None
    return np.sort(Permutation(count, "rows to deliver").apply(np.arange(sample, dtype=np.int64)))
