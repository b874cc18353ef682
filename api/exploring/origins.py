"""Where an instruction of a compiled kernel comes from, and what became of a line of its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.op import Op, require_argument
from ziggurat.codemodel.text.writer import summary
from ziggurat.exploring.places import Place, assembly_places, place_of

if TYPE_CHECKING:
    from ziggurat.compiler.compiled import Compiled


@attrs.frozen
class Origin:
    """What a line of machine text comes from.

    `place` is the place in the source, and `None` for a line that no op gave: a directive, the prologue. `ops` are
    those of the last model that begin there, `passes` the passes of a GPU's pipeline that made or changed an op there,
    in order.
    """

    text: str
    place: Place | None
    ops: tuple[Op, ...] = attrs.field(repr=False)
    passes: tuple[str, ...]

    def __str__(self) -> str:
        if self.place is None:
            return f"{self.text.strip()}\n  comes from no line of the source"
        places = ", called from ".join(f"{p.file}:{p.line}:{p.column}" for p in self.place.chain())
        ops = [f"  {summary(op)}" for op in self.ops]
        return "\n".join([self.text.strip(), f"  from {places}", *ops, f"  passes: {', '.join(self.passes) or 'none'}"])


@attrs.frozen
class LineUse:
    """What became of a line of a source: the ops of each model that come from it, also through calls, by stage; and the
    lines of machine text, each with its number from 1."""

    ops: Mapping[str, tuple[Op, ...]] = attrs.field(repr=False)
    instructions: tuple[tuple[int, str], ...]

    def __str__(self) -> str:
        parts: list[str] = []
        for stage, ops in self.ops.items():
            parts += [f"{stage}:", *(f"  {summary(op)}" for op in ops)]
        return "\n".join(
            [*parts, "instructions:", *(f"  {number}: {text.strip()}" for number, text in self.instructions)]
        )


def origin(compiled: Compiled, line: int) -> Origin:
    """The origin of a line of the machine text, PTX or a CPU's assembly, counted from 1."""
    text = _machine_text(compiled).splitlines()
    if line not in range(1, len(text) + 1):
        raise LaunchError(f"the machine text has the lines 1 to {len(text)}; got {line!r}")
    place = assembly_places("\n".join(text))[line - 1]
    if place is None:
        return Origin(text[line - 1], None, (), ())
    model = compiled.stages["cpu" if compiled.code is not None else "gpu"]
    passes: list[str] = []
    if compiled.code is None and "triton" in compiled.stages:
        before = _texts_at(compiled.stages["triton"], place)
        for snapshot in compiled.passes:
            after = _texts_at(snapshot.model, place)
            if after != before:
                passes.append(snapshot.name)
            before = after
    return Origin(text[line - 1], place, tuple(_ops_at(model, place)), tuple(passes))


def lines(compiled: Compiled, line: int, file: str | None = None) -> LineUse:
    """What became of a line of the source. `file` is the kernel's own by default."""
    require_argument(line, int, "a line of the source must be a number")
    models = {name: stage for name, stage in compiled.stages.items() if isinstance(stage, Op)}
    if file is None:
        places = (place_of(op.location) for op in models["triton" if "triton" in models else "gpu"].walk())
        file = next((list(place.chain())[-1].file for place in places if place is not None), "")

    def is_there(place: Place | None) -> bool:
        return place is not None and any((p.file, p.line) == (file, line) for p in place.chain())

    ops = {name: tuple(op for op in model.walk() if is_there(place_of(op.location))) for name, model in models.items()}
    text = _machine_text(compiled)
    machine = zip(text.splitlines(), assembly_places(text), strict=True)
    instructions = ((number, row) for number, (row, place) in enumerate(machine, 1) if is_there(place))
    return LineUse({name: some for name, some in ops.items() if some}, tuple(instructions))


def _machine_text(compiled: Compiled) -> str:
    return str(compiled.stages["asm" if compiled.code is not None else "ptx"])


def _ops_at(model: Op, place: Place) -> Iterator[Op]:
    """The ops of a model that begin at a place."""
    for op in model.walk():
        here = place_of(op.location)
        if here is not None and place.covers(here):
            yield op


def _texts_at(model: Op, place: Place) -> list[str]:
    """What the ops at a place are, without the numbers of values."""
    return [f"{op.NAME} {op.result.type} {sorted(op.attributes.items(), key=str)}" for op in _ops_at(model, place)]
