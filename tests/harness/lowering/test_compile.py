"""Readings are made in processes of their own, survive their deaths, and are kept."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.lowering import compile, report
from bitproof.harness.lowering.findings import Reading
from bitproof.harness.lowering.specialisations import choose_covering
from bitproof.harness.outcomes import Outcome
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.targets import architectures as targets
from tests.harness.lowering.conftest import KERNELS

Read = Callable[[str, str], Reading]
CHECKOUT = Path(__file__).resolve().parents[3]


def test_a_compiler_that_dies_has_refused(read: Read) -> None:
    """A conversion that brings the compiler down costs its own kernel, and the next one is read."""
    (refusal,) = read("e5m2_to_e4m3", "sm_90").refusals
    assert "compiler" in refusal.sentence
    assert "\n" not in refusal.sentence
    assert read("adds", "sm_90").compiled == 1


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_launches_without_stages_compile(read: Read, target: str) -> None:
    """So that `num_stages=0` is nothing to refuse: of a launch, of a loop, in a loop with products."""
    reading = read("multiplies_without_stages", target)
    assert (reading.refusals, reading.compiled) == ((), 2)


def test_a_reading_is_kept_until_its_sources_change(
    kernel: Callable[[str], FoundSpec],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The second time no process is asked; for another fault, target or source one is."""
    asked: list[tuple[str, str | None]] = []

    class Worker:
        def __init__(self, target: str) -> None:
            self.target = target

        def read(self, found: FoundSpec) -> Reading:
            asked.append((self.target, found.fault))
            return Reading(kernel=found.spec.name, target=self.target, triton="0")

    monkeypatch.setattr(compile, "_worker", lambda target: nullcontext(Worker(target)))
    monkeypatch.setattr(compile, "FOLDER", tmp_path)
    found = kernel("adds")
    first = compile.read_one(found, "sm_90")
    assert compile.read_one(found, "sm_90") == first
    compile.read_one(found, "sm_80")
    compile.read_one(dataclasses.replace(found, fault="none"), "sm_90")
    monkeypatch.setattr(compile, "_sources", lambda folder: b"edited")
    compile.read_one(found, "sm_90")
    assert asked == [("sm_90", None), ("sm_80", None), ("sm_90", "none"), ("sm_90", None)]


def test_a_reading_follows_the_sources_of_other_folders_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kernel that calls another family's functions is read again once those are edited."""
    digested: list[Path] = []

    def sources(folder: Path) -> bytes:
        digested.extend(path.relative_to(CHECKOUT) for path in folder.rglob("*.py"))
        return b""

    def worker(target: str) -> Any:
        return nullcontext(SimpleNamespace(read=lambda found, fault=None: reading))

    reading = Reading(kernel="dsrelu_fp8", target="sm_90", triton="0")
    monkeypatch.setattr(compile, "_worker", worker)
    monkeypatch.setattr(compile, "_sources", sources)
    monkeypatch.setattr(compile, "FOLDER", tmp_path)
    compile.read_one(find([], ["dsrelu_fp8"])[0], "sm_90")
    assert {Path("kernels/dsrelu/gemm.py"), Path("kernels/quantise/groups.py")} <= set(digested)


def test_readings_come_in_the_order_asked(
    kernel: Callable[[str], FoundSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever order the workers finish in."""
    monkeypatch.setattr(
        compile,
        "read_one",
        lambda found, target: Reading(kernel=found.spec.name, target=target, triton="0"),
    )
    names = ["adds", "divides"]
    wanted = [(kernel(name), target) for name in names for target in ("sm_90", "gfx942")]
    made = compile.readings(wanted)
    assert [(reading.kernel, reading.target) for reading in made] == [
        ("adds", "sm_90"),
        ("adds", "gfx942"),
        ("divides", "sm_90"),
        ("divides", "gfx942"),
    ]


def test_workers_read_side_by_side_and_end_with_their_target(
    kernel: Callable[[str], FoundSpec],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Two kernels for one target have a process each; none outlives the target's last reading."""
    together = threading.Barrier(2, timeout=60)
    ended: list[str] = []

    def read(worker: Any, found: FoundSpec) -> Reading:
        together.wait()
        return Reading(kernel=found.spec.name, target=worker.target, triton="0")

    monkeypatch.setattr(compile._Worker, "read", read)
    monkeypatch.setattr(compile._Worker, "end", lambda worker: ended.append(worker.target))
    monkeypatch.setattr(compile, "_idle", {})
    monkeypatch.setattr(compile, "FOLDER", tmp_path)
    monkeypatch.setattr(compile.os, "cpu_count", lambda: 2)
    compile.readings([(kernel("adds"), "sm_90"), (kernel("divides"), "sm_90")])
    assert ended == ["sm_90", "sm_90"]


SICK = """
import dataclasses
import os
from tests.harness.lowering.hazards import SPECS

adds = next(spec for spec in SPECS if spec.name == "adds")


def hangs(tensors, params):
    while True:
        pass


def leaves(tensors, params):
    os._exit(3)


SPECS = [adds] + [dataclasses.replace(adds, name=run.__name__, run=run) for run in (hangs, leaves)]
"""


@pytest.fixture
def sick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], FoundSpec]:
    """`sick(name)`: a kernel that is well or not, with ten seconds for a reading."""
    monkeypatch.setattr(compile, "FOLDER", tmp_path)
    monkeypatch.setattr(compile, "LIMIT", 10.0)
    path = tmp_path / "sick.py"
    path.write_text(SICK)
    return lambda name: find([str(path)], [name])[0]


def test_a_reading_that_hangs_is_given_up(sick: Callable[[str], FoundSpec]) -> None:
    """It is an outcome in one sentence, is not kept, and the other readings are made."""
    wanted = [(sick("hangs"), "sm_90"), (sick("adds"), "sm_90"), (sick("leaves"), "sm_90")]
    hung, read, left = compile.readings(wanted)
    assert hung.hung == "reading hangs for sm_90 took longer than 10 s and was ended"
    judged = report.judge(hung, sick("hangs").spec)
    assert (judged.outcome, judged.word) == (Outcome.HUNG, "hung")
    assert list(report.lines(judged))[1] == f"  {hung.hung}"
    assert hung.hung in report.entry(judged).reasons
    assert read.compiled == 1
    assert left.refusals[0].sentence == ("the compiler ended with exit code 3: it printed nothing")
    assert not list(compile.FOLDER.glob("hangs-*.json"))
    assert len(list(compile.FOLDER.glob("adds-*.json"))) == 1


def test_an_interrupted_run_waits_for_no_reading(
    sick: Callable[[str], FoundSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their limit: the processes that read are killed."""
    here = threading.get_ident()
    timer = threading.Timer(3.0, signal.pthread_kill, [here, signal.SIGINT])
    timer.start()
    began = time.monotonic()
    monkeypatch.setattr(compile, "LIMIT", 600.0)
    with pytest.raises(KeyboardInterrupt):
        compile.readings([(sick("hangs"), "sm_90"), (sick("hangs"), "sm_80")])
    assert time.monotonic() - began < 30


def test_a_worker_that_cannot_start_is_one_sentence(
    kernel: Callable[[str], FoundSpec], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No kernel is to blame for it."""
    (tmp_path / "torch.py").write_text("raise SystemExit('no such library')")
    monkeypatch.setattr(compile, "FOLDER", tmp_path)
    found = kernel("adds")
    monkeypatch.syspath_prepend(tmp_path)
    said = "code for sm_90 cannot be read here: .* ended with exit code 1: no such library"
    with pytest.raises(EnvironmentUnfit, match=said):
        compile.read_one(found, "sm_90")


def test_few_specialisations_cover_every_fact() -> None:
    """Of combinations, those are compiled that together show each single value."""
    facts = {
        f"{dtype} {block}": frozenset({("f", "dtype", dtype), ("f", "block", block)})
        for dtype in ("fp32", "bf16")
        for block in ("128", "256", "512")
    }
    chosen, unseen = choose_covering(facts, most=8)
    assert unseen == 0
    assert frozenset[tuple[str, ...]]().union(*(facts[one] for one in chosen)) == frozenset(
        fact for each in facts.values() for fact in each
    )
    assert len(chosen) == 3
    fewer, unseen = choose_covering(facts, most=1)
    assert (len(fewer), unseen) == (1, 3)


def test_unknown_targets_are_named() -> None:
    """A target that is not known is one sentence with those that are."""
    with pytest.raises(UsageError, match=r"unknown target 'sm_75': choose from sm_80, sm_86"):
        targets.parse_targets("sm_80,sm_75")
    assert targets.parse_targets(" sm_90, sm_80,sm_90") == ("sm_90", "sm_80")


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """`bitproof lowering`, in a folder of its own."""
    return subprocess.run(
        [sys.executable, "-m", "bitproof.harness.commands.cli", "lowering", *arguments],
        cwd=folder,
        env={"PYTHONPATH": ":".join([str(CHECKOUT), *filter(None, sys.path)]), "PATH": "/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_reads_on_past_a_spec_with_mistakes(tmp_path: Path) -> None:
    """The others are reported; then the mistakes are told, with status 2."""
    specs = tmp_path / "mistaken.py"
    specs.write_text(
        "from tests.harness.plain import variant\n"
        "SPEC = variant(name='right')\n"
        "BAD = variant(name='bad', launches=3)\n"
    )
    told = command("--targets", "sm_90", "--spec", str(specs), folder=tmp_path)
    assert told.returncode == 2
    assert told.stdout.startswith("right for sm_90, triton ")
    assert told.stderr.splitlines()[-1].startswith(
        f"bitproof: spec 'bad' ({specs}): launches must be a dict"
    )


def test_the_command_reports_and_exits_by_what_it_found(tmp_path: Path) -> None:
    """1 with a hazard at its line, 0 where there is none, 2 for a target that is not known."""
    spec = ("--spec", str(KERNELS))
    short = command("divides", "--targets", "sm_90", *spec, folder=tmp_path)
    assert short.returncode == 1, short.stderr
    assert "HAZARD approximation at" in short.stdout
    assert "div.full.f32" in short.stdout
    clean = command("divides_ieee", "--targets", "sm_90", *spec, folder=tmp_path)
    assert clean.returncode == 0, clean.stderr
    unknown = command("divides", "--targets", "sm_1", *spec, folder=tmp_path)
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("bitproof: unknown target 'sm_1'")
