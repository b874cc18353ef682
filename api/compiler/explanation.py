"""The cost of a compiled kernel in words: a table by source line, with the reasons why something is not better."""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import attrs

from ziggurat.backend.ptx.sass import HINT, Resources, assembled, disassembled, tool
from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import LaunchError, ZigguratWarning
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.targets import TARGETS, Target
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.location import FRONTENDS, Location
from ziggurat.codemodel.op import Op, OpResult, expect
from ziggurat.codemodel.passes import Snapshot
from ziggurat.compiler.compiled import Compiled
from ziggurat.transforms.analysis.obstacle import Obstacle
from ziggurat.transforms.analysis.queries import is_persistent
from ziggurat.transforms.cost.choose import choose_warps
from ziggurat.transforms.cost.cost import Cost, CostEntry, Work, cost_of
from ziggurat.transforms.cost.pressure import warn_of_registers
from ziggurat.transforms.gpu.gpu_passes import CHOSEN_AFTER, place
from ziggurat.transforms.gpu.raise_pointers import why_not_raised
from ziggurat.transforms.schedule.latency import plans_of
from ziggurat.transforms.schedule.loads_ahead import is_role
from ziggurat.transforms.schedule.loop_plan import LoopPlan
from ziggurat.transforms.schedule.specialize import why_no_roles
from ziggurat.transforms.tiles.chunks import DIVIDE_BLOCKS
from ziggurat.transforms.tiles.persist import why_not_persistent

# The headings, and the widths of the columns.
_COLUMNS = {
    "line": 4, "read": 8, "written": 9, "used": 7, "bits": 8, "shared": 8, "flop": 10, "issued": 8, "MUFU": 6
}  # fmt: skip


@attrs.frozen
class SourceLine:
    """A line of the source, the file's name and the number; lines without a place come first."""

    file: str = ""
    number: int = 0

    @staticmethod
    def of(location: Location | None) -> SourceLine:
        if location is None:
            return SourceLine()
        location = location.outside(FRONTENDS)
        return SourceLine(location.file, location.line)


def explanation(compiled: Compiled) -> str:
    """The cost of each line of a kernel for a CTA, in loops for an iteration, and the limits of an SM.

    Registers and spills are those of ptxas, where it is installed. Raises `LaunchError` if the kernel was compiled from
    a GPU model.
    """
    if "triton" not in compiled.stages:
        raise LaunchError("a GPU model has no reasons for its placement", hint="compile the Triton model")
    cost = cost_of(compiled.stages["gpu"], tuple(argument.name for argument in compiled.arguments))
    resources, spilling = _resources(compiled)
    notes, decisions = _notes(compiled)
    for line, count in spilling.items():
        notes.setdefault(line, []).append(f"spilled registers are moved by {count} instruction(s)")
    parts = [_summary(compiled, cost, resources) + decisions]
    inside = {SourceLine.of(entry.op.location) for entry in cost.entries if entry.loop}
    tables = by_key((_heading(entry.loop, cost.func), entry) for entry in cost.entries)
    for (rank, heading), entries in sorted(tables.items(), key=lambda table: table[0]):
        here = {SourceLine.of(entry.op.location) for entry in entries}
        # Each moves a word of each of 32 threads. Of a line in a loop, all are taken to be in it.
        spilled = sum(count for line, count in spilling.items() if line in here and (rank or line not in inside))
        spills = cost.warps * spilled
        work = Work(issued=spills, wavefronts=spills)
        parts.append("\n".join((heading, *_part(entries, notes, work, cost.target))))
    return "\n\n".join(parts) + "\n"


def _summary(compiled: Compiled, cost: Cost, resources: Resources | None) -> str:
    """The resources of a CTA, and the occupancy."""
    title = f"{compiled.title} for {compiled.target}: {cost.warps} warps, {cost.shared} bytes of shared memory"
    if resources is None:
        return f"{title}\nregisters and CTAs per SM are not known without ptxas: {HINT}"
    title += f", {resources.registers} registers a thread, {resources.spills} bytes spilled"
    allowed = cost.ctas(resources.registers)
    least = min(allowed, key=allowed.__getitem__)
    text = f"{title}\nCTAs per SM: {allowed[least]}, limited by {least}"
    if compiled.num_ctas > 1:
        prefix = "chosen: " if compiled.options.num_ctas is None else ""
        text += f"\n{prefix}a program is a cluster of {compiled.num_ctas} CTAs; the figures are of one of them"
    return "\n".join([text, *(f"ptxas: {warning.strip()}" for warning in resources.warnings)])


def _heading(loop: Op | None, func: tt.Func) -> tuple[int, str]:
    """The place among the tables, and the heading, of what runs in a loop, or outside of loops."""
    if loop is None:
        return 0, "A CTA, without its loops:"
    if is_persistent(func) and isinstance(loop.parent_op, tt.Func | gpu.WarpSpecialize):
        return 1, "A program, of those that a CTA runs in turn, without its loops:"
    line = SourceLine.of(loop.location).number
    if loop.location is not None and loop.location.by == DIVIDE_BLOCKS:
        return line, "A chunk of the blocks, of which the compiler has made a loop:"
    return line, f"An iteration of the loop in line {line}:"


def _part(
    entries: Sequence[CostEntry], notes: Mapping[SourceLine, Sequence[str]], spills: Work, target: Target
) -> Iterator[str]:
    """The table of the lines outside of loops, or of an iteration of a loop, and its limits."""
    yield "".join(map(_cell, _COLUMNS, _COLUMNS.values()))
    lines = by_key((SourceLine.of(entry.op.location), entry) for entry in entries)
    for line, group in sorted(lines.items(), key=lambda item: item[0].number):
        work = sum((entry.work for entry in group), Work())
        useful = work.read + work.written
        bits = sorted({entry.bits or 0 for entry in group if entry.work.read + entry.work.written} - {0})
        cells = (
            line.number or "?", work.read, work.written, f"{100 * useful // work.asked} %" if work.asked else "",
            "/".join(map(str, bits)), work.wavefronts, work.flops, work.issued, work.functions,
        )  # fmt: skip
        source = linecache.getline(line.file, line.number).strip()
        yield f"{''.join(map(_cell, cells, _COLUMNS.values()))}  {source}".rstrip()
        reasons = [reason for entry in group for reason in entry.reasons]
        for note in dict.fromkeys((*notes.get(line, ()), *reasons)):
            yield f"     ^ {note}"
    work = sum((entry.work for entry in entries), spills)
    cycles = work.cycles
    limit = max(cycles, key=cycles.__getitem__)
    beyond = (work.read + work.written) / target.memory_bytes
    yield "cycles of an SM: " + ", ".join(f"{name} {round(count)}" for name, count in cycles.items() if round(count))
    limit += f", with {spills.issued:.0f} instructions for spilled registers" if spills.issued else ""
    # Products read their operands from the L2 cache, which many programs share.
    by_memory = f"; device memory, with {beyond:.0f} cycles, if no cache holds the data"
    yield f"limit: {limit}{by_memory if beyond > max(cycles.values()) and not work.flops else ''}"


def _cell(value: float | str, width: int) -> str:
    return f"{value if isinstance(value, str) else round(value) or '':>{width}}"


def _notes(compiled: Compiled) -> tuple[dict[SourceLine, list[str]], str]:
    """The warnings of placement, the stages that were chosen, and the obstacles to roles and to copying loads of a loop
    ahead, by line; and the choice of the warps in words."""
    snapshots: list[Snapshot] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ZigguratWarning)
        warn_of_registers(place(compiled.stages["triton"], compiled.options, snapshots))
    notes = [(SourceLine(warning.filename, warning.lineno), str(warning.message)) for warning in warned]

    def note(op: Op, text: str) -> None:
        notes.append((SourceLine.of(op.location), text))

    for op in compiled.stages["gpu"].walk():
        if isinstance(op, gpu.TmaLoad) and op.ctas > 1:
            note(op, f"each of {op.ctas} CTAs loads a part of a block, for all of them")
    has_warps, target = compiled.options.num_warps is not None, TARGETS[compiled.target]
    models = {after.name: before.model for before, after in pairwise(snapshots)}  # By the pass that comes next.
    plain = expect(models["raise_pointers"], core.Module)
    whole, before = (expect(models[name], gpu.Module) for name in ("specialize", "latency"))
    for value, obstacle in why_not_raised(plain, compiled.options).items():
        if isinstance(value, OpResult) and target.has_tma:
            reason = obstacle.reason(value.op)
            note(value.op, f"the threads load it, not TMA: {reason}")
    roles = before.num_warps != whole.num_warps
    obstacle = None if roles else why_no_roles(whole, compiled.options.num_stages)
    could_split = target.has_roles and obstacle is None and has_warps
    if obstacle is not None:
        note(obstacle.op, f"no roles for the dots' loops: {obstacle.why}")
    for loop, plan in plans_of(before, compiled.options.num_stages):
        dots = [op for op in loop.body.entry.ops if isinstance(op, gpu.MatrixProduct)]
        if not dots or is_role(loop):
            continue
        for op, reason in [(loop, plan)] if isinstance(plan, Obstacle) else plan.left:
            note(op, f"no copies ahead of the dots: {reason.reason(op)}")
        if isinstance(plan, LoopPlan) and plan.why:
            note(loop, f"chosen: {plan.stages} stages; {plan.why}")
        if could_split and isinstance(plan, LoopPlan) and not loop.warp_specialize:
            note(loop, "all warps fetch and compute: zg.range(…, warp_specialize=True) would split them")
    prepared = expect(models["persist"], core.Module)
    text = ""
    if not has_warps:
        module = expect(next(snapshot.model for snapshot in snapshots if snapshot.name == CHOSEN_AFTER), core.Module)
        split = "; and roles, as TMA loads all operands" if roles and compiled.options.warp_specialize is None else ""
        text = f"\nchosen: {whole.num_warps} warps, as {choose_warps(module, compiled.target).why}{split}"
    runner = "CTA" if compiled.num_ctas == 1 else "cluster"
    if compiled.persistent:
        text += (
            f"\nchosen: as many {runner}s as fit run the programs in turn, and load during the stores of the one before"
        )
    elif prepared.holds(tt.Dot) and target.has_roles:
        options = attrs.evolve(compiled.options, num_warps=whole.num_warps)
        text += f"\na {runner} runs one program: {why_not_persistent(prepared, options)}"
    return by_key(notes), text


def _resources(compiled: Compiled) -> tuple[Resources | None, dict[SourceLine, int]]:
    """The resources by ptxas, None where it is missing; and the loads and stores of spilled registers by line."""
    if tool("ptxas") is None:
        return None, {}
    code, resources = assembled(compiled.ptx, compiled.target, shared=compiled.shared)
    counts: dict[SourceLine, int] = {}
    line = SourceLine()
    for text in disassembled(code, "-g").splitlines() if resources.spills and tool("nvdisasm") else ():
        if place := re.search(r'File "(.*?)", line (\d+)', text):
            line = SourceLine(place[1], int(place[2]))
        elif re.search(r"\s(LDL|STL)\b", text):
            counts[line] = counts.get(line, 0) + 1
    return resources, counts
