"""A child program: what a compiler makes of the specialised linear for sm_90, as JSON; no card is needed."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

import triton
import triton.experimental.gluon.language as gl
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

from bitproof.kernels.fp8_gemm import specialised


def describe(height: int, dtype: gl.dtype) -> str:
    """The type of a TMA descriptor of `height` rows of 128."""
    shape = [height, 128]
    layout = gl.NVMMASharedLayout.get_default_for(shape, dtype)
    return f"tensordesc<{dtype}{shape},{layout!r}>"


def main() -> None:
    """Print how many products there are, how many begin from zero, and the bytes that spill."""
    kernel = specialised._multiply_specialised
    constants = {
        "a_scale_row": 1,
        "HEIGHT": specialised.HEIGHT,
        "BLOCK_N": specialised.BLOCK_N,
        "TALL": specialised.TALL,
        "STAGES": specialised.STAGES,
    }
    types = {
        "a": describe(specialised.HEIGHT, gl.float8e4nv),
        "b": describe(specialised.BLOCK_N, gl.float8e4nv),
        "y": describe(specialised.HEIGHT, gl.bfloat16),
        **dict.fromkeys(("a_scale_ptr", "b_scale_ptr"), "*fp32"),
        **dict.fromkeys(("rows", "columns", "depth", "a_scale_block"), "i32"),
        **dict.fromkeys(constants, "constexpr"),
    }
    names = kernel.arg_names
    source = GluonASTSource(
        fn=kernel,
        signature={name: types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "kernel.cubin"
        binary.write_bytes(compiled.asm["cubin"])
        used = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(binary)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        code = subprocess.run(
            [triton.knobs.nvidia.nvdisasm.path, "-c", str(binary)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    products = re.findall(r"QGMMA\S* R\d+, gdesc\[\w+\], (R\w+)", code)
    stack = re.search(r"STACK:(\d+)", used)
    assert stack is not None
    print(
        json.dumps(
            {
                "products": len(products),
                "from zero": products.count("RZ"),
                "waits": code.count("WARPGROUP.DEPBAR"),
                "stack": int(stack[1]),
            }
        )
    )


if __name__ == "__main__":
    main()
