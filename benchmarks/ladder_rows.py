"""The works of `gpu_ladder.py` that memory bounds, by rows: `amount` is bytes read once and written once."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from ladder_setup import (
    DEVICE,
    GPU,
    MULTIPROCESSORS,
    THEIRS,
    Run,
    Setting,
    Work,
    backward,
    by,
    copy,
    empty,
    example,
    gradients,
    normal,
    zeros,
)

import ziggurat as zg
import ziggurat.triton


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
        for out in outs:
            out.zero_()
        arguments = x, dx, y, dy, w.float(), dw, b.float(), db, mean, rstd
        kernel[(rows,)](*arguments, n, n, 1e-5, BLOCK_SIZE=1024, num_warps=4)
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
        arguments = x, dy, dx, w, mean, rstd, room[0], room[-1], rows, n
        kernels.norm_backward[(count,)](*arguments, RMS=rms, BLOCK=block, **setting)
        kernels.sum_rows[-(-n // 32), 2 - rms](parts, sums, count, n, BLOCK=32, ROWS=64)

    settings = [
        {"num_warps": warps, "each": each} for warps, each in (((16, 1), (32, 1)) if n > 4096 else ((8, 3), (4, 4)))
    ]
    runs = by(launch, settings)
    if THEIRS is not None:
        runs["Triton, same text"] = runs.pop("Triton")
    if THEIRS is not None and not rms:
        count, warps = (96, 8) if n > 4096 else (128, 8)  # As the tutorial chooses them.
        locks = torch.zeros(2, count, dtype=torch.int32, device=DEVICE)

        def locked() -> None:
            locks.zero_()
            room = parts.view(-1)[: 2 * count * n].view(2, count, n)
            arguments = x, dy, dx, w, mean, rstd, room[0], room[1], locks, n
            THEIRS.layer_norm_backward[(rows,)](*arguments, PARTS=count, BLOCK=block, num_warps=warps)
            THEIRS.sum_rows[-(-n // 32), 2](parts, sums, count, n, BLOCK=32, ROWS=64)

        runs["Triton"] = {f"{count} sums by {warps}": locked}
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
    from_liger(runs, module, name, lambda apply: backward(lambda *arguments: apply(*arguments, *more), leaves, dy))
    outs = [dx, *sums]
    # Liger's kernels are Triton's. The same text by Triton is at the copy's speed as well, and no bar.
    bars = dict.fromkeys(("Triton", "Liger", "torch"), 1.2)
    return by_rows(3 * x.nbytes, runs, outs, lambda: gradients(forward, leaves, dy), 1e-2, bars)


def long_rows(x: Any, y: Any, labels: Any, losses: Any, scale: float) -> Any:
    """The launches of `softmax_long`; of ours also `softmax_rows` by clusters of CTAs, and of Triton, whose release 3.6
    has no reductions over clusters, `softmax_by_parts`."""
    rows, n = x.shape
    counts, parts = zeros(rows + 1), empty(2 * rows * -(-n // 2048))

    def launch(kernels: Any, setting: Setting) -> None:
        arguments, loss = (x, y, labels, losses), labels is not None
        if "ROWS" in setting:
            kernels.softmax_long[(rows,)](*arguments, n, scale, LOSS=loss, **setting)
            return
        if "num_ctas" in setting:
            block = ziggurat.triton.next_power_of_2(n)
            each = block * x.element_size() // (16 * 32 * setting["num_warps"] * setting["num_ctas"])
            kernels.softmax_rows[(rows,)](*arguments, n, scale, LOSS=loss, EACH=each, BLOCK=block, **setting)
            return
        count = ziggurat.triton.next_power_of_2(-(-n // setting["BLOCK"]))
        more = parts, counts, rows, n, scale
        kernels.softmax_by_parts[(rows * count,)](*arguments, *more, LOSS=loss, PARTS=count, **setting)

    twice = [{"ROWS": rows, "BLOCK": block, "num_warps": w} for rows, block, w in ((2, 8192, 32), (4, 4096, 16))]
    if not GPU:
        return by(launch, twice)
    clusters = [
        {"num_ctas": 16, "num_warps": w} | more for w, more in ((8, {}), (8, {"maxnreg": 48}), (4, {"maxnreg": 96}))
    ]
    return by(launch, [*twice, *clusters], [*twice, {"BLOCK": 8192, "num_warps": 8}])


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
        logits = x.clone()  # The gradient is written over it.

        def run() -> Any:
            leaf = logits.detach().requires_grad_()
            return torch.autograd.grad(apply(leaf, labels, None)[0], leaf)

        return run

    from_liger(runs, "cross_entropy", "LigerCrossEntropyFunction", by_liger)

    def true() -> Any:
        leaf = x[:64].double().requires_grad_()
        true_losses = F.cross_entropy(leaf, labels[:64], reduction="none")
        return [torch.autograd.grad(true_losses.sum() / rows, leaf)[0], true_losses.detach()]

    bars = {"Liger" if "Liger" in runs else "Triton": 1.0, "copy": 0.9}
    return by_rows(2 * x.nbytes, runs, [dx, losses], true, 1e-2, bars)


def rotary(batch: int, n: int, heads: int, key_heads: int, d: int, sign: float) -> Work:
    q, k = (normal(batch, n, count, d, dtype=torch.bfloat16) for count in (heads, key_heads))
    angles = torch.rand(1, n, d // 2, device=DEVICE).mul(6).repeat(1, 1, 2)
    cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
    outs = [torch.empty_like(q), torch.empty_like(k)]

    def launch(kernels: Any, setting: Setting) -> None:
        arguments = q, k, *outs, cos, sin, n, sign
        kernels.rotary[(batch * n,)](*arguments, HEADS=heads, KEY_HEADS=key_heads, D=d, **setting)

    runs = by(launch, [{"num_warps": 4}, {"num_warps": 8}, {"num_warps": 2}])

    def by_liger(apply: Any) -> Run:
        tensors = [tensor.clone().transpose(1, 2).requires_grad_() for tensor in (q, k)]

        def forward() -> Any:
            return [x.transpose(1, 2) for x in apply(*(x.detach() for x in tensors), cos, sin)]

        outputs = None if sign > 0 else apply(*(tensor * 1 for tensor in tensors), cos, sin)
        back = [tensor.clone().transpose(1, 2) for tensor in (q, k)]
        return forward if sign > 0 else lambda: [
            tensor.transpose(1, 2) for tensor in torch.autograd.grad(outputs, tensors, back, retain_graph=True)
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

    first, after = zeros(words), zeros(count)
    bases = itertools.count(count, count)

    def launch(kernels: Any, setting: Setting) -> None:
        columns = -(-width // setting["BLOCK"])
        if back:
            base = next(bases)
            kernels.chain[(count // 128,)](tokens, first, after, base, BLOCK=128, launch_pdl=True)
            kernels.sum_chains[words, columns](dout, first, after, out, base, width, launch_pdl=True, **setting)
        else:
            kernels.gather[count // setting["ROWS"], columns](table, tokens, out, width, **setting)

    few = ((1024, 2), (2048, 2), (2048, 4), (4096, 4), (4096, 8))
    settings = [{"BLOCK": block, "num_warps": warps} for block, warps in few]
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
