"""How faults of the delta-rule kernels are written down."""

from __future__ import annotations

import dataclasses

from bitproof.harness.spec import Fault

INTERPRETED = "the interpreter compiles nothing"


def fault(
    module: str, within: str, name: str, old: str, new: str, caught_by: str = "agreement"
) -> Fault:
    """A fault in `kernels.delta`."""
    module = f"bitproof.kernels.delta.{module}"
    return Fault(name=name, within=within, old=old, new=new, caught_by=caught_by, module=module)


def on_card(
    module: str,
    within: str,
    name: str,
    old: str,
    new: str,
    because: str,
    caught_by: str = "agreement",
) -> Fault:
    """One that the interpreter lane does not show, with the reason."""
    shown = fault(module, within, name, old, new, caught_by)
    return dataclasses.replace(shown, lanes=("cuda",), because=because)


def specialised(module: str, within: str) -> Fault:
    """A kernel compiled anew for token counts of other divisors."""
    return on_card(
        module,
        within,
        "specialises on the token count",
        'do_not_specialize=["tokens", "sequences"]',
        'do_not_specialize=["sequences"]',
        because=INTERPRETED,
        caught_by="compile_cache",
    )
