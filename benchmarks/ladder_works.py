"""The works of `gpu_ladder.py`: inputs, launches of ours and of the peers, true results and bars.

`works()` has a builder for each name. Without a GPU the builders make tensors of the host, and only ours run.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

import ziggurat as zg
import ziggurat.triton
import ziggurat.triton.language

Setting = Mapping[str, Any]
Run = Callable[[], Any]
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
MULTIPROCESSORS = torch.cuda.get_device_properties(0).multi_processor_count if GPU else 4
LN_2 = 0.6931471805599453
torch.backends.cuda.matmul.allow_tf32 = True


def kernels_by_ziggurat() -> Any:
    """The kernels of `kernels_triton.py` by ziggurat: its `import triton` finds ziggurat's."""
    spec = importlib.util.spec_from_file_location("kernels_by_ziggurat", Path(__file__).with_name("kernels_triton.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with patch.dict(sys.modules, {"triton": ziggurat.triton, "triton.language": ziggurat.triton.language}):
        spec.loader.exec_module(module)
    return module


OURS = kernels_by_ziggurat()
THEIRS: Any = importlib.import_module("kernels_triton") if GPU and importlib.util.find_spec("triton") else None


@dataclass
class Work:
    """One row: `amount` in `unit` · s, the launches of each contender by setting, and what they should give.

    A launch returns its results, or they are in `outs`; an empty list is not checked. `true` gives the leading elements
    of each result. `bars` has the least ratio of a contender's time by ours.
    """

    amount: float
    unit: str
    runs: dict[str, dict[str, Run]]
    outs: Sequence[Any]
    true: Callable[[], Sequence[Any]]
    tolerance: float
    bars: dict[str, float] = field(default_factory=dict[str, float])

    def clear(self) -> None:
        """Fill the results with numbers that are not right."""
        for out in self.outs:
            out.fill_(float("nan") if out.dtype.is_floating_point else -(1 << 30))

    def error(self, got: Any) -> float:
        """The largest error of the results by the largest true number."""
        found = got if isinstance(got, list | tuple) else [got] if isinstance(got, torch.Tensor) else self.outs
        worst = 0.0
        for out, true in zip(found, self.expected, strict=False):
            one = out.detach().reshape(-1)[: true.numel()].double() - true.reshape(-1)
            worst = max(worst, (one.abs().max() / true.abs().max().clamp_min(1e-9)).nan_to_num(1e9).item())
        return worst

    @functools.cached_property
    def expected(self) -> list[Any]:
        return [one.double() for one in self.true()]


def example(name: str) -> Any:
    """A module of the examples."""
    folder = str(Path(__file__).resolve().parents[1] / "examples")
    with patch.object(sys, "path", [folder, *sys.path]):
        return importlib.import_module(name)


def by(launch: Callable[[Any, Setting], Any], ours: Sequence[Setting], theirs: Sequence[Setting] | None = None) -> Any:
    """The launches of ours and of Triton. Triton 3.6 ends the process for some loops with `ROLES`."""

    def labelled(kernels: Any, settings: Sequence[Setting]) -> dict[str, Run]:
        return {label(one): functools.partial(launch, kernels, one) for one in settings}

    runs = {"ours": labelled(OURS, ours)}
    if THEIRS is not None:
        runs["Triton"] = labelled(THEIRS, [one for one in theirs or ours if not one.get("ROLES")])
    return runs


def label(setting: Setting) -> str:
    words = [f"{name} {value}" for name, value in setting.items() if isinstance(value, int) and value is not False]
    return ", ".join(words).replace("num_", "") or "as it is"


def tiles(*given: tuple[int, int, int, int, int], **more: Any) -> list[Setting]:
    return [dict(zip(("M", "N", "K", "num_warps", "num_stages"), one, strict=True), **more) for one in given]


def normal(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def empty(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.empty(*shape, device=DEVICE, dtype=dtype)


def zeros(count: int) -> Any:
    return torch.zeros(count, device=DEVICE, dtype=torch.int32)


def describer() -> Callable[..., Any]:
    """A function that makes the descriptor of a tensor for a compiler, once."""

    @functools.cache
    def described(kernels: Any, tensor: Any, *block: int) -> Any:
        module = importlib.import_module(f"{kernels.triton.__name__}.tools.tensor_descriptor")
        return module.TensorDescriptor.from_tensor(tensor, list(block))

    return described


def copy(size: float) -> Run:
    """A copy of so many bytes, read and written in all."""
    source = torch.empty(int(size) // 2, dtype=torch.int8, device=DEVICE)
    target = torch.empty_like(source)

    def run() -> list[Any]:
        target.copy_(source)
        return []

    return run


def laid_out(matrix: Any, form: str) -> Any:
    """The matrix with neighbours along its rows (N) or along its columns (T)."""
    return matrix if form == "N" else matrix.T.contiguous().T


def backward(forward: Callable[..., Any], leaves: Sequence[Any], gradient: Any) -> Run:
    """The backward pass of a function of PyTorch, which has run forward before."""
    leaves = [one.detach().clone().requires_grad_() for one in leaves]
    made: list[Any] = []

    def run() -> Any:
        if not made:
            made.append(forward(*leaves))
        return torch.autograd.grad(made[0], leaves, gradient, retain_graph=True)

    return run


def gradients(forward: Callable[..., Any], leaves: Sequence[Any], gradient: Any) -> Sequence[Any]:
    """The true gradients, in float64."""
    return backward(forward, [one.double() for one in leaves], gradient.double())()


# Products of matrices.

WIDE = ((128, 256, 64, 8, 4), (128, 256, 64, 8, 3), (128, 128, 64, 4, 3))
RAGGED = ((128, 128, 64, 8, 3), (64, 128, 64, 4, 4), (128, 128, 32, 8, 4))
BYTES = ((128, 256, 128, 8, 3), (256, 128, 128, 8, 3), (128, 128, 128, 8, 3))
WORDS = ((128, 256, 32, 8, 3), (128, 128, 32, 8, 3))
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
# The type of the output, the largest error, and tiles, for each type of inputs.
PRODUCTS: dict[Any, tuple[Any, float, Any]] = {
    torch.float16: (torch.float16, 2e-3, WIDE),
    torch.bfloat16: (torch.bfloat16, 1e-2, WIDE),
    E4M3: (torch.bfloat16, 1e-2, BYTES),
    E5M2: (torch.bfloat16, 1e-2, BYTES),
    torch.int8: (torch.int32, 0.0, BYTES),
    torch.float32: (torch.float32, 2e-3, WORDS),
}


def library_product(a: Any, b: Any, out: Any) -> Run:
    if a.dtype in (E4M3, E5M2):
        one = torch.ones((), device=DEVICE)
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=out.dtype)
    return (lambda: torch._int_mm(a, b)) if a.dtype == torch.int8 else lambda: torch.mm(a, b, out=out)


def matmul(dtype: Any, form: str, m: int, n: int, k: int) -> Work:
    """The product by pointers, its text unchanged."""
    made, tolerance, shapes = PRODUCTS[dtype]
    whole = dtype == torch.int8
    a, b = (
        (torch.randint(-20, 20, shape, device=DEVICE) if whole else normal(*shape)).to(dtype)
        for shape in ((m, k), (k, n))
    )
    a, b = laid_out(a, form[0]), laid_out(b, form[1])
    out = empty(m, n, dtype=made)

    def launch(kernels: Any, setting: Setting, a: Any = a, b: Any = b) -> None:
        tl = kernels.tl
        grid = (-(-m // setting["M"]) * -(-n // setting["N"]),)
        total = tl.int32 if whole else tl.float32
        kernels.matmul[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), n, 1, GROUP=8, SUM=total, **setting)

    settings = tiles(*(RAGGED if n % 8 else shapes))
    runs = by(launch, settings)
    bars: dict[str, float] = {"cuBLAS": 0.95, "Triton": 1.0}
    if dtype == torch.float32:
        bars = {"cuBLAS": 0.85}
    elif dtype not in (torch.float16, torch.bfloat16):
        bars = {"cuBLAS": 1.0, "Triton": 1.0} if form == "NT" else {"ours NT": 0.8}
    if "ours NT" in bars:
        turned = functools.partial(launch, a=a.contiguous(), b=laid_out(b, "T"))
        runs["ours NT"] = {label(one): functools.partial(turned, OURS, one) for one in settings}
    if GPU:
        runs["cuBLAS"] = {"": library_product(a, b, torch.empty_like(out))}
    return Work(
        2e-12 * m * n * k, "TFLOP/s", runs, [out], lambda: [a[:256].double() @ b.double()], tolerance, bars
    )  # fmt: skip


def matmul_described(m: int, n: int, k: int, epilogue: str = "") -> Work:
    a, b, bias, rest = (normal(*shape, dtype=torch.float16) for shape in ((m, k), (n, k), (n,), (m, n)))
    out, described = empty(m, n, dtype=torch.float16), describer()

    def launch(kernels: Any, setting: Setting, plain: bool = False) -> Any:
        setting = dict(setting)
        turn, ending = setting.pop("persistent", 0), "" if plain else epilogue
        ending = "quick gelu" if GPU and ending == "gelu" else ending
        M, N, K = (setting[name] for name in "MNK")
        count = -(-m // M) * -(-n // N)
        shapes = ((a, M, K), (b, N, K), (out, M, N))
        one, two, three = (described(kernels, *shape) for shape in shapes)
        last = described(kernels, rest, M, N)
        grid = (min(count, MULTIPROCESSORS) if turn else count,)
        kernels.matmul_blocks[grid](one, two, three, bias, last, m, n, k, EPILOGUE=ending, GROUP=8, **setting)
        return [] if plain else None

    plain = tiles((128, 256, 64, 8, 3), (128, 128, 64, 4, 3), ROLES=False)
    roles = [
        *tiles((128, 256, 64, 8, 3), ROLES=True), *tiles((128, 256, 64, 8, 3), ROLES=True, persistent=1)
    ]  # fmt: skip
    smaller = tiles((128, 128, 64, 8, 3), ROLES=False) if epilogue else []
    runs = by(launch, plain + roles, plain + smaller + tiles((128, 256, 64, 8, 3), ROLES=False, persistent=1))
    bars = {"Triton": 1.0, "ours, plain": 0.95} if epilogue else {"cuBLAS": 1.0}
    if epilogue:
        runs["ours, plain"] = {
            label(one): functools.partial(launch, OURS, one, plain=True) for one in plain + roles
        }  # fmt: skip
    if GPU:
        if epilogue == "gelu":
            runs["cuBLAS"] = {"": lambda: torch._addmm_activation(bias, a, b.T, use_gelu=True)}
        else:
            runs["cuBLAS"] = {"": lambda: torch.addmm(rest, a, b.T) if epilogue else torch.mm(a, b.T)}

    def true() -> Any:
        c = a[:256].double() @ b.double().T
        if epilogue == "gelu":
            c = F.gelu(c + bias.double(), approximate="tanh")
        return [c + rest[:256].double() if epilogue == "residual" else c]

    return Work(2e-12 * m * n * k, "TFLOP/s", runs, [out], true, 2e-3, bars)


def matmul_few_rows(m: int, n: int, k: int) -> Work:
    a, b, described = normal(m, k, dtype=torch.float16), normal(n, k, dtype=torch.float16), describer()
    out, parts, counts = empty(m, n, dtype=torch.float16), empty(4, m, n), zeros(n)

    def launch(kernels: Any, setting: Setting) -> None:
        N, K = setting["N"], setting["K"]
        given = described(kernels, a, m, K), described(kernels, b, N, K), out, parts, counts
        kernels.matmul_split[n // N, setting["PARTS"]](*given, m, n, k, M=m, **setting)

    shapes = ((64, 128, 4, 4, 1, False), (64, 128, 4, 4, 1, True), (64, 64, 4, 8, 1, True), (128, 64, 8, 6, 2, True))
    names = ("N", "K", "num_warps", "num_stages", "PARTS", "ROLES")
    settings = [dict(zip(names, one, strict=True)) for one in shapes]
    runs = by(launch, settings)
    if GPU:
        runs["cuBLAS"] = {"": lambda: torch.mm(a, b.T)}
    return Work(
        2e-12 * m * n * k, "TFLOP/s", runs, [out], lambda: [a.double() @ b.double().T], 2e-3, {"cuBLAS": 1.0}
    )  # fmt: skip


def matmul_grouped(rows: Sequence[int], n: int, k: int, dtype: Any) -> Work:
    """Each group of rows by a matrix of its own. The groups are of whole tiles."""
    m, experts = sum(rows), len(rows)
    a, b = normal(m, k, dtype=dtype), normal(experts * n, k, dtype=dtype)
    out, described = empty(m, n, dtype=dtype), describer()
    numbers = torch.repeat_interleave(torch.arange(experts), torch.tensor(rows) // 128).to(DEVICE, torch.int32)

    def launch(kernels: Any, setting: Setting) -> None:
        setting = dict(setting)
        turn = setting.pop("persistent", 0)
        M, N, K = (setting[name] for name in "MNK")
        given = described(kernels, a, M, K), described(kernels, b, N, K), described(kernels, out, M, N)
        count = m // M * (n // N)
        grid = (min(count, MULTIPROCESSORS) if turn else count,)
        kernels.matmul_grouped[grid](*given, numbers, m // M, n, k, GROUP=8, **setting)

    plain = tiles((128, 256, 64, 8, 3), (128, 128, 64, 4, 3), ROLES=False)
    roles = tiles((128, 256, 64, 8, 3), (128, 128, 64, 8, 3), ROLES=True, persistent=1)
    runs = by(launch, plain + roles, plain + tiles((128, 256, 64, 8, 3), ROLES=False, persistent=1))
    if GPU:
        each = b.view(experts, n, k).transpose(1, 2)
        ends = torch.tensor(list(itertools.accumulate(rows)), device=DEVICE, dtype=torch.int32)
        if len(set(rows)) == 1:
            runs["torch"] = {"": lambda: torch.bmm(a.view(experts, -1, k), each)}
        else:
            runs["torch"] = {"": lambda: torch._grouped_mm(a, each, offs=ends)}
    true = lambda: [a[:256].double() @ b[:n].double().T]  # noqa: E731
    return Work(2e-12 * m * n * k, "TFLOP/s", runs, [out], true, 1e-2, {"Triton": 1.0})


# Attention.

# Blocks of queries and keys, warps, stages, roles, and whether a program takes several tiles.
FORWARD = {
    64: (
        (128, 64, 4, 3, False, False), (128, 128, 8, 2, True, False), (256, 64, 16, 3, True, True),
        (64, 128, 4, 2, True, False), (64, 128, 4, 3, True, False), (64, 64, 4, 4, True, False),
    ),
    128: ((128, 128, 8, 2, True, False), (128, 128, 8, 2, True, True), (64, 64, 4, 3, True, False)),
    256: ((128, 64, 8, 2, True, False), (64, 64, 4, 2, False, False)),
}  # fmt: skip
TRITON_FORWARD = {
    64: ((128, 64, 4, 3, False, False), (64, 128, 4, 2, False, False)),
    128: ((64, 64, 4, 3, False, False), (128, 128, 8, 2, False, False)),
    256: ((128, 64, 8, 2, False, False), (64, 64, 4, 2, False, False)),
}


def sdpa(q: Any, k: Any, v: Any, **options: Any) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, **options)


def attention(dtype: Any, d: int, causal: bool, n: int, batch: int, heads: int, key_heads: int = 0) -> Work:
    key_heads = key_heads or heads
    q = normal(batch, heads, n, d).to(dtype)
    k, v = (normal(batch, key_heads, n, d).to(dtype) for _ in "kv")
    made = torch.float16 if dtype == E4M3 else dtype
    out, lse, described = empty(batch, heads, n, d, dtype=made), empty(batch * heads, n), describer()

    def launch(kernels: Any, setting: Setting) -> None:
        M, N = setting["M"], setting["N"]
        blocks = ((q, M), (k, N), (v, N), (out, M))
        given = [described(kernels, one.view(-1, d), rows, d) for one, rows in blocks]
        tiles = n // M * batch * heads
        options = {"CAUSAL": causal, "SHARED": heads // key_heads, "D": d, "LANES": kernels is OURS and d < 256}
        options |= {"GROUP": math.gcd(4, batch * heads), "ONCE": False}
        grid = (min(tiles, MULTIPROCESSORS) if setting["TILES"] else tiles,)
        kernels.attention[grid](*given, lse, n, batch * heads, d**-0.5, **options | setting)

    names = ("M", "N", "num_warps", "num_stages", "ROLES", "TILES")
    ours, theirs = ([dict(zip(names, one, strict=True)) for one in each[d]] for each in (FORWARD, TRITON_FORWARD))
    ours += [one | {"ONCE": True} for one in ours if causal and one["ROLES"]]
    runs = by(launch, ours, theirs)
    if GPU and dtype != E4M3:
        runs["cuDNN"] = {"": lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=key_heads != heads)}

    def true() -> Any:
        one = (x[:1, :1].double() for x in (q, k, v))
        return [F.scaled_dot_product_attention(*one, is_causal=causal)]

    amount = 4e-12 * batch * heads * n * n * d * (0.5 if causal else 1)
    bars = {"Triton": 1.0} if dtype == E4M3 else {"cuDNN": 1.0}
    return Work(amount, "TFLOP/s", runs, [out], true, {torch.float16: 5e-3, E4M3: 0.1}.get(dtype, 2e-2), bars)


def attention_backward(d: int, causal: bool, n: int, batch: int, heads: int) -> Work:
    """The gradients of queries, keys and values: by two kernels, or by one that adds those of queries in memory."""
    q, k, v, dout = (normal(batch, heads, n, d, dtype=torch.float16) for _ in range(4))
    out, lse = empty(batch, heads, n, d, dtype=torch.float16), empty(batch * heads, n)
    dq, dk, dv = (torch.empty_like(q) for _ in range(3))
    delta, wide, scale = torch.empty_like(lse), empty(batch * heads * n, d), d**-0.5
    described = describer()
    for one in range(batch * heads):
        scores = q.view(-1, n, d)[one].double() @ k.view(-1, n, d)[one].double().T * scale
        if causal:
            scores.masked_fill_(~torch.ones(n, n, dtype=torch.bool, device=DEVICE).tril(), -float("inf"))
        lse[one] = torch.logsumexp(scores, 1) / LN_2
        out.view(-1, n, d)[one] = (torch.softmax(scores, 1) @ v.view(-1, n, d)[one].double()).half()

    def launch(kernels: Any, setting: Setting) -> None:
        M, N, rows = setting["M"], setting["N"], setting.get("rows")
        options: dict[str, Any] = {"CAUSAL": causal, "D": d, "ROLES": setting["ROLES"], "num_stages": 2}

        def blocks(rows: int, *tensors: Any) -> list[Any]:
            return [described(kernels, one.view(-1, d), rows, d) for one in tensors]

        kernels.attention_delta[(batch * heads * n // 64,)](out, dout, delta, BLOCK=64, D=d)
        if not rows:
            wide.zero_()
        kernels.attention_keys[n // N, batch * heads](
            *blocks(M, q), *blocks(N, k, v), *blocks(M, dout), *blocks(N, dk, dv), *blocks(M, wide),
            lse, delta, n, scale, M=M, N=N, WHOLE=not rows, num_warps=setting["num_warps"], **options,
        )  # fmt: skip
        if not rows:
            dq.copy_(wide.view_as(dq))
            return
        columns = setting["columns"]
        options |= {"M": rows, "N": columns, "num_warps": setting["warps of rows"]}
        kernels.attention_queries[n // rows, batch * heads](
            *blocks(rows, q), *blocks(columns, k, v), *blocks(rows, dout, dq), lse, delta, n, scale, **options
        )

    # One kernel, then two: blocks and warps for the keys, and for the rows of queries.
    shapes = [(64, 128, 8, roles) for roles in (False, True)] + [(64, 64, 4, True)] * (d == 64)
    shapes += [(64, 128, 8, False, 128, 64, 8), (64, 64, 4, True, 64, 128 * 64 // d, 4)]
    shapes += [(64, 128, 8, True, 64, 64, 4)] if d == 128 else []
    names = ("M", "N", "num_warps", "ROLES", "rows", "columns", "warps of rows")
    runs = by(launch, [dict(zip(names, one, strict=False)) for one in shapes])
    kernel = zg.grad(example("attention").attention_kernel, wrt=("q_desc", "k_desc", "v_desc"), of="out_desc")

    def generated() -> Any:
        for one in (dq, dk, dv):
            one.zero_()
        pairs = ((q, dq), (k, dk), (v, dv), (out, dout))
        given = [zg.TensorDescriptor(one.view(-1, d), [64, d]) for pair in pairs for one in pair]
        shapes = {"CAUSAL": causal, "BLOCK_M": 64, "BLOCK_N": 64, "D": d, "num_warps": 4}
        kernel[n // 64, batch * heads](*given, n, scale, **shapes)

    runs["generated"] = {"64×64 by 4": generated}
    if GPU:
        runs["cuDNN"] = {"": backward(functools.partial(sdpa, is_causal=causal), (q, k, v), dout)}

    def true() -> Any:
        given = [one[:1, :1].double().requires_grad_() for one in (q, k, v)]
        made = F.scaled_dot_product_attention(*given, is_causal=causal)
        return torch.autograd.grad(made, given, dout[:1, :1].double())

    amount = 10e-12 * batch * heads * n * n * d * (0.5 if causal else 1)
    return Work(amount, "TFLOP/s", runs, [dq, dk, dv], true, 1e-2, {"cuDNN": 0.9})


# Rows. `amount` is bytes read once and written once.


def by_rows(size: float, runs: dict[str, dict[str, Run]], *rest: Any) -> Work:
    if GPU:
        runs["copy"] = {"": copy(size)}
    return Work(size / 1e9, "GB/s", runs, *rest)


def from_liger(runs: dict[str, dict[str, Run]], module: str, name: str, run: Callable[[Any], Run]) -> None:
    """Add a function of Liger-Kernel, where its sources are in `sys.path`."""
    if GPU and importlib.util.find_spec("liger_kernel") is not None:
        runs["Liger"] = {"": run(getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name).apply)}


def norm(kind: str, rows: int, n: int) -> Work:
    rms, dtype, block = kind == "RMS", torch.float16, ziggurat.triton.next_power_of_2(n)
    x, w, b = normal(rows, n, dtype=dtype), normal(n, dtype=dtype), normal(n, dtype=dtype)
    y, mean, rstd = torch.empty_like(x), empty(rows), empty(rows)

    def launch(kernels: Any, setting: Setting) -> None:
        grid = (rows // setting["ROWS"],)
        kernels.norm[grid](x, y, w, b, mean, rstd, n, 1e-5, RMS=rms, BLOCK=block, **setting)

    runs = by(launch, [{"ROWS": r, "num_warps": w} for r, w in ((1, 4), (1, 8), (2, 4), (2, 8))])
    whole = (n,)
    library = functools.partial(F.rms_norm if rms else F.layer_norm, eps=1e-5)
    if GPU:
        runs["torch"] = {"": lambda: library(x, whole, *((w,) if rms else (w, b)))}
    if THEIRS is not None and not rms:
        runs["Triton, same text"] = runs.pop("Triton")
        runs["Triton"] = {
            f"{step} by {warps}": functools.partial(
                THEIRS.layer_norm[(rows,)], x, y, w, b, mean, rstd, n, n, 1e-5, BLOCK=step, num_warps=warps
            )
            for step, warps in ((2048, 8), (1024, 4))
        }
    if rms:
        from_liger(runs, "rms_norm", "LigerRMSNormFunction", lambda apply: lambda: apply(x, w, 1e-5))
    else:
        from_liger(runs, "layer_norm", "LigerLayerNormFunction", lambda apply: lambda: apply(x, w, b, 1e-5))

    def true() -> Any:
        return [library(x[:256].double(), whole, *((w.double(),) if rms else (w.double(), b.double())))]

    return by_rows(2 * x.nbytes, runs, [y], true, 4e-3, {"Liger" if rms else "Triton": 1.15, "copy": 0.9})


def generated_norm_backward(x: Any, dy: Any, w: Any, b: Any) -> dict[str, Run]:
    """The gradient that `zg.grad` makes of a layer norm: it computes forward again, and adds with atomics."""
    kernel = zg.grad(example("layer_norm").layer_norm_kernel, wrt=("x_ptr", "weight_ptr", "bias_ptr"), of="y_ptr")
    y, mean, rstd, (rows, n) = torch.empty_like(x), empty(len(x)), empty(len(x)), x.shape
    dx, dw, db = outs = torch.empty_like(x), empty(n), empty(n)

    def run() -> Any:
        for one in outs:
            one.zero_()
        given = x, dx, y, dy, w.float(), dw, b.float(), db, mean, rstd
        kernel[(rows,)](*given, n, n, 1e-5, BLOCK_SIZE=1024, num_warps=4)
        return outs

    return {"1024 by 4": run}


def norm_backward(kind: str, rows: int, n: int) -> Work:
    rms, dtype, block = kind == "RMS", torch.float16, ziggurat.triton.next_power_of_2(n)
    x, dy = normal(rows, n, dtype=dtype), normal(rows, n, dtype=dtype)
    w, b = normal(n, dtype=dtype), normal(n, dtype=dtype)
    mean = x.float().mean(1)
    rstd = ((x.float() ** 2).mean(1) - (0 if rms else mean**2) + 1e-5).rsqrt()
    dx, sums = torch.empty_like(x), empty(2 - rms, n, dtype=dtype)
    parts = empty(2 - rms, 8 * MULTIPROCESSORS, n)

    def launch(kernels: Any, setting: Setting) -> None:
        setting = dict(setting)
        count = min(setting.pop("each") * MULTIPROCESSORS, rows)
        room = parts.view(-1)[: (2 - rms) * count * n].view(-1, count, n)
        given = x, dy, dx, w, mean, rstd, room[0], room[-1], rows, n
        kernels.norm_backward[(count,)](*given, RMS=rms, BLOCK=block, **setting)
        kernels.sum_rows[-(-n // 32), 2 - rms](parts, sums, count, n, BLOCK=32, ROWS=64)

    settings = [
        {"num_warps": warps, "each": each} for warps, each in (((16, 1), (32, 1)) if n > 4096 else ((8, 3), (4, 4)))
    ]
    runs = by(launch, settings)
    if not rms:
        runs["generated"] = generated_norm_backward(x, dy, w, b)
    library = functools.partial(F.rms_norm if rms else F.layer_norm, eps=1e-5)
    leaves = (x, w) if rms else (x, w, b)

    def forward(x: Any, *weights: Any) -> Any:
        return library(x, (n,), *weights)

    if GPU:
        runs["torch"] = {"": backward(forward, leaves, dy)}
    module, name = ("rms_norm", "LigerRMSNormFunction") if rms else ("layer_norm", "LigerLayerNormFunction")
    more = (1e-5, 0.0, "llama", False) if rms else (1e-5,)
    from_liger(runs, module, name, lambda apply: backward(lambda *given: apply(*given, *more), leaves, dy))
    outs = [dx, *sums]
    return by_rows(3 * x.nbytes, runs, outs, lambda: gradients(forward, leaves, dy), 1e-2, {"Liger": 1.2, "torch": 1.2})


def long_rows(x: Any, y: Any, labels: Any, losses: Any, scale: float) -> Any:
    """The launches of `softmax_long` and `softmax_by_parts`; on a CPU of the first, as programs may not wait there."""
    rows, n = x.shape
    counts, parts = zeros(rows + 1), empty(2 * rows * -(-n // 2048))

    def launch(kernels: Any, setting: Setting) -> None:
        given, loss = (x, y, labels, losses), labels is not None
        if "ROWS" in setting:
            kernels.softmax_long[(rows,)](*given, n, scale, LOSS=loss, **setting)
            return
        count = ziggurat.triton.next_power_of_2(-(-n // setting["BLOCK"]))
        more = parts, counts, rows, n, scale
        kernels.softmax_by_parts[(rows * count,)](*given, *more, LOSS=loss, PARTS=count, **setting)

    settings = [
        {"ROWS": r, "BLOCK": b, "num_warps": w} for r, b, w in ((2, 8192, 32), (4, 4096, 16), (2, 4096, 16))
    ]  # fmt: skip
    for block, warps, limit in ((8192, 8, None), (8192, 8, 48), (8192, 8, 40), (16384, 16, 48)) if GPU else ():
        settings.append({"BLOCK": block, "num_warps": warps, **({"maxnreg": limit} if limit else {})})
    return by(launch, settings)


def softmax(dtype: Any, rows: int, n: int) -> Work:
    x = normal(rows, n, dtype=dtype)
    y = torch.empty_like(x)
    runs = long_rows(x, y, None, None, 1.0)
    if GPU:
        runs["torch"] = {"": lambda: torch.softmax(x, 1)}
    from_liger(runs, "softmax", "LigerSoftmaxFunction", lambda apply: lambda: apply(x))
    bars = {"Liger" if "Liger" in runs else "Triton": 1.0, "copy": 0.9}
    return by_rows(2 * x.nbytes, runs, [y], lambda: [torch.softmax(x[:64].double(), 1)], 1e-3, bars)


def cross_entropy(rows: int, n: int) -> Work:
    """The mean's gradient, and the losses."""
    x = normal(rows, n, dtype=torch.bfloat16)
    labels = torch.randint(0, n, (rows,), device=DEVICE)
    dx, losses = torch.empty_like(x), empty(rows)
    runs = long_rows(x, dx, labels, losses, 1 / rows)
    if GPU:
        leaf = x.detach().requires_grad_()
        runs["torch"] = {"": lambda: torch.autograd.grad(F.cross_entropy(leaf, labels), leaf)}

    def by_liger(apply: Any) -> Run:
        given = x.clone()  # The gradient is written over it.

        def run() -> Any:
            leaf = given.detach().requires_grad_()
            return torch.autograd.grad(apply(leaf, labels, None)[0], leaf)

        return run

    from_liger(runs, "cross_entropy", "LigerCrossEntropyFunction", by_liger)

    def true() -> Any:
        leaf = x[:64].double().requires_grad_()
        found = F.cross_entropy(leaf, labels[:64], reduction="none")
        return [torch.autograd.grad(found.sum() / rows, leaf)[0], found.detach()]

    bars = {"Liger" if "Liger" in runs else "Triton": 1.0, "copy": 0.9}
    return by_rows(2 * x.nbytes, runs, [dx, losses], true, 1e-2, bars)


def rotary(batch: int, n: int, heads: int, key_heads: int, d: int, sign: float) -> Work:
    q, k = (normal(batch, n, count, d, dtype=torch.bfloat16) for count in (heads, key_heads))
    angles = torch.rand(1, n, d // 2, device=DEVICE).mul(6).repeat(1, 1, 2)
    cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
    outs = [torch.empty_like(q), torch.empty_like(k)]

    def launch(kernels: Any, setting: Setting) -> None:
        given = q, k, *outs, cos, sin, n, sign
        kernels.rotary[(batch * n,)](*given, HEADS=heads, KEY_HEADS=key_heads, D=d, **setting)

    runs = by(launch, [{"num_warps": 4}, {"num_warps": 8}, {"num_warps": 2}])

    def by_liger(apply: Any) -> Run:
        given = [one.clone().transpose(1, 2).requires_grad_() for one in (q, k)]

        def forward() -> Any:
            return [one.transpose(1, 2) for one in apply(*(one.detach() for one in given), cos, sin)]

        made = None if sign > 0 else apply(*(one * 1 for one in given), cos, sin)
        back = [one.clone().transpose(1, 2) for one in (q, k)]
        return forward if sign > 0 else lambda: [
            one.transpose(1, 2) for one in torch.autograd.grad(made, given, back, retain_graph=True)
        ]  # fmt: skip

    from_liger(runs, "rope", "LigerRopeFunction", by_liger)

    def true() -> Any:
        def turned(x: Any) -> Any:
            left, right = x.double().chunk(2, 3)
            across = torch.cat((-right, left), 3)
            return x.double() * cos.double()[:, :, None] + sign * across * sin.double()[:, :, None]

        return [turned(q), turned(k)]

    bars = {"Liger" if "Liger" in runs else "Triton": 1.0, "copy": 0.9}
    return by_rows(2 * (q.nbytes + k.nbytes), runs, outs, true, 1e-2, bars)


def swiglu(rows: int, n: int, back: bool) -> Work:
    a, b, dc = (normal(rows, n, dtype=torch.bfloat16) for _ in range(3))
    outs, count = [torch.empty_like(a) for _ in range(1 + back)], rows * n

    def launch(kernels: Any, setting: Setting) -> None:
        grid = (-(-count // setting["BLOCK"]),)
        if back:
            kernels.swiglu_backward[grid](a, b, dc, *outs, count, **setting)
        else:
            kernels.swiglu[grid](a, b, *outs, count, **setting)

    runs = by(launch, [{"BLOCK": block, "num_warps": warps} for block, warps in ((2048, 4), (1024, 4), (4096, 8))])

    def forward(a: Any, b: Any) -> Any:
        return F.silu(a) * b

    if GPU:
        runs["torch"] = {"": backward(forward, (a, b), dc) if back else lambda: forward(a, b)}
    from_liger(
        runs, "swiglu", "LigerSiLUMulFunction",
        lambda apply: backward(apply, (a, b), dc) if back else lambda: apply(a, b),
    )  # fmt: skip

    def true() -> Any:
        return gradients(forward, (a, b), dc) if back else [forward(a.double(), b.double())]

    bars = {"Liger" if "Liger" in runs else "Triton": 1.0, "copy": 0.9}
    return by_rows((5 if back else 3) * a.nbytes, runs, outs, true, 1e-2, bars)


def embedding(words: int, width: int, count: int, back: bool) -> Work:
    """Rows of a table by number; backward, the sums of the gradients of each row."""
    table, dout = normal(words, width, dtype=torch.bfloat16), normal(count, width, dtype=torch.bfloat16)
    tokens = torch.randint(0, words, (count,), device=DEVICE)
    out = torch.empty_like(table if back else dout)

    first = torch.empty(words, dtype=torch.int32, device=DEVICE)
    after = torch.empty(count, dtype=torch.int32, device=DEVICE)

    def launch(kernels: Any, setting: Setting) -> None:
        columns = -(-width // setting["BLOCK"])
        if back:
            first.fill_(-1)
            kernels.chain[(count // 128,)](tokens, first, after, BLOCK=128)
            kernels.sum_chains[words, columns](dout, first, after, out, width, **setting)
        else:
            kernels.gather[count // setting["ROWS"], columns](table, tokens, out, width, **setting)

    settings = [{"BLOCK": block, "num_warps": warps} for block, warps in ((1024, 2), (2048, 2), (2048, 4), (4096, 4))]
    if not back:
        few = ((1, 2048, 4), (4, 1024, 4), (8, 512, 4), (16, 256, 4), (32, 128, 4), (128, 128, 8), (2, 4096, 8))
        settings = [{"ROWS": rows, "BLOCK": block, "num_warps": warps} for rows, block, warps in few]
    runs = by(launch, settings)

    def forward(table: Any) -> Any:
        return F.embedding(tokens, table)

    if GPU:
        runs["torch"] = {"": backward(forward, (table,), dout) if back else lambda: forward(table)}
    from_liger(
        runs, "experimental.embedding", "LigerEmbeddingFunction",
        lambda apply: backward(lambda table: apply(table, tokens), (table,), dout)
        if back else lambda: apply(table, tokens),
    )  # fmt: skip
    size = dout.nbytes + (table.nbytes if back else dout.nbytes)
    bars = {"Liger" if "Liger" in runs else "Triton": 1.0, "copy": 0.9}
    return by_rows(
        size, runs, [out], lambda: gradients(forward, (table,), dout) if back else [forward(table)], 2e-2, bars
    )


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """The works in the order of their value, by name."""
    half, brain, part = torch.float16, torch.bfloat16, functools.partial
    forms = ("NN", "NT", "TN", "TT")
    for form, size in itertools.product(forms, (4096, 8192, 2048)):
        yield f"matmul f16 {form} {size}", part(matmul, half, form, size, size, size)
    for m, n, k in ((8192, 8192, 512), (3001, 3001, 3001), (4000, 4000, 4000), (16384, 1024, 4096)):
        yield f"matmul f16 NN {m}×{n}×{k}", part(matmul, half, "NN", m, n, k)
    for form in forms:
        yield f"matmul bf16 {form} 4096", part(matmul, brain, form, 4096, 4096, 4096)
    kinds = {"fp8 e4m3": E4M3, "int8": torch.int8, "tf32": torch.float32, "fp8 e5m2": E5M2}
    for (name, kind), form in itertools.product(kinds.items(), ("NT", "NN", "TN", "TT")):
        yield f"matmul {name} {form} 4096", part(matmul, kind, form, 4096, 4096, 4096)
    for d, causal in itertools.product((128, 64, 256), (False, True)):
        heads = 16 if d == 256 else 32
        yield f"attention f16 D{d}{' causal' * causal} 4096", part(attention, half, d, causal, 4096, 4, heads)
    for n, causal in itertools.product((1024, 16384), (False, True)):
        yield f"attention f16 D128{' causal' * causal} {n}", part(attention, half, 128, causal, n, 16384 // n, 32)
    for causal in (False, True):
        yield f"attention bf16 D128{' causal' * causal} 4096", part(attention, brain, 128, causal, 4096, 4, 32)
    yield "attention f16 D128 causal 4096, 4 heads by key", part(attention, half, 128, True, 4096, 4, 32, 8)
    yield "attention fp8 D128 4096", part(attention, E4M3, 128, False, 4096, 4, 32)
    for d, causal in itertools.product((128, 64), (False, True)):
        yield f"attention backward D{d}{' causal' * causal} 4096", part(attention_backward, d, causal, 4096, 4, 32)
    for kind, n in itertools.product(("layer", "RMS"), (2048, 8192)):
        yield f"{kind} norm 16384×{n}", part(norm, kind, 16384, n)
        yield f"{kind} norm backward 16384×{n}", part(norm_backward, kind, 16384, n)
    for name, dtype in (("f16", half), ("f32", torch.float32)):
        yield f"softmax {name} 256×131072", part(softmax, dtype, 256, 131072)
    yield "cross entropy and gradient 4096×128256", part(cross_entropy, 4096, 128256)
    for size in (2048, 4096, 8192):
        yield f"matmul f16 NT {size}, descriptors", part(matmul_described, size, size, size)
    for m in (16, 64, 128):
        yield f"matmul f16 NT {m}×8192×8192, descriptors", part(matmul_few_rows, m, 8192, 8192)
    for words, epilogue in (("bias and GELU", "gelu"), ("residual", "residual")):
        yield f"matmul f16 NT 4096 + {words}", part(matmul_described, 4096, 4096, 4096, epilogue)
    uneven = [128 * count for count in (3, 21, 8, 9, 1, 14, 2, 6) * 2]
    yield "grouped matmul bf16 16 of 128 to 2688 rows × 4096 × 2048", part(matmul_grouped, uneven, 4096, 2048, brain)
    yield "batched matmul f16 16 of 2048×2048×1024", part(matmul_grouped, [2048] * 16, 2048, 1024, half)
    for words, sign in (("", 1.0), (" backward", -1.0)):
        yield f"rotary{words} 4×2048, 32 and 8 heads of 128", part(rotary, 4, 2048, 32, 8, 128, sign)
    for words, back in (("", False), (" backward", True)):
        yield f"SwiGLU{words} 8192×11008", part(swiglu, 8192, 11008, back)
        yield f"embedding{words} 16384 of 32000×4096", part(embedding, 32000, 4096, 16384, back)
