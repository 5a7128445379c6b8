"""A child process answers, or it is said how it ended; nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bitproof
from bitproof.harness.errors import SpecError
from bitproof.harness.processes.child import STARTING, Child, Died, Hung, Lost
from bitproof.harness.processes.serve import stage

LIMIT = 60.0


@pytest.fixture
def child() -> Iterator[Child]:
    """One that does what `answering` can."""
    child = Child(module="tests.harness.processes.answering", arguments=("one", "two"))
    yield child
    child.close()


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def ends(pid: int) -> bool:
    """Whether a process is gone within a few seconds."""
    until = time.monotonic() + 10
    while running(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not running(pid)


def lost(child: Child, request: dict[str, Any], limit: float = LIMIT) -> Lost:
    """How a child that gives no answer was lost."""
    with pytest.raises(Lost) as caught:
        child.ask(request, limit)
    return caught.value


def pid_of(child: Child) -> int:
    """The process that answers."""
    pid: int = child.ask({"about": None}, LIMIT)["pid"]
    return pid


def test_it_answers_in_a_process_of_its_own(child: Child) -> None:
    """With the same import path and the arguments and environment it was given, one for all requests."""
    told = child.ask({"about": None}, LIMIT)
    assert told["arguments"] == ["one", "two"]
    assert told["bitproof"] == bitproof.__file__
    assert told["pid"] != os.getpid()
    known = {os.path.abspath(part) for part in sys.path}
    assert set(told["path"]) >= {part for part in known if os.path.exists(part)}
    assert pid_of(child) == told["pid"]
    other = Child(module=child.module, environment={"BITPROOF_TEST": "here"})
    assert other.ask({"about": None}, LIMIT)["variable"] == "here"
    other.close()


def test_the_folder_at_hand_shadows_no_module(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file called as a module of ours or of Python is not imported for lying there."""
    for name in ("json.py", "bitproof.py", "tests.py"):
        (tmp_path / name).write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    assert child.ask({"echo": 1}, LIMIT) == 1


def test_large_requests_and_answers_pass_whole(child: Child) -> None:
    """Larger than a pipe holds."""
    text = "0123456789" * 300_000
    assert child.ask({"echo": text}, LIMIT) == text


def test_what_is_printed_is_no_answer(child: Child) -> None:
    """By Python, and by processes of its own; in the very form of an answer too."""
    assert child.ask({"prints": '{"answer": "false"}'}, LIMIT) is None
    assert child.ask({"echo": "true"}, LIMIT) == "true"


@pytest.mark.parametrize(
    ("request_", "how", "code"),
    [
        ({"dies": 7}, "ended with exit code 7", 7),
        ({"dies": 0}, "ended with exit code 0", 0),
        ({"leaves": 3}, "ended with exit code 3", 3),
        ({"killed": int(signal.SIGKILL)}, "died of SIGKILL", -9),
        ({"killed": int(signal.SIGFPE)}, "died of SIGFPE", -8),
        ({"killed": 40}, "died of signal 40", -40),
    ],
)
def test_a_death_is_told_by_its_code_or_signal(
    child: Child, request_: dict[str, Any], how: str, code: int
) -> None:
    """And the next request meets a new child."""
    first = pid_of(child)
    death = lost(child, request_)
    assert isinstance(death, Died)
    assert (str(death), death.code, death.stage) == (how, code, "")
    assert not Path(f"/proc/{first}").exists()
    assert pid_of(child) != first


def test_the_last_words_say_why(child: Child) -> None:
    """Of a crash the stack, of an exception its last lines; of an earlier request nothing."""
    child.ask({"prints": "earlier"}, LIMIT)
    death = lost(child, {"reads_nowhere": None})
    assert str(death) == "died of SIGSEGV"
    assert death.telling == "Fatal Python error: Segmentation fault"
    assert any("in reads_nowhere" in word or "string_at" in word for word in death.words)
    death = lost(child, {"raises": "ValueError"})
    assert str(death) == "ended with exit code 1"
    assert death.words[-2:] == ("ValueError: no", "number")
    assert len(death.words) <= 8
    assert lost(child, {"leaves": "enough of it"}).telling == "enough of it"
    assert lost(child, {"dies": 1}).telling == "it printed nothing"


def test_an_error_of_ours_is_raised_here(child: Child) -> None:
    """As it was there, and the child lives on."""
    first = pid_of(child)
    with pytest.raises(SpecError, match="the spec's mistake"):
        child.ask({"raises": "SpecError"}, LIMIT)
    assert pid_of(child) == first


@pytest.mark.parametrize("deed", ["loops", "floods", "closes"])
def test_a_child_that_gives_no_answer_hangs(child: Child, deed: str) -> None:
    """Whether it is silent, prints for ever, or has closed what it would answer by."""
    first = pid_of(child)
    hang = lost(child, {deed: None}, 0.3)
    assert isinstance(hang, Hung)
    assert str(hang) == "gave no answer within 0.3 s"
    assert not Path(f"/proc/{first}").exists()
    assert child.ask({"echo": 1}, LIMIT) == 1


def test_a_hang_is_told_with_its_place(child: Child) -> None:
    """The function that does not return is among the last words."""
    child.ask({"echo": 1}, LIMIT)
    hang = lost(child, {"loops": None}, 0.3)
    assert any("in loops" in word for word in hang.words)


def test_what_it_started_ends_with_it(child: Child, tmp_path: Path) -> None:
    """An assembler of a hung compiler does not stay; nor do processes of a child that is closed."""
    child.ask({"echo": 1}, LIMIT)
    note = tmp_path / "pid"
    assert isinstance(lost(child, {"starts_and_hangs": str(note)}, 0.5), Hung)
    assert ends(int(note.read_text()))
    started = child.ask({"starts": 1000}, LIMIT)
    assert running(started)
    child.close()
    assert ends(started)


def test_a_death_is_noticed_though_others_hold_its_pipes(child: Child) -> None:
    """A process that it forked would keep them open for a minute."""
    child.ask({"echo": 1}, LIMIT)
    began = time.monotonic()
    assert str(lost(child, {"starts_and_dies": 60})) == "ended with exit code 3"
    assert time.monotonic() - began < 30


def test_a_launcher_that_forks_is_answered_for_once(child: Child) -> None:
    """Its copy, which comes back as well, is no second child."""
    first = pid_of(child)
    assert child.ask({"forks": None}, LIMIT) == first
    assert child.ask({"echo": 1}, LIMIT) == 1
    assert child.ask({"echo": 2}, LIMIT) == 2


def test_a_stage_has_a_limit_of_its_own(child: Child) -> None:
    """Time spent compiling does not count as the kernel's, where the asking side says so."""
    child.ask({"echo": 1}, LIMIT)
    assert child.ask({"compiles": 0.6}, 0.3, stages={"compiling": LIMIT}) == "compiled"
    with pytest.raises(Hung, match=r"gave no answer within 0.3 s while compiling$"):
        child.ask({"compiles": 60}, LIMIT, stages={"compiling": 0.3})
    child.ask({"echo": 1}, LIMIT)
    with pytest.raises(Hung, match=r"gave no answer within 0.3 s while compiling$"):
        child.ask({"compiles": 60}, 0.3)
    child.ask({"echo": 1}, LIMIT)
    with pytest.raises(Hung, match=r"gave no answer within 0.3 s$"):
        child.ask({"runs": 60}, 0.3, stages={"compiling": LIMIT})


def test_a_stage_is_nothing_in_a_process_that_is_no_child() -> None:
    """The same code runs in this process."""
    with stage("compiling"):
        pass


def test_a_child_that_cannot_start_says_so() -> None:
    """It was never asked: no kernel is to blame."""
    child = Child(module="tests.harness.processes.answering", arguments=("stillborn",))
    death = lost(child, {"echo": 1})
    assert (death.stage, death.words) == (STARTING, ("cannot start",))
    slow = Child(module="tests.harness.processes.answering", arguments=("slow",), start_limit=0.3)
    assert str(lost(slow, {"echo": 1})) == "gave no answer within 0.3 s while starting"


def test_a_child_that_ended_unasked_is_replaced(child: Child) -> None:
    """Without anybody being told: it had answered all that it was asked."""
    first = pid_of(child)
    os.kill(first, signal.SIGKILL)
    assert ends(first)
    assert pid_of(child) != first


def test_an_interrupted_request_leaves_no_answer_behind(child: Child) -> None:
    """What comes late is not taken for the answer to the next."""
    first = pid_of(child)
    here = threading.get_ident()
    timer = threading.Timer(0.3, signal.pthread_kill, [here, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        child.ask({"runs": 5}, LIMIT)
    assert not Path(f"/proc/{first}").exists()
    assert child.ask({"echo": 1}, LIMIT) == 1


def test_another_thread_can_kill_it(child: Child) -> None:
    """Who waits for an answer hears of a death."""
    child.ask({"echo": 1}, LIMIT)
    timer = threading.Timer(0.3, child.kill)
    timer.start()
    assert str(lost(child, {"loops": None})) == "died of SIGKILL"


def test_a_forked_parent_has_a_child_of_its_own(child: Child) -> None:
    """The copy neither asks nor ends the child of the original."""
    first = pid_of(child)
    copy = os.fork()
    if not copy:
        try:
            other = pid_of(child)
            child.close()
            os._exit(0 if other != first else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 0
    assert pid_of(child) == first


ASKING = """
import os, signal, sys
from bitproof.harness.processes.child import Child

child = Child(module="tests.harness.processes.answering")
print(child.ask({"about": None}, 60)["pid"], child.ask({"starts": 1000}, 60), flush=True)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "waiting":
    child.ask({"loops": None}, 60)
"""


@pytest.mark.parametrize("end", ["exits", "killed", "waiting"])
def test_nothing_outlives_the_parent(end: str) -> None:
    """Whether it exits without a word or is killed, also while its child hangs and reads no more."""
    with subprocess.Popen(
        [sys.executable, "-c", ASKING, end], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        if end == "waiting":
            time.sleep(0.5)
            assert all(running(pid) for pid in pids)
            parent.kill()
    assert len(pids) == 2
    assert all(ends(pid) for pid in pids)


def test_asking_leaves_nothing_open(child: Child) -> None:
    """Neither pipes nor processes, whatever became of the child."""

    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    deeds: tuple[Callable[[], Any], ...] = (
        lambda: child.ask({"echo": 1}, LIMIT),
        lambda: lost(child, {"dies": 1}),
        lambda: lost(child, {"loops": None}, 0.2),
    )
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before, others = held(), children.read_text()
    for deed in deeds:
        deed()
        child.close()
        assert held() == before
    assert children.read_text() == others
