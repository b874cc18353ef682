"""Miscompilations: edits of the model that a pass gives, each of which a compiler could have made by mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import attrs

import ziggurat as zg
from ziggurat.backend.cpu import compile as native
from ziggurat.backend.ptx import assemble as assembling
from ziggurat.bisecting.steps import DEVICE, NATIVE, OPTIMIZED, SIMULATED
from ziggurat.codemodel.dialects import arith, scf, tt
from ziggurat.codemodel.errors import ZigguratError
from ziggurat.codemodel.op import Op
from ziggurat.transforms.cpu import cpu_passes
from ziggurat.transforms.gpu import gpu_passes

_INVERSE = {
    arith.AddI: arith.SubI, arith.SubI: arith.AddI, arith.AddF: arith.SubF, arith.SubF: arith.AddF,
    arith.MulF: arith.AddF, arith.MaxNumF: arith.MinNumF, arith.MinNumF: arith.MaxNumF, arith.MulI: arith.AddI,
}  # fmt: skip


def edits(model: Op) -> list[tuple[str, Callable[[], Op]]]:
    """The edits that a model allows, with what each is."""
    choices: list[tuple[str, Callable[[], Op]]] = []

    def edit(target: Op, name: str, change: Callable[[Any, Any, Any], Any]) -> None:
        def apply() -> Op:
            return zg.transform(model, lambda b, op, operands: change(b, op, operands) if op is target else None)

        choices.append((f"{name} of {target.NAME}", apply))

    for op in model.walk():
        if type(op) in _INVERSE:
            edit(op, "another operation in the place", lambda b, o, v: b.add(_INVERSE[type(o)](*v)))
        if len(op.operands) == 2 and op.operands[0].type == op.operands[1].type and not op.bodies:
            edit(op, "swapped operands", lambda b, o, v: b.copy(o, v[::-1]))
        if isinstance(op, arith.ConstantOp) and type(op.value) is int and op.result.uses:
            edit(op, "another number in the place", lambda b, o, v: b.add(arith.ConstantOp(o.value + 1, o.result.type)))
        if isinstance(op, tt.Load | tt.Store) and len(op.operands) > (1 if isinstance(op, tt.Load) else 2):
            place = 1 if isinstance(op, tt.Load) else 2
            if op.operands[place].type == op.operands[place].type:
                edit(op, "a dropped mask", lambda b, o, v, p=place: _unmasked(b, o, v, p))
        if isinstance(op, scf.For):
            edit(op, "a late start", lambda b, o, v: b.copy(o, (b.add(arith.AddI(v[0], v[2])), *v[1:])))
        if isinstance(op, tt.Store):
            edit(op, "a lost store", lambda b, o, v: zg.DROP)
    return choices


def _unmasked(builder: Any, op: Op, operands: Any, place: int) -> Any:
    true = builder.add(arith.ConstantOp(False, operands[place].type))
    return builder.copy(op, (*operands[:place], true, *operands[place + 1 :]))


Step = Callable[..., Any]


@attrs.define
class Planted:
    """An edit at the end of a pass; `what` it is, at the first run of the pass. If `first`, it is at the beginning."""

    seed: int
    what: str = ""
    first: bool = False

    def around(self, step: Step) -> Step:
        """The pass with the edit."""

        def edited(model: Any, *more: Any) -> Any:
            return step(self._edited(model), *more) if self.first else self._edited(step(model, *more))

        return edited

    def _edited(self, model: Op) -> Op:
        choices = edits(model)
        random = Random(self.seed)
        random.shuffle(choices)
        for name, apply in choices:
            try:
                changed = apply()
                zg.verify(changed)
            except ZigguratError:
                continue
            self.what = self.what or name
            return changed
        return model


# The functions of emitters, by the step of `zg.bisect` that shows what they do.
_EMITTERS: dict[str, tuple[Any, str]] = {
    SIMULATED: (assembling, "to_llvm"), OPTIMIZED: (assembling, "_optimized"), DEVICE: (assembling, "to_ptx"),
    NATIVE: (native, "to_llvm"),
}  # fmt: skip


@contextmanager
def replaced_step(name: str, around: Callable[[Step], Step]) -> Iterator[None]:
    """Within this context, a step of `zg.bisect` is what `around` makes of it: a pass of the GPU's pipeline, of the
    CPU's by the name `cpu …`, or the emission of code."""
    phases, lower = gpu_passes.PHASES, cpu_passes.LOWER
    module, function = _EMITTERS.get(name, (assembling, "to_llvm"))
    emit = getattr(module, function)
    try:
        if name in _EMITTERS:
            setattr(module, function, around(emit))
        elif name.startswith("cpu "):
            cpu_passes.LOWER = tuple((n, around(s) if f"cpu {n}" == name else s) for n, s in lower)
        else:
            steps = [step for phase in phases for n, step in phase.passes if n == name]
            gpu_passes.PHASES = gpu_passes.replaced(name, (name, around(steps[0])))
        yield
    finally:
        gpu_passes.PHASES, cpu_passes.LOWER = phases, lower
        setattr(module, function, emit)


@contextmanager
def planted(name: str, seed: int) -> Iterator[Planted]:
    """Within this context, a pass or the emission of code for GPUs has an edit of the model."""
    fault = Planted(seed, first=name in (SIMULATED, NATIVE))
    with replaced_step(name, fault.around):
        yield fault
