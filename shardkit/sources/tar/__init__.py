"""Tar files and WebDataset shards."""
