"""A disk in a file, whose power can be cut. Needs root."""

import fcntl
import os
import struct
import subprocess
from pathlib import Path

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of ext4 and xfs
_BYTES = 48 << 20


def cut_power(mount: str | Path, flags: int) -> None:
    """Let nothing get to a disk any more. Flags of 1 write the file system's journal first, 2 does not."""
    descriptor = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", flags))
    finally:
        os.close(descriptor)


class LoopDisk:
    """An ext4 in a file.

    Attributes:
        mount: Where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.mount = folder / "disk"
        self._file = folder / "disk.img"
        self.mount.mkdir()
        with self._file.open("wb") as stream:
            stream.truncate(_BYTES)
        _call("mkfs.ext4", "-q", str(self._file))
        self._mount()

    def reboot(self) -> None:
        """Take the disk off and put it on again, as after a power cut; without one, all is written first."""
        _call("umount", str(self.mount))
        self._mount()

    def close(self) -> None:
        """Take the disk off."""
        _call("umount", str(self.mount))

    def _mount(self) -> None:
        _call("mount", "-o", "loop", str(self._file), str(self.mount))


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
