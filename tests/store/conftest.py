"""A small data set on each backend, and a record of what becomes durable when."""

import os
from pathlib import Path

import pytest
from small_datasets import ROWS, write_dataset

from shardkit.store import BACKENDS, Store, durable


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dataset(tmp_path: Path, backend: str) -> Path:
    return write_dataset(tmp_path / "data", backend, ROWS)


@pytest.fixture
def store(dataset: Path) -> Store:
    return Store(dataset)


@pytest.fixture
def disk_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every fsync and rename from now on, in order; files and folders below `tmp_path` by their own names."""
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        found = (path for path in (tmp_path, *tmp_path.rglob("*")) if os.path.samestat(path.stat(), status))
        events.append(f"fsync {next(found).name}")
        fsync(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        events.append(f"rename to {target.name}")
        replace(source, target)

    monkeypatch.setattr(durable.os, "fsync", record_fsync)
    monkeypatch.setattr(durable.os, "replace", record_replace)
    return events
