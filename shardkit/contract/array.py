"""The array field: numbers of one dtype in a shape whose axes may vary from record to record."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shardkit.contract.dtypes import Bound, check_bounds, check_dtype, check_element, round_to, stored_dtype
from shardkit.contract.field import Checked, Field, FileContent, Layout, Padding, Payload, Violation
from shardkit.contract.keys import check_flag, is_whole, wrong_key
from shardkit.contract.nested_lists import read_lists
from shardkit.contract.npy import read_npy
from shardkit.contract.reasons import Reason
from shardkit.contract.scalar import ScalarField
from shardkit.errors import FormatError

_MAX_AXES = 32
_MAX_BYTES = 2**40  # of a fixed shape: guards against a slip of the pen, not against memory

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ArrayField(Field):
    """An array of each record, given as an array (numpy, torch), as nested lists, or as a .npy file.

    Attributes:
        dtype: As for a scalar. An array is taken as it is or cast where nothing is lost (``uint8`` to
            ``int32``, never ``float64`` to ``float32``; ``int64`` to ``float64`` if that holds each of its
            numbers). Plain lists have no dtype of their own: whole numbers must fit a whole-number dtype, and
            any number is rounded to the nearest that a float dtype holds.
        shape: Size of each axis; -1 where it varies.
        min: Least element allowed, or None; rounded to a float dtype, as elements are.
        max: Greatest element allowed, or None.
        finite: Whether NaN and infinity are refused. If they are not, NaN passes any bound.
        pad_value: What fills the missing elements where a batch pads its arrays to one shape, beside a mask; None
            where it keeps them apart. Only with a varying axis.
        default: As for all fields; one number, or its text, fills a shape in which no axis varies.
    """

    kind: ClassVar[str] = "array"
    takes_file: ClassVar[bool] = True

    dtype: str
    shape: tuple[int, ...]
    min: Bound = None
    max: Bound = None
    finite: bool = True
    pad_value: Bound = None

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        object.__setattr__(self, "shape", _shape(self.shape, np.dtype(self.dtype).itemsize))
        check_bounds(self.dtype, self.min, self.max)
        check_flag("finite", self.finite)
        if self.pad_value is not None:
            if -1 not in self.shape:
                raise wrong_key(
                    "pad_value", self.pad_value, f"no axis of shape = {list(self.shape)} varies (-1)"
                )
            check_element("pad_value", self.pad_value, self.dtype)
        super().__post_init__()

    @property
    def layout(self) -> Layout:
        """`dtype` and `shape` where no axis varies, else payloads of varying length."""
        return Layout() if -1 in self.shape else Layout(stored_dtype(self.dtype), self.shape)

    @property
    def padding(self) -> Padding | None:
        """To the largest of the batch, in every varying axis, where a `pad_value` is given."""
        if self.pad_value is None:
            return None
        is_float = np.dtype(self.dtype).kind == "f"
        return Padding(round_to(self.pad_value, self.dtype) if is_float else self.pad_value, self.shape)

    def check(self, value: Any) -> Checked:
        """Judge an array, nested lists or the content of a .npy file.

        Raises:
            Violation: ``wrong-type``, ``wrong-shape``, ``out-of-range``, ``not-finite``; for a file also
                ``empty``, ``bad-header`` and ``truncated``.
        """
        is_list = isinstance(value, list | tuple)
        found = read_lists(value, self.dtype) if is_list else self._cast_safely(to_array(value))
        if not self._fits(found.shape):
            expected = ", ".join("any" if size == -1 else str(size) for size in self.shape)
            sentence = f"the array's shape is {list(found.shape)}; expected is [{expected}]"
            raise Violation(Reason.WRONG_SHAPE, sentence)
        array = np.ascontiguousarray(found, stored_dtype(self.dtype))
        self._check_elements(array)
        sizes = b"" if self.layout.is_fixed else np.array(array.shape, "<u8").tobytes()
        return Checked(sizes + array.tobytes())

    def decode(self, payload: Payload) -> Array:
        """Return the array, ``dtype[*shape]``, read-only: a view of the payload.

        Sizes are checked; elements are as the checksum vouches for them.

        Raises:
            FormatError: The payload's length does not fit the shape, or the shape does not fit the field.
        """
        dtype = stored_dtype(self.dtype)
        shape, start = self.shape, 0
        if not self.layout.is_fixed:
            start = 8 * len(self.shape)
            if len(payload) < start:
                raise FormatError(
                    f"an array payload of {len(payload)} bytes ends within its {len(shape)} axis sizes"
                )
            shape = tuple(int(size) for size in np.frombuffer(payload, "<u8", len(self.shape)))
        if not self._fits(shape) or len(payload) - start != math.prod(shape) * dtype.itemsize:
            raise FormatError(
                f"an array payload of {len(payload)} bytes does not hold {self.dtype}{list(shape)}; "
                f"the contract says {list(self.shape)}"
            )
        try:
            array = np.frombuffer(payload, dtype, -1, start) if len(payload) > start else np.empty(0, dtype)
            array = array.reshape(shape)
        except ValueError as error:  # no elements, and beside the 0 a size that numpy cannot hold
            raise FormatError(
                f"an array payload says {list(shape)}, which is no shape of an array"
            ) from error
        array.flags.writeable = False
        return array

    def _judge_default(self) -> None:
        if isinstance(self.default, list):
            self.check(self.default)
        else:
            self._default_element()  # and not the array that is full of it, which may not fit into memory

    def _check_default(self) -> Checked:
        if isinstance(self.default, list):
            return self.check(self.default)
        return Checked(self._default_element() * math.prod(self.shape))

    def _default_element(self) -> bytes:
        """Return the bytes of the one number that a default stands for.

        Raises:
            Violation: It does not fit, or an axis varies.
        """
        if not self.layout.is_fixed:
            sentence = "where an axis of the shape varies, a default is an array, as nested lists"
            raise Violation(Reason.WRONG_SHAPE, sentence)
        return bytes(ScalarField(self.dtype, self.min, self.max, self.finite).check(self.default).payload)

    def _cast_safely(self, array: Array) -> Array:
        if not np.can_cast(array.dtype, self.dtype, "safe"):
            sentence = f"the array's dtype is {array.dtype}, which cannot become {self.dtype} without loss"
            raise Violation(Reason.WRONG_TYPE, sentence)
        if array.dtype.kind in "iu" and np.dtype(self.dtype).kind == "f":
            _require_exact(array, self.dtype)
        return array

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if len(shape) != len(self.shape):
            return False
        return all(wanted in (-1, size) for wanted, size in zip(self.shape, shape, strict=True))

    def _check_elements(self, array: Array) -> None:
        if self.finite and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Violation(
                Reason.NOT_FINITE, "the array holds NaN or infinity; only finite numbers are allowed"
            )
        for bound, is_beyond in ((self.min, np.less), (self.max, np.greater)):
            if bound is not None and is_beyond(array, array.dtype.type(bound)).any():
                found = f"the array reaches from {np.nanmin(array)} to {np.nanmax(array)}"
                raise Violation(Reason.OUT_OF_RANGE, f"{found}; allowed are {self._bounds()}")

    def _bounds(self) -> str:
        low = "any" if self.min is None else self.min
        high = "any" if self.max is None else self.max
        return f"{low} to {high}"


def to_array(value: Any) -> Array:  # Any: raw input may be anything
    """Return the array in the bytes of a .npy file, or what `value` makes of itself for numpy.

    Raises:
        Violation: ``wrong-type``; for a file also ``empty``, ``bad-header`` and ``truncated``.
    """
    raw = value.data if isinstance(value, FileContent) else value
    if isinstance(raw, bytes | bytearray | memoryview):
        return read_npy(bytes(raw))
    kind = type(value).__name__
    if not hasattr(value, "__array__"):
        raise Violation(Reason.WRONG_TYPE, f"a value of type {kind} is no array")
    if np.ma.is_masked(value):
        raise Violation(Reason.WRONG_TYPE, "the array has masked elements, which no array is stored with")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        # a torch tensor on a device, one that needs a gradient, or of a dtype that numpy does not have
        dtype = f" of {value.dtype}" if hasattr(value, "dtype") else ""
        sentence = f"numpy cannot take this {kind}{dtype} as an array: convert or detach it first"
        raise Violation(Reason.WRONG_TYPE, sentence) from error


def _require_exact(whole: Array, dtype: str) -> None:
    """Refuse a whole number that a float dtype would round; numpy calls int64 to float64 safe all the same."""
    all_exact = 2 ** (np.finfo(dtype).nmant + 1)
    for number in whole[(whole > all_exact) | (whole < -all_exact)].tolist():
        if int(float(number)) != number:
            sentence = f"the array holds {number}, which cannot become {dtype} without loss"
            raise Violation(Reason.WRONG_TYPE, sentence)


def _shape(shape: Any, itemsize: int) -> tuple[int, ...]:  # Any: whatever stood in the contract
    allowed = f"allowed is a list of 1 to {_MAX_AXES} sizes, each 1 or more, or -1 where it varies"
    if not isinstance(shape, list | tuple) or not 1 <= len(shape) <= _MAX_AXES:
        raise wrong_key("shape", shape, allowed)
    if not all(is_whole(size) and (size == -1 or size >= 1) for size in shape):
        raise wrong_key("shape", shape, allowed)
    if math.prod(abs(size) for size in shape) * itemsize > _MAX_BYTES:
        raise wrong_key("shape", shape, f"an array may have at most {_MAX_BYTES} bytes")
    return tuple(shape)
