"""`zg.explore`: what its page holds."""

import numpy as np
import pytest
from explored_kernels import column, content, product_page, racing, stray, sums, sums_page

import ziggurat as zg
import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.backend.ptx.sass import tool
from ziggurat.codemodel.text.writer import lines_of, to_text


@pytest.fixture(scope="module")
def page():
    exploration, x = sums_page()
    return content(exploration.html), x


def values_at(page, name, op, program=0):
    """The values of the first op of a name in a column, one for each execution."""
    entry = column(page, name)
    line = next(number for number, text in enumerate(entry["lines"]) if f" = {op}" in text)
    (ids,) = entry["values"][program][str(line)].values()
    return [page["values"][number] for number in ids]


def numbers(value):
    return np.array([float(text) for row in value["rows"] for text in row])


def test_columns(page):
    names = [entry["name"] for entry in page[0]["columns"]]
    assert names[:3] == ["source", "python", "triton"]
    machine = ["sass"] if tool("ptxas") and tool("nvdisasm") else []
    assert names[names.index("gpu") :] == ["gpu", "llvm", "ptx", *machine]
    assert "assign" in names  # A pass that changes the model; one that doesn't has no column.
    assert names.index("triton") < names.index("assign") < names.index("gpu")


@pytest.mark.parametrize("name", ["triton", "assign", "gpu"])
def test_values_are_numpys(page, name):
    """Each iteration's load, in the first program and in the last, whose mask ends within it."""
    content_, x = page
    for program, index in enumerate((0, 2)):
        loads = values_at(content_, name, "tt.load", program)
        assert len(loads) == 4
        for iteration, value in enumerate(loads):
            at = (index * 4 + iteration) * 32 + np.arange(32)
            expected = np.where(at < 300, np.append(x, np.zeros(200, np.float32))[at], 0)
            assert value["shape"] == [32] and value["element"] == "f32"
            np.testing.assert_allclose(numbers(value), expected, rtol=1e-5)
            np.testing.assert_allclose(float(value["most"]), expected.max(), rtol=1e-5)
            np.testing.assert_allclose(float(value["mean"]), expected.mean(), rtol=1e-4, atol=1e-6)


def test_pointers_are_elements_of_arguments(page):
    (first, *_) = values_at(page[0], "triton", "tt.addptr")
    assert first["rows"][0][:3] == ["x + 0", "x + 1", "x + 2"]


def test_lines_have_places(page):
    content_, _ = page
    source = column(content_, "source")
    multiplied = next(row for row, text in zip(source["rows"], source["lines"], strict=True) if "zg.mul(value" in text)
    call = next(row for row, text in zip(source["rows"], source["lines"], strict=True) if "scaled(zg.load(" in text)
    for name, part in (("triton", "math.exp2"), ("gpu", "math.exp2"), ("llvm", "ex2"), ("ptx", "ex2")):
        entry = column(content_, name)
        line = next(n for n, text in enumerate(entry["lines"]) if part in text and entry["at"][n] >= 0)
        place = content_["places"][entry["at"][line]]
        assert place[:2] == multiplied
        if name != "triton":  # There, the helper is a function of its own.
            assert content_["places"][place[5]][:2] == call or name == "ptx"


def test_changes_of_a_pass(page):
    entry = column(page[0], "assign")
    before = page[0]["columns"][page[0]["columns"].index(entry) - 1]
    assert entry["new"] and entry["gone"]
    assert len(entry["lines"]) - len(entry["new"]) == len(before["lines"]) - len(entry["gone"])


def test_costs_and_documents(page):
    gpu = column(page[0], "gpu")
    line = next(number for number, text in enumerate(gpu["lines"]) if "tt.load" in text)
    assert gpu["costs"][str(line)]["work"]["read"] == 128
    assert page[0]["documents"]["tt.load"]


def test_arrays_stay_as_they_are():
    out, x = np.zeros(96, np.float32), np.ones(300, np.float32)
    zg.explore(sums, 3, out, x, 300, 2.0, 4, 32)
    assert not out.any() and (x == 1).all()


def test_chosen_programs():
    exploration, x = sums_page(program=[1, (2, 0, 0)])
    page = content(exploration.html)
    assert page["programs"] == [[1, 0, 0], [2, 0, 0]]
    np.testing.assert_allclose(numbers(values_at(page, "triton", "tt.load")[0]), x[128:160], rtol=1e-5)


def test_a_cpus_kernel():
    exploration, x = sums_page(target="cpu")
    page = content(exploration.html)
    assert [entry["name"] for entry in page["columns"]] == ["source", "python", "triton", "cpu", "llvm", "asm"]
    assert any(at >= 0 for at in column(page, "asm")["at"])


def test_a_stray_access_stands_at_its_place():
    page = content(zg.explore(stray, (2,), np.zeros(64, np.float32), np.zeros(40, np.float32), 32).html)
    (note,) = (note for note in page["notes"] if note["kind"] == "MemoryAccessError")
    file, line, *_ = page["places"][note["at"]]
    source = column(page, "source")
    assert "zg.load" in source["lines"][source["rows"].index([file, line])]
    assert note["hint"]


def test_a_race_stands_at_its_place():
    page = content(zg.explore(racing, (4,), np.zeros(1, np.int32)).html)
    assert any("program" in note["text"] and note["at"] >= 0 for note in page["notes"])


def test_no_notes_of_a_right_kernel(page):
    assert page[0]["notes"] == []


def test_time_is_limited():
    page = content(sums_page(seconds=0)[0].html)
    assert {note["kind"] for note in page["notes"]} == {"strict mode", "values"}


@triton.jit
def triton_kernel(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@zg.kernel
def halves(out, x, HALF: zg.constexpr, BLOCK: zg.constexpr):
    at = zg.program_id(0) * BLOCK + zg.arange(0, BLOCK)
    zg.store(out + at, zg.load(x + at) / HALF)


def test_kernels_of_triton_and_tuned_ones():
    page = content(zg.explore(triton_kernel, (2,), np.zeros(50, np.float32), 50, B=32, num_warps=1).html)
    assert any("tl.load" in text for text in column(page, "source")["lines"])
    tuned = zg.autotune([zg.Config({"BLOCK": 64}, num_warps=2)], key=[])(stray)
    exploration = zg.explore(tuned, 1, np.zeros(64, np.float32), np.zeros(64, np.float32))
    assert exploration.compiled.num_warps == 2


def test_kernels_with_computed_parameters():
    """As a launch computes them: of the configuration that is chosen, or the first."""
    computed = zg.heuristics({"BLOCK": lambda given: given["HALF"] * 2})(halves)
    tuned = zg.autotune([zg.Config({"HALF": 16}, num_warps=2), zg.Config({"HALF": 8})], key=[])(computed)
    arrays = np.zeros(64, np.float32), np.ones(64, np.float32)
    for exploration in (zg.explore(tuned, 2, *arrays), zg.explore(computed, 2, *arrays, HALF=16, num_warps=2)):
        assert exploration.compiled.num_warps == 2
        assert any("tensor<x32, f32>" in text for text in column(content(exploration.html), "triton")["lines"])
    assert zg.debug(tuned, 2, *arrays)["BLOCK"] == 32
    assert zg.bisect(tuned, 2, *arrays, target="cpu").fault is None


def test_descriptors_roles_and_clusters_run():
    """The values of a persistent kernel with roles: program 1 by itself."""
    exploration, product = product_page()
    page = content(exploration.html)
    assert page["notes"] == []
    result = values_at(page, "gpu", "gpu.wgmma_wait")[-1]
    np.testing.assert_allclose(float(result["most"]), product.max(), rtol=1e-2)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((), {}, "needs 'out'"),
        ((np.zeros(4, np.float32),), {"program": 4}, "'program' must be one of the grid"),
        ((np.zeros(4, np.float32),), {"program": (0, 0, 1)}, "'program' must be one of the grid"),
        ((np.zeros(4, np.float32),), {"warps": 4}, "warps"),
        ((np.zeros(4, np.float32),), {"seconds": "4"}, "'seconds' must be a number; got '4'"),
    ],
)
def test_bad_arguments(arguments, keywords, message):
    with pytest.raises(zg.ZigguratError, match=message):
        zg.explore(racing, (4,), *arguments, **keywords)


def test_what_is_no_kernel():
    with pytest.raises(zg.ZigguratError, match="'kernel' must be a kernel"):
        zg.explore(np.sum, (4,))
    with pytest.raises(zg.LaunchError, match="must have a program"):
        zg.explore(racing, (0,), np.zeros(1, np.int32))


def test_saving(tmp_path):
    exploration, _ = sums_page()
    assert exploration.save(tmp_path / "page.html").read_text("utf-8") == exploration.html
    assert "<iframe" in exploration._repr_html_() and "html" not in repr(exploration)
    with pytest.raises(zg.LaunchError, match="cannot be written"):
        exploration.save(tmp_path / "missing" / "page.html")


def test_lines_of_a_model():
    model = sums.compile(zg.ptr(zg.f32), zg.ptr(zg.f32), zg.i32, zg.f32, 4, 32).stages["gpu"]
    lines, places = lines_of(model)
    assert [text for text, _ in lines] == to_text(model).splitlines()
    assert [op for _, op in lines if op is not None] == list(model.walk())
    for text, op in lines:
        assert op is None or op.NAME in text
    for name, line in places.values():
        assert f"{name} : " in lines[line][0]


def test_undefined_elements_are_marked_in_the_triton_model():
    @zg.kernel
    def partly(out, x, n, B: zg.constexpr):
        at = zg.arange(0, B)
        mask = zg.less(at, n)
        zg.store(zg.add(out, at), zg.load(zg.add(x, at), mask), mask)

    page = content(zg.explore(partly, (1,), np.zeros(8, np.float32), np.ones(8, np.float32), 5, 8).html)
    marked = [entry for entry in page["values"] if "undefined" in entry]
    assert [entry["undefined"] for entry in marked] == [3]
    assert [text for row in marked[0]["rows"] for text in row] == ["1"] * 5 + ["0?"] * 3
