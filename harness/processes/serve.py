"""What runs in a child process: requests in, answers out, until the process that asks is gone.

`main` of a module that `child.Child` starts ends in `serve(answer)`. Whatever it imports before that counts
as its start, not as its answer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bitproof.harness.errors import BitproofError

# Linux's fcntl command that chooses the signal of O_ASYNC; Python 3.11 has no name for it.
_F_SETSIG = 10


@dataclass(kw_only=True)
class _Channel:
    """Where this process tells its parent things."""

    pipe: int
    owner: int
    stage: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, told: dict[str, Any]) -> None:
        if os.getpid() != self.owner:
            os._exit(1)  # a launcher forked, and the copy came back to answer as well
        line = json.dumps(told, default=str).encode() + b"\n"
        with self.lock:
            while line:
                line = line[os.write(self.pipe, line) :]


_channel: _Channel | None = None


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer each request by `answer(request)`, plain JSON values both, until there are no more.

    One of this project's errors is raised where the request came from; any other exception ends this process,
    as what a kernel does to it may.
    """
    requests, answers, lifeline = (int(pipe) for pipe in sys.argv.pop(1).split(","))
    serve_on((requests, answers, lifeline), answer)


def serve_on(pipes: tuple[int, int, int], answer: Callable[[Any], Any]) -> None:
    """`serve` on these pipes: where requests come from, where answers go, and the parent's lifeline."""
    global _channel
    requests, answers, lifeline = pipes
    for pipe in pipes:
        os.set_inheritable(pipe, False)
    _die_with(lifeline)
    # Sent to a process that hangs, to learn where.
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    _channel = _Channel(pipe=answers, owner=os.getpid())
    _channel.tell({"answer": None})  # ready
    with open(requests, "rb") as lines:
        for line in lines:
            try:
                told = {"answer": answer(json.loads(line))}
            except BitproofError as error:
                told = {"error": type(error).__name__, "text": str(error)}
            _channel.tell(told)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """While active, this process says that it is at `name`, such as "compiling".

    Time spent there counts against a limit of its own where whoever asks has set one. Nothing happens in a
    process that no parent asks.
    """
    channel = _channel
    if channel is None:
        yield
        return
    outer, channel.stage = channel.stage, name
    channel.tell({"stage": name})
    try:
        yield
    finally:
        channel.stage = outer
        channel.tell({"stage": outer})


def _die_with(lifeline: int) -> None:
    """Have the kernel kill this process and what it started once the other end of a pipe is closed.

    Nobody writes to it: it closes when the parent ends, however that comes about. A thread that waited for
    that would not be heard while code outside of Python holds the interpreter's lock.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
