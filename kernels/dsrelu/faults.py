"""Planted faults of the dsReLU backward pass: what a tired colleague would write, and who must see it.

docs/dsrelu.md lists those of the system's history that no edit can plant, with the reason.
"""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault

_in_arguments = partial(Fault, module="bitproof.kernels.dsrelu.arguments", caught_by="agreement")
_in_backward = partial(Fault, module="bitproof.kernels.dsrelu.backward", caught_by="agreement")
_in_gemm = partial(Fault, module="bitproof.kernels.dsrelu.gemm", caught_by="agreement")
_in_reduce = partial(Fault, module="bitproof.kernels.dsrelu.reduce", caught_by="agreement")

EPILOGUE = (
    _in_gemm(
        name="computes what the documentation says",
        within="_epilogue",
        old="r = tl.where(c > 0, c, 0.0)\n    square = r * r\n    g = alpha * acc",
        new="r = c\n    g = tl.maximum(alpha * acc, 0.0)\n    square = c * g",
    ),
    _in_arguments(
        name="answers with the activation in fp32",
        within="output_shapes",
        old='"d_srelu": ((rows, columns), torch.bfloat16)',
        new='"d_srelu": ((rows, columns), torch.float32)',
    ),
    _in_gemm(
        name="leaves prob out of D",
        within="_epilogue",
        old="2.0 * prob[:, None] * r",
        new="2.0 * r",
    ),
    _in_gemm(
        name="squares prob in D",
        within="_epilogue",
        old="2.0 * prob[:, None] * r",
        new="2.0 * prob[:, None] * prob[:, None] * r",
    ),
    _in_gemm(name="leaves out the factor 2", within="_epilogue", old="2.0 * prob", new="prob"),
    _in_gemm(
        name="multiplies prob into dprob",
        within="_epilogue",
        old="tl.where(used, square * g, 0.0)",
        new="tl.where(used, prob[:, None] * square * g, 0.0)",
    ),
    _in_gemm(
        name="sums D as it is stored into dbias",
        within="_epilogue",
        old="tl.sum(d, 0)",
        new="tl.sum(d.to(tl.bfloat16).to(tl.float32), 0)",
    ),
    _in_gemm(
        name="keeps a NaN of C",
        within="_epilogue",
        old="tl.where(c > 0, c, 0.0)",
        new="tl.where(c < 0, 0.0, c)",
    ),
    _in_gemm(
        name="takes amax of positive D alone",
        within="_epilogue",
        old="d.to(tl.int32, bitcast=True) & 0x7FFFFFFF",
        new="d.to(tl.int32, bitcast=True)",
    ),
    _in_gemm(
        name="takes the first expert's alpha",
        within="backward_tiles",
        old="alpha_ptr + expert",
        new="alpha_ptr + expert * 0",
    ),
    _in_gemm(
        name="drops one subtile's partial",
        within="backward_tiles",
        old="share += some",
        new="share = some",
    ),
    _in_gemm(
        name="parks a subtile by the order of the loop",
        within="backward_tiles",
        old="start = first_column + part * WIDTH",
        new="start = first_column + (SUBTILES - 1 - part) * WIDTH",
    ),
    _in_gemm(
        name="takes the row past the group",
        within="_epilogue",
        old="mine = row < end - first",
        new="mine = row <= end - first",
        caught_by="memory",
    ),
    _in_gemm(
        name="counts somebody else's group",
        within="backward_tiles",
        old="owned = expert >= 0",
        new="owned = group < groups",
    ),
    _in_gemm(
        name="starts a group one tile late",
        within="find_tile",
        old="(ends <= number)",
        new="(ends < number)",
    ),
    _in_gemm(
        name="takes experts for equally large",
        within="extents",
        old="tl.load(offsets_ptr + index, mask=index <= groups, other=0)",
        new="tl.where(index <= groups, index * (rows // groups), 0)",
    ),
    _in_gemm(
        name="counts scales by columns from the first tile",
        within="find_tile",
        old="before + (first - begin) // SCALED",
        new="before",
    ),
    _in_gemm(
        name="hides a NaN in a finite block",
        within="_quantised",
        old="finite = top < 0x7F800000",
        new="finite = top >= 0",
    ),
    _in_gemm(
        name="scales by the power of two below",
        within="_quantised",
        old="exponent = covering_exponent(amax, LARGEST)",
        new="exponent = covering_exponent(amax, LARGEST) - 1",
    ),
    _in_backward(name="starts amax at zero", within="backward", old='float("-inf")', new="0.0"),
)

SLOTS = (
    _in_gemm(
        name="orders the sum in a tile alone",
        within="_deliver_rows",
        old="tl.store(place, tl.where(owned, share, -0.0), mask=mine)",
        new=(
            "tl.store(place, tl.full(share.shape, -0.0, tl.float32), mask=mine)\n"
            "        tl.atomic_add(dprob_ptr + row, share, mask=mine & owned)"
        ),
        caught_by="reproducibility",
    ),
    _in_gemm(
        name="orders the sum over tiles alone",
        within="backward_tiles",
        old="share += some",
        new=(
            "late = tl.load(amax_ptr + group, mask=owned, other=0) >= 0\n"
            "            share = tl.where(late, (share + 1.0 + some) - 1.0, share + some)"
        ),
        caught_by="reproducibility",
    ),
    _in_gemm(
        name="adds dbias atomically",
        within="_deliver_columns",
        old="if DETERMINISTIC:",
        new=(
            "if DETERMINISTIC:\n"
            "        tl.store(dbias_slots_ptr + number.to(tl.int64) * COLUMNS + column, 0.0, mask=within)\n"
            "        place = dbias_ptr + group.to(tl.int64) * COLUMNS + column\n"
            "        tl.atomic_add(place, sums, mask=within & owned)\n"
            "    elif DETERMINISTIC:"
        ),
        caught_by="reproducibility",
    ),
    _in_gemm(
        name="gives two tiles one slot",
        within="_deliver_rows",
        old="n_tile.to(tl.int64) * rows",
        new="(n_tile // 2).to(tl.int64) * rows",
    ),
    _in_gemm(
        name="keeps partials in bf16",
        within="_deliver_rows",
        old="tl.where(owned, share, -0.0)",
        new="tl.where(owned, share.to(tl.bfloat16).to(tl.float32), -0.0)",
    ),
    _in_arguments(
        name="allots slots for whole tiles alone",
        within="dprob_slots_shape",
        old="triton.cdiv(columns, tiling.block_n)",
        new="max(columns // tiling.block_n, 1)",
        caught_by="memory",
    ),
    _in_gemm(
        name="parks zeros in the slots of the next group",
        within="backward_tiles",
        old="mine = first + tl.arange(0, BLOCK_M) < end",
        new="mine = first + tl.arange(0, BLOCK_M) < rows",
        caught_by="reproducibility",
    ),
    _in_reduce(
        name="drops the last tile's slot",
        within="_add_rows",
        old="tl.static_range(1, SLOTS)",
        new="tl.static_range(1, SLOTS - 1)",
    ),
    _in_reduce(
        name="counts a slot twice",
        within="_add_rows",
        old="slot * rows.to(tl.int64)",
        new="(slot - 1) * rows.to(tl.int64)",
    ),
    _in_reduce(
        name="overwrites dprob",
        within="_add_rows",
        old="tl.load(dprob_ptr + row, mask=mine) + total",
        new="total",
    ),
    _in_reduce(
        name="overwrites dbias",
        within="add_slots",
        old="tl.load(place, mask=within) + total",
        new="total",
    ),
    _in_reduce(
        name="sums the tiles of all later groups",
        within="add_slots",
        old="tl.sum(tl.where(index == group, tiles, 0), 0)",
        new="tl.sum(tl.where(index >= group, tiles, 0), 0)",
    ),
    _in_reduce(
        name="takes a group's own tiles for those before it",
        within="add_slots",
        old="index < group",
        new="index <= group",
    ),
    _in_reduce(
        name="sums slots that nobody cleared",
        within="add_slots",
        old="mask = (tile < count)[:, None] & within",
        new="mask = (tile <= count)[:, None] & within",
        caught_by="reproducibility",
    ),
    _in_backward(
        name="sums on torch's default stream",
        within="backward_into",
        old="_launch_sums(operands, outputs, slots, tiling)",
        new=(
            "with torch.cuda.stream(torch.cuda.default_stream()):\n"
            "            _launch_sums(operands, outputs, slots, tiling)"
        ),
        caught_by="streams",
        lanes=("cuda",),
        because="the interpreter has no streams",
    ),
    _in_reduce(
        name="specialises the sums on the token count",
        within="add_slots",
        old='do_not_specialize=["rows", "groups", "row_blocks"]',
        new='do_not_specialize=["groups", "row_blocks"]',
        caught_by="compile_cache",
    ),
)

KEYS = (
    _in_gemm(
        name="specialises the product on the token count",
        within="backward_tiles",
        old='do_not_specialize=["rows", "groups"]',
        new='do_not_specialize=["groups"]',
        caught_by="compile_cache",
    ),
    _in_backward(
        name="clears amax on torch's default stream",
        within="backward",
        old='outputs["amax"].fill_(float("-inf"))',
        new=(
            "with torch.cuda.stream(torch.cuda.default_stream()):\n"
            '        outputs["amax"].fill_(float("-inf"))'
        ),
        caught_by="streams",
        lanes=("cuda",),
        because="the interpreter has no streams",
    ),
)

SCALES = (
    _in_gemm(
        name="leaves out the operands' scales",
        within="_scaled_to_bf16",
        old="blocks * _powers(scale)[:, :, None]",
        new="blocks",
    ),
    _in_gemm(
        name="takes the scales of the first block",
        within="_operand",
        old="block = k // SCALED + tl.arange(0, BLOCK_K // SCALED)",
        new="block = tl.arange(0, BLOCK_K // SCALED)",
    ),
    _in_gemm(
        name="takes 128 for the bias of a scale",
        within="_powers",
        old="code.to(tl.int32) << 23",
        new="(code.to(tl.int32) - 1) << 23",
    ),
)

ATOMICS = (
    _in_backward(
        name="leaves the scales by columns as they were",
        within="backward",
        old='outputs["d_col_scale"].zero_()',
        new="pass",
        caught_by="reproducibility",
    ),
    _in_gemm(
        name="adds to rows that are nobody's",
        within="_deliver_rows",
        old="tl.atomic_add(dprob_ptr + row, share, mask=mine & owned",
        new="tl.atomic_add(dprob_ptr + row, share + 1.0, mask=mine & ~owned",
    ),
    _in_gemm(
        name="overwrites dprob with the last tile's sum",
        within="_deliver_rows",
        old='tl.atomic_add(dprob_ptr + row, share, mask=mine & owned, sem="relaxed")',
        new="tl.store(dprob_ptr + row, share, mask=mine & owned)",
    ),
    _in_gemm(
        name="adds dbias to the next group",
        within="_deliver_columns",
        old="group.to(tl.int64) * COLUMNS",
        new="(group + 1).to(tl.int64) * COLUMNS",
        caught_by="memory",
    ),
    *KEYS,
)
