"""The format on disk (docs/format.md): shards, index and manifest, written durably and read with distrust."""

from shardkit.store.backend import Column, ShardReader, ShardWriter, columns_of
from shardkit.store.backends import BACKENDS, create_shard, seal_shard
from shardkit.store.checksum import digest_file, record_checksums
from shardkit.store.commit import commit, remove_unreferenced
from shardkit.store.files import DataFolder, is_safe_path, write_atomically
from shardkit.store.ids import IdIndex, IdSequence
from shardkit.store.index_writer import write_index
from shardkit.store.manifest import MANIFEST_NAME, FileEntry, IndexEntry, Manifest, ShardEntry, make_manifest
from shardkit.store.manifest_parser import load_manifest
from shardkit.store.store import Store

__all__ = [
    "BACKENDS",
    "MANIFEST_NAME",
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
    "digest_file",
    "is_safe_path",
    "load_manifest",
    "make_manifest",
    "record_checksums",
    "remove_unreferenced",
    "seal_shard",
    "write_atomically",
    "write_index",
]
