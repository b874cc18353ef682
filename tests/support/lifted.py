"""Models that come back as source: whether a kernel is the same op for op as another one."""

from ziggurat.codemodel.dialects import arith, core, tt
from ziggurat.codemodel.types import element_of, f32, void
from ziggurat.transforms.simplify import inline


def ops_of(model):
    """The ops of a kernel, with its calls inlined, one a line. A constant stands where it is used, in its last type."""
    model = inline(model)
    functions = [op for op in model.walk() if isinstance(op, tt.Func)]
    calls = {op.callee for op in model.walk() if isinstance(op, tt.Call)}
    order = {function.sym_name: f"@{index}" for index, function in enumerate(functions)}
    lines, names = [], {}

    def constant(value):
        if isinstance(value.op, tt.Splat | arith.SIToFP | arith.ExtSI):
            return constant(value.op.operands[0])
        return value.op.value if isinstance(value.op, arith.ConstantOp) else None

    def of(value):
        number = constant(value)
        if number is not None:
            return f"{float(number) if element_of(value.type).is_float else number!r}:{value.type}"
        if isinstance(value.op, core.TupleLoad):
            tuple_, index = value.op.tuple, value.op.index
            return of(tuple_.op.components[index]) if isinstance(tuple_.op, core.MakeTuple) else f"{of(tuple_)}.{index}"
        return names[value]

    def walk(body):
        for parameter in body.parameters:
            names[parameter] = f"%{len(names)}"
        lines.append(f"({', '.join(f'{names[p]} : {p.type}' for p in body.parameters)})")
        for op in body.entry.ops:
            if isinstance(op, core.TupleLoad | core.MakeTuple) or constant(op.result) is not None:
                continue
            names[op.result] = f"%{len(names)}"
            attributes = dict(op.attributes)
            attributes.pop("c_form", None)  # The form in which a language prints floats.
            if isinstance(op, tt.Dot):  # Only a dot of f32 has a precision, and Triton has no word for the default.
                is_f32 = element_of(op.a.type) == f32 and op.input_precision is not tt.InputPrecision.DEFAULT
                attributes["input_precision"] = op.input_precision if is_f32 else tt.InputPrecision.TF32
            if isinstance(op, tt.Call):
                attributes["callee"] = order[op.callee]
            operands = " ".join(map(of, op.operands))
            lines.append(f"{names[op.result]} : {op.result.type} = {op.NAME} {operands} {attributes}")
            for inner in op.bodies:
                walk(inner)
        lines.append("end")

    for function in functions:
        if function.sym_name in calls or function.body.yield_type == void:
            walk(function.body)
    return lines
