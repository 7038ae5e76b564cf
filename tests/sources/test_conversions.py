"""The same twelve records from every format there is: their ids and contents are equal, on both backends.

Formats whose writers the tests do not have come as fixtures, which those writers made of the same records.
"""

import csv
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import lmdb
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import Dataset

from shardkit import Contract, ShardDataset, ingest
from shardkit.contract import ArrayField, ImageField, LabelField, TextField
from shardkit.sources.lmdb.source import LmdbSource

FIXTURES = Path(__file__).parent.parent / "fixtures"
PHOTOS = FIXTURES / "records"
CLASSES = ("china", "flower")
IMAGE_AND_LABEL = Contract({"image": ImageField(), "label": LabelField(classes=CLASSES)})
CONTRACT = Contract(
    {**IMAGE_AND_LABEL.fields, "caption": TextField(), "embedding": ArrayField("float32", (4,))}
)

Record = dict[str, Any]


def read_records() -> list[Record]:
    found: list[Record] = json.loads((PHOTOS / "records.json").read_text(encoding="utf-8"))
    for record in found:
        record["image"] = (PHOTOS / record["id"]).read_bytes()
        record["embedding"] = np.array(record["embedding"], "float32")
    return found


RECORDS = read_records()


def copy_photos(folder: Path) -> Path:
    for name in CLASSES:
        shutil.copytree(PHOTOS / name, folder / name)
    return folder


def npy(array: Any) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def by_column() -> dict[str, list[Any]]:
    return {name: [record[name] for record in RECORDS] for name in RECORDS[0]}


def folder(at: Path) -> Path:
    return copy_photos(at / "raw")


def csv_table(at: Path) -> Path:
    copy_photos(at)
    with (at / "table.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", "path", "label", "caption", "embedding"])
        writer.writeheader()
        for number, record in enumerate(RECORDS):
            (at / f"{number}.npy").write_bytes(npy(record["embedding"]))
            values = {name: record[name] for name in ("id", "label", "caption")}
            writer.writerow(values | {"path": record["id"], "embedding": f"{number}.npy"})
    return at / "table.csv"


def json_lines(at: Path) -> Path:
    copy_photos(at)
    rows = [record | {"image": record["id"], "embedding": record["embedding"].tolist()} for record in RECORDS]
    (at / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return at / "table.jsonl"


def tar(at: Path) -> Path:
    with tarfile.open(at / "shard.tar", "w") as archive:
        for record in RECORDS:
            members = {
                "jpg": record["image"],
                "cls": record["label"].encode(),
                "txt": record["caption"].encode(),
                "npy": npy(record["embedding"]),
            }
            for suffix, data in members.items():
                info = tarfile.TarInfo(f"{record['id'].removesuffix('.jpg')}.{suffix}")
                info.size = len(data)
                archive.addfile(info, BytesIO(data))
    return at / "shard.tar"


def parquet(at: Path) -> Path:
    columns = by_column()
    columns["image"] = [
        {"bytes": data, "path": name} for data, name in zip(columns["image"], columns["id"], strict=True)
    ]
    pq.write_table(pa.table(columns), at / "table.parquet")
    return at / "table.parquet"


def parse_entry(key: bytes, value: bytes) -> Mapping[str, Any]:
    values: dict[str, Any] = msgpack.unpackb(value)
    return values | {"embedding": np.frombuffer(values["embedding"], "<f4")}


def lmdb_file(at: Path) -> LmdbSource:
    with (
        lmdb.open(str(at / "records.lmdb"), map_size=2**22) as environment,
        environment.begin(write=True) as batch,
    ):
        for record in RECORDS:
            values = {name: value for name, value in record.items() if name != "id"}
            values["embedding"] = record["embedding"].tobytes()
            batch.put(record["id"].encode(), msgpack.packb(values))
    return LmdbSource(at / "records.lmdb", parse=parse_entry)


def hdf5(at: Path) -> Path:
    with h5py.File(at / "records.h5", "w") as file:
        photos = file.create_dataset("image", (len(RECORDS),), h5py.vlen_dtype("uint8"))
        for number, record in enumerate(RECORDS):
            photos[number] = np.frombuffer(record["image"], "uint8")
        for name in ("id", "caption"):
            file[name] = [record[name] for record in RECORDS]
        kind = h5py.enum_dtype({name: number for number, name in enumerate(CLASSES)}, "u1")
        labels = [CLASSES.index(record["label"]) for record in RECORDS]
        file.create_dataset("meta/label", data=np.array(labels, "u1"), dtype=kind)
        file.create_dataset(
            "meta/embedding", data=np.stack(by_column()["embedding"]), chunks=(5, 4), compression="gzip"
        )
    return at / "records.h5"


def npz(at: Path) -> Path:
    columns = by_column()
    photos = np.array(columns.pop("image"))
    assert [bytes(photo) for photo in photos] == [record["image"] for record in RECORDS]  # none ends in a NUL
    np.savez_compressed(
        at / "records.npz", image=photos, **{name: np.array(found) for name, found in columns.items()}
    )
    return at / "records.npz"


def generator(at: Path) -> Iterator[Record]:
    return (dict(record) for record in RECORDS)


class TorchDataset(Dataset[Record]):
    def __len__(self) -> int:
        return len(RECORDS)

    def __getitem__(self, index: int) -> Record:
        return RECORDS[index]


def torch_dataset(at: Path) -> TorchDataset:
    return TorchDataset()


def mds_fixture(at: Path) -> Path:
    return FIXTURES / "mds" / "records"


def tfrecord_fixture(at: Path) -> Path:
    return FIXTURES / "tfrecord" / "records.tfrecord"


def hugging_face_fixture(at: Path) -> Path:
    return PHOTOS / "hf"


FORMATS = (
    folder,
    csv_table,
    json_lines,
    tar,
    parquet,
    hugging_face_fixture,
    lmdb_file,
    mds_fixture,
    tfrecord_fixture,
    hdf5,
    npz,
    generator,
    torch_dataset,
)


@pytest.mark.parametrize("backend", ["memmap", "lmdb"])
@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
def test_every_format_gives_the_same_records(
    make: Callable[[Path], Any], backend: str, tmp_path: Path
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    contract = IMAGE_AND_LABEL if make is folder else CONTRACT
    report = ingest(make(raw), tmp_path / "out", contract, backend=backend, workers=0, records_per_shard=5)
    assert (report.stored, report.rejected) == (12, 0)
    stored = ShardDataset(tmp_path / "out")
    suffix = ".jpg" if make is tar else ""  # the key of a tar's record ends at the first dot
    assert [name + suffix for name in stored.ids] == [record["id"] for record in RECORDS]
    for row, expected in enumerate(RECORDS):
        found = stored.read(row)
        assert bytes(found["image"]) == expected["image"]
        assert CLASSES[int(found["label"])] == expected["label"]
        if contract is CONTRACT:
            assert bytes(found["caption"]) == expected["caption"].encode()
            assert np.frombuffer(found["embedding"], "<f4").tolist() == expected["embedding"].tolist()
