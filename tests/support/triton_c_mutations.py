"""Mutated sources of Triton-C: each gives a model, or an error of ours and nothing else.

python tests/support/triton_c_mutations.py 20000
"""

from __future__ import annotations

import random
import re
import sys
import warnings

import ziggurat as zg

SOURCES = (
    """
#define TWICE(x) ((x) * 2)
#if defined(HALF) && HALF > 0
#define FACTOR 0.5
#else
#define FACTOR 2.0f
#endif
__global__ void transpose(TYPE * X, TYPE * Y, int M, int N, int ldx __multipleof(8), int ldy __multipleof(8)) {
  int pidm = get_program_id(0), pidn = get_program_id(1); // places
  int rm[TM] = pidm * TM + 0 ... TM;
  int rn[TN] = pidn * TN + 0 ... TN;
  TYPE* px[TM, TN] = X + rm[:, newaxis] + rn[newaxis, :] * ldx;
  TYPE* py[TN, TM] = Y + rm[newaxis, :] * ldy + rn[:, newaxis];
  bool checkx[TM, TN] = (rm[:, newaxis] < M) && (rn[newaxis, :] < N);
  bool checky[TN, TM] = (rm[newaxis, :] < M) && (rn[:, newaxis] < N);
  *?(checky)py = ^(*?(checkx)px) * FACTOR + TWICE(1);
}
""",
    """
__global__ void dot(TYPE * A __readonly __aligned(16), TYPE * B, TYPE * C, int M, int N, int K,
                    int lda, int ldb, int ldc) {
  int rm[TM] = get_program_id(0) * TM + 0 ... TM;
  int rn[TN] = get_program_id(1) * TN + 0 ... TN;
  int rk[TK] = 0 ... TK;
  float c[TM, TN] = 0;
  TYPE* pa[TM, TK] = A + rk[newaxis, :] * 1 + rm[:, newaxis] * lda;
  TYPE* pb[TK, TN] = B + rk[:, newaxis] * ldb + rn[newaxis, :] * 1;
  TYPE a[TM, TK] = *pa, b[TK, TN] = *pb;
  for (int k = K; k > 0; k -= TK) {
    c += a @ b;
    pa = pa + TK; pb += TK * ldb;
    bool check = k > TK;
    a = check ? *pa : 0;
    b = check ? *pb : 0;
    if (k == 3) continue; else if (!check) break;
  }
  TYPE* pc[TM, TN] = C + rn[newaxis, :] + rm[:, newaxis] * ldc;
  *pc = c;
}
""",
    """
const int LIMIT = 1 << 4;
float gelu(float x[...]) { /* of any shape */ return x * sigmoid(1.702f * x); }
int first(int n) { for (int i = 0; i < 100; ++i) { if (i * i >= n) return i; } return -1; }
__global__ void f(float *x, int *n, unsigned u, double d, char c) {
  int i[16] = 0 ... 16, t = 0, j = 0x10;
  do { t++; j--; } while (t < LIMIT && *n != 3);
  while (j > 0) { j /= 2; t ^= j | 1; t <<= 1; }
  float y[16] = *(x + i);
  float total = y[+] + y[max] - (float)sizeof(half) * 'a';
  *(x + i) = select(y > 0, gelu(y), -1.5e-3) / (total ? total : 1.0);
  atomic_add(n, first(t) % 7);
  if (u > 3u) { *n = ~t; return; }
  (*n)++;
}
""",
)
MACROS = {"TYPE": "float", "TM": 16, "TN": 16, "TK": 16}
_TOKENS = re.compile(r"\s+|\w+|\.\.\.|[^\w\s]")


def mutated(source: str, chance: random.Random) -> str:
    """A source with a few tokens or characters removed, doubled, exchanged, or taken from another place."""
    if chance.random() < 0.3:
        text = source
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text))
            piece = chance.choice(
                ["", "(", ")", "{", "}", ";", "*", "?", '"', "'", "\\", "#", "/*", "0", ".", "\n", "@", "é", "\0"]
            )
            text = text[:at] + piece + text[at + chance.randint(0, 2) :]
        return text
    tokens: list[str] = _TOKENS.findall(source)
    for _ in range(chance.randint(1, 3)):
        at, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
        kind = chance.randrange(5)
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[other])
        elif kind == 2:
            tokens[at] = tokens[other]
        elif kind == 3:
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            del tokens[at : at + chance.randint(1, 8)]
    return "".join(tokens)


def outcome(text: str) -> str:
    """`model`, or the class of the error. Raises anything that is no error of ours, and faults."""
    try:
        kernel = zg.triton_c(text, **MACROS)
        _ = kernel.model
        kernel.triton()
    except zg.InternalError:
        raise
    except zg.ZigguratError as error:
        str(error)
        return type(error).__name__
    return "model"


def run(count: int, seed: int = 0) -> dict[str, int]:
    """The number of outcomes of each kind for `count` mutated sources."""
    chance = random.Random(seed)
    results: dict[str, int] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zg.ZigguratWarning)
        for number in range(count):
            text = mutated(SOURCES[number % len(SOURCES)], chance)
            try:
                kind = outcome(text)
            except Exception:
                print(f"--- mutation {number} of seed {seed}:\n{text}\n---", file=sys.stderr)
                raise
            results[kind] = results.get(kind, 0) + 1
    return results


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
