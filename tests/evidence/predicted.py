"""Whole kernels predicted from their inputs alone, and compared with a card bit for bit.

    python -m tests.evidence.predicted

A process that interprets kernels predicts: it asks the compiler by which instructions each product is made
and computes as they do, on a processor, while the same launches run on the card. Told, for the product of the
dsReLU backward pass on bf16 and fp8 operands and for one product kernel in 20 configurations: how many
outputs there are and how many differ in a bit. Exit 1 if any does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PREDICTING = len(sys.argv) > 2 and sys.argv[1] == "predict"
if PREDICTING:  # before anything imports triton
    os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from torch import Tensor  # noqa: E402

from bitproof.harness.case import build  # noqa: E402
from bitproof.harness.lanes.base import parameters  # noqa: E402
from bitproof.harness.search.falsify import draw_cases  # noqa: E402
from bitproof.kernels.dsrelu import specs  # noqa: E402
from bitproof.kernels.dsrelu.backward import launch  # noqa: E402

SPECS = {spec.name: spec for spec in (specs.BF16, specs.FP8)}
CASES = 12  # of each
# What no sum in an unknown order reaches: the rest of the outputs are sums of rows and columns.
OUTPUTS = ("d_row", "d_row_scale", "d_col", "d_col_scale", "d_srelu", "amax")
ROWS, COLUMNS, DEPTH = 128, 128, 512
# (operands, BLOCK_M, BLOCK_N, BLOCK_K, warps, stages, max_num_imprecise_acc)
CONFIGURATIONS = (
    *(
        (torch.bfloat16, m, n, k, warps, stages, None)
        for m, n, k, warps, stages in (
            (16, 32, 64, 4, 2),
            (32, 64, 32, 2, 3),
            (64, 64, 64, 4, 3),
            (64, 128, 32, 8, 2),
            (128, 64, 64, 4, 4),
            (128, 128, 32, 8, 3),
            (128, 32, 128, 4, 2),
            (64, 32, 16, 1, 2),
        )
    ),
    *(
        (torch.float8_e4m3fn, m, n, k, warps, stages, imprecise)
        for m, n, k, warps, stages, imprecise in (
            (16, 64, 64, 4, 2, None),
            (32, 32, 128, 4, 3, 32),
            (64, 64, 64, 4, 3, None),
            (64, 64, 64, 4, 3, 32),
            (64, 64, 128, 4, 2, 64),
            (64, 64, 128, 4, 2, 128),
            (128, 128, 64, 8, 3, None),
            (128, 64, 128, 4, 3, 0),
            (128, 32, 32, 4, 2, 32),
            (64, 128, 128, 2, 2, None),
        )
    ),
    (torch.float32, 64, 64, 32, 4, 2, None),
    (torch.float32, 16, 64, 64, 4, 2, None),
)


@triton.jit
def multiply(
    a,
    b,
    c,
    columns,
    depth,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    IMPRECISE: tl.constexpr,
):
    """c [M, N] = a [M, K] @ b [N, K]^T in fp32, a tile a program."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, depth, BLOCK_K):
        x = tl.load(a + m[:, None] * depth + (start + k)[None, :])
        y = tl.load(b + n[None, :] * depth + (start + k)[:, None])
        total = tl.dot(x, y, total, max_num_imprecise_acc=IMPRECISE)
    tl.store(c + m[:, None] * columns + n[None, :], total)


def run_configuration(number: int, device: torch.device) -> dict[str, Tensor]:
    """The product kernel in one of its configurations, on normal operands."""
    kind, block_m, block_n, block_k, warps, stages, imprecise = CONFIGURATIONS[number]
    random = torch.Generator().manual_seed(number)
    a = torch.randn(ROWS, DEPTH, generator=random).to(kind).to(device)
    b = torch.randn(COLUMNS, DEPTH, generator=random).to(kind).to(device)
    c = torch.empty(ROWS, COLUMNS, device=device)
    grid = (ROWS // block_m, COLUMNS // block_n)
    multiply[grid](
        a,
        b,
        c,
        COLUMNS,
        DEPTH,
        block_m,
        block_n,
        block_k,
        imprecise,
        num_warps=warps,
        num_stages=stages,
    )
    return {"c": c}


def launches(cases: dict[str, list[Any]], device: torch.device) -> Iterator[tuple[str, Any]]:
    """(which kernel, a call that gives its outputs) for every launch, in a fixed order."""
    for name, drawn in cases.items():
        for case in drawn:

            def call(case: Any = case, name: str = name) -> dict[str, Tensor]:
                inputs = build(case, device)
                outputs = launch(inputs.tensors, parameters(inputs))
                unwritten = SPECS[name].list_left_out(parameters(inputs))
                return {key: outputs[key] for key in OUTPUTS if key not in unwritten}

            yield name, call
    for number in range(len(CONFIGURATIONS)):
        yield "product kernel", lambda number=number: run_configuration(number, device)


def predict(path: str) -> None:
    """Replace the cases at `path` by what each launch is predicted to give, and how that is known."""
    from bitproof.harness.lanes.interpreter import overlay, state
    from bitproof.harness.lanes.interpreter.host import answer_questions

    overlay.install()
    found = []
    for _, call in launches(torch.load(path, weights_only=False), torch.device("cpu")):
        session = state.Session(asking=True)
        with state.session(session), answer_questions():
            outputs = call()
        found.append((outputs, sorted(set(session.products.values()))))
    torch.save(found, path)


def count_differing(got: Tensor, want: Tensor) -> int:
    """Elements whose bits differ, any NaN equal to any NaN."""
    same = (got.view(torch.uint8) == want.view(torch.uint8)).reshape(*got.shape, -1).all(-1)
    if got.is_floating_point():
        same |= got.float().isnan() & want.float().isnan()
    return int((~same).sum())


def main() -> int:
    """Predict in a process of its own, run on the card meanwhile, then compare."""
    if PREDICTING:
        predict(sys.argv[2])
        return 0
    cases = {name: list(draw_cases(spec, CASES)) for name, spec in SPECS.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "predicted.pt")
        torch.save(cases, path)
        command = [sys.executable, "-m", "tests.evidence.predicted", "predict", path]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        with subprocess.Popen(command, env=environment) as predicting:
            taken = [(name, call()) for name, call in launches(cases, torch.device("cuda"))]
        if predicting.returncode:
            return 2
        found = torch.load(path, weights_only=False)
    totals: dict[str, list[int]] = {}
    known: dict[str, set[str]] = {}
    for number, ((name, got), (wanted, told)) in enumerate(zip(taken, found, strict=True)):
        total = totals.setdefault(name, [0, 0, 0])
        total[0] += 1
        known.setdefault(name, set()).update(told)
        for key, want in wanted.items():
            wrong = count_differing(got[key].cpu(), want)
            total[1] += want.numel()
            total[2] += wrong
            if wrong:
                print(f"  {name}, launch {number}, {key}: {wrong} of {want.numel()} differ; {told}")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    print(f"{'kernel':16} {'launches':>8} {'outputs':>9} {'differ':>7}  products known")
    for name, (count, outputs, wrong) in totals.items():
        print(f"{name:16} {count:8} {outputs:9} {wrong:7}  {', '.join(sorted(known[name]))}")
    return int(any(wrong for _, _, wrong in totals.values()))


if __name__ == "__main__":
    sys.exit(main())
