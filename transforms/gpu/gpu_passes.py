"""The passes from a Triton model to a GPU model that can be emitted, as one visible tuple of phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from ziggurat.codemodel.dialects import core, tt
from ziggurat.codemodel.errors import InternalError, LaunchError
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.gpu.options import MAX_WARPS, USUAL_WARPS, CompileOptions
from ziggurat.codemodel.op import Op
from ziggurat.codemodel.passes import Snapshot, run_passes
from ziggurat.transforms.cost.choose import choose_warps
from ziggurat.transforms.gpu.allocate import allocate
from ziggurat.transforms.gpu.assign import assign
from ziggurat.transforms.gpu.barriers import insert_barriers
from ziggurat.transforms.gpu.clusters import lower_clusters
from ziggurat.transforms.gpu.dots import anchors, operands_of_dots, place_dots
from ziggurat.transforms.gpu.lower import lower
from ziggurat.transforms.gpu.lower_channels import lower_channels
from ziggurat.transforms.gpu.raise_pointers import raise_pointers
from ziggurat.transforms.gpu.share_buffers import share_buffers
from ziggurat.transforms.gpu.tensor_maps import make_tensor_maps
from ziggurat.transforms.gpu.tma import aliasing, by_rows, lower_tma, tma_accesses
from ziggurat.transforms.schedule.copies import make_copies
from ziggurat.transforms.schedule.defer_stores import defer_stores
from ziggurat.transforms.schedule.early_copies import copy_early
from ziggurat.transforms.schedule.hold_operands import hold_operands
from ziggurat.transforms.schedule.latency import latency
from ziggurat.transforms.schedule.rescale import rescale
from ziggurat.transforms.schedule.schedule import expand
from ziggurat.transforms.schedule.sink_waits import sink_waits
from ziggurat.transforms.schedule.specialize import specialize
from ziggurat.transforms.simplify import cse, dce
from ziggurat.transforms.simplify.demand import first_kernel
from ziggurat.transforms.tiles.choices import divide_choices
from ziggurat.transforms.tiles.chunks import divide_blocks
from ziggurat.transforms.tiles.contract import contract
from ziggurat.transforms.tiles.descriptors import lower_descriptors, make_chosen
from ziggurat.transforms.tiles.multicast import shared_blocks
from ziggurat.transforms.tiles.persist import make_persistent
from ziggurat.transforms.tiles.prepare import prepare_for_gpu
from ziggurat.transforms.tiles.reduction_parts import divide_reductions
from ziggurat.transforms.tiles.spread import spread


def _assign(op: core.Module, options: CompileOptions) -> Op:
    # Accumulators stay in the layouts of the matrix units, through loops and elementwise ops.
    where = op, options.target, options.warps
    return assign(op, options, anchors(*where), operands_of_dots(*where))


def _descriptors(op: core.Module, options: CompileOptions) -> Op:
    op = by_rows(make_chosen(op))
    by_tma = tma_accesses(op, options.target, options.warps, options.launch_pdl, bool(options.warp_specialize))
    return lower_descriptors(op, by_tma, aliasing(op, by_tma), shared_blocks(first_kernel(op), by_tma))


Step = Callable[[Any, CompileOptions], Op]  # Takes a `core.Module` or, after `assign`, a `gpu.Module`.

_DESCRIPTORS = (
    tt.MakeTensorDescriptor,
    tt.DescriptorPadding,
    tt.DescriptorFact,
    tt.DescriptorLoad,
    tt.DescriptorStore,
    tt.DescriptorReduce,
    tt.DescriptorGather,
    tt.DescriptorScatter,
)
_CHANNELS = (gpu.Channel, gpu.ChannelOp, gpu.ChannelClose, gpu.ClusterGather)


def _is_unplaced(op: Op) -> bool:
    return isinstance(op, gpu.LocalAlloc) and op.offset < 0


@attrs.frozen
class Phase:
    """Passes that follow each other, by their names, and the ops that no model has after them.

    These are the ops of the classes `removes`, and those for which `is_unfinished` is true.
    """

    name: str
    passes: tuple[tuple[str, Step], ...]
    removes: tuple[type[Op], ...] = ()
    is_unfinished: Callable[[Op], bool] = lambda op: False

    def survivor(self, model: Op) -> Op | None:
        """An op of a model that this phase would have removed, or changed; None if there is none."""
        return next((op for op in model.walk() if isinstance(op, self.removes) or self.is_unfinished(op)), None)


PHASES: tuple[Phase, ...] = (
    Phase(
        "tiles",
        (
            ("prepare", lambda op, _: prepare_for_gpu(op)),
            ("divide_choices", lambda op, _: divide_choices(op)),
            # On the simplified model, whose products have the fewest uses.
            ("contract", lambda op, options: contract(op) if options.contract and not options.exact_math else op),
            # The passes after it see the part of a CTA.
            ("spread", spread),
            ("raise_pointers", raise_pointers),
            # Loads that are raised no longer need an order; a loop over programs would have given them one.
            ("persist", make_persistent),
            ("divide_blocks", lambda op, o: divide_reductions(divide_blocks(op, o.warps), o.warps)),
            # After inlining, which shows the descriptor of each access.
            ("descriptors", _descriptors),
        ),
        (tt.Call,),
    ),
    Phase("layouts", (("assign", _assign),), (core.Module,)),
    Phase(
        "products",
        (
            ("dots", lambda op, _: place_dots(op)),
            ("sink_waits", lambda op, options: sink_waits(op, bool(options.warp_specialize))),
            # Equal conversions become one before they go through shared memory.
            ("cse", lambda op, _: cse(op)),
            ("share_buffers", lambda op, _: share_buffers(op)),
            ("dce", lambda op, _: dce(op)),
        ),
    ),
    Phase(
        "schedule",
        (
            # Before the schedules of other loops: a specialised loop has no loads for dots left.
            ("specialize", lambda op, o: specialize(op, o.num_stages, bool(o.warp_specialize), o.maxnreg)),
            ("latency", lambda op, options: latency(op, options.num_stages)),
            ("copies", lambda op, _: make_copies(op)),
            ("expand", lambda op, _: expand(op)),
            ("rescale", lambda op, _: rescale(op)),
            ("early_copies", lambda op, _: copy_early(op)),
        ),
        (gpu.Stage,),
    ),
    Phase(
        "descriptors",
        (
            # The loads and stores that no loop has pipelined.
            ("tma", lambda op, _: lower_tma(op)),
            # A descriptor that the kernel made is left only where TMA needs a tensor map.
            ("tensor_maps", lambda op, _: make_tensor_maps(op)),
            # The operands that TMA has loaded before a loop.
            ("hold_operands", lambda op, _: hold_operands(op)),
        ),
        _DESCRIPTORS,
    ),
    Phase(
        "channels",
        (
            # Nothing after this fills slots; nothing before it knows their indices.
            ("lower_channels", lambda op, _: lower_channels(op)),
            ("clusters", lambda op, _: lower_clusters(op)),
        ),
        _CHANNELS,
    ),
    Phase(
        "memory",
        (
            ("lower", lambda op, _: lower(op)),
            ("dce", lambda op, _: dce(op)),
            # Nothing after this allocates shared memory.
            ("defer_stores", lambda op, _: defer_stores(op)),
            # Offsets decide which accesses conflict, so allocation comes before the barriers.
            ("allocate", lambda op, _: allocate(op)),
            ("barriers", lambda op, _: insert_barriers(op)),
        ),
        (tt.Histogram,),
        _is_unplaced,
    ),
)

PLACE = tuple(step for phase in PHASES for step in phase.passes)
CHOSEN_AFTER = "raise_pointers"  # Nothing before this depends on warps; it shows which loads TMA does.


def replaced(name: str, *passes: tuple[str, Step]) -> tuple[Phase, ...]:
    """The phases with other passes in the place of those of a name."""
    return tuple(
        attrs.evolve(
            phase, passes=tuple(new for step in phase.passes for new in (passes if step[0] == name else (step,)))
        )
        for phase in PHASES
    )


def phases_of(options: CompileOptions) -> tuple[Phase, ...]:
    """The phases with the passes of one's own that the options have: each after its phase, or after the pass of a phase
    that it names, `PHASE.PASS`."""

    def own(*places: str) -> list[tuple[str, Step]]:
        return [(name, lambda op, _, step=step: step(op)) for name, step in options.after(*places)]

    return tuple(
        attrs.evolve(
            phase,
            passes=(
                *(new for step in phase.passes for new in (step, *own(f"{phase.name}.{step[0]}"))),
                *own(phase.name),
            ),
        )
        for phase in PHASES
    )


def place(
    model: Op, options: CompileOptions, snapshots: list[Snapshot] | None = None, first: str | None = None
) -> gpu.Module:
    """The GPU model of a Triton model, or of a GPU model that is to pass the phases from `first` on.

    The passes of one's own that the options have are among those of the phases.
    Without `first`, a Triton model passes all phases and a GPU model none. `snapshots` gets the model after each pass.
    With `options.verify`, the model is verified after each pass, also against what earlier phases have removed, and
    what `hazards` finds in the last one is an `InternalError`. Raises `LaunchError` for a model that lacks a phase
    before.
    """
    start = _start(model, first)
    if start and isinstance(model, core.Module):
        options = chosen_options(model, options)
    for number, phase in enumerate(phases_of(options)[start:], start):
        for name, step in phase.passes:
            model = run_passes(model, [(name, partial(_run, step, options))], verify=bool(options.verify))
            done = number + (name == phase.passes[-1][0])
            if options.verify and (survivor := _survivor(model, PHASES[:done])):
                raise InternalError(f"after the pass '{name}', {survivor[1]}", str(model))
            if snapshots is not None:
                snapshots.append(Snapshot(name, model, PHASES[done].name if done < len(PHASES) else None))
            if name == CHOSEN_AFTER:
                options = chosen_options(model, options)
    assert isinstance(model, gpu.Module)
    if options.verify:
        from ziggurat.transforms.gpu.hazards import hazards

        if faults := hazards(model):
            raise InternalError("; ".join(map(str, faults)), str(model))
    return model


def _start(model: Op, first: str | None) -> int:
    """The number of the first phase that a model is to pass. Raises `LaunchError` where it lacks one before."""
    names = [phase.name for phase in PHASES]
    if first is not None and first not in names:
        raise LaunchError(f"no phase is named '{first}'", hint=f"phases: {', '.join(names)}")
    start = names.index(first) if first else 0 if isinstance(model, core.Module) else len(names)
    if survivor := _survivor(model, PHASES[:start]):
        phase, message = survivor
        raise LaunchError(
            f"the model is not complete: {message}",
            hint=f"compile it with phase='{phase}', or the Triton model, or compiled.stages[\"gpu\"]",
        )
    return start


def _survivor(model: Op, phases: Sequence[Phase]) -> tuple[str, str] | None:
    """The first of these phases whose ops a model still has, by its name, and a clause that says so."""
    for phase in phases:
        if (op := phase.survivor(model)) is not None:
            return phase.name, f"it has the op '{op.NAME}', which the phase '{phase.name}' removes"
    return None


def chosen_options(model: Op, options: CompileOptions) -> CompileOptions:
    """The options with the warps and the roles that a launch has left to the compiler. A program that cannot be a
    cluster has the warps of all CTAs that were asked for."""
    if not isinstance(model, core.Module):
        return options
    func, roles = first_kernel(model), options.warp_specialize
    if roles is None and func.num_ctas > 1 and func.holds(tt.Dot):
        roles = True  # Between roles, the CTAs load together.
    if options.num_warps is not None:
        ctas = (options.num_ctas or 1) if func.num_ctas == 1 else 1
        return attrs.evolve(options, num_warps=min(MAX_WARPS, options.num_warps * ctas), warp_specialize=roles)
    warps = choose_warps(model, options.target).count
    return attrs.evolve(options, num_warps=warps, warp_specialize=warps > USUAL_WARPS if roles is None else roles)


def _run(step: Step, options: CompileOptions, model: Op) -> Op:
    return step(model, options)
