"""`bitproof attribute`: errors of known size are told as they are, and what meets a target, shown."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from bitproof.harness import lanes
from bitproof.harness.attribution import chart
from tests.harness.attributing import (
    ALONE,
    UNIT,
    Attribute,
    close,
    parts,
    plain,
    variant,
)
from tests.harness.command_line import refused
from tests.harness.conftest import Write
from tests.harness.storing import POINTS

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
    spec = variant(write, run="lambda t, p: {'y': storing.summed(t, p)['y'] * float('nan')}")
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
    spec = variant(
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
