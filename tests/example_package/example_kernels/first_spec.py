"""The first spec of a kernel: what it takes, what it means, and nothing else.

`bitproof check first_scale_add --spec example_kernels.first_spec` tests it; `bitproof_specs` is a full one.
"""

from bitproof import Contract, Integer, KernelSpec, vector
from example_kernels.scale_add import scale_add


def reference(x, z, exponent):
    """In torch."""
    return x * 2.0**exponent + z


SPEC = KernelSpec(
    contract=Contract(
        name="first_scale_add",
        inputs=vector("x", "z"),
        params={"exponent": Integer(-8, 8)},
        reference=reference,
        outputs=("y",),
    ),
    run=lambda t, p: {"y": scale_add(t["x"], t["z"], p["exponent"], block=p["launch"].block)},
)
