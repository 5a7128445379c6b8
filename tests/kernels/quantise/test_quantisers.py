"""Groups of values that other people's quantisers got wrong."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness import checks, lanes
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.outcomes import Outcome
from bitproof.harness.strategies.values import Values
from bitproof.kernels.quantise import specs
from bitproof.kernels.quantise.cases_kv_store import StoreCase
from bitproof.kernels.quantise.kv_store import kv_store
from bitproof.kernels.quantise.per_token_group import per_token_group
from bitproof.kernels.quantise.power_of_two_scales import covering_exponent
from bitproof.kernels.quantise.ue8m0 import ue8m0_inplace

GROUPED = {
    "per_token_group": (specs.PER_TOKEN_GROUP, 128),
    "ue8m0_group": (specs.UE8M0_GROUP, 128),
    "e2m1_group": (specs.E2M1_GROUP, 32),
}
STORES = {spec.name: spec for spec in specs.KV_STORES}
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def _unpacked(name, found):
    """(codes' values, scales' values), one element a column."""
    y, scale = found["y"], found["scale"]
    if name == "per_token_group":
        return y.float(), scale
    power = torch.where(scale == 255, math.nan, torch.exp2(scale.double() - 127)).float()
    if name == "ue8m0_group":
        return y.float(), power
    codes = torch.stack([y & 15, y >> 4], dim=-1).flatten(1).long()
    return torch.where(codes >= 8, -1.0, 1.0) * E2M1[codes & 7], power


def _store(outputs, name, row):
    """One token's keys stored in a cache of two slots: (codes' values, scales) of its slot."""
    case = StoreCase(kind=name.removeprefix("kv_store_"), dim=len(row), slots=2)
    tensors = case.tensors(torch.device("cpu"))
    tensors |= {"k": row.reshape(1, 1, -1), "indices": torch.tensor([1])}
    found = outputs(STORES[name], **tensors)
    assert torch.equal(
        found["k_cache"].view(torch.uint8)[0], tensors["k_cache"].view(torch.uint8)[0]
    )
    return found["k_cache"][1, 0].float(), found["k_scale"][1, 0].float()


@pytest.mark.parametrize("name", GROUPED)
def test_a_zero_group_beside_a_normal_one(outputs, name):
    """Codes 0 with their signs, and a positive, finite scale: 0 / 0 never happens."""
    spec, group = GROUPED[name]
    x = torch.cat([torch.zeros(group), -torch.zeros(group), torch.ones(group)])
    codes, scales = _unpacked(name, outputs(spec, x=x[None], params={"group": group}))
    assert codes[0, : 2 * group].abs().max() == 0
    assert torch.equal(torch.signbit(codes[0]), torch.signbit(x))
    assert bool((scales > 0).all())
    assert bool(torch.isfinite(scales).all())


@pytest.mark.parametrize("name", STORES)
def test_a_zero_block_is_stored_with_scale_one(outputs, name):
    """amax / MAG would be a zero that divides."""
    codes, scales = _store(outputs, name, torch.cat([torch.zeros(32), torch.ones(32)]))
    assert codes[:32].tolist() == [0.0] * 32
    assert scales[0] == 1.0
    assert codes[32:].abs().min() > 0


@pytest.mark.parametrize("name", GROUPED)
def test_a_tiny_group_stays_finite(outputs, name):
    """Every element 1.3e-36: amax / 448 is subnormal and 1 / scale would overflow.

    A step of the smallest scale bounds the error: of e4m3 2^-9, of e2m1 one half.
    """
    spec, group = GROUPED[name]
    x = torch.full((1, group), 1.3e-36)
    codes, scales = _unpacked(name, outputs(spec, x=x, params={"group": group}))
    assert bool(torch.isfinite(codes).all())
    assert bool((scales > 0).all())
    step = 0.5 if name == "e2m1_group" else 2.0**-9
    assert float((codes * scales - x).abs().max()) <= step * float(scales)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("amax", [1.3e-36, 1e-8, 3.785e-6, 1e-5, 1.335e-5, 1e-3])
def test_a_tiny_block_is_stored_within_a_step(outputs, name, amax):
    """The fp16 scale neither underflows to zero nor falls short of amax in fp16's subnormal range."""
    row = torch.linspace(-amax, amax, 32)
    codes, scales = _store(outputs, name, row)
    assert float(scales) > 0
    assert bool(torch.isfinite(codes).all())
    # The step of the largest codes: 1 of int8; 32 of e4m3 beyond 256.
    step = 1.0 if name == "kv_store_int8" else 32.0
    error = (codes.double() * scales.double() - row.double()).abs().max()
    assert float(error) <= 0.5 * step * float(scales)


@pytest.mark.parametrize("exponent", [-22, -8, -1, 0, 1, 9, 60, 119])
def test_a_power_of_two_scale_covers_amax_and_no_more(outputs, exponent):
    """448 * 2^e needs 2^e, the next float 2^(e+1); the float below still 2^e."""
    edge = torch.tensor([448.0 * 2.0**exponent])
    around = torch.cat([edge.view(torch.int32) + step for step in (-1, 0, 1)]).view(torch.float32)
    found = outputs(specs.UE8M0_GROUP, x=around[:, None], params={"group": 128})["scale"]
    assert (found.flatten().int() - 127).tolist() == [exponent, exponent, exponent + 1]


@triton.jit
def _cover(x_ptr, y_ptr, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(y_ptr + index, covering_exponent(tl.load(x_ptr + index), 1.0))


def test_every_float_beside_a_power_of_two_gets_its_exponent():
    """ceil(log2(x)) by bits: 16 needs 16 and 0x41800001 needs 32, for all 254 powers of two."""
    lane = lanes.present()
    bits = torch.arange(1, 255, dtype=torch.int32) << 23
    words = torch.cat([bits, bits + 1]).to(lane.device)
    x = torch.nn.functional.pad(words, (0, 512 - len(words)), value=0x3F800000).view(torch.float32)
    y = torch.empty(512, dtype=torch.int32, device=lane.device)
    _cover[(1,)](x, y, BLOCK=512)
    exponent = torch.arange(-126, 128, dtype=torch.int32)
    assert torch.equal(y[:508].cpu(), torch.cat([exponent, exponent + 1]))


@pytest.mark.parametrize("name", GROUPED)
def test_one_nan_in_a_group_of_ones_stays_visible(outputs, name):
    """As a NaN element or a NaN scale, and nowhere else but in its group."""
    spec, group = GROUPED[name]
    x = torch.ones(1, 2 * group)
    x[0, 5] = math.nan
    codes, scales = _unpacked(name, outputs(spec, x=x, params={"group": group}))
    value = codes * scales.repeat_interleave(group, dim=1)
    assert bool(torch.isnan(value[0, 5]))
    assert bool(torch.isfinite(value[0, group:]).all())


@pytest.mark.parametrize("name", STORES)
def test_one_nan_in_a_block_of_ones_stays_visible(outputs, name):
    """fp8 stores the element as NaN, int8 the block's scale."""
    row = torch.ones(64)
    row[5] = math.nan
    codes, scales = _store(outputs, name, row)
    value = codes * scales.repeat_interleave(32)
    assert bool(torch.isnan(value[5]))
    assert bool(torch.isfinite(value[32:]).all())


@pytest.mark.parametrize(
    ("x", "y"),
    [(0.25, 0), (0.75, 1), (1.25, 1), (1.75, 2), (2.5, 2), (3.5, 4), (5.0, 4), (-1.25, -1.0)],
)
def test_e2m1_rounds_ties_to_even(outputs, x, y):
    """Beside a 6, so that the scale is 1."""
    found = outputs(specs.E2M1_GROUP, x=torch.tensor([[x, 6.0]]), params={"group": 32})
    codes, scales = _unpacked("e2m1_group", found)
    assert codes[0].tolist() == [y, 6.0]
    assert scales.tolist() == [[1.0]]


def test_e2m1_refuses_an_odd_row():
    """Two codes share a byte, and the refusal is an outcome of its own."""
    inputs = Inputs(tensors={"x": torch.ones(1, 3)}, params={"group": 32}, launch=Launch())
    found = checks.run("agreement", specs.E2M1_GROUP, inputs, lanes.present())
    assert found.outcome is Outcome.REFUSED
    assert "odd" in found.reason


def test_int8_rounds_halves_away_from_zero(outputs):
    """With the scale 1 that 127 fixes; 0.49999997 + 0.5 would round to 1 before any floor."""
    row = torch.tensor([127.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.49999997])
    codes, scales = _store(outputs, "kv_store_int8", row)
    assert scales.tolist() == [1.0]
    assert codes.tolist() == [127.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.0, 0.0]


def test_infinity_saturates_in_a_cache(outputs):
    """The scale stays finite: fp16's largest."""
    for name, largest in (("kv_store_int8", 127.0), ("kv_store_fp8", 448.0)):
        codes, scales = _store(outputs, name, torch.tensor([math.inf, -math.inf, 1.0]))
        assert codes.tolist()[:2] == [largest, -largest]
        assert scales.tolist() == [65504.0]


def test_an_infinity_does_not_hide(outputs):
    """An fp32 scale turns infinite and its infinite elements NaN, a power-of-two scale all of them."""
    x = torch.tensor([[math.inf, 1.0, -1.0]])
    found = outputs(specs.PER_TOKEN_GROUP, x=x, params={"group": 128})
    assert found["scale"].tolist() == [[math.inf]]
    assert torch.isnan(found["y"].float()).tolist() == [[True, False, False]]
    assert torch.signbit(found["y"].float())[0, 1:].tolist() == [False, True]
    found = outputs(specs.UE8M0_GROUP, x=x, params={"group": 128})
    assert found["scale"].tolist() == [[255]]
    assert bool(torch.isnan(found["y"].float()).all())
    found = outputs(specs.UE8M0_INPLACE, x=x, params={"group": 64})
    assert bool(torch.isnan(found["x"]).all())


def test_a_static_scale_multiplies_by_its_reciprocal(outputs):
    """x = 1.5 / (1 / 3) in fp32 is not what x * fl(1 / fl(1 / 3)) is, and the contract is the product."""
    scale = torch.tensor([0.3])
    x = torch.tensor([[1.0, 448.0, -0.0, math.nan]])
    got = outputs(specs.PER_TENSOR_STATIC, x=x, scale=scale)["y"]
    expected = (x * (1.0 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(got.view(torch.uint8)[0, :3], expected.view(torch.uint8)[0, :3])
    assert bool(torch.isnan(got.float()[0, 3]))


def test_writing_back_is_quantising_and_dequantising(outputs):
    """The in-place kernel gives y * 2^e of the fresh one, in the input's type."""
    x = Values(exponent=3).build((3, 200), torch.device("cpu"))
    fresh = outputs(specs.UE8M0_GROUP, x=x, params={"group": 64})
    codes, scales = _unpacked("ue8m0_group", fresh)
    expected = codes * scales.repeat_interleave(64, dim=1)[:, :200]
    assert torch.equal(outputs(specs.UE8M0_INPLACE, x=x, params={"group": 64})["x"], expected)


@pytest.mark.parametrize(
    ("spec", "group"),
    [
        (specs.PER_TOKEN_GROUP, 128),
        (specs.UE8M0_GROUP, 128),
        (specs.UE8M0_INPLACE, 64),
        (specs.E2M1_GROUP, 32),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
@pytest.mark.parametrize("shape", [(1536, 1560), (2, 10944)])
def test_memory_around_partial_blocks_stays_untouched(spec, group, shape):
    """Partial in both directions, and every element of the output written."""
    lane = lanes.present()
    x = torch.ones(shape, dtype=torch.bfloat16, device=lane.device)
    launch = Launch(num_warps=8, block=1 << 15, row_padding=8)
    inputs = Inputs(tensors={"x": x}, params={"group": group}, launch=launch)
    assert checks.run("memory", spec, inputs, lane).outcome is Outcome.PASSED


def test_a_row_beyond_two_to_the_31_elements_is_addressed(outputs):
    """Row 2 of a stride of 2^30: a 32-bit offset would wrap to before the tensor."""
    lane = lanes.present()
    rows, columns, stride = 3, 64, 1 << 30
    buffer = torch.empty(2 * stride + columns, dtype=torch.bfloat16, device=lane.device)
    x = buffer.as_strided((rows, columns), (stride, 1))
    x.copy_(torch.arange(1, 4, device=lane.device)[:, None].expand(rows, columns))
    params = {"group": 64, "launch": Launch()}
    assert bool((ue8m0_inplace({"x": x}, params)["x"][2] == 3.0).all())
    scale = per_token_group({"x": x}, params)["scale"]
    assert (scale * 448).flatten().tolist() == [1.0, 2.0, 3.0]


def test_no_tokens_change_nothing():
    """T = 0 launches no program and leaves the caches as they are."""
    case = StoreCase(tokens=0, dim=40, slots=2)
    tensors = case.tensors(torch.device("cpu"))
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    after = kv_store(tensors, {"launch": case.launch})
    assert all(torch.equal(after[name], before[name]) for name in after)


@pytest.mark.parametrize(
    ("spec", "output", "index", "program"),
    [
        (specs.PER_TOKEN_GROUP, "y", (1, 130), "program (0,)"),
        (specs.PER_TOKEN_GROUP, "scale", (3, 1), "program (1,)"),
        (specs.E2M1_GROUP, "y", (3, 128), "program (1,)"),
        (specs.UE8M0_INPLACE, "x", (3, 257), "program (1,)"),
    ],
)
def test_a_report_names_the_program(spec, output, index, program):
    """The tile of 1024 elements that the element's group lies in."""
    group = {"e2m1_group": 32, "ue8m0_inplace": 64}.get(spec.name, 128)
    inputs = Inputs(
        tensors={"x": torch.ones(4, 258)}, params={"group": group}, launch=Launch(block=1024)
    )
    assert spec.program(output, index, inputs) == program


def test_a_report_names_the_program_of_a_slot():
    """The token that the slot was given to decides; a slot of nobody has no program."""
    case = StoreCase(tokens=2, heads=2, dim=64, slots=3, launch=Launch(block=64))
    inputs = Inputs(tensors=case.tensors(torch.device("cpu")), params={}, launch=case.launch)
    for spec in specs.KV_STORES:
        assert spec.program("k_cache", (1, 1, 40), inputs) == "program (3,)"
        assert spec.program("v_scale", (0, 1, 1), inputs) == "program (1,)"
        assert spec.program("k_cache", (2, 0, 0), inputs).startswith("no program")
