"""The format on disk (docs/format.md): shards, index and manifest, written durably and read with distrust."""

from shardkit.store.backend import Column, ShardReader, ShardWriter, columns_of
from shardkit.store.backends import BACKENDS, create_shard, seal_shard
from shardkit.store.checksum import digest_file, record_checksums
from shardkit.store.commit import STORE_NAMES, commit, remove_unreferenced
from shardkit.store.committed_folder import require_same
from shardkit.store.description import describe
from shardkit.store.durable import make_folder, publish, remove, write_atomically
from shardkit.store.folder import DataFolder, is_safe_path
from shardkit.store.ids import IdIndex, IdSequence
from shardkit.store.index_writer import write_index
from shardkit.store.manifest import (
    MANIFEST_NAME,
    FileEntry,
    IndexEntry,
    Manifest,
    ShardEntry,
    dataset_id_of,
    make_manifest,
)
from shardkit.store.manifest_parser import load_manifest
from shardkit.store.store import Store

__all__ = [
    "BACKENDS",
    "MANIFEST_NAME",
    "STORE_NAMES",
    "Column",
    "DataFolder",
    "FileEntry",
    "IdIndex",
    "IdSequence",
    "IndexEntry",
    "Manifest",
    "ShardEntry",
    "ShardReader",
    "ShardWriter",
    "Store",
    "columns_of",
    "commit",
    "create_shard",
    "dataset_id_of",
    "describe",
    "digest_file",
    "is_safe_path",
    "load_manifest",
    "make_folder",
    "make_manifest",
    "publish",
    "record_checksums",
    "remove",
    "remove_unreferenced",
    "require_same",
    "seal_shard",
    "write_atomically",
    "write_index",
]
