"""What each process of a run gets of the machine, and which tests each machine of several."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdist.dsession import get_default_max_worker_restart

from bitproof import workers
from bitproof.harness import lanes
from bitproof.harness.errors import UsageError
from bitproof.suite import Suite

ENVIRONMENT = (
    "BITPROOF_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TRITON_CACHE_DIR",
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What `separate` sets is undone, and nothing of it is set before."""
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("allowed", "cards", "expected"),
    [
        (None, 4, {"gw0": "0", "gw1": "1", "gw3": "3", "gw5": "1"}),
        ("1", 1, {"gw0": "1", "gw7": "1"}),
        ("2, 5", 2, {"gw0": "2", "gw1": "5", "gw2": "2"}),
        ("GPU-abc,GPU-def", 2, {"gw1": "GPU-def"}),
    ],
)
def test_workers_stay_inside_the_callers_cards(
    environment: pytest.MonkeyPatch, allowed: str | None, cards: int, expected: dict[str, str]
) -> None:
    """One card each, round robin over those that the caller may use; also after a restart."""
    environment.setattr(lanes, "gpus", lambda: cards)
    for worker, card in expected.items():
        environment.delenv("BITPROOF_DEVICES", raising=False)
        if allowed is not None:
            environment.setenv("CUDA_VISIBLE_DEVICES", allowed)
        for _ in range(2):
            workers.separate(worker)
            assert os.environ["CUDA_VISIBLE_DEVICES"] == card
        if allowed is None:
            environment.delenv("CUDA_VISIBLE_DEVICES")


def test_processes_compile_into_caches_of_their_own(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker never shares a cache, a lone process keeps the caller's."""
    environment.chdir(tmp_path)
    environment.setattr(lanes, "gpus", lambda: 0)
    environment.delenv("TRITON_CACHE_DIR", raising=False)
    seen = []
    for worker in ("", "gw0", "gw1"):
        workers.separate(worker)
        seen.append(Path(os.environ["TRITON_CACHE_DIR"]))
        assert seen[-1].is_absolute()
    assert len(set(seen)) == 3
    environment.setenv("TRITON_CACHE_DIR", "/theirs")
    workers.separate("")
    assert os.environ["TRITON_CACHE_DIR"] == "/theirs"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize(
    ("cards", "processes", "share"),
    [(1, 8, "0.1125"), (4, 8, "0.4500"), (3, 8, "0.3000"), (8, 8, None), (1, 1, None)],
)
def test_workers_share_the_memory_of_a_card(
    environment: pytest.MonkeyPatch, cards: int, processes: int, share: str | None
) -> None:
    """So that none starves the others; a worker with a card of its own has all of it."""
    environment.setattr(lanes, "gpus", lambda: cards)
    workers.separate("gw0", processes)
    told = os.environ.get("PYTORCH_ALLOC_CONF")
    assert told == (f"per_process_memory_fraction:{share}" if share else None)


def test_what_the_caller_set_stays(environment: pytest.MonkeyPatch) -> None:
    """Threads and the allocator's settings, under either of its names; else a worker has one thread."""
    environment.setattr(lanes, "gpus", lambda: 1)
    workers.separate("gw0", 2)
    assert os.environ["OMP_NUM_THREADS"] == "1"
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        environment.delenv("PYTORCH_ALLOC_CONF", raising=False)
        environment.setenv(name, "expandable_segments:True")
        environment.setenv("OMP_NUM_THREADS", "3")
        workers.separate("gw1", 2)
        assert os.environ[name] == "expandable_segments:True"
        assert os.environ["OMP_NUM_THREADS"] == "3"
        environment.delenv(name)
        assert "PYTORCH_ALLOC_CONF" not in os.environ


@pytest.mark.parametrize(("said", "restarts"), [(None, 1_000_000), ("3", 3)])
def test_dying_workers_are_replaced_for_ever(said: str | None, restarts: int) -> None:
    """Unless the caller says how many are."""
    config = SimpleNamespace(option=SimpleNamespace(maxworkerrestart=said, numprocesses=2))
    workers.outlive_crashes(config)
    assert get_default_max_worker_restart(config) == restarts
    workers.outlive_crashes(SimpleNamespace(option=SimpleNamespace()))  # without pytest-xdist


@given(st.lists(st.integers(), max_size=30), st.integers(1, 9))
def test_shards_share_out_every_test_once(items: list[int], total: int) -> None:
    """Evenly, whatever their number."""
    shards = [workers.share_out(items, f"{number}/{total}") for number in range(1, total + 1)]
    assert sorted(item for ours, _ in shards for item in ours) == sorted(items)
    assert all(sorted(ours + others) == sorted(items) for ours, others in shards)
    sizes = [len(ours) for ours, _ in shards]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", ""])
def test_what_is_no_shard_is_one_sentence(shard: str) -> None:
    """It says what is."""
    with pytest.raises(UsageError, match="--shard must be K/N with K from 1 to N, such as 1/4"):
        workers.share_out((), shard)


def _take_turns(folder: str, alone: bool, rounds: int) -> None:
    """Hold the card again and again, and write when it began and ended."""
    os.chdir(folder)
    for _ in range(rounds):
        with workers.hold_card(alone=alone):
            began = time.monotonic()
            time.sleep(0.02)
            line = f"{int(alone)} {began} {time.monotonic()}\n"
        with open("turns", "a") as turns:
            turns.write(line)


def test_who_wants_a_card_alone_has_it_alone(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Among three processes that share it all the time, which do not starve him; they do share it."""
    environment.setenv("CUDA_VISIBLE_DEVICES", "5")
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=_take_turns, args=(str(tmp_path), place == 0, 8)) for place in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    lines = [line.split() for line in (tmp_path / "turns").read_text().splitlines()]
    turns = [(kind == "1", float(began), float(ended)) for kind, began, ended in lines]
    assert len(turns) == 32
    pairs = list(itertools.combinations(turns, 2))
    overlapping = [(one, two) for one, two in pairs if one[1] < two[2] and two[1] < one[2]]
    assert overlapping
    assert not any(one[0] or two[0] for one, two in overlapping)
    last = max(ended for alone, _, ended in turns if alone)
    assert any(began > last for _, began, _ in turns)


def test_cards_are_held_apart(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody waits for another card, nor a process for itself between two turns."""
    environment.chdir(tmp_path)
    environment.setenv("CUDA_VISIBLE_DEVICES", "0")
    with workers.hold_card(alone=True):
        environment.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-1/2/3")
        with workers.hold_card(alone=True):
            pass
    with workers.hold_card(alone=False):
        pass


@pytest.mark.parametrize("said", [None, "expandable_segments:True"])
def test_who_has_a_card_alone_has_all_its_memory(
    environment: pytest.MonkeyPatch, tmp_path: Path, said: str | None
) -> None:
    """The share comes back afterwards; what the caller set stays all the time."""
    environment.chdir(tmp_path)
    environment.setattr(lanes, "gpus", lambda: 1)
    if said is not None:
        environment.setenv("PYTORCH_ALLOC_CONF", said)
    workers.separate("gw0", 2)
    share = os.environ["PYTORCH_ALLOC_CONF"]
    with workers.hold_card(alone=True):
        assert os.environ.get("PYTORCH_ALLOC_CONF") == said
    with workers.hold_card(alone=False):
        assert os.environ["PYTORCH_ALLOC_CONF"] == share
    assert os.environ["PYTORCH_ALLOC_CONF"] == share


@pytest.mark.parametrize(
    ("lane", "wanted"), [("cuda", True), ("cuda", False), ("interpreter", True)]
)
def test_a_run_takes_turns_where_a_spec_asks_for_a_card_alone(
    environment: pytest.MonkeyPatch, lane: str, wanted: bool
) -> None:
    """On cards alone, and by every kernel of the run; the judging process ends with its turn."""
    held: list[bool] = []

    @contextlib.contextmanager
    def hold(*, alone: bool) -> Iterator[None]:
        held.append(alone)
        yield

    environment.setattr(workers, "hold_card", hold)
    config: Any = SimpleNamespace(workerinput={"workerid": "gw0", "workercount": 2})
    suite = Suite(config, lane, "bitproof")
    kernels: Any = [SimpleNamespace(spec=SimpleNamespace(alone=alone)) for alone in (wanted, False)]
    closed: list[bool] = []

    def search(check: str, kernel: object) -> object:
        suite._execute = SimpleNamespace(close=lambda: closed.append(True))  # type: ignore[assignment]
        return (check, kernel)

    environment.setattr(suite, "_specs", lambda: tuple(kernels))
    environment.setattr(suite, "_search", search)
    for kernel in kernels:
        assert suite._judge("agreement", kernel) == ("agreement", kernel)
    turns = lane == "cuda" and wanted
    assert held == ([True, False] if turns else [])
    assert closed == ([True, True] if turns else [])
