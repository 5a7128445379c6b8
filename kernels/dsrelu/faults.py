"""Planted faults of the dsReLU backward pass: what a tired colleague would write, and who must see it.

docs/dsrelu.md lists those of the system's history that no edit can plant, with the reason.
"""

from __future__ import annotations

from bitproof.harness.spec import Fault

_CUDA = ("cuda",)


def _fault(
    module: str, within: str, name: str, old: str, new: str, caught_by: str = "agreement"
) -> Fault:
    module = f"bitproof.kernels.dsrelu.{module}"
    return Fault(name=name, within=within, old=old, new=new, caught_by=caught_by, module=module)


EPILOGUE = (
    _fault(
        "gemm",
        "_epilogue",
        "computes what the documentation says",
        "r = tl.where(c > 0, c, 0.0)\n    square = r * r\n    g = alpha * acc",
        "r = c\n    g = tl.maximum(alpha * acc, 0.0)\n    square = c * g",
    ),
    _fault(
        "arguments",
        "output_shapes",
        "answers with the activation in fp32",
        '"d_srelu": ((rows, columns), torch.bfloat16)',
        '"d_srelu": ((rows, columns), torch.float32)',
    ),
    _fault("gemm", "_epilogue", "leaves prob out of D", "2.0 * prob[:, None] * r", "2.0 * r"),
    _fault(
        "gemm",
        "_epilogue",
        "squares prob in D",
        "2.0 * prob[:, None] * r",
        "2.0 * prob[:, None] * prob[:, None] * r",
    ),
    _fault("gemm", "_epilogue", "leaves out the factor 2", "2.0 * prob", "prob"),
    _fault(
        "gemm",
        "_epilogue",
        "multiplies prob into dprob",
        "tl.where(used, square * g, 0.0)",
        "tl.where(used, prob[:, None] * square * g, 0.0)",
    ),
    _fault(
        "gemm",
        "_epilogue",
        "sums D as it is stored into dbias",
        "tl.sum(d, 0)",
        "tl.sum(d.to(tl.bfloat16).to(tl.float32), 0)",
    ),
    _fault(
        "gemm",
        "_epilogue",
        "keeps a NaN of C",
        "tl.where(c > 0, c, 0.0)",
        "tl.where(c < 0, 0.0, c)",
    ),
    _fault(
        "gemm",
        "_epilogue",
        "takes amax of positive D alone",
        "d.to(tl.int32, bitcast=True) & 0x7FFFFFFF",
        "d.to(tl.int32, bitcast=True)",
    ),
    _fault(
        "gemm",
        "backward_tiles",
        "takes the first expert's alpha",
        "alpha_ptr + expert",
        "alpha_ptr + expert * 0",
    ),
    _fault(
        "gemm",
        "backward_tiles",
        "drops one subtile's partial",
        "share += some",
        "share = some",
    ),
    _fault(
        "gemm",
        "backward_tiles",
        "parks a subtile by the order of the loop",
        "start = first_column + part * WIDTH",
        "start = first_column + (SUBTILES - 1 - part) * WIDTH",
    ),
    _fault(
        "gemm",
        "_epilogue",
        "takes the row past the group",
        "mine = row < end - first",
        "mine = row <= end - first",
        "memory",
    ),
    _fault(
        "gemm",
        "backward_tiles",
        "counts somebody else's group",
        "owned = expert >= 0",
        "owned = group < groups",
    ),
    _fault(
        "gemm",
        "find_tile",
        "starts a group one tile late",
        "(ends <= number)",
        "(ends < number)",
    ),
    _fault(
        "gemm",
        "extents",
        "takes experts for equally large",
        "tl.load(offsets_ptr + index, mask=index <= groups, other=0)",
        "tl.where(index <= groups, index * (rows // groups), 0)",
    ),
    _fault(
        "gemm",
        "find_tile",
        "counts scales by columns from the first tile",
        "before + (first - begin) // SCALED",
        "before",
    ),
    _fault(
        "gemm",
        "_quantised",
        "hides a NaN in a finite block",
        "finite = top < 0x7F800000",
        "finite = top >= 0",
    ),
    _fault(
        "gemm",
        "_quantised",
        "scales by the power of two below",
        "exponent = covering_exponent(amax, LARGEST)",
        "exponent = covering_exponent(amax, LARGEST) - 1",
    ),
    Fault(
        name="starts amax at zero",
        within="backward",
        old='float("-inf")',
        new="0.0",
        caught_by="agreement",
    ),
)

SLOTS = (
    _fault(
        "gemm",
        "_deliver_rows",
        "orders the sum in a tile alone",
        "tl.store(place, tl.where(owned, share, -0.0), mask=mine)",
        "tl.store(place, tl.full(share.shape, -0.0, tl.float32), mask=mine)\n"
        "        tl.atomic_add(dprob_ptr + row, share, mask=mine & owned)",
        "reproducibility",
    ),
    _fault(
        "gemm",
        "backward_tiles",
        "orders the sum over tiles alone",
        "share += some",
        "late = tl.load(amax_ptr + group, mask=owned, other=0) >= 0\n"
        "            share = tl.where(late, (share + 1.0 + some) - 1.0, share + some)",
        "reproducibility",
    ),
    _fault(
        "gemm",
        "_deliver_columns",
        "adds dbias atomically",
        "if DETERMINISTIC:",
        "if DETERMINISTIC:\n"
        "        tl.store(dbias_slots_ptr + number.to(tl.int64) * COLUMNS + column, 0.0, mask=within)\n"
        "        place = dbias_ptr + group.to(tl.int64) * COLUMNS + column\n"
        "        tl.atomic_add(place, sums, mask=within & owned)\n"
        "    elif DETERMINISTIC:",
        "reproducibility",
    ),
    _fault(
        "gemm",
        "_deliver_rows",
        "gives two tiles one slot",
        "n_tile.to(tl.int64) * rows",
        "(n_tile // 2).to(tl.int64) * rows",
    ),
    _fault(
        "gemm",
        "_deliver_rows",
        "keeps partials in bf16",
        "tl.where(owned, share, -0.0)",
        "tl.where(owned, share.to(tl.bfloat16).to(tl.float32), -0.0)",
    ),
    _fault(
        "arguments",
        "dprob_slots_shape",
        "allots slots for whole tiles alone",
        "triton.cdiv(columns, tiling.block_n)",
        "max(columns // tiling.block_n, 1)",
        "memory",
    ),
    _fault(
        "gemm",
        "backward_tiles",
        "parks zeros in the slots of the next group",
        "mine = first + tl.arange(0, BLOCK_M) < end",
        "mine = first + tl.arange(0, BLOCK_M) < rows",
        "reproducibility",
    ),
    _fault(
        "reduce",
        "_add_rows",
        "drops the last tile's slot",
        "tl.static_range(1, SLOTS)",
        "tl.static_range(1, SLOTS - 1)",
    ),
    _fault(
        "reduce",
        "_add_rows",
        "counts a slot twice",
        "slot * rows.to(tl.int64)",
        "(slot - 1) * rows.to(tl.int64)",
    ),
    _fault(
        "reduce",
        "_add_rows",
        "overwrites dprob",
        "tl.load(dprob_ptr + row, mask=mine) + total",
        "total",
    ),
    _fault(
        "reduce",
        "add_slots",
        "overwrites dbias",
        "tl.load(place, mask=within) + total",
        "total",
    ),
    _fault(
        "reduce",
        "add_slots",
        "sums the tiles of all later groups",
        "tl.sum(tl.where(index == group, tiles, 0), 0)",
        "tl.sum(tl.where(index >= group, tiles, 0), 0)",
    ),
    _fault(
        "reduce",
        "add_slots",
        "takes a group's own tiles for those before it",
        "index < group",
        "index <= group",
    ),
    _fault(
        "reduce",
        "add_slots",
        "sums slots that nobody cleared",
        "mask = (tile < count)[:, None] & within",
        "mask = (tile <= count)[:, None] & within",
        "reproducibility",
    ),
    Fault(
        name="sums on torch's default stream",
        within="backward_into",
        old="_launch_sums(operands, outputs, slots, tiling)",
        new="with torch.cuda.stream(torch.cuda.default_stream()):\n"
        "            _launch_sums(operands, outputs, slots, tiling)",
        caught_by="streams",
        lanes=_CUDA,
        because="the interpreter has no streams",
    ),
    Fault(
        name="specialises the sums on the token count",
        within="add_slots",
        old='do_not_specialize=["rows", "groups", "row_blocks"]',
        new='do_not_specialize=["groups", "row_blocks"]',
        caught_by="compile_cache",
        module="bitproof.kernels.dsrelu.reduce",
        lanes=_CUDA,
        because="the interpreter compiles nothing",
    ),
)

KEYS = (
    Fault(
        name="specialises the product on the token count",
        within="backward_tiles",
        old='do_not_specialize=["rows", "groups"]',
        new='do_not_specialize=["groups"]',
        caught_by="compile_cache",
        module="bitproof.kernels.dsrelu.gemm",
        lanes=_CUDA,
        because="the interpreter compiles nothing",
    ),
    Fault(
        name="clears amax on torch's default stream",
        within="backward",
        old='outputs["amax"].fill_(float("-inf"))',
        new="with torch.cuda.stream(torch.cuda.default_stream()):\n"
        '        outputs["amax"].fill_(float("-inf"))',
        caught_by="streams",
        lanes=_CUDA,
        because="the interpreter has no streams",
    ),
)

SCALES = (
    _fault(
        "gemm",
        "_scaled_to_bf16",
        "leaves out the operands' scales",
        "blocks * _powers(scale)[:, :, None]",
        "blocks",
    ),
    _fault(
        "gemm",
        "_operand",
        "takes the scales of the first block",
        "block = k // SCALED + tl.arange(0, BLOCK_K // SCALED)",
        "block = tl.arange(0, BLOCK_K // SCALED)",
    ),
    _fault(
        "gemm",
        "_powers",
        "takes 128 for the bias of a scale",
        "code.to(tl.int32) << 23",
        "(code.to(tl.int32) - 1) << 23",
    ),
)

ATOMICS = (
    Fault(
        name="leaves the scales by columns as they were",
        within="backward",
        old='outputs["d_col_scale"].zero_()',
        new="pass",
        caught_by="reproducibility",
    ),
    _fault(
        "gemm",
        "_deliver_rows",
        "adds to rows that are nobody's",
        "tl.atomic_add(dprob_ptr + row, share, mask=mine & owned",
        "tl.atomic_add(dprob_ptr + row, share + 1.0, mask=mine & ~owned",
    ),
    _fault(
        "gemm",
        "_deliver_rows",
        "overwrites dprob with the last tile's sum",
        'tl.atomic_add(dprob_ptr + row, share, mask=mine & owned, sem="relaxed")',
        "tl.store(dprob_ptr + row, share, mask=mine & owned)",
    ),
    _fault(
        "gemm",
        "_deliver_columns",
        "adds dbias to the next group",
        "group.to(tl.int64) * COLUMNS",
        "(group + 1).to(tl.int64) * COLUMNS",
        "memory",
    ),
    *KEYS,
)
