"""The profiler on a machine without a GPU, where events are this machine's clock."""

import numpy as np
import pytest

import ziggurat.triton as triton
import ziggurat.triton.language as tl
import ziggurat.triton.profiler as proton
from ziggurat.triton.profiler import viewer


@triton.jit(launch_metadata=lambda grid, metadata, args: {"name": f"keep {args['n']}", "flops16": 1e6, "bytes": 4.0})
def keep(out_ptr, n):
    tl.store(out_ptr, n)


def test_kernels_and_scopes_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = np.zeros(1, np.int32)
    session = proton.start("run", hook="triton")
    keep[(1,)](out, 5)
    with proton.scope("library", {"flops16": 3e6}):
        keep[(1,)](out, 7)
    proton.deactivate(session)
    keep[(1,)](out, 5)
    proton.activate(session)
    keep[(1,)](out, 5)
    proton.finalize()
    keep[(1,)](out, 5)
    assert out[0] == 5 and not triton.knobs.watched
    tree, metrics = viewer.parse(["time/ms", "tflop16/s", "count", "bytes"], "run.hatchet")
    nodes = {node["frame"]["name"]: node for node in tree["children"]}
    assert list(nodes) == ["keep 5", "library"]
    assert nodes["keep 5"]["shown"]["count"] == 2 and nodes["keep 5"]["shown"]["bytes"] == 8
    time, rate = nodes["library"]["shown"]["time/ms"], nodes["library"]["shown"]["tflop16/s"]
    assert time > 0 and np.isclose(rate, 3e6 / time * 1e-9)
    assert nodes["library"]["children"][0]["frame"]["name"] == "keep 7"
    viewer.print_tree(tree, metrics)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == metrics and lines[1].split() == ["ROOT"] and len(lines) == 5


def test_states_and_times_of_the_host(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    proton.start("host")
    with proton.state("forward"), proton.cpu_timed_scope("work", {"steps": 2.0}):
        proton.enter_state("inner")
        proton.exit_state()
        proton.enter_scope("named")
        with pytest.raises(ValueError, match="Scope name mismatch: other != named"):
            proton.exit_scope("other")
        proton.exit_scope("named", metrics={"bytes": 8})
    proton.finalize()
    forward = viewer.parse(["count"], "host.hatchet")[0]["children"][0]
    (work,) = forward["children"]
    assert forward["frame"]["name"] == "forward" and work["metrics"]["steps"] == 2
    assert work["metrics"]["cpu_time (ns)(exc)"] > 0
    assert [inner["frame"]["name"] for inner in work["children"]] == ["inner", "named"]
    assert work["children"][1]["metrics"]["bytes"] == 8
    with pytest.raises(ValueError, match="is reserved"):
        proton.cpu_timed_scope("work", {"cpu_time": 1})


def test_a_function_is_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @proton.profile(name="whole")
    @proton.scope("work")
    def work():
        return 3

    assert work() == 3
    assert viewer.parse(["count"], "whole.hatchet")[0]["children"][0]["shown"] == {"count": 1}


def test_nothing_is_measured_where_a_setting_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_PROTON_DISABLE", "1")
    assert proton.start("run") is None
    assert proton.profile(lambda: 3)() == 3 and not triton.knobs.watched and not [*tmp_path.iterdir()]
