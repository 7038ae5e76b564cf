"""Tar files for tests, made by Python's `tarfile` or block by block, and what a source makes of them."""

import gzip
import io
import pickle
import tarfile
from collections.abc import Iterable
from pathlib import Path

from shardkit.contract import CheckedRecord, Contract, Rejection
from shardkit.sources import RawRecord, Source
from shardkit.sources.tar.source import TarSource

Members = Iterable[tuple[str, bytes]]


def packed(members: Members, tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    """Return the bytes of a tar."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tar_format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return one header block that says whatever it is told to."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def block(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def member(name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    return header(name, len(data), kind) + block(data)


END = bytes(1024)


def write(folder: Path, data: bytes, name: str = "t.tar") -> TarSource:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return TarSource(str(path))


def write_both(folder: Path, data: bytes) -> list[TarSource]:
    """Return the same tar as a source twice: plain, and as gzip data."""
    return [write(folder, data), write(folder, gzip.compress(data), "t.tar.gz")]


def judged(source: Source, contract: Contract, size: int = 2) -> list[CheckedRecord | Rejection]:
    """Return the verdict on every record, read part by part as workers do."""
    source.require(contract)
    verdicts: list[CheckedRecord | Rejection] = []
    for part in source.parts(size):
        for raw in pickle.loads(pickle.dumps(source)).read(pickle.loads(pickle.dumps(part)), contract):
            is_raw = isinstance(raw, RawRecord)
            verdicts.append(contract.judge(raw.id, raw.source, raw.values) if is_raw else raw)
    assert len(verdicts) == source.count()
    return verdicts


def outcomes(source: Source, contract: Contract) -> list[tuple[str, str]]:
    """Return id and first stored value, or reason, of every record."""
    return [(verdict.id, _outcome(verdict)) for verdict in judged(source, contract)]


def _outcome(verdict: CheckedRecord | Rejection) -> str:
    return (
        verdict.reason.value if isinstance(verdict, Rejection) else bytes(verdict.values[0].payload).decode()
    )
