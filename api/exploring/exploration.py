"""`zg.explore`: one page with a kernel at every tier, its values in a program, and where each line comes from."""

from __future__ import annotations

import html
import inspect
import itertools
import linecache
import os
import time
import webbrowser
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.boundary import no_faults, public
from ziggurat.codemodel.errors import KernelErrors, LaunchError, ZigguratError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.location import Location
from ziggurat.codemodel.op import Op, require_argument
from ziggurat.codemodel.text.writer import lines_of
from ziggurat.exploring.page import page
from ziggurat.exploring.places import Place, assembly_places, llvm_places, place_of, sass_places
from ziggurat.exploring.values import Entry, ValueTable, values_of
from ziggurat.kernels.kernel import Kernel
from ziggurat.launches.inspected import compiled_for_launch, grid_of, programs_of
from ziggurat.transforms.kit.difference import edits
from ziggurat.tuning.inspected import launch_of

if TYPE_CHECKING:
    from ziggurat.compiler.compiled import Compiled

_CONTEXT = 2  # The lines of a source around those that ops came from.


@attrs.frozen(eq=False)
class Exploration:
    """A page about a launch: `save(path)` writes it, and notebooks show it. `compiled` is what it is about, `html` its
    text, which needs no other file and no network."""

    compiled: Compiled
    html: str = attrs.field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file; its path. Raises `LaunchError` where it cannot be written."""
        file = Path(path)
        try:
            file.write_text(self.html, encoding="utf-8")
        except OSError as error:
            raise LaunchError(f"the page cannot be written: {error}") from None
        return file

    def show(self, path: str | os.PathLike[str] = "explore.html") -> Path:
        """Write the page to a file and open it in a browser; its path."""
        file = self.save(path)
        webbrowser.open(file.resolve().as_uri())
        return file

    def _repr_html_(self) -> str:
        frame = "width:100%;height:85vh;border:1px solid #8888"
        return f'<iframe style="{frame}" srcdoc="{html.escape(self.html, quote=True)}"></iframe>'


@public
def explore(
    kernel: Any, grid: Any, /, *arguments: Any, program: Any = None, seconds: float = 20, **keywords: Any
) -> Exploration:
    """A page with a kernel at every tier for a launch: source, Python and Triton model, the model after each pass, LLVM
    text and machine code. No GPU is needed, and the arrays, which must be in memory, stay as they are.

        zg.explore(softmax, (4,), y, x, 100, 128).save("softmax.html")

    The page marks what a line came from and what became of it, and shows of an op its documentation, layout, cost, and
    value in a program. `arguments` and `keywords` are those of a launch; further keywords are options of compilation
    (`target="cpu"`, `num_warps=8`). `program` is the program whose values are recorded, an index or one for each axis,
    or a list of several; by default the first and the last one. Each of them runs alone, on the arrays as they are,
    and recording its values at all tiers takes at most about `seconds`.

    The whole launch runs once in strict mode, for at most `seconds`: what it finds (races, accesses out of bounds,
    undefined elements) stands at its place. Raises the errors of a compilation, and `LaunchError` for arguments,
    a grid or a program that do not fit.
    """
    require_argument(seconds, (int, float), "zg.explore: 'seconds' must be a number")
    kernel, bound, options = launch_of("zg.explore", kernel, arguments, keywords)
    compiled, runtime_names, values = compiled_for_launch(kernel, bound, options)
    sizes = grid_of("zg.explore", kernel.sizes(grid, bound))
    last = (sizes[0] - 1, sizes[1] - 1, sizes[2] - 1)
    programs = programs_of("zg.explore", [*dict.fromkeys([(0, 0, 0), last])] if program is None else program, sizes)
    launch = _Explored(compiled, sizes, values, runtime_names, kernel.rules.tolerant_memory, seconds)
    with no_faults("exploring", lambda: compiled.stages["triton"], kernel.name):
        return Exploration(compiled, page(kernel.name, launch.content(kernel, programs)))


class _Places:
    """The places of a page by number."""

    def __init__(self) -> None:
        self.numbers: dict[Place, int] = {}

    def number(self, place: Place | None) -> int:
        if place is None:
            return -1
        if place not in self.numbers:
            self.number(place.caller)
            self.numbers[place] = len(self.numbers)
        return self.numbers[place]

    def entries(self, files: Sequence[str]) -> list[list[int]]:
        """File, line, column, last line and column, and the place of the call of each."""
        return [
            [files.index(p.file), p.line, p.column, p.end_line, p.end_column, self.number(p.caller)]
            for p in self.numbers
        ]


@attrs.frozen(eq=False)
class _Explored:
    """A launch that a page is about."""

    compiled: Compiled
    grid: tuple[int, int, int]
    arguments: Sequence[Any]
    names: Sequence[str]
    tolerant: bool
    seconds: float
    places: _Places = attrs.field(factory=_Places)
    table: ValueTable = attrs.field(factory=ValueTable)

    def content(self, kernel: Kernel, programs: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
        """What the page shows, as JSON can hold it."""
        notes = list(self._notes())
        models = list(self._models(kernel))
        columns = [self._model_column(name, model) for name, model in models]
        self._mark_edits(columns)
        until = time.monotonic() + self.seconds
        for column, (name, model) in zip(columns, models, strict=True):
            if name != "python":
                column["values"] = [self._values(column, model, program, until, notes) for program in programs]
        if self.compiled.code is None:
            self._add_costs(next(column for column in columns if column["name"] == "gpu"))
        columns += self._text_columns()
        files = list(dict.fromkeys(place.file for place in self.places.numbers))
        for column in columns:
            column.pop("places", None)
            column.pop("ops", None)
        ops = {op.NAME: op for _, model in models for op in model.walk()}
        return {
            "about": repr(self.compiled)[1:-1],
            "grid": list(self.grid),
            "programs": [list(program) for program in programs],
            "files": [os.path.basename(file) for file in files],
            "columns": [self._source(kernel, files), *columns],
            "places": self.places.entries(files),
            "values": self.table.entries,
            "documents": {name: inspect.cleandoc(type(op).__doc__ or "") for name, op in sorted(ops.items())},
            "notes": notes,
        }

    # Models.

    def _models(self, kernel: Kernel) -> Iterator[tuple[str, Op]]:
        """The models of the tiers by name, and those after passes that change something."""
        stages = self.compiled.stages
        yield "python", stages.get("python", kernel.model)
        yield "triton", stages["triton"]
        if self.compiled.code is not None:
            yield "cpu", stages["cpu"]
            return
        models = [stages["triton"], *(snapshot.model for snapshot in self.compiled.passes)]
        pairs = zip(self.compiled.passes, itertools.pairwise(models), strict=True)
        counts = Counter[str]()
        # The last change gives the GPU model.
        for name, model in [(step.name, after) for step, (before, after) in pairs if after is not before][:-1]:
            counts[name] += 1
            yield f"{name}:{counts[name]}" if counts[name] > 1 else name, model
        yield "gpu", stages["gpu"]

    def _model_column(self, name: str, model: Op) -> dict[str, Any]:
        lines, places = lines_of(model)
        numbers = [self.places.number(place_of(op.location) if op is not None else None) for _, op in lines]
        tier = name if name in ("python", "triton", "gpu", "cpu") else "pass"
        return {
            "name": name, "tier": tier, "lines": [text for text, _ in lines], "at": numbers, "places": places,
            "ops": {op: number for number, (_, op) in enumerate(lines) if op is not None},
        }  # fmt: skip

    def _mark_edits(self, columns: Sequence[dict[str, Any]]) -> None:
        """The changes of each pass: new lines, and those of the model before that are gone."""
        models = [column for column in columns if column["name"] != "python"]
        for before, after in itertools.pairwise(models):
            entries = edits(before["lines"], after["lines"])
            after["new"] = [number for mark, number in entries if mark == "+"]
            # An old line stands after as many new ones.
            counts = itertools.accumulate((mark != "-" for mark, _ in entries), initial=0)
            pairs = zip(entries, counts, strict=False)
            after["gone"] = [[count, number] for (mark, number), count in pairs if mark == "-"]

    def _values(
        self, column: dict[str, Any], model: Op, program: tuple[int, int, int], until: float, notes: list[Entry]
    ) -> dict[int, dict[str, list[int]]]:
        """The values of a program by line and name."""
        x, y, _ = self.grid
        linear = program[0] + x * (program[1] + y * program[2])
        rest = until - time.monotonic()
        if rest <= 0:
            self._note_once(notes, "values", f"those from '{column['name']}' on are left out: give more seconds=")
            return {}
        numbers, failure = values_of(
            model,
            self.grid,
            self.arguments,
            self.names,
            linear,
            self.table,
            tolerant=self.tolerant,
            seconds=rest,
            undefined=column["name"] == "triton",
        )
        if failure:
            self._note_once(notes, "values", f"program {program} has not run to its end: {failure}")
        by_line: dict[int, dict[str, list[int]]] = {}
        for value, ids in numbers.items():
            name, line = column["places"].get(value, ("", -1))
            if ids and name:
                by_line.setdefault(line, {})[name] = ids
        return by_line

    def _note_once(self, notes: list[Entry], kind: str, text: str) -> None:
        if all(note["kind"] != kind for note in notes):
            notes.append({"kind": kind, "text": text, "hint": "", "at": -1, "more": []})

    def _add_costs(self, column: dict[str, Any]) -> None:
        """The work of each op of the GPU model, for a CTA or an iteration."""
        from ziggurat.transforms.cost.cost import Work, cost_of, move_of
        from ziggurat.transforms.layouts.swizzle import first_access

        costs: dict[int, Entry] = {}
        names = tuple(argument.name for argument in self.compiled.arguments)
        cost = cost_of(self.compiled.stages["gpu"], names)
        for entry in cost.entries:
            line = column["ops"].get(entry.op)
            work = {field.name: round(getattr(entry.work, field.name), 1) for field in attrs.fields(Work)}
            work = {name: number for name, number in work.items() if number}
            if line is not None and (work or entry.reasons):
                costs[line] = {"work": work, "bits": entry.bits or 0, "reasons": list(entry.reasons)}
                if isinstance(entry.op, gpu.LocalLoad | gpu.LocalStore):
                    access = first_access(*move_of(entry.op, cost.target))
                    if access is not None:
                        costs[line]["banks"] = {"addresses": access.addresses, "bytes": access.bytes}
        column["costs"] = costs

    # Texts.

    def _text_columns(self) -> Iterator[dict[str, Any]]:
        """LLVM text and machine code."""
        from ziggurat.backend.ptx.sass import assembled, disassembled, tool

        stages = self.compiled.stages
        yield self._text_column("llvm", stages["llvm"], llvm_places(stages["llvm"]))
        if self.compiled.code is not None:
            yield self._text_column("asm", stages["asm"], assembly_places(stages["asm"]))
            return
        yield self._text_column("ptx", stages["ptx"], assembly_places(stages["ptx"]))
        if tool("ptxas") is not None and tool("nvdisasm") is not None:
            code, _ = assembled(stages["ptx"], self.compiled.target, shared=self.compiled.shared)
            text = disassembled(code, "-g")
            yield self._text_column("sass", text, sass_places(text))

    def _text_column(self, name: str, text: str, places: Sequence[Place | None]) -> dict[str, Any]:
        """A column of text, without the directives of places and the metadata."""
        pairs = zip(text.splitlines(), places, strict=True)
        rows = [(line, place) for line, place in pairs if not _is_noise(line)]
        return {
            "name": name, "tier": name, "lines": [line for line, _ in rows],
            "at": [self.places.number(place) for _, place in rows],
        }  # fmt: skip

    def _source(self, kernel: Kernel, files: Sequence[str]) -> dict[str, Any]:
        """The lines of the sources that ops came from, file by file, the kernel's first."""
        numbers: dict[str, list[int]] = {file: [] for file in files}
        for place in self.places.numbers:
            numbers[place.file] += [place.line, place.end_line or place.line]
        try:
            source, first = inspect.getsourcelines(kernel.fn)
            numbers.setdefault(os.path.abspath(inspect.getsourcefile(kernel.fn) or ""), [])
            numbers[os.path.abspath(inspect.getsourcefile(kernel.fn) or "")] += [first, first + len(source) - 1]
        except (OSError, TypeError, KeyError):
            pass  # Kernels that were typed or built have no file.
        lines: list[str] = []
        rows: list[list[int]] = []
        for number, file in enumerate(files):
            for line in _around(numbers[file]):
                text = linecache.getline(file, line)
                if text:
                    lines.append(text.rstrip("\n"))
                    rows.append([number, line])
        return {"name": "source", "tier": "source", "lines": lines, "rows": rows, "at": [-1] * len(lines)}

    # What a strict run finds.

    def _notes(self) -> Iterator[Entry]:
        from ziggurat.backend.reference.run import run

        try:
            run(
                self.compiled.stages["triton"], None, self.grid, self.arguments, names=self.names, strict=True,
                detached=True, seconds=self.seconds,
            )  # fmt: skip
        except TimeoutError:
            yield {
                "kind": "strict mode", "text": f"the launch was stopped after {self.seconds:.0f} s", "hint": "",
                "at": -1, "more": [],
            }  # fmt: skip
        except ZigguratError as error:
            for part in error.parts if isinstance(error, KernelErrors) else (error,):
                yield self._note(part)

    def _note(self, error: ZigguratError) -> Entry:
        def number(location: Location | None) -> int:
            return self.places.number(place_of(location))

        more = [[text, number(location)] for text, location in error.related]
        return {
            "kind": type(error).__name__, "text": error.summary, "hint": error.hint or "",
            "at": number(error.location), "more": more,
        }  # fmt: skip


def _is_noise(line: str) -> bool:
    """Whether a line of machine text only says where others come from."""
    text = line.strip()
    return text.startswith((".loc", ".file", "//##", "!", "$L__tmp", ".Ltmp"))


def _around(numbers: Iterable[int]) -> list[int]:
    """These lines with some around them; all between two that are near."""
    lines = sorted({n for number in numbers for n in range(number - _CONTEXT, number + _CONTEXT + 1) if n > 0})
    near: list[int] = []
    for line in lines:
        if near and line - near[-1] <= 2 * _CONTEXT:
            near += range(near[-1] + 1, line)
        near.append(line)
    return near
