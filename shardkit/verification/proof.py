"""The result of a proof of delivery: what each setting delivered, and how classes mix."""

from dataclasses import dataclass
from typing import Any

from shardkit.verification.delivery_report import DeliveryReport
from shardkit.verification.mixing import Mixing
from shardkit.verification.setting import Setting


@dataclass(frozen=True)
class SettingResult:
    """What one setting delivered.

    Attributes:
        setting: The setting.
        report: All ranks together; expected are the ids that the tail promises.
        dropped: Ids that the tail leaves out by what it promises.
        order_fault: Where a rank first saw other samples than seed and epoch ask for; empty if nowhere.
        steps_fault: Where a rank took another number of steps than its loader's length said; empty if nowhere.
    """

    setting: Setting
    report: DeliveryReport
    dropped: int
    order_fault: str
    steps_fault: str

    @property
    def labels_equal(self) -> bool:
        """Whether every value of a label or scalar field was delivered as it is stored."""
        return not (self.report.wrong or self.report.not_compared)

    @property
    def order_equal(self) -> bool:
        """Whether each rank saw the sequence that seed and epoch ask for."""
        return not self.order_fault

    @property
    def steps_equal(self) -> bool:
        """Whether each rank took the steps that its loader's length said."""
        return not self.steps_fault

    @property
    def ok(self) -> bool:
        """Whether the setting delivered what it promises."""
        return self.report.ok and self.labels_equal and self.order_equal and self.steps_equal

    def describe(self) -> str:
        """Say in one line what is wrong, or that all is well."""
        faults = [fault for fault in (self.order_fault, self.steps_fault) if fault]
        is_fine = self.report.ok and self.labels_equal
        return "; ".join(faults if faults and is_fine else [self.report.describe(), *faults])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON object; see `DeliveryProof.to_dict`."""
        return {
            "name": self.setting.describe(),
            "setting": dict(self.setting.__dict__),
            **self.report.to_dict(),
            "ok": self.ok,
            "dropped": self.dropped,
            "labels_equal": self.labels_equal,
            "order_equal": self.order_equal,
            "steps_equal": self.steps_equal,
            "describe": self.describe(),
        }


@dataclass(frozen=True)
class DeliveryProof:
    """The result of all settings.

    Attributes:
        records: Records of the data set.
        rows: How many of them were delivered in each setting.
        fields: The label and scalar fields whose values were compared.
        results: One result a setting.
        mixing: How classes mix, for each label field, batch size and kind of shuffling; it is no part of the verdict.
    """

    records: int
    rows: int
    fields: tuple[str, ...]
    results: tuple[SettingResult, ...]
    mixing: tuple[Mixing, ...] = ()

    def __repr__(self) -> str:
        """Show the verdict; the settings are hundreds."""
        return f"<{type(self).__name__}: {self.describe()}>"

    @property
    def ok(self) -> bool:
        """Whether every setting delivered what it promises."""
        return all(result.ok for result in self.results)

    def describe(self) -> str:
        """Say in one line how many settings failed."""
        failed = sum(not result.ok for result in self.results)
        of = f" of {self.records:,}" if self.rows < self.records else ""
        verdict = f"{failed:,} FAILED" if failed else "all delivered"
        return f"{self.rows:,}{of} records in {len(self.results):,} settings: {verdict}"

    def to_dict(self) -> dict[str, Any]:
        """Return the proof as a JSON object.

        Its keys are ``ok``, ``records``, ``rows`` (of them, delivered in each setting), ``fields`` (those compared),
        ``failed`` (how many settings), ``settings`` and ``mixing``. Each of the settings has ``name``, ``setting``
        (the attributes of `Setting`), ``ok``, what `DeliveryReport` has, of all ranks together (``expected``,
        ``delivered``, ``missing``, ``missing_ids``, ...), ``dropped``, ``labels_equal``, ``order_equal``,
        ``steps_equal``, and ``describe``, the verdict in one line. Each of ``mixing`` has the attributes of `Mixing`,
        and ``is_clumped``.
        """
        return {
            "ok": self.ok,
            "records": self.records,
            "rows": self.rows,
            "fields": list(self.fields),
            "failed": sum(not result.ok for result in self.results),
            "settings": [result.to_dict() for result in self.results],
            "mixing": [mixing.to_dict() for mixing in self.mixing],
        }
