"""Cases in which the tensors of a spec lie otherwise than dense: each layout that the spec allows, once.

They are drawn cases under another `Launch.layout`, so that a strategy need not know of layouts.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from bitproof.harness import layouts
from bitproof.harness.bits import bits
from bitproof.harness.case import Case, build, with_launch
from bitproof.harness.spec import KernelSpec

# Numbers of layouts among which each allowed one is looked for.
_NUMBERS = range(1, 65)


def find_laid_cases(spec: KernelSpec, cases: Iterable[Case]) -> list[Case]:
    """Few of `cases`, laid out so that each tensor has each layout that `spec.layouts` and `strided` allow.

    Two tensors that have a choice lie differently in one of them at least, so that the strides of one are
    wrong for the other. Empty for a spec without `layouts`; a layout that no case can have is left out.
    """
    allowed = spec.allowed_layouts()
    if not spec.layouts and not spec.shared:
        return []
    cpu = torch.device("cpu")
    built = [(case, build(case, cpu).tensors) for case in cases]
    built.sort(key=lambda pair: _plainness(allowed, pair[1]))
    missing: set[tuple[str, ...]] = {(name, one) for name in allowed for one in allowed[name]}
    missing |= set(itertools.combinations(allowed, 2))
    missing |= {(*names, how) for names in spec.shared for how in spec.shared[names]}
    found: list[Case] = []
    for number in _NUMBERS:
        for case, tensors in built if missing else ():
            shown = missing & _shown(spec, number, tensors)
            if shown:
                missing -= shown
                laid = with_launch(case, dataclasses.replace(case.launch, layout=number))
                found += [laid] if laid is not None else []
                break
    return found


def _shown(spec: KernelSpec, number: int, tensors: Mapping[str, Tensor]) -> set[tuple[str, ...]]:
    """(tensor, layout) of each tensor that lies so, and each two tensors that lie differently.

    Beside these (*tensors, sharing) of those that share memory.
    """
    allowed = spec.allowed_layouts()
    tensors = layouts.impose(allowed, spec.shared, number, tensors)
    together = layouts.share(spec.shared, number, tensors)
    taken = {name for names in together for name in names}
    laid = {
        name: layouts.choose(allowed, number, name)
        for name in layouts.lay(allowed, number, tensors)
        if name not in taken and _tells(layouts.choose(allowed, number, name), tensors[name])
    }
    apart = {
        (one, other)
        for one, other in itertools.combinations(allowed, 2)
        if {one, other} <= set(tensors)
        and {one, other} & set(laid)
        and layouts.choose(allowed, number, one) != layouts.choose(allowed, number, other)
    }
    return {*laid.items(), *apart, *((*names, how) for names, how in together.items())}


def _plainness(allowed: layouts.Allowed, tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    """What the first case to be taken has least of: axes whose stride says nothing, then elements."""
    short = sum(n < 2 for name in allowed if name in tensors for n in tensors[name].shape)
    return short, sum(tensor.numel() for tensor in tensors.values())


def _tells(layout: str, tensor: Tensor) -> bool:
    """Whether a kernel that takes the tensor for dense reads something else: its elements differ."""
    codes = bits(tensor)
    return layout == "expanded" or bool((codes != codes.flatten()[0]).any())
