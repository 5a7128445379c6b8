"""A copy of this process that answers requests: everything that is imported and warm here is so there.

For processes that have opened no device but the CPU: no driver outlives a fork, but a copy may open one.
Threads are not copied, so that a copy computes with one thread (`lanes.present` asks for that).
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bitproof.harness.processes.serve import serve_on

# Seconds between two looks at whether a copy has ended, while that is waited for.
_LOOK = 0.001


@dataclass(kw_only=True, eq=False)
class Copy:
    """What `subprocess.Popen` is for a program: `returncode` is None until the copy was reaped."""

    pid: int
    returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Reap it; its exit code, or minus the signal that killed it.

        subprocess.TimeoutExpired after `timeout` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else reaped it, and knows how it ended
                self.returncode = -signal.SIGKILL
                break
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
                break
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"copy {self.pid}", timeout or 0.0)
            time.sleep(_LOOK)
        return self.returncode


def fork(
    answer: Callable[[Any], Any],
    theirs: tuple[int, int, int],
    ours: tuple[int, ...],
    printed: int,
) -> Copy:
    """A copy that answers what comes over `theirs` until this process ends, and prints to `printed`.

    `ours` are this process's ends of the same pipes. The copy leads a session of its own and returns nowhere.
    """
    with warnings.catch_warnings():
        # Python warns where other threads run, since they may hold a lock for ever. What the copy does takes
        # Python's own locks, which are made anew, and none of a progress bar's or of pytest-xdist's.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return Copy(pid=pid)
    code = 1
    try:
        os.setsid()
        for pipe in ours:
            os.close(pipe)
        _print_to(printed)
        serve_on(theirs, answer)
        code = 0
    except BaseException:  # nothing may return into what the other process goes on with
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _print_to(pipe: int) -> None:
    """Have Python and everything else print to `pipe`, whatever captured output before, and read nothing."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (pipe, 1), (pipe, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(pipe)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable(file=sys.stderr)
