"""LMDB files of others."""
