"""`zg.testing`: comparing arrays."""

import subprocess
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from libraries import require

import ziggurat as zg

close = zg.testing.assert_close


def test_the_module_is_there_when_it_is_asked_for():
    program = "import ziggurat, sys; assert 'ziggurat.testing' not in sys.modules; print(ziggurat.testing.do_bench)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "do_bench" in done.stdout
    import ziggurat.testing as imported

    assert imported is zg.testing and set(imported.__all__) <= set(dir(imported))


@pytest.mark.parametrize(
    ("dtype", "within", "beyond"),
    [
        (np.float64, 1e-8, 1e-6),
        (np.float32, 1e-6, 1e-4),
        (np.float16, 5e-4, 1e-2),
        (ml_dtypes.bfloat16, 7e-3, 1e-1),
    ],
)
def test_tolerances_follow_the_element_type(dtype, within, beyond):
    reference = np.full((4, 5), 3.0, dtype)
    close((reference.astype(np.float64) * (1 + within)).astype(dtype), reference)
    wrong = reference.copy()
    wrong[2, 3] = 3.0 * (1 + beyond)
    with pytest.raises(AssertionError, match=r"1 of 20 elements differ .*; most at \[2, 3\]: 3\.\d+, and 3.* is exp"):
        close(wrong, reference)
    close(wrong, reference, rtol=1.0)


def test_the_coarser_type_decides():
    close(np.full(3, 1.0005, np.float16), np.full(3, 1.0, np.float64))
    with pytest.raises(AssertionError):
        close(np.full(3, 1.0005, np.float64), np.full(3, 1.0, np.float64))


def test_integers_are_equal_and_special_numbers_agree():
    close(np.array([1, 2**62 + 1]), np.array([1, 2**62 + 1]))
    with pytest.raises(AssertionError, match="1 of 2"):
        close(np.array([1, 2**62 + 1]), np.array([1, 2**62]))
    special = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    close(special, special)
    with pytest.raises(AssertionError, match="1 of 4"):
        close(special, special, equal_nan=False)
    for other in ([np.nan, np.inf, np.inf, 0], [np.nan, np.inf, 1e30, 0], [0, np.inf, -np.inf, 0]):
        with pytest.raises(AssertionError, match="1 of 4"):
            close(special, np.array(other, np.float32))
    with pytest.raises(AssertionError, match="1 of 4"):
        close(np.array([np.nan, 1e30, -np.inf, 0], np.float32), special)


def test_shapes_and_numbers():
    close(np.full((2, 2), 5.0), 5.0)
    close(np.zeros((0, 3)), np.zeros((0, 3)))
    with pytest.raises(AssertionError, match=r"the shapes differ: \[2, 2\], and \[4\] is expected"):
        close(np.zeros((2, 2)), np.zeros(4))


def test_arrays_of_other_libraries(fake):
    x = np.arange(8, dtype=np.float32)
    close(zg.to_device(x), x)
    with pytest.raises(AssertionError, match="8 of 8"):
        close(zg.to_device(x), x + 1)
    cupy = SimpleNamespace(__cuda_array_interface__={}, get=lambda: x)
    close(cupy, x)


def test_differences_are_computed_in_float64():
    one, far = np.ones(3), np.full(3, 1 + 2e-10)
    for a, b in ((one, far), (far, one), (1.0, far), (far, 1.0)):
        close(a, b, rtol=0, atol=3e-10)
        with pytest.raises(AssertionError, match="3 of 3"):
            close(a, b, rtol=0, atol=1e-10)


def test_the_limit_itself_is_within():
    close([1.5, -1.5], [1.0, -1.0], rtol=0, atol=0.5)
    close([3.0, -3.0], [2.0, -2.0], rtol=0.5, atol=0)
    with pytest.raises(AssertionError, match=r"1 of 2 .* rtol=0.25, atol=0.25; most at \[1\]: 3.0, and 2.0 is"):
        close([1.5, 3.0], [1.0, 2.0], rtol=0.25, atol=0.25)
    with pytest.raises(AssertionError, match=r"2 of 2 .*; most at \[0\]: nan"):
        close([np.nan, 5.0], [0.0, 0.0])
    close([np.inf, 1.0], [np.inf, 1.0], rtol=0.1, atol=0)
    with pytest.raises(AssertionError, match="1 of 1"):
        close([1.0], [np.inf], rtol=0.1, atol=0)


def test_equal_numbers_without_a_tolerance():
    close([np.nan, 1.0], [np.nan, 1.0], rtol=0, atol=0)
    with pytest.raises(AssertionError, match="1 of 2"):
        close([np.nan, 1.0], [np.nan, 1.0], rtol=0, atol=0, equal_nan=False)
    for a, b in (([np.nan], [1.0]), ([1.0], [np.nan])):
        with pytest.raises(AssertionError, match="1 of 1"):
            close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize(("dtype", "rtol", "atol"), [
    (np.float64, 1e-7, 1e-7), (np.float32, 1.3e-6, 1e-5), (np.float16, 1e-3, 1e-5), (ml_dtypes.bfloat16, 1.6e-2, 1e-5),
    (ml_dtypes.float8_e4m3fn, 0.125, 1e-3), (ml_dtypes.float8_e5m2, 0.25, 1e-3), (np.int32, 0, 0),
])  # fmt: skip
def test_the_default_tolerances(dtype, rtol, atol):
    with pytest.raises(AssertionError, match=f"by more than rtol={rtol:g}, atol={atol:g};"):
        close(np.ones(1, dtype), np.full(1, 4, dtype))


@pytest.mark.parametrize("tolerance", [-1, -1e-9, float("nan"), "1", [1]])
@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_tolerances_that_are_no_numbers(name, tolerance):
    with pytest.raises(zg.ZigguratError, match=f"assert_close: '{name}' must be a number of zero or more"):
        close(1.0, 1.0, **{name: tolerance})
    close(1.0, 1.0, **{name: np.float32(0)})


@pytest.mark.parametrize("value", ["text", [None], np.array(["a"]), np.array([0], "datetime64[s]")])
def test_things_that_are_no_arrays_of_numbers(value):
    for name, pair in (("actual", (value, 1.0)), ("expected", (1.0, value))):
        with pytest.raises(zg.ZigguratError, match=f"assert_close: '{name}' must be an array of numbers"):
            close(*pair)


def test_tensors_of_torch():
    torch = require("torch")
    x = torch.arange(6.0).reshape(2, 3).t().requires_grad_()
    close(x, x.detach().numpy())
    close(torch.ones(2, dtype=torch.bfloat16), np.ones(2))
    with pytest.raises(AssertionError, match=r"1 of 6 .*; most at \[2, 1\]: 5.0, and 6.0 is expected"):
        close(x, torch.tensor([[0.0, 3], [1, 4], [2, 6]]))
