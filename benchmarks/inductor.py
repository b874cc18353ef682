"""`torch.compile` by ziggurat and by Triton: times and errors of programs, and the error of `exp`.

    benchmarks/on_device.sh python3 benchmarks/inductor.py "$OUT/inductor.json" [case …]

A program of a compiler has a process of its own, with empty cache folders and PyTorch's default settings: the compile
workers are up before it begins. Processes compile side by side, under the same load for both compilers. Then the two
processes of a program are timed in turn, while all others wait. "wall" is the time of a call, "kernels" the sum of
Inductor's own kernels in it, both in milliseconds; "cold" the seconds of the first call, "warm" those in a further
process that finds the caches of the first; "static" the kernels that PyTorch's C++ launches among all. Errors are
against f64, relative to the largest number; "same" says that the error is at most twice that of PyTorch without
compilation. `llama`, `gpt2`, `bert`, `vit` and `mamba` are models of the package transformers with random weights,
trained for a step: loss, gradients and optimizer. They need that package.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer
from typing import Any

COMPILERS = ("ziggurat", "triton")
AT_ONCE = 8
ROUNDS, CALLS = 3, 20
# The seconds until no further program is compiled, and until all processes are ended.
COMPILED_BY, ENDED_BY = 270, 400


class Program:
    """A function of `inputs`, and the tensors whose gradients are computed. `wide` is the function for f64."""

    def __init__(
        self, function: Callable[..., Any], inputs: Iterable[Any], trained: Iterable[Any] = (), wide: Any = None,
        compared: bool = True, in_last_places: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self.function, self.inputs, self.trained = function, list(inputs), list(trained)
        self.wide, self.compared, self.in_last_places, self.options = wide, compared, in_last_places, options

    def results(self, function: Callable[..., Any], inputs: list[Any], trained: list[Any]) -> list[Any]:
        """The outputs, and the gradients of a sum of them."""
        import torch

        returned_value = function(*inputs)
        outputs = list(returned_value) if isinstance(returned_value, tuple) else [returned_value]
        if not trained:
            return outputs
        loss = sum(output.float().square().mean() if output.dim() else output for output in outputs)
        return [*outputs, *torch.autograd.grad(loss, trained)]

    def call(self, function: Callable[..., Any]) -> list[Any]:
        return self.results(function, self.inputs, self.trained)

    def true_results(self) -> list[Any]:
        """The results in f64."""
        wide: dict[int, Any] = {}

        def widened(value: Any) -> Any:
            if not hasattr(value, "is_floating_point") or not value.is_floating_point():
                return value
            if id(value) not in wide:
                wide[id(value)] = value.detach().double().requires_grad_(value.requires_grad)
            return wide[id(value)]

        if self.wide is not None:
            return self.results(self.wide, self.inputs, list(self.wide.parameters()))
        return self.results(self.function, [*map(widened, self.inputs)], [*map(widened, self.trained)])

    def comparable(self, results: list[Any]) -> list[Any]:
        """The results as they are compared with those in f64, one by one."""
        return results

    def compiled(self) -> Callable[..., Any]:
        import torch

        return torch.compile(self.function, **self.options)


class Training(Program):
    """A step of training: the loss of a model, its gradients, and an optimizer.

    The learning rate is so small that no parameter of 16 bits changes: every step has the same results.
    """

    def __init__(self, model: Any, function: Callable[..., Any], inputs: Iterable[Any]) -> None:
        import copy

        import torch
        from torch import nn

        class Loss(nn.Module):
            def __init__(self, model: Any) -> None:
                super().__init__()
                self.model = model

            def forward(self, *inputs: Any) -> Any:
                return function(self.model, *inputs)

        loss = Loss(model)
        super().__init__(loss, inputs, loss.parameters(), _wide(copy.deepcopy(loss)))
        self.optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-9, weight_decay=0.0)
        self.step: Callable[[], Any] = self.optimizer.step

    def call(self, function: Callable[..., Any]) -> list[Any]:
        loss = function(*self.inputs)
        loss.backward()
        self.optimizer.step() if function is self.function else self.step()
        results = [loss.detach(), *_gradients(self.trained)]
        self.optimizer.zero_grad()
        return results

    def true_results(self) -> list[Any]:
        loss = self.wide(*self.inputs)
        loss.backward()
        return [loss.detach(), *_gradients(self.wide.parameters())]

    def comparable(self, results: list[Any]) -> list[Any]:
        """The loss, and all gradients as one tensor: of some of them, rounding errors are all there is."""
        import torch

        return [results[0], torch.cat([gradient.flatten() for gradient in results[1:]])]

    def compiled(self) -> Callable[..., Any]:
        import torch

        self.step = torch.compile(lambda: self.optimizer.step())
        return super().compiled()


def _gradients(parameters: Iterable[Any]) -> list[Any]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def tensor(*shape: int, dtype: str = "bfloat16", grad: bool = False) -> Any:
    import torch

    values = torch.randn(shape, device="cuda", dtype=torch.float32).to(getattr(torch, dtype))
    return values.requires_grad_(grad)


def mlp() -> Program:
    import torch.nn.functional as F

    x, gain, bias = tensor(4096, 2048, grad=True), tensor(2048, grad=True), tensor(2048, grad=True)
    up, down = ((tensor(8192, 2048) * 0.02).requires_grad_(), (tensor(2048, 8192) * 0.02).requires_grad_())

    def function(x: Any, gain: Any, bias: Any, up: Any, down: Any) -> Any:
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (2048,), gain, bias), up)), down)

    inputs = [x, gain, bias, up, down]
    return Program(function, inputs, inputs)


def layer_norm() -> Program:
    import torch.nn.functional as F

    inputs = [tensor(16384, 4096, grad=True), tensor(4096, grad=True), tensor(4096, grad=True)]
    return Program(lambda x, gain, bias: F.layer_norm(x, (4096,), gain, bias), inputs, inputs)


def _blocks(layers: int, width: int, heads: int) -> Any:
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.qkv(self.norms[0](x)).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            attention = F.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(attention.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))

    return nn.Sequential(*(Block() for _ in range(layers))).cuda().to(torch.bfloat16)


def block() -> Program:
    import copy

    model = _blocks(1, 1024, 16)
    return Program(model, [tensor(8, 1024, 1024)], model.parameters(), _wide(copy.deepcopy(model)))


def _wide(model: Any) -> Any:
    """The model in f64, for inputs of any float."""
    from torch import nn

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.double()

        def forward(self, *inputs: Any) -> Any:
            return self.model(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs))

    return Wide()


def gpt() -> Program:
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(50304, 768), nn.Embedding(1024, 768)
            self.blocks, self.norm = _blocks(4, 768, 12), nn.LayerNorm(768)

        def forward(self, tokens: Any, targets: Any) -> Any:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.norm(self.blocks(self.tokens(tokens) + self.places(places)))
            logits = F.linear(x, self.tokens.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    model = Model().cuda().to(torch.bfloat16)
    tokens = torch.randint(0, 50000, (2, 8, 1024), device="cuda")
    return Program(model, [*tokens], model.parameters(), compared=False)


def cross_entropy() -> Program:
    import torch
    import torch.nn.functional as F

    logits = tensor(4096, 50304, dtype="float32", grad=True)
    targets = torch.randint(0, 50304, (4096,), device="cuda")
    return Program(lambda x, y: F.cross_entropy(x, y), [logits, targets], [logits])


def online_softmax() -> Program:
    import torch

    def function(x: Any) -> Any:
        return torch.log_softmax(x.to(torch.promote_types(x.dtype, torch.float32)), 1)

    return Program(function, [tensor(4096, 50304)])


def small_reductions() -> Program:
    inputs = [tensor(64, 32 + number, dtype="float32") for number in range(30)]
    return Program(lambda *tensor: tuple(x.softmax(1).sum(0) for x in tensor), inputs)


def attention() -> Program:
    import torch

    def function(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.transpose(-1, -2)) / 8
        later = torch.ones(1024, 1024, device=q.device, dtype=torch.bool).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(-1) @ v

    return Program(function, [tensor(4, 16, 1024, 64) for _ in range(3)])


def own_kernels() -> Program:
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def scaled(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):  # Inductor copies the text, without imports.
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x, y = tl.load(x_ptr + at, mask=at < n), tl.load(y_ptr + at, mask=at < n)
        tl.store(out_ptr + at, x * scale + y, mask=at < n)

    def function(x: Any, y: Any) -> Any:
        for _ in range(8):
            out = torch.empty_like(x)
            scaled[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), 0.5, BLOCK=1024)
            x = out.sin()
        return x

    return Program(function, [tensor(1 << 16, dtype="float32"), tensor(1 << 16, dtype="float32")])


def _language_model(kind: str, **settings: Any) -> Program:
    """A model of transformers that predicts tokens, trained on random ones."""
    import torch
    import transformers

    settings = {"vocab_size": 8192, "use_cache": False, **settings}
    config = getattr(transformers, f"{kind}Config")(**settings)
    name = f"{kind}ForMaskedLM" if kind == "Bert" else f"{kind}{'LMHeadModel' if kind == 'GPT2' else 'ForCausalLM'}"
    model = getattr(transformers, name)(config).to("cuda", torch.bfloat16)
    tokens = torch.randint(0, 8192, (4, 512), device="cuda")
    return Training(model, lambda model, tokens: model(input_ids=tokens, labels=tokens).loss, [tokens])


def llama() -> Program:
    return _language_model(
        "Llama", hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=512,
    )  # fmt: skip


def gpt2() -> Program:
    return _language_model(
        "GPT2", n_embd=512, n_layer=4, n_head=8, n_positions=512, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM",
    )  # fmt: skip


def bert() -> Program:
    return _language_model(
        "Bert", hidden_size=512, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=8,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip


def mamba() -> Program:
    """Mamba 2: the text of Mamba 1 without its own CUDA kernels is a loop of Python over the tokens."""
    return _language_model(
        "Mamba2", hidden_size=256, num_hidden_layers=2, state_size=64, head_dim=64, num_heads=8, n_groups=1,
        chunk_size=64,
    )  # fmt: skip


def vit() -> Program:
    import torch
    import transformers

    config = transformers.ViTConfig(
        hidden_size=512, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=8, image_size=224,
        patch_size=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=1000,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).to("cuda", torch.bfloat16)
    labels = torch.randint(0, 1000, (16,), device="cuda")
    images = tensor(16, 3, 224, 224)
    return Training(model, lambda model, images, labels: model(images, labels=labels).loss, [images, labels])


def dropout() -> Program:
    import torch.nn.functional as F

    x, y = tensor(4096, 4096, grad=True), tensor(4096, 4096)
    return Program(lambda x, y: F.dropout(F.relu(x), 0.1) * y, [x, y], [x], compared=False)


def tuned_product() -> Program:
    import torch.nn.functional as F

    options = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON"}
    return Program(lambda x, y: F.gelu(x @ y), [tensor(4096, 4096), tensor(4096, 4096)], options=options)


def exponentials() -> Program:
    """Every 97th f32 from -104 to 89, for the error of `exp` in last places."""
    import torch

    below, above = (torch.arange(0, top, 97, dtype=torch.int32).view(torch.float32) for top in (0x42D00000, 0x42B20000))
    return Program(lambda x: torch.exp(x), [torch.cat([-below, above]).cuda()], in_last_places=True)


CASES: dict[str, Callable[[], Program]] = {
    program.__name__: program
    for program in (
        tuned_product, gpt, block, mlp, layer_norm, cross_entropy, online_softmax, small_reductions, attention,
        own_kernels, dropout, exponentials, llama, gpt2, bert, vit, mamba,
    )
}  # fmt: skip
OF_TRANSFORMERS = {"llama", "gpt2", "bert", "vit", "mamba"}


# The process of a program.


def child(compiler: str, case: str) -> None:
    """Compile a program and say so; then time it whenever a line comes in."""
    if compiler == "ziggurat":
        import ziggurat.triton

        ziggurat.triton.install()
    import torch
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.runtime import triton_heuristics

    launched = {"static": 0, "all": 0}
    for name in ("StaticTritonCompileResult", "StaticCudaCompileResult", "TritonCompileResult"):
        kind = getattr(triton_heuristics, name, None)
        if kind is not None and "make_launcher" in vars(kind):
            kind.make_launcher = _counted(kind.make_launcher, launched, name.startswith("Static"))
    torch.manual_seed(0)
    program = CASES[case]()
    eager = program.call(program.function)
    torch.cuda.synchronize()
    AsyncCompile.wait_pool_ready()
    compiled = program.compiled()
    start = time.perf_counter()
    outputs = program.call(compiled)
    torch.cuda.synchronize()
    report: dict[str, Any] = {
        "cold": round(time.perf_counter() - start, 1),
        **launched,
        "gpu": torch.cuda.get_device_name(),
    }
    report |= _errors(program, outputs, eager)
    del outputs, eager
    torch.cuda.empty_cache()
    print(json.dumps(report), flush=True)
    for _ in sys.stdin:
        for _ in range(3):
            program.call(compiled)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            program.call(compiled)
        torch.cuda.synchronize()
        wall = 1e3 * (time.perf_counter() - start) / CALLS
        print(json.dumps({"wall": wall, "kernels": _kernels(lambda: program.call(compiled))}), flush=True)


def _counted(make: Callable[[Any], Any], launched: dict[str, int], static: bool) -> Callable[[Any], Any]:
    def made(self: Any) -> Any:
        launched["all"] += 1
        launched["static"] += static
        return make(self)

    return made


def _errors(program: Program, outputs: list[Any], eager: list[Any]) -> dict[str, Any]:
    import torch

    if not program.compared:
        # Random numbers, or too large in f64: the loss, and the share of zeros, are compared with PyTorch's.
        first, other = (results[0].detach().float() for results in (outputs, eager))
        zeros = [float((result == 0).float().mean()) for result in (first, other)]
        error = float((first.mean() - other.mean()).abs())
        return {"error": error, "eager": 0.0, "same": abs(zeros[0] - zeros[1]) < 1e-3 and error < 1e-2}
    true, outputs, eager = map(program.comparable, (program.true_results(), outputs, eager))

    def error(own: Any, right: Any) -> float:
        finite = (right.abs() < torch.finfo(own.dtype).max).detach()  # Others overflow in the dtype of the result.
        own, right = own.detach().double()[finite], right.detach().double()[finite]
        return float((own - right).abs().max() / right.abs().max().clamp_min(1e-30))

    def error_of(results: list[Any]) -> float:
        return max(map(error, results, true))

    ours, theirs = error_of(outputs), error_of(eager)
    report: dict[str, Any] = {"error": ours, "eager": theirs, "same": ours <= 2 * theirs + 1e-7}
    if program.in_last_places:
        right = torch.exp(program.inputs[0].double())
        unit = 2.0 ** (torch.floor(torch.log2(right.clamp_min(2.0**-126))) - 23)
        report["ulp"], report["eager ulp"] = (
            round(float(((result[0].double() - right).abs() / unit)[right < 3.4e38].max()), 3)
            for result in (outputs, eager)
        )
        report["same"] = report["ulp"] <= 2
    return report


def _kernels(call: Callable[[], Any]) -> float:
    """The milliseconds of the kernels of a call whose names begin as Inductor's do, or that the program has itself."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as measured:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
    own = (event for event in measured.key_averages() if event.key.startswith(("triton_", "scaled")))
    return sum(event.self_device_time_total for event in own) / 5e3


# The process that starts the others.


class Process:
    """A process of a program, with cache folders of its own."""

    def __init__(self, compiler: str, case: str, folder: Path) -> None:
        place = folder / f"{case}-{compiler}"
        place.mkdir(exist_ok=True)  # A further process finds the caches of the first.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("TORCHINDUCTOR", "TRITON"))
        }
        folders = {"TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"), "ZIGGURAT_CACHE_DIR": str(place / "ziggurat")}
        self.log = place / "log"
        with self.log.open("w") as log:
            self.child = subprocess.Popen(
                [sys.executable, __file__, "--child", compiler, case], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, env={**environment, **folders},
            )  # fmt: skip

    def line(self) -> dict[str, Any]:
        """The next answer; an error if the process has ended."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if line.startswith("{"):
                return json.loads(line)
        return {"failed": self.log.read_text()[-1500:]}

    def timed(self) -> dict[str, Any]:
        assert self.child.stdin is not None
        try:
            self.child.stdin.write("time\n")
            self.child.stdin.flush()
        except OSError:
            return {"failed": self.log.read_text()[-1500:]}
        return self.line()


def measured(case: str, running: dict[str, Process], reports: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The answers of both processes, with the least times of several rounds."""
    for _ in range(ROUNDS):
        for compiler in COMPILERS:
            if "failed" in reports[compiler]:
                continue
            again = running[compiler].timed()
            for name in ("wall", "kernels"):
                if name in again:
                    reports[compiler][name] = round(min(again[name], reports[compiler].get(name, again[name])), 4)
            reports[compiler] |= {name: text for name, text in again.items() if name == "failed"}
    return reports


def main() -> None:
    out, cases = Path(sys.argv[1]), sys.argv[2:] or [*CASES]
    if importlib.util.find_spec("transformers") is None:
        print(
            "not run, as transformers is not installed:", ", ".join(case for case in cases if case in OF_TRANSFORMERS)
        )
        cases = [case for case in cases if case not in OF_TRANSFORMERS]
    started, results = time.monotonic(), dict[str, Any]()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        processes: dict[tuple[str, str], Process] = {}

        def compiled(case: str, compiler: str) -> dict[str, Any]:
            if time.monotonic() - started > COMPILED_BY:
                return {"failed": "there was no time left to compile it"}
            processes[case, compiler] = process = Process(compiler, case, Path(folder))
            return process.line()

        def end() -> None:
            for process in [*processes.values()]:
                process.child.kill()

        watch = Timer(ENDED_BY, end)
        watch.start()
        tasks = {(case, compiler): pool.submit(compiled, case, compiler) for case in cases for compiler in COMPILERS}
        for case in cases:  # All have compiled before one is timed.
            results[case] = {compiler: tasks[case, compiler].result() for compiler in COMPILERS}
        for case in cases:
            running = {compiler: processes[case, compiler] for compiler in COMPILERS if (case, compiler) in processes}
            measured(case, running, results[case])
            out.write_text(json.dumps(results, indent=1))
            for process in running.values():
                process.child.kill()
        again = {key: pool.submit(compiled, *key) for key in tasks if "failed" not in results[key[0]][key[1]]}
        for (case, compiler), task in again.items():
            results[case][compiler]["warm"] = task.result().get("cold")
            processes[case, compiler].child.kill()
        out.write_text(json.dumps(results, indent=1))
        watch.cancel()
        end()
    print_table(results)
    gpus = {report["gpu"] for both in results.values() for report in both.values() if "gpu" in report}
    print(f"{', '.join(gpus)}: {time.monotonic() - started:.0f} s in all")


def print_table(results: dict[str, Any]) -> None:
    print(
        "| case | "
        + " | ".join(f"{report} wall / kernels / cold / warm / static" for report in COMPILERS)
        + " | wall | errors |"
    )
    print("| --- | --- | --- | --- | --- |")
    for case, both in results.items():
        cells: list[str] = []
        for report in (both[compiler] for compiler in COMPILERS):
            static = f"{report.get('static')}/{report.get('all')}"
            times = " / ".join(str(report.get(name, "–")) for name in ("wall", "kernels", "cold", "warm"))
            cells.append("failed" if "failed" in report else f"{times} / {static}")
        walls = [report.get("wall") for report in both.values()]
        ratio = f"{walls[0] / walls[1]:.2f}" if all(walls) else "–"
        errors = ", ".join(
            f"{report['error']:.1e}{'' if report['same'] else ' UNLIKE'}"
            + (f" {report['ulp']} ulp" if "ulp" in report else "")
            for report in both.values()
            if "error" in report
        )
        eager = next((f"eager {report['eager']:.1e}" for report in both.values() if report.get("eager")), "")
        print(f"| {case} | {' | '.join(cells)} | {ratio} | {errors}; {eager} |")
        for compiler, report in both.items():
            if "failed" in report:
                print(f"{case} of {compiler}: {report['failed']}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:4])
    else:
        main()
