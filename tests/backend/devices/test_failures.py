"""The messages for statuses of the driver, and for CTAs that do not fit on an SM."""

import pytest

from ziggurat.backend.devices.failures import failure, out_of_resources
from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, MemoryAccessError

LIMITS = {"register_file": 65536, "max_shared": 1000}


def test_words_for_statuses():
    certain = failure("CUDA_ERROR_ILLEGAL_ADDRESS", "waiting", "add", certain=True)
    assert isinstance(certain, KernelRuntimeError) and "the kernel 'add' accessed" in str(certain)
    assert "check=True" not in str(certain) and "mask" in str(certain)
    assert "check=True" in str(failure("CUDA_ERROR_ILLEGAL_ADDRESS", "waiting", "add"))
    other = failure("CUDA_ERROR_SYSTEM_NOT_READY", "launching", "add")
    assert isinstance(other, LaunchError) and "launching of 'add' failed" in str(other)


@pytest.mark.parametrize(
    ("status", "what", "advice"),
    [
        ("ILLEGAL_ADDRESS", "accessed memory outside of its arrays", "a missing mask"),
        ("MISALIGNED_ADDRESS", "at a misaligned address", "zg.multiple_of"),
        ("ASSERT", "stopped at a device assertion", "on standard output"),
        ("ILLEGAL_INSTRUCTION", "executed an instruction", "inline_asm_elementwise"),
        ("LAUNCH_FAILED", "failed while it ran", "compute-sanitizer"),
        ("LAUNCH_TIMEOUT", "watchdog", "a loop may not end"),
    ],
)
def test_faults_say_what_to_do(status, what, advice):
    for kernel, certain, subject in (
        ("add", True, "the kernel 'add' "),
        ("add", False, "'add', or a kernel launched before it, "),
        (None, False, "a kernel launched before "),
    ):
        error = failure(f"CUDA_ERROR_{status}", "waiting", kernel, certain)
        assert isinstance(error, KernelRuntimeError)
        assert error.summary.startswith(subject) and what in error.summary and status in error.summary
        assert error.hint is not None and advice in error.hint and "start the process again" in error.hint
        assert ("check=True" in error.hint) != certain


def test_too_many_threads_are_told_from_too_many_registers():
    few = out_of_resources("k", threads=1024, registers=64, shared=0, max_threads=512, **LIMITS)
    assert "1024 threads, where it can have 512" in str(few)
    assert few.hint == "fewer warps"
    many = out_of_resources("k", threads=512, registers=168, shared=0, max_threads=384, **LIMITS)
    assert "168 registers for each of 512 threads" in str(many) and many.hint == "fewer warps, or smaller blocks"
    fits = {"threads": 128, "registers": 8, "max_threads": 1024, "register_file": 65536}
    shared = out_of_resources("k", shared=1001, max_shared=1000, **fits)
    assert "1001 bytes of shared memory, where the device has 1000" in str(shared)
    assert shared.hint == "smaller blocks, or a lower num_stages"
    other = out_of_resources("k", shared=1000, max_shared=1000, **fits)
    assert "a CTA needs 128 threads of 8 registers and 1000 bytes" in str(other) and other.hint == "smaller blocks"
    # 16 warps, of 16 units of 256 registers each, have the whole file.
    assert "registers for each" not in str(
        out_of_resources("k", threads=512, registers=128, shared=0, max_threads=384, **LIMITS)
    )
    assert "registers for each" in str(
        out_of_resources("k", threads=512, registers=129, shared=0, max_threads=384, **LIMITS)
    )


@pytest.mark.parametrize("status", ["ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC"])
def test_what_is_about_memory_has_the_class_for_it(status):
    assert isinstance(failure(f"CUDA_ERROR_{status}", "waiting"), MemoryAccessError) == ("ADDRESS" in status)


def test_a_fault_without_advice_of_its_own_has_the_rest():
    hint = failure("CUDA_ERROR_HARDWARE_STACK_ERROR", "waiting", "add", certain=True).hint
    assert hint == "CUDA keeps failing in this context now: start the process again"


@pytest.mark.parametrize("status", ["CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_INVALID_DEVICE"])
def test_no_device(status):
    error = failure(status, "asking for device 9")
    assert (
        isinstance(error, LaunchError) and error.summary == f"asking for device 9: there is no such device ({status})"
    )


def test_no_memory():
    error = failure("CUDA_ERROR_OUT_OF_MEMORY", "loading", "add")
    assert isinstance(error, LaunchError) and error.summary == "loading of 'add': the device is out of memory"
    assert error.hint == "free arrays, or make smaller ones"


def test_shared_memory_and_registers_are_both_named():
    error = out_of_resources("k", threads=512, registers=168, shared=1001, max_threads=384, **LIMITS)
    assert "1001 bytes of shared memory, where the device has 1000 for a CTA and 168 registers" in error.summary
    assert error.hint == "smaller blocks, or a lower num_stages; fewer warps, or smaller blocks"


def test_registers_are_handed_out_in_units_of_a_warp():
    """64 * 32 is 8 units of 256: 32 warps fill the file. One register more takes a whole unit of each warp."""
    fits = out_of_resources("k", threads=1024, registers=64, shared=0, max_threads=1024, **LIMITS)
    assert "1024 threads of 64 registers and 0 bytes" in fits.summary and fits.hint == "smaller blocks"
    over = out_of_resources("k", threads=1024, registers=65, shared=0, max_threads=1024, **LIMITS)
    assert "65 registers for each of 1024 threads, where the device has 65536 in all" in over.summary
