"""The pytest plugin: what a property run prints, writes and returns, and when it stays out of the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.scheduler import WorkStealingScheduling

from bitproof import plugin, suite
from bitproof.harness import lanes
from bitproof.harness.report import files, records
from bitproof.harness.search import journal
from bitproof.plugin import CHECKOUT, PROPERTIES
from tests.door.running import CHECKS, ENVIRONMENT, FILES, RIGHT, Run, read_summary

pytest_plugins = "pytester"

SEVERAL = """
from bitproof.harness.spec import Invariance
from tests.harness.plain import variant
from tests.harness.starting import scaled_beside_a_kernel as run

same = Invariance(name="again", transform=lambda i: i, relate=lambda o, i: o)
SPECS = [variant(name=name, run=run, invariances=(same,)) for name in ("zeta", "alpha", "mid")]
"""
WRONG = """
from tests.harness.plain import scaled, variant


def run(tensors, params):
    y = scaled(tensors, params)["y"]
    y[-1, -1] = 7.0
    return {"y": y}


SPEC = variant(name="wrong", run=run)
"""
LIMITED = """
from bitproof.harness.spec import Limit
from tests.harness.plain import variant

LIMIT = Limit(
    lane="interpreter", check="memory", because="it needs a card", reproduction="their_specs.py"
)
SPEC = variant(name="limited", limits=(LIMIT,))
"""
DYING = """
import ctypes
import os
from tests.harness.plain import scaled, variant
from tests.harness.starting import scaled_beside_a_kernel


def ends(tensors, params):
    if tensors["x"].shape[1] > 1:
        os._exit(1)
    return scaled(tensors, params)


def reads(tensors, params):
    ctypes.string_at(0)


def spins(tensors, params):
    while True:
        pass


SPECS = [variant(name=run.__name__, run=run) for run in (ends, reads, spins)]
RIGHT = variant(name="right", run=scaled_beside_a_kernel)
"""


def test_a_right_kernel_passes_every_property(run: Run) -> None:
    """The header names lane and profile, the end what was covered, and a summary is written."""
    result = run(RIGHT, "--lane", "interpreter")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "bitproof: lane interpreter (as asked), profile bitproof",
            "right: agreement 5, memory 5, reproducibility 5 in * s",
            "  covered one row *, several rows *",
            "summary: .bitproof/summary.json",
        ]
    )
    summary = read_summary()
    assert (summary["lane"], summary["profile"]) == ("interpreter", "bitproof")
    assert [(e["kernel"], e["check"], e["outcome"], e["examples"]) for e in summary["entries"]] == [
        ("right", "agreement", "passed", 5),
        ("right", "memory", "passed", 5),
        ("right", "reproducibility", "passed", 5),
    ]


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (
            "in-flight",
            "right: agreement cannot be judged: */main-*.json cannot be written (*): make *",
        ),
        ("summary.json/folder", "no summary: */summary.json cannot be written (*): make its *"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(run: Run, taken: str, said: str) -> None:
    """A file that stands in the way of the case in flight, a folder in that of the summary."""
    path = Path(".bitproof") / taken
    path.parent.mkdir(parents=True)
    path.touch()
    result = run(RIGHT)
    result.stdout.fnmatch_lines([said])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_a_wrong_kernel_gets_a_report_and_a_record(run: Run) -> None:
    """Exit 1, the smallest case, the command that replays it, and nothing of our insides."""
    result = run(WRONG)
    assert result.ret == 1
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(
        [
            "*test_agreement[[]wrong[]]*",
            "wrong: agreement failed",
            "y[[]0, 0[]] is 7.0, expected *",
            "  got       7.0  0x40e00000 (float32)",
            "  wrong     1 of 1 elements*",
            "case      RowsCase()",
            "versions  lane interpreter  *",
            "replay    bitproof replay .bitproof/failures/wrong-agreement-*.json --spec their_specs.py",
        ]
    )
    report = result.stdout.str().partition("= FAILURES =")[2].partition("\nreplay ")[0]
    assert not re.search(r"traceback|error|\.py|hypothesis", report, re.IGNORECASE)
    (path,) = Path(".bitproof/failures").iterdir()
    record = records.load(path)
    assert (record.kernel, record.spec, record.check) == ("wrong", "their_specs.py", "agreement")
    assert record.case is not None
    assert record.case["rows"] == 1
    entries = {entry["check"]: entry for entry in read_summary()["entries"]}
    assert entries["agreement"]["outcome"] == "failed"
    assert entries["agreement"]["record"] == str(path)
    assert entries["agreement"]["report"].startswith("wrong: agreement failed")


def test_the_summary_of_one_line_a_test_says_what_was_found(
    run: Run, environment: pytest.MonkeyPatch
) -> None:
    """The test's id names the kernel and the check already."""
    environment.setenv("COLUMNS", "200")
    result = run(WRONG)
    result.stdout.fnmatch_lines(
        ["FAILED *::test_agreement[[]wrong[]] - y[[]0, 0[]] is 7.0, expected *"]
    )


def test_a_skip_names_kernel_check_and_reason(run: Run) -> None:
    """In pytest's own summary, where the test's id is not shown."""
    result = run(LIMITED, "-rs")
    result.stdout.fnmatch_lines(["SKIPPED *: limited: memory unsupported: it needs a card"])


def test_kernels_are_parametrised_in_sorted_order(run: Run) -> None:
    """Whatever order they are declared in: workers must collect the same tests."""
    result = run(SEVERAL, "--collect-only", "-q")
    ids = [line.rsplit("::")[-1] for line in result.stdout.lines if "::" in line]
    assert ids == [
        f"test_{check}[{kernel}]" for check in CHECKS for kernel in ("alpha", "mid", "zeta")
    ]
    result = run(SEVERAL, "--collect-only", "-q", "--kernel", "zeta", "--kernel", "alpha")
    ids = [line.partition("[")[2] for line in result.stdout.lines if "::test_agreement" in line]
    assert ids == ["alpha]", "zeta]"]


TOUCHLESS = """
import torch

from bitproof.harness import lanes


def touch(*args, **kwargs):
    raise AssertionError("collecting opens a card")


torch.cuda._lazy_init = torch.cuda.init = touch
torch._C._cuda_init = touch
torch.cuda.is_available = lambda: True
lanes.gpus = lambda: 2
"""


def test_collecting_for_cards_opens_none(tmp_path: Path) -> None:
    """Of all built-in kernels, in the controller and in workers, which are then free to fork."""
    (tmp_path / "touchless.py").write_text(TOUCHLESS)
    options = ("-n", "1", "-p", "touchless", "--lane", "cuda", "-k", "nothing_is_called_so")
    ended = _pytest(tmp_path, *options, FILES[0])
    assert "no tests ran" in ended.stdout, ended.stdout + ended.stderr
    assert "opens a card" not in ended.stdout + ended.stderr


def test_machines_share_out_a_run(run: Run) -> None:
    """Each judges its shard, and together they judge everything once."""
    judged = []
    for shard in ("1/2", "2/2"):
        assert run(SEVERAL, "--shard", shard).ret == 0
        judged += [(entry["kernel"], entry["check"]) for entry in read_summary()["entries"]]
    assert len(judged) == len(set(judged)) == 12


def test_options_widen_and_narrow_a_run(run: Run) -> None:
    """Examples and runs are as many as asked."""
    result = run(RIGHT, "--max-examples", "7", "--runs", "3")
    assert result.ret == 0
    entries = {entry["check"]: entry for entry in read_summary()["entries"]}
    assert entries["agreement"]["examples"] == entries["memory"]["examples"] == 7
    assert entries["reproducibility"]["measures"]["runs"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lane", "gpu"], "ERROR: unknown lane 'gpu': choose one of cuda, interpreter*"),
        (["--runs", "1"], "ERROR: --runs must be at least 2, got 1"),
        (["--max-examples", "0"], "ERROR: --max-examples must be at least 1, got 0"),
        (["--seconds", "0"], "ERROR: --seconds must be at least 1, got 0"),
        (
            ["--hypothesis-profile", "quick"],
            "ERROR: --hypothesis-profile quick: choose one of bitproof, bitproof-ci, bitproof-nightly",
        ),
        (
            ["--shard", "3/2"],
            "ERROR: --shard must be K/N with K from 1 to N, such as 1/4, got '3/2'",
        ),
        (["--kernel", "other"], "ERROR: unknown kernel 'other': there are right"),
        (
            ["--spec", "nowhere"],
            "ERROR: --spec nowhere: no module of that name; install its package *",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(run: Run, options: list[str], message: str) -> None:
    """Exit 4, pytest's own for usage; no test runs and no traceback is shown."""
    result = run(RIGHT, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stderr.lines + result.stdout.lines
    result.stderr.fnmatch_lines([message])
    assert not [
        line for line in said if "Traceback" in line or line.startswith(("E  ", "INTERNAL"))
    ]


def test_cuda_without_a_gpu_is_one_sentence(run: Run, environment: pytest.MonkeyPatch) -> None:
    """Exit 4, with the remedy."""
    environment.setattr(lanes, "gpus", lambda: 0)
    result = run(RIGHT, "--lane", "cuda")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: no GPU for lane cuda: use --lane interpreter, or run *"])


def test_ci_gets_the_same_cases_every_time(run: Run, environment: pytest.MonkeyPatch) -> None:
    """Where CI is set, the derandomised profile is the default."""
    environment.setenv("CI", "1")
    result = run(RIGHT)
    result.stdout.fnmatch_lines(["bitproof: lane interpreter *, profile bitproof-ci"])


def _pytest(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT and "PYTEST" not in k}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(CHECKOUT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_workers_run_the_same_tests_into_one_summary(tmp_path: Path) -> None:
    """Each with a compile cache of its own; records and measurements arrive where they belong."""
    (tmp_path / "their_specs.py").write_text(SEVERAL + WRONG)
    ended = _pytest(tmp_path, "-n", "2", *FILES, "--spec", "their_specs.py", "--max-examples", "3")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 14 passed" in ended.stdout
    entries = [(entry["kernel"], entry["check"]) for entry in read_summary(tmp_path)["entries"]]
    assert entries == sorted(entries)
    assert len(entries) == 15
    assert len(list((tmp_path / ".bitproof" / "failures").iterdir())) == 1
    assert ended.stdout.count("summary: .bitproof/summary.json") == 1


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_what_dies_or_hangs_costs_its_own_check_alone(tmp_path: Path, workers: Any) -> None:
    """Each is one outcome with a shrunk record, and everything else of the run is as without it."""
    (tmp_path / "their_specs.py").write_text(DYING)
    options = ("--spec", "their_specs.py", "--max-examples", "9", "--hang-limit", "2")
    ended = _pytest(tmp_path, *workers, FILES[0], *options)
    assert "3 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    outcomes = {entry["kernel"]: entry["outcome"] for entry in read_summary(tmp_path)["entries"]}
    hung = {"spins": "hung"}
    assert outcomes == {"ends": "crashed", "reads": "crashed", "right": "passed", **hung}
    assert "the launch crashed: the process ended with exit code 1" in ended.stdout
    assert "the launch crashed: the process died of SIGSEGV" in ended.stdout
    assert "the launch hung: the process gave no answer within 2 s" in ended.stdout
    failures = (tmp_path / ".bitproof" / "failures").iterdir()
    found = {record.kernel: record.case or {} for record in map(records.load, failures)}
    assert (found["ends"]["rows"], found["ends"]["columns"], found["ends"]["seed"]) == (1, 2, 0)
    assert sorted(found) == ["ends", "reads", "spins"]
    assert not (tmp_path / ".bitproof" / "in-flight").exists()


def test_a_killed_run_tells_its_case_to_the_next(run: Run) -> None:
    """As a record with the command that replays it; nothing that the journal names is imported."""
    request = {"spec": "no_such.py", "kernel": "gone", "fault": None, "check": "agreement"}
    request |= {"runs": 8, "case": {"rows": 3}}
    held = {"process": "1 0", "lane": "interpreter", "request": request}
    files.save(journal.FOLDER / "main-1.json", json.dumps(held).encode())
    result = run(RIGHT)
    assert result.ret == 0
    told = "a process died over one case, told by nobody: bitproof replay *gone-agreement-*.json *"
    result.stdout.fnmatch_lines([told])
    assert not journal.FOLDER.exists()


def test_a_mistake_is_said_once_whatever_the_workers(tmp_path: Path) -> None:
    """Before any of them starts."""
    (tmp_path / "their_specs.py").write_text(RIGHT)
    options = ("-n", "2", *FILES, "--spec", "their_specs.py", "--kernel", "wrong")
    ended = _pytest(tmp_path, *options)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert ended.stderr.strip() == "ERROR: unknown kernel 'wrong': there are right"


def test_the_plugin_sleeps_in_other_runs(tmp_path: Path) -> None:
    """Nothing heavy is imported and nothing set where neither properties nor a spec is named."""
    (tmp_path / "test_theirs.py").write_text(
        "import os, sys\n\n\ndef test_asleep(request):\n"
        "    assert request.config.pluginmanager.hasplugin('bitproof')\n"
        "    assert not {'torch', 'triton', 'numpy', 'bitproof.suite'} & set(sys.modules)\n"
        f"    assert not [name for name in {ENVIRONMENT!r} if name in os.environ]\n"
    )
    ended = _pytest(tmp_path, "-q")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "bitproof" not in ended.stdout
    assert not (tmp_path / ".bitproof").exists()


@pytest.mark.parametrize(
    ("args", "options", "concerned"),
    [
        (["properties"], {}, True),
        (["properties/test_memory.py::test_memory[x]"], {}, True),
        ([str(PROPERTIES)], {}, True),
        (["tests", "properties"], {}, True),
        ([str(CHECKOUT)], {}, True),
        (["tests"], {}, False),
        (["tests/door/test_plugin.py"], {}, False),
        (["properties"], {"where": Path("/")}, False),
        (["bitproof.properties"], {"where": Path("/"), "pyargs": True}, True),
        (["properties"], {"where": Path("/"), "pyargs": True}, False),
        (["bitproof.properties.test_memory"], {"where": Path("/"), "pyargs": True}, True),
        (["properties_of_theirs"], {"where": Path("/"), "pyargs": True}, False),
        (["tests"], {"bitproof_spec": ["their.specs"]}, True),
    ],
)
def test_runs_that_concern_the_plugin(
    args: list[str], options: dict[str, Any], concerned: bool
) -> None:
    """Properties by path or import name, the whole checkout, or any run that names a spec."""
    config = SimpleNamespace(
        args=args,
        invocation_params=SimpleNamespace(dir=options.pop("where", CHECKOUT)),
        getoption=lambda name: options.get(name),
    )
    assert plugin.concerned(config) is concerned


@pytest.mark.parametrize(
    ("lane", "dist", "stolen"),
    [
        ("cuda", "load", True),
        ("cuda:sm_89", "load", True),
        ("cuda", "loadfile", False),
        ("interpreter", "load", False),
    ],
)
def test_idle_workers_take_what_others_have_left(lane: str, dist: str, stolen: bool) -> None:
    """Where tests compile for minutes, unless the caller says how to share them out."""

    class Asked:
        def getoption(self, name: str) -> object:
            return {"dist": dist, "tx": ["2*popen"]}[name]

        getvalue = getoption

    config: Any = Asked()
    made = suite.Suite(config, lane, "bitproof").pytest_xdist_make_scheduler(config, None)
    assert isinstance(made, WorkStealingScheduling) is stolen
    assert stolen or made is None
