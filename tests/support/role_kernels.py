"""GPU models with three or more roles, written by hand as they are between `specialize` and the passes after it."""

from __future__ import annotations

from collections.abc import Sequence

from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.fragments import UNITS, WarpGrid, accumulator
from ziggurat.codemodel.gpu.options import CompileOptions
from ziggurat.codemodel.layout import blocked
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.types import DescriptorType, SharedType, TensorType, Type, f16, f32
from ziggurat.codemodel.verify import verify
from ziggurat.transforms.gpu.gpu_passes import PLACE
from ziggurat.transforms.gpu.hazards import hazards
from ziggurat.transforms.layouts.tma_blocks import buffer_for

K = 64  # Elements along k of a block.


def ring_of(block: tuple[int, int], count: int = 1) -> SharedType:
    """The type of a ring of blocks in the form of TMA."""
    type_, _ = buffer_for(DescriptorType(block, f16))
    return SharedType(type_.shape, type_.element, type_.offsets, count)


def sum_of(warps: int, n: int, element: Type = f32) -> TensorType:
    """The type of an accumulator with 16 rows for each warp."""
    rows = 16 * warps
    return TensorType((rows, n), element, accumulator(UNITS["m16n8k16"], (rows, n), WarpGrid(warps, 1, warps)))


def view(name: str, ring: str, slot: str, type_: SharedType) -> str:
    shared = SharedType(type_.shape, type_.element, type_.offsets)
    return f"%{name} : {shared} = gpu.local_view %{ring} %{slot};"


def filling(number: int, *loads: tuple[str, str, SharedType, str]) -> str:
    """Fill a slot of channel `ch{number}` by TMA: of each load the ring, the descriptor, the type and the offsets."""
    lines = [f"%s{number} : i32 = gpu.channel_acquire %ch{number} %yes;"]
    for ring, descriptor, type_, offsets in loads:
        lines.append(view(f"to_{ring}", ring, f"s{number}", type_))
        lines.append(f"gpu.tma_load %{descriptor} %to_{ring} %ch{number} %yes {offsets};")
    return "\n".join([*lines, f"gpu.channel_commit %ch{number};"])


def guarded(parameters: TensorType, before: str, after: str, start: str = "%zero") -> str:
    """A loop along k that carries an accumulator, in a branch that tests for an iteration; its result is `%sum`."""
    return f"""%begin : {parameters} = arith.constant @0.0; %runs : i1 = arith.cmpi {start} %k @slt;
        %sum : {parameters} = scf.if %runs ()({parameters}) -> {{
            %many : {parameters} = scf.for {start} %k %step %begin (%i : i32, %acc : {parameters}){parameters} -> {{
                {before} scf.yield %done; }};
            {after} scf.yield %last; }}
        ()({parameters}) -> {{ scf.yield %begin; }};""".replace(f"({parameters}) ->", f"{parameters} ->")


CONSTANTS = "%zero : i32 = arith.constant @0; %step : i32 = arith.constant @64; %yes : i1 = arith.constant @true;"


def split(warps: Sequence[int], registers: Sequence[int], barriers: Sequence[int], roles: Sequence[str]) -> str:
    lists = (f"[{', '.join(map(str, argument))}]" for argument in (warps, registers, barriers))
    attributes = " ".join(f"@{n}={v}" for n, v in zip(("warps", "registers", "barriers"), lists, strict=True))
    return f"gpu.warp_specialize {attributes}" + "".join(f"()void -> {{ {role} scf.yield; }}" for role in roles) + ";"


def function(name: str, blocks: Sequence[tuple[str, tuple[int, int]]], body: str, warps: int) -> str:
    """A kernel whose parameters are descriptors with these blocks, and `%k`."""
    parameters = ", ".join(f"%{title} : {DescriptorType(block, f16)}" for title, block in blocks)
    parts = ", ".join(f'"{number}.map"' for number in range(len(blocks)))
    divisible = ", ".join(["16"] * (len(blocks) + 1))
    return f"""gpu.module @target="sm_90a" @num_warps={warps} ()void -> {{
        tt.func @"{name}" @divisibility=[{divisible}] @parts=[{parts}, "{len(blocks)}"]
            ({parameters}, %k : i32)void -> {{ {body} tt.return; }}; unreachable; }};"""


def products(warps: Sequence[int], n: int = 64, stages: int = 3, values: bool = True) -> str:
    """Consumers of these warps, each with 16 rows of a · b for each warp: b is shared, and each has a block of a.

    With `held`, a wgmma is in flight across iterations.
    """
    b, count = ring_of((K, n), stages), len(warps)
    rings = [ring_of((16 * own, K), stages) for own in warps]
    lines = [CONSTANTS, f"%rb : {b} = gpu.local_alloc @alignment=1024; %ch{count} : channel = gpu.channel %rb;"]
    for number, ring in enumerate(rings):
        lines.append(f"%r{number} : {ring} = gpu.local_alloc @alignment=1024;")
        lines.append(f"%ch{number} : channel = gpu.channel %r{number};")
    roles: list[str] = []
    for number, (own, ring) in enumerate(zip(warps, rings, strict=True)):
        acc = sum_of(own, n)
        freed = "".join(f"gpu.channel_release %ch{which} @held={int(values)};" for which in (count, number))
        before = f"""%at : i32 = gpu.channel_wait %ch{count}; %to : i32 = gpu.channel_wait %ch{number};
            {view("vb", "rb", "at", b)} {view("va", f"r{number}", "to", ring)}
            %dot : {acc} = gpu.wgmma %va %vb %acc; %done : {acc} = gpu.wgmma_wait %dot @{int(values)}; {freed}"""
        last = freed.replace("@held=1", "") if values else ""
        after = f"%last : {acc} = gpu.wgmma_wait %many @0; {last}"
        row = sum(16 * other for other in warps[:number])
        roles.append(f"""{guarded(acc, before, after)} %row : i32 = arith.constant @{row};
            %out : {sum_of(own, n, f16)} = arith.truncf %sum; tt.descriptor_store %c{number} %out %row %zero;""")
    fills = [filling(number, (f"r{number}", f"a{number}", ring, f"%row{number} %i")) for number, ring in
             enumerate(rings)]  # fmt: skip
    fills.append(filling(count, ("rb", "b", b, "%i %zero")))
    rows = [
        f"%row{number} : i32 = arith.constant @{sum(16 * own for own in warps[:number])};" for number in range(count)
    ]
    roles.append(f"{' '.join(rows)} scf.for %zero %k %step (%i : i32)void -> {{ {' '.join(fills)} scf.yield; }};")
    total = sum(warps)
    most = min(240, (65536 // 32 - 4 * 24) // total // 8 * 8)
    most = min(most, (65536 // 32 // (total + 4) // 8 * 8 * (total + 4) - 96) // total // 8 * 8)
    lines.append(split([*warps, 4], [*[most] * count, 24], [*range(1, count + 1), 0], roles))
    blocks = [(f"a{number}", (16 * own, K)) for number, own in enumerate(warps)]
    blocks += [("b", (K, n)), *((f"c{number}", (16 * own, n)) for number, own in enumerate(warps))]
    return function("products", blocks, "\n".join(lines), total + 4)


def doubled(consumer: int, converter: int, n: int = 64, stages: int = 2) -> str:
    """2a · b: threads of a role read what TMA has loaded, and store its double to slots of the role that multiplies."""
    rows = 16 * consumer
    a, b, acc = ring_of((rows, K), stages), ring_of((K, n), stages), sum_of(consumer, n)
    read = TensorType((rows, K), f16, blocked((rows, K), (1, 0), 8, converter))
    lines = [CONSTANTS]
    lines += [f"%{name} : {type_} = gpu.local_alloc @alignment=1024;" for name, type_ in
              (("ra", a), ("rb", b), ("rt", a))]  # fmt: skip
    lines += [f"%ch{number} : channel = gpu.channel %{ring};" for number, ring in enumerate(("ra", "rb", "rt"))]
    before = f"""%at : i32 = gpu.channel_wait %ch2; %to : i32 = gpu.channel_wait %ch1;
        {view("va", "rt", "at", a)} {view("vb", "rb", "to", b)}
        %dot : {acc} = gpu.wgmma %va %vb %acc; %done : {acc} = gpu.wgmma_wait %dot @1;
        gpu.channel_release %ch2 @held=1; gpu.channel_release %ch1 @held=1;"""
    after = f"%last : {acc} = gpu.wgmma_wait %many @0; gpu.channel_release %ch2; gpu.channel_release %ch1;"
    computing = f"""{guarded(acc, before, after)} %out : {sum_of(consumer, n, f16)} = arith.truncf %sum;
        tt.descriptor_store %c %out %zero %zero;"""
    turning = f"""%two : {read} = arith.constant @2.0; scf.for %zero %k %step (%i : i32)void -> {{
        %r : i32 = gpu.channel_wait %ch0; {view("from", "ra", "r", a)} %x : {read} = gpu.local_load %from;
        gpu.channel_release %ch0; %y : {read} = arith.mulf %x %two;
        %w : i32 = gpu.channel_acquire %ch2 %yes; {view("to", "rt", "w", a)} gpu.local_store %to %y;
        gpu.channel_commit %ch2; scf.yield; }};"""
    fills = filling(0, ("ra", "a", a, "%zero %i")) + filling(1, ("rb", "b", b, "%i %zero"))
    fetching = f"scf.for %zero %k %step (%i : i32)void -> {{ {fills} scf.yield; }};"
    total = consumer + converter + 4
    most = min(240, (65536 // 32 // total // 8 * 8 * total - 96) // (total - 4) // 8 * 8)
    warps, registers = [consumer, converter, 4], [most, most, 24]
    lines.append(split(warps, registers, [1, 2, 0], [computing, turning, fetching]))
    return function("doubled", [("a", (rows, K)), ("b", (K, n)), ("c", (rows, n))], "\n".join(lines), total)


def placed(text: str) -> gpu.Module:
    """The model after the passes that follow `specialize`, verified and without hazards."""
    model = parse(text)
    verify(model)
    names = [name for name, _ in PLACE]
    assert isinstance(model, gpu.Module)
    options = CompileOptions("sm_90a", 4, 3)
    for _, step in PLACE[names.index("specialize") + 1 :]:
        result = step(model, options)
        verify(result)
        assert isinstance(result, gpu.Module)
        model = result
    assert hazards(model) == []
    return model
