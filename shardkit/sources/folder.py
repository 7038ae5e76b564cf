"""A folder of files as a source: each file is a record, its relative path the id, its first folder the class.

Records come sorted by the bytes of their relative path, so that the order is the same on every machine.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice

from shardkit.contract import (
    Contract,
    Field,
    ImageField,
    LabelField,
    Reason,
    Rejection,
    find_id_fault,
    show_id,
)
from shardkit.errors import SourceError
from shardkit.sources.files import APPLE_DOUBLE, FileFault, FileReader, find_junk
from shardkit.sources.raw_images import require_raw_images
from shardkit.sources.source import Part, RawRecord, Stamp
from shardkit.sources.stamps import NO_FILE


class FolderSource:
    """A folder with one subfolder a class, or a flat one.

    Every file in it is a record, whatever its name, save what operating systems leave behind (`find_junk`),
    which is counted in `ignored`. Symbolic links are followed inside of the folder; one that leads out makes
    a rejected record, one that leads back into itself is ignored.

    Attributes:
        name: The path as given.
        ignored: What was passed over, by kind.
        remarks: Stay empty.
    """

    def __init__(self, path: str) -> None:
        """Take a folder that exists.

        Raises:
            SourceError: It cannot be listed, or holds no file.
        """
        self.name = path
        self.ignored: Counter[str] = Counter()
        self.remarks: Mapping[str, str] = {}
        if next(self._walk(self.ignored), None) is None:
            raise SourceError(f"{path}: the folder holds no files to ingest{self._describe_ignored()}")

    def require(self, contract: Contract) -> None:
        """Check that a file and, at most, a class are all that the contract asks for, and that images may be there.

        Raises:
            SourceError: It asks for more, or for a class where there are no class folders; or for images where all
                files are of kinds that hold many records.
        """
        file_fields = [name for name, spec in contract.fields.items() if _takes_content(spec)]
        label_fields = [name for name, spec in contract.fields.items() if isinstance(spec, LabelField)]
        needed = [name for name, spec in contract.fields.items() if spec.default is None]
        others = set(needed) - set(file_fields[:1]) - set(label_fields[:1])
        if others or not file_fields:
            wanted = f"field {min(others)!r}" if others else "nothing that a file can hold"
            raise SourceError(
                f"{self.name}: a folder gives each record one file and one class; the contract asks for "
                f"{wanted}; list the records in a table (.csv, .tsv, .jsonl) instead"
            )
        if isinstance(contract.fields[file_fields[0]], ImageField):
            require_raw_images(self.name, self._walk(Counter()))
        if label_fields and label_fields[0] in needed and not self._class_folders():
            raise SourceError(
                f"{self.name}: there are no class folders for field {label_fields[0]!r}; expected is "
                f"{self.name}/CLASS/FILE, or a contract without a label"
            )

    def propose(self) -> Contract:
        """Return an image field and, where there are subfolders, a label field with their names as classes.

        Classes are sorted by the bytes of their names; an empty folder is a class too.

        Raises:
            SourceError: All files are of kinds that hold many records.
        """
        require_raw_images(self.name, self._walk(Counter()))
        classes = tuple(name for name in self._class_folders() if find_id_fault(name) is None)
        if not classes:
            return Contract({"image": ImageField()})
        return Contract({"image": ImageField(), "label": LabelField(classes=classes)})

    def count(self) -> int:
        """Return the number of files, by walking the folder."""
        return sum(1 for _ in self._walk(Counter()))

    def parts(self, size: int) -> Iterator[Part]:
        """Yield the files in order; memory grows with the largest single folder only.

        Raises:
            SourceError: A folder cannot be listed.
        """
        self.ignored.clear()
        paths = self._walk(self.ignored)
        first = 0
        while run := list(islice(paths, size)):
            names = [os.fsdecode(path) for path in run]
            bad = {}
            for position, name in enumerate(names):
                fault = find_id_fault(name)
                if fault is not None:
                    names[position] = shown = show_id(name)
                    bad[position] = Rejection(shown, shown, Reason.BAD_ID, f"{fault}; rename the file")
            yield Part(first, names, range(first, first + len(names)), None, bad)
            first += len(run)

    def place(self, mark: int) -> str:
        """Return the folder: where in it a record stands is its id."""
        return self.name

    def stamps(self, part: Part, contract: Contract) -> list[Stamp]:
        """Return the stamp of each file; one that is gone, or leads out of the folder, has a stamp too."""
        files = FileReader(self.name)
        return [
            NO_FILE if position in part.bad else files.stamp(path) for position, path in enumerate(part.ids)
        ]

    def read(self, part: Part, contract: Contract) -> Iterator[RawRecord | Rejection]:
        """Yield the records of a part with their content."""
        file_field = next(name for name, spec in contract.fields.items() if _takes_content(spec))
        label_field = next(
            (name for name, spec in contract.fields.items() if isinstance(spec, LabelField)), None
        )
        files = FileReader(self.name)
        for position, path in enumerate(part.ids):
            if position in part.bad:
                yield part.bad[position]
                continue
            try:
                content = files.read(path)
            except FileFault as fault:
                yield Rejection(path, path, fault.reason, fault.sentence, file_field)
                continue
            if content.data.startswith(APPLE_DOUBLE):
                sentence = "the file is macOS metadata (AppleDouble), which belongs to another file"
                is_image = isinstance(contract.fields[file_field], ImageField)
                reason = Reason.NOT_AN_IMAGE if is_image else Reason.WRONG_TYPE
                yield Rejection(path, path, reason, sentence, file_field)
                continue
            folder, slash, _ = path.partition("/")
            values = {file_field: content} | ({label_field: folder if slash else None} if label_field else {})
            yield RawRecord(path, path, values)

    def _class_folders(self) -> list[str]:
        """Return the names of the subfolders in byte order."""
        keys = self._list(b"", set(), Counter())
        return [os.fsdecode(key[:-1]) for key in keys if key.endswith(b"/")]

    def _walk(self, ignored: Counter[str]) -> Iterator[bytes]:
        """Yield the relative path of every file in byte order; depth-first with a stack of its own."""
        root = os.fsencode(self.name)
        stack = [(b"", iter(self._list(b"", set(), ignored)), _identity(root))]
        while stack:
            prefix, keys, _ = stack[-1]
            key = next(keys, None)
            if key is None:
                stack.pop()
            elif key.endswith(b"/"):
                path = prefix + key
                above = {identity for _, _, identity in stack}
                stack.append((path, iter(self._list(path, above, ignored)), _identity(root + b"/" + path)))
            else:
                yield prefix + key

    def _list(self, prefix: bytes, above: set[tuple[int, int]], ignored: Counter[str]) -> list[bytes]:
        """Return the names in one folder, a folder's with ``/`` behind it, in the order of the full paths.

        The slash makes the order that of whole paths: ``a.x`` stands before ``a/b``, as ``.`` stands before
        ``/``.
        """
        folder = os.path.join(os.fsencode(self.name), prefix)
        keys = []
        try:
            if _identity(folder) in above:
                ignored["link that leads back into its own folder"] += 1
                return []
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_folder = _is_folder(entry) and self._is_inside(entry)
                    junk = find_junk(entry.name, is_folder)
                    if junk is not None:
                        ignored[junk] += 1
                    else:
                        keys.append(entry.name + b"/" if is_folder else entry.name)
        except OSError as error:
            raise SourceError(
                f"{show_id(os.fsdecode(folder))}: cannot list the folder: {error.strerror}"
            ) from error
        if not keys:
            ignored["empty folder"] += 1
        return sorted(keys)

    def _is_inside(self, entry: "os.DirEntry[bytes]") -> bool:
        """Whether a folder is in the source; one that a link leads out to becomes a rejected record."""
        if not entry.is_symlink():
            return True
        root = os.path.realpath(os.fsencode(self.name))
        return os.path.commonpath((root, os.path.realpath(entry.path))) == root

    def _describe_ignored(self) -> str:
        if not self.ignored:
            return ""
        return "; ignored were " + ", ".join(f"{count} x {kind}" for kind, count in self.ignored.items())


def _identity(folder: bytes) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _is_folder(entry: "os.DirEntry[bytes]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle: reading it as a file says so
        return False


def _takes_content(spec: Field) -> bool:
    return spec.takes_file or spec.accepts_file
