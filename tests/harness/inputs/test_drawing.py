"""Cases that follow from declared inputs: what they hold, what they cover, and how they travel."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import find, settings

from bitproof.harness import case as cases
from bitproof.harness.bits import bits
from bitproof.harness.case import Launch, Scale
from bitproof.harness.errors import SpecError, UsageError
from bitproof.harness.inputs import (
    Choice,
    Declaration,
    DeclaredCase,
    Index,
    Integer,
    Offsets,
    Real,
    Size,
    Tensor,
    case_of,
    cases_of,
    find_contradictions,
)
from bitproof.harness.search.falsify import draw_cases
from bitproof.harness.strategies.fills import EVERY_KIND, KINDS, Fill
from tests.harness.plain import variant

CPU = torch.device("cpu")
EVERYTHING = Declaration(
    name="everything",
    inputs={
        "x": Tensor("tokens", "2 * n", dtypes=(torch.float32, torch.bfloat16, torch.float16)),
        "w": Tensor("n", like="x", kinds=("one-sided",)),
        "codes": Tensor("tokens", "n // group", dtypes=(torch.int8, torch.float8_e4m3fn)),
        "mask": Tensor("rows", "n", dtypes=(torch.bool,)),
        "gate": Tensor("rows", between=(-2.0, -1.0)),
        "cu_seqlens": Offsets(of="tokens", slack=True),
        "ends": Offsets(of="routed", count="experts", parts="experts", form="ends", block=16),
        "rows_of": Index("routed", into="tokens", padding=-1),
        "order": Index("picked", into="n", unique=True, dtype=torch.int32),
    },
    params={
        "group": Choice(32, 64),
        "eps": Real(1e-6, 1e-3, usual=1e-5),
        "power": Integer(-4, 4),
        "causal": Choice(False, True),
        "mode": "fast",
    },
    sizes={"n": Size(least=64, most=256, multiple=64)},
)
CASE = case_of(EVERYTHING)


def _spec(declaration: Declaration = EVERYTHING) -> Any:
    kind = CASE if declaration is EVERYTHING else case_of(declaration)
    return variant(case=kind, cases=cases_of(kind))


def _drawn(declaration: Declaration = EVERYTHING, count: int = 60) -> list[Any]:
    return draw_cases(_spec(declaration), count)


def test_the_simplest_case_is_the_first_that_is_drawn() -> None:
    """And it has the least of everything that is not empty."""
    first = _drawn(count=1)[0]
    assert first == CASE()
    assert first.sizes() == {
        "tokens": 1,
        "sequences": 1,
        "routed": 1,
        "experts": 1,
        "n": 64,
        "rows": 1,
        "picked": 1,
        "group": 32,
        "power": 0,
    }
    assert first.params() == {"group": 32, "eps": 1e-5, "power": 0, "causal": False, "mode": "fast"}


def test_shapes_types_and_values_are_as_declared() -> None:
    """In every case."""
    for case in _drawn():
        sizes, tensors = case.sizes(), case.tensors(CPU)
        x, w, codes, order = (tensors[name] for name in ("x", "w", "codes", "order"))
        assert x.shape == (sizes["tokens"], 2 * sizes["n"])
        assert w.dtype == x.dtype
        assert bool((w.double() >= 0).all())
        assert codes.shape == (sizes["tokens"], sizes["n"] // sizes["group"])
        assert codes.dtype in (torch.int8, torch.float8_e4m3fn)
        assert tensors["mask"].dtype == torch.bool
        assert bool(((tensors["gate"] >= -2) & (tensors["gate"] <= -1)).all())
        bounds = tensors["cu_seqlens"]
        assert bounds.dtype == torch.int32
        assert bounds[0] == 0
        assert bool((bounds.diff() >= 0).all())
        assert int(bounds[-1]) <= sizes["tokens"]
        assert int(tensors["ends"][-1]) == sizes["routed"]
        rows = tensors["rows_of"]
        assert bool(((rows >= -1) & (rows < sizes["tokens"])).all())
        assert order.dtype == torch.int32
        assert order.unique().numel() == order.numel() == sizes["picked"]
        assert bool((order < sizes["n"]).all())


def test_cases_travel_through_json() -> None:
    """And give the same tensors."""
    for case in _drawn(count=30):
        again = cases.decode(CASE, json.loads(json.dumps(cases.encode(case))))
        assert again == case
        for name, tensor in case.tensors(CPU).items():
            assert torch.equal(bits(again.tensors(CPU)[name]), bits(tensor))


@pytest.mark.parametrize(
    "damage",
    [{"rows": -1}, {"rows": 1 << 40}, {"x": {"kind": "odd", "exponent": 0, "dtype": "float32"}}],
)
def test_a_damaged_case_is_rejected(damage: dict[str, Any]) -> None:
    """Before it asks for memory."""
    with pytest.raises(UsageError, match="not a EverythingCase"):
        cases.decode(CASE, {**cases.encode(CASE()), **damage})


def test_what_breaks_kernels_is_drawn() -> None:
    """Empty and single rows, sizes next to a tile's, every kind of data, every type, packed edges."""
    covered: collections.Counter[str] = collections.Counter()
    sizes: collections.Counter[int] = collections.Counter()
    matrix = Declaration(name="matrix", inputs={"x": Tensor("rows", "n")})
    for case in _drawn(matrix, 150):
        covered.update(case.features())
        sizes[case.n] += 1
    for case in _drawn():
        covered.update(case.features())
    assert not {"rows = 0", "rows = 1", "n = 1", "n no power of two"} - set(covered)
    assert "n = 0" not in covered
    assert {15, 16, 17, 63, 64, 65, 127, 128, 129} & set(sizes)
    assert not {f"x {kind}" for kind in KINDS} - set(covered)
    assert not {"x in float32", "x in bfloat16", "x in float16", "x scaled"} - set(covered)
    assert not {"empty first", "an empty sequence between", "slack rows"} - set(covered)
    assert not {"rows_of padded", "rows_of in same order", "causal = True"} - set(covered)


def test_tensors_stay_small_but_in_a_night_on_a_card() -> None:
    """A few thousand elements, or a few hundred thousand."""
    matrix = Declaration(
        name="matrix", inputs={"x": Tensor("rows", "n")}, sizes={"n": Size(most=1 << 20)}
    )
    spec = _spec(matrix)
    small = max(c.rows * c.n for c in draw_cases(spec, 60))
    large = max(c.rows * c.n for c in draw_cases(spec, 60, Scale(on_card=True, nightly=True)))
    assert small <= 4096 < large <= 64 * 4096


def test_a_failing_case_shrinks_to_one_that_can_be_read() -> None:
    """Only what matters is left."""
    found: Any = find(
        cases_of(case_of(Declaration(name="matrix", inputs={"x": Tensor("rows", "n")})))(),
        lambda case: case.n > 20 and case.x.kind == "offset",
        settings=settings(max_examples=500, database=None, derandomize=True),
    )
    assert found == dataclasses.replace(type(found)(), n=21, x=Fill(kind="offset"))


def test_a_launch_may_be_laid_out_where_a_layout_is_declared() -> None:
    """And has padded rows only then."""
    laid = Declaration(
        name="laid", inputs={"x": Tensor("rows", "n", layouts=("padded rows", "transposed"))}
    )
    assert laid.strided() == {"x"}
    launches = [case.launch for case in _drawn(laid)]
    assert any(launch.row_padding for launch in launches)
    assert any(launch.layout for launch in launches)
    assert all(launch == Launch(misalign=launch.misalign) or launch.block for launch in launches)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_of_data_fills_every_type(kind: Any) -> None:
    """The same bits each time; none but special values is a NaN."""
    names = [
        "float32",
        "bfloat16",
        "float16",
        "float64",
        "float8_e4m3fn",
        "float8_e5m2",
        "int8",
        "int64",
        "bool",
    ]
    for name in names:
        fill = Fill(kind=kind, dtype=name)
        one, other = (fill.build((5, 33), CPU, seed=3) for _ in range(2))
        assert torch.equal(
            bits(one) if name != "bool" else one, bits(other) if name != "bool" else other
        )
        assert one.shape == (5, 33)
        if one.dtype.is_floating_point and kind != "special":
            assert bool(torch.isfinite(one.double()).all())
        assert fill.build((0, 3), CPU, seed=3).numel() == 0


def test_kinds_are_what_their_names_say() -> None:
    """Signs, spreads, directions and binades, in float64."""

    def built(kind: Any) -> torch.Tensor:
        return Fill(kind=kind).build((8, 256), CPU, seed=1).double()

    assert bool((built("one-sided") >= 0).all())
    offset = built("offset")
    assert bool((offset.std(1) < offset.mean(1).abs() / 2).all())
    correlated = torch.nn.functional.normalize(built("correlated"))
    assert float((correlated @ correlated.T).min()) > 0.99
    assert float((built("sparse") == 0).double().mean()) > 0.8
    graded = built("graded").abs()
    assert float(graded[:, :32].mean() / graded[:, -32:].mean()) > 2.0**16
    assert built("constant").unique().numel() == 1
    exponents = torch.frexp(built("extreme")).exponent
    assert int(exponents.max() - exponents.min()) > 100


_X = Tensor("rows", "n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": {}}, "inputs is empty: declare each tensor"),
        ({"params": {"x": 3}}, "'x' is an input and a parameter: give one of the two"),
        ({"inputs": {"launch": _X}}, "called 'launch', which every case has already"),
        ({"inputs": {"x y": _X}}, "called 'x y': it must be a name as Python has them"),
        ({"inputs": {"x": Tensor("n", like="z")}}, "'x' is to be like 'z', which is no tensor"),
        ({"sizes": {"m": Size()}}, "sizes names 'm', but no input has that dimension"),
        (
            {"inputs": {"x": _X, "cut": Offsets(of="rows")}, "sizes": {"rows": Size()}},
            "sizes names 'rows', but its offsets decide it",
        ),
        (
            {"inputs": {"x": _X, "a": Offsets(of="rows"), "b": Offsets(of="rows", count="c")}},
            "two offsets cut 'rows'",
        ),
    ],
)
def test_inputs_that_contradict_each_other_are_told(
    changes: Mapping[str, Any], message: str
) -> None:
    """In one sentence that names the input."""
    plain: dict[str, Any] = {"name": "matrix", "inputs": {"x": _X}, **changes}
    told = list(find_contradictions(Declaration(**plain)))
    assert len(told) >= 1
    assert any(re.search(message, one) for one in told)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Tensor("n", dtypes=(torch.complex64,)), "complex64, of which no values"),
        (lambda: Tensor("n", kinds=("odd",)), "kinds names 'odd': choose from ordinary"),  # type: ignore[arg-type]
        (lambda: Tensor(1.5), "an axis must be a name"),  # type: ignore[arg-type]
        (lambda: Tensor("n", between=(1.0, 0.0)), "between must be two numbers in ascending"),
        (lambda: Tensor("n", scales=(-300, 0)), "scales must lie from -80 to 80"),
        (lambda: Index("n", into="m", padding=3), "padding must be below 0"),
        (lambda: Index("n", into="m", dtype=torch.int8), "dtype must be torch.int32 or"),
        (lambda: Offsets(of="n", form="starts"), "form names 'starts': choose from bounds"),  # type: ignore[arg-type]
        (lambda: Choice(), "there is nothing to choose from"),
        (lambda: Choice(1, 2.0), "the values must be of one type"),
        (lambda: Integer(3, 2), "range must be two numbers in ascending order"),
        (lambda: Real(0.0, 1.0, usual=2.0), "usual must lie from 0.0 to 1.0, got 2.0"),
    ],
)
def test_a_declaration_rejects_what_it_cannot_be(declare: Any, message: str) -> None:
    """Where it is written."""
    with pytest.raises(SpecError, match=message):
        declare()


def test_cases_of_two_contracts_are_apart() -> None:
    """Each has its own declaration."""
    other = case_of(Declaration(name="vector", inputs={"x": Tensor("n")}))
    assert other.declaration is not CASE.declaration
    assert issubclass(other, DeclaredCase)
    assert other.__name__ == "VectorCase"
