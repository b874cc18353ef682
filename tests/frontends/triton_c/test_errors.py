"""Errors in Triton-C: their words, and their places in the source."""

import time
import warnings

import pytest

import ziggurat as zg

NOT_ALWAYS = "'{}' must not be in an operand of '?:', '&&' or '||', which is not always evaluated"


def error(body: str, parameters: str = "", before: str = "", **macros: object) -> zg.ZigguratError:
    """The error of a kernel with these statements, on line 2 where nothing stands before it."""
    more = f", {parameters}" if parameters else ""
    with pytest.raises(zg.ZigguratError) as error:
        zg.triton_c(f"{before}__global__ void f(float *out{more}) {{\n{body}\n}}\n", **macros).triton()
    assert not isinstance(error.value, zg.InternalError)
    return error.value


@pytest.mark.parametrize(
    ("body", "parameters", "kind", "summary", "marked"),
    [
        (
            "float z[8, 8] = x + y;",
            "",
            zg.KernelNameError,
            "'f' uses 'x', 'y', which are neither declared nor defined as macros",
            "x",
        ),
        (
            "float x[8, 8] = 1; float y[8] = x;",
            "",
            zg.KernelTypeError,
            "incompatible shapes: 'y' must be [8]; got [8, 8]",
            "y[8] = x",
        ),
        (
            "int i[8] = 0 ... 8; int k[8] = i + (0 ... 16);",
            "",
            zg.KernelTypeError,
            "the operator '+': the shapes [8] and [16] do not match: 8 and 16 along axis 0",
            "i + (0 ... 16)",
        ),
        (
            "*out = 0 ... 8;",
            "",
            zg.KernelTypeError,
            "incompatible shapes: the value must be a scalar; got [8]",
            "*out = 0 ... 8",
        ),
        (
            "float x[8] = 1; if (x > 0) *out = 1;",
            "",
            zg.KernelTypeError,
            "the condition of 'if' must be a scalar; got bool[8]",
            "x > 0",
        ),
        ("half *p = out;", "", zg.KernelTypeError, "'p' must be of the type half*; got float*", "*p = out"),
        (
            "*p = 1;",
            "const float *p",
            zg.KernelTypeError,
            "nothing can be written through a pointer that is __readonly or to const",
            "*p",
        ),
        (
            "float *q[8] = p + (0 ... 8); *q = 1;",
            "float *p __readonly",
            zg.KernelTypeError,
            "nothing can be written through a pointer that is __readonly or to const",
            "*q",
        ),
        ("*out = 1 / 0;", "", zg.KernelValueError, "cannot compute 1 / 0: division by zero", "1 / 0"),
        (
            "int i[10] = 0 ... 10;",
            "",
            zg.KernelValueError,
            "0 ... 10 must give a power of two of numbers; got 10",
            "0 ... 10",
        ),
        (
            "int i[16] = 0 ... n;",
            "int n",
            zg.KernelTypeError,
            "the range: 'end' must be known at compile time; got int, a run-time value",
            "0 ... n",
        ),
        (
            "float x[n] = 0;",
            "int n",
            zg.KernelTypeError,
            "the sizes of an array must be known at compile time; got (int,), a run-time value",
            "x[n] = 0",
        ),
        (
            "*out = n[:, newaxis];",
            "int n",
            zg.KernelTypeError,
            "the subscript must follow an array; got int",
            "n[:, newaxis]",
        ),
        (
            "*out = x[3];",
            "float *x",
            zg.KernelSyntaxError,
            "an index must be ':', newaxis, '+', max or min; got an expression",
            "3",
        ),
        ("*out = ~(n > 3);", "int n", zg.KernelTypeError, "the operator '~' takes integers; got bool", "~(n > 3)"),
        (
            "int a[16, 16] = 1; int b[16, 16] = a @ a;",
            "",
            zg.KernelTypeError,
            "the operator '@': the operands must be floats or 8-bit integers; got int",
            "a @ a",
        ),
        ("int x = 1; float x = 2;", "", zg.KernelSyntaxError, "'x' is declared twice in this block", "x = 2"),
        ("const int n = 3; n++;", "", zg.KernelSyntaxError, "'n' is const, and must not be assigned", "n++"),
        ("{ int inner = 1; } *out = inner;", "", zg.KernelNameError, "'inner' is not declared", "inner"),
        ("*out = sqroot(2);", "", zg.KernelNameError, "there is no function 'sqroot'", "sqroot"),
        ("*out = sqrt(1, 2);", "", zg.KernelTypeError, "'sqrt' takes at most 1 argument; got 2", "sqrt(1, 2)"),
        (
            "get_program_id(3);",
            "",
            zg.KernelValueError,
            "get_program_id: the axis of the grid must be 0, 1 or 2; got 3",
            "get_program_id(3)",
        ),
        (
            "*out = n ? atomic_add(out, 1) : 0;",
            "int n",
            zg.KernelTypeError,
            NOT_ALWAYS.format("atomic_add"),
            "atomic_add(out, 1)",
        ),
        (
            "atomic_add(n, 1);",
            "int n",
            zg.KernelTypeError,
            "atomic_add: 'ptr' must be a pointer or an array of pointers; got int",
            "atomic_add(n, 1)",
        ),
        ("int a = 1; *out = n && a++;", "int n", zg.KernelTypeError, NOT_ALWAYS.format("++"), "a++"),
        ("return 3;", "", zg.KernelSyntaxError, "'f' returns nothing, as it is declared", "return 3"),
        ("continue;", "", zg.KernelSyntaxError, "continue must stand in a loop", "continue"),
        ("while (1) *out = 1;", "", zg.KernelSyntaxError, "this loop never ends: its condition is always true", "1"),
        ("float **p;", "", zg.KernelSyntaxError, "Triton-C has no pointers to pointers", "*"),
        ("unsigned float x;", "", zg.KernelSyntaxError, "'unsigned float' is no type", "unsigned float"),
        ("int y = 08;", "", zg.KernelSyntaxError, "08 is not an octal number", "08"),
        ("int y = 1lul;", "", zg.KernelSyntaxError, "a number cannot end in 'lul'", "1lul"),
        ("int y = 'ab';", "", zg.KernelSyntaxError, "a character literal must have one character; got 2", "'ab'"),
        (
            "int y __multipleof(0) = 1;",
            "",
            zg.KernelSyntaxError,
            "__multipleof must have a positive number",
            "__multipleof(0",
        ),
        ("3 = 4;", "", zg.KernelSyntaxError, "the target of an assignment must be a variable, *p or *?(mask) p", "3"),
        (
            "int y = sizeof(int[4]);",
            "",
            zg.KernelSyntaxError,
            "sizeof takes an element type; got an array",
            "sizeof(int[4])",
        ),
        ("switch (1) { }", "", zg.KernelSyntaxError, "Triton-C has no 'switch'", "switch"),
        ("__shared__ float x[8];", "", zg.KernelSyntaxError, "Triton-C has no '__shared__'", "__shared__"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(body, parameters, kind, summary, marked):
    failure = error(body, parameters)
    assert type(failure) is kind
    assert failure.summary == summary
    place = failure.location
    assert place is not None and place.line == 2
    assert body[place.column : place.end_column].startswith(marked), body[place.column : place.end_column]


@pytest.mark.parametrize(
    ("body", "summary"),
    [
        ("int x = 3 int y;", "';' is expected here; got 'int' next"),
        ("x = ;", "an expression is expected; got ';'"),
        ("int x = (1 + 2;", "')' is expected; got ';'"),
        ("int [3];", "a name is expected; got '['"),
        ("if 1", "'(' is expected; got '1'"),
        ("for (int i = 0; i < 3; i++ { }", "')' or ',' is expected; got '{'"),
        ("float y = f(;", "an expression or a type is expected; got ';'"),
        ("TIPE *x; x = 3;", "'f' uses 'TIPE', which is neither declared nor defined as a macro"),
        ("floot y = 3;", "'floot' is not a type"),
        ("int x = 'a;", "a string or a character is not closed on its line"),
        ("int x = 1 ` 2;", "Triton-C has no character '`'"),
    ],
)
def test_a_syntax_error_says_what_was_expected(body, summary):
    failure = error(body)
    assert failure.summary == summary
    assert failure.location is not None and failure.location.line == 2


MEMORY = NOT_ALWAYS.replace("'{}'", "a call of '{}', which uses memory,")
READONLY = "nothing can be written through a pointer that is __readonly or to const"
BRACES = "an array is initialised by one value for all elements: float x[16] = 3.14; of braces only {0}"


@pytest.mark.parametrize(
    ("body", "summary", "marked"),
    [
        ("float x[8] = {1};", BRACES, "1"),
        ("float x[8] = {0, 0};", BRACES, "0, 0"),
        ("float x[8] = {0, 1};", BRACES, "0, 1"),
        ("void x;", "a value must have a type; got void", "x"),
        ("void *x;", "a pointer must have a type; got void", "*x"),
        ("int char y;", "'int char' is no type", "int char"),
        ("signed unsigned y;", "'signed unsigned' is no type", "signed unsigned"),
        ("int int y;", "'int int' is no type", "int int"),
        ("long long long y;", "'long long long' is no type", "long long long"),
        ("float x[] = 1;", "an array must have sizes", "x[] = 1"),
        ("float x = *out; *out = x.y;", "Triton-C has no structures, and no members", "x.y"),
        ("int n; *out = &n;", "Triton-C has no addresses of variables", "&n"),
        ("*out = newaxis;", "newaxis must stand in a subscript", "newaxis"),
        ("int n = 1; *out = n(3);", "only a function can be called", "n(3)"),
        ("*out = (3)(4);", "only a function can be called", "(3)(4)"),
        ("f(out);", "'f' is a kernel, which only a launch runs", "f(out)"),
        ("float x[8] = zeros(8, float[4]);", "a type in a call must have no sizes", "float[4"),
        ("int y = 18446744073709551616;", "the integer 18446744073709551616 does not fit in 64 bits", "1844"),
        (f"int y = {'1' * 101};", "an integer must fit in 64 bits", "111"),
        ("float y = 0x1p9999;", "the number 0x1p9999 is not a float", "0x1p9999"),
        ("int y = '';", "a character literal must have one character; got 0", "''"),
        ("*out = g(1);", "'g' takes 2 arguments; got 1", "g(1)"),
        ("*out = h(1, 2);", "'h' takes 1 argument; got 2", "h(1, 2)"),
        ("int n = *out; *out = n && put(out);", MEMORY.format("put"), "put(out)"),
        ("int n = *out; *out = n && puts_twice(out);", MEMORY.format("puts_twice"), "puts_twice"),
        ("int n = *out, a; *out = n ? (a = 1) : 2;", NOT_ALWAYS.replace("'{}'", "an assignment"), "a = 1"),
        ("int y __aligned = 1;", "__aligned must have a positive number", "__aligned"),
        ("const int *q = (int *)out; q = q + 1; *q = 1;", READONLY, "*q"),
        ("const float *q = out; float *p; p = q; *p = 1;", READONLY, "*p"),
        ("undeclared(1, 2, 3, 4, 5, 6);", "there is no function 'undeclared'", "undeclared"),
        ("int n; n + 1;", "a statement must have an effect; this one only computes a value", "n + 1"),
        ("*out += 1; 3, 4;", "a statement must have an effect; this one only computes a value", "3"),
        ("(float) 3;", "a statement must have an effect; this one only computes a value", "(float) 3"),
    ],
)  # fmt: skip
def test_more_that_is_refused(body, summary, marked):
    before = (
        "int g(int a, int b) { return a; } int h(int a) { return a; } int put(float *p) { *p = 1; return 1; } "
        "int puts_twice(float *p) { return put(p) + put(p); } "
    )
    failure = error(body, before=before)
    assert failure.summary == summary
    place = failure.location
    assert place is not None and place.line == 2 and body[place.column : place.end_column].startswith(marked)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("void g() { } void g() { } __global__ void f(float *x) { }", "the function 'g' is defined twice"),
        ("__global__ void f(float *x, int x) { }", "two parameters have the name 'x'"),
        ("__global__ void f(float *) { }", "a name is expected; got ')'"),
        ("__global__ void f(float *x, int) { }", "a parameter must have a name"),
        ("__global__ void f(float x[4]) { }", "the parameter of a kernel must be a number or a pointer; got an array"),
        ("__global__ void f(float *x[]) { }", "Triton-C has no pointers to pointers"),
        ("__global__ int f(int *x) { return 1; }", "the kernel 'f' must return void"),
        ("int f(int *x) { return 1; }", "the kernel 'f' must return void"),
        ("int n = 4; __global__ void f(float *x) { }", "a variable outside of functions must be const"),
        ("__global__ void f(float x __multipleof(8)) { }", "__multipleof must be on an integer or a pointer"),
        ("const int n", "';' is expected; the source ends here"),
        ("const int", "a name or '*' is expected; the source ends here"),
        ("const int *", "a name is expected; the source ends here"),
        ("int f(int n", "is expected; the source ends here"),
    ],
)
def test_functions_that_are_refused(source, message):
    with pytest.raises(zg.KernelSyntaxError) as error_info:
        _ = zg.triton_c(source).model
    assert message in error_info.value.summary


def test_hints_for_names_of_functions():
    for count, letters in ((1, "x"), (6, "x, y, z, u, v, w"), (7, "…")):
        numbers = ", ".join(map(str, range(count)))
        assert f"#define ODD({letters}) …" in error(f"*out = ODD({numbers});").hint
    assert error("*out = sqroot(2);").hint == "did you mean sqrt?"
    assert "did you mean twice" in error("*out = twise(2);", before="int twice(int n) { return 2 * n; } ").hint


def test_an_error_shows_at_most_three_macros():
    defines = "".join(f"#define M{n} {n}\n" for n in range(5))
    failure = error("*out = nobody(M0 + M1 + M2 + M3 + M4);", before=defines)
    assert str(failure).count("in the definition of the macro") in (0, 3)
    failure = error("int x[3] = M0 + M1 + M2 + M3 + M4;", before=defines)
    assert str(failure).count("in the definition of the macro") == 3


def test_a_source_that_ends_too_early():
    with pytest.raises(zg.KernelSyntaxError, match="a statement or '}' is expected; the source ends here"):
        _ = zg.triton_c("__global__ void f(float *x) { *x = 1;").model
    with pytest.raises(zg.KernelSyntaxError, match="has no function"):
        zg.triton_c("  // nothing\n")
    with pytest.raises(zg.KernelSyntaxError, match="a function, such as __global__ void"):
        zg.triton_c("3 + 4;")


def test_an_error_in_a_macro_shows_its_use_and_its_definition():
    failure = error("float y[8] = WIDE(x);", "float *x", before="#define WIDE(v) *(v + (0 ... 16))\n")
    assert str(failure).splitlines()[1:7] == [
        f"  at {failure.location}",
        "    float y[8] = WIDE(x);",
        "          ^^^^^^^^^^^",
        "  in the definition of the macro 'WIDE'",
        f"  at {failure.location.file}:1:17",
        "    #define WIDE(v) *(v + (0 ... 16))",
    ]
    failure = error("float a[TM] = 1; float b[TN] = a;", TM=16, TN=32)
    assert "  in the definition of the macro 'TN'" in str(failure)
    assert "    #define TN 32" in str(failure)
    failure = error("*out = OUTER + 1;", before="#define INNER nobody\n#define OUTER INNER\n")
    assert "    #define INNER nobody" in str(failure)


def test_errors_of_the_preprocessor():
    assert error("#error not today").summary == "#error not today"
    assert error('#include "no/such.h"').summary == "there is no file 'no/such.h' to include"
    assert error("#elif 1\n#endif").summary == "the preprocessor: misplaced #elif"
    assert error("#nonsense").summary == "the preprocessor has no directive #nonsense"
    failure = error("*out = TM;", before="#define TM 4\n", TM=8)
    assert failure.summary == "the macro 'TM' is given, and the source defines it as well"
    assert failure.location is not None and (failure.location.line, failure.location.column) == (1, 8)


@pytest.mark.parametrize(
    ("before", "summary", "marked"),
    [
        ("#if FOO(", "the condition must be an expression of integers", "FOO("),
        ("#if 1 +", "the condition must be an expression of integers", "1 +"),
        ("#if FOO(1)", "'FOO' is not a macro with arguments", "FOO(1)"),
        ("#if 1", "'#if 1' has no #endif", "#"),
        ("#ifdef", "#ifdef must be followed by a name", "ifdef"),
        ("#if", "#if must be followed by a condition", "if"),
        ("#undef", "#undef must be followed by a name", "undef"),
        ("#define", "#define must be followed by a name", "define"),
        ("#define 3 4", "#define must be followed by a name; got '3'", "3"),
        ("x /* never closed", "the comment is not closed", "/*"),
        ("x /*= never closed", "the comment is not closed", "/*"),
    ],
)
def test_directives_and_comments_that_are_cut_off(before, summary, marked):
    failure = error("*out = 1;", before=f"{before}\n")
    assert isinstance(failure, zg.KernelSyntaxError)
    assert failure.summary == summary
    place = failure.location
    assert place is not None and place.line == 1 and before[place.column : place.end_column] == marked


def test_hints_for_what_c_programmers_write():
    hint = "define it: a function, or a macro with arguments, #define SCALE(x, y) …"
    assert error("*out = SCALE(3, 4);").hint == hint
    failure = error("*out = SCALE;", before="#define SCALE(x) x\n")
    assert (failure.summary, failure.hint) == (
        "'f' uses 'SCALE', which is a macro with arguments",
        "write its arguments: SCALE(…)",
    )
    assert error("*out = *out % 3.0f;").hint == "write fmod(a, b) for floats"
    hint = "values to choose among are a list: SIZE=[64,128], or -DSIZE=[64,128]"
    assert error("int i[4] = SIZE + 0 ... 4; *out = 1;", SIZE="64,128").hint == hint
    assert error("float x[SIZE] = SIZE @ 1;", SIZE="64, 128").hint == hint
    assert (
        error("float x[64] = 1; x == 1;").summary == "a statement must have an effect; this one only computes a value"
    )
    assert "does not fit in unsigned" in error("*out = -1 > 0u;").summary


def test_all_errors_of_a_kernel_are_reported_together():
    failure = error("float a = undeclared_function(1);\n*out = a;\nint b = sqroot(2);\nbreak;")
    assert isinstance(failure, zg.KernelErrors)
    assert [part.location.line for part in failure.errors] == [2, 4, 5]


def test_columns_count_bytes_as_pythons_do():
    failure = error("/* é */ *out = sqroot(2);")
    assert "    /* é */ *out = sqroot(2);\n                   ^^^^^^" in str(failure)


def test_kernels_are_named_where_there_are_several():
    source = "__global__ void f(float *x) { *x = 1; }\n__global__ void g(float *x) { *x = 2; }\n"
    with pytest.raises(zg.KernelSyntaxError, match="has several kernels: 'f', 'g'"):
        zg.triton_c(source)
    assert zg.triton_c(source, "g").name == "g"
    with pytest.raises(zg.KernelNameError, match="there is no function 'h'"):
        zg.triton_c(source, "h")
    with pytest.raises(zg.KernelSyntaxError, match="the kernel 'f' must return void"):
        _ = zg.triton_c("__global__ int f(int x) { return x; }").model


@pytest.mark.parametrize("head", ["int i = 0; i < n; i--", "int i = n; i >= 0; i += 2", "int i = n; 0 < i; i = i + 1"])
def test_a_step_away_from_the_end_of_a_loop_is_warned_of(head):
    source = f"__global__ void f(float *x, int n) {{ for ({head}) *x = 1; }}"
    with pytest.warns(zg.ZigguratWarning, match="the step moves 'i' away from the end of the loop"):
        zg.triton_c(source).triton(zg.ptr(zg.f32), zg.i32)
    downwards = "__global__ void f(float *x, unsigned n) { for (unsigned i = n - 1; i < n; i--) *x = 1; }"
    with warnings.catch_warnings(action="error"):
        zg.triton_c(downwards).triton(zg.ptr(zg.f32), zg.u32)


@pytest.mark.parametrize("word", ["static", "extern"])
def test_variables_that_outlive_a_program_are_refused(word):
    with pytest.raises(zg.KernelSyntaxError, match=f"a variable must not be {word}"):
        zg.triton_c(f"__global__ void f(float *x) {{ {word} int n; n = 3; *x = n; }}").triton(zg.ptr(zg.f32))
    kernel = zg.triton_c("static const int N = 3; __global__ void f(float *x) { static const int M = 2; *x = N + M; }")
    assert "5.0" in str(kernel.triton(zg.ptr(zg.f32)))


def test_chains_of_else_if():
    chain = "if (*out == 0) *out = 1;\n" + "else if (*out == 1) *out = 2;\n" * 300
    model = zg.triton_c(f"__global__ void f(float *out) {{\n{chain}}}").triton(zg.ptr(zg.f32))
    assert sum(op.NAME == "scf.if" for op in model.walk()) == 301
    began = time.process_time()
    deep = error(chain + "else if (*out == 1) *out = 2;\n" * 2000)
    assert deep.summary == "the source is nested too deeply here" and deep.location is not None
    assert 700 < deep.location.line < 1000 and time.process_time() - began < 5


@pytest.mark.parametrize(("opened", "closed"), [("(", ")"), ("- ", ""), ("!", ""), ("min(1, ", ")")])
def test_expressions_in_each_other(opened, closed):
    deep = error(f"\n*out = {opened * 6000}1{closed * 6000};")
    assert deep.summary == "the source is nested too deeply here" and deep.location is not None
    assert deep.location.line == 3


def test_errors_of_long_lines_are_short():
    assert len(str(error("*out = " + "1 + " * 5_000 + ";"))) < 1000
