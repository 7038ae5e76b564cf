"""The limit of open files grows with all that is open, and never past what the system allows."""

import resource

import pytest

from shardkit.store import open_files


class Owner:
    """Something that opens files."""


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of a process in which nothing is reserved."""
    values = [1024, 20_000]

    def set_limits(_: int, new: tuple[int, int]) -> None:
        values[:] = new

    monkeypatch.setattr(open_files, "_reserved", {})
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(values))
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    return values


def test_each_owner_gets_its_files_beside_those_of_the_others(limits: list[int]) -> None:
    owners = [Owner() for _ in range(3)]
    for owner in owners:
        open_files.reserve_open_files(owner, 1500)
    assert limits == [3 * 1500 + 1024, 20_000]


def test_what_an_owner_reserved_ends_with_it(limits: list[int]) -> None:
    for _ in range(100):
        open_files.reserve_open_files(Owner(), 1500)
    assert limits == [1500 + 1024, 20_000]


def test_the_hard_limit_is_never_passed_and_the_soft_one_never_lowered(limits: list[int]) -> None:
    owner = Owner()
    open_files.reserve_open_files(owner, 50_000)
    assert limits == [20_000, 20_000]
    other = Owner()
    open_files.reserve_open_files(other, 1)
    assert limits == [20_000, 20_000]
    assert "limit 20000, at most 20000" in open_files.describe_limit()
