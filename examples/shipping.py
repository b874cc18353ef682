"""Three kernels in a folder that needs no compiler: for C (shipping.c), and for Python without this package.

    ziggurat build examples/shipping.py -o kernels --target cpu --target sm_90a
    cc -o shipping examples/shipping.c -Ikernels kernels/kernels.a -ldl -lm && ./shipping cpu

A variant is a kernel for types, constants and options. Of each kernel there is one: what it promises of its arguments,
such as addresses and strides of whole 16 bytes, is checked at each launch.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from attention import attention_kernel
from fused_softmax import reference, softmax_kernel
from grouped_matmul import matmul_kernel

import ziggurat as zg

HALF, FLOAT, NUMBER = zg.divisible(zg.ptr(zg.f16)), zg.divisible(zg.ptr(zg.f32)), zg.divisible(zg.i32)
BLOCKS = [zg.divisible(zg.descriptor((rows, 64), zg.f16)) for rows in (128, 64, 64, 128)]

VARIANTS = [
    zg.variant(softmax_kernel, FLOAT, FLOAT, zg.i32, zg.i32, zg.i32, 1024),
    zg.variant(
        matmul_kernel, HALF, HALF, HALF, zg.i32, zg.i32, zg.i32, NUMBER, 1, NUMBER, 1, NUMBER, 1, 128, 128, 64, 8,
        num_warps=8, grid=lambda meta: (zg.cdiv(meta["M"], meta["BLOCK_M"]) * zg.cdiv(meta["N"], meta["BLOCK_N"]),),
    ),
    zg.variant(attention_kernel, *BLOCKS, NUMBER, zg.f32, False, 128, 64, 64, num_warps=8),
]  # fmt: skip

LAUNCH = """
import array, sys
sys.path.insert(0, sys.argv[1])
import kernels
x = array.array("f", [column % 7 for row in range(4) for column in range(100)])
y = array.array("f", bytes(4 * 400))
kernels.softmax_kernel[(4,)](y, x, 100, 100, 100, BLOCK_SIZE=1024)
print(*y[:7], sorted({"ziggurat", "llvmlite", "numpy"} & {*sys.modules}))
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ziggurat", "build", __file__, "-o", f"{folder}/kernels", "--target", "cpu"]
        for _ in range(2):
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])
        print(*sorted(os.listdir(Path(folder) / "kernels")))
        done = subprocess.run([sys.executable, "-c", LAUNCH, folder], check=True, capture_output=True, text=True)
        *numbers, imported = done.stdout.split(maxsplit=7)
        expected = reference(np.tile(np.arange(100) % 7, (4, 1)).astype(np.float32))[0, :7]
        np.testing.assert_allclose(np.array(numbers, float), expected, rtol=1e-5)
        print(f"the loader gives the same as NumPy, and imports of ziggurat, llvmlite and NumPy: {imported.strip()}")


if __name__ == "__main__":
    main()
