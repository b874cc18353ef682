"""Which ops have no emitter for PTX, and why."""

import pytest

from ziggurat.backend.ptx import assemble  # noqa: F401  (fills the table)
from ziggurat.backend.ptx.emitter import EMITTERS, emits
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, py

FRAMING = {"module", "gpu.module", "tt.func", "unreachable", "tt.reduce.return", "tt.scan.return"}
OF_PYTHON = {
    *("func", "func.call", "func.ref", "constant", "var", "var.load", "var.store", "branch", "cbranch", "return"),
    "yield",
}
# Steps of placing leave none of these.
LOWERED = {
    "tt.call": "prepare inlines it",
    "tuple.with": "prepare folds it: tuples are taken apart where they are made",
    "tt.make_tensor_descriptor": "descriptors makes pointers of it",
    "tt.descriptor_load": "descriptors, pipeline_loads or tma",
    "tt.descriptor_store": "descriptors or tma",
    "tt.gather": "lower: gpu.local_gather",
    "tt.histogram": "lower: gpu.local_atomic_add",
}


def test_every_other_op_has_an_emitter():
    lacking = {name for name, cls in OPS.items() if cls not in EMITTERS and cls.__module__ != py.__name__}
    assert lacking == FRAMING | OF_PYTHON | LOWERED.keys()


def test_an_op_has_one_emitter():
    with pytest.raises(AssertionError, match=r"arith\.addi"):
        emits(arith.AddI)(EMITTERS[arith.AddI])
