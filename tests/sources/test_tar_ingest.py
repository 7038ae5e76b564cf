"""Tar files from raw input to a data set."""

from pathlib import Path

import numpy as np
import pytest
from tars import packed, write

from shardkit import ShardDataset, ingest
from shardkit.contract import (
    ArrayField,
    BytesField,
    Contract,
    ImageField,
    JsonField,
    LabelField,
    Reason,
    RecordRules,
    TextField,
)
from shardkit.errors import IngestError

FIXTURES = Path(__file__).parent.parent / "fixtures" / "webdataset"
PHOTOS = Contract(
    {
        "image": ImageField(),
        "label": LabelField(num_classes=3),
        "text": TextField(),
        "json": JsonField(),
        "mean": ArrayField("float32", (2, 3)),
    }
)


@pytest.mark.parametrize("name", ["", "all.tar.gz"])
@pytest.mark.parametrize("workers", [0, 2])
def test_shards_of_webdatasets_own_writer_become_a_data_set(tmp_path: Path, name: str, workers: int) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for path in FIXTURES.glob("*.tar*"):
        if not name or path.name == name:
            (raw / path.name).write_bytes(path.read_bytes())
    if not name:
        (raw / "all.tar.gz").unlink()
    report = ingest(raw, tmp_path / "out", PHOTOS, workers=workers, records_per_shard=2)
    assert (report.stored, report.rejected) == (5, 0)
    data = ShardDataset(tmp_path / "out")
    assert list(data.ids) == [f"photos/{number:04d}" for number in range(5)]
    sample = data[4]
    assert (sample["label"], sample["text"]) == (1, "picture 4, größer")
    assert sample["json"] == {"number": 4, "tags": ["a", "b"]}
    assert np.array_equal(sample["mean"], np.full((2, 3), 4))
    rows, columns = np.mgrid[:12, :16]
    assert np.array_equal(sample["image"], np.stack([rows * 9 + 4, columns * 9, rows + columns]))


def test_a_key_that_comes_again_in_another_tar_is_a_duplicate_with_both_places_told(tmp_path: Path) -> None:
    write(tmp_path / "raw", packed([("k.a", b"1"), ("l.a", b"1")]), "0.tar")
    write(tmp_path / "raw", packed([("m.a", b"1"), ("k.a", b"1")]), "1.tar")
    contract = Contract({"a": BytesField()}, RecordRules(on_bad="skip"))
    report = ingest(tmp_path / "raw", tmp_path / "out", contract, workers=0)
    (rejection,) = report.rejections
    assert (rejection.id, rejection.reason) == ("k", Reason.DUPLICATE_ID)
    assert rejection.source.endswith("1.tar at byte 1024")
    assert "0.tar at byte 0" in rejection.sentence


def test_an_ingest_of_a_cut_tar_stops_or_goes_on_as_the_contract_says(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(packed([("0.a", b"0"), ("1.a", b"1"), ("2.a", b"2")])[:2048])
    contract = Contract({"a": BytesField()})
    with pytest.raises(IngestError, match="incomplete-source"):
        ingest(path, tmp_path / "out", contract, workers=0)
    report = ingest(path, tmp_path / "out", contract, on_bad="skip", workers=0)
    assert report.stored == 2
    (rejection,) = report.rejections
    assert (rejection.id, rejection.reason) == (f"{path} at byte 2048", Reason.INCOMPLETE_SOURCE)
