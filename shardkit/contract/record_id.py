"""What may name a record: any text that UTF-8 can hold, not blank, without NUL, of 65,535 bytes at most."""

import os

MAX_ID_BYTES = 65_535  # docs/format.md, "Ids"
_SHOWN = 200  # characters of a bad id that a report repeats


def find_id_fault(record_id: object) -> str | None:
    """Return what is wrong with an id as one plain sentence, or None if it may name a record."""
    if not isinstance(record_id, str):
        return f"the id is of type {type(record_id).__name__}; it must be text"
    if not record_id.strip():
        return "the id is blank" if record_id else "the id is empty"
    if "\0" in record_id:
        return "the id holds a NUL character"
    try:
        size = len(record_id.encode("utf-8"))
    except UnicodeEncodeError:
        return "the id is not valid UTF-8"
    if size > MAX_ID_BYTES:
        return f"the id has {size} bytes of UTF-8; at most {MAX_ID_BYTES} are allowed"
    return None


def show_id(record_id: object) -> str:
    r"""Return an id as text that UTF-8 can hold: a byte that is not UTF-8 as ``\xe9``, a NUL as ``\x00``.

    Bytes of file names arrive as surrogate escapes (PEP 383), which `os.fsencode` turns back. A long id is
    cut.
    """
    text = record_id if isinstance(record_id, str) else repr(record_id)
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError:  # a lone surrogate that is no escaped byte
        raw = text.encode("utf-8", "backslashreplace")
    shown = raw.decode("utf-8", "backslashreplace").replace("\0", "\\x00")
    return shown if len(shown) <= MAX_ID_BYTES // 4 else f"{shown[:_SHOWN]}…"
