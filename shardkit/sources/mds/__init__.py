"""Folders that mosaicml-streaming wrote."""
