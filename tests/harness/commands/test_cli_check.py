"""`bitproof check`: a line for each check, of drawn cases or captured tensors, or one sentence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bitproof.harness import lanes
from bitproof.harness.commands import check
from bitproof.harness.outcomes import Outcome
from bitproof.harness.subjects.discovery import FoundSpec
from tests.harness import plain
from tests.harness.command_line import FEW, NARROWING, PAIR, Bitproof, record_of, refused


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


def test_a_folder_that_cannot_be_written_is_one_sentence(
    bitproof: Bitproof, tmp_path: Path
) -> None:
    """The verdict is printed all the same."""
    (tmp_path / ".bitproof").touch()
    result = bitproof("check", "scale_add", "--spec", PAIR, "--fault", "scales the sum", *FEW)
    assert result.exit_code == 2
    assert "agreement        failed" in result.stdout
    told = result.stderr.splitlines()[-1]  # after what a slow machine says of its progress
    assert told.startswith(f"bitproof: {tmp_path}/.bitproof/failures/planted/scale_add-agreement-")
    assert "cannot be written (Not a directory): make its folder writable" in result.stderr


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
        (["--spec", NARROWING, "--tensors", "x"], "--tensors is for one kernel, and there are"),
        (["scale_add", "--tensors", "absent"], "absent cannot be read"),
        (["scale_add", "--tensors", "absent", *FEW], "captured tensors are one case"),
    ],
)
def test_check_names_what_is_not_there(bitproof: Bitproof, arguments: list[str], said: str) -> None:
    """Kernels, checks, faults, files, and options that do not go together."""
    refused(bitproof("check", *arguments, "--spec", PAIR), said)


def test_check_says_what_was_not_demonstrated(bitproof: Bitproof, tmp_path: Path) -> None:
    """Which invariance applied to no case; of a user's one call it is not asked to."""
    (tmp_path / "relating.py").write_text(RELATING)
    options = ("check", "related", "--spec", "relating.py", "--check", "invariances")
    result = bitproof(*options, "--max-examples", "2")
    assert result.exit_code == 1
    assert "not demonstrated 2 examples" in result.stdout
    assert result.stdout.endswith("; never on a Sunday applied\n")
    save_file({"x": torch.ones(4, 2)}, tmp_path / "call.safetensors")
    result = bitproof(*options, "--tensors", "call.safetensors")
    assert result.exit_code == 0, result.output
    assert "passed           1 example" in result.stdout


RELATING = """
from bitproof.harness.spec import Invariance
from tests.harness.plain import variant

same = Invariance(name="again", transform=lambda inputs: inputs, relate=lambda found, inputs: found)
never = Invariance(
    name="on a Sunday", transform=lambda inputs: None, relate=lambda found, inputs: found
)
SPECS = (variant(name="related", invariances=(same, never)),)
"""


def test_check_adds_its_table_to_a_jobs_summary(bitproof: Bitproof, tmp_path: Path) -> None:
    """Behind what the file holds: the verdict, each failure with its replay, a row for each check."""
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    options = ("--spec", PAIR, "--fault", "scales the sum", *FEW, "--check", "agreement")
    result = bitproof("check", "scale_add", *options, "--check", "memory", "--markdown", str(file))
    assert result.exit_code == 0
    lines = file.read_text().splitlines()
    assert lines[0] == "before"
    assert lines[1] == "## bitproof fell short: 1 passed, 1 failed"
    assert any(line.startswith("replay    bitproof replay ") for line in lines)
    header, _, *rows = lines[-4:]
    assert header == "| kernel | check | outcome | examples | worst of its bound | seconds |"
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| scale\\_add", "agreement", "failed"],
        ["| scale\\_add", "memory", "passed"],
    ]


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
    assert result.exit_code == 0, "the planted fault was caught"
    assert "captured tensors: x (70,), z (70,)" in result.stdout
    assert "y[0] is 16.0, expected 13.0" in result.stdout
    path = record_of(result)
    assert json.loads(Path(path).read_text())["captured"]["path"] == str(file)
    assert "y[0] is 16.0, expected 13.0" in bitproof("replay", path, "--spec", PAIR).stdout
    save_file({"x": torch.full((70,), 4.0), "z": torch.ones(70)}, file)
    again = bitproof("replay", path, "--spec", PAIR)
    assert again.exit_code == 2
    assert "is not the file that was recorded" in again.stderr


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


@pytest.mark.parametrize("option", ["--max-examples", "--seconds"])
def test_captured_tensors_are_one_case(bitproof: Bitproof, tmp_path: Path, option: str) -> None:
    """How many to draw, or for how long, has no meaning there."""
    file = tmp_path / "layer.safetensors"
    save_file({"x": torch.ones(3), "z": torch.ones(3)}, file)
    options = ("check", "scale_add", "--spec", PAIR, "--tensors", str(file), option, "5")
    refused(bitproof(*options), f"{option} is for drawn cases: captured tensors are one case")


@pytest.mark.parametrize(
    ("options", "said", "status"),
    [
        ((), "the planted fault was caught by agreement, as declared", 0),
        (
            ("--check", "memory"),
            "is for agreement to catch, which was not among the checks",
            2,
        ),
    ],
)
def test_check_of_a_fault_ends_with_whether_it_was_caught(
    bitproof: Bitproof, options: tuple[str, ...], said: str, status: int
) -> None:
    """By the check that the fault names, where that was asked for; caught is the good end."""
    arguments = ("check", "scale_add", "--spec", PAIR, "--fault", "scales the sum")
    result = bitproof(*arguments, "--max-examples", "20", *options)
    assert said in result.stdout.splitlines()[-1]
    assert result.exit_code == status


def test_a_fault_that_its_check_misses_falls_short() -> None:
    """Status 1 where the named check passed, 2 where it could not judge, whatever other checks found."""
    found = FoundSpec(
        spec=plain.SPEC, reference="tests.harness.plain", module=plain, fault=plain.FAULTS[0].name
    )
    named = plain.FAULTS[0].caught_by
    other = "memory" if named != "memory" else "agreement"

    def judged(outcome: Outcome) -> tuple[str, int]:
        outcomes = {named: outcome, other: Outcome.FAILED}
        return check.judge_catch(found, outcomes, plain.PlainLane(name="interpreter"))

    missed = f"the planted fault was NOT caught by {named}, which is to catch it"
    assert judged(Outcome.PASSED) == judged(Outcome.NOT_DEMONSTRATED) == (missed, 1)
    assert judged(Outcome.CRASHED)[1] == 0
    said, status = judged(Outcome.UNSUPPORTED)
    assert (said.endswith("which ended as unsupported"), status) == (True, 2)


def test_a_fault_of_cards_is_to_be_caught_by_another_targets_code_as_well() -> None:
    """Specs speak of families of lanes; on another family the reason is told."""
    fault = dataclasses.replace(
        plain.FAULTS[0], lanes=("cuda",), because="the interpreter has no such instruction"
    )
    spec = plain.variant(faults=(fault, *plain.FAULTS[1:]))
    found = FoundSpec(spec=spec, reference="tests.harness.plain", module=plain, fault=fault.name)

    def told(lane: str) -> tuple[str, int]:
        here = plain.PlainLane(name=lane)
        return check.judge_catch(found, {fault.caught_by: Outcome.PASSED}, here)

    missed = f"the planted fault was NOT caught by {fault.caught_by}, which is to catch it"
    assert told("cuda:sm_89") == told("cuda") == (missed, 1)
    said, status = told("interpreter")
    assert said.endswith("on cuda only: the interpreter has no such instruction")
    assert status == 2


def test_a_spec_with_mistakes_blocks_no_other_kernel(bitproof: Bitproof, tmp_path: Path) -> None:
    """Another one of its file is judged; of itself every mistake is told, and nothing is judged."""
    path = tmp_path / "mistaken.py"
    path.write_text(
        "from tests.harness.plain import variant\n"
        "from tests.harness.starting import scaled_beside_a_kernel\n"
        "GOOD = variant(name='good', run=scaled_beside_a_kernel)\n"
        "BAD = variant(name='bad', bounds={}, strided='x')\n"
    )
    assert bitproof("check", "good", "--spec", str(path), *FEW).exit_code == 0
    bad = bitproof("check", "bad", "--spec", str(path), *FEW)
    assert (bad.exit_code, bad.stdout) == (2, "")
    first, *rest = bad.stderr.splitlines()
    assert first == f"bitproof: spec 'bad' ({path}) has 2 mistakes:"
    assert len(rest) == 2


def test_check_takes_several_kernels(bitproof: Bitproof, tmp_path: Path) -> None:
    """Those that are named, or all of a spec; one that falls short decides the status."""
    path = tmp_path / "several.py"
    path.write_text(
        "from tests.harness.plain import variant\n"
        "from tests.harness.starting import scaled_beside_a_kernel\n"
        "GOOD = variant(name='good', run=scaled_beside_a_kernel)\n"
        "ALSO = variant(name='also', run=scaled_beside_a_kernel)\n"
        "BAD = variant(name='bad', run=lambda tensors, params: {'y': tensors['x']})\n"
    )
    options = ("--spec", str(path), "--check", "agreement", "--max-examples", "3")
    good = bitproof("check", "good", "also", *options)
    assert good.exit_code == 0
    assert [line.split(":")[0] for line in good.stdout.splitlines()[::2]] == ["also", "good"]
    every = bitproof("check", *options)
    assert every.exit_code == 1
    assert all(f"{name}: lane " in every.stdout for name in ("also", "bad", "good"))
    refused(bitproof("check"), "name the kernels to check, or with --spec where to take all")


def test_captured_outputs_are_judged_without_a_launch(bitproof: Bitproof, tmp_path: Path) -> None:
    """The oracle says whether they are right, element by element."""
    x, z = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.25])
    save_file({"x": x, "z": z}, tmp_path / "inputs.safetensors")
    save_file({"y": x + z}, tmp_path / "right.safetensors")
    save_file({"y": x - z}, tmp_path / "wrong.safetensors")
    call = ("check", "scale_add", "--spec", PAIR, "--tensors", "inputs.safetensors")
    options = ("--params", '{"exponent": 0}')
    right = bitproof(*call, *options, "--outputs", "right.safetensors")
    assert right.exit_code == 0, right.output
    assert "captured outputs y against the oracle" in right.stdout
    wrong = bitproof(*call, *options, "--outputs", "wrong.safetensors")
    assert wrong.exit_code == 1
    assert "y[0] is 0.5, expected 1.5" in wrong.stdout
    save_file({"hidden": x, "z": z}, tmp_path / "theirs.safetensors")
    save_file({"out": x + z}, tmp_path / "given.safetensors")
    theirs = (*call[:5], "theirs.safetensors", *options)
    names = ("--rename", "hidden=x", "--rename", "out=y")
    named = bitproof(*theirs, *names, "--outputs", "given.safetensors")
    assert named.exit_code == 0, named.output
    refused(bitproof(*theirs, "--rename", "hidde=x"), "has no tensor 'hidde' to rename")
    refused(bitproof(*theirs, "--rename", "hidden=z"), "has a tensor 'z' already")
    refused(bitproof(*theirs, "--rename", "hidden"), "--rename must be FILE_NAME=SPEC_NAME")
    refused(
        bitproof(*call, "--outputs", "inputs.safetensors"), "has no output of kernel 'scale_add'"
    )
    refused(bitproof(*call[:4], "--outputs", "right.safetensors"), "whose inputs --tensors names")


def test_a_first_spec_is_no_failure(bitproof: Bitproof) -> None:
    """Nothing is demonstrated, what is missing is said, and nothing is wrong."""
    options = ("--spec", "example_kernels.first_spec", "--max-examples", "6")
    result = bitproof("check", "first_scale_add", "--check", "agreement", *options)
    assert result.exit_code == 0, result.output
    assert "not demonstrated 6 examples" in result.stdout
    assert "nothing shows that it can fail: plant a fault that agreement catches" in result.stdout
    listed = bitproof("list", "first_scale_add", "--spec", "example_kernels.first_spec")
    assert "tensor  x: float32, [n]" in listed.stdout
    assert "equal bits over 8 runs, shown by nothing yet" in listed.stdout


def test_check_ends_with_what_no_launch_exercised(bitproof: Bitproof, tmp_path: Path) -> None:
    """The branch that no case takes, by file, line, function and condition."""
    (tmp_path / "unused.py").write_text(_UNUSED)
    result = bitproof("check", "scaled_rows", "--spec", "unused.py", "--check", "agreement", *FEW)
    assert result.exit_code == 0
    assert "never executed: unused.py:14 (in _scale, if NEGATE)" in result.stdout.splitlines()


_UNUSED = """
import torch
import triton
import triton.language as tl

from tests.harness import plain


@triton.jit
def _scale(x, y, factor, n, NEGATE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * factor
    if NEGATE:
        value = -value
    tl.store(y + at, value, mask=at < n)


def run(tensors, params):
    x = tensors["x"]
    y = torch.empty_like(x)
    _scale[(1,)](x, y, params["factor"], x.numel(), NEGATE=False, BLOCK=64)
    return {"y": y}


SPEC = plain.variant(run=run)
"""
