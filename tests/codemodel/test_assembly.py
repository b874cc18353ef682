"""Templates and constraints of inline assembly that LLVM cannot read are refused before it sees them."""

import pytest

from ziggurat.codemodel.assembly import constraints_error, template_error
from ziggurat.codemodel.errors import VerifyError
from ziggurat.codemodel.text.parser import parse
from ziggurat.codemodel.verify import verify


@pytest.mark.parametrize(
    "text",
    ["", "mov $0, $1;", "${0} $$ $$$1", '.pragma "nounroll";', "a\n\tb\\41", "{ | }"],
)
def test_templates_that_are_taken(text):
    assert template_error(text, 2) is None


@pytest.mark.parametrize("text", ["$", "$x", "$-1", "${0", "${0:x}", "${:comment}", "$(a$|b$)", "$0$", "$$$"])
def test_a_dollar_begins_an_operand(text):
    message, hint = template_error(text, 2) or ("", "")
    assert (
        message.startswith("'$' must begin $0, ${0}, ${:uid} or $$; got '$") and hint == "write '$$' for a dollar sign"
    )


def test_operands_exist():
    assert template_error("${7}", 2) == (
        "the assembly names $7, and the constraints have $0 to $1", "write '$$' for a dollar sign",
    )  # fmt: skip
    assert "$999999999, and the constraints have none" in (template_error("$" + "9" * 5000, 0) or ("",))[0]


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x7f", "\ud801", "\udc80"])
def test_assembly_is_printable(character):
    assert template_error(f"a{character}", 0) == (
        f"assembly must be printable text; got the character {character!r}", "PTX is ASCII",
    )  # fmt: skip


@pytest.mark.parametrize("constraints", ["", "=r", "=&r,=d,r,n,0,~{memory}", " =r , r "])
def test_constraints_that_are_taken(constraints):
    assert constraints_error(constraints) is None


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ("=q", "'=q' must be one of PTX's"),
        ("={r0}", "'={r0}' must be one"),
        ("=r,*r", r"'*r' must be one"),
        ("=r,,r", "'' must be one"),
        ("r,=r", "results must come first"),
        ("=r,1", "'1' must be the number of a result"),
    ],
)
def test_constraints_that_are_not(constraints, words):
    assert words in (constraints_error(constraints) or "")


@pytest.mark.parametrize("text", ["$x", "${0:x}", "$5"])
def test_a_model_with_such_a_template_is_invalid(text):
    model = parse(f"""module ()void -> {{ tt.func @"f" (%0 : i32)void -> {{
        %1 : i32 = tt.elementwise_inline_asm %0 @asm="{text}" @constraints="=r,r"; tt.return; }}; unreachable; }};""")
    with pytest.raises(VerifyError, match=r"tt\.elementwise_inline_asm"):
        verify(model)
