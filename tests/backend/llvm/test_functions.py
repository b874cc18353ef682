"""Functions of LLVM text that work on memory, run in this process."""

import ctypes
import threading

import pytest

from ziggurat.backend.jit.loading import LinkedObject, llvm
from ziggurat.backend.jit.symbols import SYMBOLS
from ziggurat.backend.llvm.functions import Function, Global, Place, Struct, define, module
from ziggurat.backend.llvm.routines import Number

PAIR = Struct(first="i64", second="ptr", small="i32")
COUNT = Global("count", "i64", 5)


def linked(*roots):
    """The addresses of functions, by symbol."""
    binding = llvm()
    parsed = binding.parse_assembly(module(roots, SYMBOLS))
    parsed.verify()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="default")
    linked = LinkedObject(machine.emit_object(parsed), [root.symbol for root in roots])
    linked_objects.append(linked)
    return linked.addresses


linked_objects: list[LinkedObject] = []
TO_I64 = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


@define("i64", "ptr i64", linkage="external")
def total_until_negative(f: Function, values: Number, count: Number) -> None:
    result = f.local("i64", 0)
    with f.count(count) as loop:
        value = f.load("i64", values, loop.index << 3)
        loop.next(value.test("eq", 7))
        with f.when(value.test("slt", 0)):
            f.give(result.get())
        result.set(result.get() + value)
    f.give(result.get() + 1000)


@define("i64", "ptr i64", linkage="external")
def pairs(f: Function, values: Number, count: Number) -> None:
    """The number of pairs (i, j) with i < j < count but j = 3, in two loops that end early."""
    number, row = f.local("i64", 0), f.local("i64", -1)
    with f.loop() as rows:
        row.set(row.get() + 1)
        rows.stop(row.get().test("sge", count))
        with f.count(count, row.get() + 1) as columns:
            with f.unless(columns.index.test("ne", 3)):
                columns.next()
            number.set(number.get() + 1)
    f.give(number.get())


@define("i64", "ptr i64", linkage="external")
def fields(f: Function, at: Number, unused: Number) -> None:
    pair = PAIR.at(at, align=1)
    pair["first"] = pair["first"] + pair["small"].to("sext", "i64")
    pair["second"] = None
    pair["small"] = -3
    f.give(pair["first"])


@define("i64", "ptr i64", linkage="external")
def counted(f: Function, at: Number, times: Number) -> None:
    """Add 1 by atomics as often, in two ways; and the number of the module's variable."""
    place = Place(at, "i64", 8)
    with f.count(times):
        place.update("add", 1)
        with f.loop() as loop:
            before = place.load()
            loop.stop(place.claim(before, before + 1))
    f.give(f.place(COUNT).get())


def test_loops_end_early_and_go_on():
    run = TO_I64(linked(total_until_negative)["total_until_negative"])
    for values, result in ([1, 2, 7, 3], 1006), ([1, 7, -1, 3], 1), ([], 1000):
        array = (ctypes.c_int64 * len(values))(*values)
        assert run(ctypes.addressof(array), len(values)) == result
    assert TO_I64(linked(pairs)["pairs"])(None, 6) == 15 - 3


def test_fields_of_structures_are_those_of_python():
    assert (PAIR.size, PAIR.packer.format, PAIR.offsets["small"]) == (20, "=qQi", 16)
    buffer = ctypes.create_string_buffer(b"." + PAIR.packer.pack(40, 1, 2))
    assert TO_I64(linked(fields)["fields"])(ctypes.addressof(buffer) + 1, 0) == 42
    assert PAIR.packer.unpack_from(buffer, 1) == (42, 0, -3)


def test_atomics_of_threads():
    run, value = TO_I64(linked(counted)["counted"]), ctypes.c_int64()
    threads = [threading.Thread(target=run, args=(ctypes.addressof(value), 20_000)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value.value == 80_000 and run(ctypes.addressof(value), 0) == 5


def test_functions_and_variables_that_are_used_are_defined_once():
    @define("i64", "i64")
    def twice(f: Function, x: Number) -> None:
        with f.when(x.test("sgt", 100)):
            f.give(f.call(twice, x - 1))
        f.give(x << 1)

    table = Global("table", Struct(function="ptr", number="i64"), twice, 9, constant=True)

    @define("i64", "ptr i64", linkage="external")
    def by_table(f: Function, unused: Number, x: Number) -> None:
        function = f.load("ptr", f.value("ptr", table))
        f.give(f.call_at("i64", function, f.call(twice, x)) + f.load("i64", f.value("ptr", table), 8))

    text = module([by_table], SYMBOLS)
    assert text.count("define internal i64 @twice") == 1 == text.count("@table = internal constant")
    assert TO_I64(linked(by_table)["by_table"])(None, 10) == 49


def test_calls_of_c_are_declared_with_their_types():
    @define("ptr", "ptr i64", linkage="external")
    def answer(f: Function, function: Number, x: Number) -> None:
        number = f.call("PyObject_CallFunction", function, f.value("ptr", format_), x, x)
        f.give(number)

    format_ = Global("format", "[3 x i8]", 'c"LL\\00"', constant=True)
    text = module([answer], SYMBOLS)
    assert "declare ptr @PyObject_CallFunction(ptr, ptr, ...)" in text
    call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_int64)(linked(answer)["answer"])
    assert call(divmod, 7) == (1, 0)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda f, p, n: f.call("free", n), "must be of type ptr"),
        (lambda f, p, n: f.call("free", 0), "must be of type ptr"),
        (lambda f, p, n: f.call("free", p, p), "longer"),
        (lambda f, p, n: PAIR.at(p).place("small").set(n), "must be of type i32"),
        (lambda f, p, n: f.give(p), "must be of type i64"),
        (lambda f, p, n: (f.give(n), f.call("free", p)), "nothing runs after the end of a block"),
    ],
)  # fmt: skip
def test_types_are_checked_while_the_text_is_written(wrong, text):
    @define("i64", "ptr i64")
    def function(f: Function, pointer: Number, number: Number) -> None:
        wrong(f, pointer, number)

    with pytest.raises((AssertionError, ValueError), match=text):
        module([function], SYMBOLS)


def test_two_functions_of_one_name_are_refused():
    @define("void", symbol="same")
    def first(f: Function) -> None:
        f.call(second)

    @define("void", symbol="same")
    def second(f: Function) -> None:
        f.give()

    with pytest.raises(AssertionError, match="two functions or variables have the name 'same'"):
        module([first], SYMBOLS)
