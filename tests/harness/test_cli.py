"""The command line: each command's success, failure and bad input, and what it costs to start."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from harness import lanes
from harness.cli import main
from harness.commands.screen import progress
from harness.commands.subject import status
from harness.outcomes import Outcome

CHECKOUT = Path(__file__).parents[2]
EXAMPLES = CHECKOUT / "tests" / "example_package"
PAIR = "example_kernels.bitproof_specs"
NARROWING = str(Path(__file__).with_name("narrowing.py"))
FEW = ("--max-examples", "20")

Bitproof = Callable[..., Result]


@pytest.fixture
def bitproof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bitproof:
    """`bitproof(*arguments)` in an empty folder, with the example package importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)

    def run(*arguments: str) -> Result:
        return CliRunner(catch_exceptions=False).invoke(main, arguments)

    return run


def refused(result: Result, said: str) -> None:
    """Hold that a command ended with one sentence on standard error and status 2."""
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.startswith("bitproof: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def record_of(result: Result) -> str:
    """The path in the command that a report ends with."""
    lines = [line for line in result.stdout.splitlines() if line.startswith("replay ")]
    assert len(lines) == 1
    return lines[0].split()[-1]


# --- starting


def test_help_imports_nothing_heavy() -> None:
    """torch, hypothesis and triton are imported by the commands that need them, not by the parser."""
    code = (
        "import sys; from harness.cli import main\n"
        "try: main(['check', '--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'triton', 'hypothesis', 'numpy', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--tensors FILE" in done.stdout


def test_the_lane_is_chosen_before_triton_is_imported(tmp_path: Path) -> None:
    """In a fresh process with nothing set, and through the installed command."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TRITON_INTERPRET", "BITPROOF_LANE")
    }
    done = subprocess.run(
        ["bitproof", "check", "scale_add", "--spec", PAIR, "--lane", "interpreter", *FEW],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(EXAMPLES), "PATH": _scripts()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "lane interpreter" in done.stdout


def _scripts() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def test_a_lane_that_cannot_be_had_is_one_sentence(
    bitproof: Bitproof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown name, and cuda where there is no GPU."""
    refused(bitproof("list", "--lane", "tpu"), "unknown lane 'tpu'")
    monkeypatch.setattr(lanes, "gpus", lambda: 0)
    refused(bitproof("check", "scale_add", "--lane", "cuda"), "no GPU for lane cuda")


# --- list


def test_list_says_what_is_checked_claimed_and_planted(bitproof: Bitproof) -> None:
    """For a person, and the same as JSON."""
    told = bitproof("list", "--spec", PAIR)
    assert told.exit_code == 0
    assert "scale_add  (example_kernels.bitproof_specs)" in told.stdout
    assert "fault   'scales the sum', caught by agreement" in told.stdout
    (kernel,) = json.loads(bitproof("list", "--spec", PAIR, "--json").stdout)
    assert kernel["checks"] == ["agreement", "memory", "reproducibility", "streams"]
    assert kernel["faults"][0]["name"] == "scales the sum"
    assert "y: exact bits, any NaN equal to any NaN" in kernel["claims"]
    named = bitproof("list", "--spec", NARROWING, "--spec", PAIR, "--sweepable")
    assert named.stdout == "narrowed\n"
    (cast,) = json.loads(bitproof("list", "--spec", NARROWING, "--json").stdout)
    assert "every fp32 pattern rounds to e4m3 (rne, saturate on overflow)" in cast["claims"]


def test_list_says_of_a_named_kernel_what_it_takes(bitproof: Bitproof) -> None:
    """Names, types and dimensions of its tensors, and parameters with what they are by themselves."""
    told = bitproof("list", "scale_add", "--spec", PAIR).stdout
    assert "  tensor  x: float32, 1 dimension\n" in told
    assert "  param   exponent, 0 unless given\n" in told
    (kernel,) = json.loads(bitproof("list", "scale_add", "--spec", PAIR, "--json").stdout)
    assert kernel["params"]["launch"]["num_warps"] == 4
    assert [tensor["required"] for tensor in kernel["tensors"]] == [True, True]
    assert "tensor" not in bitproof("list", "--spec", PAIR).stdout
    refused(bitproof("list", "scale_ad", "--spec", PAIR), "scale_ad")


def test_a_spec_that_is_not_there_is_one_sentence(bitproof: Bitproof) -> None:
    """Modules and files."""
    refused(bitproof("list", "--spec", "no_such_package.specs"), "no module of that name")
    refused(bitproof("list", "--spec", "absent.py"), "no such file")


# --- check and replay


def test_check_of_a_right_kernel_holds(bitproof: Bitproof, tmp_path: Path) -> None:
    """A line for each check, status 0, and no record."""
    result = bitproof("check", "scale_add", "--spec", PAIR, *FEW)
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first.startswith(f"scale_add: lane {lanes.present().name}")
    assert [line.split()[:3] for line in rest] == [
        ["agreement", "passed", "20"],
        ["memory", "passed", "20"],
        ["reproducibility", "passed", "20"],
        ["streams", "unsupported", "0"],
    ]
    assert not (tmp_path / ".bitproof" / "failures").exists()


def test_a_planted_fault_is_reported_recorded_and_replayed(bitproof: Bitproof) -> None:
    """The report ends with the command that replays; it fails again, and says so in the same words."""
    options = ("--spec", PAIR, "--fault", "scales the sum", "--check", "agreement")
    result = bitproof("check", "scale_add", *options)
    assert result.exit_code == 1
    assert "scale_add with planted fault 'scales the sum': agreement failed" in result.stdout
    path = record_of(result)
    assert f"record    {path}" in result.stdout
    again = bitproof("replay", path)
    assert again.exit_code == 1
    report = result.stdout.split("\n\n")[1].splitlines()
    assert again.stdout.splitlines() == [line for line in report if not line.startswith("record")]


def test_a_folder_that_cannot_be_written_is_one_sentence(
    bitproof: Bitproof, tmp_path: Path
) -> None:
    """The verdict is printed all the same."""
    (tmp_path / ".bitproof").touch()
    result = bitproof("check", "scale_add", "--spec", PAIR, "--fault", "scales the sum", *FEW)
    assert result.exit_code == 2
    assert "agreement        failed" in result.stdout
    assert result.stderr.startswith(f"bitproof: {tmp_path}/.bitproof/failures/scale_add-agreement-")
    assert "cannot be written (Not a directory): make its folder writable" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_record_of_what_was_mended_holds_when_replayed(bitproof: Bitproof) -> None:
    """Without its fault the kernel is right: status 0, and what the record said is repeated."""
    options = ("--spec", PAIR, "--fault", "adds to fresh memory", "--check", "agreement")
    path = Path(record_of(bitproof("check", "scale_add", *options)))
    plain = json.loads(path.read_text())
    plain["fault"] = None
    plain["versions"]["triton"] = "3.5.0"
    path.write_text(json.dumps(plain))
    again = bitproof("replay", str(path))
    assert again.exit_code == 0
    assert "scale_add: agreement passed (it failed when it was recorded)" in again.stdout
    assert "changed   triton 3.5.0 then, " in again.stdout


def test_runs_widen_the_reproducibility_check(bitproof: Bitproof) -> None:
    """At least two, or the sentence that says so."""
    options = ("check", "scale_add", "--spec", PAIR, "--check", "reproducibility", *FEW)
    assert bitproof(*options, "--runs", "2").exit_code == 0
    refused(bitproof(*options, "--runs", "1"), "reproducibility needs at least 2 runs, got 1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scale_ad"], "unknown kernel 'scale_ad': there are scale_add"),
        (["scale_add", "--check", "speed"], "has no check 'speed': there are agreement, memory"),
        (["scale_add", "--check", "invariances"], "has no check 'invariances'"),
        (["scale_add", "--fault", "slow"], "has no fault 'slow': there are 'scales the sum'"),
        (["scale_add", "--params", "{}"], "--params is for captured tensors"),
        (["scale_add", "--tensors", "absent"], "absent cannot be read"),
        (["scale_add", "--tensors", "absent", *FEW], "captured tensors are one case"),
    ],
)
def test_check_names_what_is_not_there(bitproof: Bitproof, arguments: list[str], said: str) -> None:
    """Kernels, checks, faults, files, and options that do not go together."""
    refused(bitproof("check", *arguments, "--spec", PAIR), said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "is not a record: it is not valid JSON"),
        ('{"a": 1}', "is not a record written by bitproof"),
        ('{"format": 99, "kernel": "k"}', "has record format 99"),
    ],
)
def test_replay_refuses_what_is_no_record(
    bitproof: Bitproof, tmp_path: Path, text: str | None, said: str
) -> None:
    """Absent, damaged, foreign, and from another version."""
    if text is not None:
        (tmp_path / "record.json").write_text(text)
    refused(bitproof("replay", "record.json"), said)


def test_check_of_captured_tensors_judges_them_alone(bitproof: Bitproof, tmp_path: Path) -> None:
    """One example a check; a failing one is recorded with its file and replays from it."""
    file = tmp_path / "layer.safetensors"
    save_file({"x": torch.full((70,), 3.0), "z": torch.ones(70)}, file)
    options = ("check", "scale_add", "--spec", PAIR, "--tensors", str(file))
    result = bitproof(*options, "--params", '{"exponent": 2}')
    assert result.exit_code == 0
    assert result.stdout.count(" 1 example in") == 4
    faulty = (*options, "--fault", "scales the sum", "--params", '{"exponent": 2}')
    result = bitproof(*faulty, "--check", "agreement")
    assert result.exit_code == 1
    assert "captured tensors: x (70,), z (70,)" in result.stdout
    assert "y[0] is 16.0, expected 13.0" in result.stdout
    path = record_of(result)
    assert json.loads(Path(path).read_text())["captured"]["path"] == str(file)
    assert "y[0] is 16.0, expected 13.0" in bitproof("replay", path).stdout
    save_file({"x": torch.full((70,), 4.0), "z": torch.ones(70)}, file)
    refused(bitproof("replay", path), "is not the file that was recorded")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("{", "--params is not valid JSON"),
        ("[]", "--params must be a JSON object"),
        ('{"scale": 1}', "has no parameter 'scale', but 'exponent', 'launch'"),
    ],
)
def test_bad_parameters_of_captured_tensors_are_one_sentence(
    bitproof: Bitproof, tmp_path: Path, params: str, said: str
) -> None:
    """JSON that is none, is no object, or names what the kernel has not."""
    file = tmp_path / "layer.safetensors"
    save_file({"x": torch.ones(3), "z": torch.ones(3)}, file)
    options = ("check", "scale_add", "--spec", PAIR, "--tensors", str(file), "--params", params)
    refused(bitproof(*options), said)


# --- sweep


def test_sweep_tells_the_census_and_leaves_a_record(bitproof: Bitproof, tmp_path: Path) -> None:
    """The binade of 1 has 4 * 8191 values that round twice; a record of the first ones replays."""
    options = ("sweep", "narrowed", "--spec", NARROWING, "--bits", "0x3f800000:0x40000000")
    right = bitproof(*options)
    assert (right.exit_code, right.stderr) == (0, "")
    assert "0 wrong of 8,388,608" in right.stdout
    wrong = bitproof(*options, "--fault", "rounds through fp16")
    assert wrong.exit_code == 1
    assert "32,764 wrong of 8,388,608, all toward zero" in wrong.stdout
    assert "0x3f880001 (1.0625001192092896)  got 0x38 (1.0)  expected 0x39 (1.125)" in wrong.stdout
    assert bitproof("replay", record_of(wrong)).exit_code == 1
    left = sorted((tmp_path / ".bitproof" / "sweeps").iterdir())
    assert [file.name.split(".", 1)[1] for file in left] == ["census.json", "census.json"]
    assert sorted(json.loads(file.read_text())["wrong"] for file in left) == [0, 32764]


def test_sweep_as_json_has_every_count(bitproof: Bitproof) -> None:
    """For scripts: the census, what it is against, and where it was made."""
    options = ("sweep", "narrowed", "--spec", NARROWING, "--bits", "0x3f800000:0x3f8a0000")
    result = bitproof(*options, "--fault", "rounds through fp16", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert {name: told[name] for name in ("wrong", "toward_zero", "largest_ulps", "tried")} == {
        "wrong": 8191,
        "toward_zero": 8191,
        "largest_ulps": 1,
        "tried": 0xA0000,
    }
    assert told["first"][0]["input"] == "0x3f880001"
    assert (told["format"], told["mode"], told["overflow"]) == ("e4m3", "rne", "saturate")
    assert told["versions"]["lane"] == lanes.present().name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["narrowed", "--bits", "1"], "--bits 1 is no range of bit patterns: write LO:HI"),
        (["narrowed", "--bits", "a:b"], "--bits a:b is no range"),
        (["narrowed", "--bits", "0:0x100000001"], "no bit patterns in 0x0:0x100000001"),
        (["narrow"], "unknown kernel 'narrow': there are narrowed"),
        (["narrowed", "--fault", "f"], "has no fault 'f'"),
    ],
)
def test_sweep_names_what_it_cannot_do(bitproof: Bitproof, arguments: list[str], said: str) -> None:
    """Ranges, kernels and faults."""
    refused(bitproof("sweep", *arguments, "--spec", NARROWING), said)


def test_a_kernel_that_is_no_cast_is_not_swept(bitproof: Bitproof) -> None:
    """The sentence says what its spec lacks."""
    refused(bitproof("sweep", "scale_add", "--spec", PAIR), "declares no `elementwise` cast")


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    """Ctrl-C ends it with status 130 and its state; the same command then tells the whole census."""
    slow = (
        tmp_path / "slow"
    )  # while it is there, a launch takes so long that the signal comes in time
    slow.touch()
    spec = tmp_path / "narrowing.py"
    pause = f"    import os, time\n    time.sleep(0.2 * os.path.exists({str(slow)!r}))\n"
    kernel = 'saturating: the kernel."""\n'
    spec.write_text(Path(NARROWING).read_text().replace(kernel, kernel + pause))
    command = ["bitproof", "sweep", "narrowed", "--spec", str(spec), "--fault"]
    command += ["rounds through fp16", "--bits", "0x3f000000:0x50000000", "--lane", "interpreter"]
    environment = {**os.environ, "PATH": _scripts(), "PYTHONPATH": str(CHECKOUT)}
    states = tmp_path / ".bitproof" / "sweeps"
    # What a shell starts in the background ignores SIGINT, and so would all that it starts.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    ) as first:
        deadline = time.monotonic() + 60
        while not list(states.glob("*.stopped.json")):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.send_signal(signal.SIGINT)
        slow.unlink()
        _, said = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "bitproof: stopped at 0x" in said.splitlines()[-1]
    assert "the same command goes on from there" in said
    again = subprocess.run(
        [*command, "--json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "going on from 0x" in again.stderr
    assert again.returncode == 1
    told = json.loads(again.stdout)
    assert told["tried"] == 0x11000000
    # Nine binades from 0.5 have four such ties each; the tenth ends at 448 and has three.
    assert told["wrong"] == told["toward_zero"] == (4 * 9 + 3) * 8191
    assert list(states.glob("*.stopped.json")) == []


def test_a_damaged_state_is_one_sentence_and_fresh_starts_over(
    bitproof: Bitproof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named, and kept beside the new one."""
    options = ("sweep", "narrowed", "--spec", NARROWING, "--bits", "0:0x200000")

    def stop(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.stopped.Keeper.finish", stop)
    assert bitproof(*options).exit_code == 130
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (state,) = (tmp_path / ".bitproof" / "sweeps").iterdir()
    state.write_text("{}")
    refused(bitproof(*options), f"{state.relative_to(tmp_path)} is no state of a stopped sweep")
    assert bitproof(*options, "--fresh").exit_code == 0
    assert state.with_suffix(".earlier").read_text() == "{}"


def test_a_launch_that_fails_in_a_sweep_is_an_outcome(bitproof: Bitproof, tmp_path: Path) -> None:
    """A crash is the kernel's, status 1; what a kernel cannot do here leaves nothing judged, status 2."""
    text = (
        "import dataclasses\nfrom harness.errors import Unsupported\n"
        "from tests.harness import narrowing\n"
        "def run(tensors, params):\n    raise {}\n"
        "SPEC = dataclasses.replace(narrowing.SPEC, run=run)\n"
    )
    for error, code, said in (
        ("IndexError('beyond')", 1, "narrowed crashed: the launch raised IndexError: beyond\n"),
        ("Unsupported('needs fp4')", 2, "narrowed unsupported: needs fp4\n"),
    ):
        file = tmp_path / f"specs_{code}.py"
        file.write_text(text.format(error))
        result = bitproof("sweep", "narrowed", "--spec", str(file), "--bits", "0:0x1000")
        assert (result.exit_code, result.stdout) == (code, said)


# --- what is common to long work


def test_interrupting_a_check_is_status_130(
    bitproof: Bitproof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, no traceback."""

    def stop(*_arguments: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.falsify.search", stop)
    result = bitproof("check", "scale_add", "--spec", PAIR)
    assert (result.exit_code, result.stderr) == (130, "bitproof: interrupted\n")


def test_the_status_says_whether_every_claim_holds() -> None:
    """A defect or a claim not shown able to fail is 1, nothing judged at all is 2."""
    assert status([Outcome.PASSED, Outcome.UNSUPPORTED]) == 0
    assert status([Outcome.PASSED, Outcome.CRASHED]) == 1
    assert status([Outcome.PASSED, Outcome.NOT_DEMONSTRATED]) == 1
    assert status([Outcome.UNSUPPORTED, Outcome.REFUSED]) == 2


def test_progress_is_a_line_now_and_then_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The share reached, the note, and an estimate made from this run's own part alone."""
    clock = iter((0.0, 9.0, 20.0, 29.0))
    monkeypatch.setattr("harness.commands.screen.time.monotonic", lambda: next(clock))
    with progress("cast", 100, 50) as tell:
        for done in (55, 60, 70):
            tell(done, "3 wrong")
    assert capsys.readouterr().err == "cast: 60.0%, 3 wrong, about 80 s left\n"


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn on standard error, gone when the work is done."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("cast", 100) as tell:
        tell(40, "3 wrong")
    assert "cast" in screen.getvalue()
    assert "40%" in screen.getvalue()


# --- report

ENTRY = {
    "kernel": "scale_add",
    "check": "agreement",
    "outcome": "passed",
    "examples": 400,
    "outcomes": {"passed": 400},
    "covered": {},
    "measures": {"worst": 0.25},
    "counts": {},
    "reasons": [],
    "seconds": 1.5,
    "report": "",
    "record": None,
}


def summary(folder: Path, *entries: dict[str, Any], **head: Any) -> Path:
    """A summary file of these entries."""
    plain = {
        "format": 1,
        "lane": "interpreter",
        "profile": "bitproof",
        "seconds": 3.0,
        "versions": {"torch": "2.13.0"},
        "entries": list(entries),
        **head,
    }
    path = folder / ".bitproof" / "summary.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(plain))
    return path


def test_report_shows_the_last_run_as_a_table(bitproof: Bitproof, tmp_path: Path) -> None:
    """A row for each kernel and check; a failure is status 1 and names its record."""
    failed = {**ENTRY, "check": "memory", "outcome": "failed", "record": "failures/a.json"}
    summary(tmp_path, ENTRY)
    result = bitproof("report")
    assert result.exit_code == 0
    row = next(line for line in result.stdout.splitlines() if "agreement" in line)
    assert [cell.strip() for cell in row.strip("│┃").split("│")] == [
        "scale_add",
        "agreement",
        "passed",
        "400",
        "0.25",
        "1.5",
    ]
    result = bitproof("report", str(summary(tmp_path, ENTRY, failed)))
    assert result.exit_code == 1
    assert "scale_add memory: bitproof replay failures/a.json" in result.stdout


def test_report_refuses_what_is_no_summary(bitproof: Bitproof, tmp_path: Path) -> None:
    """Absent, damaged, from another version, and with entries that are none."""
    refused(bitproof("report"), "cannot be read")
    path = summary(tmp_path, ENTRY)
    path.write_text(path.read_text()[:-1])
    refused(bitproof("report"), "is not a summary written by bitproof")
    summary(tmp_path, ENTRY, format=7)
    refused(bitproof("report"), "has summary format 7, this version reads 1")
    summary(tmp_path, {**ENTRY, "examples": "many"})
    refused(bitproof("report"), "is a damaged summary")
    summary(tmp_path, ENTRY, versions=3)
    refused(bitproof("report"), "is a damaged summary")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "the planted fault was caught by agreement, as declared"),
        (
            ("--check", "memory"),
            "is for agreement to catch, which was not among the checks",
        ),
    ],
)
def test_check_of_a_fault_ends_with_whether_it_was_caught(
    bitproof: Bitproof, options: tuple[str, ...], said: str
) -> None:
    """By the check that the fault names, where that was asked for."""
    arguments = ("check", "scale_add", "--spec", PAIR, "--fault", "scales the sum")
    result = bitproof(*arguments, "--max-examples", "20", *options)
    assert said in result.stdout.splitlines()[-1]
