"""The stage at fault is named with the record, whatever becomes of the process; where none is at fault, the limit."""

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import get_worker_info

from shardkit import (
    ArrayField,
    Contract,
    Diagnosis,
    LabelField,
    ShardDataset,
    Store,
    TextField,
    TokensField,
    doctor,
    ingest,
)
from shardkit.errors import DatasetNotFoundError, TransformError
from shardkit.measurement import doctor_settings
from shardkit.store import commit, make_manifest, write_index
from shardkit.transforms import CenterCrop, Compose, Encoded

Sample = dict[str, Any]
STAGES = ["read", "decode", "transform", "collate", "transfer"]
BACKENDS = pytest.mark.parametrize("backend", ["memmap", "lmdb"])


@pytest.fixture
def out(raw: Path, tmp_path: Path) -> Path:
    """Twelve photos of 40x30 pixels in two classes, five to a shard: ``cat/01.jpg`` to ``dog/10.jpg``."""
    ingest(raw, tmp_path / "out", workers=0, records_per_shard=5)
    return tmp_path / "out"


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def examine(out: Path, transform: Any = None, **options: Any) -> Diagnosis:
    """Take the records through the stages, and measure no settings."""
    return doctor(out, transform, **{"settings": False, "timeout": 30.0} | options)


def at(record_id: str, act: Callable[[Sample], Any]) -> Callable[[Sample], Any]:
    """Return a transform that does something to one record."""

    def transform(sample: Sample) -> Any:
        return act(sample) if sample["id"] == record_id else sample

    return transform


def told(diagnosis: Diagnosis) -> list[tuple[str, str, list[str]]]:
    return [
        (trouble.kind, trouble.step.stage, [record.id for record in trouble.step.records])
        for trouble in diagnosis.troubles
    ]


@BACKENDS
def test_records_go_through_every_stage_and_each_is_named_before(
    raw: Path, tmp_path: Path, backend: str
) -> None:
    ingest(raw, tmp_path / "out", workers=0, backend=backend, records_per_shard=5)
    lines: list[str] = []
    diagnosis = examine(tmp_path / "out", transform=dict, log=lines.append)
    assert diagnosis.ok
    assert (diagnosis.records, diagnosis.samples) == (12, 12)
    assert [each.stage for each in diagnosis.stages] == STAGES
    for each in diagnosis.stages[:4]:
        assert each.seconds is not None
        assert each.seconds > 0
    assert sum(each.share or 0 for each in diagnosis.stages) == pytest.approx(1)
    assert diagnosis.limit in STAGES
    assert diagnosis.advice
    suffix = "" if backend == "memmap" else ".lmdb"
    assert lines[0].startswith(f"'cat/01.jpg' (shards/00000{suffix}, row 0): first")
    assert lines[11].startswith(f"'dog/10.jpg' (shards/00002{suffix}, row 1): last")
    assert json.loads(json.dumps(diagnosis.to_dict()))["samples"] == 12


def test_the_first_the_last_the_extremes_and_a_record_of_each_class_are_taken(tmp_path: Path) -> None:
    contract = Contract({"text": TextField(), "label": LabelField(classes=("common", "rare"))})
    records = (
        {"id": f"r{n}", "text": "x" * {40: 99, 60: 5}.get(n, 50), "label": "rare" if n == 70 else "common"}
        for n in range(100)
    )
    ingest(records, tmp_path / "out", contract, workers=0)
    lines: list[str] = []
    diagnosis = examine(tmp_path / "out", samples=12, log=lines.append)
    assert diagnosis.samples == 12
    reasons = dict(line.split(" (shards/00000, row ")[0::1] for line in lines)
    assert "first" in reasons["'r0'"]
    assert "last" in reasons["'r99'"]
    assert "among the largest, 107 bytes" in reasons["'r40'"]
    assert "among the smallest, 13 bytes" in reasons["'r60'"]
    assert "label rare" in reasons["'r70'"]
    assert sum("random" in reason for reason in reasons.values()) >= 5


@BACKENDS
def test_a_flipped_byte_is_found_where_the_record_is_read(tmp_path: Path, backend: str) -> None:
    contract = Contract({"text": TextField(), "x": ArrayField("uint8", (9,))})
    records = [{"id": f"r{n}", "text": f"text {n}", "x": np.full(9, 65 + n, np.uint8)} for n in range(5)]
    ingest(records, tmp_path / "out", contract, workers=0, backend=backend)
    for file, found in (("text", b"text 3"), ("x", b"DDDDDDDDD")):
        with_it = [path for path in (tmp_path / "out" / "shards").rglob("*") if path.is_file()]
        (path,) = [each for each in with_it if found in each.read_bytes()]
        content = path.read_bytes()
        path.write_bytes(content.replace(found, found[:-1] + b"!"))
        diagnosis = examine(tmp_path / "out")
        assert told(diagnosis) == [("failed", "read", ["r3"])]
        (trouble,) = diagnosis.troubles
        assert (trouble.step.records[0].row, trouble.step.records[0].shard_row) == (3, 3)
        assert trouble.sentence.startswith("CorruptShardError: ")
        assert f"field {file!r}: has checksum" in trouble.sentence
        assert trouble.frames == ()
        assert (diagnosis.samples, diagnosis.limit, diagnosis.settings) == (5, None, ())
        path.write_bytes(content)


def divide(sample: Sample) -> Sample:
    return sample | {"label": sample["label"] / 0}


def test_a_transform_that_raises_is_named_with_the_record_and_its_own_line(out: Path) -> None:
    diagnosis = examine(out, at("dog/04.jpg", divide), settings=True)
    assert told(diagnosis) == [("failed", "transform", ["dog/04.jpg"])]
    (trouble,) = diagnosis.troubles
    assert "shards/00001: row 3 (id 'dog/04.jpg'" in trouble.sentence
    assert trouble.sentence.endswith("the transform raised ZeroDivisionError: division by zero")
    assert trouble.frames[0].startswith(__file__)
    assert trouble.frames[0].endswith("in divide")
    assert diagnosis.settings == ()


def test_samples_that_make_no_batch_are_named_together(out: Path) -> None:
    diagnosis = examine(out, at("cat/03.jpg", lambda sample: sample | {"more": 1}))
    ((kind, stage, ids),) = told(diagnosis)
    assert (kind, stage, len(ids)) == ("failed", "collate", 8)
    assert "'cat/01.jpg' and 'cat/03.jpg'" in diagnosis.troubles[0].sentence


def sleep(sample: Sample) -> Sample:
    time.sleep(60)
    return sample


def sleep_holding_the_lock(sample: Sample) -> Sample:
    ctypes.PyDLL(None).sleep(60)
    return sample


@pytest.mark.parametrize("act", [sleep, sleep_holding_the_lock])
def test_a_stage_that_hangs_is_ended_and_reported_with_the_line(
    out: Path, act: Callable[[Sample], Any]
) -> None:
    diagnosis = examine(out, at("dog/04.jpg", act), timeout=2.0)
    assert told(diagnosis) == [("hung", "transform", ["dog/04.jpg"])]
    (trouble,) = diagnosis.troubles
    assert trouble.sentence == "nothing came of it for 2 s; it was ended"
    assert any(frame.startswith(__file__) and frame.endswith(act.__name__) for frame in trouble.frames)
    assert (diagnosis.ok, diagnosis.records, diagnosis.samples) == (False, 12, 9)


def kill(sample: Sample) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash(sample: Sample) -> None:
    ctypes.string_at(0)


def leave(sample: Sample) -> None:
    sys.exit(3)


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (kill, "the process was killed by SIGKILL; by the system for want of memory, or by hand"),
        (crash, "the process was killed by SIGSEGV"),
        (leave, "the process ended itself, with exit status 3"),
    ],
)
def test_a_process_that_dies_is_reported_with_the_record_it_was_at(
    out: Path, act: Callable[[Sample], None], sentence: str
) -> None:
    diagnosis = examine(out, at("dog/04.jpg", act))
    assert told(diagnosis) == [("died", "transform", ["dog/04.jpg"])]
    assert diagnosis.troubles[0].sentence == sentence
    if act is crash:
        assert any(frame.endswith("in crash") for frame in diagnosis.troubles[0].frames)


def test_a_transform_may_leave_samples_out(out: Path) -> None:
    diagnosis = examine(out, at("dog/04.jpg", lambda sample: None))
    assert diagnosis.ok
    assert diagnosis.remarks == (
        "the transform left 1 of the samples out: training needs may_filter=True for it",
    )


def as_float(sample: Sample) -> Sample:
    sample["image"] = sample["image"].float()
    return sample


def test_what_training_needs_leave_for_is_remarked_upon(out: Path) -> None:
    diagnosis = examine(out, as_float)
    assert diagnosis.remarks == (
        "the transform changed 'image' from uint8[3,30,40] to float32[3,30,40]: training needs may_reshape=True "
        "for it",
    )
    assert repr(diagnosis) == f"<Diagnosis {out}: 12 of 12 records taken: all went well>"
    with pytest.raises(TransformError, match="may_reshape=True"):
        ShardDataset(out, as_float)[0]


def tell(sample: Sample) -> Sample:
    sys.stdout.write("from the transform\n")
    sys.stdout.flush()
    os.write(1, b"from C code\n")
    return sample


def test_what_a_transform_prints_is_no_result(out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert examine(out, at("dog/04.jpg", tell)).ok
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "from the transform" in printed.err
    assert "from C code" in printed.err


def test_image_operations_are_part_of_decoding(out: Path) -> None:
    for transform in ("center:20", CenterCrop(20), Compose([CenterCrop(20)])):
        diagnosis = examine(out, transform)
        assert diagnosis.ok
        notes = {each.stage: each.note for each in diagnosis.stages}
        assert notes["transform"] == "image operations are part of decoding"
        assert notes["collate"] == "loaders decode straight into the batch"


def test_images_left_encoded_go_through_with_no_remark_on_their_sizes(raw: Path, out: Path) -> None:
    Image.new("RGB", (60, 50)).save(raw / "cat" / "99.jpg")
    ingest(raw, out, workers=0, overwrite=True)
    diagnosis = examine(out, Encoded())
    assert diagnosis.ok
    assert diagnosis.samples == 13
    assert diagnosis.remarks == ()


def test_images_of_several_sizes_are_remarked_upon_until_a_transform_makes_them_alike(
    raw: Path, tmp_path: Path, photo: Image.Image
) -> None:
    photo.crop((0, 0, 50, 60)).save(raw / "cat" / "large.jpg")
    ingest(raw, tmp_path / "out", workers=0)
    (remark,) = examine(tmp_path / "out").remarks
    assert remark.startswith("image: its tensors differ in shape")
    assert examine(tmp_path / "out", "center:20").remarks == ()


@BACKENDS
def test_tokens_are_padded_and_arrays_gathered(tmp_path: Path, backend: str) -> None:
    contract = Contract({"tokens": TokensField(), "label": LabelField(num_classes=3)})
    records = [{"id": f"r{n}", "tokens": list(range(n)), "label": n % 3} for n in range(9)]
    ingest(records, tmp_path / "tokens", contract, workers=0, backend=backend)
    diagnosis = examine(tmp_path / "tokens", dict)
    assert (diagnosis.ok, diagnosis.remarks) == (True, ())
    contract = Contract({"x": ArrayField("float32", (2, 3))})
    arrays = [{"id": f"r{n}", "x": np.zeros((2, 3), np.float32)} for n in range(9)]
    ingest(arrays, tmp_path / "arrays", contract, workers=0, backend=backend)
    diagnosis = examine(tmp_path / "arrays")
    assert diagnosis.ok
    if backend == "memmap":
        assert diagnosis.limit == "read"
        assert "whole batches" in diagnosis.advice[0]


@BACKENDS
def test_an_empty_data_set_is_healthy(tmp_path: Path, backend: str) -> None:
    contract = Contract({"text": TextField()})
    index = write_index(tmp_path, 1, contract, [], []).entry
    commit(tmp_path, make_manifest(1, contract, [], index, {"name": "test"}))
    diagnosis = doctor(tmp_path)
    assert (diagnosis.ok, diagnosis.records, diagnosis.samples) == (True, 0, 0)
    assert (diagnosis.limit, diagnosis.recommended) == (None, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"samples": 0}, "samples must be 1 or more, not 0"),
        ({"timeout": 0.0}, "timeout must be a number of seconds above 0, not 0.0"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds above 0, not nan"),
        ({"transform": "rotate"}, 'transform must be "none", "center:SIZE", "random:SIZE" or "module:name"'),
        ({"transform": "no.such:thing"}, '"no.such:thing" cannot be imported: ModuleNotFoundError: No mod'),
        ({"transform": "os:nothing"}, "cannot be imported: AttributeError: module 'os' has no attribute"),
        ({"transform": "os:sep"}, '"os:sep" is of type str, which cannot be called'),
        ({"transform": CenterCrop(8, field="label")}, "CenterCrop: 'label' is no image field"),
    ],
)
def test_wrong_use_is_refused_in_a_line(out: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r"\A[^\n]*\Z") as refusal:
        examine(out, **options)
    assert said in str(refusal.value)


def test_what_is_no_data_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="does not exist"):
        examine(tmp_path / "nothing")


def test_a_transform_by_name_is_imported_from_the_current_folder(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_mine.py").write_text("class Mine:\n    @staticmethod\n    def fail(sample): 1 / 0\n")
    assert len(examine(out, "of_mine:Mine.fail").troubles) == 12
    (tmp_path / "of_mine_too.py").write_text("import time\ntime.sleep(60)\n")
    (trouble,) = examine(out, "of_mine_too:any", timeout=2.0).troubles
    assert (trouble.kind, trouble.step.describe()) == ("hung", "import, of_mine_too:any")
    assert trouble.frames[0].endswith("of_mine_too.py:2 in <module>")


@pytest.fixture
def short_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_settings, "_PASS_SECONDS", 0.02)


@pytest.mark.usefixtures("short_passes")
def test_a_few_settings_are_measured_simplest_first(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_settings, "usable_cpus", lambda: 2)
    diagnosis = doctor(out, at("dog/04.jpg", lambda sample: None))
    assert diagnosis.ok
    assert [each.setting.describe() for each in diagnosis.settings] == [
        "DataLoader, 0 workers",
        "ShardLoader, 1 thread",
        "ShardLoader, 2 threads",
        "DataLoader, 1 worker",
        "DataLoader, 2 workers",
    ]
    assert all(len(each.rates) >= 1 and min(each.rates) > 0 for each in diagnosis.settings)
    assert diagnosis.recommended in diagnosis.settings


@pytest.mark.usefixtures("short_passes")
def test_a_loader_that_hangs_is_named_by_its_setting_and_its_workers_end(out: Path, tmp_path: Path) -> None:
    def transform(sample: Sample) -> Sample:
        if get_worker_info() is not None:
            (tmp_path / "worker").write_text(str(os.getpid()))
            time.sleep(60)
        return sample

    diagnosis = doctor(out, transform, timeout=2.0)
    (trouble,) = diagnosis.troubles
    assert (trouble.kind, trouble.step.describe()) == ("hung", "load, DataLoader, 1 worker")
    assert diagnosis.settings == ()
    worker = int((tmp_path / "worker").read_text())
    while is_running(
        worker
    ):  # it was killed, which takes a moment; if it was not, the test's own time limit ends this
        time.sleep(0.01)


def is_running(process: int) -> bool:
    """Whether a process is there, and not as a mere entry for whoever adopted it to read."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def test_damage_that_is_met_only_while_settings_are_measured_is_named(tmp_path: Path) -> None:
    contract = Contract({"text": TextField()})
    ingest([{"id": f"r{n}", "text": f"text {n}"} for n in range(40)], tmp_path / "out", contract, workers=0)
    lines: list[str] = []
    assert examine(tmp_path / "out", samples=1, log=lines.append).ok
    taken = {line.split("'")[1] for line in lines}
    victim = next(number for number in range(10, 40) if f"r{number}" not in taken)
    path = tmp_path / "out" / "shards" / "00000" / "text.bin"
    path.write_bytes(path.read_bytes().replace(b"text %d" % victim, b"TEXT %d" % victim))
    (trouble,) = doctor(tmp_path / "out", samples=1).troubles
    assert (trouble.kind, trouble.step.stage) == ("failed", "load")
    assert f"(id 'r{victim}'" in trouble.sentence


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_batches_are_transferred(out: Path) -> None:
    diagnosis = examine(out, "center:20")
    assert diagnosis.ok
    assert diagnosis.stages[4].seconds is not None


def test_the_data_set_is_let_go_of(out: Path) -> None:
    examine(out)
    with Store(out) as store:
        assert len(store) == 12
