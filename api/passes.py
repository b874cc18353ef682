"""Models in text, and the passes to run on them: `ziggurat opt FILE`, and `ziggurat verify` and `ziggurat run`.

A text has one or more cases. A case begins with lines of comment: `// test:` and a title, `// passes:` and names,
`// options:` and options of compilation as `name=value`. The model follows; then `// becomes` and the model after the
passes. Lines of `// CHECK:` above `// becomes`, or without it, say what parts of the result must be
(`check_lines.py`). A `|` between names stands for other passes with the same result. Triton's MLIR may stand for the
model.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from ziggurat.codemodel.dialects import tt
from ziggurat.codemodel.errors import LaunchError
from ziggurat.codemodel.gpu.options import CPU, CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Pass, Snapshot, run_passes
from ziggurat.codemodel.ssa import ssa
from ziggurat.codemodel.text.check_lines import check_lines, mismatch
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify as verify_model
from ziggurat.frontends.language.signature import suggest

_VECTOR = 32  # Bytes of a vector of a CPU: the same on every machine.
_BECOMES = "// becomes\n"
_MLIR = re.compile(r"^\s*(module( attributes .*)? \{|tt\.func (public|private) )", re.MULTILINE)
_HEADER = re.compile(r"// (test|passes|options):(.*)\n")


@attrs.frozen
class Case:
    """A model as text, the passes to run on it, and the model that is expected after them, or None."""

    title: str
    passes: tuple[tuple[str, ...], ...]  # Each of these has the same result.
    options: Mapping[str, str]
    before: str
    after: str | None

    @property
    def model(self) -> Op:
        """The model before the passes."""
        from ziggurat.backend.mlir import from_mlir

        return from_mlir(self.before) if _MLIR.search(self.before) else parse(self.before)

    def steps(self, names: Sequence[str], own: Mapping[str, Pass], *, verify: bool = True) -> list[Snapshot]:
        """The model before the passes, with an empty name, and after each of them. `own` are passes of the user's.
        Raises `VerifyError` for a model that breaks a rule before or after them."""
        options = CompileOptions.of({name: _value(text) for name, text in self.options.items()})
        by_name = {**passes_by_name(options), **own}
        if not names:
            raise LaunchError(
                "the passes must be named", hint="give --passes cse,dce, or write '// passes: cse dce' above the model"
            )
        for name in names:
            if name not in by_name:
                hint = suggest(name, by_name) or f"the passes are {', '.join(sorted(by_name))}"
                raise LaunchError(f"there is no pass '{name}'", hint=hint)
        snapshots = [Snapshot("", self.model)]
        verify_model(snapshots[0].model)
        result = run_passes(
            snapshots[0].model, [(name, by_name[name]) for name in names], verify=verify, snapshots=snapshots
        )
        verify_model(result)
        return snapshots

    def __str__(self) -> str:
        fields = {
            "test": self.title,
            "passes": " | ".join(map(" ".join, self.passes)),
            "options": " ".join(f"{name}={value}" for name, value in self.options.items()),
        }
        header = "".join(f"// {name}: {text}\n" for name, text in fields.items() if text)
        before = f"{header}{self.before.strip()}\n"
        return before if self.after is None else f"{before}{_BECOMES}{self.after.strip()}\n"


def renewed(text: str, own: Mapping[str, Pass]) -> tuple[str, list[str], list[str]]:
    """The text of a file with what the passes of its cases make after `// becomes`; the difference of each case that
    had another model, or nothing to compare with; and what lines of `// CHECK:` do not match. `own` are passes of the
    user's by name."""
    differences: list[str] = []
    mismatches: list[str] = []
    first, *parts = _parts(text)
    texts = [first]
    for part in parts:
        case = _case(part)
        before = [] if case.after is None else case.after.strip().splitlines()
        lines = check_lines(case.before)
        results = [str(case.steps(names, own)[-1].model).strip() for names in case.passes]
        is_whole = case.after is not None or not lines
        for names, after in zip(case.passes, results, strict=True):
            title = f"{case.title or 'the model'} after {' '.join(names)}:"
            if (error := mismatch(lines, after)) is not None:
                mismatches.append(f"{title}\n{error}")
            changed = [*difflib.unified_diff(before, after.splitlines(), "expected", "result", lineterm="")]
            if is_whole and changed:
                differences.append("\n".join([title, *changed]))
        if is_whole and before != results[0].splitlines():
            space = part[len(part.rstrip()) :] or "\n"
            part = f"{part.partition(_BECOMES)[0].rstrip()}\n{_BECOMES}{results[0]}{space}"
        texts.append(part)
    return "".join(texts), differences, mismatches


def cases(text: str) -> list[Case]:
    """The cases of a file's text; comments before the first `// test:` belong to none of them."""
    return [_case(part) for part in _parts(text)[1:]]


def _parts(text: str) -> list[str]:
    """The text before the first case, and those of the cases."""
    starts = [match.start() for match in re.finditer(r"^// test:", text, re.MULTILINE)] or [0]
    return [text[start:end] for start, end in zip([0, *starts], [*starts, len(text)], strict=True)]


def _case(text: str) -> Case:
    fields = {name: value.strip() for name, value in _HEADER.findall(text)}
    before, separator, after = _HEADER.sub("", text).partition(_BECOMES)
    passes = tuple(tuple(names.split()) for names in fields.get("passes", "").split("|"))
    options = dict(option.partition("=")[::2] for option in fields.get("options", "").split())
    return Case(fields.get("test", ""), passes, options, before, after if separator else None)


def changes(steps: Sequence[Snapshot]) -> str:
    """What each pass changes in the text of the model, line by line."""
    texts = [str(step.model).splitlines() for step in steps]
    names = [f"after {step.name}" if step.name else "before" for step in steps]
    pairs = zip(texts, texts[1:], names, names[1:], strict=False)
    lines = [line for a, b, x, y in pairs for line in difflib.unified_diff(a, b, x, y, lineterm="")]
    return "\n".join([*lines, ""])


def executed(model: Op, text: str, grid: Sequence[int]) -> str:
    """The result of a model, or the arrays that it changes, for arguments in text; see `drawn`. Raises its
    errors and those of the run."""
    from ziggurat.launches.host import execute, run
    from ziggurat.launches.simulated import array_of, drawn

    arguments = drawn(text)
    if not model.holds(tt.Func):
        return f"{execute(model, *arguments)!r}\n"
    arrays = {f"%{number}": array for number, value in enumerate(arguments) if (array := array_of(value)) is not None}
    before = {name: array.copy() for name, array in arrays.items()}
    run(model, tuple(grid), *arguments)
    changed = [name for name, array in arrays.items() if array.tobytes() != before[name].tobytes()]
    results = any(isinstance(op, tt.Return) and op.operands for op in model.walk())
    unseen = "; what a tt.func returns is not shown: store it through a pointer" if results else ""
    return "".join(f"{name}: {arrays[name]}\n" for name in changed) or f"no array has changed{unseen}\n"


def _value(text: str) -> int | str | bool:
    return {"True": True, "False": False}.get(text, int(text) if text.isdecimal() else text)


def passes_by_name(options: CompileOptions) -> dict[str, Pass]:
    """The passes of the Python model, of simplification, and of the way to the target of the options, by the names of
    their steps."""
    from ziggurat.transforms import simplify
    from ziggurat.transforms.cpu.cpu_passes import LOWER
    from ziggurat.transforms.early_exits import early_exits
    from ziggurat.transforms.gpu.gpu_passes import PHASES, place

    others = (simplify.lower_structured, simplify.remove_unused, simplify.simplify)
    functions = (early_exits, ssa, *simplify.SIMPLIFY, *others)
    by_name: dict[str, Pass] = {function.__name__: function for function in functions}
    if options.target == CPU:
        return by_name | {name: _with(step, _VECTOR) for name, step in LOWER}
    by_name |= {name: _with(step, options) for phase in PHASES for name, step in phase.passes}
    return by_name | {"place": partial(place, options=options)}


def _with(step: Callable[[Any, Any], Op], argument: Any) -> Pass:
    def run(model: Op) -> Op:
        return step(model, argument)

    return run
