"""Fixtures of the fault harness. Its folders are in memory where there is one: thousands of runs are made."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_scenes import make, make_raw
from faulty_runs import Runner, Scene

_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """Skips where processes cannot be followed."""
    runner = Runner()
    if runner.hindrance is not None:
        runner.close()
        pytest.skip(f"the fault harness cannot run: {runner.hindrance}")
    yield runner
    runner.close()


@pytest.fixture(autouse=True)
def count_faults(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Iterator[None]:
    """Note how many faults a test tried, for the last lines of the test run."""
    if "runner" not in request.fixturenames:
        yield
        return
    runner: Runner = request.getfixturevalue("runner")
    before = runner.faults
    yield
    record_property("faults", runner.faults - before)


@pytest.fixture(scope="session")
def workshop() -> Iterator[Path]:
    folder = Path(
        tempfile.mkdtemp(prefix="shardkit-faults-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
    )
    yield folder.resolve()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def raw(workshop: Path) -> dict[str, Path]:
    return make_raw(workshop / "raw")


@pytest.fixture(scope="session")
def scenes(runner: Runner, workshop: Path, raw: dict[str, Path]) -> Callable[[str], Scene]:
    """Return a function that returns a scene by its name; each is made once."""
    made: dict[str, Scene] = {}

    def find(name: str) -> Scene:
        if name not in made:
            made[name] = make(runner, workshop / name.replace(" ", "-"), raw, name)
        return made[name]

    return find
