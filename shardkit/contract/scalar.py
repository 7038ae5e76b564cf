"""The scalar field: one number or truth value of a fixed type."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shardkit.contract.dtypes import Bound, check_bounds, check_dtype, round_to, stored_dtype, whole_range
from shardkit.contract.field import Checked, Field, Layout, Payload, Violation
from shardkit.contract.keys import check_flag
from shardkit.contract.numerals import is_bool, read_real, read_whole, show_number
from shardkit.contract.reasons import Reason
from shardkit.errors import FormatError

_TRUTH = {"true": True, "True": True, "false": False, "False": False}


@dataclass(frozen=True)
class ScalarField(Field):
    """One value of a fixed type.

    Attributes:
        dtype: ``"bool"``, ``"int8"`` to ``"int64"``, ``"uint8"`` to ``"uint64"``, ``"float32"`` or
            ``"float64"``. A value for a whole-number type is an int or its plain decimal text, never a float.
            A value for a float type is any number or its decimal text, rounded to the nearest that the type
            holds. A bool is true, false, 0 or 1.
        min: Least value allowed, or None. Of a float type, value and bound are both rounded to it, then compared.
        max: Greatest value allowed, or None.
        finite: Whether NaN and infinity are refused. If they are not, NaN passes any bound.
    """

    kind: ClassVar[str] = "scalar"

    dtype: str
    min: Bound = None
    max: Bound = None
    finite: bool = True

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        check_bounds(self.dtype, self.min, self.max)
        check_flag("finite", self.finite)
        super().__post_init__()

    @property
    def layout(self) -> Layout:
        """One element of `dtype`."""
        return Layout(stored_dtype(self.dtype))

    def check(self, value: Any) -> Checked:
        """Judge a number, or its text.

        Raises:
            Violation: ``wrong-type``, ``out-of-range`` or ``not-finite``.
        """
        kind = np.dtype(self.dtype).kind
        number: bool | int | float
        if kind == "b":
            number = self._check_truth(value)
        elif kind == "f":
            number = self._check_real(value)
        else:
            number = self._check_whole(value)
        return Checked(np.array(number, stored_dtype(self.dtype)).tobytes())

    def decode(self, payload: Payload) -> np.generic:
        """Return the value as a numpy scalar of `dtype`.

        Raises:
            FormatError: The payload has another size, is no bool where it should be, or is not finite where
            it must.
        """
        dtype = stored_dtype(self.dtype)
        if len(payload) != dtype.itemsize or (dtype.kind == "b" and payload[0] > 1):
            raise FormatError(f"a payload of {len(payload)} bytes holds no {self.dtype}")
        value: np.generic = np.frombuffer(payload, dtype)[0]
        if dtype.kind == "f" and self.finite and not np.isfinite(value):
            raise FormatError(f"a {self.dtype} payload holds {value}, which the contract does not allow")
        return value

    def _check_truth(self, value: Any) -> bool:
        if is_bool(value):
            return bool(value)
        if isinstance(value, str) and value in _TRUTH:
            return _TRUTH[value]
        number = read_whole(value)
        if number not in (0, 1):
            raise self._wrong_type(value, "true, false, 0 or 1")
        return bool(number)

    def _check_whole(self, value: Any) -> int:
        number = read_whole(value)
        if number is None:
            raise self._wrong_type(value, 'a whole number in plain digits, such as "-7"')
        least, greatest = whole_range(self.dtype)
        self._check_range(number, value, least, greatest)
        return number

    def _check_real(self, value: Any) -> float:
        given = read_real(value)
        if given is None:
            raise self._wrong_type(value, 'a number, such as "0.25" or "1e-3"')
        is_finite = not _says_not_finite(value, given)
        if self.finite and not is_finite:
            raise Violation(
                Reason.NOT_FINITE, f"the value is {show_number(value)}; only finite numbers are allowed"
            )
        number = round_to(given, self.dtype)
        if not math.isnan(number):
            greatest = float(np.finfo(self.dtype).max) if is_finite else math.inf
            self._check_range(number, value, -greatest, greatest)
        return number

    def _check_range(self, number: float, value: Any, least: float, greatest: float) -> None:
        low = least if self.min is None else self.min
        high = greatest if self.max is None else self.max
        if not self._rounded(low) <= number <= self._rounded(high):
            sentence = f"the value is {show_number(value)}; allowed for this {self.dtype} are {low} to {high}"
            raise Violation(Reason.OUT_OF_RANGE, sentence)

    def _rounded(self, bound: int | float) -> int | float:
        return round_to(bound, self.dtype) if np.dtype(self.dtype).kind == "f" else bound

    def _wrong_type(self, value: Any, wanted: str) -> Violation:
        return Violation(Reason.WRONG_TYPE, f"the value is {show_number(value)}; {self.dtype} takes {wanted}")


def _says_not_finite(value: Any, number: float) -> bool:
    """Whether the raw value itself is NaN or infinite, rather than too large for a float."""
    if math.isfinite(number):
        return False
    return not (isinstance(value, str) and value[-1].isdigit()) and not isinstance(value, int)
