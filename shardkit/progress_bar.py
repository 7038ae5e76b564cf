"""The progress bar of everything that takes a while: on a terminal only, and without a thread of its own."""

from typing import Any, ClassVar

from tqdm import tqdm


class ProgressBar(tqdm):  # type: ignore[type-arg]  # generic in its stubs alone
    """A bar on standard error that advances as it is told to.

    Args:
        total: Of what is counted, or None where nobody knows.
        what: In front of the bar.
        unit: What is counted.
        is_wanted: Whether to show it; even then it shows on a terminal only.
    """

    monitor_interval: ClassVar[int] = 0  # tqdm's monitor is a thread, and worker processes are forked

    def __init__(self, total: int | None, what: str, *, is_wanted: bool, unit: str = "records") -> None:
        options: dict[str, Any] = {"disable": None if is_wanted else True}
        super().__init__(total=total, unit=f" {unit}", desc=what, **options)
