"""What `bitproof attribute` is asked about: drawn, recorded and captured inputs, else one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from bitproof.harness.commands.cli import main
from tests.harness.attributing import (
    ALONE,
    STORING,
    Attribute,
    close,
    parts,
    plain,
    variant,
)
from tests.harness.command_line import refused
from tests.harness.conftest import Write
from tests.harness.storing import PartsCase


def test_a_case_is_drawn_where_none_is_given(attribute: Attribute) -> None:
    """The largest that is not zero everywhere, the same one every time."""
    told = [json.loads(attribute("--json").stdout) for _ in range(2)]
    assert told[0]["case"] == told[1]["case"]
    assert (told[0]["case"]["times"], told[0]["case"]["scale"]) == (3, 1)


def test_what_json_printed_and_a_record_are_cases_too(attribute: Attribute, tmp_path: Path) -> None:
    """Both name their kernel, which has to be this one."""
    printed = attribute("--json", "--case", parts(tmp_path, fp32=("w",))).stdout
    (tmp_path / "told.json").write_text(printed)
    again = json.loads(attribute("--json", "--case", "told.json").stdout)
    assert again["case"] == plain(fp32=("w",))
    check = ("check", "summed_parts", "--spec", STORING, "--check", "agreement")
    fault = ("--fault", "rounds what is to stay fp32")
    CliRunner(catch_exceptions=False).invoke(main, [*check, *fault])
    (record,) = Path(".bitproof/failures/planted").iterdir()
    assert json.loads(attribute("--json", "--case", str(record)).stdout)["case"]["fp32"] == ["u"]
    (tmp_path / "told.json").write_text(printed.replace("summed_parts", "other"))
    refused(
        attribute("--case", "told.json"), "told.json is about kernel 'other', not 'summed_parts'"
    )


def test_captured_tensors_are_attributed(attribute: Attribute, tmp_path: Path) -> None:
    """With their parameters; the file and its digest are told."""
    file = tmp_path / "layer.safetensors"
    save_file(PartsCase().tensors(torch.device("cpu")), file)
    options = ("--tensors", str(file), "--params", '{"fp32": ["u", "w"]}')
    told = json.loads(attribute("--json", *options).stdout)
    assert told["together"] == told["kernel_error"] == close(ALONE["v"])
    assert told["case"] is None
    assert told["captured"]["path"] == str(file)
    (tmp_path / "told.json").write_text(json.dumps(told))
    refused(
        attribute("--case", "told.json"), "told.json is about captured tensors: give their file"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "0"], "--target 0 is no relative error to meet: give one above 0"),
        (["--target", "-1"], "--target -1 is no relative error"),
        (["--target", "nan"], "--target nan is no relative error"),
        (["--target", "inf"], "--target inf is no relative error"),
        (["--output", "z"], "of kernel 'summed_parts' answers no output 'z': there are y"),
        (["--params", "{}"], "--params is for captured tensors: give --tensors FILE"),
        (["--tensors", "a", "--case", "b"], "--tensors and --case both say what the inputs are"),
        (["--tensors", "absent"], "absent cannot be read"),
        (["--case", "absent"], "absent cannot be read"),
        (["--plot", "chart.pdf"], "--plot chart.pdf: a plot is written as PNG"),
        (["--fault", "slow"], "has no fault 'slow'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    attribute: Attribute, arguments: list[str], said: str
) -> None:
    """Targets, outputs, files, and options that do not go together."""
    refused(attribute(*arguments), said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "case.json is not valid JSON"),
        ("[]", "case.json holds no case of kernel 'summed_parts': not a PartsCase"),
        (
            '{"times": 1}',
            "case.json holds no case of kernel 'summed_parts': not a PartsCase: field",
        ),
    ],
)
def test_a_file_that_holds_no_case_is_one_sentence(
    attribute: Attribute, tmp_path: Path, text: str, said: str
) -> None:
    """Damaged, of another kind, incomplete."""
    (tmp_path / "case.json").write_text(text)
    refused(attribute("--case", "case.json"), said)


def test_kernels_without_a_model_and_unknown_ones_are_named(
    attribute: Attribute, write: Write
) -> None:
    """The sentence says what the spec lacks, or what there is."""
    refused(attribute(kernel="summed"), "unknown kernel 'summed': there are summed_parts")
    spec = variant(write, storage="None")
    refused(attribute(spec=spec), "cannot be attributed: its spec declares no `storage` model")


def test_an_answer_of_zeros_is_one_sentence(
    attribute: Attribute, write: Write, tmp_path: Path
) -> None:
    """Given, or where nothing else is drawn."""
    said = "output 'y' of kernel 'summed_parts' is 0 everywhere on these inputs"
    refused(attribute("--case", parts(tmp_path, scale=0)), said)
    refused(
        attribute(spec=variant(write, cases="lambda: st.just(storing.PartsCase(scale=0))")), said
    )


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        ("Refused('rows must be odd')", 2, "summed_parts refused: rows must be odd"),
        ("ValueError('no way')", 1, "summed_parts crashed: the launch raised ValueError: no way"),
    ],
)
def test_what_the_launcher_raises_is_told(
    attribute: Attribute, write: Write, tmp_path: Path, error: str, status: int, said: str
) -> None:
    """There is no figure without the kernel's answer."""
    spec = variant(write, run=f"lambda tensors, params: raised({error})")
    result = attribute("--case", parts(tmp_path), spec=spec)
    assert (result.exit_code, result.stderr, result.stdout) == (status, f"{said}\n", "")


def test_a_case_is_drawn_that_has_something_to_attribute(
    attribute: Attribute, write: Write
) -> None:
    """Before a larger one that keeps every stored point in fp32."""
    kept = "storing.PartsCase(times=3, fp32=storing.POINTS)"
    spec = variant(write, cases=f"lambda: st.sampled_from([storing.PartsCase(), {kept}])")
    assert json.loads(attribute("--json", spec=spec).stdout)["case"]["fp32"] == []


def test_drawn_cases_that_the_kernel_refuses_are_passed_over(
    attribute: Attribute, write: Write
) -> None:
    """The next largest takes their place; the sentence says where none is left."""
    refusing = "lambda t, p: storing.summed(t, p) if len(t['u']) == 8 else raised(Refused('no'))"
    told = json.loads(attribute("--json", spec=variant(write, run=refusing)).stdout)
    assert told["case"]["times"] == 1
    spec = variant(write, run="lambda tensors, params: raised(Refused('never'))")
    refused(attribute(spec=spec), "no case drawn for kernel 'summed_parts' can be run here")
