"""The folder of a committed data set, which notices when another data set takes its place under a reader.

A reader opens files long after it read the manifest, some of them in other processes. Files of another data
set may have the same names and sizes, so only the manifest tells that they are not the ones it named.
"""

import os

from shardkit.errors import CorruptShardError, FormatError
from shardkit.store.folder import DataFolder
from shardkit.store.manifest import MANIFEST_NAME, Manifest
from shardkit.store.manifest_parser import load_manifest

_Identity = tuple[int, int, int, int]  # device, inode, time of change in nanoseconds, bytes


class CommittedFolder(DataFolder):
    """Opens the files of one committed data set, and of no other that is there later.

    Attributes:
        manifest: What the data set consists of.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Read the manifest in the folder `path`.

        Raises:
            DatasetNotFoundError: There is no manifest.
            UnsupportedVersionError: It is of another major version.
            ManifestError: It is not valid.
        """
        super().__init__(path)
        self._manifest_path = os.path.join(self.path, MANIFEST_NAME)
        self._seen = self._identify()  # before it is read: should it change in between, it is read again
        self.manifest: Manifest = load_manifest(self.path)

    def open(self, relative: str, size: int) -> int:
        """Open a file as `DataFolder.open` does, then make sure that the manifest is still the one that was read.

        It is looked at last: a data set gives way to another by a new manifest.

        Raises:
            CorruptShardError: As `DataFolder.open`.
            FormatError: The data set was replaced.
            DatasetNotFoundError: The manifest is gone.
        """
        try:
            descriptor = super().open(relative, size)
        except CorruptShardError:
            self._require_unreplaced()
            raise
        try:
            self._require_unreplaced()
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _require_unreplaced(self) -> None:
        found = self._identify()
        if found == self._seen:
            return
        require_same(
            str(self.path), load_manifest(self.path), self.manifest.dataset_id, self.manifest.generation
        )
        self._seen = found

    def _identify(self) -> _Identity | None:
        """Return what tells the manifest's file from any other, or None if there is none."""
        try:
            status = os.stat(self._manifest_path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def require_same(path: str, manifest: Manifest, dataset_id: str, generation: int) -> None:
    """Make sure that a data set is the one that was open elsewhere or before.

    Raises:
        FormatError: It was replaced since.
    """
    if (manifest.dataset_id, manifest.generation) != (dataset_id, generation):
        raise FormatError(
            f"{path}: was replaced while in use: it is data set {manifest.dataset_id}, generation "
            f"{manifest.generation}, and was {dataset_id}, generation {generation}; open it anew"
        )
