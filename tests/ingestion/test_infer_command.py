"""``shardkit contract infer``: where what it says goes, and what it ends with."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardkit import Contract, infer, ingest
from shardkit.contract import ArrayField, ImageField, LabelField, TextField


def run_infer(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardkit", "contract", "infer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_contract_goes_to_stdout_and_what_was_seen_to_stderr(raw: Path, tmp_path: Path) -> None:
    (raw / "cat" / "two\nlines.jpg").write_bytes(b"no picture")
    run = run_infer(raw)
    assert run.returncode == 0
    (tmp_path / "c.toml").write_text(run.stdout)
    assert Contract.load(tmp_path / "c.toml") == infer(raw).contract
    assert run.stderr.splitlines() == [
        "13 records, 13 looked at",
        "  image      modes: RGB (12)",
        "  image      formats: jpeg (12)",
        "  image      sizes [H, W]: all [30, 40]",
        "  label      classes: 2 of 2 seen: cat (6), dog (6)",
        "  trouble    not-an-image: 1 of 13, such as 'cat/two\\nlines.jpg': the bytes begin like no image format",
    ]


def test_with_a_file_to_write_what_was_seen_goes_to_stdout_and_ends_with_the_next_step(
    raw: Path, tmp_path: Path
) -> None:
    run = run_infer(raw, "-o", tmp_path / "c.toml", "--samples", 4)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert lines[0].startswith("12 records, ")
    assert lines[-1].endswith(f"then: shardkit ingest {raw} OUT --contract {tmp_path / 'c.toml'}")
    assert Contract.load(tmp_path / "c.toml").fields["image"] == ImageField()


def test_a_source_that_suggests_no_contract_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,label\na,0.5\n")
    run = run_infer(tmp_path / "t.csv")
    assert (run.returncode, run.stdout) == (2, "")
    assert len(run.stderr.splitlines()) == 1


def picture(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (30, 20 + number % 3), (number, 90, 10)).save(buffer, "JPEG")
    return buffer.getvalue()


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w") as file:
        for number in range(10):
            for suffix, content in (
                ("jpg", picture(number)),
                ("cls", b"%d" % (number % 2)),
                ("txt", b"hello"),
            ):
                member = tarfile.TarInfo(f"{number:03}.{suffix}")
                member.size = len(content)
                file.addfile(member, io.BytesIO(content))


def test_the_proposal_for_a_tar_ingests_as_it_stands(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar")
    inference = infer(tmp_path / "a.tar")
    assert inference.contract == Contract(
        {"image": ImageField(), "label": LabelField(num_classes=2), "text": TextField()}
    )
    inference.save(tmp_path / "c.toml")
    assert ingest(tmp_path / "a.tar", tmp_path / "out", tmp_path / "c.toml", workers=0).stored == 10


def test_the_proposal_for_arrays_ingests_as_it_stands(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 60, dtype="f4").reshape(5, 3, 4)
    np.savez(tmp_path / "x.npz", x=values, label=np.arange(5))
    inference = infer(tmp_path / "x.npz")
    assert inference.contract == Contract(
        {"x": ArrayField("float32", (3, 4)), "label": LabelField(num_classes=5)}
    )
    assert "  x          values: -1 to 1" in list(inference.lines())
    inference.save(tmp_path / "c.toml")
    assert ingest(tmp_path / "x.npz", tmp_path / "out", tmp_path / "c.toml", workers=0).stored == 5


def test_the_proposal_for_parquet_ingests_as_it_stands(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason='needs pip install "shardkit[parquet]"')
    parquet = pytest.importorskip("pyarrow.parquet")
    names = [f"{number}.jpg" for number in range(6)]
    images = [{"bytes": picture(number), "path": name} for number, name in enumerate(names)]
    table = {"id": names, "image": images, "label": [0, 1] * 3, "caption": ["a", "bc", "", "d", "e", "f"]}
    parquet.write_table(arrow.table(table), tmp_path / "t.parquet")
    inference = infer(tmp_path / "t.parquet")
    assert inference.contract == Contract(
        {"image": ImageField(), "label": LabelField(num_classes=2), "caption": TextField()}
    )
    assert inference.observations["image"].shapes == {(20, 30): 2, (21, 30): 2, (22, 30): 2}
    inference.save(tmp_path / "c.toml")
    assert ingest(tmp_path / "t.parquet", tmp_path / "out", tmp_path / "c.toml", workers=0).stored == 6
