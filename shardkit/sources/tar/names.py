"""What the names of a tar's members say: which record a member belongs to, and which field it may serve.

The rules are WebDataset's (https://github.com/webdataset/webdataset, "The WebDataset Format"): members whose paths are
equal up to the first dot of the base name are one record; what stands behind that dot, in lower case, is the
extension.
"""

import re
from collections.abc import Mapping, Sequence

from shardkit.contract import (
    ArrayField,
    BytesField,
    Contract,
    Field,
    ImageField,
    JsonField,
    LabelField,
    TextField,
)
from shardkit.errors import SourceError
from shardkit.sources.columns import IMAGE_COLUMNS
from shardkit.sources.files import find_junk

_META = re.compile(r"__[^/]*__($|/)")
_BY_KIND: tuple[tuple[type[Field], tuple[str, ...]], ...] = (
    (ImageField, IMAGE_COLUMNS),
    (LabelField, ("cls",)),
    (TextField, ("txt",)),
    (JsonField, ("json",)),
    (ArrayField, ("npy",)),
)
"""Kind of field -> the extensions that serve the one field of it that has no extension of its own name."""
_SHOWN = 30  # extensions that a message lists


def split_name(name: str) -> tuple[str, str] | None:
    """Return the key and the extension of a member's path: ``"a/b.left.jpg"`` gives ``("a/b", "left.jpg")``.

    None if the base name has no dot, or none behind its first character. What `from_start` drops is no part of the key.
    """
    folder, slash, base = from_start(name).rpartition("/")
    stem, dot, extension = base.partition(".")
    return (folder + slash + stem, extension.lower()) if dot and stem and extension else None


def from_start(name: str) -> str:
    """Return a member's path without the ``./`` that ``tar -C folder -cf out.tar .`` puts before each."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def find_ignored(name: str) -> str | None:
    """Return what kind of leftover a member's path stands for, or None if it may be data."""
    if _META.match(from_start(name)):
        return "WebDataset metadata (__NAME__)"
    *folders, base = name.encode("utf-8", "surrogateescape").split(b"/")
    inside = (find_junk(folder, True) for folder in folders if folder not in (b".", b".."))
    junk = next((kind for kind in inside if kind is not None), None) or find_junk(base, False)
    if junk is not None:
        return junk
    return None if split_name(name) is not None else "member without an extension"


def field_name(extension: str) -> str:
    """Return the name that a field of this extension may have: ``left_jpg`` for ``left.jpg``."""
    return re.sub(r"[^A-Za-z0-9_]", "_", extension)


def choose_extensions(
    contract: Contract, extensions: Sequence[str], together: Mapping[str, frozenset[str]], name: str
) -> dict[str, tuple[str, ...]]:
    """Return, for each field that has any, the extensions that may serve it; a record holds one of them.

    A field takes the extension of its very name, with dots as ``_`` (``left_jpg`` for ``left.jpg``), or else the one
    whose part before the last dot is its name (``left``). Then, kind by kind, the one field that is left takes what is
    left of the extensions of its kind: an image all suffixes of images (so that ``jpg`` and ``png`` may mix, though
    not within a record), a label ``cls``, a text ``txt``, json ``json``, an array ``npy``. Last, the one bytes field
    takes the one extension that is left.

    Args:
        contract: The fields.
        extensions: The extensions there are.
        together: Extension -> those that stand beside it in some record.
        name: What messages call the tar.

    Raises:
        SourceError: A field without a default has none, or could take more than one; names those there are.
    """
    chosen = _choose_by_name(contract, extensions)
    for kind, suffixes in _BY_KIND:
        left = [spec for spec, field in contract.fields.items() if type(field) is kind and spec not in chosen]
        taken = {extension for group in chosen.values() for extension in group}
        fitting = tuple(suffix for suffix in suffixes if suffix not in taken)
        if len(left) == 1 and not set(fitting).isdisjoint(extensions):
            _require_apart(left[0], fitting, together, name)
            chosen[left[0]] = fitting  # also those that only later tars may have
    _choose_bytes(contract, extensions, chosen)
    for spec, field in contract.fields.items():
        if spec not in chosen and getattr(field, "default", None) is None:
            raise SourceError(
                f"{name}: no member extension serves field {spec!r}; name the field after one, with '_' for dots; "
                f"found {_listed(extensions)}"
            )
    return {spec: chosen[spec] for spec in contract.fields if spec in chosen}


def _choose_by_name(contract: Contract, extensions: Sequence[str]) -> dict[str, tuple[str, ...]]:
    chosen: dict[str, tuple[str, ...]] = {}
    stems = [extension.rpartition(".")[0] for extension in extensions]
    for spec in contract.fields:
        same = [extension for extension in extensions if field_name(extension) == spec]
        same = same or [
            extension for extension, stem in zip(extensions, stems, strict=True) if field_name(stem) == spec
        ]
        if len(same) == 1:
            chosen[spec] = (same[0],)
    return chosen


def _choose_bytes(contract: Contract, extensions: Sequence[str], chosen: dict[str, tuple[str, ...]]) -> None:
    taken = {extension for group in chosen.values() for extension in group}
    free = [extension for extension in extensions if extension not in taken]
    left = [
        spec
        for spec, field in contract.fields.items()
        if isinstance(field, BytesField) and spec not in chosen
    ]
    if len(left) == 1 and len(free) == 1:
        chosen[left[0]] = (free[0],)


def _require_apart(
    spec: str, fitting: Sequence[str], together: Mapping[str, frozenset[str]], name: str
) -> None:
    for extension in fitting:
        beside = next((other for other in fitting if other in together.get(extension, ())), None)
        if beside is not None:
            raise SourceError(
                f"{name}: both {extension!r} and {beside!r} could serve field {spec!r}; name the field after the one "
                f"that is meant: {field_name(extension)!r} or {field_name(beside)!r}"
            )


def _listed(extensions: Sequence[str]) -> str:
    more = f", … ({len(extensions)} in all)" if len(extensions) > _SHOWN else ""
    return (", ".join(repr(extension) for extension in extensions[:_SHOWN]) or "none") + more
