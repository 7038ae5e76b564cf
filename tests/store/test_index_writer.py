"""An index on a disk that takes no more."""

import resource
from pathlib import Path

import numpy as np
import pytest

from shardkit.errors import OutputError
from shardkit.store import index_writer


def test_an_array_that_the_system_takes_only_a_part_of_is_refused(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        with pytest.raises(OutputError, match=r"rows\.npy: cannot be written: File too large"):
            index_writer._write_array(tmp_path / "rows.npy", np.arange(30, dtype=np.uint64))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
