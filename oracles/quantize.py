"""What the quantising kernels compute, bit for bit: the contracts and their exact answers.

Every oracle has the signature `(tensors, params) -> outputs`, from named torch tensors (any device
and strides) and plain parameters to named numpy arrays in the output's numpy or ml_dtypes type;
nothing is written to the inputs and no output shares memory with one. Inputs of type fp32, fp16 or
bf16 are widened exactly to fp32 first. A division or product is one fp32 operation, rounded to
nearest even; an exponent is found in integer arithmetic; a rounding is `oracles.rounding`'s,
answered twice.

Common to all: amax is the largest |x| of a group over its elements that are not NaN, 0 if there is
none. Groups run along the last axis and the last one may be partial. No axis needs to be nonempty.
The sign and payload of a NaN that an oracle returns mean nothing.

Sources of the contracts: FreeToken pull requests 85 and 103 (group, static, power-of-two and
KV-store quantisers), OCP Microscaling Formats 1.0 (e2m1 with an e8m0 scale).
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

import numpy as np
import torch

from bitproof.oracles.formats import (
    BF16,
    E2M1,
    E4M3,
    FP16,
    FP32,
    Array,
    bits,
    by_name,
    decode,
    from_bits,
    of_dtype,
    to_numpy,
)
from bitproof.oracles.rounding import Overflow, require_subnormals, round_to, widen

Tensors: TypeAlias = Mapping[str, torch.Tensor]
Params: TypeAlias = Mapping[str, object]
Outputs: TypeAlias = dict[str, Array]
Oracle: TypeAlias = Callable[[Tensors, Params], Outputs]

_INFINITY: Final = np.uint32(0x7F800000)
_MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
_E4M3_LARGEST: Final = np.float32(448.0)
_E2M1_LARGEST: Final = np.float32(6.0)
_E8M0_NAN: Final = np.uint8(255)
_GROUP_FLOOR: Final = np.float32(1e-10)
_UE8M0_FLOOR: Final = np.float32(1e-4)
_E2M1_FLOOR: Final = np.float32(6.0 * 2.0**-126)
_KV_BLOCK: Final = 32


def cast(fmt_name: str) -> Oracle:
    """The oracle of a conversion: x [n] (or any shape) -> y, the same shape in the named format.

    Ties to even, the sign of a zero kept, NaN to NaN. Above the largest finite value bf16 and fp16
    go to infinity; every other format saturates, an infinity to the largest finite value, as the
    compiled `cvt.rn.satfinite` does.
    ValueError: an unknown format; a NaN for a format without NaN.
    """
    fmt = by_name(fmt_name)
    overflow: Overflow = "inf" if fmt in (BF16, FP16, FP32) else "saturate"

    def oracle(tensors: Tensors, params: Params) -> Outputs:
        return {"y": from_bits(round_to(_fp32(tensors["x"]), fmt, overflow=overflow), fmt)}

    return oracle


round_e4m3: Final = cast("e4m3")
"""`cast("e4m3")`: x fp32, fp16 or bf16 -> y e4m3, saturating at ±448."""


def per_token_group(tensors: Tensors, params: Params) -> Outputs:
    """One fp32 scale for a row's `group` (default 128) elements.

    x [M, K] -> y [M, K] e4m3, scale [M, ceil(K / group)] fp32.
    scale = fl32(max(amax, fl32(1e-10)) / 448); y = e4m3(clamp(fl32(x / scale), ±448)).
    A NaN element is NaN, alone. An infinity makes its group's scale infinite, its finite elements
    zeros of their sign and its infinite ones NaN (inf / inf).
    """
    x = _matrix(tensors["x"])
    groups = _split_groups(x, _group(params, 128))
    amax = np.maximum(_amax(groups), _GROUP_FLOOR)
    with np.errstate(all="ignore"):
        scale = amax / _E4M3_LARGEST
        scaled = groups / scale[..., None]
    return {"y": _e4m3(_join_groups(scaled, x)), "scale": scale}


def per_tensor_static(tensors: Tensors, params: Params) -> Outputs:
    """One given scale for the whole tensor, applied by its reciprocal.

    x [M, K], scale [1] fp32 -> y [M, K] e4m3.
    inverse = fl32(1 / scale); y = e4m3(clamp(fl32(x · inverse), ±448)); a NaN element is NaN.
    ValueError: a scale outside [2^-126, 2^126]. Above, its reciprocal is subnormal, which would be
    less exact than the format promises and which some targets flush to zero.
    """
    scale = _fp32(tensors["scale"]).reshape(-1)
    if scale.shape != (1,) or not 2.0**-126 <= float(scale[0]) <= 2.0**126:
        raise ValueError(f"scale must be one number in [2^-126, 2^126] but is {scale.tolist()}")
    with np.errstate(all="ignore"):
        return {"y": _e4m3(_matrix(tensors["x"]) * (np.float32(1.0) / scale))}


def ue8m0_group(tensors: Tensors, params: Params) -> Outputs:
    """One power-of-two scale for a row's `group` (default 128) elements.

    x [M, K] -> y [M, K] e4m3, scale [M, ceil(K / group)] uint8, an e8m0 code.
    e = the smallest integer with max(amax, fl32(1e-4)) <= 448 · 2^e; scale = e + 127;
    y = e4m3(clamp(x / 2^e, ±448)).
    A NaN element is NaN, alone. A group with an infinity is all NaN and has the scale's NaN, 255.
    """
    x = _matrix(tensors["x"])
    scaled, exponent, infinite = _ue8m0(_split_groups(x, _group(params, 128)))
    scale = np.where(infinite, _E8M0_NAN, (exponent + 127).astype(np.uint8))
    return {"y": _e4m3(_join_groups(scaled, x)), "scale": scale}


def ue8m0_inplace(tensors: Tensors, params: Params) -> Outputs:
    """`ue8m0_group` and back, over the input: x [M, K] -> x [M, K] of the same type.

    `group` defaults to 64. The element q · 2^e is rounded to x's type, ties to even, and saturates
    at the type's largest finite value. A NaN element is NaN; a group with an infinity is all NaN.
    """
    x = _matrix(tensors["x"])
    fmt = of_dtype(tensors["x"].dtype)
    scaled, exponent, _ = _ue8m0(_split_groups(x, _group(params, 64)))
    # e4m3 times a power of two: exact in fp64.
    values = np.ldexp(decode(round_to(scaled, E4M3), E4M3), exponent[..., None])
    return {"x": from_bits(round_to(_join_groups(values, x), fmt), fmt)}


def kv_store(kind: Literal["int8", "fp8"]) -> Oracle:
    """The oracle of quantising new keys and values into their slots of a cache.

    k, v [T, H, D]; indices [T] int64, distinct slots, -1 to skip a token; k_cache, v_cache
    [S, H, D] int8 or e4m3; k_scale, v_scale [S, H, ceil(D / 32)] fp16
    -> the four caches after the store; a slot that is not named keeps its bits.

    For each 32 elements along D, with MAG = 127 (int8) or 448 (fp8):
    scale = 1 if amax = 0, else s = fp16(fl32(amax / MAG)), saturating at 65504, plus 2^-24 where
    s < 2^-14 and s · MAG < amax. So 0 < s always, and in fp16's subnormal range, whose steps are
    coarse, amax / s <= MAG; above it the rounding of s costs at most 2^-11 of amax by clamping.
    q = fl32(x / s); int8: to nearest, ties away from zero, clamped to ±127; fp8: e4m3(clamp(q)).
    An infinite element saturates, with s = 65504. A NaN element is NaN in fp8, alone; int8 has no
    NaN, so that its block has a NaN scale and zeros.

    ValueError: an unknown kind; slots that repeat, or outside the cache.
    """
    if kind not in ("int8", "fp8"):
        raise ValueError(f"there is no cache kind {kind!r}; use int8 or fp8")

    def oracle(tensors: Tensors, params: Params) -> Outputs:
        slots = to_numpy(tensors["indices"])
        stored = slots >= 0
        slots = slots[stored]
        size = tensors["k_cache"].shape[0]
        if (tensors["indices"] < -1).any() or np.unique(slots).size < slots.size:
            raise ValueError("indices must be distinct slots or -1; drop the repeated ones")
        if slots.size and int(slots.max()) >= size:
            raise ValueError(f"slot {int(slots.max())} is outside a cache of {size}; enlarge it")
        outputs = {}
        for name in ("k", "v"):
            codes, scale = _kv_blocks(_fp32(tensors[name])[stored], kind)
            for suffix, new in (("cache", codes), ("scale", scale)):
                after = to_numpy(tensors[f"{name}_{suffix}"]).copy()
                after[slots] = new
                outputs[f"{name}_{suffix}"] = after
        return outputs

    return oracle


def e2m1_group(tensors: Tensors, params: Params) -> Outputs:
    """Four-bit floats, one power-of-two scale for a row's `group` (default 32) elements.

    x [M, K] -> y [M, K / 2] uint8, two e2m1 codes to a byte, the even index in the low four bits;
    scale [M, ceil(K / group)] uint8, an e8m0 code.
    e = the smallest integer with max(amax, 6 · 2^-126) <= 6 · 2^e; scale = e + 127;
    code = e2m1(clamp(x / 2^e, ±6)), ties to the even code, the sign of a zero kept.
    A group with a NaN or an infinity has the scale's NaN, 255, and codes 0.
    ValueError: an odd K.
    """
    x = _matrix(tensors["x"])
    if x.shape[1] % 2:
        raise ValueError(f"two codes share a byte but K = {x.shape[1]} is odd; pad K to even")
    groups = _split_groups(x, _group(params, 32))
    finite: Array = np.asarray(np.isfinite(groups).all(axis=-1))
    groups = np.where(finite[..., None], groups, np.float32(0.0))
    exponent = covering_exponent(np.maximum(_amax(groups), _E2M1_FLOOR), _E2M1_LARGEST)
    codes = round_to(_join_groups(_times_power(groups, -exponent), x), E2M1)
    return {
        "y": codes[:, 0::2] | (codes[:, 1::2] << np.uint8(4)),
        "scale": np.where(finite, (exponent + 127).astype(np.uint8), _E8M0_NAN),
    }


def covering_exponent(amax: Array, largest: np.float32) -> Array:
    """The smallest integers e with amax <= largest · 2^e: amax any shape, normal fp32 -> int32.

    With amax = 1.f · 2^a and largest = 1.g · 2^b it is a - b, and one more where f > g; no logarithm
    is rounded on the way.
    """
    field, fraction = np.int32(23), np.int32((1 << 23) - 1)
    pattern, limit = amax.view(np.int32), largest.view(np.int32)
    exponent: Array = (pattern >> field) - (limit >> field)
    exponent += (pattern & fraction) > (limit & fraction)
    return exponent


def _fp32(tensor: torch.Tensor) -> Array:
    """The tensor's values in fp32, exactly."""
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"a quantiser takes fp32, fp16 or bf16 but got {tensor.dtype}; convert it")
    require_subnormals()
    return widen(to_numpy(tensor))


def _matrix(tensor: torch.Tensor) -> Array:
    if tensor.ndim != 2:
        raise ValueError(f"x must be [M, K] but has shape {tuple(tensor.shape)}; reshape it")
    return _fp32(tensor)


def _group(params: Params, default: int) -> int:
    group = params.get("group", default)
    if not isinstance(group, int) or group < 1:
        raise ValueError(f"group must be a positive integer but is {group!r}")
    return group


def _split_groups(x: Array, group: int) -> Array:
    """[..., K] -> [..., ceil(K / group), group], the last group filled up with zeros."""
    *rows, k = x.shape
    count = -(-k // group)
    if k % group:
        filled = np.zeros((*rows, count * group), dtype=x.dtype)
        filled[..., :k] = x
        x = filled
    return x.reshape(*rows, count, group)


def _join_groups(groups: Array, x: Array) -> Array:
    """`_split_groups` undone: back to the shape of `x`."""
    *rows, count, group = groups.shape
    return groups.reshape(*rows, count * group)[..., : x.shape[-1]]


def _amax(groups: Array) -> Array:
    """The largest |x| that is not NaN in every group: [..., G, group] -> [..., G], 0 if none.

    Found on bit patterns, which are ordered as the magnitudes are: no NaN rule is involved.
    """
    magnitude = bits(groups) & _MAGNITUDE
    largest: Array = np.where(magnitude > _INFINITY, np.uint32(0), magnitude).max(axis=-1)
    return largest.view(np.float32)


def _times_power(groups: Array, exponent: Array) -> Array:
    """fl32(x · 2^exponent), one exponent in [-126, 127] to a group."""
    powers = ((exponent + np.int32(127)) << np.int32(23)).view(np.float32)
    with np.errstate(all="ignore"):
        product: Array = groups * powers[..., None]
    return product


def _ue8m0(groups: Array) -> tuple[Array, Array, Array]:
    """(x / 2^e, NaN throughout a group with an infinity; e; which groups have an infinity)."""
    amax = _amax(groups)
    infinite = np.isinf(amax)
    exponent = covering_exponent(np.maximum(amax, _UE8M0_FLOOR), _E4M3_LARGEST)
    scaled = _times_power(groups, -exponent)
    scaled[infinite] = np.nan
    return scaled, exponent, infinite


def _e4m3(values: Array) -> Array:
    """Rounded to nearest even; saturating is the same as clamping to ±448 before."""
    return from_bits(round_to(values, E4M3), E4M3)


def _kv_blocks(x: Array, kind: Literal["int8", "fp8"]) -> tuple[Array, Array]:
    """[..., D] -> the codes [..., D] and the scales [..., ceil(D / 32)] of `kv_store`."""
    largest = np.float32(127.0) if kind == "int8" else _E4M3_LARGEST
    groups = _split_groups(x, _KV_BLOCK)
    amax = _amax(groups)
    with np.errstate(all="ignore"):
        codes = round_to(amax / largest, FP16)
    scale = decode(codes, FP16)
    # At most 11 and 9 significant bits: the product is exact in fp64. The next code is 2^-24 more.
    codes += (scale < 2.0**-14) & (scale * largest.astype(np.float64) < amax)
    codes[amax == 0.0] = np.float16(1.0).view(np.uint16)
    scale = from_bits(codes, FP16)
    with np.errstate(all="ignore"):
        scaled = groups / scale.astype(np.float32)[..., None]
    if kind == "fp8":
        return _e4m3(_join_groups(scaled, x)), scale
    invalid = np.isnan(groups).any(axis=-1)
    scaled[invalid] = 0.0
    scale[invalid] = np.nan
    magnitude = np.minimum(np.abs(scaled), largest)
    # The difference to the integer below is exact, which adding a half and flooring is not.
    whole = np.floor(magnitude)
    whole += magnitude - whole >= np.float32(0.5)
    return _join_groups(np.copysign(whole, scaled).astype(np.int8), x), scale
