"""The format on disk (docs/format.md): shards, index and manifest, written durably and read with distrust."""

from shardkit.store.backend import Column, ShardReader, ShardWriter, columns_of
from shardkit.store.backends import BACKENDS, create_shard, seal_shard
from shardkit.store.checksum import SOURCE_DIGEST_BYTES, digest_file, record_checksums
from shardkit.store.commit import STORE_NAMES, commit, remove_unreferenced
from shardkit.store.description import describe
from shardkit.store.durable import (
    make_folder,
    partial_of,
    publish,
    refusals,
    remove,
    sync_file,
    sync_stream,
    write_atomically,
)
from shardkit.store.folder import DataFolder, is_safe_path
from shardkit.store.history import load_generation
from shardkit.store.ids import BatchIdView, IdIndex, IdSequence
from shardkit.store.index_writer import WrittenIndex, write_index
from shardkit.store.manifest import (
    MANIFEST_NAME,
    FileEntry,
    IndexEntry,
    Manifest,
    PastGeneration,
    ShardEntry,
    dataset_id_of,
    make_manifest,
    versions,
)
from shardkit.store.manifest_parser import load_manifest
from shardkit.store.store import Store

__all__ = [
    "BACKENDS",
    "MANIFEST_NAME",
    "SOURCE_DIGEST_BYTES",
    "STORE_NAMES",
    "BatchIdView",
    "Column",
    "DataFolder",
    "FileEntry",
    "IdIndex",
    "IdSequence",
    "IndexEntry",
    "Manifest",
    "PastGeneration",
    "ShardEntry",
    "ShardReader",
    "ShardWriter",
    "Store",
    "WrittenIndex",
    "columns_of",
    "commit",
    "create_shard",
    "dataset_id_of",
    "describe",
    "digest_file",
    "is_safe_path",
    "load_generation",
    "load_manifest",
    "make_folder",
    "make_manifest",
    "partial_of",
    "publish",
    "record_checksums",
    "refusals",
    "remove",
    "remove_unreferenced",
    "seal_shard",
    "sync_file",
    "sync_stream",
    "versions",
    "write_atomically",
    "write_index",
]
