"""Messages in the words of the language of the kernel: a wrong statement in explicit calls, Triton's Python and C.

`golden/messages.txt` has the message and the hint of each.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import ziggurat as zg
import ziggurat.backend.reference as reference
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.codemodel.messages import EXPLICIT_WORDS, Phrase, say
from ziggurat.codemodel.types import TensorType, f32
from ziggurat.frontends.language import phrases
from ziggurat.frontends.language.wording import TRITON
from ziggurat.frontends.triton_c.c_library import call_of
from ziggurat.frontends.triton_c.c_words import WORDS

TYPES = [zg.ptr(zg.f32), zg.ptr(zg.f16), zg.i32, zg.f32]
LANGUAGES = ("zg", "tl", "c")
_HEADS = {
    "zg": "import ziggurat as zg\n\n@zg.kernel\n",
    "tl": "import ziggurat.triton as triton\nimport ziggurat.triton.language as tl\n\n@triton.jit\n",
}
_PYTHON = """{head}def f(x, h, n, s):
    at = {language}.arange(0, 16)
    v = {language}.load(x + at)
    w = {language}.load(h + at)
    {statement}
"""
_C = """__global__ void f(float *x, half *h, int n, float s) {{
    int at[16] = 0 ... 16;
    float v[16] = *(x + at);
    half w[16] = *(h + at);
    {statement}
}}"""
# The texts of other languages that a message must not have.
FOREIGN = {
    "zg": re.compile(r"\btl\.|\btriton\.|@triton|\bfp32\b"),
    "tl": re.compile(r"\bzg\.|@zg|tensor<|\bptr<|\b(i1|[iu](8|16|32|64)|f16|f32|f64)\b"),
    "c": re.compile(r"\bzg\.|\btl\.|@zg|@triton|tensor|\bptr<|\b(i1|[iu](8|16|32|64)|f16|f32|f64)\b|\bfp32\b"),
}


class Program(NamedTuple):
    """A wrong statement in each language; None where a language has no such."""

    name: str
    zg: str | None
    tl: str | None
    c: str | None


PROGRAMS = [
    Program("shapes of a sum", "y = v + zg.arange(0, 8)", "y = v + tl.arange(0, 8)", "float y[16] = v + (0 ... 8);"),
    Program(
        "shapes of a call",
        "y = zg.add(v, zg.arange(0, 8))",
        "y = tl.maximum(v, tl.arange(0, 8))",
        "float y[16] = max(v, 0 ... 8);",
    ),
    Program("augmented", "v += zg.arange(0, 8)", "v += tl.arange(0, 8)", "v += 0 ... 8;"),
    Program("a method without an argument", "y = v.to()", "y = v.to()", None),
    Program("too many arguments of a method", "y = v.sum(0, 1, 2, 3, 4)", "y = v.sum(0, 1, 2, 3, 4)", None),
    Program("an unknown parameter of a method", "y = (v + 1).to(zoo=3)", "y = (v + 1).to(zoo=3)", None),
    Program("tuples", "y = (v, 1)\ny -= (1,)", "y = (v, 1)\ny -= (1,)", None),
    Program("cat", "y = zg.cat(x + at, v, True)", "y = tl.cat(x + at, v, can_reorder=True)", None),
    Program("pointer and float", "y = zg.load(x + s)", "y = tl.load(x + s)", "float y = *(x + s);"),
    Program("and of floats", "y = v & v", "y = v & v", "int y[16] = v & v;"),
    Program("floor division", "y = v // 2.0", "y = v // 2.0", "float y[16] = v % 2.0f;"),
    Program("unary", "y = ~v", "y = ~v", "int y[16] = ~v;"),
    Program("negative pointer", "y = -x", "y = -x", "float *y = -x;"),
    Program("shift", "y = v << 1", "y = v << 1", "int y[16] = v << 1;"),
    Program("comparison", "y = v < zg.arange(0, 8)", "y = v < tl.arange(0, 8)", "int y[16] = v < 0 ... 8;"),
    Program("compare pointer", "y = x < 1.0", "y = x < 1.0", "int y = x < 1.0f;"),
    Program("matmul", "y = zg.dot(v, v)", "y = tl.dot(v, v)", "float y[16] = v @ v;"),
    Program(
        "dot types",
        "a = zg.zeros((16, 16), zg.f32)\nb = zg.zeros((16, 16), zg.f16)\ny = zg.dot(a, b)",
        "a = tl.zeros((16, 16), tl.float32)\nb = tl.zeros((16, 16), tl.float16)\ny = tl.dot(a, b)",
        None,
    ),
    Program(
        "dot ints",
        "a = zg.zeros((16, 16), zg.i32)\ny = zg.dot(a, a)",
        "a = tl.zeros((16, 16), tl.int32)\ny = tl.dot(a, a)",
        "int a[16, 16] = 0; int b[16, 16] = a @ a;",
    ),
    Program(
        "dot sizes",
        "a = zg.zeros((16, 32), zg.f16)\ny = zg.dot(a, a)",
        "a = tl.zeros((16, 32), tl.float16)\ny = tl.dot(a, a)",
        "half a[16, 32] = 0; half y[16, 16] = a @ a;",
    ),
    Program("trans order", "y = zg.trans(v, (0, 0))", "y = tl.trans(v, 0, 0)", None),
    Program("condition", "y = 1 if v > 0 else 2", "y = 1 if v > 0 else 2", "if (v > 0) { *x = 1; }"),
    Program("either a tensor or a constant", "zg.store(x + at, v or 1)", None, None),
    Program(
        "if of a tensor",
        "if v > 0:\n    zg.store(x, 1.0)",
        "if v > 0:\n    tl.store(x, 1.0)",
        "while (v > 0) { *x = 1; }",
    ),
    Program("and", None, None, "if (v && n) { *x = 1; }"),
    Program("where", None, "y = tl.where(x, v, v)", "float y[16] = x ? v : v;"),
    Program("arange", "y = zg.arange(0, 10)", "y = tl.arange(0, 10)", "int y[10] = 0 ... 10;"),
    Program("arange order", "y = zg.arange(4, 0)", "y = tl.arange(4, 0)", "int y[10] = 4 ... 0;"),
    Program("zeros size", "y = zg.zeros((10,), zg.f32)", "y = tl.zeros((10,), tl.float32)", "float y[10] = 0;"),
    Program("size at run time", "y = zg.zeros((n,), zg.f32)", "y = tl.zeros((n,), tl.float32)", "float y[n] = 0;"),
    Program("dtype", "y = zg.zeros((16,), 5)", "y = tl.zeros((16,), 5)", None),
    Program("cast", "y = zg.cast(v, 5)", "y = v.to(5)", None),
    Program("store to a number", "zg.store(n, 1)", "tl.store(n, 1)", "*n = 1;"),
    Program("load of a number", "y = zg.load(v)", "y = tl.load(v)", "float y[16] = *v;"),
    Program("store a tensor to a pointer", "zg.store(x, v)", "tl.store(x, v)", "*x = v;"),
    Program("mask", "y = zg.load(x + at, v)", "y = tl.load(x + at, mask=x)", "float y[16] = *?(x) (x + at);"),
    Program("other without mask", "y = zg.load(x + at, other=1.0)", "y = tl.load(x + at, other=1.0)", None),
    Program(
        "mask shape",
        "y = zg.load(x + at, zg.arange(0, 8) < 3)",
        "y = tl.load(x + at, mask=tl.arange(0, 8) < 3)",
        "float y[16] = *?((0 ... 8) < 3) (x + at);",
    ),
    Program("store type", None, "tl.store(x + at, x)", "*(x + at) = x;"),
    Program("atomic", None, "y = tl.atomic_and(x + at, v)", "atomic_and(x + at, v);"),
    Program("program id", "y = zg.program_id(3)", "y = tl.program_id(3)", "int y = get_program_id(3);"),
    Program("axis", "y = zg.sum(v, 1)", "y = tl.sum(v, 1)", "float y = sum(v, 1);"),
    Program("sum of a scalar", "y = zg.sum(n, 0)", "y = tl.sum(n, 0)", "float y = sum(n, 0);"),
    Program("too many arguments", "y = zg.exp(v, v)", "y = tl.exp(v, v, v)", "float y[16] = exp(v, v);"),
    Program("missing argument", "y = zg.exp()", "y = tl.exp()", "float y = exp();"),
    Program("wrong keyword", "y = zg.sum(v, axes=0)", "y = tl.sum(v, axes=0)", None),
    Program("float function", "y = zg.exp(x)", "y = tl.exp(x)", "float y = exp(x);"),
    Program("unknown call", "y = zg.expp(v)", "y = tl.expp(v)", "float y[16] = expp(v);"),
    Program("unknown name", "y = abc", "y = abc", "int y = abc;"),
    Program("unassigned", "if n > 0:\n    q = 1\ny = q", "if n > 0:\n    q = 1\ny = q", "int q; int y = q;"),
    Program(
        "two types",
        "if n > 0:\n    q = v\nelse:\n    q = n\nzg.store(x, q)",
        "if n > 0:\n    q = v\nelse:\n    q = n\ntl.store(x, q)",
        None,
    ),
    Program(
        "loop type",
        "q = 0\nfor i in range(n):\n    q = v\nzg.store(x, q)",
        "q = 0\nfor i in range(n):\n    q = v\ntl.store(x + at, q)",
        None,
    ),
    Program(
        "loop dtype",
        "q = n\nfor i in range(n):\n    q = q * 0.5\nzg.store(x, q)",
        "q = n\nfor i in range(n):\n    q = q * 0.5\ntl.store(x, q)",
        None,
    ),
    Program("loop bounds", "for i in v:\n    pass", "for i in v:\n    pass", None),
    Program(
        "range of a float", "for i in range(s):\n    zg.store(x, 1.0)", "for i in range(s):\n    tl.store(x, 1.0)", None
    ),
    Program(
        "static range",
        "for i in zg.static_range(n):\n    zg.store(x, 1.0)",
        "for i in tl.static_range(n):\n    tl.store(x, 1.0)",
        None,
    ),
    Program("subscript", "y = v[0]", "y = v[0]", "float y = v[0];"),
    Program("subscript of a pointer", "y = x[0]", "y = x[0]", "float y = x[0];"),
    Program("new axes", None, None, "float y[16, 1, 1] = v[:, newaxis, :];"),
    Program("method", "y = v.foo()", "y = v.foo()", None),
    Program("attribute", "y = v.foo", "y = v.foo", None),
    Program("broadcast", "y = zg.broadcast(v, (8, 8))", "y = tl.broadcast_to(v, 8, 8)", "float y[8, 8] = v;"),
    Program("reshape", "y = zg.reshape(v, (8,))", "y = tl.reshape(v, 8)", None),
    Program("expand", "y = zg.expand(v, (1, 1))", "y = tl.expand_dims(v, (1, 1))", None),
    Program(
        "static assert", 'zg.static_assert(False, "no")', 'tl.static_assert(False, "no")', 'static_assert(0, "no");'
    ),
    Program("print", "zg.device_print(n, v)", "tl.device_print(n, v)", None),
    Program("return", "return n", "return n", "return n;"),
    Program("a large shift", "y = zg.shl(1, 50000)", "y = 1 << 50000", "int y = 1 << 50000;"),
    Program("big literal", "y = zg.add(at, 1 << 40)", "y = at + (1 << 40)", None),
    Program("try", "try:\n    pass\nfinally:\n    pass", "try:\n    pass\nfinally:\n    pass", None),
    Program("power", "y = v ** 2", "y = v ** 2", None),
    Program("call of a number", "y = n(1)", "y = n(1)", "int y = n(1);"),
    Program("plain function", "y = print2(v)", "y = print2(v)", None),
    Program("mod of floats", None, "y = w % x", "float y[16] = v % w;"),
    Program("clz", "y = zg.clz(v)", "y = tl.umulhi(v, v)", "int y[16] = __clz(v);"),
    Program("gather", "y = zg.gather(v, v, 0)", "y = tl.gather(v, v, 0)", None),
    Program("split", "y, z = zg.split(v)", "y, z = tl.split(v)", None),
    Program("histogram", "y = zg.histogram(v, 16)", "y = tl.histogram(v, 16)", None),
    Program("join", "y = zg.join(v, x)", "y = tl.join(v, x)", None),
    Program("descriptor", "y = zg.load_descriptor(v, [0])", "d = tl.make_tensor_descriptor(n, [16], [1], [16])", None),
    Program(
        "cat",
        "y = zg.cat(v, zg.zeros((8,), zg.f32))",
        "y = tl.cat(v, tl.zeros((8,), tl.float32), can_reorder=True)",
        None,
    ),
    Program("cast of a pointer", "y = zg.cast(x, zg.f32)", "y = x.to(tl.float32)", "float y = (float)x;"),
]


def compiled(language: str, statement: str, file: Path) -> None:
    """Make the Triton model of a kernel with this statement."""
    if language == "c":
        zg.triton_c(_C.format(statement=statement)).triton(*TYPES)
        return
    indented = statement.replace("\n", "\n    ")
    file.write_text(_PYTHON.format(head=_HEADS[language], language=language, statement=indented), "utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.f.triton(*TYPES)


def test_messages_of_wrong_programs(golden: Callable[[str, object], None], tmp_path: Path):
    lines: list[str] = []
    for number, program in enumerate(PROGRAMS):
        lines.append(f"== {program.name}")
        for language in LANGUAGES:
            statement = getattr(program, language)
            if statement is None:
                continue
            with pytest.raises(zg.ZigguratError) as error_info:
                compiled(language, statement, tmp_path / f"{language}{number}.py")
            (error,) = error_info.value.parts
            assert error.location is not None
            text = "\n".join([error.summary, *error.shown_hint()])
            assert not FOREIGN[language].search(text), f"{program.name} in {language}: {text}"
            lines += [f"{language}: {statement}".replace("\n", "\n    "), *(f"    {line}" for line in text.split("\n"))]
    golden("messages", "\n".join(lines))


def all_phrases() -> Iterator[tuple[str, Phrase]]:
    """The phrases of the table, and those of the interpreter and of launches."""
    modules = [phrases, *(importlib.import_module(name) for name in _modules())]
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, Phrase):
                yield f"{module.__name__}.{name}", value


def _modules() -> Iterator[str]:
    yield "ziggurat.backend.launch.grids"
    for module in pkgutil.iter_modules(reference.__path__, "ziggurat.backend.reference."):
        yield module.name


NAMED = dict(all_phrases())


@pytest.mark.parametrize("name", NAMED)
def test_a_phrase_names_calls_that_its_language_has(name: str):
    phrase = NAMED[name]
    for text, prefix, module in ((phrase.zg, "zg", zg), (phrase.text(TRITON), "tl", tl)):
        for member in re.findall(rf"\b{prefix}\.(\w+)", text):
            assert member.endswith("_") or hasattr(module, member), f"{prefix} has no {member}"
    for member in re.findall(r"\btriton\.(\w+)", phrase.text(TRITON)):
        assert hasattr(triton, member)
    assert not FOREIGN["tl"].search(phrase.text(TRITON)) and not FOREIGN["zg"].search(phrase.zg)
    for member in re.findall(r"(?<![.\w])([a-z]\w+)\((?![…)])", phrase.c or ""):
        assert call_of(member, 1) is not None, f"C has no {member}"


def test_a_message_keeps_its_parts_until_the_language_is_known():
    error = zg.KernelTypeError(say("a sum of {a_tensor}, {}", TensorType((16,), f32)) + " here", None, phrases.DIVIDE())
    assert error.summary == "a sum of a tensor, tensor<x16, f32> here" and error.hint == "use zg.div"
    error.say_in(TRITON)
    assert error.summary == "a sum of a tensor, <[16], fp32> here" and error.hint == "use a / b"
    error.say_in(WORDS)  # The language that is nearer to the place came first.
    assert error.summary == "a sum of a tensor, <[16], fp32> here"


def test_a_sentence_that_languages_share_has_the_prefix_of_each():
    text = phrases.PRINT_CONSTANTS()
    for words, call in ((EXPLICIT_WORDS, "zg.static_print"), (TRITON, "tl.static_print"), (WORDS, "static_print")):
        assert text.in_words(words) == f"use {call} to print constants while the kernel is compiled"


def test_the_text_of_a_message_is_that_of_explicit_calls():
    text = phrases.CAST_BITS(dtype=f32)
    assert text == text.in_words(EXPLICIT_WORDS) == "use zg.cast to convert the value"
    assert text.in_words(WORDS) == "use (float)x to convert the value"
