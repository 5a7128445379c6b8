"""An axis is a name, a number, or a sum, difference, product or quotient of those."""

from __future__ import annotations

import pytest

from bitproof.harness.errors import SpecError
from bitproof.harness.inputs.axes import Size, extent, names_in


@pytest.mark.parametrize(
    ("axis", "size"),
    [("n", 96), (64, 64), ("2 * n", 192), ("n // 32 + 1", 4), ("(n + m) * 2", 202), ("n - m", 91)],
)
def test_an_axis_has_the_extent_that_its_dimensions_give(axis: str | int, size: int) -> None:
    """As Python would compute it."""
    assert extent(axis, {"n": 96, "m": 5}) == size


def test_the_names_of_an_axis_are_its_dimensions() -> None:
    """Each once, in the order in which they are written."""
    assert names_in("n // group + n * m") == ("n", "group", "m")
    assert names_in(7) == ()


@pytest.mark.parametrize("axis", ["n *", "n ** 2", "f(n)", "n / 2", "1.5", "'n'", "n; m", "n == m"])
def test_what_is_no_axis_is_rejected(axis: str) -> None:
    """Nothing of it is ever executed."""
    with pytest.raises(ValueError, match="is no axis: write a name, a number"):
        names_in(axis)


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("m", "the dimension 'm' has no size"),
        ("n - 5", "would have -1 elements"),
        ("n // z", "divides by a dimension of 0 elements"),
    ],
)
def test_an_extent_that_cannot_be_is_told(axis: str, message: str) -> None:
    """The dimension or the axis is named."""
    with pytest.raises(ValueError, match=message):
        extent(axis, {"n": 4, "z": 0})


@pytest.mark.parametrize(
    ("least", "most", "multiple", "message"),
    [
        (5, 4, 1, "no multiple of 1 lies from 5 to 4"),
        (1, 15, 16, "no multiple of 16 lies from 1 to 15"),
        (-1, None, 1, "least must be an integer of at least 0"),
        (None, None, 0, "multiple must be an integer of at least 1"),
    ],
)
def test_a_range_without_a_size_is_rejected(
    least: int | None, most: int | None, multiple: int, message: str
) -> None:
    """Where it is written."""
    with pytest.raises(SpecError, match=message):
        Size(least=least, most=most, multiple=multiple)
