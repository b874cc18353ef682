"""`zg.testing`: comparing arrays."""

import subprocess
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

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
