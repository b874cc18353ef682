"""Statements: the ops, suites and their ends; a generated kernel reads back from its text."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ziggurat.codemodel.op import same_model
from ziggurat.codemodel.text.parser import parse
from ziggurat.frontends.reflection import reflect


def test_assignment_again_is_a_store(lines):
    assert lines("a = 1\na = x") == [
        "%6 : object = constant @1;",
        '%7 : Var<object> = var %6 @"a";',
        "%8 : object = var.load %3;",
        "var.store %7 %8;",
        "return;",
    ]


def test_several_targets_share_the_value(lines):
    assert lines("a = b = 1\nx = 2")[:3] == [
        "%6 : object = constant @1;",
        '%7 : Var<object> = var %6 @"a";',
        '%8 : Var<object> = var %6 @"b";',
    ]


def test_nested_tuple_target(lines):
    assert lines("a, (x, c) = y")[1:] == [
        "%7 : object = unpack %6 @index=0 @count=2;",
        '%8 : Var<object> = var %7 @"a";',
        "%9 : object = unpack %6 @index=1 @count=2;",
        "%10 : object = unpack %9 @index=0 @count=2;",
        "var.store %3 %10;",
        "%11 : object = unpack %9 @index=1 @count=2;",
        '%12 : Var<object> = var %11 @"c";',
        "return;",
    ]


def test_augmented_assignment_is_the_operator(lines):
    assert lines("x += y") == lines("x = x + y")
    assert lines("x <<= y") == lines("x = x << y")


def test_annotated_assignment(lines):
    assert lines("a: zg.constexpr = 3") == lines("a = 3")


def test_while(lines):
    assert lines("while x < n:\n    x += 1") == [
        "while",
        "    ()object -> {",
        "        %6 : object = var.load %3;",
        "        %7 : object = var.load %5;",
        "        %8 : object = lt %6 %7;",
        "        yield %8;",
        "    }",
        "    ()object -> {",
        "        %9 : object = var.load %3;",
        "        %10 : object = constant @1;",
        "        %11 : object = add %9 %10;",
        "        var.store %3 %11;",
        "        yield;",
        "    };",
        "return;",
    ]


def test_elif_is_an_if_in_the_else(lines):
    assert lines("if x:\n    pass\nelif y:\n    return n") == lines(
        "if x:\n    pass\nelse:\n    if y:\n        return n\n    else:\n        pass"
    )


def test_early_return(lines):
    assert lines("if x:\n    return y\nelse:\n    return")[1:] == [
        "if %6",
        "    ()object -> {",
        "        %7 : object = var.load %4;",
        "        return %7;",
        "    }",
        "    ()object -> {",
        "        return;",
        "    };",
        "return;",
    ]


def test_return_none_is_return(lines):
    assert lines("return None") == lines("return") == lines("pass") == ["return;"]


def test_strings_and_ellipsis_as_statements(lines):
    assert lines("'''Doc.'''\n...\n'remark'\nx.store(y)")[0] == "%6 : object = var.load %3;"


def test_assert(lines):
    assert lines("assert x") == ["%6 : object = var.load %3;", "assert %6;", "return;"]
    assert lines("assert x, 'why'")[1:3] == ['%7 : object = constant @"why";', "assert %6 %7;"]


def test_errors_in_heads_and_suites_are_all_found(fail):
    failures = fail(
        """
        while bad1:
            for i in range(bad2):
                a = bad3
                b = a
        if bad4 and x:
            b = {1}
        return b
        """
    )
    assert [f.marked for f in failures] == ["bad1", "bad2", "bad3", "bad4", "{1}"]


names = st.sampled_from(["x", "y", "n", "a", "b", "i", "j"])
expressions = st.recursive(
    st.one_of(st.sampled_from(["x", "y", "n"]), st.integers(-3, 9).map(str)),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "*", "<", "and", "if x else"]), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(inner, inner).map(lambda t: f"zg.add({t[0]}, b={t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} < {t[1]} <= {t[2]})"),
    ),
    max_leaves=5,
)


def indented(text):
    return "\n".join("    " + line for line in text.split("\n"))


simple = st.one_of(
    st.tuples(names, expressions).map(lambda t: f"{t[0]} = {t[1]}"),
    st.tuples(names, expressions).map(lambda t: f"{t[0]} += {t[1]}"),
    st.tuples(names, names, expressions).map(lambda t: f"{t[0]}, {t[1]} = {t[2]}"),
    st.just("a = b = i = j = 0"),
    names.map(lambda name: f"zg.assume({name})"),
    st.tuples(names, names).map(lambda t: f"{t[0]} = {t[1]}"),
)
suites = st.recursive(
    st.lists(simple, min_size=1, max_size=3).map("\n".join),
    lambda inner: st.one_of(
        st.tuples(expressions, inner, inner).map(lambda t: f"if {t[0]}:\n{indented(t[1])}\nelse:\n{indented(t[2])}"),
        st.tuples(names, expressions, inner).map(lambda t: f"for {t[0]} in range({t[1]}):\n{indented(t[2])}"),
        st.tuples(names, inner).map(lambda t: f"while {t[0]}:\n{indented(t[1])}"),
        st.tuples(inner, inner).map("\n".join),
    ),
    max_leaves=6,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(suites)
def test_generated_kernels(define, suite):
    # Every variable is visible where it is used (the builder checks that), and the text says it all.
    # The first statement binds all names, so that none is unknown.
    suite = f"if n:\n    a = b = i = j = x\n{suite}"
    model = reflect(define(f"def kernel(x, y, n):\n{indented(suite)}\n"))
    assert same_model(parse(str(model)), model)
    variables = [op.name for op in model.walk() if op.NAME == "var"]
    assert len(variables) == len(set(variables))
