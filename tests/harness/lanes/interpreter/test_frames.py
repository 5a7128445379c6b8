"""Calling from a large frame changes nothing but where Python keeps the frames."""

import pytest

from bitproof.harness.lanes.interpreter.frames import with_room


def test_a_call_with_room_gives_what_the_function_gives() -> None:
    """Its result, and its exception."""
    assert with_room(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        with_room(lambda: 1 / 0)


def test_room_can_be_asked_for_at_any_depth() -> None:
    """Nested calls and a deep recursion below one are ordinary."""

    def depth(n: int) -> int:
        return 1 + depth(n - 1) if n else 0

    assert with_room(lambda: with_room(lambda: depth(300))) == 300
