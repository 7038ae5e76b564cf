"""`doctor`: takes a few records through every stage on the way to the device; says which fails, or which limits.

What may crash or hang, a damaged shard or a user's transform, does so in a child process; this one watches.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from math import isfinite
from pathlib import Path

from shardkit.errors import ShardkitError
from shardkit.measurement.doctor_advice import advise, find_limit, remarks
from shardkit.measurement.doctor_diagnosis import Diagnosis, StageTime, Trouble
from shardkit.measurement.doctor_examination import Chosen, Examination, Measured, Opened, Refused
from shardkit.measurement.doctor_settings import MeasuredSetting
from shardkit.measurement.doctor_steps import Failure, Located, Step
from shardkit.measurement.doctor_watch import Lost, watch
from shardkit.measurement.stages import STAGES, Findings, Stage
from shardkit.reading.integer import require_integer
from shardkit.transforms import Transform

Log = Callable[[str], None]


def doctor(
    out: str | Path,
    transform: Transform | str | None = None,
    *,
    samples: int = 32,
    timeout: float = 60.0,
    settings: bool = True,
    log: Log | None = None,
) -> Diagnosis:
    """Take some records of `out` through read, decode, transform, collate and transfer, and say what is wrong or slow.

    They are the first and the last record, the largest and the smallest of some thousand, one of each class, and random
    ones; checksums of all their fields are checked. `verify` is what looks at all records. It happens in one child
    process, which may hang or die; each record is known before it is read. Where nothing fails, a few settings of the
    loaders are measured for some seconds each.

    Args:
        out: The data set.
        transform: A transform, or ``"none"``, ``"center:SIZE"``, ``"random:SIZE"`` (as for `bench`), or
            ``"module:name"``, which the child imports. It may change shapes, and leave samples out.
        samples: Records to take, about; at least 1.
        timeout: Seconds after which a step that has not ended counts as hanging, and is ended.
        settings: Whether to measure settings.
        log: Is given a line for each record before it is read: id, shard, row and why it was chosen; never contents.

    Returns:
        The diagnosis; what fails, hangs or dies is a trouble in it, not an exception, once the data set is open.

    Raises:
        DatasetNotFoundError: There is no data set.
        FormatError: It cannot be opened.
        ValueError: There is no such transform, or it does not suit the data set; or an argument is out of its range.

    Example:
        >>> diagnosis = doctor("out/", "center:224", timeout=10)
        >>> for trouble in diagnosis.troubles:
        ...     print(trouble.kind, trouble.step.describe(), trouble.sentence)
    """
    if require_integer("samples", samples) < 1:
        raise ValueError(f"samples must be 1 or more, not {samples}")
    if not (isfinite(timeout) and timeout > 0):
        raise ValueError(f"timeout must be a number of seconds above 0, not {timeout}")
    examination = Examination(Path(out).absolute(), transform, samples, settings)
    chart = _Chart(Path(out), log)
    with closing(watch(examination, timeout)) as messages:
        for message in messages:
            chart.note(message)
    return chart.diagnosis()


class _Chart:
    """Notes the messages of an examination as they come."""

    def __init__(self, out: Path, log: Log | None) -> None:
        self._out = out
        self._log = log
        self._step = Step("start")
        self._opened: Opened | None = None
        self._reasons: dict[Located, str] = {}
        self._samples = 0
        self._troubles: list[Trouble] = []
        self._findings: Findings | None = None
        self._settings: tuple[MeasuredSetting, ...] = ()

    def note(self, message: object) -> None:
        """Note a message.

        Raises:
            ShardkitError: The data set cannot be opened.
            ValueError: What was asked for cannot be done.
        """
        match message:
            case Step():
                self._begin(message)
            case Failure(step, sentence, frames):
                self._troubles.append(Trouble("failed", step, sentence, frames))
            case Lost(kind, sentence, frames):
                self._troubles.append(Trouble(kind, self._step, sentence, frames))
            case Opened():
                self._opened = message
            case Chosen(records, reasons):
                self._reasons = dict(zip(records, reasons, strict=True))
            case Findings():
                self._findings = message
            case Measured(settings):
                self._settings = settings
            case Refused(sentence):
                raise ValueError(sentence)
            case ShardkitError():
                raise message

    def diagnosis(self) -> Diagnosis:
        """Return what comes of all messages."""
        findings, troubles = self._findings, tuple(self._troubles)
        records = None if self._opened is None else self._opened.records
        if findings is None or self._opened is None:
            return Diagnosis(self._out, records, self._samples, troubles)
        limit = None if troubles else find_limit(findings)
        return Diagnosis(
            self._out,
            records,
            self._samples,
            troubles,
            tuple(_stage_times(findings)),
            limit,
            () if limit is None else tuple(advise(limit, findings, self._opened.backends)),
            tuple(remarks(findings)),
            self._settings,
        )

    def _begin(self, step: Step) -> None:
        self._step = step
        if step.stage == "read":
            self._samples += 1
            if self._log is not None:
                (record,) = step.records
                self._log(f"{record.describe()}: {self._reasons[record]}")


def _stage_times(findings: Findings) -> Sequence[StageTime]:
    medians, counted = findings.medians, findings.counted
    notes = {**findings.skipped, **findings.saved}
    total = sum(counted.values())

    def time_of(stage: Stage) -> StageTime:
        share = counted[stage] / total if stage in counted else None
        return StageTime(stage, medians.get(stage), share, notes.get(stage, ""))

    return [time_of(stage) for stage in STAGES]
