"""What an examination found, for programs and for people."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from shardkit.measurement.doctor_settings import MeasuredSetting, choose_setting
from shardkit.measurement.doctor_steps import Step
from shardkit.measurement.stages import Stage


@dataclass(frozen=True)
class StageTime:
    """What a stage takes.

    Attributes:
        stage: Which.
        seconds: The median for a sample; None if it was not done.
        share: Of the stages that loaders do for each sample; None if it is none of them.
        note: Why it was not done, or why loaders do without it; else empty.
    """

    stage: Stage
    seconds: float | None = None
    share: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Trouble:
    """What went wrong, and where.

    Attributes:
        kind: ``"failed"``: it raised; ``"hung"``: it took too long, and was ended; ``"died"``: it took its process with
            it.
        step: The last step that was begun.
        sentence: What was raised, or became of the process.
        frames: Where in the code it was, innermost first, as ``file:line in function``; empty where nobody knows, or
            the data are at fault.
    """

    kind: Literal["failed", "hung", "died"]
    step: Step
    sentence: str
    frames: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the trouble as a JSON object; a record stands under ``records``, as those of a batch do."""
        return {
            "kind": self.kind,
            "stage": self.step.stage,
            "records": [asdict(record) for record in self.step.records],
            "detail": self.step.detail,
            "sentence": self.sentence,
            "frames": list(self.frames),
        }


@dataclass(frozen=True)
class Diagnosis:
    """What an examination found.

    Attributes:
        out: The data set.
        records: How many it has; None if opening it did not come to an end.
        samples: How many of them were taken.
        troubles: What went wrong.
        stages: What each stage takes; empty if the examination did not come to its end.
        limit: The stage that takes longest, of those that loaders do for each sample; None if something went wrong, or
            nothing was taken.
        advice: What to change about it.
        remarks: What else there is to know.
        settings: The measured settings, simplest first; empty if they were not measured.
    """

    out: Path
    records: int | None
    samples: int
    troubles: tuple[Trouble, ...]
    stages: tuple[StageTime, ...] = ()
    limit: Stage | None = None
    advice: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    settings: tuple[MeasuredSetting, ...] = ()

    def __repr__(self) -> str:
        """Show the verdict."""
        verdict = f"{len(self.troubles):,} went wrong" if self.troubles else "all went well"
        return f"<{type(self).__name__} {self.out}: {self.samples:,} of {self.records or 0:,} records taken: {verdict}>"

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong with what was looked at."""
        return not self.troubles

    @property
    def recommended(self) -> MeasuredSetting | None:
        """The simplest setting that is within 5 % of the fastest; None if they were not measured."""
        return choose_setting(self.settings) if self.settings else None

    @property
    def level(self) -> tuple[MeasuredSetting, ...]:
        """The settings that may be as fast as the recommended one: in one round they were ahead, in one behind."""
        recommended = self.recommended
        if recommended is None:
            return ()
        return tuple(each for each in self.settings if each.is_level_with(recommended))

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as a JSON object."""
        recommended = self.recommended
        return {
            "ok": self.ok,
            "out": str(self.out),
            "records": self.records,
            "samples": self.samples,
            "troubles": [trouble.to_dict() for trouble in self.troubles],
            "stages": [asdict(each) for each in self.stages],
            "limit": self.limit,
            "advice": list(self.advice),
            "remarks": list(self.remarks),
            "settings": [_setting(each) for each in self.settings],
            "recommended": None if recommended is None else _setting(recommended),
            "level": [_setting(each) for each in self.level],
        }


def _setting(measured: MeasuredSetting) -> dict[str, Any]:
    return asdict(measured) | {"samples_per_second": measured.samples_per_second}
