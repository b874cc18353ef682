"""Ops without an emitter for PTX, with the reasons; and symbols."""

import pytest

from ziggurat.backend.ptx import assemble
from ziggurat.backend.ptx.emitter import EMITTERS, emits, symbol_of
from ziggurat.codemodel.declare import OPS
from ziggurat.codemodel.dialects import arith, cpu, debug, py, py_objects, py_suites
from ziggurat.codemodel.gpu import dialect as gpu
from ziggurat.codemodel.text.parser import parse

FRAMING = {
    *("module", "gpu.module", "tt.func", "unreachable"),
    *("tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return"),
}
OF_PYTHON = {
    *("func", "func.call", "func.ref", "constant", "var", "var.load", "var.store", "branch", "cbranch", "return"),
    "yield",
}
# Steps of placing leave none of these.
LOWERED = {
    "tt.call": "prepare inlines it",
    "tuple.with": "prepare folds it: tuples are taken apart where they are made",
    "tt.make_tensor_descriptor": "descriptors makes pointers of it, or tensor_maps a tensor map",
    "gpu.stage": "expand",
    "tt.descriptor_load": "descriptors, copies or tma",
    "tt.descriptor_reduce": "descriptors makes atomic ops of it",
    "tt.descriptor_store": "descriptors or tma",
    "tt.descriptor_gather": "descriptors makes a load of it",
    "tt.descriptor_scatter": "descriptors makes a store of it",
    "tt.descriptor_padding": "descriptors has the padding at hand",
    "tt.descriptor_size": "descriptors has the number at hand",
    "tt.descriptor_stride": "descriptors has the number at hand",
    "tt.histogram": "lower: gpu.local_atomic_add",
    "gpu.cluster_gather": "clusters",
    **dict.fromkeys(
        (f"gpu.channel{part}" for part in ("", "_acquire", "_commit", "_wait", "_release", "_close")), "lower_channels"
    ),
}


def test_every_other_op_has_an_emitter():
    modules = {dialect.__name__ for dialect in (py, py_objects, py_suites, cpu, debug)}
    lacking = EMITTERS.missing(cls for cls in OPS.values() if cls.__module__ not in modules)
    assert set(lacking) == FRAMING | OF_PYTHON | LOWERED.keys()


def test_an_op_has_one_emitter():
    with pytest.raises(ValueError, match=r"'arith\.addi' has a PTX emitter already"):
        emits(arith.AddI)(EMITTERS.get(arith.AddI))


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("add", "add"),
        ("f.<locals>.k", "f__locals__k"),
        ("_", "kernel__"),
        ("$", "kernel_$"),
        ("", "kernel_"),
        ("1abc", "kernel_1abc"),
        (" ", "kernel__"),
        ("smem", "kernel_smem"),
        ("zg_text_0", "kernel_zg_text_0"),
        ("WARP_SZ", "kernel_WARP_SZ"),
    ],
)
def test_a_symbol_is_one_that_ptx_can_have(name: str, symbol: str, ptxas):
    assert symbol_of(name) == symbol
    model = parse(f"""gpu.module @target="sm_90a" @num_warps=4 ()void -> {{
        tt.func @"{name}" (%p : ptr<f32>, %n : i32)void -> {{ tt.return; }}; unreachable; }};""")
    assert isinstance(model, gpu.Module)
    ptxas(assemble.assemble(model).ptx, "sm_90a")
