"""Models in a notebook: all of the text, escaped, with its parts in colour."""

from __future__ import annotations

import html
import re

from ziggurat.codemodel import dialects  # noqa: F401
from ziggurat.codemodel.text.html import side_by_side, to_html
from ziggurat.codemodel.text.parser import parse

MODEL = parse(
    """tt.func @"a<b>&\\"c\\"" (%0 : ptr<f32>)void -> {
        cf.br ^next;
        ^next:
            %1 : i32 = tt.get_program_id @0;
            tt.return;
    };"""
)
SHOWN = to_html(MODEL)


def test_without_its_tags_it_is_the_text():
    assert html.unescape(re.sub(r"<[^>]*>", "", SHOWN)) == str(MODEL)


def test_nothing_of_the_model_is_markup():
    assert set(re.findall(r"<(/?\w+)", SHOWN)) == {"pre", "/pre", "span", "/span"}
    assert "a&lt;b&gt;&amp;" in SHOWN


def test_lines_stay_whole_in_a_fixed_width_font_whatever_the_page_says_of_preformatted_text():
    text = "a stage that is text: <x>"
    for output in (SHOWN, side_by_side({"model": MODEL, "text": text})):
        styles = re.findall(r'<pre style="([^"]*)"', output)
        assert styles and all({"font-family:monospace", "white-space:pre"} <= {*style.split(";")} for style in styles)
        assert output.count("<pre") == len(styles)
    assert "text: &lt;x&gt;</pre>" in side_by_side({"text": text})


def test_parts_have_their_colours():
    by_text = {html.unescape(text): shade for shade, text in re.findall(r'color:(#\w+)">([^<]*)</span>', SHOWN)}
    assert by_text["%0"] == by_text["%1"] and by_text["tt.get_program_id"] == by_text["cf.br"]
    assert len({by_text[text] for text in ("%0", "cf.br", "@0")}) == 3
