"""What bitproof is told about this package.

`pytest --pyargs bitproof.properties --spec example_kernels.bitproof_specs` tests it.
"""

import dataclasses

import numpy as np
from hypothesis import strategies as st

from bitproof import Accepted, Bitwise, Fault, KernelSpec, Launch, Lowering, exact_bits, generators
from example_kernels.scale_add import scale_add


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleAddCase:
    """`count` elements out of a counter."""

    count: int = 1
    exponent: int = 0
    seed: int = 0
    launch: Launch = Launch()

    def tensors(self, device):
        words = generators.hash_words(self.seed, 0, 2 * self.count, device)
        x, z = generators.uniform(words).chunk(2)
        return {"x": x, "z": z}

    def params(self):
        return {"exponent": self.exponent}

    def features(self):
        return ("tail",) if self.count % self.launch.block else ("whole blocks",)


def cases():
    """Short vectors with and without a tail, scaled up and down."""
    launch = st.builds(Launch, block=st.sampled_from((64, 256)))
    return st.builds(
        ScaleAddCase,
        count=st.integers(1, 600),
        exponent=st.integers(-8, 8),
        seed=st.integers(0, 999),
        launch=launch,
    )


def run(tensors, params):
    """x, z [n] fp32 -> y [n] fp32."""
    launch = params["launch"]
    y = scale_add(
        tensors["x"],
        tensors["z"],
        params["exponent"],
        block=launch.block,
        num_warps=launch.num_warps,
    )
    return {"y": y}


def oracle(tensors, params):
    """Exact: a power of two only moves the exponent, so that the sum alone is rounded."""
    x, z = (tensors[name].cpu().numpy() for name in ("x", "z"))
    return {"y": x * np.float32(2.0 ** params["exponent"]) + z}


SPEC = KernelSpec(
    name="scale_add",
    run=run,
    case=ScaleAddCase,
    cases=cases,
    oracle=oracle,
    bounds={"y": exact_bits()},
    faults=(
        Fault(
            name="scales the sum",
            module="example_kernels.scale_add",
            within="_scale_add",
            old="x * scale + z",
            new="(x + z) * scale",
            caught_by="agreement",
        ),
        Fault(
            name="writes past the end",
            module="example_kernels.scale_add",
            within="_scale_add",
            old="x * scale + z, mask=inside",
            new="x * scale + z, mask=offsets <= count",
            caught_by="memory",
        ),
        Fault(
            name="adds to fresh memory",
            module="example_kernels.scale_add",
            within="_scale_add",
            old="x * scale + z",
            new="x * scale + z + tl.load(y_ptr + offsets, mask=inside, other=0.0)",
            caught_by="reproducibility",
        ),
    ),
    reproducible=Bitwise(shown_by="adds to fresh memory"),
    lowering=Lowering(
        accepted=(
            Accepted(
                hazard="contraction",
                because="the product by a power of two is exact, so fusing it changes no bit",
            ),
        )
    ),
)
