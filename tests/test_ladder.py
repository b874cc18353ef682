"""The works of the ladder of benchmarks at small sizes, in memory: our results against those in float64."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from libraries import require

from ziggurat.codemodel.gpu.options import LAUNCH_ONLY, CompileOptions
from ziggurat.codemodel.gpu.targets import TARGETS
from ziggurat.kernels.arguments import bind
from ziggurat.kernels.kernel import Kernel
from ziggurat.transforms.gpu.gpu_passes import place

require("torch")


@pytest.fixture(scope="module", autouse=True)
def ladder():
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    try:
        yield importlib.import_module("ladder_works")
    finally:
        sys.path.pop()


CASES = {
    "matmul f16 NN": lambda w: w.matmul(w.torch.float16, "NN", 256, 256, 128),
    "matmul f16, ragged": lambda w: w.matmul(w.torch.float16, "TT", 131, 77, 99),
    "matmul bf16": lambda w: w.matmul(w.torch.bfloat16, "TN", 128, 256, 64),
    "matmul e4m3": lambda w: w.matmul(w.E4M3, "NT", 128, 256, 128),
    "matmul int8": lambda w: w.matmul(w.torch.int8, "NN", 128, 256, 128),
    "matmul int8, an operand turned before": lambda w: w.matmul(w.torch.int8, "TN", 128, 256, 128),
    "matmul tf32": lambda w: w.matmul(w.torch.float32, "TN", 128, 256, 64),
    "descriptors": lambda w: w.matmul_described(256, 512, 128),
    "GELU": lambda w: w.matmul_described(256, 256, 128, "gelu"),
    "residual": lambda w: w.matmul_described(256, 256, 128, "residual"),
    "few rows": lambda w: w.matmul_few_rows(16, 256, 1024),
    "parts of k": lambda w: w.matmul_parts(256, 256, 1024),
    "grouped": lambda w: w.matmul_grouped([256, 128, 640], 256, 128, w.torch.bfloat16),
    "attention": lambda w: w.attention(w.torch.float16, 64, False, 256, 1, 2),
    "attention, causal with shared keys": lambda w: w.attention(w.torch.bfloat16, 64, True, 256, 2, 4, 2),
    "attention e4m3": lambda w: w.attention(w.E4M3, 128, False, 256, 1, 1),
    "attention backward": lambda w: w.attention_backward(64, False, 256, 1, 2),
    "attention backward, causal": lambda w: w.attention_backward(64, True, 256, 1, 2),
    "layer norm": lambda w: w.norm("layer", 8, 200),
    "RMS norm": lambda w: w.norm("RMS", 8, 256),
    "layer norm backward": lambda w: w.norm_backward("layer", 21, 160),
    "RMS norm backward": lambda w: w.norm_backward("RMS", 21, 256),
    "softmax": lambda w: w.softmax(w.torch.float32, 3, 40000),
    "cross entropy": lambda w: w.cross_entropy(3, 20000),
    "rotary": lambda w: w.rotary(2, 4, 4, 2, 16, 1.0),
    "rotary backward": lambda w: w.rotary(2, 4, 4, 2, 16, -1.0),
    "SwiGLU": lambda w: w.swiglu(5, 1000, False),
    "SwiGLU backward": lambda w: w.swiglu(5, 1000, True),
    "embedding": lambda w: w.embedding(50, 200, 256, False),
    "embedding backward": lambda w: w.embedding(50, 200, 256, True),
}


OURS = ("ours", "ours, plain", "ours NT", "generated")  # On a GPU, others may fail: the ladder reports it.


def differing(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that set something that none before them does. The others differ in sizes, warps and stages."""
    earlier: set[str] = set()
    distinct: dict[str, Any] = {}
    for setting, run in settings.items():
        names = {part.rpartition(" ")[0] for part in setting.split(", ")}
        if not names <= earlier:
            earlier |= names
            distinct[setting] = run
    return distinct


@pytest.mark.parametrize("name", CASES)
def test_our_results_are_right(ladder, name) -> None:
    """On a GPU with all settings; a CPU runs the kernels without warps and stages."""
    ladder.torch.manual_seed(0)
    work = CASES[name](ladder)
    for who in OURS:
        settings = work.runs.get(who, {})
        for setting, run in (settings if ladder.GPU else differing(settings)).items():
            work.clear()
            error = work.error(run())
            assert error <= work.tolerance, (who, setting)


# Works whose kernels use much shared memory; others have the same kernels, with smaller blocks.
LARGE = {
    **{name: CASES[name] for name in ("matmul int8, an operand turned before", "matmul tf32", "residual", "GELU")},
    **{name: CASES[name] for name in ("descriptors", "parts of k", "grouped", "attention e4m3", "few rows")},
    "attention of 128": lambda w: w.attention(w.torch.float16, 128, True, 512, 1, 2),
    "attention of 256": lambda w: w.attention(w.torch.float16, 256, False, 256, 1, 1),
    "attention backward of 128": lambda w: w.attention_backward(128, True, 256, 1, 1),
}


@pytest.mark.parametrize("name", LARGE)
def test_our_kernels_fit_in_shared_memory(ladder, name, monkeypatch) -> None:
    """A GPU model has its shared memory, and more than the target's would be an error."""
    placed: set[Any] = set()

    def launch(kernel: Kernel, _: Any) -> Any:
        def place_only(*arguments: Any, **keywords: Any) -> None:
            named = {key: value for key, value in keywords.items() if key in kernel.signature.parameters}
            given = {key: value for key, value in keywords.items() if key not in (*named, *LAUNCH_ONLY)}
            signature = kernel.specialized(bind(kernel, arguments, named, at_launch=True))[0]
            options = CompileOptions.of({"target": "sm_90a", **given})
            case = kernel.name, signature, options
            if case not in placed:
                placed.add(case)
                shared = place(kernel.model_for(attrs.evolve(signature, num_warps=options.num_warps)), options).shared
                assert shared <= TARGETS["sm_90a"].max_shared

        return place_only

    for kind in (Kernel, type(ladder.OURS.matmul)):
        monkeypatch.setattr(kind, "__getitem__", launch)
    monkeypatch.setattr(ladder, "MULTIPROCESSORS", 132)
    work = LARGE[name](ladder)
    for who in OURS:
        for run in work.runs.get(who, {}).values():
            run()
    assert placed


def test_a_wrong_result_is_seen(ladder) -> None:
    work = ladder.norm("RMS", 8, 256)
    work.clear()
    assert work.error(None) > work.tolerance


def test_a_report_keeps_the_rows_of_earlier_runs(tmp_path) -> None:
    tools = importlib.import_module("gpu_ladder")
    run = {"date": "2026-11-24T00:00:00", "card": "C", "driver": "1", "commit": "c", "versions": {"torch": "2"}}
    row = {"unit": "GB/s", "times": {"ours": {"speed": 90.0}}, "ratios": {"copy": 0.89}, "bars": {"copy": 0.9}}
    rows = {"one": row | {"run": 1}, "two": row | {"run": 2, "met": True}}
    tools.write(tmp_path / "report.json", {"runs": [run] * 3, "rows": rows})
    report = tools.known(tmp_path / "report.json")
    assert [row["run"] for row in report["rows"].values()] == [0, 1], "the first run has no rows any more"
    assert (tmp_path / "report.md").read_text().splitlines()[-5:] == [
        "| --- | --- | --- | --- | --- |",
        "| one | 90.0 GB/s | copy 0.89 (0.9) | missed | 1 |",
        "| two | 90.0 GB/s | copy 0.89 (0.9) |  | 2 |",
        "",
        "1 of 2 rows meet their bars.",
    ]


def test_the_table_is_that_of_the_report() -> None:
    tools = importlib.import_module("gpu_ladder")
    assert tools.DOCUMENT.read_text("utf-8") == tools.markdown(tools.known(tools.REPORT))


# The rows of the ladder that a row of the front page is of, and the library in its last column.
FRONT_PAGE: dict[str, tuple[list[str], str]] = {
    "matmul f16 4096, by pointers, in four transpositions": (
        [f"matmul f16 {order} 4096" for order in ("NN", "NT", "TN", "TT")],
        "cuBLAS",
    ),
    "matmul f16 3001, odd strides": (["matmul f16 NN 3001×3001×3001"], "cuBLAS"),
    "matmul of fp8 / int8 4096, NT": (["matmul fp8 e4m3 NT 4096", "matmul int8 NT 4096"], "cuBLAS"),
    "attention forward f16, N 4096, D64 / D128 / D256": (
        [f"attention f16 D{d} 4096" for d in (64, 128, 256)],
        "cuDNN",
    ),
    "… causal": ([f"attention f16 D{d} causal 4096" for d in (64, 128, 256)], "cuDNN"),
    "… backward, D64 / D128": ([f"attention backward D{d} 4096" for d in (64, 128)], "cuDNN"),
    "softmax f32, 256 rows of 131072": (["softmax f32 256×131072"], "torch"),
    "layer norm f16, rows of 2048 / 8192": ([f"layer norm 16384×{n}" for n in (2048, 8192)], "torch"),
    "cross entropy with its gradient, vocabulary of 128256": (["cross entropy and gradient 4096×128256"], "Liger"),
}


def test_the_front_page_has_the_figures_of_the_ladder() -> None:
    tools = importlib.import_module("gpu_ladder")
    cells = [line.strip("| \n").split(" | ") for line in tools.DOCUMENT.read_text("utf-8").splitlines() if "|" in line]
    ladder = {row[0]: row[2] for row in cells if len(row) > 2}
    lines = (Path(__file__).parents[1] / "README.md").read_text("utf-8").splitlines()
    page = {row[0]: row[1:] for row in (line.strip("| ").split(" | ") for line in lines if line.startswith("| "))}

    def figures(rows: list[str], peer: str) -> str:
        ratios = [float(re.search(rf"(?:^|, ){peer} ([\d.]+)", ladder[row])[1]) for row in rows]
        ends = ratios if len(rows) < 4 else [min(ratios), max(ratios)]
        return (" / " if len(rows) < 4 else "–").join(f"{ratio:.2f}" for ratio in ends)

    for row, (names, library) in FRONT_PAGE.items():
        assert page[row] == [figures(names, "Triton"), f"{figures(names, library)} ({library})"]
    triton = [
        float(ratio) for text in ladder.values() for ratio in re.findall(r"(?:^|, )Triton ([\d.]+)(?! s| µ)", text)
    ]
    assert min(triton) >= 0.99, "the front page says so"
