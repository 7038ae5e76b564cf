"""What takes the whole way from raw input to a batch to show: several images, defaults, tokens, classes from 1."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from shardkit import (
    BytesField,
    Contract,
    ImageField,
    LabelField,
    ScalarField,
    ShardDataset,
    TextField,
    TokensField,
    collate,
    ingest,
    verify,
)
from shardkit.errors import IngestError


def picture(number: int, is_right: bool, mode: str = "RGB") -> Image.Image:
    colour = (number, 200 if is_right else 100, 0)
    return Image.new("RGB", (6 if is_right else 4, 5), colour).convert(mode)


def table(folder: Path) -> Path:
    """A table of pairs of PNG files."""
    lines = ["id,left,right"]
    for number in range(3):
        for side in ("left", "right"):
            picture(number, side == "right").save(folder / f"{number}-{side}.png")
        lines.append(f"pair {number},{number}-left.png,{number}-right.png")
    path = folder / "pairs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def iterable(_: Path) -> list[dict[str, Any]]:
    return [
        {"id": f"pair {number}", "left": picture(number, False), "right": np.asarray(picture(number, True))}
        for number in range(3)
    ]


@pytest.mark.parametrize("make", [table, iterable])
@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
def test_two_images_of_a_record_stay_apart_from_source_to_batch(
    tmp_path: Path, make: Callable[[Path], Any], backend: str
) -> None:
    contract = Contract({"left": ImageField(), "right": ImageField(size=(5, 6), store="raw")})
    ingest(make(tmp_path), tmp_path / "out", contract, backend=backend, workers=0)
    (batch,) = DataLoader(ShardDataset(tmp_path / "out"), 3, collate_fn=collate)
    assert batch["id"] == ["pair 0", "pair 1", "pair 2"]
    assert (batch["left"].shape, batch["right"].shape) == ((3, 3, 5, 4), (3, 3, 5, 6))
    assert batch["left"][:, :, 0, 0].tolist() == [[number, 100, 0] for number in range(3)]
    assert batch["right"][:, :, 4, 5].tolist() == [[number, 200, 0] for number in range(3)]


def test_each_image_has_its_own_policies_and_a_misfit_names_which_it_is(tmp_path: Path) -> None:
    raw = table(tmp_path)
    picture(1, True, "L").save(tmp_path / "1-right.png")
    contract = Contract({"left": ImageField(), "right": ImageField()})
    with pytest.raises(IngestError, match="'pair 1'"):
        ingest(raw, tmp_path / "out", contract, workers=0)
    (line,) = (tmp_path / "out" / "reports" / "rejected.jsonl").read_text().splitlines()
    assert (json.loads(line)["field"], json.loads(line)["reason"]) == ("right", "grayscale")
    lenient = Contract({"left": ImageField(), "right": ImageField(grayscale="convert")})
    ingest(raw, tmp_path / "kept", lenient, workers=0)
    assert ShardDataset(tmp_path / "kept").get("pair 1")["right"].shape == (3, 5, 6)  # type: ignore[index]


def test_a_table_without_the_column_of_a_field_gives_its_default_and_counts_it(tmp_path: Path) -> None:
    raw = tmp_path / "t.csv"
    raw.write_text("id,score,label,tokens\na,1.5,1,5 6 7\nb,,3,[]\nc,0,,\n")
    contract = Contract(
        {
            "tokens": TokensField("uint16", default=[1]),
            "label": LabelField(num_classes=3, first=1, default=2),
            "score": ScalarField("float32", finite=False, default="nan"),
            "caption": TextField(default="none"),
        }
    )
    report = ingest(raw, tmp_path / "out", contract, workers=0)
    batch = collate([*map(ShardDataset(tmp_path / "out").__getitem__, range(3))])
    assert batch["tokens"].tolist() == [[5, 6, 7], [0, 0, 0], [1, 0, 0]]
    assert batch["tokens_mask"].sum(1).tolist() == [3, 0, 1]
    assert batch["label"].tolist() == [0, 2, 1]
    assert torch.nan_to_num(batch["score"], -1.0).tolist() == [1.5, -1.0, 0.0]
    assert batch["caption"] == ["none"] * 3
    counts = {"tokens: default": 1, "label: default": 1, "score: default": 1, "caption: default": 3}
    assert report.to_dict()["converted"] == counts


def test_a_file_field_with_a_default_takes_no_column_of_another_name(tmp_path: Path) -> None:
    picture(0, False).save(tmp_path / "a.png")
    raw = tmp_path / "t.csv"
    raw.write_text("id,image\na,a.png\n")
    contract = Contract({"image": ImageField(), "extra": BytesField(default="-")})
    ingest(raw, tmp_path / "out", contract, workers=0)
    assert ShardDataset(tmp_path / "out")[0]["extra"] == b"-"
    assert verify(tmp_path / "out", source=raw).ok


@pytest.mark.parametrize("content", [b"5 6", b"[5, 6]\n"])
def test_tokens_may_be_files_of_a_folder(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.txt").write_bytes(content)
    np.save(tmp_path / "raw" / "b.npy", np.array([7], np.int64))
    ingest(tmp_path / "raw", tmp_path / "out", Contract({"tokens": TokensField(vocab_size=8)}), workers=0)
    data = ShardDataset(tmp_path / "out")
    assert [sample["tokens"].tolist() for sample in data.__getitems__([0, 1])] == [[5, 6], [7]]
