"""Fixtures of the lane tests."""

from collections.abc import Callable
from typing import Any

import pytest
import torch


@pytest.fixture
def interpret() -> Callable[..., None]:
    """Launch a kernel on the overlaid interpreter: `interpret(kernel, *args, grid=, fp_fusion=)`."""
    from bitproof.harness.lanes.interpreter import overlay, state

    overlay.install()

    def launch(kernel: Any, *args: Any, grid: Any = (1,), fp_fusion: bool = True) -> None:
        with state.session(state.Session(fp_fusion=fp_fusion)):
            kernel[grid](*args)

    return launch


@pytest.fixture
def watched() -> Callable[..., Any]:
    """Launch under the sanitizer and return it: `watched(kernel, *args, unwritten=, scratch=)`.

    All tensors but those in `scratch` count as outputs.
    """
    from bitproof.harness.lanes.interpreter import overlay, state
    from bitproof.harness.lanes.interpreter.sanitizer.sanitizer import Sanitizer

    overlay.install()

    def launch(
        kernel: Any,
        *args: Any,
        grid: Any = (1,),
        order: Any = None,
        watch: Sanitizer | None = None,
        unwritten: Any = (),
        scratch: Any = (),
        config: int | None = None,
        **named: Any,
    ) -> Sanitizer:
        watch = watch or Sanitizer(unwritten)
        session = state.Session(order=order, watch=watch, scratch={"config": config})
        with state.session(session):
            kernel[grid](*args, **named)
        kept = {id(tensor) for tensor in scratch}
        watch.judge_outputs(
            one for one in args if isinstance(one, torch.Tensor) and id(one) not in kept
        )
        return watch

    return launch
