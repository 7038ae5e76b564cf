"""Follows a process and all that it starts, and stops it at each system call that changes a folder.

What stands at such a call may be killed there, or told that the call failed. This is what Debian's strace does with
``-f --inject``; but strace counts the calls of each thread apart, and would start Python anew for every fault. Linux on
x86-64 alone.
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_SEIZE, _CONTINUE, _GET_REGISTERS, _SET_REGISTERS = 0x4206, 7, 12, 13
_FOLLOW = 1 << 1 | 1 << 2 | 1 << 3  # fork, vfork, clone
_SECCOMP_STOPS, _EXIT_KILL = 1 << 7, 1 << 20
_SECCOMP_EVENT = 7
_ALL_CHILDREN = 0x40000000  # __WALL: threads as well

_SET_SECCOMP, _FILTER, _NO_NEW_PRIVILEGES = 22, 2, 38
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_TRACE, _ALLOW = 0x7FF00000, 0x7FFF0000

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_HERE = -100  # AT_FDCWD

_BY_DESCRIPTOR = {
    1: "write",
    18: "pwrite64",
    20: "writev",
    74: "fsync",
    75: "fdatasync",
    77: "ftruncate",
    285: "fallocate",
    296: "pwritev",
    328: "pwritev2",
}
_BY_PATH = {
    2: "open",
    76: "truncate",
    82: "rename",
    83: "mkdir",
    84: "rmdir",
    85: "creat",
    86: "link",
    87: "unlink",
}
_BY_FOLDER_AND_PATH = {
    257: "openat",
    258: "mkdirat",
    263: "unlinkat",
    264: "renameat",
    265: "linkat",
    316: "renameat2",
}
_NAMES = _BY_DESCRIPTOR | _BY_PATH | _BY_FOLDER_AND_PATH
_FLAGS_ARGUMENT = {"open": 1, "openat": 2}


_REGISTERS = """
    r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs
"""


class _Registers(ctypes.Structure):
    """``struct user_regs_struct`` of x86-64."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in _REGISTERS.split()]


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("yes", ctypes.c_ubyte),
        ("no", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction))]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, thread: int, data: object = None) -> None:
    if _libc.ptrace(request, thread, None, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass(frozen=True)
class Call:
    """A call that would change the watched folder.

    Attributes:
        name: Of the call.
        path: What it would change, relative to the folder.
        target: The new name of what it would rename, or ``""``.
    """

    name: str
    path: str
    target: str = ""


@dataclass
class Trace:
    """What was seen of a process and its descendants.

    Attributes:
        calls: Every call that changed the folder, in order, those that were made to fail included.
        ends: Process (or thread) -> its exit status, or minus the signal that killed it.
    """

    calls: list[Call] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)


def why_not() -> str | None:
    """Return why nothing can be followed on this machine, or None."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "system calls are followed on Linux on x86-64 alone"
    process = fork_stopped(lambda: os._exit(7))
    try:
        status = follow(process, Path("/nonexistent"), lambda *_: None).ends[process.pid]
    except OSError as error:
        return f"ptrace is not permitted here ({error.strerror})"
    return None if status == 7 else "seccomp filters are not permitted here"


@dataclass(frozen=True)
class Stopped:
    """A child process that waits to be followed.

    Attributes:
        pid: Its number.
        gate: A pipe that lets it go.
    """

    pid: int
    gate: int

    def attach(self) -> None:
        """Follow it, and all that it starts, from now on, and let it go.

        Raises:
            OSError: The system refused.
        """
        try:
            _ptrace(_SEIZE, self.pid, _FOLLOW | _SECCOMP_STOPS | _EXIT_KILL)
            os.write(self.gate, b".")
        finally:
            os.close(self.gate)


def fork_stopped(run: Callable[[], object]) -> Stopped:
    """Fork a process, in a session of its own, that waits until it is followed; `run` must end it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        return Stopped(pid, writing)
    os.close(writing)
    os.setsid()
    is_followed = os.read(reading, 1)
    os.close(reading)
    if not is_followed:
        os._exit(1)
    _stop_at_changes()
    run()
    os._exit(1)


def follow(
    process: Stopped,
    folder: Path,
    at: Callable[[int, Call, int], int | None],
    at_end: Callable[[], None] = lambda: None,
) -> Trace:
    """Let a process run to its end, and all its descendants to theirs.

    Args:
        process: The process.
        folder: Real path of the watched folder, which need not exist.
        at: Called with the number (from 1), the call and the thread at each call that would change the folder; may
            kill what it likes, and returns None, or the errno with which the call is to fail.
        at_end: Called once the process has ended, while descendants may be alive; may attach another process.

    Raises:
        OSError: It cannot be followed.
    """
    process.attach()
    trace = Trace()
    while True:
        try:
            thread, status = os.waitpid(-1, _ALL_CHILDREN)
        except ChildProcessError:
            return trace
        if not os.WIFSTOPPED(status):
            trace.ends[thread] = os.waitstatus_to_exitcode(status)
            if thread == process.pid:
                at_end()
            continue
        event, sent = status >> 16, os.WSTOPSIG(status)
        try:
            if event == _SECCOMP_EVENT:
                _answer(thread, str(folder), trace, at)
            _ptrace(_CONTINUE, thread, None if event else sent)
        except ProcessLookupError:
            pass  # it was killed meanwhile


def _answer(thread: int, folder: str, trace: Trace, at: Callable[[int, Call, int], int | None]) -> None:
    registers = _Registers()
    _ptrace(_GET_REGISTERS, thread, ctypes.byref(registers))
    call = _read(thread, registers, folder)
    if call is None:
        return
    trace.calls.append(call)
    refusal = at(len(trace.calls), call, thread)
    if refusal is not None:
        registers.orig_rax = ctypes.c_ulonglong(-1).value  # no call: rax is what it seems to have returned
        registers.rax = ctypes.c_ulonglong(-refusal).value
        _ptrace(_SET_REGISTERS, thread, ctypes.byref(registers))


def _read(thread: int, registers: _Registers, folder: str) -> Call | None:
    """Return the call at which a thread was stopped, or None if it does not change the folder."""
    name = _NAMES[registers.orig_rax]
    arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10]
    if name in _FLAGS_ARGUMENT and not arguments[_FLAGS_ARGUMENT[name]] & _WRITING:
        return None
    if registers.orig_rax in _BY_DESCRIPTOR:
        paths = [_path_of(thread, arguments[0])]
    elif registers.orig_rax in _BY_PATH:
        paths = [_path_at(thread, _HERE, address) for address in arguments[: _paths_of(name)]]
    else:
        places = list(zip(arguments[::2], arguments[1::2], strict=True))[: _paths_of(name)]
        paths = [
            _path_at(thread, ctypes.c_int(descriptor & 0xFFFFFFFF).value, address)
            for descriptor, address in places
        ]
    inside = [path[len(folder) + 1 :] for path in paths if path == folder or path.startswith(folder + "/")]
    return Call(name, *inside) if inside else None


def _paths_of(name: str) -> int:
    return 2 if name.startswith(("rename", "link")) else 1


def _path_of(thread: int, descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/{thread}/fd/{descriptor}").removesuffix(" (deleted)")
    except OSError:  # it is not open: the call will say so
        return ""


def _path_at(thread: int, folder: int, address: int) -> str:
    """Return the path that a thread names, with no link in its folder followed: ours have none."""
    name = _text(thread, address)
    if name.startswith("/"):
        return os.path.normpath(name)
    start = os.readlink(f"/proc/{thread}/cwd") if folder == _HERE else _path_of(thread, folder)
    return os.path.normpath(f"{start}/{name}")


def _text(thread: int, address: int) -> str:
    """Read a C string, page by page: the next page may not be there."""
    found = b""
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        while b"\0" not in found:
            memory.seek(address + len(found))
            found += memory.read(4096 - (address + len(found)) % 4096)
    return os.fsdecode(found.partition(b"\0")[0])


def _stop_at_changes() -> None:
    """Let this process, and all that it starts, stop for its tracer at each call in `_NAMES`."""
    numbers = sorted(_NAMES)
    instructions = [_Instruction(_LOAD, 0, 0, 0)]  # the number of the call
    instructions += [
        _Instruction(_JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)
    ]
    instructions += [_Instruction(_RETURN, 0, 0, _ALLOW), _Instruction(_RETURN, 0, 0, _TRACE)]
    program = _Program(len(instructions), (_Instruction * len(instructions))(*instructions))
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if _libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) == -1:
        os._exit(ctypes.get_errno() or errno.EPERM)


def group_of(thread: int) -> int:
    """Return the process that a thread belongs to."""
    status = Path(f"/proc/{thread}/status").read_text()
    return int(status.partition("\nTgid:")[2].split(maxsplit=1)[0])
