"""Backward pass of a grouped GEMM with the activation prob * relu(C)^2 over ragged experts.

With `g` a group of rows, its weights B of expert `experts[g]` and R = max(C, 0):

    G[m, n]    = alpha * sum_k A[m, k] B[n, k]        the gradient from upstream
    D[m, n]    = 2 * prob[m] * R * G                  the gradient of C
    d_srelu    = prob[m] * R^2                        the activation, recomputed
    dprob[m]   += sum_n R^2 * G
    dbias[g,n] += sum over the group's rows of D
    amax[g]    = max |D|

A NaN in C counts as negative. dprob and dbias are added to, in fp32, with atomics or, deterministically,
through slots; everything is issued on the caller's current stream and nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.harness.spec import Params, Tensors
from bitproof.kernels.dsrelu.arguments import (
    SCALED,
    Operands,
    Tiling,
    dbias_slots_shape,
    dprob_slots_shape,
    m_tiles,
    output_shapes,
    require,
)
from bitproof.kernels.dsrelu.gemm import TALL, backward_tiles
from bitproof.kernels.dsrelu.reduce import add_slots


def backward_into(
    operands: Operands,
    outputs: Mapping[str, Tensor],
    *,
    quantised: bool,
    deterministic: bool,
    tiling: Tiling,
    dprob_slots: Tensor | None = None,
    dbias_slots: Tensor | None = None,
) -> None:
    """The backward pass into the caller's memory, workspaces included.

    `outputs` holds those of `output_shapes`, with amax -inf and, if `quantised`, d_col_scale 0, and dprob
    and dbias, which are added to. The slots are of `dprob_slots_shape` and `dbias_slots_shape`; what they
    hold does not matter.
    ValueError: an output or workspace that is missing or does not fit; workspaces in default mode;
    dense rows so long that a tile of them spans 2^31 elements.
    """
    m, n, groups = operands.rows, operands.columns, operands.groups
    expected = output_shapes(m, n, groups, quantised=quantised)
    expected |= {"dprob": ((m,), torch.float32), "dbias": ((groups, n), torch.float32)}
    for name, (shape, dtype) in expected.items():
        require(name, outputs.get(name), shape, dtype)
    slots = {"dprob_slots": dprob_slots, "dbias_slots": dbias_slots}
    if not deterministic:
        for name, tensor in slots.items():
            if tensor is not None:
                raise ValueError(f"{name} is for deterministic mode: pass None or deterministic")
    else:
        shapes = (dprob_slots_shape(m, n, tiling), dbias_slots_shape(m, n, groups, tiling))
        for (name, tensor), shape in zip(slots.items(), shapes, strict=True):
            require(name, tensor, shape, torch.float32)
    if quantised and (tiling.block_n // tiling.subtiles % SCALED or tiling.block_m % SCALED):
        raise ValueError("block_m and block_n / subtiles must be multiples of 32 to quantise D")
    if max(n, operands.a.shape[1]) * max(tiling.block_m, tiling.block_n) >= 2**31:
        raise ValueError(
            f"a tile of {tiling.block_m} x {tiling.block_n} spans 2^31 elements or more"
        )
    if m == 0:
        return
    _launch_tiles(operands, outputs, slots, quantised, deterministic, tiling)
    if deterministic:
        _launch_sums(operands, outputs, slots, tiling)


def backward(
    operands: Operands,
    dprob: Tensor,
    dbias: Tensor,
    *,
    quantised: bool = False,
    deterministic: bool | None = None,
    tiling: Tiling | None = None,
) -> dict[str, Tensor]:
    """The backward pass: adds to dprob [M] and dbias [G, N] fp32, returns them and `output_shapes`.

    `deterministic` None follows `torch.are_deterministic_algorithms_enabled()`; shapes and types do not
    depend on it.
    """
    m, n, groups = operands.rows, operands.columns, operands.groups
    tiling = tiling or Tiling()
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    device = operands.a.device
    outputs = {
        name: torch.empty(shape, dtype=dtype, device=device)
        for name, (shape, dtype) in output_shapes(m, n, groups, quantised=quantised).items()
    }
    outputs["amax"].fill_(float("-inf"))
    if quantised:
        outputs["d_col_scale"].zero_()
    outputs |= {"dprob": dprob, "dbias": dbias}
    slots = {}
    if deterministic:
        shapes = {
            "dprob_slots": dprob_slots_shape(m, n, tiling),
            "dbias_slots": dbias_slots_shape(m, n, groups, tiling),
        }
        slots = {name: torch.empty(shape, device=device) for name, shape in shapes.items()}
    backward_into(
        operands, outputs, quantised=quantised, deterministic=deterministic, tiling=tiling, **slots
    )
    return outputs


def _launch_tiles(
    operands: Operands,
    outputs: Mapping[str, Tensor],
    slots: Mapping[str, Tensor | None],
    quantised: bool,
    deterministic: bool,
    tiling: Tiling,
) -> None:
    m, n, groups = operands.rows, operands.columns, operands.groups
    a, b = operands.a, operands.b
    described = operands.a_scale is None and _describable(a) and _describable(b)
    if described:
        flat = b.view(-1, b.shape[2])
        a = TensorDescriptor.from_tensor(a, [tiling.block_m, tiling.block_k])
        b = TensorDescriptor.from_tensor(flat, [tiling.block_n, tiling.block_k])
    n_tiles = triton.cdiv(n, tiling.block_n)
    stripes = triton.cdiv(m_tiles(m, groups, tiling), TALL.value)
    backward_tiles[(stripes * TALL.value * n_tiles,)](
        a,
        operands.a_scale,
        b,
        operands.b_scale,
        operands.c,
        operands.prob,
        operands.alpha,
        operands.offsets,
        operands.experts,
        outputs["d_row"],
        outputs["d_row_scale"],
        outputs["d_col"],
        outputs["d_col_scale"],
        outputs["d_srelu"],
        outputs["dprob"],
        slots["dprob_slots"],
        outputs["dbias"],
        slots["dbias_slots"],
        outputs["amax"].view(torch.int32),
        operands.a.stride(0),
        operands.c.stride(0),
        m,
        groups,
        operands.a.shape[1],
        COLUMNS=n,
        SLOTS=n_tiles,
        GROUPS=triton.next_power_of_2(groups + 1),
        DETERMINISTIC=deterministic,
        QUANTISED=quantised,
        SCALES=operands.a_scale is not None,
        DESCRIBED=described,
        SUBTILES=tiling.subtiles,
        BLOCK_M=tiling.block_m,
        BLOCK_N=tiling.block_n,
        BLOCK_K=tiling.block_k,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )


def _launch_sums(
    operands: Operands,
    outputs: Mapping[str, Tensor],
    slots: Mapping[str, Tensor | None],
    tiling: Tiling,
) -> None:
    m, n, groups = operands.rows, operands.columns, operands.groups
    rows, columns = 256, 64
    row_blocks = triton.cdiv(m, rows)
    add_slots[(row_blocks + groups * triton.cdiv(n, columns),)](
        outputs["dprob"],
        slots["dprob_slots"],
        outputs["dbias"],
        slots["dbias_slots"],
        operands.offsets,
        operands.experts,
        m,
        groups,
        row_blocks,
        COLUMNS=n,
        SLOTS=triton.cdiv(n, tiling.block_n),
        GROUPS=triton.next_power_of_2(groups + 1),
        BLOCK_M=tiling.block_m,
        BLOCK_ROWS=rows,
        BLOCK_COLUMNS=columns,
        BLOCK_TILES=8,
    )


def _describable(tensor: Tensor) -> bool:
    """Whether a tensor memory accelerator can read the matrix: 16-byte alignment of start and rows."""
    pitch = tensor.stride(-2) * tensor.element_size()
    return tensor.data_ptr() % 16 == 0 and pitch % 16 == 0


def launch(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`backward` on the tensors of a case, deterministic unless `params` say otherwise."""
    described = params["launch"]
    operands = Operands(
        **{name: tensors[name] for name in tensors if name not in ("dprob", "dbias")}
    )
    tiling = Tiling(
        block_m=params["block_m"],
        block_n=described.block,
        block_k=params["block_k"],
        subtiles=params["subtiles"],
        num_warps=described.num_warps,
        num_stages=described.num_stages,
    )
    return backward(
        operands,
        tensors["dprob"],
        tensors["dbias"],
        quantised=params["quantised"],
        deterministic=params.get("deterministic", True),
        tiling=tiling,
    )


def launch_default(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """The same with atomics: the control of the deterministic mode."""
    return launch(tensors, {**params, "deterministic": False})
