"""Captured tensors are held to the declaration of a contract's inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bitproof.harness.inputs import Choice, Declaration, Index, Offsets, Tensor
from bitproof.harness.inputs.fitting import find_misfits, types_of

DECLARED = Declaration(
    name="packed",
    inputs={
        "x": Tensor("tokens", "n", dtypes=(torch.float32, torch.bfloat16)),
        "w": Tensor("n", like="x"),
        "scale": Tensor("tokens", "n // group"),
        "cu": Offsets(of="tokens"),
        "rows": Index("m", into="tokens", unique=True, padding=-1),
    },
    params={"group": Choice(2, 4)},
)


def _captured(**changes: Any) -> dict[str, torch.Tensor]:
    return {
        "x": torch.zeros(5, 8),
        "w": torch.zeros(8),
        "scale": torch.zeros(5, 4),
        "cu": torch.tensor([0, 2, 2, 5], dtype=torch.int32),
        "rows": torch.tensor([4, 0, -1, -1]),
        **changes,
    }


def test_what_fits_has_no_misfit() -> None:
    """Parameters count where axes name them."""
    assert list(find_misfits(DECLARED, _captured(), {"group": 2})) == []
    assert types_of(DECLARED)["w"] == {torch.float32, torch.bfloat16}
    assert types_of(DECLARED)["rows"] == {torch.int64}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w": torch.zeros(7)}, "x.shape[1] is 8 and w.shape[0] 7, but both are 'n'"),
        ({"x": torch.zeros(5)}, "tensor 'x' has shape [5], it must be [tokens, n]"),
        ({"scale": torch.zeros(5, 2)}, "scale.shape[1] is 2, but 'n // group' is 4"),
        ({"w": torch.zeros(8).bfloat16()}, "'w' is torch.bfloat16 and 'x' torch.float32"),
        ({"cu": torch.tensor([1, 5])}, "'cu' must begin with 0, it holds [1, 5]"),
        ({"cu": torch.tensor([0, 6, 5])}, "'cu' has a part of -1 rows"),
        ({"cu": torch.tensor([0, 3])}, "'cu' ends at row 3, but 'tokens' has 5"),
        ({"rows": torch.tensor([5])}, "'rows' picks row 5, but 'tokens' has 5"),
        ({"rows": torch.tensor([2, 2])}, "'rows' picks a row twice"),
    ],
)
def test_a_misfit_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    """It names the tensor and the dimension."""
    told = list(find_misfits(DECLARED, _captured(**changes), {"group": 2}))
    assert any(message in sentence for sentence in told)
