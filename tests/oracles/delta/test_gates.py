"""Gates and normalisation against five hundred digits, and their adjoints against derivatives taken there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mpmath import MPContext
from torch import Tensor

from bitproof.oracles.delta.gates import (
    GateParameters,
    activate,
    activate_adjoint,
    normalise,
    normalise_adjoint,
)
from tests.oracles.delta.operands import numbers

# A context of its own, since other tests count in other digits: a saturated sigmoid's distance from its
# limit is down to 10^-135, and a difference keeps a third of them.
mp = MPContext()
mp.dps = 500
mpf = mp.mpf

# float64's unit, with what is lost on the way into an exponential at arguments up to 2^7.
CLOSE = 2.0**-44
RAW = (-700.0, -104.0, -20.125, -1.5, -(2.0**-30), 0.0, 2.0**-30, 0.75, 19.875, 20.125, 89.0)
BIAS = (0.0, -6.25, 0.5)
RATES = (-3.0, 0.0, 1.25)


def softplus_gate(x: Any, bias: Any, a_log: Any) -> Any:
    """-e^A_log * ln(1 + e^x)."""
    return -mp.exp(a_log) * mp.log1p(mp.exp(x + bias))


def sigmoid_gate(x: Any, bias: Any, a_log: Any) -> Any:
    """-4 * sigmoid(e^A_log * x)."""
    return -4 / (1 + mp.exp(-mp.exp(a_log) * (x + bias)))


FORMULAS: dict[str, Callable[..., Any]] = {"plain": softplus_gate, "bounded": sigmoid_gate}


def grid() -> tuple[Tensor, Tensor, Tensor]:
    """Raw gates [T, H, K] = [tokens, rates, biases], A_log [H] and dt_bias [H, K]."""
    x = torch.tensor(RAW, dtype=torch.float64)[:, None, None].expand(-1, len(RATES), len(BIAS))
    bias = torch.tensor(BIAS, dtype=torch.float64).expand(len(RATES), -1)
    return x, torch.tensor(RATES, dtype=torch.float64), bias


def close(found: float, expected: Any) -> bool:
    """Within float64's reach of the number; what is below its range may be zero."""
    return abs(mpf(found) - expected) <= CLOSE * abs(expected) + mpf(2) ** -1022


@pytest.mark.parametrize("gate", ["plain", "bounded"])
def test_gates_are_their_formulas_to_the_last_digits(gate: Any) -> None:
    """At every rate and bias, also where a sigmoid or softplus is a tiny number or its argument."""
    x, a_log, bias = grid()
    given = GateParameters(gate=gate, a_log=a_log, dt_bias=bias, lower_bound=-4.0)
    found = activate(x, given)
    for t, raw in enumerate(RAW):
        for h, rate in enumerate(RATES):
            for i, shift in enumerate(BIAS):
                expected = FORMULAS[gate](mpf(raw), mpf(shift), mpf(rate))
                assert close(float(found[t, h, i]), expected), (raw, rate, shift)


@pytest.mark.parametrize("gate", ["plain", "bounded"])
def test_gradients_of_gates_are_derivatives_of_their_formulas(gate: Any) -> None:
    """Of raw gates, and, term by term, of A_log; those of dt_bias are sums over tokens."""
    x, a_log, bias = grid()
    given = GateParameters(gate=gate, a_log=a_log, dt_bias=bias, lower_bound=-4.0)
    dg = numbers(1, *x.shape)
    dx, da_log, dbias = activate_adjoint(x, given, dg)
    assert da_log is not None
    assert dbias is not None
    da_log = da_log.unflatten(1, (len(RAW), len(BIAS)))
    formula = FORMULAS[gate]
    for t, raw in enumerate(RAW):
        for h, rate in enumerate(RATES):
            for i, shift in enumerate(BIAS):
                where, factor = (raw, rate, shift), mpf(float(dg[t, h, i]))
                by_raw = mp.diff(lambda v, r=rate, s=shift: formula(v, s, r), mpf(raw))
                by_rate = mp.diff(lambda v, x=raw, s=shift: formula(mpf(x), s, v), mpf(rate))
                assert close(float(dx[t, h, i]), factor * by_raw), where
                assert close(float(da_log[h, t, i]), factor * by_rate), where
    assert torch.equal(dbias, dx.sum(0))


def test_a_parameter_that_is_absent_is_a_neutral_one() -> None:
    """No A_log is a factor of 1, not of e; no dt_bias is one of zeros; gradients are those there."""
    x, dg = 4 * numbers(2, 5, 3, 2), numbers(3, 5, 3, 2)
    zeros = {"a_log": torch.zeros(3).double(), "dt_bias": torch.zeros(3, 2).double()}
    expected = GateParameters(gate="bounded", **zeros)
    for absent in ({"a_log"}, {"dt_bias"}, {"a_log", "dt_bias"}):
        kept = {name: value for name, value in zeros.items() if name not in absent}
        given = GateParameters(gate="bounded", **kept)
        assert torch.equal(activate(x, given), activate(x, expected))
        for found, other in zip(
            activate_adjoint(x, given, dg), activate_adjoint(x, expected, dg), strict=True
        ):
            assert found is not None
            assert other is not None
            assert torch.equal(found, other)


def test_a_log_decay_passes_as_it_is() -> None:
    """Parameters beside it have no effect and no gradient."""
    x, dg = numbers(4, 5, 3, 2), numbers(5, 5, 3, 2)
    given = GateParameters(a_log=torch.ones(3).double(), dt_bias=torch.ones(3, 2).double())
    assert activate(x, given) is x
    dx, da_log, dbias = activate_adjoint(x, given, dg)
    assert dx is dg
    assert da_log is None
    assert dbias is None


@pytest.mark.parametrize("a_log", [90.0, 800.0])
def test_a_gate_that_is_as_steep_as_a_step_is_a_step(a_log: float) -> None:
    """Its factor beyond fp32's range, or float64's: the bound, half of it, or nothing; flat beside it."""
    x = torch.tensor([-2.0, -(2.0**-17), 0.0, 2.0**-17, 3.0], dtype=torch.float64)[:, None, None]
    given = GateParameters(gate="bounded", a_log=torch.tensor([a_log], dtype=torch.float64))
    assert activate(x, given).flatten().tolist() == [0.0, 0.0, -2.5, -5.0, -5.0]
    beside = x[[0, 1, 3, 4]]
    dx, da_log, dbias = activate_adjoint(beside, given, torch.ones_like(beside))
    assert da_log is not None
    assert dbias is not None
    assert not dx.any()
    assert not da_log.any()
    assert not dbias.any()


def test_a_gate_that_is_flat_is_half_the_bound() -> None:
    """e^-90 is a factor that no raw gate makes up for."""
    x = 30 * numbers(6, 20, 1, 4)
    given = GateParameters(gate="bounded", a_log=torch.tensor([-90.0]).double(), lower_bound=-3.0)
    assert torch.equal(activate(x, given), torch.full_like(x, -1.5))


def test_saturated_gates_stay_finite() -> None:
    """Large raw gates leave softplus their argument, small ones nothing; gradients end with them."""
    x = torch.tensor([-2000.0, -745.0, 800.0, 60000.0], dtype=torch.float64)[:, None, None]
    given = GateParameters(gate="plain", a_log=torch.zeros(1).double())
    g = activate(x, given).flatten().tolist()
    assert g[0] == 0.0
    assert -(2.0**-1070) < g[1] < 0.0
    assert g[2:] == [-800.0, -60000.0]
    dx, da_log, _ = activate_adjoint(x, given, torch.ones_like(x))
    assert da_log is not None
    assert dx.flatten().tolist()[0] == 0.0
    assert dx.flatten().tolist()[2:] == [-1.0, -1.0]
    assert da_log.flatten().tolist() == g


@pytest.mark.parametrize(
    ("norm", "expected"),
    [(1e-3, math.sqrt(0.5)), (1e-6, 1e-3), (1.0, 1.0), (1e6, 1.0), (0.0, 0.0)],
)
def test_the_small_number_is_inside_the_root(norm: float, expected: float) -> None:
    """So that a row of norm 1e-3 becomes one of 0.707, not of 1, and a row of zeros stays one."""
    row = torch.tensor([0.6, 0.0, -0.8], dtype=torch.float64) * norm
    # Beside a square of 1 the small number is half a unit of the sixth digit.
    slack = 1e-6
    assert float(normalise(row).norm()) == pytest.approx(expected, rel=slack)


def test_normalisation_is_its_formula_to_the_last_digits() -> None:
    """Row by row with five hundred digits, at sizes on either side of the small number."""
    sizes = torch.tensor([1e-5, 1e-3, 1.0, 300.0], dtype=torch.float64)
    x = numbers(7, 4, 6) * sizes[:, None]
    found = normalise(x)
    for row, answers in zip(x.tolist(), found.tolist(), strict=True):
        size = mp.sqrt(sum(mpf(value) ** 2 for value in row) + mpf("1e-6"))
        for value, answer in zip(row, answers, strict=True):
            assert close(answer, mpf(value) / size)


def test_the_gradient_of_normalisation_is_a_derivative_of_its_formula() -> None:
    """Element by element, at sizes on either side of the small number."""
    sizes = torch.tensor([1e-4, 1e-3, 1.0], dtype=torch.float64)
    x, dy = numbers(8, 3, 4) * sizes[:, None], numbers(9, 3, 4)
    found = normalise_adjoint(x, dy)
    for r in range(3):
        row, weights = x[r].tolist(), dy[r].tolist()

        def product(i: int, v: Any, row: list[float] = row, weights: list[float] = weights) -> Any:
            moved = [v if j == i else mpf(value) for j, value in enumerate(row)]
            size = mp.sqrt(sum(value**2 for value in moved) + mpf("1e-6"))
            return sum(mpf(a) * b for a, b in zip(weights, moved, strict=True)) / size

        expected = [float(mp.diff(lambda v, i=i: product(i, v), mpf(row[i]))) for i in range(4)]
        largest = max(map(abs, expected))
        for answer, value in zip(found[r].tolist(), expected, strict=True):
            assert abs(answer - value) <= CLOSE * largest
