"""Small data sets to prove the delivery of, and the command line in this process."""

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardkit import Contract, LabelField, ScalarField, ShardDataset, ingest
from shardkit.cli import main


def make(out: Path, count: int, backend: str = "memmap") -> Path:
    """Ingest r0, r1, ... in shards of 40; the class is the row modulo 5, the age half the row, that of r3 is NaN."""
    contract = Contract({"label": LabelField(num_classes=5), "age": ScalarField("float32", finite=False)})
    records = (
        {"id": f"r{row}", "label": row % 5, "age": float("nan") if row == 3 else row / 2}
        for row in range(count)
    )
    ingest(records, out, contract, workers=0, records_per_shard=40, backend=backend)
    return out


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """101 records."""
    return make(tmp_path_factory.mktemp("delivery") / "out", 101)


@pytest.fixture(scope="session")
def lmdb_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in the other backend."""
    return make(tmp_path_factory.mktemp("delivery") / "out", 101, "lmdb")


@pytest.fixture
def make_set(tmp_path: Path) -> Callable[[int], Path]:
    """Make a data set of some number of records."""
    return lambda count: make(tmp_path / f"{count}", count)


@pytest.fixture
def data(path: Path) -> ShardDataset:
    return ShardDataset(path)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run the command line in this process: returns its status, and what it printed on stdout and stderr."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["shardkit", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    yield run
    for each, handler in handlers.items():
        signal.signal(each, handler)
