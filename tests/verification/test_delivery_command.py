"""``shardkit verify --delivery`` prints a summary, a table or one JSON object, names what failed, and exits by it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardkit import Contract, LabelField, ShardLoader, ingest
from shardkit.errors import CorruptShardError

Command = Callable[..., tuple[int, str, str]]

SMALL = ("--delivery", "--ranks", "2", "--workers", "0", "--epochs", "1", "--batch-size", "8")


class DropsTheLastBatch(ShardLoader):
    def __iter__(self) -> Iterator[Any]:
        return iter(list(super().__iter__())[:-1])


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkit.verification.trial.ShardLoader", DropsTheLastBatch)


def test_a_proof_that_succeeds_is_a_few_lines(path: Path, command: Command) -> None:
    status, out, _ = command("verify", path, *SMALL)
    lines = out.splitlines()
    assert status == 0
    assert lines[:3] == [
        "  iterable   8 settings: all delivered",
        "  sampler    8 settings: all delivered",
        "  threads    8 settings: all delivered",
    ]
    assert [line[:13] for line in lines[3:-1]] == ["  mixing     "] * 2
    assert lines[-1] == f"{path}: 101 records in 24 settings: all delivered"


def test_a_verbose_table_has_a_line_for_each_setting_and_the_verdict_last(
    path: Path, command: Command
) -> None:
    status, out, _ = command("verify", path, *SMALL, "--verbose")
    lines = out.splitlines()
    assert status == 0
    assert lines[0].startswith("loader   ranks workers batch  tail epoch      course expected delivered ")
    assert lines[0].endswith(" missing duplicate padded dropped labels order verdict")
    assert " ".join(lines[1].split()) == "iterable 2 0 8 pad 0 whole 101 101 0 0 1 0 equal equal ok"
    assert len({len(line) for line in lines[:25]}) == 1
    assert [line.split()[-1] for line in lines[1:25]] == ["ok"] * 24
    assert lines[-1] == f"{path}: 101 records in 24 settings: all delivered"
    assert lines[-3].startswith("  mixing     label, shuffle global, batch 8: ")


def test_a_failing_proof_exits_1_and_names_ids_on_one_line_for_each_setting(
    path: Path, command: Command, broken: None
) -> None:
    status, out, _ = command("verify", path, *SMALL)
    lines = out.splitlines()
    assert status == 1
    assert lines[1:3] == ["  sampler    8 settings: all delivered", "  threads    8 settings: 8 FAILED"]
    named = [line for line in lines if line.startswith("  FAILED     ")]
    assert len(named) == 8
    assert "threads, 2 ranks, 0 threads, batch 8, pad, epoch 0: 5 missing (r" in named[0]
    assert lines[-1] == f"{path}: 101 records in 24 settings: 8 FAILED"


def test_many_failures_are_cut(path: Path, command: Command, broken: None) -> None:
    status, out, _ = command(
        "verify", path, "--delivery", "--ranks", "1,2", "--workers", "0", "--batch-size", "8,9"
    )
    named = [line for line in out.splitlines() if line.startswith("  FAILED     ")]
    assert status == 1
    assert len(named) == 21
    assert named[-1] == "  FAILED     and 21 more settings (--json lists all)"


def test_json_is_one_object_that_says_the_same(path: Path, command: Command) -> None:
    status, out, _ = command("verify", path, *SMALL, "--json")
    proof = json.loads(out)
    assert status == 0
    assert list(proof) == ["ok", "records", "rows", "fields", "failed", "settings", "mixing"]
    assert (proof["ok"], proof["records"], proof["rows"], proof["failed"]) == (True, 101, 101, 0)
    assert proof["fields"] == ["label", "age"]
    first = proof["settings"][0]
    assert first["name"] == "iterable, 2 ranks, 0 workers, batch 8, pad, epoch 0"
    assert first["setting"] == {
        "loader": "iterable",
        "ranks": 2,
        "workers": 0,
        "tail": "pad",
        "batch_size": 8,
        "epoch": 0,
        "start_method": "fork",
        "shuffle": "global",
        "course": "whole",
    }
    assert {
        name: first[name] for name in ("ok", "expected", "delivered", "missing", "duplicate", "padded")
    } == {
        "ok": True,
        "expected": 101,
        "delivered": 101,
        "missing": 0,
        "duplicate": 0,
        "padded": 1,
    }
    assert [first[f"{name}_equal"] for name in ("labels", "order", "steps")] == [True, True, True]
    assert [each["shuffle"] for each in proof["mixing"]] == ["global", "block"]
    assert proof["mixing"][0]["ratio"] == pytest.approx(1, abs=0.1)


def test_json_of_a_failing_proof_is_one_object_too(path: Path, command: Command, broken: None) -> None:
    status, out, _ = command("verify", path, *SMALL, "--json")
    proof = json.loads(out)
    bad = [each for each in proof["settings"] if not each["ok"]]
    assert (status, proof["ok"], proof["failed"], len(bad)) == (1, False, 8, 8)
    assert (bad[0]["missing"], len(bad[0]["missing_ids"]), bad[0]["steps_equal"]) == (5, 5, False)
    assert bad[0]["describe"].startswith("5 missing (r")


class Fails(ShardLoader):
    def __iter__(self) -> Iterator[Any]:
        raise CorruptShardError("row 7 (id 'r7') is damaged")


def test_a_loader_that_fails_is_one_line_on_stderr(
    path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardkit.verification.trial.ShardLoader", Fails)
    status, out, err = command("verify", path, *SMALL, "--json")
    assert (status, out) == (1, "")
    assert err == (
        "shardkit: threads, 2 ranks, 0 threads, batch 8, pad, epoch 0: row 7 (id 'r7') is damaged\n"
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--epochs", "x"), "--epochs"),
        (("--epochs", "0"), "--epochs"),
        (("--ranks", "a,b"), "1,2,3"),
        (("--ranks", "0"), "ranks must be 1 or more"),
        (("--workers", "-1"), "workers must be 0 or more"),
        (("--batch-size", "0"), "batch_sizes must be 1 or more"),
        (("--start-methods", "thread"), "fork, spawn, forkserver"),
        (("--source", "raw"), "two proofs"),
    ],
)
def test_wrong_use_exits_2_and_names_the_option(
    path: Path, command: Command, arguments: tuple[str, ...], named: str
) -> None:
    status, out, err = command("verify", path, "--delivery", *arguments)
    assert (status, out) == (2, "")
    assert named in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--ranks", "banana"), "--ranks"),
        (("--ranks", "1,2,3"), "--ranks"),
        (("--epochs", "2"), "--epochs"),
        (("--batch-size", "8"), "--batch-size"),
        (("--start-methods", "fork"), "--start-methods"),
        (("--sample", "5"), "--sample"),
        (("--verbose",), "--verbose"),
    ],
)
def test_options_of_the_proof_of_delivery_are_refused_without_it(
    path: Path, command: Command, arguments: tuple[str, ...], named: str
) -> None:
    status, out, err = command("verify", path, *arguments)
    assert (status, out) == (2, "")
    assert f"{named} is of the proof of delivery: add --delivery" in " ".join(err.split())


@pytest.mark.parametrize("workers", ["1,9", "-1", "two", ""])
def test_what_is_stored_is_verified_with_one_number_of_workers(
    path: Path, command: Command, workers: str
) -> None:
    status, out, err = command("verify", path, "--workers", workers)
    assert (status, out) == (2, "")
    assert "--workers takes" in " ".join(err.split())
    status, out, _ = command("verify", path, "--workers", "0")
    assert (status, out.splitlines()[-1]) == (0, f"{path}: 101 records: all well")


def test_classes_that_stick_together_in_block_order_bring_a_hint(tmp_path: Path, command: Command) -> None:
    contract = Contract({"kind": LabelField(num_classes=4)})
    records = ({"id": f"r{row}", "kind": row // 2500} for row in range(10_000))
    ingest(records, tmp_path / "out", contract, workers=0)
    few = ("--delivery", "--ranks", "1", "--workers", "0", "--epochs", "1", "--sample", "10")
    status, out, _ = command("verify", tmp_path / "out", *few)
    [hint] = [line for line in out.splitlines() if line.startswith("  hint ")]
    assert status == 0
    assert f"shardkit compact {tmp_path / 'out'} --shuffle-seed 0" in hint
    assert "10 of 10,000 records in 24 settings: all delivered" in out
    assert command("compact", tmp_path / "out", "--shuffle-seed", "0", "--workers", "0")[0] == 0
    assert "hint" not in command("verify", tmp_path / "out", *few)[1]
