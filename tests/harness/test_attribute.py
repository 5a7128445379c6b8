"""`bitproof attribute`: errors of known size are told as they are, and the smallest remedy is found."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from harness import attribution, case, lanes
from harness.attribution import Attribution, Model
from harness.cli import main
from harness.commands import chart
from harness.errors import SpecError
from harness.spec import Storage
from tests.harness import storing
from tests.harness.conftest import Write
from tests.harness.storing import POINTS, PartsCase

STORING = str(Path(__file__).with_name("storing.py"))

# The answer's RMS is (1 + 2^-9) * sqrt(16 + 4 + 1), the errors' 2^-9 times 4, 2 and 1.
UNIT = 2.0**-9 / (1 + 2.0**-9)
ALONE = {"u": 4 * UNIT / math.sqrt(21), "w": 2 * UNIT / math.sqrt(21), "v": UNIT / math.sqrt(21)}

Attribute = Callable[..., Result]


def close(value: float) -> Any:
    """Float64 sums of a few values are as near as this to the closed form."""
    return pytest.approx(value, rel=2.0**-48)


@pytest.fixture
def attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attribute:
    """`attribute(*arguments)`: of the kernel with known errors, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, kernel: str = "summed_parts", spec: str = STORING) -> Result:
        command = ("attribute", kernel, "--spec", spec, *arguments)
        return CliRunner(catch_exceptions=False).invoke(main, command)

    return run


def plain(**fields: Any) -> Any:
    """A case as JSON reads it."""
    return json.loads(json.dumps(case.encode(PartsCase(**fields))))


def parts(folder: Path, **fields: Any) -> str:
    """A file that holds one case."""
    path = folder / "case.json"
    path.write_text(json.dumps(plain(**fields)))
    return str(path)


def refused(result: Result, said: str) -> None:
    """Hold that a command ended with one sentence on standard error and status 2."""
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


# --- figures


def test_each_rounding_costs_what_its_closed_form_says(
    attribute: Attribute, tmp_path: Path
) -> None:
    """Alone, in quadrature, together and in the kernel; without a target the status is 0."""
    result = attribute("--json", "--case", parts(tmp_path))
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert {point["name"]: close(point["alone"]) for point in told["points"]} == ALONE
    assert [point["name"] for point in told["points"]] == list(POINTS)
    for together in ("quadrature", "together", "kernel_error"):
        assert told[together] == close(UNIT)
    assert (told["target"], told["meets"], told["promotions"]) == (None, None, None)
    assert told["case"] == plain()
    assert told["versions"]["lane"] == lanes.present().name


def test_errors_that_cancel_are_told_by_the_difference_from_their_quadrature() -> None:
    """Two roundings of opposite error: 5 in quadrature, 1 together."""
    told = Attribution(alone={"a": 3.0, "b": 4.0}, together=1.0, kernel=1.0)
    assert told.quadrature == 5.0


def test_what_a_configuration_keeps_in_fp32_costs_nothing(
    attribute: Attribute, tmp_path: Path
) -> None:
    """It is named apart, and is part of no sum."""
    told = json.loads(attribute("--json", "--case", parts(tmp_path, fp32=("u", "v"))).stdout)
    assert [point["name"] for point in told["points"]] == ["w"]
    assert told["unrounded"] == ["u", "v"]
    assert told["together"] == told["kernel_error"] == close(ALONE["w"])


def test_a_kernel_that_loses_more_than_its_storage_shows(
    attribute: Attribute, tmp_path: Path
) -> None:
    """The planted fault rounds what the model knows to stay fp32."""
    options = ("--fault", "rounds what is to stay fp32", "--case", parts(tmp_path, fp32=("u",)))
    told = json.loads(attribute("--json", *options).stdout)
    assert told["fault"] == "rounds what is to stay fp32"
    assert told["together"] == close(UNIT * math.sqrt(5 / 21))
    assert told["kernel_error"] == close(UNIT)


def test_a_table_shows_the_same_with_bars(attribute: Attribute, tmp_path: Path) -> None:
    """To one scale: the bar of u is twice as long as that of w."""
    result = attribute("--case", parts(tmp_path, fp32=("v",)))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1:3] == ["output    y [8]", "case      PartsCase(fp32=('v',))"]
    rows = {}
    for line in lines:
        if line.startswith("│"):
            name, error, bar = (cell.strip() for cell in line.strip("│").split("│"))
            rows[name] = (error, len(bar))
    assert rows["u"] == ("0.1702 %", 36)
    assert rows["w"] == ("0.08508 %", 18)
    assert rows["in quadrature"] == rows["all rounded"] == rows["the kernel"] == ("0.1902 %", 40)
    assert lines[-1] == "in fp32   v"


def test_a_kernel_that_is_not_finite_has_no_error_and_misses_every_target(
    attribute: Attribute, write: Write, tmp_path: Path
) -> None:
    """null in JSON, which has no infinity; a table and a plot say inf."""
    spec = _variant(write, run="lambda t, p: {'y': storing.summed(t, p)['y'] * float('nan')}")
    options = ("--case", parts(tmp_path), "--target", "0.5")
    told = attribute(*options, "--json", spec=spec)
    assert told.exit_code == 1
    assert json.loads(told.stdout)["kernel_error"] is None
    assert "the kernel falls short at inf %" in attribute(*options, spec=spec).stdout


# --- the search


@pytest.mark.parametrize(
    ("target", "tried", "found", "status"),
    [
        (UNIT * 1.01, 1, [((), UNIT)], 0),
        (0.8 * UNIT, 4, [(("u",), UNIT * math.sqrt(5 / 21))], 1),
        (
            0.46 * UNIT,
            7,
            [(("u", "w"), UNIT / math.sqrt(21)), (("u", "v"), 2 * UNIT / math.sqrt(21))],
            1,
        ),
        (1e-9, 8, [(POINTS, 0.0)], 1),
    ],
)
def test_the_smallest_sets_are_found_all_of_them_and_the_best_first(
    attribute: Attribute,
    tmp_path: Path,
    target: float,
    tried: int,
    found: list[tuple[tuple[str, ...], float]],
    status: int,
) -> None:
    """Every set of a size before the next size; the status says whether the kernel meets the target."""
    result = attribute("--json", "--case", parts(tmp_path), "--target", str(target))
    assert result.exit_code == status
    told = json.loads(result.stdout)
    assert told["meets"] == (status == 0)
    assert told["promotions"]["tried"] == tried
    assert [
        (tuple(one["points"]), close(one["error"])) for one in told["promotions"]["found"]
    ] == found


def test_a_target_is_told_with_the_sets_that_meet_it(attribute: Attribute, tmp_path: Path) -> None:
    """Bars are as long as their column at the target."""
    result = attribute("--case", parts(tmp_path), "--target", "0.0009")
    assert result.exit_code == 1
    said, smallest, *table = result.stdout.splitlines()[-8:]
    assert said == "target    0.09 %: the kernel falls short at 0.1949 %"
    assert smallest == "smallest  2 of 3 points; 2 such sets by the model, 7 tried"
    assert [line.count("█") for line in table[3:5]] == [18, 37]


def test_public_points_are_never_promoted(
    attribute: Attribute, write: Write, tmp_path: Path
) -> None:
    """With v public nothing meets less than v alone loses, and that is said."""
    spec = _variant(
        write, storage="dataclasses.replace(storing.SPEC.storage, public=frozenset({'v'}))"
    )
    options = ("--case", parts(tmp_path), "--target", "1e-6")
    result = attribute(*options, spec=spec)
    assert result.exit_code == 1
    assert "v (public)" in result.stdout
    assert result.stdout.splitlines()[-1] == (
        "no set of points meets it: with all of u, w in fp32 the model is still at 0.04254 % "
        "(4 sets tried)"
    )
    told = json.loads(attribute(*options, "--json", spec=spec).stdout)
    assert told["promotions"] == {"tried": 4, "floor": close(ALONE["v"]), "found": []}


def test_no_set_is_skipped_for_what_another_one_left() -> None:
    """Roundings that cancel: each promotion alone makes it worse, one pair makes it right."""
    errors = {frozenset("abc"): 2.0, frozenset("c"): 0.5}

    def model(tensors: Any, params: Any, rounded: frozenset[str]) -> dict[str, Any]:
        return {"y": np.array([1.0 + (errors.get(rounded, 3.0) if rounded else 0.0)])}

    storage = Storage(
        points=("a", "b", "c"), outputs=("y",), stored=lambda p: frozenset("abc"), model=model
    )
    seen: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def watch(title: str, total: int) -> Iterator[attribution.Tell]:
        done = itertools.count(1)
        yield lambda count, note: seen.append((title, total)) if count == next(done) else None

    found = attribution.search(_model(storage), 1.0, watch)
    assert [promotion.points for promotion in found.found] == [("a", "b")]
    assert seen == [("sets of 0", 1)] + 3 * [("sets of 1", 3)] + 3 * [("sets of 2", 3)]


# --- inputs


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
    (record,) = Path(".bitproof/failures").iterdir()
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
    spec = _variant(write, storage="None")
    refused(attribute(spec=spec), "cannot be attributed: its spec declares no `storage` model")


def test_an_answer_of_zeros_is_one_sentence(
    attribute: Attribute, write: Write, tmp_path: Path
) -> None:
    """Given, or where nothing else is drawn."""
    said = "output 'y' of kernel 'summed_parts' is 0 everywhere on these inputs"
    refused(attribute("--case", parts(tmp_path, scale=0)), said)
    refused(
        attribute(spec=_variant(write, cases="lambda: st.just(storing.PartsCase(scale=0))")), said
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
    spec = _variant(write, run=f"lambda tensors, params: raised({error})")
    result = attribute("--case", parts(tmp_path), spec=spec)
    assert (result.exit_code, result.stderr, result.stdout) == (status, f"{said}\n", "")


def test_drawn_cases_that_the_kernel_refuses_are_passed_over(
    attribute: Attribute, write: Write
) -> None:
    """The next largest takes their place; the sentence says where none is left."""
    refusing = "lambda t, p: storing.summed(t, p) if len(t['u']) == 8 else raised(Refused('no'))"
    told = json.loads(attribute("--json", spec=_variant(write, run=refusing)).stdout)
    assert told["case"]["times"] == 1
    spec = _variant(write, run="lambda tensors, params: raised(Refused('never'))")
    refused(attribute(spec=spec), "no case drawn for kernel 'summed_parts' can be run here")


# --- what a model gets wrong


def _model(storage: Storage) -> Model:
    inputs = case.build(PartsCase(), torch.device("cpu"))
    spec = dataclasses.replace(storing.SPEC, storage=storage)
    return Model(spec=spec, inputs=inputs, output="y")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stored": lambda p: {"s"}}, "`stored` names 's', which is none of its points u, w, v"),
        ({"stored": lambda p: p["policy"]}, "`stored` raised KeyError in <lambda>"),
        ({"model": lambda t, p, r: {}}, "does not answer output 'y'"),
        ({"model": lambda t, p, r: None}, "does not answer output 'y'"),
        ({"model": lambda t, p, r: t["x"]}, "its storage model raised KeyError in <lambda>"),
        ({"model": lambda t, p, r: {"y": t["u"]}}, "must answer 'y' in float64, not in float32"),
        ({"model": lambda t, p, r: {"y": [1.0]}}, "must answer 'y' in float64, not in list"),
        (
            {"model": lambda t, p, r: {"y": np.ones(2 + len(r))}},
            r"answers 'y' in shape \(3,\) with roundings, \(2,\) without",
        ),
        (
            {"model": lambda t, p, r: {"y": np.ones(3)}},
            r"answers 'y' in shape \(3,\), the kernel in \(2,\)",
        ),
    ],
)
def test_a_model_that_contradicts_itself_is_the_specs_mistake(
    changes: dict[str, Any], said: str
) -> None:
    """Points, outputs, dtypes and shapes; what it raises."""
    right = {
        "points": POINTS,
        "outputs": ("y",),
        "stored": storing.stored,
        "model": storing.modelled,
    }
    with pytest.raises(SpecError, match=said):
        attribution.attribute(_model(Storage(**{**right, **changes})), torch.ones(2))


def test_a_model_may_answer_in_torch_and_is_asked_once_for_each_set() -> None:
    """On whatever device its tensors are."""
    asked: list[frozenset[str]] = []

    def model(tensors: Any, params: Any, rounded: frozenset[str]) -> dict[str, Any]:
        asked.append(rounded)
        return {"y": torch.tensor([1.0 + len(rounded)], dtype=torch.float64)}

    found = _model(Storage(points=POINTS, outputs=("y",), stored=storing.stored, model=model))
    told = attribution.attribute(found, torch.tensor([2.0]))
    assert (told.together, told.kernel) == (3.0, 1.0)
    found.error({"u"})
    assert len(asked) == len(set(asked)) == 5


# --- the plot


def test_a_plot_is_a_png(attribute: Attribute, tmp_path: Path) -> None:
    """Beside the table, which names it."""
    pytest.importorskip("matplotlib", exc_type=ImportError)
    options = ("--case", parts(tmp_path), "--target", "0.0009", "--plot", "plots/chart.png")
    result = attribute(*options)
    assert result.stdout.splitlines()[-1] == "plot      plots/chart.png"
    assert (tmp_path / "plots" / "chart.png").read_bytes().startswith(b"\x89PNG\r\n")
    chart.save(tmp_path / "inf.png", "odd", {"measured": {"the kernel": math.inf}}, None)
    assert (tmp_path / "inf.png").stat().st_size > 1000


def test_a_plot_without_matplotlib_is_one_sentence(
    attribute: Attribute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is computed, with the remedy."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused(
        attribute("--plot", "chart.png"), "--plot needs matplotlib: pip install 'bitproof[plot]'"
    )


def _variant(write: Write, **changes: str) -> str:
    """A spec file: the kernel with known errors, with these fields as written."""
    fields = ", ".join(f"{name}={value}" for name, value in changes.items())
    digest = abs(hash(fields))
    text = (
        "import dataclasses\n"
        "from hypothesis import strategies as st\n"
        "from harness.errors import Refused\n"
        "from tests.harness import storing\n\n"
        "def raised(error):\n    raise error\n\n"
        f"SPEC = dataclasses.replace(storing.SPEC, {fields})\n"
    )
    return str(write(f"varied_{digest}.py", text))
