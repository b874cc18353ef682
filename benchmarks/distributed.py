"""Collectives on several GPUs of one host: `ziggurat.distributed`, NCCL, and PyTorch's kernels on symmetric memory.

    benchmarks/on_device.sh python3 benchmarks/distributed.py "$OUT/distributed.json" [--ranks 2] [--sweep] [--quick]

A process for each GPU, NVLink multicast off. First each collective is checked: 100 runs with new N(0, 1) data of
several sizes, while one rank in turn is late by up to 0.1 ms; the result must have the bits of the sum in f32 in the
order of the ranks. Runs in replayed CUDA graphs, and on a side stream, are among them. Then times: microseconds of a
call, the slowest rank, the mean of 20 calls in a replayed graph, and of 100 calls without one; the median of five.
Then products of matrices: (m, 4096) · (4096, 8192) after an all-gather of the rows, and (m, 4096) · (4096, 4096) before
a reduce-scatter, beside NCCL with cuBLAS, PyTorch's fused operators, and the product alone. They are checked against
those in 10 runs. Then tokens of a mixture of experts beside PyTorch's sorts and `all_to_all_single`, which no graph
takes, an all-reduce with bias, residual and norm beside the same apart, and attention over sequences that are divided,
beside a gather of the keys and PyTorch's attention; they are checked against these.
With `--sweep` the programs of a launch and the bytes that a program moves in a round are varied as well.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

SIZES = [1 << power for power in range(14, 27, 2)]  # 16 KB … 64 MB.


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    for name in ("NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS", "TORCH_SYMM_MEM_DISABLE_MULTICAST"):
        os.environ[name] = "0" if name == "NCCL_NVLS_ENABLE" else "1"
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    import torch.multiprocessing as processes

    processes.spawn(rank_main, (options,), options.ranks)


def rank_main(rank: int, options: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=options.ranks, device_id=torch.device("cuda", rank))
    torch.manual_seed(rank)
    errors = checked(torch, dist, 20 if options.quick else 100)
    report: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "ranks": options.ranks, "torch": torch.__version__}
    report |= {"wrong": errors, "us": {}}
    if rank == 0:
        print("wrong results:", errors, flush=True)
    for size in SIZES[::3] if options.quick else SIZES:
        row = report["us"][size] = times_of(torch, dist, size, options.sweep)
        if rank == 0:
            print(f"{size:>9}", {name: [round(t, 1) for t in pair] for name, pair in row.items()}, flush=True)
    report["products"] = {}
    for rows in (2048, 8192) if options.quick else (256, 1024, 2048, 4096, 8192):
        row, far = products(torch, dist, rows)
        report["products"][rows] = row
        errors[f"products of {rows} rows"] = far
        if rank == 0:
            print(f"{rows:>9} rows, wrong {far}", {name: round(t, 1) for name, t in row.items()}, flush=True)
    further = (
        ("tokens", tokens, (512, 4096)),
        ("norms", norms, (64, 512, 4096)),
        ("attention", attention, (4096, 16384)),
    )
    for key, measure, sizes in further:
        report[key] = {}
        for count in sizes[-1:] if options.quick else sizes:
            report[key][count], errors[f"{key}, {count}"] = measure(torch, dist, count)
            if rank == 0:
                row = {name: round(t, 1) for name, t in report[key][count].items()}
                print(f"{count:>9} {key}, wrong {errors[f'{key}, {count}']}", row, flush=True)
    if rank == 0:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    dist.destroy_process_group()
    if any(errors.values()):
        sys.exit(1)


def expected(torch: Any, dist: Any, x: Any, name: str) -> Any:
    """The result of a collective, from the data of all ranks."""
    world, rank = dist.get_world_size(), dist.get_rank()
    parts = [torch.empty_like(x) for _ in range(world)]
    dist.all_gather(parts, x)
    if name == "all_gather":
        return torch.cat(parts)
    total = torch.zeros_like(x, dtype=torch.float32)
    for part in parts:
        total += part.float()
    total = total.to(x.dtype)
    return total if name == "all_reduce" else total.chunk(world)[rank]


def checked(torch: Any, dist: Any, runs: int) -> dict[str, int]:
    """The number of wrong results on all ranks, by collective."""
    from ziggurat import distributed
    from ziggurat.distributed import collectives

    world, rank = dist.get_world_size(), dist.get_rank()
    side = torch.cuda.Stream()
    wrong = dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter"), 0)
    sizes = [8 * world, 1000 * world, 8192, 1 << 18, (1 << 20) + 8 * world, 1 << 24]
    for name in wrong:
        call: Callable[[Any], Any] = getattr(distributed, name)
        for run in range(runs):
            dtype = (torch.bfloat16, torch.float32, torch.float16)[run % 3]
            x = torch.randn(sizes[run % len(sizes)] // world * world, device="cuda").to(dtype)
            want = expected(torch, dist, x, name)
            way = ("plain", "side stream", "graph")[run // 3 % 3]
            call(torch.randn_like(x))  # Makes the workspace, and leaves other data in it.
            torch.cuda.synchronize()
            if run % world == rank:
                torch.cuda._sleep(int(torch.randint(1, 200_000, ()).item()))
            if way == "graph":
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    results = [call(x), call(x)]
                for result in results:
                    result.fill_(7)
                graph.replay()
                graph.replay()
            elif way == "side stream":
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    results = [call(x), call(x)]
                torch.cuda.current_stream().wait_stream(side)
            else:
                results = [call(x)]
            torch.cuda.synchronize()
            # Beyond a size NCCL does it, whose sums are in an order of its own.
            is_exact = name == "all_gather" or x.numel() * x.element_size() <= collectives.max_bytes(world)
            same = torch.equal if is_exact else functools.partial(torch.allclose, rtol=0.05, atol=0.2)
            wrong[name] += not all(same(result, want) for result in results)
    total = torch.tensor([*wrong.values()], device="cuda")
    dist.all_reduce(total)
    return dict(zip(wrong, total.tolist(), strict=True))


def times_of(torch: Any, dist: Any, size: int, sweep: bool) -> dict[str, tuple[float, ...]]:
    """For each way, the microseconds of a call in a CUDA graph, and without one."""
    import torch.distributed._symmetric_memory as symmetric

    from ziggurat import distributed
    from ziggurat.distributed import collectives

    group = dist.group.WORLD
    world, count = dist.get_world_size(), size // 2
    x = torch.randn(count, device="cuda").bfloat16()
    part = torch.empty(count // world, device="cuda", dtype=torch.bfloat16)
    whole = torch.empty(count * world, device="cuda", dtype=torch.bfloat16)
    shared = symmetric.empty(count, device="cuda", dtype=torch.bfloat16)
    symmetric.rendezvous(shared, group.group_name)
    shared.copy_(x)
    y = x.clone()
    ops = torch.ops.symm_mem
    ways: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: distributed.all_reduce(x),
        "all_reduce nccl": lambda: dist.all_reduce(y),
        "all_reduce torch one-shot": lambda: ops.one_shot_all_reduce(shared, "sum", group.group_name),
        "all_reduce torch two-shot": lambda: ops.two_shot_all_reduce_(shared, "sum", group.group_name),
        "all_gather": lambda: distributed.all_gather(x),
        "all_gather nccl": lambda: dist.all_gather_into_tensor(whole, x),
        "reduce_scatter": lambda: distributed.reduce_scatter(x),
        "reduce_scatter nccl": lambda: dist.reduce_scatter_tensor(part, x),
    }
    times = {name: tuple(measured(torch, dist, call, way) for way in (True, False)) for name, call in ways.items()}
    if sweep:
        original = collectives.Division.of
        for programs in (64, 128, 256):
            for chunk_bytes in (1 << 14, 1 << 15, 1 << 16):
                limit = functools.partial(limited, original, programs, chunk_bytes)
                collectives.Division.of = limit
                collectives._prepared.clear()
                label = f"all_reduce {programs} programs {chunk_bytes >> 10} KB"
                times[label] = (measured(torch, dist, ways["all_reduce"], True), 0.0)
        collectives.Division.of = original
        collectives._prepared.clear()
    return times


def products(torch: Any, dist: Any, rows: int) -> tuple[dict[str, float], int]:
    """The microseconds of products with so many rows in all, in a CUDA graph, and the number of wrong results."""
    from ziggurat import distributed

    world, name = dist.get_world_size(), dist.group.WORLD.group_name
    fused = torch.ops.symm_mem
    torch.manual_seed(1)
    w = torch.randn(4096, 8192, device="cuda").bfloat16() / 64
    v = torch.randn(4096, 4096, device="cuda").bfloat16() / 64
    wrong = 0
    for run in range(10):
        torch.manual_seed(100 * run + dist.get_rank())
        x, y = (torch.randn(size, 4096, device="cuda").bfloat16() for size in (rows // world, rows))
        if run % world == dist.get_rank():
            torch.cuda._sleep(200_000)
        gathered, scattered = distributed.all_gather_matmul(x, w), distributed.matmul_reduce_scatter(y, v)
        whole = torch.empty(rows, 4096, device="cuda", dtype=torch.bfloat16)
        dist.all_gather_into_tensor(whole, x)
        part = torch.empty(rows // world, 4096, device="cuda", dtype=torch.float32)
        dist.reduce_scatter_tensor(part, (y @ v).float())
        wrong += not torch.allclose(gathered.float(), (whole @ w).float(), rtol=0.02, atol=0.02)
        wrong += not torch.allclose(scattered.float(), part, rtol=0.02, atol=0.03)
    total = torch.tensor(wrong, device="cuda")
    dist.all_reduce(total)

    def gather_then_multiply() -> Any:
        dist.all_gather_into_tensor(whole, x)
        return whole @ w

    def multiply_then_scatter() -> Any:
        out = torch.empty(rows // world, 4096, device="cuda", dtype=torch.bfloat16)
        dist.reduce_scatter_tensor(out, y @ v)
        return out

    ways: dict[str, Callable[[], Any]] = {
        "gather + matmul": lambda: distributed.all_gather_matmul(x, w),
        "gather + matmul, nccl": gather_then_multiply,
        "gather + matmul, torch": lambda: fused.fused_all_gather_matmul(x, [w], 0, name),
        "gather + matmul, product": lambda: whole @ w,
        "matmul + scatter": lambda: distributed.matmul_reduce_scatter(y, v),
        "matmul + scatter, nccl": multiply_then_scatter,
        "matmul + scatter, torch": lambda: fused.fused_matmul_reduce_scatter(y, v, "sum", 0, name),
        "matmul + scatter, product": lambda: y @ v,
    }
    times: dict[str, float] = {}
    for label, way in ways.items():
        # PyTorch's fused operators wait on several streams, which a graph may not have.
        times[label] = measured(torch, dist, way, in_graph=not label.endswith("torch"))
    return times, int(total)


def tokens(torch: Any, dist: Any, count: int) -> tuple[dict[str, float], int]:
    """The microseconds to send `count` tokens of each rank, of 7168 elements, to 8 of 256 experts, and to combine them;
    and the number of wrong results."""
    from ziggurat import distributed

    world, experts_here, k = dist.get_world_size(), 256 // dist.get_world_size(), 8
    x = torch.randn(count, 7168, device="cuda").bfloat16()
    experts = torch.rand(count, 256, device="cuda").topk(k).indices
    weights = torch.rand(count, k, device="cuda").softmax(1)
    sizes: dict[str, Any] = {}

    def exchange() -> Any:
        order = experts.flatten().argsort(stable=True)
        numbers = torch.bincount(experts.flatten(), minlength=256)
        theirs = torch.empty_like(numbers)
        dist.all_to_all_single(theirs, numbers)
        send, receive = (n.view(world, -1).sum(1).tolist() for n in (numbers, theirs))
        rows = x.new_empty(sum(receive), x.shape[1])
        dist.all_to_all_single(rows, x[order // k], receive, send)
        expert = torch.arange(experts_here, device="cuda").repeat(world).repeat_interleave(theirs)
        by_expert = expert.argsort(stable=True)
        sizes.update(order=order, send=send, receive=receive, by_expert=by_expert)
        return rows[by_expert]

    def exchange_back(rows: Any) -> Any:
        sorted_rows, pairs = torch.empty_like(rows), x.new_empty(count * k, x.shape[1])
        sorted_rows[sizes["by_expert"]] = rows
        dist.all_to_all_single(pairs, sorted_rows, sizes["send"], sizes["receive"])
        values = torch.empty_like(pairs)
        values[sizes["order"]] = pairs
        return torch.einsum("tkh,tk->th", values.view(count, k, -1), weights.bfloat16())

    rows, ends, route = distributed.dispatch(x, experts, 256)
    expected = exchange()
    wrong = int(not torch.equal(rows[: int(ends[-1])], expected))
    combined = distributed.combine(rows, weights, route)
    wrong += not torch.allclose(combined.float(), exchange_back(expected).float(), rtol=0.05, atol=0.05)
    total = torch.tensor(wrong, device="cuda")
    dist.all_reduce(total)
    ways: dict[str, Callable[[], Any]] = {
        "dispatch": lambda: distributed.dispatch(x, experts, 256),
        "combine": lambda: distributed.combine(rows, weights, route),
        "dispatch, torch": exchange,
        "combine, torch": lambda: exchange_back(expected),
    }
    times: dict[str, float] = {}
    for name, way in ways.items():
        times[name] = measured(torch, dist, way, in_graph="torch" not in name)
        if "torch" not in name:
            times[f"{name} without a graph"] = measured(torch, dist, way, in_graph=False)
    return times, int(total)


def norms(torch: Any, dist: Any, rows: int) -> tuple[dict[str, float], int]:
    """The microseconds of an all-reduce of (rows, 8192) with bias, residual and norm, and the wrong results."""
    import torch.distributed._symmetric_memory as symmetric

    from ziggurat import distributed

    name = dist.group.WORLD.group_name
    x = torch.randn(rows, 8192, device="cuda").bfloat16()
    torch.manual_seed(1)
    bias, weight, residual = (torch.randn(s, device="cuda").bfloat16() for s in ((8192,), (8192,), (rows, 8192)))
    shared = symmetric.empty(x.numel(), device="cuda", dtype=x.dtype)
    symmetric.rendezvous(shared, name)
    ops, y = torch.ops.symm_mem, x.clone()

    def apart(reduce: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            total = reduce().view(x.shape) + bias + residual
            return torch.nn.functional.rms_norm(total, (8192,), weight, 1e-6), total

        return run

    def by_nccl() -> Any:
        dist.all_reduce(y)
        return y

    y.copy_(x)
    expected = apart(by_nccl)()
    results = distributed.all_reduce_norm(x, weight, bias, residual)
    same = [torch.allclose(a.float(), b.float(), rtol=0.05, atol=0.1) for a, b in zip(results, expected, strict=True)]
    total = torch.tensor(not all(same), device="cuda", dtype=torch.int64)
    dist.all_reduce(total)
    y.zero_()
    ways: dict[str, Callable[[], Any]] = {
        "fused": lambda: distributed.all_reduce_norm(x, weight, bias, residual),
        "apart": apart(lambda: distributed.all_reduce(x)),
        "apart, nccl": apart(by_nccl),
        "apart, torch one-shot": apart(lambda: ops.one_shot_all_reduce(shared, "sum", name)),
        "apart, torch two-shot": apart(lambda: ops.two_shot_all_reduce_(shared, "sum", name)),
    }
    return {label: measured(torch, dist, way, in_graph=True) for label, way in ways.items()}, int(total)


def attention(torch: Any, dist: Any, length: int) -> tuple[dict[str, float], int]:
    """The microseconds of attention over a sequence of so many elements in all, with 32 heads of 128, of which four
    share keys; and the number of wrong results."""
    from ziggurat import distributed

    world, rank = dist.get_world_size(), dist.get_rank()
    n = length // world
    q = torch.randn(1, 32, n, 128, device="cuda").bfloat16()
    k, v = (torch.randn(1, 8, n, 128, device="cuda").bfloat16() for _ in range(2))

    def gathered(x: Any) -> Any:
        every = x.new_empty(world, *x.shape)
        dist.all_gather_into_tensor(every, x[None])
        return every.movedim(0, 2).flatten(2, 3)

    times: dict[str, float] = {}
    wrong = 0
    for causal in (False, True):
        keys = torch.arange(length, device="cuda") if causal else None
        mask = None if keys is None else keys <= (rank * n + torch.arange(n, device="cuda"))[:, None]

        def apart(mask: Any = mask) -> Any:
            every = [gathered(x) for x in (k, v)]
            return torch.nn.functional.scaled_dot_product_attention(q, *every, attn_mask=mask, enable_gqa=True)

        def ring(causal: bool = causal) -> Any:
            return distributed.ring_attention(q, k, v, causal)

        wrong += not torch.allclose(ring().float(), apart().float(), rtol=0.02, atol=0.02)
        label = "causal " if causal else ""
        times[f"{label}ring"], times[f"{label}gather"] = (measured(torch, dist, way, True) for way in (ring, apart))
    whole = [gathered(x) for x in (k, v)]
    alone = functools.partial(torch.nn.functional.scaled_dot_product_attention, q, *whole, enable_gqa=True)
    times["attention alone"] = measured(torch, dist, alone, True)
    total = torch.tensor(wrong, device="cuda")
    dist.all_reduce(total)
    return times, int(total)


def limited(original: Any, programs: int, chunk_bytes: int, count: int, itemsize: int, parts: int = 1) -> Any:
    """A division with at most so many programs, and bytes of a program in a round."""
    import attrs

    division = original(count, itemsize, parts)
    programs = min(programs, -(-count // division.block))
    chunk = -(-count // (programs * division.block)) * division.block
    return attrs.evolve(division, programs=programs, chunk=min(chunk, division.part, chunk_bytes // itemsize))


def measured(torch: Any, dist: Any, call: Callable[[], Any], in_graph: bool) -> float:
    """The microseconds of a call on the slowest rank."""
    calls = 20 if in_graph else 100
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    if in_graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                call()
        run: Callable[[], Any] = graph.replay
    else:

        def run() -> None:
            for _ in range(calls):
                call()

    times: list[float] = []
    for _ in range(6):
        dist.barrier()
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / calls * 1e3)
    slowest = torch.tensor(statistics.median(times[1:]), device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


if __name__ == "__main__":
    main()
