"""Collectives as kernels of several devices, and faults in each.

A kernel gets the addresses of the inboxes and flags of all devices, which are zero before the first launch; `own` and
`out` are the input and the output of the device itself. Every collective is launched with the epochs 1, 2 and 3 one
after the other, with other inputs for each, and nothing but its flags orders the devices between.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

import ziggurat as zg

EPOCHS = 3
SIZE = 4  # Elements of one device's part, and rows and columns of its matrices.


@zg.function
def memory(addresses, rank):
    """The pointer to a device's memory."""
    return zg.peer(addresses, rank, zg.i32)


@zg.function
def barrier(flags, block, rank, WORLD: zg.constexpr):
    """Programs of one number on all devices meet: each raises a flag at all others, and lowers its own."""
    for r in zg.static_range(WORLD):
        theirs = zg.add(memory(flags, r), block * WORLD + rank)
        while zg.atomic_cas(theirs, 0, 1, sem="release", scope="sys") != 0:
            pass
    for r in zg.static_range(WORLD):
        mine = zg.add(memory(flags, rank), block * WORLD + r)
        while zg.atomic_cas(mine, 1, 0, sem="acquire", scope="sys") != 1:
            pass


@zg.function
def part(k, N: zg.constexpr):
    """The offsets of the elements of part `k`."""
    return zg.add(k * N, zg.arange(0, N))


@zg.function
def product(a, b, row, N: zg.constexpr):
    """A row of a product of two matrices, by sums."""
    total = zg.zeros((N,), zg.i32)
    for k in range(N):
        total = zg.add(total, zg.mul(zg.load(zg.add(a, row * N + k)), zg.load(zg.add(b, part(k, N)))))
    return total


@zg.kernel(do_not_specialize=["epoch", "rank"])
def one_shot(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """All-reduce: each device reads the parts of all and adds them."""
    pid = zg.program_id(0)
    zg.store(zg.add(memory(inbox, rank), part(pid, N)), zg.load(zg.add(own, part(pid, N))))
    barrier(flags, pid, rank, WORLD)
    total = zg.zeros((N,), zg.i32)
    for r in zg.static_range(WORLD):
        total = zg.add(total, zg.load(zg.add(memory(inbox, r), part(pid, N))))
    zg.store(zg.add(out, part(pid, N)), total)
    barrier(flags, pid, rank, WORLD)


@zg.kernel(do_not_specialize=["epoch", "rank"])
def two_shot(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """All-reduce: each device adds its share of the elements, and writes the sums to all."""
    pid = zg.program_id(0)
    share = pid * WORLD + rank
    for k in zg.static_range(WORLD):
        mine = part(pid * WORLD + k, N)
        zg.store(zg.add(memory(inbox, rank), mine), zg.load(zg.add(own, mine)))
    barrier(flags, pid, rank, WORLD)
    total = zg.zeros((N,), zg.i32)
    for r in zg.static_range(WORLD):
        total = zg.add(total, zg.load(zg.add(memory(inbox, r), part(share, N))))
    for r in zg.static_range(WORLD):
        zg.store(zg.add(memory(inbox, r), part(share, N)), total)
    barrier(flags, pid, rank, WORLD)
    for k in zg.static_range(WORLD):
        mine = part(pid * WORLD + k, N)
        zg.store(zg.add(out, mine), zg.load(zg.add(memory(inbox, rank), mine)))


@zg.kernel(do_not_specialize=["epoch", "rank"])
def all_gather(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """Each device writes its part to all, and raises their counters for it; halves of the inbox alternate."""
    pid = zg.program_id(0)
    half = (pid * 2 + epoch % 2) * WORLD
    mine = zg.load(zg.add(own, part(pid, N)))
    for r in zg.static_range(WORLD):
        zg.store(zg.add(memory(inbox, r), part(half + rank, N)), mine)
        zg.signal(zg.add(memory(flags, r), pid * WORLD + rank), epoch, sem="release", scope="sys")
    for r in zg.static_range(WORLD):
        zg.wait(zg.add(memory(flags, rank), pid * WORLD + r), epoch, "ge", sem="acquire", scope="sys")
        theirs = zg.load(zg.add(memory(inbox, rank), part(half + r, N)))
        zg.store(zg.add(out, part(pid * WORLD + r, N)), theirs)


@zg.kernel(do_not_specialize=["epoch", "rank"])
def reduce_scatter(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """Each device writes a part to the slot that its owner has for it, once the owner has emptied the slot."""
    pid = zg.program_id(0)
    for step in zg.static_range(WORLD):
        owner = (rank + step) % WORLD
        slot = pid * WORLD + rank
        value = zg.load(zg.add(own, part(pid * WORLD + owner, N)))
        while zg.atomic_cas(zg.add(memory(flags, owner), slot), 0, 0, sem="acquire", scope="sys") != 0:
            pass
        zg.store(zg.add(memory(inbox, owner), part(slot, N)), value)
        zg.atomic_xchg(zg.add(memory(flags, owner), slot), epoch, sem="release", scope="sys")
    total = zg.zeros((N,), zg.i32)
    for r in zg.static_range(WORLD):
        mine = pid * WORLD + r
        while zg.atomic_cas(zg.add(memory(flags, rank), mine), epoch, epoch, sem="acquire", scope="sys") != epoch:
            pass
        total = zg.add(total, zg.load(zg.add(memory(inbox, rank), part(mine, N))))
        zg.atomic_xchg(zg.add(memory(flags, rank), mine), 0, sem="release", scope="sys")
    zg.store(zg.add(out, part(pid, N)), total)


@zg.kernel(do_not_specialize=["epoch", "rank"])
def broadcast(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """Device 0 writes its part and raises a flag at all; they read it, and count at device 0 that they have."""
    pid = zg.program_id(0)
    count = zg.num_programs(0) + pid
    root = zg.add(memory(inbox, 0), part(pid, N))
    if rank == 0:
        while zg.atomic_add(zg.add(memory(flags, 0), count), 0, sem="acquire", scope="sys") < (epoch - 1) * (WORLD - 1):
            pass
        zg.store(root, zg.load(zg.add(own, part(pid, N))))
        for r in zg.static_range(1, WORLD):
            zg.atomic_xchg(zg.add(memory(flags, r), pid), epoch, sem="release", scope="sys")
        zg.store(zg.add(out, part(pid, N)), zg.load(root))
    else:
        while zg.load(zg.add(memory(flags, rank), pid), volatile=True) != epoch:
            pass
        flag = zg.atomic_or(zg.add(memory(flags, rank), pid), 0, sem="acquire", scope="sys")
        zg.device_assert(flag == epoch)
        zg.store(zg.add(out, part(pid, N)), zg.load(root))
        zg.atomic_add(zg.add(memory(flags, 0), count), 1, sem="release", scope="sys")


@zg.kernel(do_not_specialize=["epoch", "rank"])
def all_to_all(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """Each device reads its part of the others' memories, which they have published, and counts that it has."""
    pid = zg.program_id(0)
    reads = zg.num_programs(0) * WORLD + pid
    while zg.atomic_max(zg.add(memory(flags, rank), reads), 0, sem="acquire", scope="sys") < (epoch - 1) * WORLD:
        pass
    for k in zg.static_range(WORLD):
        there = part(pid * WORLD + k, N)
        zg.store(zg.add(memory(inbox, rank), there), zg.load(zg.add(own, there)))
    for r in zg.static_range(WORLD):
        zg.atomic_max(zg.add(memory(flags, r), pid * WORLD + rank), epoch, sem="release", scope="sys")
    for r in zg.static_range(WORLD):
        while zg.atomic_max(zg.add(memory(flags, rank), pid * WORLD + r), 0, sem="acquire", scope="sys") < epoch:
            pass
        theirs = zg.load(zg.add(memory(inbox, r), part(pid * WORLD + rank, N)))
        zg.store(zg.add(out, part(pid * WORLD + r, N)), theirs)
        zg.atomic_add(zg.add(memory(flags, r), reads), 1, sem="release", scope="sys")


@zg.kernel(do_not_specialize=["epoch", "rank"])
def gather_matmul(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """Program 0 copies the rows of all devices here and counts them; the others multiply the rows that are there."""
    pid = zg.program_id(0)
    ready = zg.add(memory(flags, rank), WORLD)
    if pid == 0:
        for row in range(N):
            zg.store(zg.add(memory(inbox, rank), part(WORLD * N + row, N)), zg.load(zg.add(own, part(row, N))))
        barrier(flags, 0, rank, WORLD)
        for step in zg.static_range(WORLD):
            r = (rank + step) % WORLD
            for row in range(N):
                theirs = zg.load(zg.add(memory(inbox, r), part(WORLD * N + row, N)))
                zg.store(zg.add(memory(inbox, rank), part(r * N + row, N)), theirs)
            zg.atomic_add(zg.add(ready, r), 1, sem="release", scope="gpu")
        barrier(flags, 0, rank, WORLD)
    else:
        for tile in range(pid - 1, WORLD, zg.num_programs(0) - 1):
            while zg.atomic_add(zg.add(ready, tile), 0, sem="acquire", scope="gpu") < epoch:
                pass
            for row in range(N):
                result = product(memory(inbox, rank), zg.add(own, N * N), tile * N + row, N)
                zg.store(zg.add(out, part(tile * N + row, N)), result)


@zg.kernel(do_not_specialize=["epoch", "rank"])
def matmul_scatter(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """Rows of products go to the device that owns them, which adds those of all devices when they are there."""
    pid = zg.program_id(0)
    empty = N * WORLD
    for step in zg.static_range(WORLD):
        owner = (rank + step) % WORLD
        for row in range(pid, N, zg.num_programs(0)):
            result = product(own, zg.add(own, WORLD * N * N), owner * N + row, N)
            zg.wait(zg.add(memory(flags, owner), empty + row), epoch - 1, "ge", sem="acquire", scope="sys")
            zg.store(zg.add(memory(inbox, owner), part(rank * N + row, N)), result)
            zg.signal(zg.add(memory(flags, owner), row), 1, op="add", sem="release", scope="sys")
    for row in range(pid, N, zg.num_programs(0)):
        zg.wait(zg.add(memory(flags, rank), row), epoch * WORLD, "ge", sem="acquire", scope="sys")
        total = zg.zeros((N,), zg.i32)
        for r in zg.static_range(WORLD):
            total = zg.add(total, zg.load(zg.add(memory(inbox, rank), part(r * N + row, N))))
        zg.store(zg.add(out, part(row, N)), total)
        zg.signal(zg.add(memory(flags, rank), empty + row), epoch, sem="release", scope="sys")


@zg.kernel(do_not_specialize=["epoch", "rank"])
def ring(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """All-reduce: parts go around, each device adds them, and gives a slot of its left neighbour back after reading."""
    pid = zg.program_id(0)
    right = (rank + 1) % WORLD
    left = (rank + WORLD - 1) % WORLD
    back = zg.num_programs(0) + pid
    value = zg.load(zg.add(own, part(pid, N)))
    total = value
    for step in range(WORLD - 1):
        turn = (epoch - 1) * (WORLD - 1) + step
        slot = part(pid * 2 + turn % 2, N)
        zg.wait(zg.add(memory(flags, rank), back), turn - 1, "ge", sem="acquire", scope="sys")
        zg.store(zg.add(memory(inbox, right), slot), value)
        zg.signal(zg.add(memory(flags, right), pid), turn + 1, sem="release", scope="sys")
        zg.wait(zg.add(memory(flags, rank), pid), turn + 1, "ge", sem="acquire", scope="sys")
        value = zg.load(zg.add(memory(inbox, rank), slot))
        total = zg.add(total, value)
        zg.signal(zg.add(memory(flags, left), back), turn + 1, sem="release", scope="sys")
    zg.store(zg.add(out, part(pid, N)), total)


@zg.kernel(do_not_specialize=["epoch", "rank"])
def dissemination(own, inbox, flags, out, epoch, rank, WORLD: zg.constexpr, N: zg.constexpr):
    """A barrier in log2(WORLD) rounds, twice: between the writes of all devices and their reads, and after these."""
    pid = zg.program_id(0)
    zg.store(zg.add(memory(inbox, rank), part(pid, N)), zg.load(zg.add(own, part(pid, N))))
    for phase in zg.static_range(2):
        distance = 1
        level = 0
        while distance < WORLD:
            slot = pid * WORLD + level
            count = epoch * 2 - 1 + phase
            zg.fence("sys")
            zg.signal(zg.add(memory(flags, (rank + distance) % WORLD), slot), count, sem="relaxed", scope="sys")
            zg.wait(zg.add(memory(flags, rank), slot), count, "ge", sem="relaxed", scope="sys")
            zg.fence("sys")
            distance = distance * 2
            level = level + 1
        if phase == 0:
            for r in zg.static_range(WORLD):
                theirs = zg.load(zg.add(memory(inbox, r), part(pid, N)))
                zg.store(zg.add(out, part(pid * WORLD + r, N)), theirs)


# For each collective: the sizes of `own` and `out` in parts for each program, and the outputs for the inputs of all
# devices, which have the shape (devices, programs, parts, N).
Outputs = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]


@attrs.frozen
class Collective:
    """A collective: the kernel's name, the parts of a program's input and output, and the outputs for the inputs."""

    name: str
    inputs: Callable[[int], int]
    outputs: Outputs


def _gathered(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The parts of all devices, on each."""
    return np.stack([np.concatenate(list(x), 1)] * len(x))


def _matrices(x: np.ndarray[Any, Any], count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For each device a matrix of `count` parts of rows, and one of one part."""
    rows = x.reshape(len(x), -1, SIZE, SIZE)
    return rows[:, :count].reshape(len(x), -1, SIZE), rows[:, count]


def _gather_matmul(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    a, b = _matrices(x, 1)
    return a.reshape(-1, SIZE) @ b


def _matmul_scatter(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    a, b = _matrices(x, len(x))
    return (a @ b).sum(0).reshape(len(x), SIZE, SIZE)


COLLECTIVES = (
    Collective("one_shot", lambda world: 1, lambda x: np.broadcast_to(x.sum(0), x.shape)),
    Collective("two_shot", lambda world: world, lambda x: np.broadcast_to(x.sum(0), x.shape)),
    Collective("all_gather", lambda world: 1, _gathered),
    Collective("reduce_scatter", lambda world: world, lambda x: x.sum(0).swapaxes(0, 1)),
    Collective("broadcast", lambda world: 1, lambda x: np.broadcast_to(x[0], x.shape)),
    Collective("all_to_all", lambda world: world, lambda x: x.transpose(2, 1, 0, 3)),
    Collective("gather_matmul", lambda world: 2 * SIZE, _gather_matmul),
    Collective("matmul_scatter", lambda world: (world + 1) * SIZE, _matmul_scatter),
    Collective("ring", lambda world: 1, lambda x: np.broadcast_to(x.sum(0), x.shape)),
    Collective("dissemination", lambda world: 1, _gathered),
)


def launch(
    collective: Collective, kernel: zg.Kernel, world: int, programs: int, seed: int, *, simulated: bool = False,
    native: bool = False,
) -> None:  # fmt: skip
    """Run a collective on some devices: by the interpreter, natively, or as simulated code for a GPU. Raises the error
    of the launches, and `AssertionError` for a wrong result."""
    random = np.random.default_rng(seed)
    parts = collective.inputs(world)
    # All programs of a device multiply one pair of matrices.
    rows = 1 if "matmul" in collective.name else programs
    epochs = [random.integers(-99, 99, (world, rows, parts, SIZE)).astype(np.int32) for _ in range(EPOCHS)]
    expected = [np.asarray(collective.outputs(x)) for x in epochs]
    with zg.devices(world, seed=seed, native=native) as d:
        inboxes = [device.zeros(programs * 2 * (world + 1) * SIZE * SIZE, zg.i32, "inbox") for device in d]
        flags = [device.zeros(64, zg.i32, "flags") for device in d]
        outs = [[device.zeros(y[0].shape, zg.i32) for y in expected] for device in d]
        for rank, device in enumerate(d):
            for epoch, x in enumerate(epochs):
                own = device.array(x[rank])
                arguments = own, d.addresses(inboxes), d.addresses(flags), outs[rank][epoch], epoch + 1, rank
                with device:
                    if simulated:
                        types = zg.ptr(zg.i32), zg.ptr(zg.u64), zg.ptr(zg.u64), zg.ptr(zg.i32), zg.i32, zg.i32
                        compiled = kernel.compile(*types, world, SIZE, target="sm_90a", num_warps=1)
                        compiled.simulate[(programs,)](*arguments)
                    else:
                        kernel[(programs,)](*arguments, world, SIZE)
    for rank, results in enumerate(outs):
        for epoch, out in enumerate(results):
            assert np.array_equal(out, expected[epoch][rank]), f"the output of device {rank} in epoch {epoch + 1}"


@attrs.frozen
class Fault:
    """A fault of a collective: the text of its source that is replaced, once, and the text in its place."""

    collective: str
    name: str
    old: str
    new: str = ""

    def kernel(self) -> zg.Kernel:
        """The kernel with the fault."""
        functions = memory, barrier, part, product, globals()[self.collective]
        source = "\n\n".join(inspect.getsource(function.fn) for function in functions)
        assert source.count(self.old) == 1, f"{self.old!r} comes {source.count(self.old)} times in {self.collective}"
        source = source.replace(self.old, self.new)
        return zg.kernel(source=source, name=self.collective)


def _orders(collective: str, *lines: str) -> list[Fault]:
    """Faults of accesses of flags: for each a missing release or acquire, and a scope that is too narrow."""
    faults: list[Fault] = []
    for line in lines:
        word = "release" if '"release"' in line else "acquire" if '"acquire"' in line else "acq_rel"
        scope, narrower = ('"gpu"', '"cta"') if '"gpu"' in line else ('"sys"', '"gpu"')
        faults.append(Fault(collective, f"missing {word}", line, line.replace(f'"{word}"', '"relaxed"')))
        faults.append(Fault(collective, "wrong scope", line, line.replace(scope, narrower)))
    return faults


_RAISE = 'zg.atomic_cas(theirs, 0, 1, sem="release", scope="sys")'
_LOWER = 'zg.atomic_cas(mine, 1, 0, sem="acquire", scope="sys")'
_MEET = "    barrier(flags, pid, rank, WORLD)\n"
_PUBLISH = 'zg.atomic_max(zg.add(memory(flags, r), pid * WORLD + rank), epoch, sem="release", scope="sys")'
_READ = 'zg.atomic_add(zg.add(memory(flags, r), reads), 1, sem="release", scope="sys")'
_READY = 'zg.atomic_add(zg.add(ready, r), 1, sem="release", scope="gpu")'
_ROW = '1, op="add", sem="release", scope="sys")'
_FENCE = '            zg.fence("sys")\n'
_EMPTY = 'zg.atomic_xchg(zg.add(memory(flags, rank), mine), 0, sem="release", scope="sys")'

FAULTS = (
    *_orders("one_shot", _RAISE, _LOWER),
    Fault("one_shot", "signal before data", _MEET + "    total", "    total"),
    Fault("one_shot", "reuse too early", "total)\n" + _MEET, "total)\n"),
    Fault("one_shot", "wrong slot", "block * WORLD + rank)", "block * WORLD + r)"),
    Fault("one_shot", "wrong slot", "zg.load(zg.add(memory(inbox, r), part(pid, N)))", "zg.load(memory(inbox, r))"),
    Fault("one_shot", "one flag of several programs", _MEET + "    total", _MEET.replace("pid", "0") + "    total"),
    Fault("two_shot", "signal before data", _MEET + "    total", "    total"),
    Fault("two_shot", "signal before data", "total)\n" + _MEET, "total)\n"),
    Fault("two_shot", "wrong slot", "share = pid * WORLD + rank", "share = pid * WORLD"),
    Fault("two_shot", "lost data", "WORLD):\n        zg.store(", "1, WORLD):\n        zg.store("),
    Fault("two_shot", "wrong device", "memory(inbox, rank), mine))", "memory(inbox, 0), mine))"),
    Fault("two_shot", "missing wait", "WORLD):\n        mine = zg.add(", "1, WORLD):\n        mine = zg.add("),
    *_orders("all_gather", 'epoch, sem="release", scope="sys")', '"ge", sem="acquire", scope="sys")'),
    Fault("all_gather", "wrong slot", "part(half + rank, N)", "part(half + r, N)"),
    Fault("all_gather", "wrong slot", "pid * WORLD + rank), epoch", "pid * WORLD), epoch"),
    Fault("all_gather", "reuse without an epoch", "epoch % 2) * WORLD", "1) * WORLD"),
    Fault("all_gather", "lost signal", "(flags, r), pid * WORLD + rank)", "(flags, rank), pid * WORLD + rank)"),
    Fault("all_gather", "missing wait", 'epoch, "ge"', '1, "ge"'),
    *_orders("reduce_scatter", '0, 0, sem="acquire", scope="sys")', _EMPTY),
    *_orders("reduce_scatter", 'epoch, sem="release", scope="sys")', 'epoch, epoch, sem="acquire", scope="sys")'),
    Fault("reduce_scatter", "reuse too early", '0, 0, sem="acquire", scope="sys") != 0', '0, 0, scope="sys") < 0'),
    Fault("reduce_scatter", "wrong slot", "slot = pid * WORLD + rank", "slot = pid * WORLD + owner"),
    Fault("reduce_scatter", "lost signal", "slot), epoch, sem", "slot), epoch - 1, sem"),
    *_orders("broadcast", 'pid), epoch, sem="release", scope="sys")', 'pid), 0, sem="acquire", scope="sys")'),
    Fault("broadcast", "plain wait", ", volatile=True"),
    Fault("broadcast", "reuse too early", "(epoch - 1) * (WORLD - 1)", "epoch - 1"),
    Fault("broadcast", "missing release", 'count), 1, sem="release"', 'count), 1, sem="relaxed"'),
    Fault("broadcast", "lost signal", "static_range(1, WORLD)", "static_range(2, WORLD)"),
    *_orders("all_to_all", _PUBLISH, 'pid * WORLD + r), 0, sem="acquire", scope="sys")', _READ),
    Fault("all_to_all", "reuse without an epoch", "(epoch - 1) * WORLD:", "0:"),
    Fault("all_to_all", "wrong slot", "part(pid * WORLD + rank, N)))", "part(pid * WORLD + r, N)))"),
    Fault("all_to_all", "lost signal", "WORLD):\n        " + _PUBLISH, "1, WORLD):\n        " + _PUBLISH),
    *_orders("gather_matmul", _READY, 'tile), 0, sem="acquire", scope="gpu")'),
    Fault("gather_matmul", "signal before data", "        barrier(flags, 0, rank, WORLD)\n        for", "        for"),
    Fault("gather_matmul", "reuse too early", "        barrier(flags, 0, rank, WORLD)\n    else:", "    else:"),
    Fault("gather_matmul", "wrong slot", "zg.add(ready, tile), 0", "zg.add(ready, 0), 0"),
    Fault("gather_matmul", "reuse without an epoch", ') < epoch:', ') < 1:'),
    *_orders("matmul_scatter", _ROW, 'epoch * WORLD, "ge", sem="acquire", scope="sys")'),
    Fault("matmul_scatter", "reuse too early", "epoch - 1,", "epoch - 2,"),
    Fault("matmul_scatter", "missing release", 'epoch, sem="release"', 'epoch, sem="relaxed"'),
    Fault("matmul_scatter", "missing acquire", 'epoch - 1, "ge", sem="acquire"', 'epoch - 1, "ge", sem="relaxed"'),
    Fault("matmul_scatter", "wrong slot", "part(rank * N + row, N)), result", "part(row, N)), result"),
    Fault("matmul_scatter", "missing wait", "epoch * WORLD,", "epoch,"),
    *_orders("ring", 'pid), turn + 1, sem="release", scope="sys")', 'back), turn + 1, sem="release", scope="sys")'),
    Fault("ring", "missing acquire", 'turn + 1, "ge", sem="acquire"', 'turn + 1, "ge", sem="relaxed"'),
    Fault("ring", "missing acquire", 'turn - 1, "ge", sem="acquire"', 'turn - 1, "ge", sem="relaxed"'),
    Fault("ring", "reuse too early", "turn - 1,", "turn - 2,"),
    Fault("ring", "one slot of two", "turn % 2", "turn * 0"),
    Fault("ring", "wrong device", "(flags, right), pid), turn", "(flags, left), pid), turn"),
    Fault("dissemination", "missing fence", _FENCE + "            zg.signal", "            zg.signal"),
    Fault("dissemination", "missing fence", "\n" + _FENCE + "            distance", "\n            distance"),
    Fault("dissemination", "narrow fence", 'zg.fence("sys")\n            zg.s', 'zg.fence("gpu")\n            zg.s'),
    Fault("dissemination", "wrong scope", 'count, sem="relaxed", scope="sys"', 'count, sem="relaxed", scope="gpu"'),
    Fault("dissemination", "missing round", "distance < WORLD", "distance < WORLD - 1"),
    Fault("dissemination", "missing wait", 'count, "ge"', 'count - 1, "ge"'),
    Fault("dissemination", "wrong slot", "pid * WORLD + level", "pid * WORLD"),
)  # fmt: skip
