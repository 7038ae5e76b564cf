"""The tokens field: a sequence of whole numbers of any length, padded and masked where sequences meet in a batch."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shardkit.contract.array import to_array
from shardkit.contract.dtypes import stored_dtype, whole_range
from shardkit.contract.field import Checked, Field, FileContent, Layout, Padding, Payload, Violation
from shardkit.contract.keys import check_choice, check_whole, wrong_key
from shardkit.contract.nested_lists import read_lists
from shardkit.contract.npy import MAGIC
from shardkit.contract.numerals import read_whole
from shardkit.contract.reasons import Reason
from shardkit.contract.strict_json import parse_json
from shardkit.contract.text import decode_text
from shardkit.errors import FormatError

DTYPES = ("int32", "uint16", "int16", "uint32", "int64")
_MAX_LENGTH = 2**31

Tokens = npt.NDArray[Any]


@dataclass(frozen=True)
class TokensField(Field):
    """A sequence of token numbers of each record. An empty one is a value.

    It is given as a list of ints, as a one-dimensional array of whole numbers (numpy, torch; of any dtype, as long
    as each number fits), as the content of a file that holds a .npy array or text, or as text: a JSON list
    (``"[5, 6]"``) or numbers with white space between them (``"5 6"``). In a batch, sequences become one tensor
    ``[B, L]``, filled up with `pad_value`, beside ``NAME_mask``, ``bool[B, L]``, which is true where a token is.

    Attributes:
        dtype: How numbers are stored: ``"int32"``, which holds those of any vocabulary; ``"uint16"`` takes half the
            space and holds those of one up to 65,536; or ``"int16"``, ``"uint32"``, ``"int64"``.
        max_length: Most tokens allowed, or None.
        min_length: Fewest tokens allowed.
        overflow: What happens to a sequence of more than `max_length`: ``"reject"``, or ``"truncate"``: the first
            `max_length` are kept, and the record is counted as converted.
        vocab_size: Tokens are in ``[0, vocab_size)``; None allows all that `dtype` holds.
        pad: What a batch pads to: ``"longest"``, its longest sequence, or ``"max_length"``.
        pad_value: What a batch fills up with; any number that the delivered dtype holds.
    """

    kind: ClassVar[str] = "tokens"
    accepts_file: ClassVar[bool] = True

    dtype: str = "int32"
    max_length: int | None = None
    min_length: int = 0
    overflow: str = "reject"
    vocab_size: int | None = None
    pad: str = "longest"
    pad_value: int = 0

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        check_whole("min_length", self.min_length, 0, _MAX_LENGTH)
        check_choice("overflow", self.overflow, ("reject", "truncate"))
        check_choice("pad", self.pad, ("longest", "max_length"))
        if self.max_length is not None:
            check_whole("max_length", self.max_length, 1, _MAX_LENGTH)
            if self.max_length < self.min_length:
                raise wrong_key(
                    "max_length", self.max_length, f"min_length is {self.min_length}, which is more"
                )
        elif self.overflow == "truncate":
            raise wrong_key("overflow", self.overflow, "give max_length as well")
        elif self.pad == "max_length":
            raise wrong_key("pad", self.pad, "give max_length as well")
        if self.vocab_size is not None:
            check_whole("vocab_size", self.vocab_size, 1, whole_range(self.dtype)[1] + 1)
        check_whole("pad_value", self.pad_value, *whole_range(self.delivered))
        super().__post_init__()

    @property
    def layout(self) -> Layout:
        """Payloads of varying length."""
        return Layout()

    @property
    def delivered(self) -> str:
        """The dtype that is delivered: int32 or int64, the smaller that holds `dtype`; torch embeds no others."""
        return "int32" if self.dtype in ("int16", "uint16", "int32") else "int64"

    @property
    def padding(self) -> Padding:
        """To the longest of the batch, or to `max_length`."""
        return Padding(self.pad_value, (-1,), self.max_length if self.pad == "max_length" else None)

    def check(self, value: Any) -> Checked:
        """Judge a sequence of tokens.

        Raises:
            Violation: ``wrong-type``, ``wrong-shape``, ``out-of-range``, ``too-short``, ``too-long``; for text also
                ``bad-json`` and ``bad-encoding``; for a file also ``empty``, ``bad-header`` and ``truncated``.
        """
        tokens = self._to_tokens(value)
        self._check_numbers(tokens)
        count = len(tokens)
        if count < self.min_length:
            sentence = f"there are {count} tokens; at least {self.min_length} are asked for"
            raise Violation(Reason.TOO_SHORT, sentence)
        is_over = self.max_length is not None and count > self.max_length
        if is_over and self.overflow == "reject":
            sentence = (
                f'there are {count} tokens; at most {self.max_length} are allowed, or overflow = "truncate"'
            )
            raise Violation(Reason.TOO_LONG, sentence)
        payload = tokens[: self.max_length].astype(stored_dtype(self.dtype)).tobytes()
        return Checked(payload, converted=("overflow",) if is_over else ())

    def decode(self, payload: Payload) -> Tokens:
        """Return the tokens, ``int32[n]`` or ``int64[n]`` (see `delivered`); read-only where it is a view.

        Raises:
            FormatError: As for `view`.
        """
        return self.view(payload).astype(self.delivered, copy=False)

    def view(self, payload: Payload) -> Tokens:
        """Return the tokens as they are stored, ``dtype[n]``: a read-only view of the payload.

        Their number is checked; that each is below `vocab_size` is as the checksum vouches for it.

        Raises:
            FormatError: The payload is no whole number of elements, or their number is not allowed.
        """
        dtype = stored_dtype(self.dtype)
        count, rest = divmod(len(payload), dtype.itemsize)
        if rest or count < self.min_length or (self.max_length is not None and count > self.max_length):
            most = "any number" if self.max_length is None else self.max_length
            raise FormatError(
                f"a tokens payload of {len(payload)} bytes does not hold {self.min_length} to {most} {self.dtype}"
            )
        stored = np.frombuffer(payload, dtype) if count else np.empty(0, dtype)
        stored.flags.writeable = False
        return stored

    def _to_tokens(self, value: Any) -> Tokens:
        """Return the raw value as a one-dimensional array of whole numbers."""
        raw = value.data if isinstance(value, FileContent) else value
        if isinstance(raw, bytes | bytearray | memoryview) and bytes(raw[: len(MAGIC)]) != MAGIC:
            raw = decode_text(raw)
        if isinstance(raw, str):
            raw = _read_text(raw)
        tokens = read_lists(raw, self.dtype) if isinstance(raw, list | tuple) else to_array(raw)
        if tokens.dtype.kind not in "iu":
            raise Violation(
                Reason.WRONG_TYPE, f"an array of {tokens.dtype} holds no tokens, which are whole numbers"
            )
        if tokens.ndim != 1:
            sentence = f"the shape is {list(tokens.shape)}; tokens are one sequence of numbers"
            raise Violation(Reason.WRONG_SHAPE, sentence)
        return tokens

    def _check_numbers(self, tokens: Tokens) -> None:
        least, most = whole_range(self.dtype)
        if self.vocab_size is not None:
            least, most = 0, self.vocab_size - 1
        if tokens.size and not least <= int(tokens.min()) <= int(tokens.max()) <= most:
            found = f"the tokens reach from {tokens.min()} to {tokens.max()}"
            raise Violation(Reason.OUT_OF_RANGE, f"{found}; allowed are {least} to {most}")


def _read_text(text: str) -> list[Any]:
    """Return what a JSON list holds, or the numbers in a text that has only white space between them."""
    if not text:
        raise Violation(Reason.EMPTY, "there is nothing; a sequence without tokens is written []")
    if text.lstrip().startswith("["):
        try:
            return list(parse_json(text))
        except ValueError as error:
            raise Violation(Reason.BAD_JSON, f"the text cannot be taken: {error}") from error
    numbers = [read_whole(word) for word in text.split()]
    if not numbers or None in numbers:
        raise Violation(Reason.WRONG_TYPE, 'the text is no sequence of tokens, such as "[5, 6]" or "5 6"')
    return numbers
