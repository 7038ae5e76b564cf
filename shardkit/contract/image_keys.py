"""The keys of an image field: what each may hold, and which may stand beside which.

What they do to pictures is in ``image.py`` and in ``images/``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from shardkit.contract.images.resizing import FITS, Size
from shardkit.contract.images.sniff import FORMATS
from shardkit.contract.images.storage import SUBSAMPLINGS
from shardkit.contract.keys import check_choice, check_whole, is_whole, wrong_key

LARGEST_JPEG_SIDE = 65_500
"""JPEG_MAX_DIMENSION of libjpeg (jmorecfg.h)."""
_LARGEST_SIDE = 2**31 - 1
_CHOICES = {
    "mode": ("RGB", "L", "RGBA"),
    "grayscale": ("reject", "convert"),
    "alpha": ("reject", "drop", "composite"),
    "cmyk": ("reject", "convert"),
    "depth16": ("reject", "convert"),
    "palette": ("convert", "reject"),
    "animated": ("reject", "first"),
    "orientation": ("apply", "ignore", "reject"),
    "warnings": ("accept", "reject"),
    "store": ("original", "jpeg", "raw"),
}
_JPEG_KEYS = ("max_side", "quality", "subsampling")
_SIZING_KEYS = ("resize", "fit")

Keys = Mapping[str, Any]
"""Key -> what stood in the contract, which may be anything."""


def check_image_keys(keys: Keys) -> dict[str, Any]:
    """Check all keys of an image field but `default`, and return those whose values take another form: as tuples.

    Raises:
        ContractError: A key has a value that is not allowed, alone or beside the others; names the key and what is.
    """
    for key, allowed in _CHOICES.items():
        check_choice(key, keys[key], allowed)
    settled: dict[str, Any] = {"formats": _formats(keys["formats"])}
    for key in ("min_size", "max_size", "size"):
        settled[key] = _size(key, keys[key], _LARGEST_SIDE)
    settled["resize"] = _size("resize", keys["resize"], LARGEST_JPEG_SIDE)
    check_whole("max_pixels", keys["max_pixels"], 1, 2**63 - 1)
    _check_together({**keys, **settled})
    return settled


def is_within(size: Size, least: Size, most: Size) -> bool:
    """Whether height and width are both within their bounds, which are allowed themselves."""
    return least[0] <= size[0] <= most[0] and least[1] <= size[1] <= most[1]


def stored_size_of(size: Size | None, resize: Size | None) -> Size | None:
    """Return the height and width that these keys give every stored picture, or None where they vary."""
    return size if resize is None else resize


def _check_together(keys: Keys) -> None:
    _check_sizes(keys["min_size"], keys["max_size"], keys["size"])
    if keys["mode"] == "RGBA" and keys["alpha"] != "reject":
        raise wrong_key("alpha", keys["alpha"], 'leave it out where mode is "RGBA", which keeps alpha')
    if keys["store"] == "raw" and stored_size_of(keys["size"], keys["resize"]) is None:
        allowed = "give size = [H, W], or resize = [H, W], as well, since all rows take the same space"
        raise wrong_key("store", "raw", allowed)
    if keys["store"] == "jpeg":
        _check_jpeg_keys(keys)
    else:
        _refuse(_JPEG_KEYS, keys, 'allowed only with store = "jpeg"')
    if keys["store"] == "original":
        _refuse(_SIZING_KEYS, keys, 'allowed only with store = "jpeg" or "raw"')
    _check_resize(keys)


def _check_sizes(least: Size, most: Size, size: Size | None) -> None:
    if least[0] > most[0] or least[1] > most[1]:
        raise wrong_key("min_size", least, f"allowed is at most max_size, {list(most)}")
    if size is not None and not is_within(size, least, most):
        raise wrong_key("size", size, f"allowed is from min_size, {list(least)}, to max_size, {list(most)}")


def _check_jpeg_keys(keys: Keys) -> None:
    if keys["mode"] == "RGBA":
        raise wrong_key(
            "store", "jpeg", 'JPEG holds no alpha: with mode = "RGBA", allowed are "original", "raw"'
        )
    if keys["max_side"] is not None:
        check_whole("max_side", keys["max_side"], 1, LARGEST_JPEG_SIDE)
    if keys["quality"] is not None:
        check_whole("quality", keys["quality"], 1, 100)
    if keys["subsampling"] is not None:
        check_choice("subsampling", keys["subsampling"], SUBSAMPLINGS)


def _check_resize(keys: Keys) -> None:
    if keys["resize"] is None:
        _refuse(("fit",), keys, "allowed only with resize = [H, W]")
        return
    why = f"leave it out: resize = {list(keys['resize'])} decides the size"
    _refuse(("size", "max_side"), keys, why)
    if keys["fit"] is not None:
        check_choice("fit", keys["fit"], FITS)


def _refuse(names: Iterable[str], keys: Keys, why: str) -> None:
    for name in names:
        if keys[name] is not None:
            raise wrong_key(name, keys[name], why)


def _formats(value: Any) -> tuple[str, ...]:  # Any: whatever stood in the contract
    if not isinstance(value, list | tuple) or not value or not all(_is_format(name) for name in value):
        allowed = ", ".join(f'"{name}"' for name in FORMATS)
        raise wrong_key("formats", value, f"allowed is a list of one or more of {allowed}")
    return tuple(name for name in FORMATS if name in value)


def _is_format(name: object) -> bool:
    return isinstance(name, str) and name in FORMATS


def _size(key: str, value: Any, largest: int) -> Size | None:  # Any: whatever stood in the contract
    if value is None and key in ("size", "resize"):
        return None
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    if not is_pair or not all(is_whole(side) and 1 <= side <= largest for side in value):
        allowed = f"allowed is [H, W]: height, then width, in pixels, each a whole number from 1 to {largest}"
        raise wrong_key(key, value, allowed)
    return (value[0], value[1])
