"""Kernels that the stock interpreter cannot run, and those that this lane cannot run either."""

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.libdevice import rsqrt
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from bitproof.harness.errors import Unsupported


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
@triton.jit
def tuned(y, n, BLOCK: tl.constexpr):
    """Write the block size that was chosen."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, BLOCK, mask=at < n)


@triton.autotune(
    [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})],
    key=["n"],
    prune_configs_by={"early_config_prune": lambda configs, named, **_: configs[1:]},
)
@triton.jit
def pruned(y, n, BLOCK: tl.constexpr):
    """Write the block size that was left."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, BLOCK, mask=at < n)


@triton.heuristics({"BLOCK": lambda named: triton.next_power_of_2(named["n"])})
@triton.jit
def by_heuristic(y, n, BLOCK: tl.constexpr):
    """Write the block size that the heuristic computed."""
    tl.store(y + tl.arange(0, BLOCK), BLOCK, mask=tl.arange(0, BLOCK) < n)


@triton.jit
def scaled(x, y, factor):
    """Converts its scalar argument."""
    tl.store(y, tl.load(x) * factor.to(tl.float32))


@triton.jit
def loops(y, n):
    """Loop variables that are used as tensors, over runtime bounds, and unrolled ones."""
    total = tl.zeros((1,), tl.int64)
    for i in range(1, n):
        total += i.to(tl.int64)
    for i in tl.range(n, num_stages=2):
        total += i
    for i in tl.static_range(0, 4, step=2):
        total += i
    tl.store(y + tl.arange(0, 1), total)


@triton.jit
def products(y, n, factor: tl.constexpr):
    """Multiplies a loop variable until it overflows."""
    for i in range(n):
        tl.store(y + i, i * factor)


@triton.jit
def from_libdevice(x, y):
    """Calls CUDA's library by name and through its module."""
    value = tl.load(x + tl.arange(0, 4))
    tl.store(y + tl.arange(0, 4), rsqrt(value) + libdevice.tanh(value))


@triton.jit
def rare_libdevice(x):
    """Calls a function that the lane does not have."""
    tl.store(x, libdevice.nextafter(tl.load(x), 0.0))


@triton.jit
def assembly(y):
    """Contains a line of PTX."""
    at = tl.arange(0, 4)
    copied = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [at], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(y + at, copied)


@triton.jit
def multiprocessor(y):
    """Asks for the multiprocessor that runs it."""
    tl.store(y, tl.extra.cuda.smid())


@triton.jit
def one_more(x):
    """An element's successor."""
    return x + 1


@triton.jit
def mapped(y):
    """Maps a function over a block."""
    at = tl.arange(0, 4)
    tl.store(y + at, tl.map_elementwise(one_more, at))


@triton.jit
def wrong_shapes(y):
    """Adds blocks that do not fit."""
    tl.store(y + tl.arange(0, 4), tl.arange(0, 4) + tl.arange(0, 8))


@triton.jit
def waits_for_the_last(flag, y):
    """Every program but the last waits for it by reading."""
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.atomic_xchg(flag, 1)
    else:
        while tl.load(flag, volatile=True) == 0:
            pass
    tl.store(y + tl.program_id(0), 1)


@triton.jit
def waits_by_swapping(flag, y):
    """Every program but the last waits for it by comparing and swapping."""
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.atomic_xchg(flag, 1)
    else:
        while tl.atomic_cas(flag, 1, 1) != 1:
            pass
    tl.store(y + tl.program_id(0), 1)


@triton.jit
def copies_described(source, target, BLOCK: tl.constexpr):
    """Copy through descriptors that the host made."""
    target.store([tl.program_id(0) * BLOCK, 0], source.load([tl.program_id(0) * BLOCK, 0]))


@pytest.mark.parametrize(("config", "block"), [(None, 16), (0, 16), (1, 32)])
def test_an_autotuned_kernel_runs_in_the_configuration_asked_for(watched, config, block):
    """Without a driver and without timing: the first configuration, or the one of the case."""
    y = torch.zeros(64)
    watched(tuned, y, 64, grid=lambda meta: (triton.cdiv(64, meta["BLOCK"]),), config=config)
    assert y.tolist() == [block] * 64


def test_a_pruned_configuration_is_not_the_default(watched):
    """The first configuration that a kernel's own pruning leaves."""
    y = torch.zeros(64)
    watched(pruned, y, 64, grid=lambda meta: (triton.cdiv(64, meta["BLOCK"]),))
    assert y.tolist() == [32] * 64


def test_heuristics_see_the_arguments(watched):
    """A value computed from the arguments reaches the kernel."""
    y = torch.zeros(20)
    watched(by_heuristic, y, 20)
    assert y.tolist() == [32] * 20


def test_a_float_argument_is_fp32(watched):
    """As in a compiled launch, a Python float arrives as an fp32 scalar that can be converted."""
    y = torch.zeros(1)
    watched(scaled, torch.ones(1), y, 0.1)
    assert y.item() == torch.tensor(0.1, dtype=torch.float32).item()


def test_loop_variables_are_scalars(watched):
    """A loop variable has the methods of a tensor; an unrolled one is a plain number."""
    y = torch.zeros(1, dtype=torch.int64)
    watched(loops, y, 5)
    assert y.item() == 10 + 10 + 2


def test_a_loop_variable_wraps_like_the_int32_it_is(watched):
    """A product with a loop variable overflows as compiled code does."""
    y = torch.zeros(4, dtype=torch.int64)
    watched(products, y, 4, 2**30)
    assert y.tolist() == [0, 2**30, -(2**31), -(2**30)]


def test_common_libdevice_functions_run(watched):
    """Imported by name or called through the module, they are computed to within one rounding."""
    x, y = torch.tensor([0.25, 1.0, 2.0, 9.0]), torch.zeros(4)
    watched(from_libdevice, x, y)
    exact = x.double().rsqrt().float() + x.double().tanh().float()
    assert torch.equal(y, exact)


def test_host_descriptors_are_watched(watched):
    """A descriptor argument copies what its tensor holds, and its tensor is known by its name."""
    x, y = torch.arange(12.0 * 16).reshape(12, 16), torch.zeros(12, 16)
    source, target = (TensorDescriptor.from_tensor(t, [8, 8]) for t in (x, y))
    assert not watched(copies_described, source, target, 8, grid=(2,)).violations
    assert torch.equal(x[:, :8], y[:, :8])
    taller = TensorDescriptor(x, [16, 16], [16, 1], [8, 8])
    (violation,) = watched(copies_described, taller, target, 8, grid=(2,)).violations
    assert (violation.tensor, violation.index) == ("source", (12, 0))


@pytest.mark.parametrize("kernel", [assembly, mapped, multiprocessor, rare_libdevice])
def test_what_cannot_be_interpreted_is_unsupported(watched, kernel):
    """The reason names the kernel or the operation, and the lane that can."""
    with pytest.raises(Unsupported, match="lane cuda"):
        watched(kernel, torch.zeros(4, dtype=torch.float32))


@pytest.mark.parametrize("kernel", [waits_for_the_last, waits_by_swapping])
def test_a_program_that_waits_for_another_is_unsupported(watched, kernel):
    """It would hang, since programs run one after another; in an order that suits it, it runs."""
    flag, y = torch.zeros(1, dtype=torch.int32), torch.zeros(3)
    with pytest.raises(Unsupported, match="waits for another one"):
        watched(kernel, flag, y, grid=(3,))
    watched(kernel, torch.zeros(1, dtype=torch.int32), y, grid=(3,), order="reverse")
    assert y.tolist() == [1, 1, 1]


def test_a_kernels_own_error_is_not_unsupported(watched):
    """A kernel that is wrong fails as it does in the stock interpreter, and says on which line."""
    line = wrong_shapes.fn.__code__.co_firstlineno + 3
    with pytest.raises(
        InterpreterError, match=f"incompatible.*at .*:{line} in kernel wrong_shapes"
    ):
        watched(wrong_shapes, torch.zeros(4))


def test_the_stock_interpreter_is_left_alone(watched):
    """Outside a session, a kernel that ran in one behaves as Triton ships it."""
    watched(loops, torch.zeros(1, dtype=torch.int64), 5)
    with pytest.raises(InterpreterError, match=r"no attribute 'to'|0-dimensional"):
        loops[(1,)](torch.zeros(1, dtype=torch.int64), 5)


if hasattr(interpreter, "BlockPointerHandle"):

    @triton.jit
    def by_block_pointer(x, y, rows, BLOCK: tl.constexpr):
        """Copy through block pointers, of which only the first is checked for bounds."""
        source = tl.make_block_ptr(x, (rows, 16), (16, 1), (0, 0), (BLOCK, 16), (1, 0))
        target = tl.make_block_ptr(y, (rows, 16), (16, 1), (0, 0), (BLOCK, 16), (1, 0))
        tl.store(target, tl.load(source, boundary_check=(0,), padding_option="zero"))

    @pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")
    def test_block_pointers_are_watched(watched):
        """Up to triton 3.7: a dimension that is not checked leaves the tensor, at its line."""
        (violation,) = watched(
            by_block_pointer, torch.ones(6, 16), torch.ones(6, 16), 6, 8
        ).violations
        assert (violation.kind, violation.tensor, violation.index) == ("bounds", "y", (6, 0))
