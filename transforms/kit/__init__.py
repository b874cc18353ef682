"""The transform kit: functions from which transforms of kernels are built.

    from ziggurat.transforms import kit

    narrow = kit.retype(model, {zg.f32: zg.bf16})         # other types in memory
    one = kit.fuse(scale, shift, through=(1, 0))          # two kernels as one
    print(kit.difference(model, narrow))

Each function takes a model and returns another; docs/guides/writing-a-transform.md has an example of each.
"""

from ziggurat.codemodel.dominance import Dominance, DominatorTree
from ziggurat.codemodel.fixpoint import fixpoint
from ziggurat.codemodel.liveness import liveness
from ziggurat.codemodel.passes import Snapshot, compose, run_passes
from ziggurat.codemodel.ssa import ssa
from ziggurat.codemodel.transform import DROP, Rewriter, rebuilt, transform, with_attributes
from ziggurat.codemodel.types import element_of, shape_of, shaped, with_element
from ziggurat.transforms.casts import cast
from ziggurat.transforms.kit.dataflow import derived, origins, parameter_number, read_parameters, written_parameters
from ziggurat.transforms.kit.difference import difference
from ziggurat.transforms.kit.fuse import fuse, joined
from ziggurat.transforms.kit.inline_functions import inline_functions
from ziggurat.transforms.kit.patterns import anything, capture, constant, either, match, op_
from ziggurat.transforms.kit.replace_calls import replace_calls
from ziggurat.transforms.kit.retype import retype
from ziggurat.transforms.kit.rules import Rules
from ziggurat.transforms.parameters import kernel_of, specialize, unspecialize
from ziggurat.transforms.simplify import SIMPLIFY, inline, inline_call, lower_structured, simplify

__all__ = [
    "DROP",
    "SIMPLIFY",
    "Dominance",
    "DominatorTree",
    "Rewriter",
    "Rules",
    "Snapshot",
    "anything",
    "capture",
    "cast",
    "compose",
    "constant",
    "derived",
    "difference",
    "either",
    "element_of",
    "fixpoint",
    "fuse",
    "inline",
    "inline_call",
    "inline_functions",
    "joined",
    "kernel_of",
    "liveness",
    "lower_structured",
    "match",
    "op_",
    "origins",
    "parameter_number",
    "read_parameters",
    "rebuilt",
    "replace_calls",
    "retype",
    "run_passes",
    "shape_of",
    "shaped",
    "simplify",
    "specialize",
    "ssa",
    "transform",
    "unspecialize",
    "with_attributes",
    "with_element",
    "written_parameters",
]
