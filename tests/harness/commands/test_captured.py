"""Captured tensors: what fits a spec is checked and recorded, what does not is one sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import save_file

from bitproof.harness.case import Launch
from bitproof.harness.commands import captured
from bitproof.harness.commands.captured import load, restore
from bitproof.harness.errors import UsageError
from bitproof.harness.lanes import base
from bitproof.harness.lanes.arena import Arena
from bitproof.harness.spec import KernelSpec
from tests.harness import plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairCase:
    """a [rows, columns] in one of two types and b [columns]; sometimes c [1]."""

    rows: int = 1
    columns: int = 1
    half: bool = False
    third: bool = False
    launch: Launch = Launch(block=32)

    def tensors(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Ones."""
        kind = torch.float16 if self.half else torch.float32
        tensors = {
            "a": torch.ones(self.rows, self.columns, dtype=kind, device=device),
            "b": torch.ones(self.columns, device=device),
        }
        return {**tensors, "c": torch.ones(1, device=device)} if self.third else tensors

    def params(self) -> dict[str, Any]:
        """A factor and a choice."""
        return {"factor": 2.0, "keep": True}

    def features(self) -> tuple[str, ...]:
        """Nothing to tell."""
        return ()


def oracle(tensors: Any, params: Any) -> dict[str, Any]:
    """Refuses an even number of columns, as oracles refuse what no strategy could tell."""
    if tensors["b"].shape[0] % 2 == 0:
        raise ValueError("columns must be odd; pad them")
    return {"y": tensors["a"].numpy()}


SPEC: KernelSpec = plain.variant(
    name="pair",
    case=PairCase,
    cases=lambda: st.builds(
        PairCase,
        rows=st.integers(1, 9),
        columns=st.integers(1, 9),
        half=st.booleans(),
        third=st.booleans(),
    ),
    oracle=oracle,
)
CPU = torch.device("cpu")


def saved(folder: Path, **tensors: torch.Tensor) -> Path:
    """A file of tensors a [4, 3], b [3], but for those given."""
    path = folder / "captured.safetensors"
    save_file({"a": torch.full((4, 3), 2.5), "b": torch.ones(3), **tensors}, path)
    return path


def test_captured_tensors_become_inputs_with_the_simplest_cases_parameters(tmp_path: Path) -> None:
    """Tensors bit for bit, parameters and launch from the case that everything shrinks to, no case."""
    path = saved(tmp_path)
    inputs, source = load(path, SPEC, CPU, {})
    assert torch.equal(inputs.tensors["a"], torch.full((4, 3), 2.5))
    assert inputs.params == {"factor": 2.0, "keep": True}
    assert inputs.launch == Launch(block=32)
    assert inputs.case is None
    assert source.path == str(path)


def test_parameters_and_single_launch_fields_can_be_given(tmp_path: Path) -> None:
    """An integer passes for a float; what is not given stays."""
    given = {"factor": 3, "launch": {"num_warps": 8}}
    inputs, source = load(saved(tmp_path), SPEC, CPU, given)
    assert inputs.params == {"factor": 3, "keep": True}
    assert inputs.launch == Launch(block=32, num_warps=8)
    assert restore(source, SPEC, CPU, beside=tmp_path).launch == inputs.launch


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"facto": 1.0}, "no parameter 'facto', but 'factor', 'keep', 'launch'"),
        ({"factor": "2"}, "'factor' of kernel 'pair' is '2', it must be of type float"),
        ({"factor": True}, "is True, it must be of type float"),
        ({"keep": 1}, "is 1, it must be of type bool"),
        ({"launch": 3}, "'launch' of kernel 'pair' is 3, it must be of type dict"),
        ({"launch": {"warps": 3}}, "not a Launch"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    """Unknown names and wrong types, with what would fit."""
    with pytest.raises(UsageError, match=said):
        load(saved(tmp_path), SPEC, CPU, given)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"d": torch.ones(1)}, "it has no tensor 'd', but 'a', 'b', 'c'"),
        ({"b": torch.ones(3).double()}, "tensor 'b' is torch.float64, not torch.float32"),
        ({"a": torch.ones(4, 3).int()}, "is torch.int32, not torch.float16 or torch.float32"),
        ({"a": torch.ones(3)}, r"'a' has shape \[3\], it must have 2 dimensions"),
        ({"b": torch.ones(5)}, r"'a' is \[4, 3\] and 'b' \[5\], but a.shape\[1\] and b.shape\[0\]"),
        ({"a": torch.ones(2, 2), "b": torch.ones(2)}, "columns must be odd; pad them"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, tensors: dict[str, torch.Tensor], said: str
) -> None:
    """Foreign names, types, dimensions, sizes that must agree, and what the oracle refuses."""
    path = saved(tmp_path, **tensors)
    with pytest.raises(UsageError, match=said) as raised:
        load(path, SPEC, CPU, {})
    assert str(raised.value).startswith(f"{path} does not fit kernel 'pair'")


@pytest.mark.parametrize("error", [TypeError("no number"), RuntimeError("sizes"), KeyError("z")])
def test_what_an_oracle_stumbles_over_does_not_fit(tmp_path: Path, error: Exception) -> None:
    """Tensors that no rule told apart from a call: one sentence, not the oracle's traceback."""

    def stumbles(tensors: Any, params: Any) -> dict[str, Any]:
        raise error

    spec = dataclasses.replace(SPEC, oracle=stumbles)
    with pytest.raises(UsageError, match=f"does not fit kernel 'pair': .*{error.args[0]}"):
        load(saved(tmp_path), spec, CPU, {})


def test_a_missing_tensor_is_named_and_an_optional_one_is_not_asked_for(tmp_path: Path) -> None:
    """A tensor that only some cases have may be left out or given."""
    path = tmp_path / "captured.safetensors"
    save_file({"a": torch.ones(4, 3)}, path)
    with pytest.raises(UsageError, match="tensor 'b' is missing, it needs 'a', 'b'"):
        load(path, SPEC, CPU, {})
    inputs, _ = load(saved(tmp_path, c=torch.ones(1)), SPEC, CPU, {})
    assert sorted(inputs.tensors) == ["a", "b", "c"]


def test_a_file_that_is_no_safetensors_is_one_sentence(tmp_path: Path) -> None:
    """Absent, a folder, or other bytes."""
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "absent.safetensors", SPEC, CPU, {})
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path, SPEC, CPU, {})
    path = tmp_path / "other"
    path.write_bytes(b"PK" * 40)
    with pytest.raises(UsageError, match="is not a safetensors file"):
        load(path, SPEC, CPU, {})


def test_restoring_takes_exactly_the_recorded_file(tmp_path: Path) -> None:
    """A file moved beside its record is found, a changed or missing one refused."""
    path = saved(tmp_path)
    _, source = load(path, SPEC, CPU, {"factor": 4.0})
    beside = tmp_path / "elsewhere"
    beside.mkdir()
    path.rename(beside / path.name)
    assert restore(source, SPEC, CPU, beside=beside).params["factor"] == 4.0
    with pytest.raises(UsageError, match="are gone: put that file back"):
        restore(source, SPEC, CPU, beside=tmp_path)
    saved(beside, a=torch.zeros(4, 3))
    with pytest.raises(UsageError, match="is not the file that was recorded"):
        restore(source, SPEC, CPU, beside=beside)


def test_the_schema_of_a_spec_is_what_its_strategy_draws() -> None:
    """Required and optional tensors, types, dimensions, and the sizes that always agree."""
    like = captured.schema(SPEC)
    assert like.required == {"a", "b"}
    assert like.dtypes["a"] == {torch.float16, torch.float32}
    assert like.dimensions == {"a": {2}, "b": {1}, "c": {1}}
    assert like.equal == ((("a", 1), ("b", 0)),)


def _with_strides(folder: Path, **strides: str) -> Path:
    """A file of a [4, 3] with four equal rows and b [3], with those texts as strides."""
    path = folder / "laid.safetensors"
    a = torch.tensor([1.0, 2.0, 3.0]).expand(4, 3).contiguous()
    metadata = {f"strides:{name}": text for name, text in strides.items()}
    save_file({"a": a, "b": torch.arange(3.0)}, path, metadata=metadata)
    return path


@pytest.mark.parametrize("strides", [(1, 4), (0, 1), (100, 7), (3, 1)])
def test_captured_tensors_lie_as_the_file_tells(tmp_path: Path, strides: tuple[int, int]) -> None:
    """Transposed, expanded, apart on both axes or dense: the launcher sees these strides and values."""
    path = _with_strides(tmp_path, a=str(list(strides)))
    inputs, source = load(path, SPEC, CPU, {})
    assert inputs.tensors["a"].stride() == strides
    assert inputs.tensors["a"].tolist() == [[1.0, 2.0, 3.0]] * 4
    assert inputs.tensors["b"].is_contiguous()
    placed = base.place_inputs(SPEC, inputs, Arena(device=CPU, poison=0xFF))
    assert placed["a"].stride() == strides
    assert torch.equal(placed["a"], inputs.tensors["a"])
    assert restore(source, SPEC, CPU, beside=tmp_path).tensors["a"].stride() == strides


@pytest.mark.parametrize(
    ("strides", "said"),
    [
        (
            {"a": "[1"},
            "the strides of 'a' are '\\[1', they must be a list of integers from 0 upwards",
        ),
        ({"a": "[1.0, 3]"}, "they must be a list of integers from 0 upwards"),
        ({"a": "[-3, 1]"}, "they must be a list of integers from 0 upwards"),
        ({"a": "[1]"}, r"but its shape is \[4, 3\]: give one for each axis"),
        ({"a": "[1, 1]"}, "elements of different values would share memory"),
        ({"b": "[0]"}, "elements of different values would share memory"),
        ({"a": f"[{1 << 60}, 1]"}, "which no memory here can hold"),
        ({"d": "[1]"}, "tells strides of 'd', but has no such tensor, only 'a', 'b'"),
    ],
)
def test_strides_that_do_not_fit_are_named(
    tmp_path: Path, strides: dict[str, str], said: str
) -> None:
    """One sentence for what is no list, too short, a name that is not there, or overlaps."""
    with pytest.raises(UsageError, match=said):
        load(_with_strides(tmp_path, **strides), SPEC, CPU, {})
