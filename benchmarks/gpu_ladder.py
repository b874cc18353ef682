"""Speeds on a GPU against bars: ours, Triton's and the libraries', launched in turn in one process.

    python benchmarks/gpu_ladder.py [--only TEXT] [--fastest] [--limit SECONDS] [--liger FOLDER] results/gpu-ladder.json

FOLDER: `src` of a checkout of Liger-Kernel. Inputs are N(0,1), the L2 is flushed before each launch, and each result is
checked against float64. Of several settings the fastest is measured: contenders are launched in turn, as the card's
power is limited, and the median counts. A ratio is a contender's time by ours: above 1 ours is faster. Processes
compile all kernels before anything is measured. The status tells whether a bar is missed.

Rows that the report has already stay, unless they are measured again. A table of all is written beside it, as
Markdown; that of `benchmarks/results/gpu-ladder.json` is a document.

The last rows are times of the first launch, in seconds, and of launches on the host, by that of a bare launch.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu_report import save, surroundings

HERE = Path(__file__).resolve()
REPORT = HERE.parent / "results" / "gpu-ladder.json"
DOCUMENT = HERE.parents[1] / "docs" / "results" / "gpu-ladder.md"
JOBS = 14
# Milliseconds of launches of one work that are measured, and the fewest and most rounds.
MEASURED, FEWEST, MOST = 300.0, 12, 100
# Cycles, some 17 ms, that the GPU waits before launches in turn, so that the host is ahead of it.
HEAD_START = 30_000_000
# What a ratio of equal kernels differs from 1 by, between runs: a bar that is missed by no more is met.
SPREAD = 0.005
# Bars of the first launch in seconds, and of launches by a bare one.
FIRST = {"add": 0.15, "matmul": 0.3}
LAUNCHES = {"launch": 1.4, "launch with other arrays": 1.5, "launch with a new integer": 2.0}
Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--only", action="append", default=[], help="rows whose name holds this")
    parser.add_argument("--limit", type=float, default=600, help="seconds for all")
    parser.add_argument("--liger", type=Path)
    parser.add_argument("--fastest", action="store_true", help="only the settings that were the fastest in the report")
    parser.add_argument("--commit", help="what is run, where that is a copy without git")
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("--works", default="ladder_works", help=argparse.SUPPRESS)  # Their module.
    options = parser.parse_args(arguments)
    if options.liger:
        sys.path.insert(0, str(options.liger.resolve()))
    if options.prepare:
        return prepare(options)
    with tempfile.TemporaryDirectory() as caches:
        os.environ.update(TRITON_CACHE_DIR=f"{caches}/triton", ZIGGURAT_CACHE_DIR=f"{caches}/ours")
        os.makedirs(f"{caches}/ours", mode=0o700)
        return measure_all(options)


def measure_all(options: argparse.Namespace) -> int:
    end = time.monotonic() + options.limit
    ready = compiled(options, end)
    names, works = chosen(options)
    report = known(options.report)
    run = surroundings() | ({"commit": options.commit} if options.commit else {})
    rows: dict[str, Row] = {}

    def add(name: str, row: Row) -> None:
        rows[name] = row | {"run": len(report["runs"])}
        print(line(name, row), flush=True)
        # In the order of the works, whichever run measured them; without works that there are no more.
        every = report["rows"] | rows
        last = [name for name, row in every.items() if "at most" in row]
        ordered = {name: every[name] for name in [*works, *last] if name in every}
        write(options.report, {"runs": [*report["runs"], run], "rows": ordered})

    print(f"{len(ready)} of {len(names)} rows prepared, {end - time.monotonic():.0f} s left", flush=True)
    for name in names:
        if time.monotonic() > end - 3:
            break
        if name not in ready:
            print(f"{name:48} not prepared in time", flush=True)
            continue
        try:
            row = measured(works[name](), ready[name])
        except Exception as problem:  # Of one work: the others may run.
            row = {"failed": message(problem)}
        add(name, row)
    for make in (first_launches, launch_costs) if options.works == "ladder_works" else ():
        if not options.only or any(text in make.__name__ for text in options.only):
            for name, row in make().items():
                add(name, row)
    missed = [name for name, row in rows.items() if not row.get("met")]
    print(f"{len(rows) - len(missed)} of {len(rows)} rows meet their bars")
    return bool(missed)


def known(path: Path) -> Row:
    """The report as it is, or an empty one: `runs` are the surroundings, which each of `rows` has the index of."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {"runs": [], "rows": {}}


def write(path: Path, report: Row) -> None:
    """Write the report, without runs that all rows are newer than, and its table."""
    runs = sorted({row["run"] for row in report["rows"].values()})
    rows = {name: row | {"run": runs.index(row["run"])} for name, row in report["rows"].items()}
    report = {"runs": [report["runs"][number] for number in runs], "rows": rows}
    save(path, report)
    document = DOCUMENT if path.resolve() == REPORT else path.with_suffix(".md")
    document.write_text(markdown(report), "utf-8")


def chosen(options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    work_of = dict(importlib.import_module(options.works).works())
    return [name for name in work_of if not options.only or any(text in name for text in options.only)], work_of


# Preparation: each process compiles some of the works, runs each setting once, and tells which give right results.


def compiled(options: argparse.Namespace, end: float) -> dict[str, Any]:
    """The results by the settings of each work, of the works whose processes ended in time for the measurement."""
    ready: dict[str, Any] = {}
    processes: list[subprocess.Popen[str]] = []
    command = [sys.executable, str(HERE), str(options.report), f"--works={options.works}"]
    command += [f"--only={text}" for text in options.only]
    command += [f"--liger={options.liger}"] if options.liger else []
    command += ["--fastest"] if options.fastest else []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(job)) for job in range(JOBS)]
        for job, log in enumerate(logs):
            with log.open("w") as output:
                more = [f"--prepare={job}"]
                processes.append(subprocess.Popen([*command, *more], stdout=output, stderr=output, text=True))
        # What this process imports, meanwhile.
        end -= min(0.4 * options.limit, 4 * len(chosen(options)[0]))
        while any(process.poll() is None for process in processes) and time.monotonic() < end:
            time.sleep(0.1)
        for process, log in zip(processes, logs, strict=True):
            if process.poll() is None:
                process.kill()
            process.wait()
            lines = log.read_text().splitlines()
            for text in lines:
                if text.startswith("{"):
                    ready |= json.loads(text)
            if process.returncode:
                print("a preparing process ended early:", *lines[-3:], sep="\n    ", flush=True)
    return ready


def prepare(options: argparse.Namespace) -> int:
    import torch

    names, works = chosen(options)
    # Neighbours share kernels: a process takes all sizes of a work.
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(" ".join(word for word in name.split() if not word[0].isdigit()), []).append(name)
    for number, group in enumerate(groups.values()):
        for name in group if number % JOBS == int(options.prepare) else ():
            row: Row = {}
            try:
                work = works[name]()
                for who, settings in work.runs.items():
                    row[who] = {}
                    fastest = known(options.report)["rows"].get(name, {}).get("times", {}).get(who, {}).get("setting")
                    for setting, run in settings.items():
                        if options.fastest and fastest in settings and setting != fastest:
                            continue
                        try:
                            row[who][setting] = checked(work, run)
                        except Exception as problem:  # Too much shared memory, say: other settings may do.
                            row[who][setting] = message(problem)
            except Exception as problem:
                row["failed"] = message(problem)
            print(json.dumps({name: row}), flush=True)
            work = None
            torch.cuda.empty_cache()
    return 0


def message(problem: Exception) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"


def checked(work: Any, run: Any) -> float:
    """The error of a launch. Raises `AssertionError` if it is too large."""
    import torch

    work.clear()
    got = run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    error = work.error(got)
    assert error <= work.tolerance, f"off by {error:.1e}, more than {work.tolerance:.0e}"
    return error


# Measurement.


def measured(work: Any, ready: Row) -> Row:
    """The times of all contenders, each with its fastest setting."""
    row: Row = {"unit": work.unit, "times": {}, "settings": {}, "failed settings": {}}
    best: dict[str, Any] = {}
    for who, settings in work.runs.items():
        right: dict[str, Any] = {}
        errors: dict[str, float] = {}
        for setting, run in settings.items():
            launch = ready.get(who, {}).get(setting)
            if launch is None:
                continue
            try:
                assert not isinstance(launch, str), launch
                errors[setting] = checked(work, run)
                right[setting] = run
            except Exception as problem:
                row["failed settings"][f"{who}, {setting}"] = str(problem)[:250]
        # In turn, as the card is slower after long work.
        quick = in_turn(right, 7) if len(right) > 1 else dict.fromkeys(right, 0.0)
        row["settings"] |= {f"{who}, {setting}": round(ms, 4) for setting, ms in quick.items()}
        if quick:
            fastest = min(quick, key=quick.__getitem__)
            best[who] = quick[fastest], right[fastest], fastest, errors[fastest]
    runs = {who: time[1] for who, time in best.items()}
    rounds = MEASURED / max(sum(in_turn(runs, 2).values()), 1e-3)
    times = in_turn(runs, int(min(max(rounds, FEWEST), MOST)))
    for who, ms in times.items():
        speed = round(work.amount / ms * 1e3, 1)
        row["times"][who] = {"ms": round(ms, 4), "speed": speed, "setting": best[who][2], "error": best[who][3]}
    if "ours" in times:
        row["ratios"] = {who: round(ms / times["ours"], 3) for who, ms in times.items() if who != "ours"}
        row["bars"] = {who: bar for who, bar in work.bars.items() if who in times}
        row["met"] = bool(row["bars"]) and all(row["ratios"][who] >= bar - SPREAD for who, bar in row["bars"].items())
    return row


def in_turn(runs: dict[str, Any], rounds: int) -> dict[str, float]:
    """The median milliseconds of each. All are launched in each round, the L2 flushed before each launch."""
    import torch

    # The GPU writes for longer than the host needs for a launch.
    flush = torch.empty(512 << 20, dtype=torch.int8, device="cuda")
    events: dict[str, list[Any]] = {who: [] for who in runs}
    torch.cuda._sleep(HEAD_START)
    for _ in range(rounds):
        for who, run in runs.items():
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            flush.zero_()
            pair[0].record()
            run()
            pair[1].record()
            events[who].append(pair)
    torch.cuda.synchronize()
    return {who: statistics.median(pair.elapsed_time(two) for pair, two in pairs) for who, pairs in events.items()}


def script(name: str) -> Row:
    """The last line of a benchmark of this folder."""
    done = subprocess.run([sys.executable, HERE.with_name(name)], capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}") from None


def first_launches() -> dict[str, Row]:
    """Import, cold compile and first launch, in seconds."""
    rows: dict[str, Row] = {}
    for kernel, figures in script("gpu_compile.py").items():
        times = {who: {"seconds": figures[who]["total"]} for who in ("ours", "Triton") if who in figures}
        bar = FIRST[kernel]
        rows[f"cold compile and first launch, {kernel}"] = {
            "times": times, "parts": figures["parts"], "at most": bar, "met": times["ours"]["seconds"] <= bar
        }  # fmt: skip
    return rows


def launch_costs() -> dict[str, Row]:
    """A launch with 19 arguments and arrays of torch on the host, by a bare one."""
    figures = script("gpu_launch.py")
    rows: dict[str, Row] = {}
    for name, bar in LAUNCHES.items():
        ratio = round(figures["torch"][name] / figures["torch"]["bare"], 3)
        times = {"ours": {"of a bare launch": ratio, "µs": figures["torch"][name]}}
        if "Triton" in figures:
            times["Triton"] = {"µs": figures["Triton"]["launch"]}
        rows[f"{name}, 19 arguments"] = {"times": times, "at most": bar, "met": ratio <= bar}
    return rows


def markdown(report: Row) -> str:
    """The table of the report."""
    lines = [
        "# The ladder",
        "",
        "Written by `benchmarks/gpu_ladder.py`, which explains how; [gpu.md](gpu.md) has the reasons.",
        "",
    ]
    for number, run in enumerate(report["runs"], 1):
        versions = ", ".join(
            f"{name} {run['versions'][name]}" for name in ("torch", "triton") if name in run["versions"]
        )
        lines.append(
            f"{number}. {run['date'][:16]}, {run['card']} (driver {run['driver']}), {versions}; commit {run['commit']}"
        )
    lines += ["", "| work | ours | ratio to (bar) | | run |", "| --- | --- | --- | --- | --- |"]
    for name, row in report["rows"].items():
        ours, ratios = "failed", row.get("failed", "")
        if "at most" in row:
            times = [
                f"{who} " + " ".join(f"{value} {key}" for key, value in more.items())
                for who, more in row["times"].items()
            ]
            ours, ratios = times[0].removeprefix("ours "), ", ".join([f"at most {row['at most']}", *times[1:]])
        elif "ours" in row.get("times", {}):
            ours = f"{row['times']['ours']['speed']} {row['unit']}"
            ratios = ", ".join(
                f"{who} {ratio}" + (f" ({row['bars'][who]})" if who in row["bars"] else "")
                for who, ratio in row["ratios"].items()
            )
        lines.append(f"| {name} | {ours} | {ratios} | {'' if row.get('met') else 'missed'} | {row['run'] + 1} |")
    within_bar = sum(bool(row.get("met")) for row in report["rows"].values())
    return "\n".join([*lines, "", f"{within_bar} of {len(report['rows'])} rows meet their bars."]) + "\n"


def line(name: str, row: Row) -> str:
    """A row as text."""
    if "times" not in row:
        return f"{name:48} FAILED: {row['failed']}"
    if "at most" in row:
        cells = [
            f"{who} {' '.join(f'{value} {key}' for key, value in time.items())}" for who, time in row["times"].items()
        ]
        return f"{name:48} {'met   ' if row['met'] else 'MISSED'} {', '.join(cells)}; at most {row['at most']}"
    cells = [f"{who} {time['speed']}" for who, time in row["times"].items()]
    ratios = [
        f"{who} {ratio}" + (f" (≥ {row['bars'][who]})" if who in row["bars"] else "")
        for who, ratio in row.get("ratios", {}).items()
    ]
    mark = "met   " if row.get("met") else "MISSED"
    setting = row["times"].get("ours", {}).get("setting")
    text = f"{name:48} {mark} {', '.join(cells)} {row['unit']}; ratio to {', '.join(ratios)} [{setting}]"
    failed = [f"\n    {who}: {why}" for who, why in row["failed settings"].items()]
    return text + "".join(failed)


if __name__ == "__main__":
    sys.exit(main())
