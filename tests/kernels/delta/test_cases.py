"""Cases of the gated delta rule: their tensors, what a run meets of them, and what they shrink to."""

from __future__ import annotations

import collections
import dataclasses
import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.harness.bits import bits
from bitproof.harness.case import Launch, Scale, build, decode, encode
from bitproof.harness.strategies import floats
from bitproof.harness.strategies.encoding import DTYPES
from bitproof.harness.strategies.gates import Gates
from bitproof.kernels.delta.cases import DeltaCase, delta_cases
from tests.harness.strategies.drawing import STEADY, smallest

CPU = torch.device("cpu")
EVERY = [
    {"kind": kind, "chunked": chunked, "gradient": gradient}
    for kind in ("gdn2", "kda")
    for chunked, gradient in ((True, False), (True, True), (False, False))
]


def _drawn(count, **knobs):
    """What `count` examples of the strategy are."""
    found = []

    @settings(STEADY, max_examples=count)
    @given(delta_cases(**knobs))
    def draw(case):
        found.append(case)

    draw()
    return found


@pytest.fixture(params=[False, True], ids=["interpreter", "cuda"])
def scale(request):
    """Cases for the interpreter and for a card, in turn."""
    return Scale(on_card=request.param)


@pytest.mark.parametrize("knobs", [EVERY[0], EVERY[4], EVERY[5]], ids=str)
def test_the_simplest_case_is_one_token(knobs, scale):
    """Of one head, with the defaults that reports leave out."""
    precision = "upstream" if knobs["chunked"] else "fp32"
    plain = DeltaCase(kind=knobs["kind"], gradient=knobs["gradient"], precision=precision)
    assert smallest(delta_cases(**knobs, scale=scale)) == plain


@settings(STEADY, max_examples=100)
@given(st.sampled_from(EVERY).flatmap(lambda knobs: delta_cases(**knobs)))
def test_every_case_builds_what_the_contract_names(case):
    """Shapes and types of each tensor, and a record that reads back."""
    assert decode(DeltaCase, encode(case)) == case
    t, h, hv, n = case.rows, case.heads, case.heads * case.groups, len(case.lengths)
    k, v, own = case.keys, case.values, DTYPES[case.dtype]
    state = (n, hv, v, k) if case.state_v_first else (n, hv, k, v)
    log = case.gates.gate == "log"
    expected = {
        **dict.fromkeys("qk", ((t, h, k), own)),
        "v": ((t, hv, v), own),
        "g": ((t, hv, k), torch.float32 if log else own),
        "cu_seqlens": ((n + 1,), torch.int32),
    }
    gates = DTYPES[case.gate_dtype or case.dtype]
    if case.kind == "gdn2":
        expected |= {"b": ((t, hv, k), gates), "w": ((t, hv, v), gates)}
    else:
        expected |= {"beta": ((t, hv), gates)}
    if case.initial:
        expected |= {"initial_state": (state, torch.float32)}
    if not log and case.gates.biased:
        expected |= {"dt_bias": ((hv, k), torch.float32)}
    if not log and case.gates.rate != "absent":
        expected |= {"A_log": ((hv,), torch.float32)}
    if case.gradient:
        expected |= {"do": ((t, hv, v), own), "dht": (state, torch.float32)}
    built = build(case, CPU)
    found = {name: (tuple(x.shape), x.dtype) for name, x in built.tensors.items()}
    assert found == expected
    names = {"scale", "gate", "lower_bound", "bounded", "normalise", "state_v_first", "precision"}
    assert set(built.params) == names | {"limits"} | ({"retain"} if case.gradient else set())


@settings(STEADY, max_examples=100)
@given(st.sampled_from(EVERY).flatmap(lambda knobs: delta_cases(**knobs)))
def test_tokens_are_finite_and_slack_rows_garbage(case):
    """In every tensor that has a row for each token; the offsets end where the tokens do."""
    tensors = case.tensors(CPU)
    used = sum(case.lengths)
    assert tensors["cu_seqlens"].tolist()[-1] == used
    for name in ("q", "k", "v", "g", "b", "w", "beta", "do"):
        if name not in tensors:
            continue
        rows = tensors[name].double()
        assert bool(torch.isfinite(rows[:used]).all()), name
        spoilt = rows[used:]
        assert bool((spoilt.isnan() | (spoilt > 60_000)).all()), name
    assert (
        tensors["g"][:used].numel() == 0
        or case.gates.gate != "log"
        or tensors["g"][:used].max() <= 0
    )


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(
    ("erase", "top"), [("usual", 255 / 256), ("sparse", 1.0), ("doubled", 255 / 128), ("zero", 0.0)]
)
def test_gates_of_a_token_have_the_same_values_in_every_type(dtype, erase, top):
    """Multiples of 2^-8; sparse ones with exact zeros and ones, w's too."""
    case = DeltaCase(lengths=(200,), erase=erase, seed=3)
    fp32 = dataclasses.replace(case, dtype="fp32").tensors(CPU)
    tensors = dataclasses.replace(case, dtype=dtype).tensors(CPU)
    for name in ("b", "w"):
        assert torch.equal(tensors[name].float(), fp32[name])
        assert bool((fp32[name] * 256 == (fp32[name] * 256).round()).all())
    assert fp32["b"].max() == top
    assert bool((fp32["w"] == 0).any()) is bool((fp32["w"] == 1).any()) is (erase == "sparse")


def test_tiny_rows_are_zero_or_small():
    """An eighth of the rows each; their norm is where a rule for small norms decides."""
    case = DeltaCase(lengths=(400,), tiny=True)
    whole = dataclasses.replace(case, tiny=False).tensors(CPU)
    for name, x in case.tensors(CPU).items():
        if name not in ("q", "k"):
            assert torch.equal(bits(x), bits(whole[name]))
            continue
        ratio = (x.double() / whole[name].double()).amax(dim=(1, 2))
        assert set(ratio.tolist()) == {0.0, 2.0**-12, 1.0}
        assert 0.05 < (ratio == 0).double().mean() < 0.2


def test_the_scale_is_a_number_of_fp32_or_the_kernel_s_own():
    """K^-1/2, whatever K a captured call has, unless the case names another, rounded once."""
    assert DeltaCase(keys=60).params()["scale"] is None
    assert DeltaCase(scale=floats.pattern(0.3)).params()["scale"] == float(torch.tensor(0.3))


REPORTED = DeltaCase(
    lengths=(40,),
    keys=32,
    operands="correlated",
    precision="targeted",
    gates=Gates(gate="bounded", kind="gentle"),
)


@pytest.mark.parametrize(
    "odd",
    [
        {"lengths": (31,)},
        {"operands": "leaning"},
        {"dtype": "fp16"},
        {"precision": "upstream"},
        {"normalise": False},
        {"tiny": True},
        {"erase": "sparse"},
        {"keys": 24},
        {"initial": True},
        {"gates": Gates(kind="gentle")},
        {"gates": Gates(kind="saturated")},
        {"gates": Gates(gate="bounded", rate="extreme")},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_the_report_s_limit_is_for_ordinary_correlated_operands(odd):
    """0.008 of o for those of the report, nothing where something else about the case is odd."""
    assert REPORTED.params()["limits"] == {"o": 0.008}
    assert dataclasses.replace(REPORTED, gates=Gates()).params()["limits"] == {"o": 0.008}
    assert dataclasses.replace(REPORTED, **odd).params()["limits"] == {}
    assert dataclasses.replace(REPORTED, gradient=True).params()["limits"] == {}


@pytest.mark.parametrize(
    "odd",
    [
        {"lengths": (63,)},
        {"operands": "leaning"},
        {"dtype": "bf16"},
        {"normalise": False},
        {"tiny": True},
        {"erase": "sparse"},
        {"gates": Gates(kind="saturated")},
        {"gates": Gates(gate="bounded", rate="extreme")},
    ],
    ids=lambda odd: next(iter(odd)),
)
@pytest.mark.parametrize("kind", ["gdn2", "kda"])
def test_upstream_s_tolerances_are_for_ordinary_operands(kind, odd):
    """Those of its tests, in fp16 or fp32, for outputs and gradients; nothing where a case is odd."""
    case = DeltaCase(kind=kind, lengths=(40, 24), dtype="fp16")
    limits = case.params()["limits"]
    assert limits["o"] == limits["final_state"] == 0.005
    assert limits["dq"] == limits["d_initial_state"] == {"gdn2": 0.01, "kda": 0.008}[kind]
    assert limits["dbeta" if kind == "kda" else "db"] == 0.02
    assert not {"dg", "dA_log", "ddt_bias"} & set(limits)
    assert dataclasses.replace(case, **odd).params()["limits"] == {}


OPTIONS = {
    *("slack rows", "several heads", "grouped heads", "K and V differ", "K not a power of two"),
    *("initial states", "not normalised", "V before K in states", "tiny rows", "absent A_log"),
    *("log gate", "plain gate", "bounded gate", "usual gates", "gentle gates", "saturated gates"),
    *("blocks gates", "edges gates", "steps gates", "normal operands", "leaning operands"),
    *("correlated operands", "usual erasing", "sparse erasing", "doubled erasing"),
    *("zero erasing", "bf16", "fp16", "fp32", "2 warps", "4 warps", "8 warps", "misaligned"),
    *("no tokens", "an empty sequence first", "an empty sequence last", "one token"),
    *("an empty sequence between", "a sub-chunk less one", "several sequences"),
    *("of unequal lengths", "a cut inside a chunk", "extreme A_log", "absent dt_bias"),
    *("gates of another type", "a negative scale"),
    "upstream's tolerances",
}
CHUNKED = {
    *("targeted precision", "upstream precision", "a whole chunk", "a chunk less one"),
    *("a chunk and one", "a chunk and part of a sub-chunk", "two or more chunks"),
}


@pytest.mark.parametrize("knobs", [EVERY[0], EVERY[4], EVERY[5]], ids=str)
def test_a_run_meets_every_kind_of_case(knobs, scale):
    """In 500 examples, on either lane."""
    met: collections.Counter[str] = collections.Counter()
    for case in _drawn(500, **knobs, scale=scale):
        met.update(case.features())
    wanted = OPTIONS | (CHUNKED if knobs["chunked"] else set())
    wanted |= {"intermediates retained"} if knobs["gradient"] else {"the report's limit"}
    assert {feature for feature in wanted if not met[feature]} == set()


def test_a_run_on_a_card_compiles_few_combinations():
    """Sixteen of what is compiled in, whatever the lengths and numbers."""
    compiled = ("heads", "groups", "keys", "values", "dtype", "initial", "normalise")
    compiled += ("state_v_first", "precision", "retain", "launch")
    seen = {
        (case.gates.gate, *(getattr(case, name) for name in compiled))
        for case in _drawn(500, kind="kda", chunked=True, gradient=True, scale=Scale(on_card=True))
    }
    assert len(seen) == 16


def test_a_case_in_the_interpreter_is_small():
    """Every program is interpreted: at most three chunks, at most four value heads of 48 columns."""
    for case in _drawn(200, kind="gdn2", chunked=True, gradient=False):
        assert sum(case.lengths) <= 132
        assert case.heads * case.groups <= 4
        assert max(case.keys, case.values) <= 48


REPORTS = {
    "sequences within a chunk, with initial states": lambda c: (
        c.initial and max(c.lengths) < 64 < sum(c.lengths)
    ),
    "an empty sequence, with initial states": lambda c: (
        c.initial and 0 in c.lengths and any(c.lengths)
    ),
    "nothing but empty sequences": lambda c: len(c.lengths) > 1 and not any(c.lengths),
    "a tail of a few rows": lambda c: 1 <= c.lengths[0] % 64 <= 15 and c.lengths[0] > 64,
    "a chunk less one": lambda c: 63 in c.lengths,
    "a chunk and one": lambda c: 65 in c.lengths,
    "slack rows after tokens": lambda c: c.slack == 2 and sum(c.lengths) > 32,
    "a constant decay that overflows": lambda c: (
        c.gates.bits == (floats.pattern(-5.916),) and c.lengths[0] >= 16
    ),
    "a constant decay just below": lambda c: (
        c.gates.bits == (floats.pattern(-5.914),) and c.lengths[0] >= 16
    ),
    "steps of sixty": lambda c: (
        len(c.gates.bits) == 3 and c.gates.gate == "log" and c.lengths[0] > 2
    ),
}
ON_CARD = {
    "an empty sequence between two long ones": lambda c: (
        len(c.lengths) > 2 and c.lengths[0] > 64 and 0 in c.lengths[1:-1] and c.lengths[-1]
    ),
    "hundreds of tokens": lambda c: max(c.lengths) >= 500,
}


def test_the_inputs_of_public_reports_are_reached(scale):
    """The kinds of input that broke chunked kernels: of them the strategies know single values alone.

    In 1500 examples; on a card also two long sequences around an empty one, and 500 tokens.
    """
    wanted = REPORTS | (ON_CARD if scale.on_card else {})
    cases = _drawn(1500, kind="gdn2", chunked=True, gradient=False, scale=scale)
    assert {name for name, holds in wanted.items() if not any(map(holds, cases))} == set()


def test_a_case_means_the_same_bits_everywhere():
    """One digest over every tensor of a case that has them all, computed when this was written."""
    case = DeltaCase(
        lengths=(20, 0, 7),
        slack=2,
        heads=2,
        groups=2,
        keys=24,
        dtype="fp16",
        operands="correlated",
        tiny=True,
        gates=Gates(gate="bounded", kind="edges", seed=5),
        initial=True,
        normalise=False,
        gradient=True,
        seed=11,
        launch=Launch(block=64),
    )
    digest = hashlib.sha256()
    for name, tensor in sorted(case.tensors(CPU).items()):
        digest.update(name.encode() + bits(tensor).numpy().tobytes())
    assert digest.hexdigest() == "f79bf960ef81c79741cc5e8b7cb6207a942313f71cff0822c89d410d5514db1e"
