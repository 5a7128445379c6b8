"""A child that does what it is asked, most of it bad: `python -m tests.harness.processes.answering`."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import bitproof
from bitproof.harness.errors import SpecError
from bitproof.harness.processes.serve import serve, stage


def echo(what: Any) -> Any:
    """What was asked."""
    return what


def about(_: Any) -> dict[str, Any]:
    """What this process is and what it can see."""
    return {
        "pid": os.getpid(),
        "arguments": sys.argv[1:],
        "bitproof": bitproof.__file__,
        "path": sys.path,
        "variable": os.environ.get("BITPROOF_TEST"),
    }


def prints(text: str) -> None:
    """To standard output, to standard error, and by a process of its own."""
    print(text, flush=True)
    print(text, file=sys.stderr, flush=True)
    subprocess.run(["echo", text], check=True)


def dies(code: int) -> None:
    """Without a word."""
    os._exit(code)


def leaves(what: Any) -> None:
    """As Python programs do."""
    sys.exit(what)


def killed(number: int) -> None:
    """By this signal."""
    os.kill(os.getpid(), number)
    time.sleep(60)


def reads_nowhere(_: Any) -> None:
    """A wild pointer."""
    ctypes.string_at(0)


def raises(kind: str) -> None:
    """An error of ours, or one that is not."""
    raise SpecError("the spec's mistake") if kind == "SpecError" else ValueError("no\nnumber")


def loops(_: Any) -> None:
    """For ever."""
    while True:
        pass


def floods(_: Any) -> None:
    """Prints for ever."""
    while True:
        os.write(2, b"more\n" * 1000)


def starts(seconds: int) -> int:
    """A process of its own, which holds all that it can inherit."""
    return subprocess.Popen(["sleep", str(seconds)], close_fds=False).pid


def starts_and_dies(seconds: int) -> None:
    """While a copy of it lives on."""
    if not os.fork():
        time.sleep(seconds)
        os._exit(0)
    os._exit(3)


def starts_and_hangs(path: str) -> None:
    """Leaves the other process's number in a file."""
    with open(path, "w") as file:
        file.write(str(starts(1000)))
    loops(None)


def forks(_: Any) -> int:
    """Comes back twice."""
    os.fork()
    return os.getpid()


def closes(_: Any) -> None:
    """All files but the standard ones."""
    os.closerange(3, 1000)
    time.sleep(60)


def compiles(seconds: float) -> str:
    """Says so meanwhile."""
    with stage("compiling"):
        time.sleep(seconds)
    return "compiled"


def runs(seconds: float) -> str:
    """After it has compiled."""
    compiles(0.0)
    time.sleep(seconds)
    return "ran"


DEEDS: tuple[Callable[[Any], Any], ...] = (
    *(about, closes, compiles, dies, echo, floods, forks, killed, leaves, loops, prints, raises),
    *(reads_nowhere, runs, starts, starts_and_dies, starts_and_hangs),
)


def answer(request: dict[str, Any]) -> Any:
    """Do the one deed that is named."""
    ((name, what),) = request.items()
    return next(deed for deed in DEEDS if deed.__name__ == name)(what)


if __name__ == "__main__":
    if "stillborn" in sys.argv:
        sys.exit("cannot start")
    if "slow" in sys.argv:
        time.sleep(60)
    serve(answer)
