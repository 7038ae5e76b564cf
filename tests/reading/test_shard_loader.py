"""The thread loader: order, errors in their place, memory that is used again, and how it ends."""

import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from read_datasets import png, write_records

from shardkit import (
    Contract,
    ShardDataset,
    ShardIterableDataset,
    ShardLoader,
    Store,
    collate,
    ingest,
    transforms,
)
from shardkit.errors import CorruptShardError, ShardkitError, TransformError
from shardkit.reading.allocation import RecycledMemory

COUNT = 50


@pytest.fixture(params=["memmap", "lmdb"])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Fifty records in shards of twenty: images of one colour, of many sizes; arrays; ragged arrays; text."""
    kinds = {
        "image": {"type": "image"},
        "raw": {"type": "image", "store": "raw", "size": [6, 5]},
        "vector": {"type": "array", "dtype": "int16", "shape": [2, 3]},
        "ragged": {"type": "array", "dtype": "float32", "shape": [-1], "pad_value": -1.0},
        "label": {"type": "label", "num_classes": 7},
        "weight": {"type": "scalar", "dtype": "float32"},
        "caption": {"type": "text"},
    }
    records = [
        {
            "id": f"r{row}",
            "image": png(np.full((8 + row % 3, 9, 3), row, np.uint8)),
            "raw": np.full((6, 5, 3), row, np.uint8),
            "vector": np.full((2, 3), row, np.int16),
            "ragged": np.full(row % 4, row, np.float32),
            "label": row % 7,
            "weight": row / 2,
            "caption": f"number {row}",
        }
        for row in range(COUNT)
    ]
    contract = Contract.from_dict({"fields": kinds})
    return write_records(tmp_path / "data", str(request.param), contract, records, rows_per_shard=20)


def require_equal(batch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(batch) == list(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert batch[name].dtype == value.dtype
            assert batch[name].stride() == value.stride()
            assert torch.equal(batch[name], value)
        elif isinstance(value, list) and isinstance(value[0], torch.Tensor):
            assert all(map(torch.equal, batch[name], value))
        else:
            assert list(batch[name]) == list(value)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("fields", [None, ["raw", "vector", "label"]])
def test_batches_are_those_of_one_sample_after_the_other(data: Path, threads: int, fields: Any) -> None:
    loader = ShardLoader(data, batch_size=12, threads=threads, fields=fields)
    batches = list(loader)
    assert [len(batch["id"]) for batch in batches] == [12, 12, 12, 12, 2]
    plain = list(ShardIterableDataset(data, batch_size=12, fields=fields, transform=lambda sample: sample))
    for batch, expected in zip(batches, plain, strict=True):
        require_equal(batch, expected)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_memory_is_used_again_only_when_nobody_refers_to_it(draw: st.DataObject) -> None:
    memory = RecycledMemory(3)
    held: list[tuple[Any, int]] = []
    for number in range(draw.draw(st.integers(1, 30))):
        size = draw.draw(st.integers(1, 9))
        tensor = memory.allocate((size, 2), np.dtype(np.int32))
        assert tensor.shape == (size, 2)
        tensor.fill_(number)
        kept = draw.draw(st.sampled_from(["whole", "view", "numpy", "nothing"]))
        if kept != "nothing":
            held.append(({"whole": tensor, "view": tensor[-1:], "numpy": tensor.numpy()[0]}[kept], number))
        del tensor
        if held and draw.draw(st.booleans()):
            held.pop(draw.draw(st.integers(0, len(held) - 1)))
        for each, expected in held:
            assert (np.asarray(each) == expected).all()


def test_memory_that_is_free_again_is_taken_again() -> None:
    memory = RecycledMemory(2)
    first = memory.allocate((100,), np.dtype(np.uint8))
    place = first.data_ptr()
    del first
    second = memory.allocate((40, 2), np.dtype(np.uint8))
    assert second.data_ptr() == place
    assert memory.allocate((40, 2), np.dtype(np.uint8)).data_ptr() != place


def test_batches_that_are_kept_do_not_change(data: Path) -> None:
    loader = ShardLoader(data, batch_size=4, threads=2, fields=["raw", "vector"])
    for batch in list(loader):
        for place, record_id in enumerate(batch["id"]):
            row = int(record_id[1:])
            assert (batch["raw"][place] == row).all()
            assert (batch["vector"][place] == row).all()


def test_an_error_is_raised_at_its_batch_and_those_before_it_come(data: Path) -> None:
    def fail_on_27(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["id"] in ("r27", "r28"):
            raise ZeroDivisionError(sample["id"])
        return sample

    before = threading.active_count()
    loader = ShardLoader(data, batch_size=10, threads=3, shuffle=False, transform=fail_on_27)
    batches = iter(loader)
    assert [len(next(batches)["id"]), len(next(batches)["id"])] == [10, 10]
    with pytest.raises(TransformError, match=r"\(id 'r27'.*ZeroDivisionError: r27"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    assert threading.active_count() == before
    assert loader.state_dict()["position"] == 20


def test_damage_is_raised_or_skipped_and_named(data: Path) -> None:
    file = next(data.glob("shards/00001/caption.bin"), data / "shards/00001.lmdb")
    content = bytearray(file.read_bytes())
    content[content.index(b"number 33") + 8] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptShardError, match=r"'r33'.*'caption'"):
        list(ShardLoader(data, batch_size=8, threads=2))
    loader = ShardLoader(data, batch_size=8, threads=2, on_error="skip")
    delivered = [record_id for batch in loader for record_id in batch["id"]]
    assert sorted(delivered) == sorted(f"r{row}" for row in range(COUNT) if row != 33)
    assert loader.skipped == ["r33"]
    for batch in loader:
        assert len(batch["vector"]) == len(batch["id"]) == len(batch["is_pad"]) == len(batch["caption"])
        assert [f"r{int(vector[0, 0])}" for vector in batch["vector"]] == batch["id"]


def test_leaving_the_loop_ends_the_threads(data: Path) -> None:
    before = threading.active_count()
    loader = ShardLoader(data, batch_size=4, threads=3)
    for _ in loader:
        assert threading.active_count() == before + 3
        break
    gc.collect()
    assert threading.active_count() == before
    begun = iter(loader)
    next(begun)
    del begun
    assert threading.active_count() == before


def test_torch_keeps_its_own_number_of_threads(data: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inside: list[int] = []
        loader = ShardLoader(
            data,
            batch_size=10,
            threads=2,
            transform=lambda sample: inside.append(torch.get_num_threads()) or sample,
        )
        for _ in loader:
            assert torch.get_num_threads() == 2
        assert set(inside) == {1}
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [2]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise RuntimeError('training failed')", 1, "training failed"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nfor _ in begun: pass",
            130,
            "KeyboardInterrupt",
        ),
    ],
    ids=["end", "exit", "error", "ctrl-c"],
)
def test_a_program_ends_at_once_with_an_iteration_left_open(
    tmp_path: Path, ending: str, status: int, said: str
) -> None:
    contract = Contract.from_dict({"fields": {"label": {"type": "label", "num_classes": 7}}})
    records = [{"id": f"r{row}", "label": row % 7} for row in range(COUNT)]
    data = write_records(tmp_path / "data", "memmap", contract, records)
    program = textwrap.dedent(
        """
        import time
        from shardkit import ShardLoader
        def slow(sample):
            time.sleep(0.02)
            return sample
        begun = iter(ShardLoader({path!r}, batch_size=4, threads=3, transform=slow))
        next(begun)
        {ending}
        """
    ).format(path=str(data), ending=ending)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in ({status, -2} if status == 130 else {status}), done.stderr
    assert said in done.stderr
    assert "Fatal" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_image_operations_decode_into_the_batch(data: Path) -> None:
    loader = ShardLoader(
        data, batch_size=8, threads=2, fields=["image"], transform=transforms.CenterCrop(6, ratio=1.0)
    )
    for batch in loader:
        assert batch["image"].shape == (len(batch["id"]), 3, 6, 6)
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        assert [f"r{int(image[0, 0, 0])}" for image in batch["image"]] == batch["id"]


@pytest.mark.parametrize(
    ("threads", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_number_of_threads_is_a_whole_one(data: Path, threads: Any, error: Any) -> None:
    with pytest.raises(error, match="threads"):
        ShardLoader(data, threads=threads)


def test_a_default_device_of_torch_does_not_matter(data: Path) -> None:
    torch.set_default_device("meta")
    try:
        batches = list(ShardLoader(data, batch_size=8, threads=2))
        batches += list(ShardIterableDataset(data, batch_size=8, on_error="skip"))
    finally:
        torch.set_default_device(None)
    for batch in batches:
        kinds = {value.device.type for value in batch.values() if isinstance(value, torch.Tensor)}
        assert kinds == {"cpu"}


@pytest.mark.parametrize("field", ["raw", "image"])
def test_a_batch_that_is_let_go_is_gone_also_where_training_is_the_slower(data: Path, field: str) -> None:
    crop = transforms.CenterCrop(6) if field == "image" else None
    loader = ShardLoader(data, batch_size=4, threads=2, fields=[field], transform=crop)
    held: list[Any] = []
    batches = iter(loader)
    for _ in range(8):
        batch = next(batches)
        held.append(weakref.ref(batch[field]))
        del batch
        time.sleep(0.02)  # all that is made ahead is ready by then
    gc.collect()
    assert [each() for each in held] == [None] * 8


def test_batches_made_ahead_do_not_grow_with_the_threads(tmp_path: Path) -> None:
    contract = Contract.from_dict({"fields": {"x": {"type": "text"}}})
    records = [{"id": f"r{row}", "x": "decoded, so each batch is made by itself"} for row in range(200)]
    path = write_records(tmp_path / "data", "memmap", contract, records)
    loader = ShardLoader(path, batch_size=2, threads=64)
    begun = []
    begin = loader.dataset.begin_batch
    loader.dataset.begin_batch = lambda *given: begun.append(1) or begin(*given)  # type: ignore[method-assign]
    next(iter(loader))
    assert 2 <= len(begun) <= 20


def test_batches_made_at_one_go_are_the_same_and_go_on_from_a_state(data: Path) -> None:
    loader = ShardLoader(data, batch_size=4, threads=2, fields=["raw", "label"], tail="exact")
    iterable = ShardIterableDataset(data, batch_size=4, fields=["raw", "label"], tail="exact")
    singly = torch.utils.data.DataLoader(iterable, batch_size=None, num_workers=1)
    expected = [(list(batch["id"]), batch["raw"], batch["label"]) for batch in singly]
    assert len(expected) > 4
    assert loader.dataset.batches_at_once(4) > 4
    for batches in (loader, iterable):
        for delivered, (ids, raw, label) in zip(batches, expected, strict=True):
            assert list(delivered["id"]) == ids
            assert torch.equal(delivered["raw"], raw)
            assert torch.equal(delivered["label"], label)
        begun = iter(batches)
        next(begun), next(begun)
        state = batches.state_dict()
        resumed = ShardLoader(data, batch_size=4, threads=2, fields=["label"], tail="exact")
        resumed.load_state_dict(state)
        assert [list(batch["id"]) for batch in resumed] == [ids for ids, _, _ in expected[2:]]


@pytest.mark.parametrize("way", ["iterable", "threads"])
def test_a_batch_made_with_others_at_one_go_has_memory_of_its_own(data: Path, way: str) -> None:
    opened = ShardLoader if way == "threads" else ShardIterableDataset
    for batch in opened(data, batch_size=4, fields=["raw", "label"], tail="pad"):
        for name in ("raw", "label", "is_pad"):
            assert batch[name].untyped_storage().nbytes() == batch[name].nbytes


@pytest.mark.parametrize("way", ["iterable", "threads"])
def test_of_batches_made_at_one_go_the_damaged_one_is_told(data: Path, way: str) -> None:
    opened = ShardLoader if way == "threads" else ShardIterableDataset
    batches: Any = opened(data, batch_size=8, fields=["raw"], shuffle=False, tail="exact")
    for lost in (data / "shards").glob("00001*/*" if (data / "shards" / "00001").is_dir() else "00001*"):
        lost.unlink()  # rows 20 to 39
    begun = iter(batches)
    delivered = [list(next(begun)["id"]) for _ in range(2)]
    assert delivered == [[f"r{row}" for row in range(begin, begin + 8)] for begin in (0, 8)]
    with pytest.raises(ShardkitError, match="00001"):
        next(begun)


@pytest.mark.parametrize("way", ["getitems", "iterable", "threads"])
def test_shards_of_both_backends_are_read_in_one_batch(tmp_path: Path, way: str) -> None:
    contract = Contract.from_dict(
        {
            "fields": {
                "x": {"type": "array", "dtype": "int16", "shape": [3]},
                "label": {"type": "label", "num_classes": 9},
            }
        }
    )
    records = [{"id": f"r{row}", "x": np.full(3, row, np.int16), "label": row % 9} for row in range(30)]
    out = tmp_path / "out"
    ingest(records[:20], out, contract, workers=0, backend="memmap")
    ingest(records[20:], out, workers=0, append=True, backend="lmdb")
    if way == "getitems":
        batches = [collate(ShardDataset(out).__getitems__([1, 25, 3, 29]))]
    else:
        batches = list(
            {"iterable": ShardIterableDataset, "threads": ShardLoader}[way](out, batch_size=7, tail="exact")
        )
        assert sum(len(batch["id"]) for batch in batches) == 30
    for batch in batches:
        assert [f"r{int(x[2])}" for x in batch["x"]] == list(batch["id"])


def test_an_array_that_cannot_be_read_is_skipped_like_any_other_damage(tmp_path: Path) -> None:
    contract = Contract.from_dict({"fields": {"x": {"type": "array", "dtype": "int16", "shape": [3]}}})
    records = [{"id": f"r{row}", "x": np.full(3, row, np.int16)} for row in range(12)]
    path = write_records(tmp_path / "data", "lmdb", contract, records, rows_per_shard=6)
    real = Store.payloads

    def payloads(store: Store, row: int, columns: Any) -> Any:
        if row == 8:
            raise CorruptShardError("row 8 is damaged")
        return real(store, row, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "payloads", payloads)
        for loader in (
            ShardLoader(path, batch_size=4, threads=2, on_error="skip"),
            ShardIterableDataset(path, batch_size=4, on_error="skip"),
        ):
            delivered = [record_id for batch in loader for record_id in batch["id"]]
            assert sorted(delivered) == sorted(f"r{row}" for row in range(12) if row != 8)
            assert loader.skipped == ["r8"]
        with pytest.raises(CorruptShardError, match="row 8"):
            list(ShardLoader(path, batch_size=4, threads=2))
