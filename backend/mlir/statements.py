"""Read ops of MLIR's text into `Statement`s: the generic form, the common form, and the forms of ops with regions."""

from __future__ import annotations

from collections.abc import Callable

from ziggurat.backend.mlir.syntax import BLOCK_POINTER_HINT, Cursor, Dense, Statement
from ziggurat.codemodel.types import i1

Form = Callable[[Cursor, Statement], None]
FORMS: dict[str, Form] = {}  # The ops that have forms of their own.


def form(*names: str) -> Callable[[Form], Form]:
    """Register the reader of the part of an op after its name, for these ops."""

    def register(read: Form) -> Form:
        FORMS.update(dict.fromkeys(names, read))
        return read

    return register


def statement(c: Cursor) -> Statement:
    """The op at the cursor. The cursor goes past it, its regions included."""
    results: list[tuple[str, int]] = []
    while c.token[:1] == "%":
        name, count = c.next(), 1
        if c.take(":"):
            count = c.integer()
        results.append((name, count))
        if not c.take(","):
            c.expect("=")
            break
    at = c.at
    if c.token[:1] == '"':
        parsed_statement = Statement(c.string(), at, results)
        _generic(c, parsed_statement)
    else:
        parsed_statement = Statement(c.word("an op"), at, results)
        if parsed_statement.name in ("tt.make_tensor_ptr", "tt.advance"):
            c.fail(f"block pointers, {parsed_statement.name}, are not supported", at, BLOCK_POINTER_HINT)
        FORMS.get(parsed_statement.name, _common)(c, parsed_statement)
        _attributes(c, parsed_statement)
    parsed_statement.location = c.location()
    return parsed_statement


def _generic(c: Cursor, s: Statement) -> None:
    """`"op"(%a, %b)[^bb1] <{…}> ({…}) {…} : (A, B) -> C`."""
    c.expect("(")
    s.operands += c.values()
    c.expect(")")
    if c.take("["):
        while not c.take("]"):
            s.successors.append((c.next(), []))
            c.take(",")
    if c.take("<{"):
        s.attributes |= c.dictionary("}>")
    if c.take("("):
        while not c.take(")"):
            _region(c, s)
            c.take(",")
    if c.take("{"):
        s.attributes |= c.dictionary()
    c.expect(":")
    c.type_list(s.types, s.result_types)


def _region(c: Cursor, s: Statement) -> None:
    """Note a region and go past it."""
    if c.token != "{":
        c.fail(f"expected a region of {s.name}, in braces, got {c.shown()}")
    s.regions.append(c.at)
    c.at = c.closing[c.at] + 1


def _common(c: Cursor, s: Statement) -> None:
    """Operands, words, strings, `key = value` and attributes in any order, up to the types after the colon."""
    opened: list[str] = []  # The brackets that close those that are open.
    while True:
        token, before = c.token, c.tokens[c.at - 1]
        first = token[:1]
        if first == "%":
            if before[:1] == "%":
                c.expect(",")
            s.operands.append(c.next())
        elif first == '"':
            s.strings.append(c.string())
        elif first == "@":
            s.strings.append(c.symbol())
        elif token in ("(", "["):
            c.at += 1
            opened.append(")" if token == "(" else "]")
        elif (token in (")", "]") and opened[-1:] == [token] and before != ",") or (
            token == "," and before not in ("(", "[", ",", s.name)
        ):
            c.at += 1
            if token != ",":
                opened.pop()
        elif token in (")", "]", ",") or (token in (":", "->") and (opened or before == ",")):
            c.fail(f"expected an operand or '{opened[-1] if opened else ':'}', got {c.shown()}")
        elif token in ("{", "<{"):
            c.at += 1
            s.attributes |= c.dictionary("}" if token == "{" else "}>")
        elif token in (":", "->"):
            if c.take(":") and c.token[:1] == "%":  # tt.print has its operands here.
                s.operands += c.values()
                c.expect(":")
            _types(c, s)
            return
        elif first.isalpha() and not (token == "loc" and c.tokens[c.at + 1] == "("):
            c.at += 1
            if c.take("="):
                bare = c.token[:1].isalpha() and c.tokens[c.at + 1] in (":", ",", "{")
                s.attributes[token] = c.next() if bare else c.attribute()
            elif c.token == "<":
                c.at -= 1
                s.attributes[token] = c.raw()
            elif "." in token:
                c.at -= 1
                c.fail(f"expected the types of {s.name} after ':', got {c.shown()}")
            else:
                s.words.append(token)
        else:
            c.fail(f"expected the types of {s.name} after ':', got {c.shown()}")


def _types(c: Cursor, s: Statement) -> None:
    if s.name == "tt.make_tensor_descriptor":  # `<f16>, <tensor<64x64xf16>>`, without the names of the types.
        s.types.append(c.short_type("ptr"))
        c.expect(",")
        s.result_types.append(c.short_type("tensordesc"))
        return
    c.type_list(s.types, s.result_types)


def _attributes(c: Cursor, s: Statement) -> None:
    if c.take("{"):
        s.attributes |= c.dictionary()


@form("arith.constant")
def _constant(c: Cursor, s: Statement) -> None:
    _attributes(c, s)
    if c.token == "dense":
        value = c.dense()
    elif c.token in ("true", "false") and c.tokens[c.at + 1] != ":":
        value = Dense((c.next() == "true",), i1)
    else:
        number = c.plain_number()
        at = c.at - 1
        c.expect(":")
        type_ = c.type()
        value = Dense((c.literal(number, type_, at),), type_)
    s.attributes["value"] = value
    s.result_types.append(value.type)


@form("tt.return", "scf.yield", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return")
def _leaving(c: Cursor, s: Statement) -> None:
    _attributes(c, s)
    s.operands += c.values()
    _attributes(c, s)
    if s.operands:
        c.expect(":")
        _types(c, s)


@form("scf.condition")
def _condition(c: Cursor, s: Statement) -> None:
    c.expect("(")
    s.operands.append(c.value())
    c.expect(")")
    s.operands += c.values()
    _attributes(c, s)
    if len(s.operands) > 1:
        c.expect(":")
        _types(c, s)


@form("ub.unreachable", "llvm.unreachable", "gpu.barrier", "ttg.barrier")
def _alone(c: Cursor, s: Statement) -> None:
    """No operands, and no types: `ttg.barrier local|global`."""
    while c.token in ("all", "local", "global", "memfence", "|", "none") or (c.token == "[" and s.words):
        if c.token == "[":
            c.attribute()
        else:
            s.words.append(c.next())


@form("tt.dot_scaled")
def _scaled_dot(c: Cursor, s: Statement) -> None:
    """`%a scale %x, %b scale %y, %c lhs = e4m3 rhs = e4m3`; the scales come last in the generic form."""
    scales: list[str] = []
    sizes: list[int] = []
    for _ in range(2):
        s.operands.append(c.value())
        sizes.append(int(c.take("scale")))
        if sizes[-1]:
            scales.append(c.value())
        c.expect(",")
    s.operands += [c.value(), *scales]
    s.attributes["operandSegmentSizes"] = (1, 1, 1, *sizes)
    for key, word in (("a_elem_type", "lhs"), ("b_elem_type", "rhs")):
        c.expect(word)
        c.expect("=")
        s.attributes[key] = c.word("a format such as e4m3")
    _attributes(c, s)
    c.expect(":")
    _types(c, s)


@form("tt.print")
def _print(c: Cursor, s: Statement) -> None:
    s.strings.append(c.string())
    _attributes(c, s)
    if c.take(":"):
        s.operands += c.values()
        c.expect(":")
        _types(c, s)


# Branches.


def _target(c: Cursor, s: Statement) -> None:
    if c.token[:1] != "^":
        c.fail(f"expected a block such as '^bb1', got {c.shown()}")
    name, arguments = c.next(), list[str]()
    if c.take("("):
        arguments = c.values()
        c.expect(":")
        while not c.take(")"):
            c.type()
            c.take(",")
    s.successors.append((name, arguments))


@form("cf.br")
def _branch(c: Cursor, s: Statement) -> None:
    _target(c, s)


@form("cf.cond_br")
def _conditional_branch(c: Cursor, s: Statement) -> None:
    s.operands.append(c.value())
    if c.take("weights"):
        c.expect("(")
        while not c.take(")"):
            c.next()
    for _ in range(2):
        c.expect(",")
        _target(c, s)


@form("cf.assert")
def _assertion(c: Cursor, s: Statement) -> None:
    s.operands.append(c.value())
    c.expect(",")
    s.strings.append(c.string())


# Ops with regions.


def _carried(c: Cursor, s: Statement) -> list[str]:
    """`(%a = %x, %b = %y)`: the operands; gives the names of the parameters."""
    names: list[str] = []
    c.expect("(")
    while not c.take(")"):
        if names:
            c.expect(",")
        names.append(c.value())
        c.expect("=")
        s.operands.append(c.value())
    return names


def _arrow(c: Cursor, s: Statement) -> None:
    if c.take("->"):
        s.result_types += c.one_or_more_types()


@form("scf.for")
def _for(c: Cursor, s: Statement) -> None:
    if c.take("unsigned"):
        s.attributes["unsignedCmp"] = True
    s.parameters = [c.value()]
    for word in ("=", "to", "step"):
        c.expect(word)
        s.operands.append(c.value())
    if c.take("iter_args"):
        s.parameters += _carried(c, s)
        _arrow(c, s)
    if c.take(":"):
        s.types.append(c.type())
    _region(c, s)


@form("scf.if")
def _if(c: Cursor, s: Statement) -> None:
    s.operands.append(c.value())
    _arrow(c, s)
    _region(c, s)
    if c.take("else"):
        _region(c, s)


@form("scf.while")
def _while(c: Cursor, s: Statement) -> None:
    s.parameters = _carried(c, s) if c.token == "(" else []
    c.expect(":")
    s.types, s.result_types = c.function_type()
    _region(c, s)
    c.expect("do")
    _region(c, s)
    if c.take("attributes"):
        c.expect("{")
        s.attributes |= c.dictionary()
