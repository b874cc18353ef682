"""The source of functions, wherever they are defined, and locations in it."""

import importlib.util
import linecache
import subprocess
import sys
import textwrap

import pytest
from libraries import require

import ziggurat as zg
from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.errors import KernelSyntaxError
from ziggurat.frontends.python.source import read_lines
from ziggurat.frontends.reflection import reflect
from ziggurat.frontends.reflection.definition import find_source


def marked(op):
    """The text at the location of an op."""
    place = op.location
    assert place.line == place.end_line
    return place.source_line().encode()[place.column : place.end_column].decode()


def texts(fn):
    """The texts of all ops but those of the frame: declarations of parameters and the last return."""
    return [marked(op) for op in reflect(fn).body.entry.ops[:-1]]


def passing(fn):
    return fn


def with_argument(*_):
    return passing


class Holder:
    @staticmethod
    @with_argument(
        1,
        "def f(): pass",
    )
    def method(x):
        y = x + 1

    # fmt: off
    @staticmethod
    def multi_line(
        x,
        text="""
not indented
""",
    ):
        y = zg.add(
            x,
  1)
    # A comment further left does not end it.
        z = """
def g():
""", y \
            , x
    # fmt: on


def test_indented_with_decorators():
    assert texts(Holder.method) == ["x", "x", "1", "x + 1", "y = x + 1"]


def test_lines_that_reach_further_left():
    model = reflect(Holder.multi_line)
    variables = [op.name for op in model.walk() if isinstance(op, core.Var)]
    assert variables == ["x", "text", "y", "z"]
    call = next(op for op in model.walk() if op.NAME == "invoke")
    first = Holder.multi_line.__code__.co_firstlineno
    assert (call.location.line, call.location.end_line) == (first + 7, first + 9)
    assert (call.location.column, call.location.end_column) == (12, 4)


def test_nested_and_one_line():
    def one_line(x): return x  # fmt: skip

    assert texts(one_line) == ["x", "x"]
    assert reflect(one_line).location.line == one_line.__code__.co_firstlineno


def test_tabs(define):
    kernel = define("class C:\n\tdef kernel(x):\n\t\tif x:\n\t\t\ty = x\nkernel = C.kernel\n")
    model = reflect(kernel)
    store = next(op for op in model.walk() if op.NAME == "var" and op.name == "y")
    assert marked(store) == "y = x"
    assert store.location.excerpt().splitlines()[2] == "    \t\t\t^^^^^"


def test_columns_of_text_beyond_ascii(define):
    kernel = define("def kernel(größe):\n    é = 'ü', größe + 1\n")
    assert texts(kernel) == ["größe", "'ü'", "größe", "1", "größe + 1", "'ü', größe + 1", "é = 'ü', größe + 1"]
    add = next(op for op in reflect(kernel).walk() if op.NAME == "add")
    assert add.location.excerpt().splitlines()[1:] == ["        é = 'ü', größe + 1", "                 ^^^^^^^^^"]


def test_several_functions_of_one_name(define):
    kernel = define(
        """
        def kernel(x):
            return 1
        first = kernel
        def kernel(x):
            return 2
        """
    )
    first = kernel.__globals__["first"]
    assert "constant @1" in str(reflect(first))
    assert "constant @2" in str(reflect(kernel))


def test_every_op_has_a_place():
    for fn in (Holder.method, Holder.multi_line):
        for op in reflect(fn).walk():
            assert op.location is not None
            assert op.location.file == __file__


def test_module(tmp_path):
    file = tmp_path / "some_kernels.py"
    file.write_text("# -*- coding: latin-1 -*-\n# é\nN = 7\ndef kernel(x):\n    return x + N\n", encoding="latin-1")
    spec = importlib.util.spec_from_file_location("some_kernels", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "constant @7" in str(reflect(module.kernel))

    # Edited and loaded again: the new text counts.
    file.write_text("\n\n\n\nN = 8\ndef kernel(x):\n    return x * N * 11\n")
    spec.loader.exec_module(module)
    assert "constant @11" in str(reflect(module.kernel))


def test_source_that_has_changed(tmp_path):
    file = tmp_path / "changing.py"
    file.write_text("def kernel(x):\n    return x\n")
    spec = importlib.util.spec_from_file_location("changing", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for text in ("import os\n\ndef kernel(x):\n    return x\n", "def kernel(y):\n    return y\n", "def (\n", "\n"):
        file.write_text(text)
        with pytest.raises(KernelSyntaxError, match="the source of 'kernel' is not what it was") as error_info:
            reflect(module.kernel)
        assert "load the module again" in error_info.value.hint
    file.unlink()
    with pytest.raises(KernelSyntaxError, match="cannot be found"):
        reflect(module.kernel)


def test_script(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(
        textwrap.dedent(
            """
            from ziggurat.frontends.reflection import reflect
            def kernel(x):
                return x + 41
            print(reflect(kernel))
            """
        )
    )
    result = subprocess.run([sys.executable, file.name], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "constant @41" in result.stdout


def test_notebook_cell(define):
    # IPython registers each cell under a name like this one, and keeps it when linecache is checked.
    kernel = define("x = 1\ndef kernel(a):\n    return a + x\n", filename="<ipython-input-3-0123456789ab>")
    linecache.checkcache()
    assert reflect(kernel).location.file == "<ipython-input-3-0123456789ab>"


def test_ipython(tmp_path):
    require("IPython")
    cell = "from ziggurat.frontends.reflection import reflect\ndef kernel(x): return x + 43\nprint(reflect(kernel))"
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as S\n"
        f"S.instance(history_length=0).run_cell({cell!r}, store_history=True)"
    )
    environment = {"IPYTHONDIR": str(tmp_path), "PATH": ""}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "constant @43" in result.stdout, result.stdout + result.stderr


def test_no_source():
    scope = {}
    exec("def kernel(x): return x", scope)
    with pytest.raises(KernelSyntaxError) as error_info:
        reflect(scope["kernel"])
    assert error_info.value.summary == "the source of 'kernel' cannot be found: there is no text for '<string>'"
    assert "zg.kernel(source=text)" in error_info.value.hint


def test_lambda():
    with pytest.raises(KernelSyntaxError, match="a lambda has no statements") as error_info:
        reflect(lambda x: x)
    assert error_info.value.hint == "write it as a function with def"


@pytest.mark.parametrize(
    ("thing", "kind"),
    [
        (len, "'len' is a builtin_function_or_method"),
        (Holder, "'Holder' is a class"),
        ("".join, "'join' is a builtin"),
        (3, "'3' is an int"),
    ],
)
def test_no_function(thing, kind):
    with pytest.raises(KernelSyntaxError, match=kind):
        reflect(thing)


def test_bound_method(define):
    class Owner:
        def method(self):
            pass

    with pytest.raises(KernelSyntaxError, match="'method' is a bound method"):
        reflect(Owner().method)


def test_async_function(define):
    with pytest.raises(KernelSyntaxError, match="'kernel' is an async function"):
        reflect(define("async def kernel(x): pass"))


def test_warnings_are_not_given_again(define):
    with pytest.warns((DeprecationWarning, SyntaxWarning)):
        kernel = define("def kernel(x):\n    '\\d'\n    return x\n")
    assert reflect(kernel).body.entry.ops[-1].NAME == "return"


def test_only_the_function_is_parsed(define):
    # The rest of the text is a syntax error by now, which nothing needs to know.
    kernel = define("def kernel(x):\n    return x\n")
    name = kernel.__code__.co_filename
    text = "def kernel(x):\n    return x\nthis is no Python\n"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    source = find_source(kernel, read_lines(kernel))
    assert (source.offset, source.node.end_lineno) == (0, 2)


def test_the_source_is_read_at_the_decorator(tmp_path):
    file = tmp_path / "edited.py"
    file.write_text("import ziggurat as zg\n@zg.function\ndef helper(x):\n    return x + 41\n")
    spec = importlib.util.spec_from_file_location("edited", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file.write_text("import ziggurat as zg\n\n@zg.function\ndef helper(x):\n    return x * 43\n")
    linecache.checkcache()
    assert "constant @41" in str(module.helper.model)


def test_text_that_is_registered_after_the_decorator_is_found():
    text, name, scope = "@zg.function\ndef helper(x):\n    return x + 47\n", "<registered late>", {"zg": zg}
    exec(compile(text, name, "exec"), scope)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    assert "constant @47" in str(scope["helper"].model)


@pytest.mark.parametrize("thing", [len, int, lambda x: x, "text".upper])
def test_objects_that_are_no_functions_are_errors_at_the_decorator(thing):
    for decorator in (zg.function, zg.kernel):
        with pytest.raises(KernelSyntaxError):
            decorator(thing)
