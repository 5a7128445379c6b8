"""A child process that answers requests: started, asked, given up when it dies or hangs, started again.

`Child(module=...)` runs `python -m MODULE`, whose `main` ends in `harness.processes.serve.serve`;
`Child(answer=...)` is a copy of this process (see `harness.processes.fork`), there in milliseconds. The two
talk in lines of JSON over pipes of their own, so that nothing a kernel prints can look like an answer;
what is printed is kept, and its last lines are told when no answer comes. A child is the leader of a
session: what it has started, such as an assembler, ends with it, and it ends with the process that
started it, even where that one is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bitproof.harness import errors
from bitproof.harness.errors import BitproofError
from bitproof.harness.processes.fork import Copy, fork

STARTING = "starting"
START_LIMIT = 300.0

# How many lines are told, out of how many bytes that are kept.
_LINES = 8
_KEPT = 1 << 16
# What begins the part of a dying process's output that says why: a compiler's, or faulthandler's.
_TELLING = ("LLVM ERROR", "Assertion", "Fatal Python error", "Stack (most recent call first)")
# What Linux lets a pipe hold at most, unless told otherwise.
_CAPACITY = 1 << 20
# Seconds that a killed process gets to go, and a hanging one to print its stack.
_REAPED = 10.0
_STACK = 0.5


class Lost(Exception):
    """No answer came. The text continues "the process ...".

    stage   what the child was doing, as it said itself; STARTING before it was ready, "" mostly
    words   what it last wrote to its output, at most 8 lines, from where it says why if it does
    """

    def __init__(self, how: str, *, stage: str, printed: str) -> None:
        """`printed` is all that is known of the child's output since it was asked."""
        super().__init__(how)
        self.stage = stage
        lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
        self.words = tuple(lines[_pick_line(lines) :][:_LINES])

    @property
    def telling(self) -> str:
        """The line of `words` that says most: the one that begins an explanation, else the last."""
        if not self.words:
            return "it printed nothing"
        explained = _pick_line(list(self.words)) == 0 and _explains(self.words[0])
        return self.words[0 if explained else -1].strip()[:300]


class Died(Lost):
    """The child ended: `code` is its exit code, or minus the number of the signal that killed it."""

    def __init__(self, code: int, *, stage: str, printed: str) -> None:
        """The same arguments as `Lost`, but for the code."""
        how = f"died of {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        super().__init__(how, stage=stage, printed=printed)
        self.code = code


class Hung(Lost):
    """The child gave no answer within `limit` seconds, and was killed."""

    def __init__(self, limit: float, *, stage: str, printed: str) -> None:
        """The same arguments as `Lost`, but for the limit."""
        while_ = f" while {stage}" if stage else ""
        super().__init__(f"gave no answer within {limit:g} s{while_}", stage=stage, printed=printed)
        self.limit = limit


def signal_name(number: int) -> str:
    """SIGSEGV for 11; "signal 40" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(kw_only=True, eq=False)
class Child:
    """One child process, started when first asked and again after it was lost or closed.

    module        what it runs, with `arguments`; "" where it is a copy of this process
    answer        what a copy answers a request by, plain JSON values both
    environment   what is added to this process's environment, which it gets with the same import path
    start_limit   seconds until it has to be ready, importing included

    One thread asks at a time. A forked copy of this process starts a child of its own.
    """

    module: str = ""
    answer: Callable[[Any], Any] | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    start_limit: float = START_LIMIT
    _process: _Process | None = field(default=None, init=False, repr=False)

    def ask(self, request: Any, limit: float, *, stages: Mapping[str, float] | None = None) -> Any:
        """The child's answer to `request`, both plain JSON values.

        `limit` is in seconds and does not count the start. What the child spends in a stage that it announces
        (`serve.stage`) and that `stages` names counts against that stage's own limit instead.

        Raises Died or Hung, after which the next request meets a new child, and what the child itself raised
        where that is one of this project's errors.
        """
        told = self._exchange(json.dumps(request), {"": limit, **(stages or {})})
        if "error" in told:
            raise getattr(errors, told["error"], BitproofError)(told["text"])
        return told["answer"]

    def _exchange(self, request: str, limits: Mapping[str, float]) -> dict[str, Any]:
        if self._process is not None and not self._process.alive():
            self.close()
        try:
            if self._process is None:
                self._process = _Process(self._begin)
                atexit.register(self.close)
                self._process.converse("", {"": self.start_limit}, stage=STARTING)
            return self._process.converse(request, limits)
        except BaseException:  # a Ctrl-C too: what the child would answer later is for nobody
            self.close()
            raise

    def _begin(
        self, theirs: tuple[int, int, int], ours: tuple[int, ...], printed: int
    ) -> subprocess.Popen[bytes] | Copy:
        """The process, with its ends of the pipes, and `printed` as its output."""
        if self.answer is not None:
            return fork(self.answer, theirs, ours, printed)
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", self.module]
        return subprocess.Popen(
            [*command, ",".join(map(str, theirs)), *self.arguments],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            pass_fds=theirs,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": _import_path(), **self.environment},
        )

    def kill(self) -> None:
        """Kill the process from another thread than the asking one, whose `ask` raises Died."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process, and all that it started; nothing happens where there is none."""
        process, self._process = self._process, None
        if process is not None:
            atexit.unregister(self.close)
            process.end()


class _Process:
    """One running child, its pipes, and the end of what it printed."""

    def __init__(
        self,
        begin: Callable[
            [tuple[int, int, int], tuple[int, ...], int], subprocess.Popen[bytes] | Copy
        ],
    ) -> None:
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._printed, printed = os.pipe()
        lifeline, self._lifeline = os.pipe()
        theirs = (requests, answers, lifeline)
        ours = (self._requests, self._answers, self._printed, self._lifeline)
        try:
            self._popen = begin(theirs, ours, printed)
            self._ended = os.pidfd_open(self._popen.pid)
        except BaseException:
            _close(ours)
            raise
        finally:
            _close((*theirs, printed))
        self._ending = select.poll()
        self._ending.register(self._ended, select.POLLIN)
        self._owner = os.getpid()
        self._ours: tuple[int, ...] = (*ours, self._ended)
        self._lock = threading.Lock()
        self._unread = bytearray()
        self._tail = bytearray()
        self._heard = {self._answers, self._printed, self._ended}
        for pipe in (self._requests, self._answers, self._printed):
            os.set_blocking(pipe, False)

    def alive(self) -> bool:
        """Whether it runs, as a child of this very process."""
        # Not by reaping it, which would leave what it started out of reach.
        return self._owner == os.getpid() and not self._ending.poll(0)

    def converse(
        self, request: str, limits: Mapping[str, float], *, stage: str = ""
    ) -> dict[str, Any]:
        """Send a request, none where it is empty, and wait for what the child tells of it."""
        self._tail.clear()
        unsent = memoryview(f"{request}\n".encode() if request else b"")
        left = dict(limits)
        while True:
            while line := self._line():
                told: dict[str, Any] = json.loads(line)
                if "stage" not in told:
                    return told
                stage = told["stage"]
            if self._ended not in self._heard:
                raise Died(self.end(), stage=stage, printed=self._words())
            counted = stage if stage in left else ""
            if left[counted] <= 0:
                self._ask_where()
                self.end()
                raise Hung(limits[counted], stage=stage, printed=self._words())
            began = time.monotonic()
            unsent = self._wait(left[counted], unsent)
            left[counted] -= time.monotonic() - began

    def _wait(self, seconds: float, unsent: memoryview) -> memoryview:
        """Wait for the child to print, answer or end, or to take some of the request; what is left of it."""
        poll = select.poll()
        for pipe in self._heard:
            poll.register(pipe, select.POLLIN)
        if unsent:
            poll.register(self._requests, select.POLLOUT)
        ready = {pipe for pipe, _ in poll.poll(min(seconds, 3600.0) * 1000)}
        if self._requests in ready:
            try:
                unsent = unsent[os.write(self._requests, unsent) :]
            except BrokenPipeError:
                unsent = unsent[len(unsent) :]
        # An answer counts also of a child that ended right after it.
        if self._ended in ready:
            self._heard.discard(self._ended)
        for pipe, kept in ((self._answers, self._unread), (self._printed, self._tail)):
            if pipe in self._heard and not _drain(pipe, kept):
                self._heard.discard(pipe)
        del self._tail[:-_KEPT]
        return unsent

    def _line(self) -> bytes:
        """The next line of what the child told, b"" where none is complete."""
        line, end, rest = self._unread.partition(b"\n")
        if not end:
            return b""
        self._unread = bytearray(rest)
        return bytes(line)

    def _ask_where(self) -> None:
        """Have the child print its stack, which `serve` arranged for."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._ended, signal.SIGUSR1)
        until = time.monotonic() + _STACK
        while (left := until - time.monotonic()) > 0 and self._ended in self._heard:
            self._wait(left, memoryview(b""))

    def _words(self) -> str:
        return self._tail.decode(errors="replace")

    def kill(self) -> None:
        """Kill its session."""
        with self._lock:
            # Once reaped, its number may be another's.
            if self._popen.returncode is None and self._owner == os.getpid():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._popen.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill and reap it and close its pipes; its exit code, also when it has ended by itself."""
        if self._owner != os.getpid():
            self._popen.returncode = 0  # it is the other process's to end
        self.kill()
        try:
            self._popen.wait(timeout=_REAPED)
        except subprocess.TimeoutExpired:  # a driver holds it: it goes when that lets go
            threading.Thread(target=self._popen.wait, daemon=True).start()
        ours, self._ours = self._ours, ()
        if self._printed in ours and self._printed in self._heard:
            _drain(self._printed, self._tail)
        _close(ours)
        code = self._popen.returncode
        return -signal.SIGKILL if code is None else code


def _drain(pipe: int, kept: bytearray) -> bool:
    """Add what is in a pipe to `kept`, at most what a pipe can hold; False once it is closed."""
    for _ in range(_CAPACITY // _KEPT):  # or whoever prints for ever would be read for ever
        try:
            read = os.read(pipe, _KEPT)
        except BlockingIOError:
            return True
        if not read:
            return False
        kept += read
    return True


def _close(pipes: tuple[int, ...]) -> None:
    for pipe in pipes:
        os.close(pipe)


def _import_path() -> str:
    """This process's import path, for a child to import the same modules from."""
    return os.pathsep.join(os.path.abspath(part) for part in sys.path)


def _explains(line: str) -> bool:
    return any(mark in line for mark in _TELLING)


def _pick_line(lines: list[str]) -> int:
    """Where an explanation begins, else where the last lines do."""
    marked = [place for place, line in enumerate(lines) if _explains(line)]
    return marked[0] if marked else max(len(lines) - _LINES, 0)
