"""Functions that take entries of an LMDB apart, at the top of a module so that worker processes find them."""

from typing import Any


def split(key: bytes, value: bytes) -> dict[str, Any]:
    """Return what stands behind a class number, as Caffe's records do in their own way."""
    return {"label": value[0], "image": value[1:]}


def named(key: bytes, value: bytes) -> dict[str, Any]:
    return {"id": f"n{key.decode()}", "x": value}


def whole(key: bytes, value: bytes) -> dict[str, Any]:
    return {"x": int(value)}


def past_counters(key: bytes, value: bytes) -> dict[str, Any] | None:
    return None if key.startswith(b"_") else {"x": value}


def named_past_counters(key: bytes, value: bytes) -> dict[str, Any] | None:
    return None if key.startswith(b"_") else {"id": f"n{key.decode()}", "x": value}


def late(key: bytes, value: bytes) -> dict[str, Any]:
    return {"x": value} | ({"w": 5} if key == b"9" else {})


def nothing(key: bytes, value: bytes) -> Any:
    return value
