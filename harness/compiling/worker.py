"""The process that compiles launches for one target: `python -m bitproof.harness.compiling.worker`.

One process a target: Triton 3.6 keeps its first target's conversions for the rest of the process, and no
process can both compile and interpret (see `compiler`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from triton import knobs

from bitproof.harness.compiling import null_driver
from bitproof.harness.compiling.building import build
from bitproof.harness.compiling.canonical import canonical
from bitproof.harness.compiling.ttgir import read_products
from bitproof.harness.errors import causes, describe
from bitproof.harness.processes.serve import serve
from bitproof.harness.targets.architectures import target
from bitproof.harness.targets.refusals import refuses, sentence


def main() -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    name = sys.argv[2]  # what comes before it is for `serve`
    null_driver.install(target(name), lambda source, arguments: None)
    knobs.runtime.add_stages_inspection_hook = _stop_early
    serve(answer)


class _Parsed(Exception):
    """A kernel is in Triton's own language of blocks, verified and simplified, or laid out: `module`."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


# Stages of the compiler that a request goes through: the language, or the layout for the target as well.
_stages = 1


def _stop_early(*arguments: Any) -> tuple[str, str] | None:
    """Triton's stages hook: what comes after the language takes seconds to minutes and refuses little.

    Without arguments it is asked for the keys of what is compiled.
    """
    if not arguments:
        return (f"{_stages} stages", f"{_stages}")
    stages = arguments[1]
    after = list(stages)[_stages:]
    if after:
        stages[after[0]] = _stop
    return None


def _stop(module: Any, *_: Any) -> Any:
    raise _Parsed(module)


def _digest(module: Any) -> str:
    """A digest of what a kernel computes, whatever its names are and where it is written."""
    return hashlib.sha256(canonical(str(module)).encode()).hexdigest()[:24]


def answer(request: dict[str, Any]) -> dict[str, str]:
    """{"refused", "unknown"}: why the target does not compile a launch, or why nothing can be said of it.

    Where it compiles, "code" is a digest of the kernel. Where the request asks for "products", they are told
    as well, as text (see `ttgir.read_products`).
    """
    global _stages
    _stages = 2 if request.get("products") else 1
    try:
        kernel, arguments, options = build(request)
    except Exception as error:
        return {"refused": "", "unknown": describe(error)}
    before = os.fstat(2).st_size
    try:
        kernel[(1,)](**arguments, **options)
    except _Parsed as parsed:
        told = {"refused": "", "unknown": "", "code": _digest(parsed.module)}
        if request.get("products"):
            told["products"] = json.dumps(read_products(str(parsed.module)))
        return told
    except Exception as error:
        if not refuses(error) and not _is_of_options(error):
            return {"refused": "", "unknown": describe(error)}
        where = _place(error, request["functions"])
        return {"refused": f"{sentence(error, before)}{where}", "unknown": ""}
    return {"refused": "", "unknown": "Triton has compiled all of it"}


def _is_of_options(error: BaseException) -> bool:
    """Whether Triton's target has rejected an option of the launch, before it compiled anything."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_code.co_name in ("__post_init__", "parse_options")


def _place(error: BaseException, functions: Sequence[Mapping[str, Any]]) -> str:
    """ " (at FILE:LINE)" of the innermost line that the compiler names, "" where it names none."""
    place = ""
    for link in causes(error, contexts=True):
        source, node = getattr(link, "src", None), getattr(link, "node", None)
        line = getattr(node, "lineno", None)
        for sent in functions:
            own = isinstance(source, str) and source.strip() == sent["source"].strip()
            if own and line is not None:
                place = f" (at {sent['file']}:{sent['line'] + line - 1})"
    return place


if __name__ == "__main__":
    main()
