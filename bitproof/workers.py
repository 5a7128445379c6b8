"""What each process of a run gets of the machine: its own caches, one card, a share of that card's memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bitproof.harness import lanes
from bitproof.harness.errors import UsageError

CACHE = Path(".bitproof") / "cache"
CARDS = Path(".bitproof") / "cards"
# Of a card's memory, what its workers' allocations may take together: contexts and the driver need the rest.
_SHARED = 0.9
_SHARE = "per_process_memory_fraction"
# A worker that dies is replaced so often: its death is one failure, and no reason to end the run.
_RESTARTS = 1_000_000

T = TypeVar("T")


def name_of(config: Any) -> str:
    """The name of this pytest-xdist worker, "" in the controller or without xdist."""
    return str(getattr(config, "workerinput", {}).get("workerid", ""))


def count(config: Any) -> int:
    """How many workers the run has, 1 without xdist."""
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


def outlive_crashes(config: Any) -> None:
    """Have pytest-xdist replace every worker that dies, unless the caller said how many."""
    if getattr(config.option, "maxworkerrestart", "") is None:
        config.option.maxworkerrestart = str(_RESTARTS)


def separate(worker: str, workers: int = 1) -> None:
    """Give this process its own compile cache, and one worker of `workers` what is its own.

    That is one card of those that the caller allows, its share of the card's memory, and one thread for each
    library, unless the caller set these. Call it before anything imports CUDA; it needs none.
    """
    if "TRITON_CACHE_DIR" not in os.environ or worker:
        os.environ["TRITON_CACHE_DIR"] = str((CACHE / (worker or "main")).resolve())
    if not worker:
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not lanes.gpus():
        return
    listed = os.environ.get("BITPROOF_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES")
    every = ",".join(str(i) for i in range(lanes.gpus()))
    devices = [device.strip() for device in (listed or every).split(",")]
    os.environ["BITPROOF_DEVICES"] = ",".join(devices)
    place = int(worker.removeprefix("gw")) % len(devices)
    os.environ["CUDA_VISIBLE_DEVICES"] = devices[place]
    # Workers that were replaced have numbers beyond the others', so that a card's share is rounded up.
    sharers = -(-workers // len(devices))
    if sharers > 1 and not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & set(os.environ):
        os.environ["PYTORCH_ALLOC_CONF"] = f"{_SHARE}:{_SHARED / sharers:.4f}"


@contextlib.contextmanager
def hold_card(*, alone: bool) -> Iterator[None]:
    """Keep this process's card: with the others of a run that hold it so, or alone, with all of its memory.

    Whoever wants it alone waits for those that hold it, and whoever comes later waits for him.
    """
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").replace("/", "-")
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with (
        _lock(CARDS / f"{card}.turn", fcntl.LOCK_EX) as turn,
        _lock(CARDS / f"{card}.held", kind),
    ):
        fcntl.lockf(turn, fcntl.LOCK_UN)
        share = os.environ.get("PYTORCH_ALLOC_CONF", "")
        if alone and share.startswith(_SHARE):
            del os.environ["PYTORCH_ALLOC_CONF"]
        try:
            yield
        finally:
            if share:
                os.environ["PYTORCH_ALLOC_CONF"] = share


@contextlib.contextmanager
def _lock(path: Path, kind: int) -> Iterator[int]:
    """The file, locked for this process; a copy of the process does not inherit the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.lockf(held, kind)
        yield held
    finally:
        os.close(held)


def share_out(items: Sequence[T], shard: str | None) -> tuple[list[T], list[T]]:
    """(those of this machine, the others') where `shard` is "K/N": every N-th from the K-th on.

    UsageError for any other text. None leaves all of them here.
    """
    if shard is None:
        return list(items), []
    number, _, total = shard.partition("/")
    if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise UsageError(f"--shard must be K/N with K from 1 to N, such as 1/4, got {shard!r}")
    ours: list[T] = []
    others: list[T] = []
    for place, item in enumerate(items):
        (ours if place % int(total) == int(number) - 1 else others).append(item)
    return ours, others
