"""The works of `gpu_ladder.py`: inputs, launches of ours and of the peers, true results and bars.

`works()` has a builder for each name. Without a GPU the builders make tensors of the host, and only ours run.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from ladder_rows import cross_entropy, embedding, norm, norm_backward, rotary, softmax, swiglu
from ladder_setup import (
    DEVICE,
    GPU,
    LN_2,
    MULTIPROCESSORS,
    OURS,
    Run,
    Setting,
    Work,
    backward,
    by,
    describer,
    empty,
    example,
    label,
    laid_out,
    normal,
    tiles,
    zeros,
)

import ziggurat as zg

# Products of matrices.

WIDE = ((128, 256, 64, 8, 4), (128, 256, 64, 8, 3), (128, 128, 64, 4, 3))
RAGGED = ((128, 128, 64, 8, 3), (64, 128, 64, 4, 4), (128, 128, 32, 8, 4))
BYTES = ((128, 256, 128, 8, 3), (256, 128, 128, 8, 3), (128, 128, 128, 8, 3))
WORDS = ((128, 256, 32, 8, 4), (256, 128, 32, 8, 3), (128, 256, 32, 8, 3))
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
        unit = torch.ones((), device=DEVICE)
        return lambda: torch._scaled_mm(a, b, unit, unit, out_dtype=out.dtype)
    return (lambda: torch._int_mm(a, b)) if a.dtype == torch.int8 else lambda: torch.mm(a, b, out=out)


def matmul(dtype: Any, form: str, m: int, n: int, k: int) -> Work:
    """The product by pointers, its text unchanged."""
    products, tolerance, shapes = PRODUCTS[dtype]
    whole = dtype == torch.int8
    a, b = (
        (torch.randint(-20, 20, shape, device=DEVICE) if whole else normal(*shape)).to(dtype)
        for shape in ((m, k), (k, n))
    )
    a, b = laid_out(a, form[0]), laid_out(b, form[1])
    out = empty(m, n, dtype=products)

    def launch(kernels: Any, setting: Setting, a: Any = a, b: Any = b) -> None:
        tl = kernels.tl
        grid = (-(-m // setting["M"]) * -(-n // setting["N"]),)
        more = {"GROUP": 8, "SUM": tl.int32 if whole else tl.float32} | setting
        if more.pop("TURNED", 0):
            kernels.turn[k // 128, m // 128](a.view(torch.int8), by_rows.view(torch.int8), k, m, 128, 128, num_warps=8)
            a = by_rows
        kernels.matmul[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), n, 1, **more)

    settings = tiles(*(RAGGED if n % 8 else shapes))
    settings += [settings[0] | {"GROUP": group} for group in (4, 16)]
    theirs, by_rows = [*settings], a
    if shapes is BYTES and form == "TN":
        # wgmma reads both operands with their neighbours along k. A kernel turns the first, and the product the second.
        by_rows = torch.empty_like(a, memory_format=torch.contiguous_format)
        settings += [setting | {"TURNED": 1} for setting in settings[:2]]
    runs = by(launch, settings, theirs)
    bars: dict[str, float] = {"cuBLAS": 0.95, "Triton": 1.0}
    if dtype == torch.float32:
        bars = {"cuBLAS": 0.85}
    elif dtype not in (torch.float16, torch.bfloat16):
        bars = {"cuBLAS": 1.0, "Triton": 1.0} if form == "NT" else {"ours NT": 0.8}
    if "ours NT" in bars:
        transposed = functools.partial(launch, a=a.contiguous(), b=laid_out(b, "T"))
        runs["ours NT"] = {label(setting): functools.partial(transposed, OURS, setting) for setting in theirs}
    if GPU:
        runs["cuBLAS"] = {"": library_product(a, b, torch.empty_like(out))}
    return Work(
        2e-12 * m * n * k, "TFLOP/s", runs, [out], lambda: [a[:256].double() @ b.double()], tolerance, bars
    )  # fmt: skip


def matmul_described(m: int, n: int, k: int, epilogue: str = "") -> Work:
    a, b, bias, rest = (normal(*shape, dtype=torch.float16) for shape in ((m, k), (n, k), (n,), (m, n)))
    out, describe = empty(m, n, dtype=torch.float16), describer()

    def launch(kernels: Any, setting: Setting, plain: bool = False) -> Any:
        setting = {"GROUP": 8, "EPILOGUE": "" if plain else ending, **setting}
        turn, halves, blocks = setting.pop("persistent", 0), setting.get("HALVES", 0), setting.get("BLOCKS", 1)
        M, N, K = (setting[name] for name in "MNK")
        count, width = -(-m // (M * blocks)) * -(-n // N), N // 2 if halves else N
        shapes = ((a, M, K), (b, N, K), (out, M, width), (rest, M, width))
        descriptor, two, three, last = (describe(kernels, *shape) for shape in shapes)
        grid = (min(count, MULTIPROCESSORS) if turn else count,)
        extras = bias if "gelu" in setting["EPILOGUE"] else None, last if setting["EPILOGUE"] == "residual" else None
        kernel = kernels.matmul_rows if blocks > 1 else kernels.matmul_blocks
        kernel[grid](descriptor, two, three, *extras, m, n, k, **setting)
        return [] if plain else None

    ending = "quick gelu" if GPU and epilogue == "gelu" else epilogue
    plain = tiles((128, 256, 64, 8, 3), (128, 128, 64, 4, 3), ROLES=False)
    roles = [
        *tiles((128, 256, 64, 8, 3), ROLES=True), *tiles((128, 256, 64, 8, 3), ROLES=True, persistent=1),
        # Two blocks of rows, each of warps of its own.
        *tiles((64, 256, 64, 4, 3), BLOCKS=2, ROLES=True, persistent=1),
        *tiles((64, 256, 64, 4, 3), BLOCKS=2, ROLES=True, persistent=1, GROUP=16),
    ]  # fmt: skip
    how: Setting = {"ROLES": True, "persistent": 1} if epilogue else {"ROLES": False}
    halves = [
        setting | {"GROUP": group} for setting in tiles((128, 256, 64, 8, 3), HALVES=1, **how) for group in (4, 8)
    ]
    smaller = tiles((128, 128, 64, 8, 3), ROLES=False) if epilogue else []
    runs = by(launch, plain + roles + halves, plain + smaller + tiles((128, 256, 64, 8, 3), ROLES=False, persistent=1))
    bars = {"Triton": 1.0, "ours, plain": 0.95} if epilogue else {"cuBLAS": 1.0}
    if epilogue:
        runs["ours, plain"] = {
            label(setting): functools.partial(launch, OURS, setting, plain=True) for setting in plain + roles
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
    a, b, describe = normal(m, k, dtype=torch.float16), normal(n, k, dtype=torch.float16), describer()
    out = empty(m, n, dtype=torch.float16)

    def launch(kernels: Any, setting: Setting) -> None:
        arguments = describe(kernels, a, m, setting["K"]), describe(kernels, b, setting["N"], setting["K"]), out
        kernels.matmul_few_rows[(n // setting["N"],)](*arguments, m, n, k, M=m, **setting)

    few = {"K": 128, "num_warps": 4, "num_stages": 4}
    settings = [few | {"N": 64, "ROLES": False, "APART": apart} for apart in (0, 3)]
    # Two CTAs that load the rows together.
    settings += [few | {"N": 128, "ROLES": True, "APART": apart, "num_ctas": 2} for apart in (1, 3)]
    return product_by_cublas(a, b, out, by(launch, settings, settings[:2]))


def matmul_parts(m: int, n: int, k: int) -> Work:
    """Parts of k by programs that wait for each other; on a CPU, one part, as programs may not wait there."""
    a, b, describe = normal(m, k, dtype=torch.float16), normal(n, k, dtype=torch.float16), describer()
    out, sums = empty(m, n, dtype=torch.float16), empty(4, m, n)
    counts = {parts: zeros(m // 128 * n // 128) for parts in (1, 4)}

    def launch(kernels: Any, setting: Setting) -> None:
        M, N, K, parts = (setting[name] for name in ("M", "N", "K", "PARTS"))
        arguments = describe(kernels, a, M, K), describe(kernels, b, N, K), out, sums, counts[parts]
        # A cooperative launch fails where the programs do not all fit at once.
        grid, together = (m // M * (n // N) * parts,), {"launch_cooperative_grid": True} if GPU else {}
        kernels.matmul_parts[grid](*arguments, m, n, k, **setting, **together)

    settings = [
        setting | {"PARTS": setting["N"] // 32 if GPU else 1, "ROLES": roles}
        for setting in tiles((128, 128, 64, 8, 6))
        for roles in (True, False)
    ]
    return product_by_cublas(a, b, out, by(launch, settings))


def product_by_cublas(a: Any, b: Any, out: Any, runs: Any) -> Work:
    if GPU:
        runs["cuBLAS"] = {"": lambda: torch.mm(a, b.T)}
    amount = 2e-12 * a.shape[0] * b.numel()
    return Work(amount, "TFLOP/s", runs, [out], lambda: [a.double() @ b.double().T], 2e-3, {"cuBLAS": 1.0})


def matmul_grouped(rows: Sequence[int], n: int, k: int, dtype: Any) -> Work:
    """Each group of rows by a matrix of its own. The groups are of whole tiles."""
    m, experts = sum(rows), len(rows)
    a, b = normal(m, k, dtype=dtype), normal(experts * n, k, dtype=dtype)
    out, describe = empty(m, n, dtype=dtype), describer()
    numbers = torch.repeat_interleave(torch.arange(experts), torch.tensor(rows) // 128).to(DEVICE, torch.int32)

    def launch(kernels: Any, setting: Setting) -> None:
        setting = dict(setting)
        turn = setting.pop("persistent", 0)
        M, N, K = (setting[name] for name in "MNK")
        arguments = describe(kernels, a, M, K), describe(kernels, b, N, K), describe(kernels, out, M, N)
        count = m // M * (n // N)
        grid = (min(count, MULTIPROCESSORS) if turn else count,)
        kernels.matmul_grouped[grid](*arguments, numbers, m // M, n, k, GROUP=8, **setting)

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

# Blocks of queries and keys, warps, stages, roles, CTAs an SM that take several tiles each, parts of the output, heads
# of a group, and the limit of registers.
FORWARD = {
    64: (
        (256, 64, 16, 3, True, 1), (64, 128, 4, 2, True), (64, 128, 4, 2, True, 2),
        (64, 64, 4, 3, True, 3, 1, 4, 80),
    ),
    128: ((128, 128, 8, 2, True), (128, 128, 8, 2, True, 1), (64, 64, 4, 3, True)),
    256: ((128, 64, 8, 2, True), (128, 64, 8, 2, True, 1, 4, 1)),
}  # fmt: skip
# Two or three blocks of queries a tile, each of warps of its own: the same, and how many blocks.
SEVERAL = {
    64: ((64, 128, 4, 2, True, 0, 3), (64, 128, 4, 3, True, 1, 3), (64, 64, 4, 3, True, 1, 3)),
    128: ((64, 128, 4, 2, True, 0, 2), (64, 128, 4, 2, True, 1, 2)),
    256: (),
}
TRITON_FORWARD = {
    64: ((128, 64, 4, 3), (64, 128, 4, 2)),
    128: ((64, 64, 4, 3), (128, 128, 8, 2)),
    256: ((128, 64, 8, 2), (64, 64, 4, 2)),
}


def sdpa(q: Any, k: Any, v: Any, **options: Any) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, **options)


def attention(dtype: Any, d: int, causal: bool, n: int, batch: int, heads: int, key_heads: int = 0) -> Work:
    key_heads = key_heads or heads
    q = normal(batch, heads, n, d).to(dtype)
    k, v = (normal(batch, key_heads, n, d).to(dtype) for _ in "kv")
    out_dtype = torch.float16 if dtype == E4M3 else dtype
    out, lse, describe = empty(batch, heads, n, d, dtype=out_dtype), empty(batch * heads, n), describer()

    def launch(kernels: Any, setting: Setting) -> None:
        options = {"CAUSAL": causal, "SHARED": heads // key_heads, "D": d, "LANES": kernels is OURS and d < 256}
        options |= {"ROLES": False, "TILES": 0, "PARTS": 1, "GROUP": 4, "PAIRS": False, "ONCE": False} | setting
        options["GROUP"] = math.gcd(options["GROUP"], batch * heads)
        M, N, count = options["M"], options["N"], options.get("BLOCKS", 1)
        blocks = ((q, M, d), (k, N, d), (v, N, d), (out, M, d // options["PARTS"]))
        arguments = [describe(kernels, *block) for block in blocks]
        tiles = -(-n // (M * count)) * batch * heads
        grid = (min(tiles, options["TILES"] * MULTIPROCESSORS) if options["TILES"] else tiles,)
        kernel = kernels.attention_blocks if count > 1 else kernels.attention
        if count > 1:
            options = {name: value for name, value in options.items() if name not in ("PARTS", "PAIRS", "ONCE")}
        kernel[grid](*arguments, lse, n, batch * heads, d**-0.5, **options)

    names = ("M", "N", "num_warps", "num_stages", "ROLES", "TILES", "PARTS", "GROUP", "maxnreg")
    ours, theirs = (
        [dict(zip(names, setting, strict=False)) for setting in each[d]] for each in (FORWARD, TRITON_FORWARD)
    )
    if causal:
        ours += [setting | {"PAIRS": True} for setting in ours if setting.get("TILES") and n // setting["M"] % 2 == 0]
        ours += [setting | {"ONCE": True} for setting in ours]
    if dtype != E4M3:  # Threads turn values of 8 bits, so there are no roles.
        ours += [dict(zip((*names[:6], "BLOCKS"), setting, strict=True)) for setting in SEVERAL[d]]
    runs = by(launch, ours, theirs)
    if GPU and dtype != E4M3:
        runs["cuDNN"] = {"": lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=key_heads != heads)}

    def true() -> Any:
        tensor = (x[:1, :1].double() for x in (q, k, v))
        return [F.scaled_dot_product_attention(*tensor, is_causal=causal)]

    amount = 4e-12 * batch * heads * n * n * d * (0.5 if causal else 1)
    # PyTorch does not offer cuDNN's attention of fp8.
    bars = {"Triton": 1.0} if dtype == E4M3 else {"cuDNN": 1.0}
    return Work(amount, "TFLOP/s", runs, [out], true, {torch.float16: 5e-3, E4M3: 0.1}.get(dtype, 2e-2), bars)


def attention_backward(d: int, causal: bool, n: int, batch: int, heads: int) -> Work:
    """The gradients of queries, keys and values: by two kernels, or by one that adds those of queries in memory."""
    q, k, v, dout = (normal(batch, heads, n, d, dtype=torch.float16) for _ in range(4))
    out, lse = empty(batch, heads, n, d, dtype=torch.float16), empty(batch * heads, n)
    dq, dk, dv = (torch.empty_like(q) for _ in range(3))
    delta, wide, scale = torch.empty_like(lse), empty(batch * heads * n, d), d**-0.5
    describe = describer()
    for head in range(batch * heads):
        scores = q.view(-1, n, d)[head].double() @ k.view(-1, n, d)[head].double().T * scale
        if causal:
            scores.masked_fill_(~torch.ones(n, n, dtype=torch.bool, device=DEVICE).tril(), -float("inf"))
        lse[head] = torch.logsumexp(scores, 1) / LN_2
        out.view(-1, n, d)[head] = (torch.softmax(scores, 1) @ v.view(-1, n, d)[head].double()).half()

    def launch(kernels: Any, setting: Setting) -> None:
        M, N, rows = setting["M"], setting["N"], setting.get("rows")
        options: dict[str, Any] = {"CAUSAL": causal, "D": d, "ROLES": setting["ROLES"], "num_stages": 2}

        def blocks(rows: int, *tensors: Any) -> list[Any]:
            return [describe(kernels, tensor, rows, d) for tensor in tensors]

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
    shapes = [(64, 128, 8, False, 128, 64, 8), (64, 64, 4, True, 64, 128 * 64 // d, 4)]
    shapes += [(64, 128, 8, True, 64, 64, 4)] if d == 128 else [(64, 64, 4, True), (64, 128, 8, False)]
    names = ("M", "N", "num_warps", "ROLES", "rows", "columns", "warps of rows")
    runs = by(launch, [dict(zip(names, shape, strict=False)) for shape in shapes])
    kernel = zg.grad(example("attention").attention_kernel, wrt=("q_desc", "k_desc", "v_desc"), of="out_desc")

    def generated() -> Any:
        for gradient in (dq, dk, dv):
            gradient.zero_()
        pairs = ((q, dq), (k, dk), (v, dv), (out, dout))
        descriptors = [zg.TensorDescriptor(tensor.view(-1, d), [64, d]) for pair in pairs for tensor in pair]
        shapes = {"CAUSAL": causal, "BLOCK_M": 64, "BLOCK_N": 64, "D": d, "num_warps": 4}
        kernel[n // 64, batch * heads](*descriptors, n, scale, **shapes)

    runs["generated"] = {"64×64 by 4": generated}
    if GPU:
        runs["cuDNN"] = {"": backward(functools.partial(sdpa, is_causal=causal), (q, k, v), dout)}

    def true() -> Any:
        inputs = [tensor[:1, :1].double().requires_grad_() for tensor in (q, k, v)]
        output = F.scaled_dot_product_attention(*inputs, is_causal=causal)
        return torch.autograd.grad(output, inputs, dout[:1, :1].double())

    amount = 10e-12 * batch * heads * n * n * d * (0.5 if causal else 1)
    return Work(amount, "TFLOP/s", runs, [dq, dk, dv], true, 1e-2, {"cuDNN": 0.9})


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """The works in the order of their value, by name."""
    half, brain, part = torch.float16, torch.bfloat16, functools.partial
    forms = ("NN", "NT", "TN", "TT")
    for form, size in itertools.product(forms, (4096, 8192, 2048)):
        yield f"matmul f16 {form} {size}", part(matmul, half, form, size, size, size)
    for m, n, k in ((8192, 8192, 512), (3001, 3001, 3001), (4000, 4000, 4000), (16384, 1024, 4096)):
        yield f"matmul f16 NN {m}×{n}×{k}", part(matmul, half, "NN", m, n, k)
    for form in forms[1:]:
        yield f"matmul f16 {form} 4000×4000×4000", part(matmul, half, form, 4000, 4000, 4000)
    for form in forms:
        yield f"matmul bf16 {form} 4096", part(matmul, brain, form, 4096, 4096, 4096)
    kinds = {"fp8 e4m3": E4M3, "int8": torch.int8, "tf32": torch.float32, "fp8 e5m2": E5M2}
    for (name, kind), form in itertools.product(kinds.items(), ("NT", "NN", "TN", "TT")):
        yield f"matmul {name} {form} 4096", part(matmul, kind, form, 4096, 4096, 4096)
    for n, d, causal in itertools.product((4096, 1024, 16384), (128, 64, 256), (False, True)):
        shape = d, causal, n, 16384 // n, 16 if d == 256 else 32
        yield f"attention f16 D{d}{' causal' * causal} {n}", part(attention, half, *shape)
    for d, causal in itertools.product((128, 64, 256), (False, True)):
        shape = d, causal, 4096, 4, 16 if d == 256 else 32
        yield f"attention bf16 D{d}{' causal' * causal} 4096", part(attention, brain, *shape)
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
    yield "matmul f16 NT 512×1024×16384, parts of k", part(matmul_parts, 512, 1024, 16384)
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
