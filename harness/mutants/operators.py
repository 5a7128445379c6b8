"""The mutation operators: one table of single faults that real kernels have had.

An operator looks at one node of a kernel function and answers what could stand in its place. The table says
for each what it is called and where such a fault was seen; the functions that find the places are in
`memory_faults`, `number_faults` and `rounding_faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bitproof.harness.mutants import memory_faults as memory
from bitproof.harness.mutants import number_faults as numbers
from bitproof.harness.mutants import rounding_faults as roundings
from bitproof.harness.mutants.places import Place

Find = Callable[[Place], Iterator[str]]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One kind of single fault.

    find      what may stand in the place of a node, as text; "" where the statement goes
    inspired  the public fault, or the kind of fault, that it is taken from
    unseen    by family of lanes, why such a fault changes nothing there, where it does not
    """

    name: str
    find: Find
    inspired: str
    unseen: Mapping[str, str] = field(default_factory=dict)


_ONE_PROGRAM = "the lane runs one program at a time, and all its threads in step"
_ORDERED = {"interpreter": _ONE_PROGRAM}

OPERATORS: tuple[Operator, ...] = (
    # Masks
    Operator(
        name="load mask dropped",
        find=memory.drop_load_mask,
        inspired="Liger-Kernel and flash-attention: reads past a tail, NaN from foreign memory",
    ),
    Operator(
        name="store mask dropped",
        find=memory.drop_store_mask,
        inspired="writes past the last row where the row count is no multiple of the block",
    ),
    Operator(
        name="atomic mask dropped",
        find=memory.drop_atomic_mask,
        inspired="padding rows that add to a sum over tokens",
    ),
    Operator(
        name="mask of one axis only",
        find=memory.drop_conjunct,
        inspired="vLLM and SGLang block-scaled products: K masked, N not",
    ),
    Operator(
        name="bound off by one",
        find=memory.shift_bound,
        inspired="< for <= at sequence ends in variable-length attention",
    ),
    Operator(
        name="bound one short",
        find=memory.shorten_bound,
        inspired="the last element of a ragged tail is lost",
    ),
    Operator(
        name="axis of a broadcast swapped",
        find=memory.swap_axis,
        inspired="[:, None] for [None, :] in masks and scales of square tiles",
    ),
    Operator(
        name="other of a masked load changed",
        find=memory.change_other,
        inspired="0 for -inf under a maximum, 0 for 1 under a product",
    ),
    Operator(
        name="other of a masked load dropped",
        find=memory.drop_other,
        inspired="Triton leaves masked lanes undefined without `other`",
    ),
    Operator(
        name="padding value changed",
        find=numbers.change_padding,
        inspired="a where() that pads a reduction with a value that counts",
    ),
    Operator(
        name="selection dropped",
        find=numbers.drop_selection,
        inspired="a guard against NaN, infinity or padding is simplified away",
    ),
    Operator(
        name="selection swapped",
        find=numbers.swap_selection,
        inspired="the two branches of a where() are exchanged",
    ),
    # Addresses
    Operator(
        name="offset left out",
        find=memory.drop_addend,
        inspired="a tile's or group's base that is zero in every test of one tile",
    ),
    Operator(
        name="head, batch, expert or sequence offset left out",
        find=memory.drop_named_offset,
        inspired="flash-linear-attention: heads or sequences past the first read the first one's data",
    ),
    Operator(
        name="stride left out",
        find=memory.drop_stride,
        inspired="rows taken for dense, or a stride of another tensor",
    ),
    Operator(
        name="stride off by one",
        find=memory.shift_stride,
        inspired="a padded leading dimension taken for the width",
    ),
    Operator(
        name="quotient and remainder swapped",
        find=memory.swap_quotient,
        inspired="group index and index in the group exchanged in grouped-query attention",
    ),
    Operator(
        name="blocks rounded down",
        find=memory.round_down,
        inspired="n // block for cdiv(n, block): the partial block is lost",
    ),
    Operator(
        name="wrong program axis",
        find=memory.change_axis,
        inspired="program_id(0) for program_id(1), right while the grid is square",
    ),
    Operator(
        name="64-bit cast dropped",
        find=memory.drop_int64,
        inspired="vLLM, FlashInfer and Unsloth: offsets past 2^31 wrap",
    ),
    # Loops and branches
    Operator(
        name="one iteration fewer",
        find=numbers.shorten_loop,
        inspired="the last block of K is not added",
    ),
    Operator(
        name="first iteration skipped",
        find=numbers.skip_first,
        inspired="a peeled first iteration that was not put back; a series one term short",
    ),
    Operator(
        name="condition inverted",
        find=numbers.invert_condition,
        inspired="a flag of a fused kernel read the wrong way round",
    ),
    Operator(
        name="comparison replaced",
        find=numbers.replace_comparison,
        inspired="causal masks that keep the wrong triangle",
    ),
    # Accumulation
    Operator(
        name="accumulator overwritten",
        find=numbers.overwrite,
        inspired="= for += in a loop over blocks",
    ),
    Operator(
        name="accumulation left out",
        find=numbers.leave_out_accumulation,
        inspired="a branch that forgets to add its share",
    ),
    Operator(
        name="accumulator of a product dropped",
        find=numbers.drop_accumulator,
        inspired="tl.dot without acc in a loop over K",
    ),
    Operator(
        name="accumulator not started at zero",
        find=numbers.start_at_one,
        inspired="workspaces that are not cleared between calls",
    ),
    Operator(
        name="accumulator not fp32",
        find=numbers.narrow_accumulator,
        inspired="fp16 accumulation in split-K products",
    ),
    Operator(
        name="imprecise accumulation",
        find=numbers.change_imprecise,
        inspired="DeepGEMM: Hopper's fp8 products keep 14 bits between promotions",
    ),
    # Arithmetic
    Operator(
        name="factor left out",
        find=numbers.drop_factor,
        inspired="a rescaling of online softmax, a gate or a dequantising scale that is not applied",
    ),
    Operator(
        name="factor applied twice",
        find=numbers.double_factor,
        inspired="the softmax scale in q and again in the scores",
    ),
    Operator(
        name="scale of another group",
        find=memory.take_other_scale,
        inspired="block-scaled products: every group takes the first one's scale",
    ),
    Operator(
        name="sum and difference swapped",
        find=numbers.swap_sum,
        inspired="a sign lost in a hand-derived gradient",
    ),
    Operator(
        name="product and quotient swapped",
        find=numbers.swap_product,
        inspired="quantising with the dequantising scale",
    ),
    Operator(
        name="operands swapped",
        find=numbers.swap_operands,
        inspired="a - b for b - a, transposed operands of a product",
    ),
    Operator(
        name="transposition dropped",
        find=numbers.drop_transposition,
        inspired="k for k.T while both are square",
    ),
    Operator(
        name="sign dropped",
        find=numbers.drop_sign,
        inspired="-x for x in decays and exponents; abs() forgotten in amax",
    ),
    Operator(
        name="minimum for maximum",
        find=numbers.swap_extremes,
        inspired="a clamp or an amax the wrong way round",
    ),
    Operator(
        name="sum for maximum",
        find=numbers.swap_reduction,
        inspired="a reduction copied from the line above",
    ),
    Operator(
        name="reduction over another axis",
        find=numbers.change_reduction_axis,
        inspired="row sums for column sums, right while tiles are square",
    ),
    Operator(
        name="cumulative sum reversed or exclusive",
        find=numbers.change_scan,
        inspired="flash-linear-attention: gates accumulated from the other end in the backward pass",
    ),
    Operator(
        name="epsilon outside the root",
        find=numbers.move_epsilon,
        inspired="RMSNorm variants: sqrt(x) + eps for sqrt(x + eps)",
    ),
    Operator(
        name="epsilon missing",
        find=numbers.drop_epsilon,
        inspired="division by zero for a row of zeros",
    ),
    Operator(
        name="constant one ulp off",
        find=numbers.nudge_constant,
        inspired="a decimal that is not the nearest fp32; 447.99997 for 448",
    ),
    Operator(
        name="integer constant off by one",
        find=numbers.shift_constant,
        inspired="shift amounts and masks of hand-written conversions",
    ),
    Operator(
        name="bit operation replaced",
        find=numbers.replace_bit_operation,
        inspired="a code assembled with & for |",
    ),
    Operator(
        name="function of another base",
        find=numbers.change_base,
        inspired="exp2 for exp without the factor log2(e)",
    ),
    # Rounding
    Operator(
        name="cast dropped",
        find=roundings.drop_cast,
        inspired="an intermediate that the reference rounds and the kernel does not",
    ),
    Operator(
        name="rounded twice",
        find=roundings.round_twice,
        inspired="Triton's fp32 to fp8 by way of fp16 on sm_89",
    ),
    Operator(
        name="rounded toward zero",
        find=roundings.round_toward_zero,
        inspired="truncating bf16 conversions",
    ),
    Operator(
        name="rounding or saturation removed",
        find=roundings.remove_rounding,
        inspired="a hand-written rounding replaced by the native conversion",
    ),
    Operator(
        name="approximate for exact",
        find=roundings.approximate,
        inspired="/ and sqrt for div_rn and sqrt_rn",
        unseen={"interpreter": "the lane divides and takes roots exactly"},
    ),
    Operator(
        name="cast moved across a product",
        find=roundings.move_cast,
        inspired="(a * b).to(bf16) for a product of bf16 factors",
    ),
    Operator(
        name="input precision changed",
        find=roundings.change_precision,
        inspired="tf32 by default, ieee in the reference",
    ),
    # Memory order
    Operator(
        name="store for an atomic",
        find=memory.store_for_atomic,
        inspired="split-K partial sums that overwrite each other",
    ),
    Operator(
        name="atomic for a store",
        find=memory.atomic_for_store,
        inspired="an output that is added to whatever it held",
    ),
    Operator(
        name="barrier dropped",
        find=memory.drop_barrier,
        inspired="shared memory reused while it is read",
        unseen=_ORDERED,
    ),
    Operator(
        name="store left out",
        find=memory.leave_out_store,
        inspired="an output that keeps what fresh memory held",
    ),
)


def named(name: str) -> Operator:
    """The operator of that name."""
    return next(one for one in OPERATORS if one.name == name)
