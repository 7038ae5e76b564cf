"""The array in a stored payload as a view, so that a part of a large one can be read without the rest."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shardkit.contract import ArrayField, Field, Payload, TokensField


def holds_array(field: Field) -> bool:
    """Whether payloads of a field are the elements of an array as they are: no others can be read in part."""
    return isinstance(field, ArrayField | TokensField) or (
        field.layout.is_fixed and not field.layout.is_single
    )


def view_of(field: Field, payload: Payload) -> npt.NDArray[Any]:
    """Return the array in a payload, read-only: in its stored dtype, an image as ``uint8[C, H, W]``.

    Args:
        field: One that `holds_array`.
        payload: Of the field.

    Raises:
        FormatError: The payload does not fit the field.
    """
    if isinstance(field, TokensField):
        return field.view(payload)
    if isinstance(field, ArrayField):
        return field.decode(payload)
    return np.frombuffer(payload, field.layout.dtype).reshape(field.layout.shape).transpose(2, 0, 1)
