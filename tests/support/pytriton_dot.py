"""The document's matrix product, `_dot`, with the lines that its text has lost: braces, decorators, statements 7, 8."""

from typing import ClassVar

import ziggurat.pytriton as triton

SOURCE = """
__global__ void dot(TYPE * A, TYPE * B, TYPE * C,
         int M, int N, int K,
         int lda __multipleof(8),  int ldb __multipleof(8),  int ldc __multipleof(8)) {
  // prologue
  int pm = get_program_id(0);
  int pn = get_program_id(1);
  int rm[TM] = pm * TM + 0 ... TM;
  int rn[TN] = pn * TN + 0 ... TN;
  int rk[TK] = 0 ... TK;
  float c[TM, TN] = 0;
  // pointers to operands
  TYPE* pa[SHAPE_A] = A + rk[BROADCAST_AK] * STRIDE_AK + rm[BROADCAST_AM] * STRIDE_AM;
  TYPE* pb[SHAPE_B] = B + rk[BROADCAST_BK] * STRIDE_BK + rn[BROADCAST_BN] * STRIDE_BN;
  // prefetches operands
  TYPE a[SHAPE_A] = (*pa);
  TYPE b[SHAPE_B] = (*pb);
  // reduction loop
  for(int k = K; k > 0; k-= TK){
    c += USE_A @ USE_B;
    pa = pa + TK * STRIDE_AK;
    pb = pb + TK * STRIDE_BK;
    bool more = k > TK;
    a = more ? *pa : 0;
    b = more ? *pb : 0;
  }
  // epilogue
  int rcm[TM] =  pm * TM + 0 ... TM;
  int rcn[TN] =  pn * TN + 0 ... TN;
  TYPE* pc[TM, TN] = C + rcn[newaxis, :] + rcm[:, newaxis] * ldc;
  *pc = c;
}
"""


class _dot(triton.function):
    kernel = triton.kernel(SOURCE, ["C"])
    tiles: ClassVar = {"TM": 16, "TN": 16, "TK": 16}

    @staticmethod
    def _call(a, b, transpose_a, transpose_b):
        shape_a, shape_b = triton.shape(a), triton.shape(b)
        M, Ka = shape_a[0], shape_a[1]
        Kb, N = shape_b[0], shape_b[1]
        if transpose_a:
            M, Ka = Ka, M
        if transpose_b:
            Kb, N = N, Kb
        lda = M if transpose_a else Ka
        ldb = Kb if transpose_b else N
        ldc = N
        dtype = a.dtype
        c = triton.empty([M, N], dtype=dtype)
        grid = lambda opt: [triton.cdiv(M, opt.d("TM")), triton.cdiv(N, opt.d("TN"))]  # noqa: E731
        macros = {
            "USE_A": "^a" if transpose_a else "a",
            "STRIDE_AK": "lda" if transpose_a else "1",
            "STRIDE_AM": "1" if transpose_a else "lda",
            "BROADCAST_AK": ":, newaxis" if transpose_a else "newaxis, :",
            "BROADCAST_AM": "newaxis, :" if transpose_a else ":, newaxis",
            "SHAPE_A": "TK, TM" if transpose_a else "TM, TK",
            "USE_B": "^b" if transpose_b else "b",
            "STRIDE_BK": "1" if transpose_b else "ldb",
            "STRIDE_BN": "ldb" if transpose_b else "1",
            "BROADCAST_BK": "newaxis, :" if transpose_b else ":, newaxis",
            "BROADCAST_BN": ":, newaxis" if transpose_b else "newaxis, :",
            "SHAPE_B": "TN, TK" if transpose_b else "TK, TN",
        }
        return _dot.kernel(
            a, b, c, M, N, Ka, lda, ldb, ldc, grid,
            AT=transpose_a, BT=transpose_b, TYPE=dtype, **_dot.tiles, **macros,
        )  # fmt: skip

    @staticmethod
    def forward(ctx, a, b, transpose_a=False, transpose_b=False):
        ctx.save_for_backward(a, b)
        ctx.t_a = transpose_a
        ctx.t_b = transpose_b
        return _dot._call(a, b, transpose_a, transpose_b)

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        t_a, t_b = ctx.t_a, ctx.t_b
        if not t_a and not t_b:
            da = _dot._call(dy, b, False, True)
            db = _dot._call(a, dy, True, False)
        elif not t_a and t_b:
            da = _dot._call(dy, b, False, False)
            db = _dot._call(dy, a, True, False)
        elif t_a and not t_b:
            da = _dot._call(b, dy, False, True)
            db = _dot._call(a, dy, False, False)
        elif t_a and t_b:
            da = _dot._call(b, dy, True, True)
            db = _dot._call(dy, a, True, True)
        else:
            raise AssertionError
        return da, db, None, None, None, None, None, None, None


dot = _dot.apply
TRANSPOSED = [(False, False), (False, True), (True, False), (True, True)]


def operands(transpose_a, transpose_b, random, m=32, n=48, k=16):
    """Two matrices of NumPy, in the given transposition, and their product."""
    a = random.standard_normal((k, m) if transpose_a else (m, k))
    b = random.standard_normal((n, k) if transpose_b else (k, n))
    return a, b, (a.T if transpose_a else a) @ (b.T if transpose_b else b)
