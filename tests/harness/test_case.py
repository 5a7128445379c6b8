"""Cases and JSON: what is written reads back, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitproof.harness import case as cases
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.errors import SpecError, UsageError
from tests.harness.plain import RowsCase, rows_cases


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    bits: int = 0
    exact: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole:
    """One of every kind of plain value that a case may hold."""

    lengths: tuple[int, ...]
    kind: str
    parts: tuple[Part, ...] = ()
    launch: Launch = Launch()


PARTS = st.builds(Part, bits=st.integers(0, 2**64 - 1), exact=st.booleans())
WHOLES = st.builds(
    Whole,
    lengths=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    kind=st.text(max_size=5),
    parts=st.lists(PARTS, max_size=2).map(tuple),
    launch=st.builds(Launch, misalign=st.integers(0, 3)),
)
PLAIN: dict[str, Any] = cases.encode(Whole(lengths=(1, 2), kind="x", parts=(Part(),)))


@given(whole=WHOLES)
def test_a_case_survives_json(whole: Whole) -> None:
    """Encoding, writing, reading and decoding give the very same case."""
    assert cases.decode(Whole, json.loads(json.dumps(cases.encode(whole)))) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"lengths": [1, 2.0]},
            r"not a Whole: Expected `int`, got `float` - at `\$\.lengths\[1\]`",
        ),
        ({"lengths": [1, True]}, r"Expected `int`, got `bool` - at `\$\.lengths\[1\]`"),
        ({"lengths": [1, "2"]}, r"Expected `int`, got `str`"),
        ({"lengths": None}, r"Expected `array`, got `null` - at `\$\.lengths`"),
        ({"kind": 3}, r"Expected `str`, got `int` - at `\$\.kind`"),
        ({"seed": 3}, "not a Whole: field 'seed' is unknown to this version"),
        ({"parts": [{"bits": 1, "exact": 1}]}, "Expected `bool`, got `int`"),
        ({"parts": [{"bits": 1}]}, r"not a Whole: field 'parts\[0\]\.exact' is missing"),
        ({"parts": [{"bits": 1, "exact": True, "inexact": 0}]}, r"parts\[0\]\.inexact' is unknown"),
        ({"launch": {}}, "not a Whole: field 'launch.block' is missing"),
        (
            {"launch": {"block": 0}},
            r"block of a launch must be at least 1, got 0 - at `\$\.launch`",
        ),
        ({"launch": {"misalign": -1}}, "misalign of a launch must be at least 0, got -1"),
    ],
)
def test_a_damaged_case_names_the_field(change: dict[str, Any], message: str) -> None:
    """A value of another type, a foreign field, a field left out: one sentence that names it."""
    with pytest.raises(UsageError, match=message):
        cases.decode(Whole, {**json.loads(json.dumps(PLAIN)), **change})


def test_a_record_from_before_layouts_still_replays() -> None:
    """Its launch has the dense layout and is a first call; what all records told must be there."""
    path = Path(__file__).parent / "record_without_layout.json"
    plain = json.loads(path.read_text(encoding="utf-8"))["case"]
    assert "layout" not in plain["launch"]
    case = cases.decode(RowsCase, plain)
    assert case == RowsCase(rows=2, columns=3, seed=1, launch=Launch(misalign=1, row_padding=5))
    del plain["launch"]["config"]
    with pytest.raises(UsageError, match=r"field 'launch\.config' is missing"):
        cases.decode(RowsCase, plain)


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_missing_field_is_an_error_even_with_a_default(name: str) -> None:
    """A record that lost a field does not quietly become another case."""
    plain = {key: value for key, value in PLAIN.items() if key != name}
    with pytest.raises(UsageError, match=name):
        cases.decode(Whole, plain)


@pytest.mark.parametrize("plain", [[], 3, None, "text"])
def test_what_is_no_object_is_no_case(plain: Any) -> None:
    """Any other JSON value is refused in one sentence."""
    with pytest.raises(UsageError, match="not a Whole: Expected `object`"):
        cases.decode(Whole, plain)


def test_only_a_dataclass_can_be_encoded() -> None:
    """A case that is no dataclass is named by its type."""
    with pytest.raises(UsageError, match="a case must be a dataclass, got list"):
        cases.encode([1])


def test_a_case_of_what_json_lacks_is_named() -> None:
    """A field that no record could hold is refused, not met by a traceback when a failure is saved."""
    held = dataclasses.make_dataclass("Held", [("dtype", torch.dtype)])(torch.float32)
    with pytest.raises(UsageError, match="the case Held must hold plain values that JSON has: "):
        cases.encode(held)


@pytest.mark.parametrize("answer", [1, {"x": [1.0]}])
def test_a_case_makes_tensors_by_name(answer: Any) -> None:
    """Anything else is a mistake that names the case."""
    odd = type("Odd", (RowsCase,), {"tensors": lambda self, device: answer})()
    with pytest.raises(SpecError, match="the case Odd must make a dict of tensors by name"):
        cases.build(odd, torch.device("cpu"))


@pytest.mark.parametrize("method", ["tensors", "params", "features"])
def test_what_a_case_raises_is_its_specs_mistake(method: str) -> None:
    """One sentence that names the case, and where it went wrong."""

    def said(*arguments: Any) -> Any:
        raise ZeroDivisionError("no answer")

    def asked(case: RowsCase) -> Any:
        return cases.build(case, torch.device("cpu")), cases.features_of(case)

    odd = type("Odd", (RowsCase,), {method: said})()
    message = r"the case Odd raised ZeroDivisionError in said \(.*:\d+\): no answer"
    with pytest.raises(SpecError, match=message):
        asked(odd)


@given(case=rows_cases())
def test_inputs_are_a_function_of_the_case(case: RowsCase) -> None:
    """Building twice gives equal bits in tensors of their own."""
    first, second = (cases.build(case, torch.device("cpu")) for _ in range(2))
    assert torch.equal(first.tensors["x"].view(torch.int32), second.tensors["x"].view(torch.int32))
    assert first.tensors["x"].data_ptr() != second.tensors["x"].data_ptr()
    assert (first.params, first.launch, first.seed) == ({"factor": 2.0}, case.launch, case.seed)


def test_replaced_inputs_belong_to_no_case() -> None:
    """Exchanging a tensor leaves the original alone and drops the case, which no longer describes it."""
    inputs = cases.build(RowsCase(seed=5), torch.device("cpu"))
    other = inputs.replace(x=torch.zeros(3))
    assert isinstance(other, Inputs)
    assert other.case is None
    assert other.seed == 5
    assert other.tensors["x"].tolist() == [0.0, 0.0, 0.0]
    assert inputs.tensors["x"].shape == (1, 1)
