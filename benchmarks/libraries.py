"""Kernels in Triton's Python, compiled by ziggurat, against libraries: works that the ladder lacks.

    PYTHONPATH=build/liger:build/fla benchmarks/on_device.sh python3 benchmarks/libraries.py OUT.json

Liger-Kernel and flash-linear-attention are unpacked wheels (`pip download --no-deps liger-kernel fla-core einops`),
which run by the Triton that is installed. A peer that does not import has no figure. The options, the measurement and
the report are those of `gpu_ladder.py`: one process, launches in turn, N(0,1) data, results checked against float64,
ours in its fastest setting.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpu_ladder
import torch
import torch.nn.functional as F
from kernels_by_ziggurat import loaded
from ladder_rows import by_rows, from_liger, long_rows
from ladder_setup import (
    DEVICE,
    GPU,
    LN_2,
    MULTIPROCESSORS,
    Run,
    Setting,
    Work,
    backward,
    describer,
    empty,
    label,
    normal,
    zeros,
)

import ziggurat as zg
from ziggurat.triton.tools.tensor_descriptor import TensorDescriptor

KERNELS = loaded("kernels_libraries")
HALF, BRAIN, E4M3 = torch.float16, torch.bfloat16, torch.float8_e4m3fn
torch.backends.cudnn.benchmark = True


def ours(launch: Callable[[Setting], Any], *settings: Setting) -> dict[str, dict[str, Run]]:
    return {"ours": {label(setting): functools.partial(launch, setting) for setting in settings}}


def named(names: str, *settings: Sequence[Any]) -> list[Setting]:
    """Settings from their values, in the order of the names; the last two are warps and stages."""
    return [dict(zip((*names.split(), "num_warps", "num_stages"), each, strict=True)) for each in settings]


def linear_cross_entropy(tokens: int, width: int, words: int) -> Work:
    """The mean loss of tokens by a product with the words' weights, and its gradients. The logits of a chunk of tokens
    are kept until the gradients are computed."""
    x = normal(tokens, width, dtype=BRAIN)
    w = normal(words, width).mul(width**-0.5).to(BRAIN)
    labels, losses = torch.randint(0, words, (tokens,), device=DEVICE), empty(tokens)
    dx, dw, logits = torch.empty_like(x), torch.empty_like(w), empty(min(tokens, 2048), words, dtype=BRAIN)

    def launch(setting: Setting) -> None:
        chunk = setting["CHUNK"]
        rows = logits[:chunk]
        for first in range(0, tokens, chunk):
            own = slice(first, first + chunk)
            product(x[own], w.T, rows, setting)
            steps = long_rows(rows, rows, labels[own], losses[own], 1 / tokens)["ours"]
            next(run for name, run in steps.items() if not GPU or "ctas" in name)()
            product(rows, w, dx[own], setting)
            product(rows.T, x[own], dw, setting, first > 0)

    def product(a: Any, b: Any, out: Any, setting: Setting, add: bool = False) -> None:
        (m, k), n = a.shape, b.shape[1]
        M, N = setting["M"], setting["N"]
        KERNELS.product[(zg.cdiv(m, M) * zg.cdiv(n, N),)](
            a, b, out, m, n, k, *a.stride(), *b.stride(), M=M, N=N, K=64, GROUP=setting["GROUP"], ADD=add,
            num_warps=8, num_stages=4,
        )  # fmt: skip

    def by_liger(apply: Any) -> Run:
        leaves = [tensor.clone().requires_grad_() for tensor in (x, w)]
        return lambda: torch.autograd.grad(apply(*leaves, labels)[0], leaves)

    chunks = [{"CHUNK": chunk, "M": 128, "N": 256, "GROUP": group} for chunk in (1024, 2048) for group in (8, 16)]
    runs = ours(launch, *[chunk for chunk in chunks if chunk["CHUNK"] <= tokens])
    from_liger(runs, "fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction", by_liger)

    def true() -> Any:
        scores = x.double() @ w.double().T
        lse, own = torch.logsumexp(scores, 1), scores.gather(1, labels[:, None])[:, 0]
        slopes = torch.exp(scores - lse[:, None]).scatter_add_(1, labels[:, None], -torch.ones_like(lse)[:, None])
        return [slopes[:256] @ w.double() / tokens, slopes[:, :1024].T @ x.double() / tokens, lse - own]

    return Work(6e-12 * tokens * width * words, "TFLOP/s", runs, [dx, dw, losses], true, 2e-2, {"Liger": 2.5})


def decode(batch: int, tokens: int, heads: int, key_heads: int = 0, d: int = 128, rope: int = 0) -> Work:
    """A token of each sequence attends to those before, whose keys and values are in pages of 64 tokens. With `rope`,
    all heads have the same keys: d numbers, which are the values too, and more for the rotary embedding."""
    page, pages, shared = 64, tokens // 64, heads // (key_heads or 1)
    q = normal(batch, heads, d + rope, dtype=BRAIN)
    caches = [normal(batch * tokens, (key_heads or 1) * d + rope, dtype=BRAIN) for _ in ("k", "v")[: 1 + (not rope)]]
    table = torch.randperm(batch * pages, device=DEVICE).int().view(batch, pages)
    out, scale, describe = (
        empty(batch, heads, d, dtype=BRAIN),
        (d + rope) ** -0.5 if not rope else 192**-0.5,
        describer(),
    )
    sums, lse = empty(4 * batch * heads, d), empty(4 * batch * heads)

    def launch(setting: Setting) -> None:
        n, parts = setting["N"], setting["PARTS"]
        options = {"PAGE": page, "D": d, **setting}
        blocks = [describe(KERNELS, cache, n, d) for cache in caches]
        more = table, sums, lse, pages, scale / LN_2
        if rope:
            options |= {"ROWS": heads, "ROPE": rope}
            KERNELS.decode_latent[batch, parts](q, *blocks, describe(KERNELS, caches[0], n, rope), *more, **options)
        else:
            options |= {"HEADS": key_heads, "ROWS": shared}
            KERNELS.decode_pages[batch * key_heads, parts](q, *blocks, *more, **options)
        KERNELS.decode_sum[(batch * heads,)](sums, lse, out, batch * heads, D=d, PARTS=parts, num_warps=4)

    if rope:
        wide = ((32, 3, 4), (64, 2, 4)) if heads <= 32 else ((32, 2, 8), (32, 3, 8))
        shapes = [(n, parts, warps, stages) for n, stages, warps in wide for parts in (1, 2, 4)]
        shapes += [(64, parts, 8, 2) for parts in (1, 2) if heads == 32]
    else:
        shapes = [(64, parts, warps, stages) for parts in (1, 2, 4) for warps, stages in ((4, 3), (2, 3), (4, 2))]

    def true() -> Any:
        few = min(batch, 4)
        rows = (table[:few, :, None] * page + torch.arange(page, device=DEVICE)).view(few, -1).long()
        k, v = (cache[rows].double().view(few, tokens, key_heads or 1, -1) for cache in (caches * 2)[:2])
        queries = q[:few].double().view(few, key_heads or 1, shared, -1)
        powers = torch.softmax(torch.einsum("bhgd,bthd->bhgt", queries, k) * scale, -1)
        return [torch.einsum("bhgt,bthd->bhgd", powers, v[..., :d])]

    size = sum(cache.nbytes for cache in caches)
    return by_rows(size, ours(launch, *named("N PARTS", *shapes)), [out], true, 2e-2, {"copy": 0.8})


def weights_of_4_bits(m: int, n: int, k: int) -> Work:
    """Few rows by weights of 4 bits with a scale for each 128 of them, and the peer by the same weights in f16."""
    x, w = normal(m, k, dtype=HALF), normal(n, k // 128, 128)
    scales = (w.abs().amax(2) / 7).to(HALF)
    numbers = (w / scales[..., None]).round().clamp(-8, 7)
    codes = (numbers + 8).to(torch.uint8).view(n, k // 128, 2, 64)
    packed = (codes[:, :, 0] | codes[:, :, 1] << 4).transpose(0, 1).contiguous()
    wide = (numbers * scales[..., None]).view(n, k).to(HALF)
    scales, out = scales.T.contiguous(), empty(m, n, dtype=HALF)
    sums, counts = empty(16 * n * 16), zeros(n)

    def launch(setting: Setting) -> None:
        grid = n // setting["N"], setting["PARTS"]
        KERNELS.few_rows_of_4_bits[grid](x, packed, scales, out, sums, counts, m, n, K=k, M=16, **setting)

    shapes = [(64, 8, 4, 4), (64, 4, 4, 4), (64, 16, 4, 2), (128, 8, 4, 4), (128, 8, 8, 4), (128, 4, 8, 4)]
    shapes += [(64, 1, 4, 4), (64, 2, 4, 4), (128, 2, 4, 4), (128, 16, 4, 2)]
    runs = ours(launch, *named("N PARTS", *shapes))
    if GPU:
        runs["cuBLAS"] = {"": lambda: torch.mm(x, wide.T)}
    return Work(
        2e-12 * m * n * k, "TFLOP/s", runs, [out], lambda: [x.double() @ wide.double().T], 5e-3, {"cuBLAS": 1.5}
    )


def fp8_by_blocks(m: int, n: int, k: int) -> Work:
    """A product of f8 with scales of 1×128 and of 128×128 numbers."""
    a, b = normal(m, k // 128, 128), normal(n // 128, 128, k // 128, 128)
    a_scale, b_scale = a.abs().amax(2) / 448, b.abs().amax((1, 3)) / 448
    a, b = (a / a_scale[..., None]).to(E4M3), (b / b_scale[:, None, :, None]).to(E4M3)
    wide = [
        (a.double() * a_scale[..., None])[:256].view(-1, k),
        (b.double() * b_scale[:, None, :, None]).view(n, k),
    ]
    a, b, a_scale = a.view(m, k), b.view(n, k), a_scale.T.contiguous()
    out, describe = empty(m, n, dtype=BRAIN), describer()

    def launch(setting: Setting) -> None:
        setting = dict(setting)
        turn, M, N = setting.pop("persistent"), setting["M"], setting["N"]
        count = zg.cdiv(m, M * setting["BLOCKS"]) * zg.cdiv(n, N)
        blocks = [describe(KERNELS, *each) for each in ((a, M, 128), (b, N, 128), (out, M, N))]
        grid = (min(count, turn * MULTIPROCESSORS) if turn else count,)
        KERNELS.fp8_blocks[grid](*blocks, a_scale, b_scale, m, n, k, **setting)

    shapes = [
        (128, 128, 1, True, 1, 8, 8, 5), (128, 128, 1, True, 1, 4, 8, 5), (128, 128, 1, True, 1, 16, 8, 6),
        (64, 128, 2, True, 1, 8, 4, 5), (64, 128, 2, True, 1, 16, 4, 6),
    ]  # fmt: skip
    if m <= 128:
        shapes = [
            (64, 128, 1, False, 0, 8, 4, 3), (64, 128, 1, False, 0, 8, 4, 6), (64, 64, 1, False, 0, 8, 4, 6),
            (128, 64, 1, False, 0, 8, 8, 6), (128, 64, 1, True, 1, 8, 8, 8), (128, 32, 1, False, 0, 8, 8, 6),
            (64, 64, 1, True, 2, 8, 4, 6),
        ]  # fmt: skip
    runs = ours(launch, *named("M N BLOCKS ROLES persistent GROUP", *shapes))
    if GPU:
        kinds = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
        runs["torch"] = {"": lambda: F.scaled_mm(a, b.T, a_scale.T, kinds[0], b_scale.T, kinds[1])}
    return Work(2e-12 * m * n * k, "TFLOP/s", runs, [out], lambda: [wide[0] @ wide[1].T], 1e-2, {"torch": 0.95})


def linear_attention(batch: int, tokens: int, heads: int, d: int, back: bool) -> Work:
    q, k, v, do = (normal(batch, tokens, heads, d, dtype=BRAIN) for _ in range(4))
    outs = [torch.empty_like(q) for _ in range(3 if back else 1)]

    @functools.cache
    def described(tensor: Any, rows: int, columns: int) -> Any:
        return TensorDescriptor.from_tensor(tensor.view(batch * tokens, heads * d), [rows, columns])

    def launch(setting: Setting) -> None:
        rows, width = setting["C"], setting["WIDTH"]
        works = [(do, v, k, outs[0]), (v, do, q, outs[1]), (k, q, do, outs[-1])] if back else [(q, k, v, outs[0])]
        for number, tensors in enumerate(works):
            shapes = zip(tensors, (d, d, width, width), strict=True)
            blocks = [described(tensor, rows, columns) for tensor, columns in shapes]
            grid = batch * heads, d // width
            KERNELS.linear_attention[grid](*blocks, tokens, heads, d**-0.5, D=d, REVERSE=number > 0, **setting)

    shapes = [(64, width, 4, stages) for width in (32, 64, 128) if width <= d for stages in (2, 3)]
    shapes += [(128, 64, 8, 2), (64, 64, 8, 3)] if d >= 64 else []
    runs = ours(launch, *named("C WIDTH", *shapes))
    if GPU and importlib.util.find_spec("fla") is not None:
        peer = importlib.import_module("fla.ops.linear_attn").chunk_linear_attn
        chunked = lambda q, k, v: peer(q, k, v, normalize=False)[0]  # noqa: E731
        runs["FLA"] = {"": backward(chunked, (q, k, v), do) if back else lambda: chunked(q, k, v)}

    def true() -> Any:
        leaves = [tensor[0].double().transpose(0, 1).requires_grad_() for tensor in (q, k, v)]
        o = ((leaves[0] @ leaves[1].transpose(1, 2)) * d**-0.5).tril() @ leaves[2]
        results = torch.autograd.grad(o, leaves, do[0].double().transpose(0, 1)) if back else [o.detach()]
        return [result.transpose(0, 1) for result in results]

    amount = 1e-12 * batch * tokens * heads * (4 * d * d + 4 * 64 * d) * (3 if back else 1)
    return Work(amount, "TFLOP/s", runs, outs, true, 2e-2, {"FLA": 1.2})


def convolution(dtype: Any, batch: int, size: int, channels: int) -> Work:
    """3×3, padded by one, channels last, of as many filters as channels."""
    x, w = normal(batch, size, size, channels, dtype=dtype), normal(channels, 3, 3, channels, dtype=dtype)
    out = torch.empty_like(x)

    @functools.cache
    def described(tensor: Any, *block: int) -> Any:
        return TensorDescriptor.from_tensor(tensor, list(block))

    def launch(setting: Setting) -> None:
        n = setting["N"]
        weights = described(w.view(channels, -1), n, 64)
        images, side = setting["IMAGES"], setting["ROWS"]
        pixels = [described(tensor, images, side, side, width) for tensor, width in ((x, 64), (out, n))]
        grid = channels // n, zg.cdiv(size, side) ** 2 * (batch // images)
        KERNELS.conv3x3[grid](
            pixels[0], weights, pixels[1], size, size, C=channels, COLUMNS=side, K=64, **setting
        )  # fmt: skip

    side = {56: 8, 28: 4, 14: 2}[size]
    tiles = [
        (128, 64, False, 4, 4), (128, 64, True, 4, 4), (64, 64, False, 4, 6), (64, 128, False, 4, 5),
        (256, 64, True, 8, 4), (128, 128, False, 4, 3), (128, 128, True, 8, 5), (256, 128, True, 8, 4),
        (128, 256, True, 8, 4),
    ]  # fmt: skip
    settings = named("IMAGES ROWS N ROLES", *[(m // side**2, side, *more) for m, *more in tiles])
    settings = [each for each in settings if each["N"] <= channels and each["IMAGES"] <= batch]
    runs = ours(launch, *settings)
    first = [tensor.permute(0, 3, 1, 2) for tensor in (x, w)]
    if GPU:
        runs["cuDNN"] = {"": lambda: F.conv2d(*first, padding=1).permute(0, 2, 3, 1)}

    def true() -> Any:
        return [F.conv2d(first[0][:4].double(), first[1].double(), padding=1).permute(0, 2, 3, 1)]

    amount = 18e-12 * x.numel() * channels
    return Work(amount, "TFLOP/s", runs, [out], true, {HALF: 2e-3, BRAIN: 1e-2}[dtype], {"cuDNN": 0.9})


def works() -> Iterator[tuple[str, Callable[[], Work]]]:
    """The works by name."""
    part = functools.partial
    for shape in ((4096, 4096, 128256), (8192, 2048, 128256), (8192, 4096, 32000)):
        yield "fused linear and cross entropy bf16 {}×{}×{}".format(*shape), part(linear_cross_entropy, *shape)
    for heads, batch, tokens in ((16, 128, 4096), (16, 32, 16384), (32, 128, 4096), (64, 128, 4096)):
        work = part(decode, batch, tokens, heads, d=512, rope=64)
        yield f"MLA decode bf16 H{heads}, {batch} of {tokens} tokens", work
    for heads, key_heads, batch, tokens in ((64, 8, 64, 8192), (32, 8, 16, 8192), (32, 8, 128, 2048)):
        work = part(decode, batch, tokens, heads, key_heads)
        yield f"paged decode bf16 G{heads // key_heads}, {batch} of {tokens} tokens", work
    for m, n, k in ((16, 4096, 4096), (1, 4096, 4096), (16, 14336, 4096), (1, 14336, 4096), (16, 4096, 14336)):
        yield f"W4A16 {m}×{n}×{k}", part(weights_of_4_bits, m, n, k)
    for m, n, k in ((4096, 4096, 7168), (4096, 4096, 4096), (8192, 7168, 2048), (128, 7168, 4096)):
        yield f"fp8 by blocks {m}×{n}×{k}", part(fp8_by_blocks, m, n, k)
    for heads, d in ((16, 128), (32, 64)):
        for words, back in (("", False), (" backward", True)):
            work = part(linear_attention, 8, 4096, heads, d, back)
            yield f"linear attention by chunks{words} bf16 D{d}, 8 of 4096 tokens", work
    for size, channels in ((56, 64), (28, 128), (14, 256), (56, 256)):
        for kind, dtype, batch in (("f16", HALF, 32), ("f16", HALF, 64), ("bf16", BRAIN, 32)):
            name = f"conv {kind} C{channels}, 3×3, {batch} of {size}×{size}"
            yield name, part(convolution, dtype, batch, size, channels)


if __name__ == "__main__":
    sys.exit(gpu_ladder.main(["--works=libraries", *sys.argv[1:]]))
