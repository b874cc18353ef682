"""Errors for statuses of the CUDA driver, for the author of the kernel."""

from __future__ import annotations

from ziggurat.codemodel.errors import KernelRuntimeError, LaunchError, MemoryAccessError, ResourceError, ZigguratError
from ziggurat.codemodel.messages import call_text, joined, say

ASSEMBLY = say("look at the kernel's {}; if it has none, please report this", call_text("inline_asm_elementwise"))

# The class, summary and advice for each fault. After a fault, every call in the context fails until the process, or at
# least the context, ends.
_INSTEAD = "kernel[grid](…) on copies of the arrays in NumPy"
_FAULTS: dict[str, tuple[type[ZigguratError], str, str | None]] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": (
        MemoryAccessError,
        "accessed memory outside of its arrays",
        f"look for a missing mask, or an i32 offset that overflows; {_INSTEAD} names the place",
    ),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        MemoryAccessError,
        "accessed memory at a misaligned address",
        say(
            "look for a false {} or {}, or a view that starts in the middle",
            call_text("multiple_of"),
            call_text("max_contiguous"),
        ),
    ),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": (MemoryAccessError, "accessed memory of the wrong address space", None),
    "CUDA_ERROR_ASSERT": (
        KernelRuntimeError,
        "stopped at a device assertion",
        "the assertion's place and message are on standard output",
    ),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (
        KernelRuntimeError,
        "executed an instruction that the device lacks or traps on",
        ASSEMBLY,
    ),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": (KernelRuntimeError, "ran over its stack", None),
    "CUDA_ERROR_INVALID_PC": (KernelRuntimeError, "jumped to an address without code", None),
    "CUDA_ERROR_LAUNCH_FAILED": (
        KernelRuntimeError,
        "failed while it ran",
        f"compute-sanitizer python … names the access; {_INSTEAD} checks each",
    ),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (
        KernelRuntimeError,
        "ran longer than the device's watchdog allows",
        "a loop may not end; or give each program less to do",
    ),
}
_GONE = "CUDA keeps failing in this context now: start the process again"

NO_DEVICE = ("CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_INVALID_DEVICE")


def failure(status: str, doing: str, kernel: str | None = None, certain: bool = False) -> ZigguratError:
    """The error for a status, given by its name in `CUresult`.

    `doing` names the call. `kernel` is the kernel in question; `certain` says that no other can have failed: a fault
    shows at a later call, whichever that is.
    """
    if status in _FAULTS:
        error, what, hint = _FAULTS[status]
        if kernel is not None and certain:
            subject = f"the kernel '{kernel}'"
        elif kernel is not None:
            subject = f"'{kernel}', or a kernel launched before it,"
        else:
            subject = "a kernel launched before"
        which = None if certain else "which kernel: kernel[grid](…, check=True) waits for each launch"
        return error(f"{subject} {what} ({status})", hint=joined("; ", *filter(None, (hint, which, _GONE))))
    about = f" of '{kernel}'" if kernel is not None else ""
    if status in NO_DEVICE:
        return LaunchError(f"{doing}{about}: there is no such device ({status})")
    if status == "CUDA_ERROR_OUT_OF_MEMORY":
        return LaunchError(f"{doing}{about}: the device is out of memory", hint="free arrays, or make smaller ones")
    if status == "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE":
        return LaunchError(
            f"{doing}{about}: the programs of a cooperative launch must all run at once; there are too many ({status})",
            hint="launch fewer programs, or leave launch_cooperative_grid out",
        )
    return LaunchError(f"{doing}{about} failed: the driver says {status}")


def out_of_resources(
    kernel: str, *, threads: int, registers: int, shared: int, max_threads: int, register_file: int, max_shared: int
) -> ResourceError:
    """The error for a kernel that needs more resources than a multiprocessor has. Sizes of shared memory are in
    bytes."""
    limits: list[str] = []
    hints: list[str] = []
    if shared > max_shared:
        limits.append(f"{shared} bytes of shared memory, where the device has {max_shared} for a CTA")
        hints.append("smaller blocks, or a lower num_stages")
    # The registers of a warp are handed out in units of 256.
    if -(-registers * 32 // 256) * 256 * (threads // 32) > register_file:
        limits.append(
            f"{registers} registers for each of {threads} threads, where the device has {register_file} in all"
        )
        hints.append("fewer warps, or smaller blocks")
    elif threads > max_threads:
        limits.append(f"{threads} threads, where it can have {max_threads} with its {registers} registers")
        hints.append("fewer warps")
    what = " and ".join(limits) or f"{threads} threads of {registers} registers and {shared} bytes of shared memory"
    return ResourceError(
        f"'{kernel}' does not fit on the device: a CTA needs {what}", hint="; ".join(hints) or "smaller blocks"
    )
