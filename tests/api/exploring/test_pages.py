"""The page of `zg.explore` in a browser: it opens, links lines, shows values, and its console stays empty."""

import numpy as np
import pytest
from browser import BROWSER, visit
from explored_kernels import racing, sums_page, transposed

import ziggurat as zg
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.transforms.cost.cost import move_of
from ziggurat.transforms.layouts.swizzle import moves

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")


@pytest.fixture(scope="module")
def page():
    exploration, x = sums_page()
    return exploration.html, x


def test_it_opens(page):
    script = "return [state.panes.map(pane => pane.name), document.title, document.documentElement.scrollWidth];"
    panes, title, width = visit(page[0], script)
    assert panes == ["source", "triton", "gpu", "ptx"]
    assert title.startswith("sums") and width <= 1280


def test_hovering_links_lines(page):
    """The line of the product marks itself in every column, and the line of the call that leads to it as near."""
    script = """
        const lines = name => state.panes.find(pane => pane.name === name).rows;
        const row = lines("source").find(row => row.textContent.includes("zg.mul(value"));
        row.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
        const of = (name, kind) => lines(name).filter(row => row.classList.contains(kind)).map(row => row.textContent);
        return ["triton", "gpu", "ptx"].map(name => [of(name, "same"), of(name, "near")]);"""
    (triton, _), (gpu, _), (ptx, _) = visit(page[0], script)
    assert any("math.exp2" in text for text in triton) and any("math.exp2" in text for text in gpu)
    assert any("ex2" in text for text in ptx)
    assert not any("tt.load" in text for text in triton)


def test_values_in_the_panel(page):
    html, x = page
    script = """
        const triton = column("triton"), line = triton.lines.findIndex(text => text.includes("tt.load"));
        pick(1, line);
        const read = () => [...document.querySelectorAll("#panel table")][0].innerText.split(/\\s+/).filter(Boolean);
        const results = [read()];
        document.dispatchEvent(new KeyboardEvent("keydown", {key: ".", bubbles: true}));
        results.push(read());
        const programs = document.getElementById("program");
        programs.value = "1";
        programs.onchange();
        results.push(read());
        return results;"""
    for texts, start in zip(visit(html, script), (0, 32, 8 * 32 + 32), strict=True):
        at = start + np.arange(32)
        expected = np.where(at < 300, np.append(x, np.zeros(200, np.float32))[at], 0)
        np.testing.assert_allclose([float(text) for text in texts], expected, rtol=1e-5)


def test_keys(page):
    script = """
        const press = key => document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
        pick(0, 2); press("ArrowDown"); const down = state.picked.line;
        press("ArrowRight"); const right = state.active;
        press("]"); const after = state.panes[1].name;
        press("d"); const rows = document.querySelectorAll(".line.new, .line.gone").length;
        press("t"); const theme = document.documentElement.className;
        press("Escape");
        return [down, right, after, rows, theme, state.picked];"""
    down, right, after, rows, theme, picked = visit(page[0], script)
    assert (down, right, theme, picked) == (3, 1, "dark", None)
    assert after not in ("triton", "gpu") and rows > 0


def test_every_column_draws(page):
    script = """
        const counts = {};
        for (const c of page.columns) {
            show(1, c.name);
            counts[c.name] = state.panes[1].rows.length === c.lines.length;
        }
        show(1, "gpu"); changes(1);
        const line = column("gpu").lines.findIndex(text => text.includes("tt.load"));
        pick(1, line);
        const canvas = document.querySelector("#panel canvas");
        canvas.dispatchEvent(new MouseEvent("mousemove", {clientX: canvas.getBoundingClientRect().x + 1,
                                                          clientY: canvas.getBoundingClientRect().y + 1}));
        return [counts, document.getElementById("tip").textContent];"""
    counts, tip = visit(page[0], script)
    assert all(counts.values()) and len(counts) > 8
    assert tip.startswith("[0]: warp 0, lane 0, register 0")


def test_search(page):
    script = """
        search("math.exp2", true);
        return [state.panes[state.active].name, column("triton").lines[state.picked.line]];"""
    name, text = visit(page[0], script)
    assert name == "triton" and "math.exp2" in text


def test_a_note_is_shown_first():
    html = zg.explore(racing, (4,), np.zeros(1, np.int32)).html
    script = 'return [column("source").lines[state.picked.line], document.getElementById("panel").textContent];'
    line, panel = visit(html, script)
    assert "zg.store" in line and "program" in panel


def test_banks_of_shared_memory():
    """The wavefronts that the page draws are those that the cost counts."""
    x = np.zeros((64, 64), np.float32)
    script = """
        const gpu = column("gpu"), at = gpu.lines.findIndex(text => text.includes("gpu.local_load"));
        pick(2, at);
        const canvas = document.getElementById("banks");
        canvas.dispatchEvent(new MouseEvent("mousemove", {clientX: canvas.getBoundingClientRect().x + 1,
                                                          clientY: canvas.getBoundingClientRect().y + 1}));
        const column_ = {addresses: Array.from({length: 32}, (_, lane) => lane * 128), bytes: 4};
        return [wavefronts(gpu.costs[at].banks).length, document.querySelector(".tip").textContent,
                wavefronts(column_).filter(row => row.isExtra).length];"""
    exploration = zg.explore(transposed, 1, x, x.copy(), 64, num_warps=4)
    rows, tip, conflicts = visit(exploration.html, script)
    (op,) = (op for op in exploration.compiled.stages["gpu"].walk() if op.NAME == "gpu.local_load")
    cost = moves(*move_of(op, TARGETS[exploration.compiled.target]))
    assert rows == cost.wavefronts / cost.instructions
    assert tip.startswith("bank 0: lane 0") and conflicts == 31
