"""Kernels of one op each, for every op of the Triton model and every type it takes: inputs of the MLIR emitters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ziggurat.codemodel.builder import Builder
from ziggurat.codemodel.dialects import arith, core, math, scf, tt
from ziggurat.codemodel.op import Op, Value
from ziggurat.codemodel.traits import Terminator
from ziggurat.codemodel.types import (
    SCALARS,
    DescriptorType,
    PtrType,
    ScalarType,
    TensorType,
    Type,
    bf16,
    element_of,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i32,
    i64,
    shape_of,
    u8,
    u32,
    u64,
    void,
    with_element,
)

FLOATS = (f16, bf16, f32, f64, f8e4m3, f8e5m2)
INTEGERS = tuple(type_ for type_ in SCALARS.values() if type_.kind == "int")
SIGNED = tuple(type_ for type_ in INTEGERS if type_.signed)
UNSIGNED = tuple(type_ for type_ in INTEGERS if not type_.signed)
Build = Callable[..., Op | Value]


def kernel(types: Sequence[Type], build: Build) -> Op:
    """A kernel that loads a value of each type, calls `build` on them, and stores the results."""
    pointers = [PtrType(element) for t in types if isinstance(element := element_of(t), ScalarType)]
    out = [PtrType(type_) for type_ in SCALARS.values()]
    f = Builder.root([*pointers, *out])
    stores = dict(zip(SCALARS.values(), f.parameters[len(pointers) :], strict=True))
    values: list[Value] = []
    for pointer, type_ in zip(f.parameters, types, strict=False):
        values.append(f.add(tt.Load(spread(f, pointer, shape_of(type_)))))
    value = build(f, *values)
    result = f.add(value) if isinstance(value, Op) else value
    parts = [result]
    if result.type == void:
        parts = []
    elif count := len(getattr(result.type, "components", ())):
        parts = [f.add(core.TupleLoad(result, index)) for index in range(count)]
    for part in parts:
        element = element_of(part.type)
        if isinstance(element, PtrType):
            part = f.add(tt.PtrToInt(part))
            element = i64
        if isinstance(element, ScalarType):
            f.add(tt.Store(spread(f, stores[element], shape_of(part.type)), part))
    f.add(tt.Return([]))
    return tt.Func("kernel", body=f.finish())


def spread(f: Builder, pointer: Value, shape: tuple[int, ...]) -> Value:
    """Pointers to the elements of a tensor in memory; a scalar pointer for the empty shape."""
    if not shape:
        return pointer
    count = 1
    for size in shape:
        count *= size
    offsets: Value = f.add(tt.MakeRange(0, count))
    pointers = f.add(tt.AddPtr(f.add(tt.Splat(pointer, TensorType((count,), pointer.type))), offsets))
    return pointers if len(shape) == 1 else f.add(tt.Reshape(pointers, TensorType(shape, pointer.type)))


def tensor(scalar: ScalarType, *shape: int) -> TensorType:
    """A tensor type, of 64 elements unless a shape is given."""
    return TensorType(shape or (64,), scalar)


def cases() -> dict[str, Op]:
    """The kernels by name."""
    results: dict[str, Op] = {}

    def case(name: str, types: Sequence[Type], build: Build) -> None:
        results[name] = kernel(types, build)

    def each(ops: Sequence[type[Op]], scalars: Sequence[ScalarType], count: int) -> None:
        for op in ops:
            for scalar in scalars:
                case(f"{op.NAME}.{scalar}", [tensor(scalar)] * count, lambda f, *values, op=op: op(*values))

    each([arith.AddI, arith.SubI, arith.MulI, arith.AndI, arith.OrI, arith.XOrI, arith.ShlI], INTEGERS, 2)
    each([arith.AndI, arith.OrI, arith.XOrI], [i1], 2)
    each([arith.DivSI, arith.RemSI, arith.ShrSI, arith.MaxSI, arith.MinSI], SIGNED, 2)
    each([arith.DivUI, arith.RemUI, arith.ShrUI, arith.MaxUI, arith.MinUI, tt.MulHiUI], UNSIGNED, 2)
    each([arith.AddF, arith.SubF, arith.MulF, arith.DivF, arith.RemF], FLOATS, 2)
    each([arith.MaximumF, arith.MinimumF, arith.MaxNumF, arith.MinNumF], FLOATS, 2)
    each([math.Exp, math.Exp2, math.Log, math.Log2, math.Sqrt, math.Rsqrt, math.Sin, math.Cos, math.Tanh], FLOATS, 1)
    each([math.Erf, math.Floor, math.Ceil, math.Trunc, math.RoundEven, math.AbsF, arith.NegF], FLOATS, 1)
    each([math.Fma], FLOATS, 3)
    each([tt.PreciseDivF], FLOATS, 2)
    each([tt.PreciseSqrt], FLOATS, 1)
    each([math.AbsI], INTEGERS, 1)
    bits = [cls for cls in vars(math).values() if isinstance(cls, type) and issubclass(cls, math.BitUnary)]
    each([cls for cls in bits if cls is not math.BitUnary], [scalar for scalar in INTEGERS if scalar.kind == "int"], 1)
    for scalar in SCALARS.values():
        shaped_as = tensor(scalar)
        value = {"float": 1.5, "int": 3, "bool": True}[scalar.kind]
        for number in [value, *([-0.0, float("inf"), float("nan"), 1e-5] if scalar.is_float else [])]:
            case(f"constant.{scalar}.{number}", [], lambda f, t=shaped_as, n=number: arith.ConstantOp(n, t))
            case(f"constant.scalar.{scalar}.{number}", [], lambda f, t=scalar, n=number: arith.ConstantOp(n, t))
        condition = tensor(i1)
        case(f"select.{scalar}", [condition, shaped_as, shaped_as], lambda f, *v: arith.Select(*v))
        case(f"select.whole.{scalar}", [i1, shaped_as, shaped_as], lambda f, *v: arith.Select(*v))
        case(f"masked.{scalar}", [condition, shaped_as], lambda f, m, x, t=scalar: _masked(f, m, x))
        case(f"splat.{scalar}", [scalar], lambda f, x: tt.Splat(x, tensor(x.type)))
        case(f"poison.{scalar}", [], lambda f, t=shaped_as: tt.Poison(t))
        if scalar != i1:
            case(f"print.{scalar}", [shaped_as, scalar], lambda f, *v: tt.Print(v, "values", hex=True))
    for scalar in (*INTEGERS, i1):
        for p in arith.IntPredicate:
            sign = p.value[0] if p.value not in ("eq", "ne") else None
            if sign is None or (sign == "s") == scalar.signed:
                case(f"cmpi.{p.value}.{scalar}", [tensor(scalar)] * 2, lambda f, a, b, p=p: arith.CmpI(a, b, p))
    for scalar in FLOATS:
        for p in arith.FloatPredicate:
            case(f"cmpf.{p.value}.{scalar}", [tensor(scalar)] * 2, lambda f, a, b, p=p: arith.CmpF(a, b, p))
    _casts(case)
    _shapes(case)
    _memory(case)
    _computing(case)
    return results


def _masked(f: Builder, mask: Value, value: Value) -> Value:
    pointers = value.op.ptr
    values = f.add(tt.Load(pointers, mask, value, cache=tt.CacheModifier.CG, volatile=True))
    f.add(tt.Store(pointers, values, mask, eviction=tt.EvictionPolicy.LAST))
    return values


def _casts(case: Callable[[str, Sequence[Type], Build], None]) -> None:
    for a in SCALARS.values():
        for b in SCALARS.values():
            ops: list[type[arith.Cast]] = []
            if a.is_float and b.is_float:
                ops = [arith.ExtF] if a.bits < b.bits else [arith.TruncF] if a.bits > b.bits else []
            elif a.is_int and b.is_int and a != b:
                ops = [arith.ExtSI if a.signed else arith.ExtUI] if a.bits < b.bits else []
                ops = [arith.TruncI] if a.bits > b.bits else ops
            elif a.is_int and b.is_float:
                ops = [arith.SIToFP if a.signed else arith.UIToFP]
            elif a.is_float and b != i1:
                ops = [arith.FPToSI if b.signed else arith.FPToUI]
            if a.bits == b.bits and a != b and not (a.is_float and b.is_float):
                ops = [*ops, arith.Bitcast]
            for op in ops:
                case(f"{op.NAME}.{a}.{b}", [tensor(a)], lambda f, x, op=op, b=b: op(x, tensor(b)))
                case(f"{op.NAME}.scalar.{a}.{b}", [a], lambda f, x, op=op, b=b: op(x, b))
    for a, b in ((f32, f16), (f32, bf16), (f32, f8e5m2), (f16, f8e5m2), (bf16, f8e5m2)):
        zero = arith.Rounding.ZERO
        case(f"truncf.rtz.{a}.{b}", [tensor(a)], lambda f, x, b=b, r=zero: arith.TruncF(x, tensor(b), rounding=r))


def _shapes(case: Callable[[str, Sequence[Type], Build], None]) -> None:
    case("make_range", [], lambda f: tt.MakeRange(3, 35))
    case("program_id", [], lambda f: tt.GetProgramId(2))
    case("num_programs", [], lambda f: tt.GetNumPrograms(1))
    case("smid", [], lambda f: tt.SmId())
    case("globaltimer", [], lambda f: tt.GlobalTimer())
    for s in (f32, f16, u8, i1, i64):
        t, m, c = tensor(s), tensor(s, 8, 16), tensor(s, 8, 1)
        case(f"expand_dims.{s}", [t], lambda f, x: tt.ExpandDims(x, 1))
        case(f"broadcast.{s}", [c], lambda f, x, s=s: tt.Broadcast(x, tensor(s, 8, 16)))
        case(f"reshape.{s}", [m], lambda f, x, s=s: tt.Reshape(x, tensor(s, 32, 4)))
        case(f"reshape.any.{s}", [m], lambda f, x, s=s: tt.Reshape(x, tensor(s, 32, 4), allow_reorder=True))
        case(f"trans.{s}", [m], lambda f, x: tt.Trans(x, (1, 0)))
        case(f"trans3.{s}", [tensor(s, 4, 8, 2)], lambda f, x: tt.Trans(x, (2, 0, 1)))
        case(f"join.{s}", [m, m], lambda f, x, y: tt.Join(x, y))
        case(f"join.scalar.{s}", [s, s], lambda f, x, y: tt.Join(x, y))
        case(f"split.{s}", [tensor(s, 8, 2)], lambda f, x: tt.Split(x))
        case(f"split.scalar.{s}", [tensor(s, 2)], lambda f, x: tt.Split(x))
        case(f"cat.{s}", [m, m], lambda f, x, y: tt.Cat(x, y))
        case(f"cat1.{s}", [t, t], lambda f, x, y: tt.Cat(x, y))
        case(f"gather.{s}", [m, tensor(i32, 8, 16)], lambda f, x, y: tt.Gather(x, y, 1))
    for s in INTEGERS:
        case(f"histogram.{s}", [tensor(s)], lambda f, x: tt.Histogram(x, bins=256))
        case(f"histogram.masked.{s}", [tensor(s), tensor(i1)], lambda f, x, m: tt.Histogram(x, m, bins=16))


def _memory(case: Callable[[str, Sequence[Type], Build], None]) -> None:
    for s in INTEGERS:
        case(f"addptr.{s}", [tensor(f32), tensor(s)], lambda f, x, y: tt.Load(f.add(tt.AddPtr(x.op.ptr, y))))
        case(f"addptr.scalar.{s}", [f32, s], lambda f, x, y: tt.Load(f.add(tt.AddPtr(x.op.ptr, y))))
    case("ptr.cmp", [tensor(f32)] * 2, lambda f, x, y: arith.CmpI(x.op.ptr, y.op.ptr, arith.IntPredicate.EQ))
    case("ptr.cmp.scalar", [f32] * 2, lambda f, x, y: arith.CmpI(x.op.ptr, y.op.ptr, arith.IntPredicate.NE))
    case("ptr.int", [tensor(f32)], lambda f, x: tt.PtrToInt(x.op.ptr))
    case("int.ptr", [tensor(i64)], lambda f, x: tt.IntToPtr(x, TensorType((64,), PtrType(f16))))
    case("ptr.bitcast", [tensor(f32)], lambda f, x: tt.Bitcast(x.op.ptr, TensorType((64,), PtrType(i32))))
    case("ptr.bitcast.sign", [tensor(u32)], lambda f, x: tt.Bitcast(x.op.ptr, TensorType((64,), PtrType(i32))))
    kinds = tt.AtomicKind
    for s in (f16, f32, f64, i32, i64, u32, u64):
        fitting = {
            "float": [kinds.FADD, *([kinds.FMAX, kinds.FMIN] if s != f16 else [])],
            "int": [kinds.ADD, kinds.AND, kinds.OR, kinds.XOR]
            + ([kinds.MAX, kinds.MIN] if s.signed else [kinds.UMAX, kinds.UMIN]),
        }[s.kind]
        for kind in [*fitting, kinds.XCHG]:
            for shape in (tensor(s), s):
                text = f"{kind.value}.{shape}"
                case(f"atomic.{text}", [shape], lambda f, x, k=kind: tt.AtomicRMW(x.op.ptr, x, kind=k))
                case(
                    f"atomic.masked.{text}",
                    [shape, with_element(shape, i1)],
                    lambda f, x, m, k=kind: tt.AtomicRMW(x.op.ptr, x, m, kind=k, scope=tt.MemScope.SYSTEM),
                )
        for sem in tt.MemSemantic:
            case(f"cas.{s}.{sem.value}", [tensor(s)], lambda f, x, m=sem: tt.AtomicCAS(x.op.ptr, x, x, sem=m))
        case(f"cas.scalar.{s}", [s], lambda f, x: tt.AtomicCAS(x.op.ptr, x, x, scope=tt.MemScope.CTA))
    for s in (f16, f32, u8, f8e4m3):
        for padding in tt.Padding:
            if padding is tt.Padding.ZERO or s.is_float:
                case(f"descriptor.{s}.{padding.value}", [s, i32], lambda f, x, n, p=padding: _descriptor(f, x, n, p))
        if s.is_float:
            case(f"descriptor.either.{s}", [s, i32], _chosen)
        case(f"descriptor.rows.{s}", [s, tensor(i32)], _rows)


def _descriptor(f: Builder, element: Value, size: Value, padding: tt.Padding) -> Value:
    scalar = element_of(element.type)
    assert isinstance(scalar, ScalarType)
    stride = f.add(arith.ExtSI(size, i64))
    unit = f.add(arith.ConstantOp(1, i64))
    type_ = DescriptorType((16, 32), scalar, padding.value)
    descriptor = f.add(tt.MakeTensorDescriptor(element.op.ptr, [size, size], [stride, unit], type_, padding=padding))
    block = f.add(tt.DescriptorLoad(descriptor, [size, size], eviction=tt.EvictionPolicy.FIRST))
    f.add(tt.DescriptorStore(descriptor, block, [size, size]))
    if padding is tt.Padding.ZERO and scalar in (f16, bf16, f32):  # As Triton's descriptor.atomic_add.
        f.add(tt.DescriptorReduce(descriptor, block, [size, size], kind=tt.AtomicKind.FADD))
    return block


def _chosen(f: Builder, element: Value, size: Value) -> Value:
    """A block that is read through a descriptor with a padding at run time."""
    scalar = element_of(element.type)
    assert isinstance(scalar, ScalarType)
    unit, nan = f.add(arith.ConstantOp(1, i64)), f.add(arith.ConstantOp(True, i1))
    type_ = DescriptorType((16, 32), scalar, "nan")
    descriptor = f.add(
        tt.MakeTensorDescriptor(element.op.ptr, [size, size], [unit, unit], type_, padding=tt.Padding.NAN)
    )
    return f.add(tt.DescriptorLoad(f.add(tt.DescriptorPadding(descriptor, nan)), [size, size]))


def _rows(f: Builder, element: Value, rows: Value) -> Value:
    """Rows that are read and written through a descriptor."""
    scalar = element_of(element.type)
    assert isinstance(scalar, ScalarType)
    size, unit = f.add(arith.ConstantOp(64, i32)), f.add(arith.ConstantOp(1, i64))
    stride = f.add(arith.ConstantOp(64, i64))
    type_ = DescriptorType((1, 32), scalar)
    descriptor = f.add(tt.MakeTensorDescriptor(element.op.ptr, [size, size], [stride, unit], type_))
    block = f.add(tt.DescriptorGather(descriptor, rows, size))
    f.add(tt.DescriptorScatter(descriptor, block, rows, size))
    return block


def _computing(case: Callable[[str, Sequence[Type], Build], None]) -> None:
    pairs = [(f16, f32), (f16, f16), (bf16, f32), (f32, f32), (f64, f64), (i8, i32), (u8, i32), (f8e5m2, f32)]
    for a, c in [*pairs, (f8e4m3, f32), (f8e4m3, f16)]:
        types = [tensor(a, 64, 32), tensor(a, 32, 64), tensor(c, 64, 64)]
        case(f"dot.{a}.{c}", types, lambda f, *v: tt.Dot(*v))
        batch = [tensor(a, 2, 32, 32), tensor(a, 2, 32, 32), tensor(c, 2, 32, 32)]
        case(f"dot.batch.{a}.{c}", batch, lambda f, *v: tt.Dot(*v))
    for a, b, c in ((f8e4m3, f8e5m2, f32), (i8, u8, i32), (u8, i8, i32)):
        types = [tensor(a, 64, 32), tensor(b, 32, 64), tensor(c, 64, 64)]
        case(f"dot.{a}.{b}", types, lambda f, *v: tt.Dot(*v))
    for precision in tt.InputPrecision:
        types = [tensor(f32, 64, 32), tensor(f32, 32, 64), tensor(f32, 64, 64)]
        case(f"dot.{precision.value}", types, lambda f, *v, p=precision: tt.Dot(*v, input_precision=p))
    types = [tensor(f8e5m2, 64, 64), tensor(f8e5m2, 64, 64), tensor(f32, 64, 64)]
    case("dot.imprecise", types, lambda f, *v: tt.Dot(*v, max_num_imprecise_acc=32))
    for s in (f16, f32, i32, u8, i64):
        add = arith.AddF if s.is_float else arith.AddI
        for shape in ((64,), (8, 16)):
            t, end = tensor(s, *shape), tt.ReduceReturn
            axis = len(shape) - 1
            case(
                f"reduce.{t}",
                [t],
                lambda f, x, op=add, a=axis, e=end: tt.Reduce([x], a, _combine(f, [x], op, e)),
            )
            case(
                f"scan.{t}",
                [t],
                lambda f, x, op=add: tt.Scan([x], 0, _combine(f, [x], op, tt.ScanReturn), reverse=True),
            )
            case(
                f"reduce2.{t}",
                [t, t],
                lambda f, x, y, op=add: tt.Reduce([x, y], 0, _combine(f, [x, y], op, tt.ReduceReturn)),
            )
            case(
                f"map.{t}",
                [t, t],
                lambda f, x, y, op=add: tt.MapElementwise([x, y], _combine(f, [x, y], op, tt.MapReturn), pack=2),
            )
    for operation, rounding in itertools.product(math.Operation, math.Direction):
        count = {"sqrt": 1, "fma": 3}.get(operation.value, 2)
        for t in (tensor(f32), tensor(f64)):
            case(
                f"directed.{operation.value}.{rounding.value}.{t}",
                [t] * count,
                lambda f, *v, o=operation, r=rounding: math.Directed(v, o, r),
            )
    for function in math.Function:
        case(f"approximate.{function.value}", [tensor(f32)], lambda f, x, o=function: math.Approximate(x, o))
    case("asm", [tensor(i32)] * 2, lambda f, x, y: _assembly([x, y], "add.s32 $0, $1, $2;", "=r,r,r", tensor(i32)))
    case("hints", [tensor(i32)], _hints)
    case("assume", [i32], lambda f, n: tt.Assume(f.add(arith.CmpI(n, n, arith.IntPredicate.SGE))))
    case("assert", [tensor(i1)], lambda f, x: tt.Assert(x, message='not "good"\n'))
    case("grid_dependency_wait", [], lambda f: tt.GridDependencyWait())
    case("grid_dependency_launch", [], lambda f: tt.GridDependencyLaunch())
    case("barrier", [], lambda f: tt.Barrier())
    case("fence", [], lambda f: tt.Barrier(scope=tt.MemScope.SYSTEM))
    case("print.nothing", [], lambda f: tt.Print([], "hello\t∞"))
    case("print.c_form", [i32], lambda f, *v: tt.Print(v, "values", c_form=True))
    case("print.whole", [i32, f32], lambda f, *v: tt.Print(v, " of {}: {}: ", whole=True))
    case("if", [i1, tensor(f32), tensor(f32)], _if)


def _combine(f: Builder, tensors: Sequence[Value], op: type[Op], end: type[Op]):
    elements = [element_of(t.type) for t in tensors]
    inner = f.nested([*elements, *elements], scf.packed(elements))
    half = len(elements)
    pairs = zip(inner.parameters[:half], inner.parameters[half:], strict=True)
    results = [inner.add(op(a, b)) for a, b in pairs]
    last = end(results)
    assert isinstance(last, Terminator)
    inner.add(last)
    return inner.finish()


def _assembly(values: Sequence[Value], text: str, constraints: str, type_: Type) -> Op:
    return tt.InlineAsm(values, text, constraints, type_)


def _hints(f: Builder, x: Value) -> Value:
    result = f.add(arith.AddI(x, x))
    for op in (tt.MultipleOf, tt.MaxContiguous, tt.MaxConstancy):
        result = f.add(op(result, (16,)))
    return f.add(tt.Load(f.add(tt.AddPtr(x.op.ptr, result))))


def _if(f: Builder, condition: Value, x: Value, y: Value) -> Op:
    bodies = []
    for value in (x, y):
        inner = f.nested([], value.type)
        inner.add(scf.Yield([inner.add(arith.AddF(value, value))]))
        bodies.append(inner.finish())
    return scf.If(condition, *bodies)
