"""Every benchmark runs, in small, so that none can rot. Nothing here is timed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run_small(name: str, tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run a benchmark in a process of its own and return what it writes as JSON."""
    results = tmp_path / "results.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--json", str(results), *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    report: dict[str, Any] = json.loads(results.read_text())
    return report


def test_random_reads_measures_every_contender_that_is_installed(tmp_path: Path) -> None:
    options = ("--records", "12", "--passes", "1", "--repetitions", "2", "--width", "96", "--height", "72")
    report = run_small("random_reads", tmp_path, "--folder", str(tmp_path), *options)

    names = {result["name"] for result in report["results"]}
    assert {"numpy memmap", "plain files", "shardkit memmap", "shardkit lmdb"} <= names
    assert names | {each["name"] for each in report["not_measured"]} >= {"HF datasets"}
    assert all(len(runs) == 2 for runs in report["runs"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_ingest_speed_measures_both_backends_and_their_stages(tmp_path: Path) -> None:
    options = ("--records", "12", "--repetitions", "1", "--width", "96", "--height", "72")
    report = run_small("ingest_speed", tmp_path, "--folder", str(tmp_path), *options)

    names = {result["name"] for result in report["results"]}
    decoders = {"read + simplejpeg", "read + simplejpeg at 1/8", "read + Pillow"}
    assert names == decoders | {"shardkit memmap", "shardkit lmdb"}
    assert {target["least"] for target in report["targets"]} == {0.9}
    assert set(report["stages_microseconds"]) == {"memmap", "lmdb"}
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it reads private memory from there")
def test_open_large_opens_what_it_wrote(tmp_path: Path) -> None:
    report = run_small("open_large", tmp_path, "--records", "3000", "--repetitions", "1")

    assert report["settings"]["records"] == 3000
    assert len(report["runs"]) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="its switches reach workers that are forked")
def test_ingest_costs_stores_as_much_with_all_switched_off(tmp_path: Path) -> None:
    options = ("--records", "12", "--repetitions", "1", "--width", "96", "--height", "72")
    report = run_small("ingest_costs", tmp_path, "--folder", str(tmp_path), *options)

    assert set(report["backends"]) == {"memmap", "lmdb"}
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_ingest_peers_lists_the_peers_that_are_not_there(tmp_path: Path) -> None:
    options = ("--records", "12", "--repetitions", "1", "--width", "96", "--height", "72")
    report = run_small("ingest_peers", tmp_path, "--folder", str(tmp_path), *options)

    assert [result["name"] for result in report["results"]] == ["shardkit"]
    assert {"MDS", "LitData", "FFCV, raw", "WebDataset"} <= {each["name"] for each in report["not_measured"]}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it reads peak memory from there")
def test_ingest_many_takes_times_and_memory(tmp_path: Path) -> None:
    options = ("--few", "20", "--many", "200", "--most", "300", "--repetitions", "1")
    report = run_small("ingest_many", tmp_path, "--folder", str(tmp_path), *options)

    assert set(report["runs"]) == {"20", "200"}
    assert report["peak_bytes_of_parent"] > 0


def test_delivery_measures_order_sampler_first_batch_and_state(tmp_path: Path) -> None:
    options = ("--records", "600", "--rows", "5000", "--repetitions", "1")
    report = run_small("delivery", tmp_path, "--folder", str(tmp_path), *options)

    assert [len(report[name]) for name in ("order", "overhead", "first_batches", "states")] == [1, 1, 1, 1]


def test_gpu_feeds_a_step_in_every_way_and_checks_what_it_decodes(tmp_path: Path) -> None:
    options = ("--records", "8", "--batch", "4", "--workers", "1", "--repetitions", "1", "--step", "0.5")
    sizes = ("--width", "96", "--height", "72", "--folder", str(tmp_path))
    report = run_small("gpu", tmp_path, "--device", "cpu", *options, *sizes)

    feeding = report["feeding"]["0.5"]
    ways = [f"{loader}, {way}" for loader in ("ShardLoader", "DataLoader") for way in WAYS]
    decoded = "ShardLoader, decoded on the device, depth 2"
    assert [each["name"] for each in feeding["results"]] == ["model step alone", *ways, decoded]
    assert list(feeding["waits"]) == [*ways, decoded]
    assert {each["hidden"] for each in feeding["waits"].values()} == {None}
    assert [each["name"] for each in feeding["not_measured"]] == ["from pinned memory"]
    assert len(report["decoding"]["results"]) == 4
    assert report["decoding"]["not_measured"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


WAYS = ["copied in the loop", "depth 1", "depth 2", "depth 3"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_gpu_says_that_it_measured_nothing_where_there_is_none(tmp_path: Path) -> None:
    assert run_small("gpu", tmp_path, "--records", "8")["not_measured"] == "torch sees no CUDA device"


def test_checksum_costs_compares_epochs_with_and_without(tmp_path: Path) -> None:
    options = ("--records", "8", "--repetitions", "1", "--width", "96", "--height", "72", "--batch", "4")
    report = run_small("checksum_costs", tmp_path, "--folder", str(tmp_path), *options, "--size", "32")

    ways = {f"{backend}, {way}" for backend in ("memmap", "lmdb") for way in ("ShardLoader", "one by one")}
    assert set(report["comparisons"]) == ways
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="it drops files from the page cache, and looks into it")
def test_cold_reads_measures_what_is_not_in_the_page_cache(tmp_path: Path) -> None:
    options = ("--records", "20", "--kilobytes", "1", "--batch", "4", "--repetitions", "1")
    report = run_small("cold_reads", tmp_path, "--folder", str(tmp_path), *options)

    kinds = {f"{kind}, {backend}" for kind in ("bytes", "arrays") for backend in ("memmap", "lmdb")}
    assert {name: each["cached_share"] for name, each in report["comparisons"].items()} == dict.fromkeys(
        kinds, 0
    )
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="it reads memory from there")
def test_reading_memory_adds_up_the_processes_after_each_epoch(tmp_path: Path) -> None:
    options = ("--records", "6", "--arrays", "20", "--epochs", "3", "--batch", "3", "--array_batch", "10")
    report = run_small(
        "reading_memory", tmp_path, "--folder", str(tmp_path), *options, "--workers", "1", "--context", "fork"
    )

    names = {f"{kind}, {way}" for kind in ("photos", "arrays") for way in ("ShardLoader", "DataLoader")}
    assert {name: len(each) for name, each in report["epochs"].items()} == dict.fromkeys(names, 3)
    for kind in ("photos", "arrays"):  # a worker is another process
        ends = [report["epochs"][f"{kind}, {way}"][-1]["pss"] for way in ("ShardLoader", "DataLoader")]
        assert ends[1] > 1.2 * ends[0]


NAMES = [
    "checksum_costs",
    "cold_reads",
    "reading_memory",
    "compare",
    "delivery",
    "gpu",
    "random_reads",
    "ingest_speed",
    "ingest_costs",
    "ingest_peers",
    "ingest_many",
    "open_large",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_answers_the_question_it_begins_with(name: str) -> None:
    docstring = (BENCHMARKS / f"{name}.py").read_text().removeprefix('"""')
    assert docstring.split("\n", 1)[0].endswith("?")


def test_compare_measures_what_delivers_each_photo_once(tmp_path: Path) -> None:
    options = ("--workload", "photos", "--records", "12", "--batch", "4", "--repetitions", "1")
    peers = ("--peer", "bare", "--peer", "ffcv", "--folder", str(tmp_path))
    report = run_small("compare", tmp_path, *options, *peers)["workloads"]["photos"]
    assert [each["name"] for each in report["delivered"]] == ["bare", "ShardLoader", "shardkit, DataLoader"]
    assert [each["name"] for each in report["not_measured"]] == ["FFCV"]
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
