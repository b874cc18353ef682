"""Whether `zg.bisect` names the wrong pass: miscompilations planted in every pass and emitter, and right kernels.

    benchmarks/on_device.sh python3 benchmarks/bisect_judge.py "$OUT" --jobs 16 [--faults 200] [--right 500]

A fault is a mistake in one step of one kernel's compilation: an edit of the model that the pass gives, or of the code
of a function that the pass calls, only while that step runs (`tests/support/miscompilations.py`, `mutants.py`). It
counts if the compilation succeeds and the final code computes something else than the kernel says, or fails. Then
`zg.bisect` must name that step. Edits of the texts after LLVM's passes, and of the PTX where there is a GPU, are faults
of these steps; mistakes before the Triton model are named by the arrays that are expected.

The folder gets `bisect-judge.json` and `bisect-judge.md`. The status is 0 if at least 195 of 200 faults (97.5 %) are
named and no right kernel is accused.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, count, islice, takewhile
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

import attrs

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from every_pass import Case
from generated_passes import generated
from judged_kernels import KERNELS, floats
from miscompilations import Planted, replaced_step
from mutants import Mutant, called, mutants_of

import ziggurat as zg
from ziggurat.backend.reference.run import run
from ziggurat.bisecting.apart import apart
from ziggurat.bisecting.bisection import Bisection
from ziggurat.bisecting.comparison import difference
from ziggurat.bisecting.steps import DEVICE, NATIVE, OPTIMIZED, SIMULATED, Launch
from ziggurat.codemodel.errors import is_of_signal
from ziggurat.codemodel.gpu.options import CPU, CompileOptions
from ziggurat.transforms.cpu.cpu_passes import LOWER
from ziggurat.transforms.gpu.gpu_passes import PLACE

FRONT = "the Triton model"
STEPS = tuple(
    dict.fromkeys(
        [FRONT, *(name for name, _ in PLACE), SIMULATED, OPTIMIZED, DEVICE, *(f"{CPU} {n}" for n, _ in LOWER), NATIVE]
    )
)
LIMIT = 60  # Seconds for a bisection.
_ATTEMPTS = 60  # Of a step, for each fault of it that is asked for.

# Instructions of texts after LLVM's passes, and of PTX, and what a wrong pass could have put in their place.
_TEXTS = {
    OPTIMIZED: [
        (r" fadd ", " fsub "), (r" fmul ", " fadd "), (r" add (nuw |nsw )*(?=i)", " sub "), (r" mul ", " add "),
        (r"icmp slt", "icmp sle"), (r"icmp eq", "icmp ne"), (r" shl ", " lshr "), (r" and i", " or i"),
        (r"(?<=, )(\d+)$", lambda m: str(int(m[1]) + 4)), (r"\bfsub ", "fadd "), (r"\bor (disjoint )?i", "and i"),
    ],
    DEVICE: [
        (r"add\.rn\.f32", "sub.rn.f32"), (r"mul\.rn\.f32", "add.rn.f32"), (r"add\.s32", "sub.s32"),
        (r"setp\.lt", "setp.le"), (r"setp\.ge", "setp.gt"), (r"shl\.b32", "shr.b32"), (r"and\.b32", "or.b32"),
        (r"max\.f32", "min.f32"), (r"ex2\.approx", "lg2.approx"), (r"mul\.lo\.s32", "add.s32"),
    ],
}  # fmt: skip


@attrs.frozen
class Outcome:
    """Of a planted fault, or of a right kernel: what `zg.bisect` said, and in how many seconds.

    `kind` is "named", "missed", "another step" or "error"; of an attempt that is no miscompilation, "harmless" or
    "refused"; of a right kernel "agrees", "accused" or "refused".
    """

    kernel: str
    step: str
    what: str
    kind: str
    answer: str = ""
    reason: str = ""
    seconds: float = 0
    steps: tuple[str, ...] = ()


# Faults.


@attrs.define
class Mistake:
    """A mistake in a function that the step calls, chosen at its first run."""

    random: Random
    mutant: Mutant | None = None

    @property
    def what(self) -> str:
        return "" if self.mutant is None else self.mutant.what

    def around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*arguments: Any) -> Any:
            if self.mutant is None:
                mutants = mutants_of([self.random.choice(called(lambda: step(*arguments)))])
                self.mutant = self.random.choice(mutants or [Mutant("", lambda: lambda: None)])
            with self.mutant.active():
                return step(*arguments)

        return wrong


@attrs.define
class WrongText:
    """Another instruction in a text after LLVM's passes, or in PTX."""

    step: str
    random: Random
    what: str = ""
    choice: tuple[Any, Any, float] | None = None

    def around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*arguments: Any) -> Any:
            result = step(*arguments)
            text = self._edited(str(result))
            if self.step == DEVICE:
                return text
            from ziggurat.backend.llvm.binding import llvm

            module = llvm().parse_assembly(text)
            module.verify()
            return module

        return wrong

    def _edited(self, text: str) -> str:
        if self.choice is None:
            pairs = [pair for pair in _TEXTS[self.step] if re.search(pair[0], text, re.MULTILINE)]
            self.choice = (*self.random.choice(pairs), self.random.random())
        old, new, share = self.choice
        places = [*re.finditer(old, text, re.MULTILINE)]
        if not places:
            return text
        place = places[int(share * len(places))]
        line = text[text.rfind("\n", 0, place.start()) + 1 : text.find("\n", place.end())]
        self.what = f"{place[0].strip()!r} replaced in '{line.strip()[:80]}'"
        return text[: place.start()] + (new if isinstance(new, str) else new(place)) + text[place.end() :]


def fault_of(step: str, number: int) -> Any:
    """The fault of an attempt."""
    random = Random(f"{step} {number}")
    if step in (OPTIMIZED, DEVICE):
        return WrongText(step, random)
    is_edit = step != FRONT and number % 3 == 0
    return Planted(random.randrange(10**6), first=step in (SIMULATED, NATIVE)) if is_edit else Mistake(random)


# Kernels.


def kernel_of(name: str) -> Case:
    """The kernel of a name: of every second generated one, products and sums become fused multiply-adds."""
    if name in KERNELS:
        return KERNELS[name]()
    kind, _, number = name.partition(" ")
    seed = int(number)
    if kind == "floats":
        return floats(seed)
    case = generated(seed)
    return attrs.evolve(case, options=attrs.evolve(case.options, contract=True)) if seed % 8 > 4 else case


def options_of(case: Case) -> dict[str, Any]:
    usual = CompileOptions.of({"target": case.options.target})
    names = (field.name for field in attrs.fields(CompileOptions))
    options = {name: getattr(case.options, name) for name in names}
    return {n: v for n, v in options.items() if n == "target" or v != getattr(usual, n)}


def bisected(case: Case, step: str = "", **more: Any) -> Bisection:
    options = options_of(case) | ({"target": CPU} if step.startswith(CPU) or step == NATIVE else {})
    if options["target"] == CPU:
        options = {"target": CPU}
    return zg.bisect(case.model, case.grid, *case.arguments(), **options, **more)


def final(case: Case, step: str) -> dict[str, Any]:
    """The arrays of the final code, as a user gets them, of the way to a machine that a step belongs to."""
    from ziggurat.bisecting.steps import cpu_steps, emitted

    launch = launch_of(case)
    if step.startswith(CPU) or step == NATIVE:
        (native,) = (s for s in cpu_steps(case.model, launch) if s.name == NATIVE)
        return native.of(case.model)

    def run_code() -> Any:
        ways = {s.name: s for s in emitted(case.options, launch, case.model)}
        try:
            return ways[DEVICE if step == DEVICE else OPTIMIZED].of(case.model)
        except (zg.KernelRuntimeError, TimeoutError):
            raise
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    arrays = apart(run_code, launch.seconds)  # A process whose launch has failed could not use the GPU any more.
    if isinstance(arrays, str):
        raise zg.BuildError(arrays)  # The compiler fails: that is no miscompilation.
    return arrays


def launch_of(case: Case) -> Launch:
    arguments = case.arguments()
    return Launch(
        (*case.grid, 1, 1)[:3], [f"arg{at}" for at in range(len(arguments))], arguments, case.tolerant, LIMIT / 2
    )


def right_kernel(name: str) -> Outcome:
    """What `zg.bisect` says of a right kernel."""
    try:
        case = kernel_of(name)
        run(case.model, None, case.grid, case.arguments(), strict=True, detached=True, tolerant=case.tolerant)
        start = time.monotonic()
        outcome = bisected(case)
    except (zg.LaunchError, zg.ResourceError, zg.KernelRuntimeError, zg.KernelErrors) as error:
        return Outcome(name, "", "", "refused", reason=f"{type(error).__name__}: {error.summary}"[:300])
    seconds = time.monotonic() - start
    if outcome.fault is None:
        return Outcome(name, "", "", "agrees", seconds=seconds, steps=outcome.steps)
    return Outcome(name, "", "", "accused", outcome.fault.step, str(outcome)[:2000], seconds, outcome.steps)


def planted_fault(step: str, number: int, name: str, seconds: float = 5) -> Outcome:
    """What `zg.bisect` says of a kernel with a fault in a step. It may reduce the model for so many seconds."""
    case, fault = kernel_of(name), fault_of(step, number)
    right = launch_of(case).interpreted(case.model)
    is_front = step == FRONT

    def outcome(kind: str, *rest: Any) -> Outcome:
        return Outcome(name, step, fault.what, kind, *rest)

    with nullcontext() if is_front else replaced_step(step, fault.around):
        signal.alarm(LIMIT)
        try:
            if is_front:  # The kernel is read again.
                case = fault.around(lambda: kernel_of(name))()
            wrong = _wrong(right, case, step)
        except Exception as error:
            return outcome("refused", "", f"{type(error).__name__}: {error}"[:200])
        if wrong is None:
            return outcome("harmless")
        signal.alarm(LIMIT)
        start = time.monotonic()
        more = {"expected": list(right.values())} if is_front else {}
        try:
            result = bisected(case, step, seconds=seconds, **more)
        except Exception:
            lines = [line for line in traceback.format_exc().splitlines() if "  File" in line or "Error" in line]
            return outcome("error", "", "\n".join(lines)[-1500:], time.monotonic() - start)
        duration = time.monotonic() - start
        signal.alarm(0)
    if result.fault is None:
        return outcome("missed", "", wrong[:500], duration)
    kind = "named" if result.fault.step == step else "another step"
    return outcome(kind, result.fault.step, f"{result.fault.reason[:300]} | {wrong[:200]}", duration)


def _wrong(right: dict[str, Any], case: Case, step: str) -> str | None:
    """What is wrong with the code of a kernel, or with its model; None if nothing is. Raises the errors of a compiler
    that fails."""
    try:
        arrays = launch_of(case).interpreted(case.model) if step == FRONT else final(case, step)
    except zg.KernelRuntimeError as error:
        return error.summary
    except TimeoutError as error:
        if is_of_signal(error):
            raise
        return str(error)
    return difference(right, arrays, rounds=True)


# Processes: a fault may end its process, or never end.


def outcomes(jobs: Iterable[tuple[Any, Callable[[], Outcome]]], most: int) -> Iterator[tuple[Any, Outcome | str]]:
    """The outcome of each job, in a process of its own, or why that has none; as they come, `most` at a time."""
    context = multiprocessing.get_context("fork")
    waiting, running = iter(jobs), {}
    while True:
        while len(running) < most and (job := next(waiting, None)) is not None:
            reader, writer = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(job[1], writer), daemon=True)
            process.start()
            writer.close()
            running[reader] = job[0], process, time.monotonic()
        if not running:
            return
        for reader in wait([*running], timeout=1):
            key, process, _ = running.pop(reader)
            try:
                answer = reader.recv()
            except EOFError:
                process.join()
                answer = f"the process ended with {process.exitcode}"
            process.join()
            yield key, answer
        for reader, (key, process, start) in [*running.items()]:
            if time.monotonic() - start > 2 * LIMIT + 10:
                process.kill()
                del running[reader]
                yield key, "no end"


def _late(number: int, frame: Any) -> None:
    raise TimeoutError(f"no end after {LIMIT} s")


def _work(job: Callable[[], Outcome], writer: Connection) -> None:
    signal.signal(signal.SIGALRM, _late)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    try:
        answer = job()
    except Exception:
        answer = traceback.format_exc()[-1500:]
    writer.send(answer)
    writer.close()


@attrs.define
class Quota:
    """The faults of a step that are still to be found, and the attempts that have been begun."""

    step: str
    kernels: list[str]
    count: int
    begun: int = 0
    results: dict[int, Outcome] = attrs.field(factory=dict)

    def counted(self) -> list[Outcome]:
        """The faults that are miscompilations, in the order of attempts."""
        ordered = (self.results[number] for number in sorted(self.results))
        return [o for o in ordered if o.kind not in ("harmless", "refused")][: self.count]

    def is_over(self) -> bool:
        return not self.kernels or self.begun >= _ATTEMPTS * self.count or len(self.counted()) >= self.count


def attempts(quotas: list[Quota], seconds: float) -> Iterator[tuple[Any, Callable[[], Outcome]]]:
    """The attempts of all steps in turn. The faults that some steps lack are asked of the others."""
    total = sum(quota.count for quota in quotas)
    while True:
        open_quotas = [quota for quota in quotas if not quota.is_over()]
        if not open_quotas:
            rich = [quota for quota in quotas if len(quota.counted()) == quota.count > 0]
            missing = total - sum(len(quota.counted()) for quota in quotas)
            if missing <= 0 or not rich:
                return
            for number in range(missing):
                rich[number % len(rich)].count += 1
            continue
        for quota in open_quotas:
            number, quota.begun = quota.begun, quota.begun + 1
            name = quota.kernels[number % len(quota.kernels)]
            yield (quota, number, name), lambda s=quota.step, n=number, k=name: planted_fault(s, n, k, seconds)


def judge(options: argparse.Namespace) -> dict[str, Any]:
    """The outcomes of right kernels and of planted faults, within about `options.seconds`."""
    until = time.monotonic() + options.seconds
    kernels = right_kernels(options.right, options.jobs, until)
    good = [o for o in kernels if isinstance(o, Outcome) and o.kind == "agrees"]
    has_gpu = any(DEVICE in o.steps for o in good)
    quotas = [Quota(step, _kernels_with(step, good), 0) for step in options.steps if step != DEVICE or has_gpu]
    quotas = [quota for quota in quotas if quota.kernels]
    for number in range(options.faults):
        quotas[number % len(quotas)].count += 1
    running = (job for job in attempts(quotas, options.reduce) if time.monotonic() < until)
    for (quota, number, name), answer in outcomes(running, options.jobs):
        if isinstance(answer, str):
            answer = Outcome(name, quota.step, "", "error", reason=answer)
        quota.results[number] = answer
        if answer.kind not in ("harmless", "refused"):
            print(f"{answer.kind:12} {quota.step}: {answer.what} ({answer.kernel}) {answer.answer}", flush=True)
    counted = [outcome for quota in quotas for outcome in quota.counted()]
    return {
        "right": [attrs.asdict(o) if isinstance(o, Outcome) else {"kind": o} for o in kernels],
        "faults": [attrs.asdict(outcome) for outcome in counted],
        "attempts": {quota.step: Counter(o.kind for o in quota.results.values()) for quota in quotas},
    }


def right_kernels(count: int, jobs: int, until: float) -> list[Outcome | str]:
    """The outcomes of so many right kernels, in their order, and of those on the way that go wrong by themselves; of
    fewer when the time is `until`."""
    names = chain(KERNELS, islice(more_names(), 4 * count))
    kernels: dict[str, Outcome | str] = {}

    def is_open() -> bool:
        number = sum(isinstance(o, str) or o.kind != "refused" for o in kernels.values())
        return number < count and time.monotonic() < until

    work = ((name, lambda n=name: right_kernel(n)) for name in takewhile(lambda _: is_open(), names))
    for name, outcome in outcomes(work, jobs):
        kernels[name] = outcome
    return list(kernels.values())


def more_names() -> Iterator[str]:
    """The names of generated kernels: of four, two with control flow, one with dots, many of which race, and one of
    floats that are rounded in other ways from step to step."""
    return (f"floats {number}" if number % 4 == 2 else f"generated {number}" for number in count())


def _kernels_with(step: str, good: list[Outcome]) -> list[str]:
    """The kernels that a step changes, mixed."""
    if step == FRONT:  # Those whose models are made anew each time.
        return [o.kernel for o in good if o.kernel.startswith("generated ") and int(o.kernel.split()[1]) % 2]
    names = [o.kernel for o in good if step in o.steps]
    Random(step).shuffle(names)
    return names


def report(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    right, faults = Counter(o["kind"] for o in result["right"]), Counter(o["kind"] for o in result["faults"])
    lines = [
        "# zg.bisect, judged", "",
        f"* {right['agrees']} of {len(result['right']) - right['refused']} right kernels agree at all steps, "
        f"{right['accused']} are accused; {right['refused']} others go wrong by themselves.",
        f"* {faults['named']} of {len(result['faults'])} planted miscompilations are named at their step.",
        f"* The longest bisection took {max([o['seconds'] for o in result['faults']], default=0):.0f} s.", "",
        "| step | attempts | miscompilations | named |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for step, kinds in result["attempts"].items():
        mine = [o for o in result["faults"] if o["step"] == step]
        lines.append(f"| {step} | {sum(kinds.values())} | {len(mine)} | {sum(o['kind'] == 'named' for o in mine)} |")
    lines += ["", "## Not named", ""]
    for o in result["faults"]:
        if o["kind"] != "named":
            lines.append(f"* {o['step']}, {o['what']} ({o['kernel']}): {o['kind']} {o['answer']}: {o['reason']}")
    lines += ["", "## Accused", ""]
    lines += [f"* {o['kernel']}: {o['reason']}" for o in result["right"] if o["kind"] == "accused"]
    lines += [f"* {o['kind']}" for o in result["right"] if "kernel" not in o]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the report goes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--right", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=3600, help="the time after which no attempt is begun")
    parser.add_argument("--steps", nargs="+", default=list(STEPS), help="plant faults in these alone")
    parser.add_argument("--reduce", type=float, default=5, help="the seconds for making the report of a fault smaller")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    result = judge(options)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "bisect-judge.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    text = report(result)
    (options.folder / "bisect-judge.md").write_text(text, encoding="utf-8")
    print(text, f"{time.monotonic() - start:.0f} s", sep="\n")
    hits = sum(o["kind"] == "named" for o in result["faults"])
    accused = sum(o["kind"] not in ("agrees", "refused") for o in result["right"])
    return int(accused > 0 or hits < 0.975 * options.faults)


if __name__ == "__main__":
    sys.exit(main())
