"""The folder of a committed data set, which notices when another data set takes its place under a reader.

A reader opens files long after it read the manifest, some of them in other processes. Files of another data
set may have the same names and sizes, so only the manifest tells that they are not the ones it named. A later
generation of the same lineage does no harm: it uses no name of an earlier one again (docs/format.md, "Generations").
"""

import os

from shardkit.errors import CorruptShardError, FormatError
from shardkit.store.folder import DataFolder
from shardkit.store.history import load_past
from shardkit.store.manifest import MANIFEST_NAME, Manifest, PastGeneration
from shardkit.store.manifest_parser import load_manifest

_Identity = tuple[int, int, int, int]  # device, inode, time of change in nanoseconds, bytes


class CommittedFolder(DataFolder):
    """Opens the files of one generation of a data set, and of no other data set that is there later.

    Attributes:
        manifest: What the data set consists of.
    """

    def __init__(
        self, path: str | os.PathLike[str], generation: int | None = None, dataset_id: str | None = None
    ) -> None:
        """Read the manifest in the folder `path`.

        Args:
            path: The folder.
            generation: Which generation to open; the current one by default.
            dataset_id: Which data set that was, where it was open elsewhere or before.

        Raises:
            DatasetNotFoundError: There is no manifest, or none of that generation.
            UnsupportedVersionError: It is of another major version.
            ManifestError: It is not valid.
            FormatError: It is another data set.
        """
        super().__init__(path)
        self._manifest_path = os.path.join(self.path, MANIFEST_NAME)
        self._seen = self._identify()  # before it is read: should it change in between, it is read again
        current = load_manifest(self.path)
        self._current_generation = current.generation
        if dataset_id is not None and generation is not None:
            self._require_kin(current, PastGeneration(generation, dataset_id))
        if generation is None or generation == current.generation:
            self.manifest: Manifest = current
        else:
            self.manifest = load_past(self.path, current, generation)

    def open(self, relative: str, size: int) -> int:
        """Open a file as `DataFolder.open` does, then make sure that the data set was not replaced by another.

        The manifest is looked at last: a data set gives way to another by a new manifest.

        Raises:
            CorruptShardError: As `DataFolder.open`; or a later generation removed the file.
            FormatError: The data set was replaced.
            DatasetNotFoundError: The manifest is gone.
        """
        try:
            descriptor = super().open(relative, size)
        except CorruptShardError as error:
            self._require_unreplaced()
            if self._current_generation != self.manifest.generation and not (self.path / relative).exists():
                raise CorruptShardError(
                    f"{self.path / relative}: was removed by a later generation: {self._current_generation} is "
                    f"current, and {self.manifest.generation} was in use; open the data set anew"
                ) from error
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
        current = load_manifest(self.path)
        self._require_kin(current, self.manifest.lineage[-1])
        self._current_generation = current.generation
        self._seen = found

    def _require_kin(self, current: Manifest, ours: PastGeneration) -> None:
        """Make sure that `current` is our generation or was made from it."""
        if ours not in current.lineage:
            raise FormatError(
                f"{self.path}: was replaced while in use: it is data set {current.dataset_id}, generation "
                f"{current.generation}, and was {ours.dataset_id}, generation {ours.generation}; open it anew"
            )

    def _identify(self) -> _Identity | None:
        """Return what tells the manifest's file from any other, or None if there is none."""
        try:
            status = os.stat(self._manifest_path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
