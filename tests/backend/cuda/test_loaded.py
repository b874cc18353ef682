"""Loading kernels, and the messages for kernels that the driver refuses."""

import ctypes

import pytest

from ziggurat.backend.cuda.binary import Binary, PtxParameter
from ziggurat.backend.cuda.loaded import load
from ziggurat.codemodel.errors import LaunchError, ResourceError, TargetError

BINARY = Binary("entry", "// PTX", 4, 0, (PtxParameter("ptr"),), "sm_90a", "add")


def test_ptx_is_ended_by_a_zero_and_cubins_are_not(fake):
    load(BINARY)
    load(Binary("entry", b"\x7fELF", 4, 0, (), "sm_90a"))
    assert fake.loads == [b"// PTX\0", b"\x7fELF"]


def test_lines_of_the_source_are_kept_where_the_ptx_has_them(fake, monkeypatch):
    calls = []
    original = fake.cuModuleLoadDataEx
    monkeypatch.setattr(fake, "cuModuleLoadDataEx", lambda *argument: calls.append(argument[1:]) or original(*argument))
    for code in ("ret;", "\t.loc\t1 5 0\nret;"):
        load(Binary("entry", code, 4, 0, (), "sm_90a"))
    (count, keys, values), (more, all_keys, all_values) = calls
    assert (count, more) == (2, 3) and all_keys[:2] == keys == [
        f"CU_JIT_ERROR_LOG_BUFFER{s}" for s in ("", "_SIZE_BYTES")
    ]
    assert all_keys[2] == "CU_JIT_GENERATE_LINE_INFO" and all_values[2] == 1 and len(values) == 2


def test_much_shared_memory_is_asked_for(fake):
    load(Binary("entry", "", 4, 48 * 1024, (), "sm_90a"))
    assert fake.set_attributes == {}
    load(Binary("entry", "", 4, 100_000, (), "sm_90a"))
    assert fake.set_attributes == {"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 100_000}
    with pytest.raises(ResourceError, match="300000 bytes of shared memory, where the device has 232448") as error:
        load(Binary("entry", "", 4, 300_000, (), "sm_90a"))
    assert "num_stages" in str(error.value)


def test_launches_have_the_attributes_of_the_binary(fake):
    assert load(BINARY).launch == fake.cuLaunchKernel
    values = load(Binary("entry", "", 4, 0, (), "sm_90a", launched=("pdl", "cooperative")))
    pointers = (ctypes.c_void_p * 1)()
    assert values.launch(values.function, 2, 3, 4, 128, 1, 1, 64, "stream", ctypes.addressof(pointers), 0) == (0,)
    (launch,) = fake.launches
    assert (launch["grid"], launch["threads"], launch["shared"], launch["stream"]) == ((2, 3, 4), 128, 64, "stream")
    assert launch["attributes"] == {
        "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION": {"programmaticStreamSerializationAllowed": 1},
        "CU_LAUNCH_ATTRIBUTE_COOPERATIVE": {"cooperative": 1},
    }


@pytest.mark.parametrize("launched", [(), ("cooperative",)])
@pytest.mark.parametrize("ctas", [4, 16])
def test_a_program_that_is_a_cluster_is_several_ctas_of_the_grid(fake, ctas, launched):
    values = load(Binary("entry", "", 4, 0, (), "sm_90a", launched=launched, num_ctas=ctas))
    allowed = {"CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED": 1}
    assert fake.set_attributes == (allowed if ctas == 16 else {})
    pointers = (ctypes.c_void_p * 1)()
    assert values.launch(values.function, 2, 3, 4, 128, 1, 1, 64, "stream", ctypes.addressof(pointers), 0) == (0,)
    (launch,) = fake.launches
    assert launch["grid"] == (2 * ctas, 3, 4) and ("attributes" in launch) == bool(launched)


def test_programs_at_once_are_ctas_or_clusters(fake):
    """The fake driver has two CTAs on each of three SMs, and five clusters."""
    assert load(Binary("entry", "", 4, 64, (), "sm_90a")).programs_at_once == 6
    assert load(Binary("entry", "", 4, 64, (), "sm_90a", num_ctas=2)).programs_at_once == 5
    assert fake.asked == {"gridDimX": 2, "blockDimX": 128, "sharedMemBytes": 64}


@pytest.mark.parametrize(
    ("status", "log", "target", "error", "text"),
    [
        (
            "CUDA_ERROR_INVALID_PTX",
            b"line 3; error: unknown instruction",
            "sm_90a",
            TargetError,
            "line 3; error: unknown",
        ),
        (
            "CUDA_ERROR_NO_BINARY_FOR_GPU",
            b"",
            "sm_100a",
            LaunchError,
            "for sm_100a, and FAKE GPU is sm_90a\\n.*target='sm_90a'",
        ),
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", b"version 9.9", "sm_90a", LaunchError, r"CUDA 13.0\) is too old"),
        ("CUDA_ERROR_OUT_OF_MEMORY", b"", "sm_90a", LaunchError, "out of memory"),
    ],
)
def test_what_the_driver_refuses_to_load(fake, failed, status, log, target, error, text):
    fake.load_failure = failed(status), log
    with pytest.raises(error, match=text):
        load(Binary("entry", "", 4, 0, (), target, "add"))
