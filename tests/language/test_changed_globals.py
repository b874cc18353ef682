"""Globals, closures and helper functions that change after a kernel was compiled."""

import importlib.util
import linecache
import types
import warnings

import numpy as np
import pytest

import ziggurat as zg

CELLS = 0


def cell(text: str, scope: dict) -> None:
    """Run text as a notebook runs a cell: under a file name of its own, in a scope that lives on."""
    global CELLS
    CELLS += 1
    name = f"<cell {CELLS}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)


def value(kernel) -> float:
    """The number that a kernel of one pointer writes, without a warning."""
    out = np.zeros(1, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[(1,)](out)
    return float(out[0])


def warned(kernel) -> tuple[float, str]:
    """The number that a kernel of one pointer writes, and the text of its warning."""
    out = np.zeros(1, np.float32)
    with pytest.warns(zg.ZigguratWarning) as error_info:
        kernel[(1,)](out)
    assert len(error_info) == 1
    return float(out[0]), str(error_info[0].message)


@pytest.fixture
def notebook():
    scope = {"zg": zg}
    cell("SCALE = 2.0\n@zg.function\ndef helper(x):\n    return x * SCALE\n", scope)
    cell("@zg.kernel\ndef kernel(p):\n    zg.store(p, helper(1.0) + BIAS)\n", scope)
    scope["BIAS"] = 0.0
    assert value(scope["kernel"]) == 2.0
    return scope


def test_a_global_that_changes(notebook):
    notebook["BIAS"] = 1.0
    result, message = warned(notebook["kernel"])
    assert result == 3.0
    assert message.startswith("'BIAS' was 0.0 when 'kernel' was compiled, and is 1.0 now; 'kernel' is compiled again\n")
    assert "zg.store(p, helper(1.0) + BIAS)" in message
    assert message.endswith("hint: take values that change as parameters: BIAS: zg.constexpr")
    assert value(notebook["kernel"]) == 3.0


def test_a_global_of_a_helper(notebook):
    notebook["SCALE"] = 3.0
    result, message = warned(notebook["kernel"])
    assert result == 3.0 and "'SCALE' was 2.0" in message and "return x * SCALE" in message


def test_a_helper_that_is_defined_again(notebook):
    cell("@zg.function\ndef helper(x):\n    return x + 10.0\n", notebook)
    result, message = warned(notebook["kernel"])
    assert result == 11.0
    assert message.startswith("'helper' was defined again after 'kernel' was compiled; 'kernel' is compiled again\n")


def test_a_global_of_the_helper_that_is_defined_again(notebook):
    cell("@zg.function\ndef helper(x):\n    return x + SHIFT\nSHIFT = 5.0\n", notebook)
    assert warned(notebook["kernel"])[0] == 6.0
    notebook["SHIFT"] = 7.0
    assert warned(notebook["kernel"])[0] == 8.0


def test_equal_values_and_equal_helpers_are_no_change(notebook):
    notebook["BIAS"] = -1.0 + 1.0
    cell("SCALE = 1.0 + 1.0\n@zg.function\ndef helper(x):\n    return x * SCALE  # The same.\n", notebook)
    assert value(notebook["kernel"]) == 2.0
    notebook["SCALE"] = 4.0
    assert warned(notebook["kernel"])[0] == 4.0


@pytest.mark.parametrize(("old", "new"), [(0.0, -0.0), (1, 1.0), (1, True), ((1, 2), (1, 3)), (None, 0)])
def test_values_that_only_compare_equal_are_changes(old, new):
    scope = {"zg": zg, "X": old}
    cell("@zg.kernel\ndef kernel(p):\n    y = X\n    zg.store(p, 1.0)\n", scope)
    assert value(scope["kernel"]) == 1.0
    scope["X"] = new
    assert repr(new) in warned(scope["kernel"])[1]


def test_the_other_kernel_of_a_helper_is_compiled_again_as_well(notebook):
    cell("@zg.kernel\ndef other(p):\n    zg.store(p, helper(10.0))\n", notebook)
    assert value(notebook["other"]) == 20.0
    notebook["SCALE"] = 3.0
    assert warned(notebook["kernel"])[0] == 3.0
    assert warned(notebook["other"])[0] == 30.0


def test_a_helper_whose_model_was_renewed_on_its_own(notebook):
    notebook["SCALE"] = 3.0
    with pytest.warns(zg.ZigguratWarning, match="'helper' is compiled again"):
        assert "SCALE" not in str(notebook["helper"].model)
    assert warned(notebook["kernel"])[0] == 3.0


def test_a_variable_of_the_enclosing_function():
    def make(x):
        @zg.kernel
        def kernel(p):
            zg.store(p, x)

        def put(value):
            nonlocal x
            x = value

        return kernel, put

    kernel, store = make(1.0)
    assert value(kernel) == 1.0
    store(2.0)
    assert warned(kernel)[0] == 2.0


def test_a_name_of_a_module():
    settings = types.ModuleType("settings")
    settings.SIZE = 3
    scope = {"zg": zg, "settings": settings}
    cell("@zg.kernel\ndef kernel(p):\n    zg.store(p, settings.SIZE)\n", scope)
    assert value(scope["kernel"]) == 3.0
    settings.SIZE = 4
    result, message = warned(scope["kernel"])
    assert result == 4.0 and "'settings.SIZE' was 3" in message


def test_a_name_that_is_gone(notebook):
    del notebook["BIAS"]
    with (
        pytest.warns(zg.ZigguratWarning, match="'BIAS' was 0.0 when .* is gone now"),
        pytest.raises(zg.KernelNameError),
    ):
        notebook["kernel"][(1,)](np.zeros(1, np.float32))


def test_models_and_compilations_follow(notebook):
    kernel = notebook["kernel"]
    types_ = (zg.ptr(zg.f32),)
    before = kernel.triton(*types_)
    assert kernel.triton(*types_) is before
    for look in (
        lambda: kernel.triton(*types_),
        lambda: kernel.attribution(*types_),
        lambda: kernel.model,
        lambda: kernel.compile(*types_, target="sm_90a"),
    ):
        notebook["BIAS"] += 1.0
        with pytest.warns(zg.ZigguratWarning, match="BIAS"):
            look()
    assert str(kernel.triton(*types_)) != str(before)


def test_errors_of_the_new_helper_are_told(notebook):
    cell("@zg.function\ndef helper(x):\n    return x @ x\n", notebook)
    with pytest.warns(zg.ZigguratWarning, match="helper"), pytest.raises(zg.ZigguratError, match="the operator @"):
        notebook["kernel"][(1,)](np.zeros(1, np.float32))


def test_a_module_that_is_loaded_again(tmp_path):
    file = tmp_path / "loaded_again.py"
    file.write_text("import ziggurat as zg\n@zg.function\ndef helper(x):\n    return x + 1.0\n")
    spec = importlib.util.spec_from_file_location("loaded_again", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scope = {"zg": zg, "module": module}
    cell("@zg.kernel\ndef kernel(p):\n    zg.store(p, module.helper(1.0))\n", scope)
    assert value(scope["kernel"]) == 2.0
    file.write_text("import ziggurat as zg\n@zg.function\ndef helper(x):\n    return x + 20.0\n")
    assert value(scope["kernel"]) == 2.0, "an edited file alone changes nothing"
    spec.loader.exec_module(module)
    assert warned(scope["kernel"])[0] == 21.0
