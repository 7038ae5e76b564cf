"""The quarantine: copies of the originals of rejected records, for a person to look at."""

import re
from dataclasses import dataclass
from pathlib import Path

from shardkit.contract import FileContent
from shardkit.errors import OutputError
from shardkit.sources import RawRecord
from shardkit.store import make_folder, partial_of, publish, refusals, remove, sync_file, sync_stream

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_LIMIT = 100  # characters kept of a quarantined file's own name; every file system takes 255 bytes


@dataclass(frozen=True)
class Quarantine:
    """The folder of copies. Until the run reports they stand under a temporary name: the last run's are still wanted.

    Attributes:
        folder: Where the copies stand in the end.
        is_ours: Whether the folder lies in our reports, so that what an earlier run left in it may be replaced.
    """

    folder: Path
    is_ours: bool

    @property
    def _partial(self) -> Path:
        return partial_of(self.folder)

    def check(self) -> None:
        """Make sure that nothing of anybody's would be replaced.

        Raises:
            OutputError: The folder, which is not ours, holds something.
        """
        if not self.is_ours and (
            self.folder.is_symlink() or (self.folder.exists() and not _is_empty(self.folder))
        ):
            raise OutputError(
                f"{self.folder}: the quarantine folder is not an empty folder; choose another",
                path=self.folder,
            )

    def begin(self) -> None:
        """Make an empty folder under the temporary name; what an earlier run had set aside there is removed.

        Raises:
            OutputError: The system refused.
        """
        self.discard()
        make_folder(self._partial)

    def discard(self) -> None:
        """Remove what was set aside, of a run that will not be continued.

        Raises:
            OutputError: The system refused.
        """
        remove(self._partial)

    def set_aside(self, number: int, raw: RawRecord) -> tuple[str, ...]:
        """Copy the files (and bytes) of a rejected record, under names that start with the record's number.

        Returns:
            The names.

        Raises:
            OutputError: The system refused.
        """
        names: list[str] = []
        for name, value in raw.values.items():
            content = FileContent(value, "bytes") if isinstance(value, bytes) else value
            if not isinstance(content, FileContent):
                continue
            original = _UNSAFE.sub("_", content.name.rsplit("/", 1)[-1])[-_NAME_LIMIT:]
            target = self._partial / f"{number:08d}-{name}-{original}"
            try:
                with target.open("wb") as stream:
                    stream.write(content.data)
                    sync_stream(stream)
            except OSError as error:
                raise OutputError(
                    f"{target}: cannot copy a rejected record aside: {error.strerror}", path=target
                ) from error
            sync_file(self._partial)
            names.append(target.name)
        return tuple(names)

    def publish(self) -> None:
        """Give the copies their own place, instead of those of the last run; unless it was done by the run continued.

        Raises:
            OutputError: The system refused.
        """
        if not self._partial.exists():
            return
        if self.is_ours:
            remove(self.folder)
        if _is_empty(self._partial):
            remove(self._partial)
            return
        with refusals(self.folder):
            if self.folder.exists():
                self.folder.rmdir()  # and not with what is in it, should there be anything by now
        publish(self._partial, self.folder)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and next(folder.iterdir(), None) is None
