"""Our code and Triton's of each variant: a file of results, and a table of those that ours is behind in."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import compilers
import variants

RATIO = 1.1  # A loop of more instructions than this times Triton's is listed.
Row = dict[str, Any]


def compile(
    paths: list[str], output: Path, folders: list[str], triton: str, only: str, limit: int, kept: Path, processes: int
) -> None:
    """Compile variants with both, write their counts, and print the table."""
    named = {name: variant for name, variant in variants.read(paths) if only in name}
    step = max(1, math.ceil(len(named) / limit))
    named = dict([*named.items()][::step])
    results = compilers.both(named, folders, triton, kept, processes)
    rows = [row_of(name, results) for name in named]
    output.parent.mkdir(exist_ok=True)
    text = ",\n".join(json.dumps(row) for row in rows)
    output.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    print(report(rows))


def row_of(name: str, results: dict[str, dict[str, Any]]) -> Row:
    row: Row = {"name": name}
    for side in compilers.SIDES:
        result = results[side][name]
        if "error" in result:
            row[side] = {"error": result["error"].splitlines()[0][:300]}
            continue
        row[side] = {key: value for key, value in result.items() if key != "name" and (value or key != "warnings")}
        row[side]["loops"] = [[loop["instructions"], loop["products"]] for loop in result["loops"]]
    row["behind"] = dict(behind(row))
    return row


def is_complete(row: Row) -> bool:
    return all("error" not in row[side] for side in compilers.SIDES)


def scale(row: Row) -> float:
    """How many times the work of Triton's main loop ours does: one may be unrolled more, or have a larger step.

    Bytes tell it where loads and stores agree; where they do not, a layout has several threads load the same.
    """
    ours, theirs = row["ours"]["main"], row["theirs"]["main"]
    if ours["products"] and theirs["products"]:
        return ours["products"] / theirs["products"]
    loads, stores = (
        [sum(code[kind] for kind in kinds) for code in (ours, theirs)]
        for kinds in (("load_bytes", "copy_bytes"), ("store_bytes",))
    )
    ratios = {mine / other for mine, other in (loads, stores) if mine and other}
    return ratios.pop() if len(ratios) == 1 and not ours["tma"] and not theirs["tma"] else 1.0


def ratio(row: Row) -> float:
    """Instructions of our main loop for those of Triton's, for equal work. Those of the whole kernels, where one has
    its work in a loop and the other has not."""
    sides = [row[side] for side in compilers.SIDES]
    if bool(sides[0]["main"]["products"]) != bool(sides[1]["main"]["products"]):
        return sides[0]["whole"]["instructions"] / sides[1]["whole"]["instructions"]
    return sides[0]["main"]["instructions"] / sides[1]["main"]["instructions"] / scale(row)


def behind(row: Row) -> Iterator[tuple[str, float]]:
    """The measures that ours is worse in, with how much. A compiler that refuses what the other compiles is behind."""
    if not is_complete(row):
        if "error" in row["ours"] and "error" not in row["theirs"]:
            yield "refused", 1.0
        return
    ours, theirs = row["ours"], row["theirs"]
    mine, other = ours["whole"], theirs["whole"]
    loads = [side["main"]["load_bytes"] for side in (ours, theirs)]
    if mine["copy_bytes"] < other["copy_bytes"] and loads[0] > loads[1] * scale(row):
        yield "copies", round(mine["copy_bytes"] / other["copy_bytes"], 2)
    has_loops = ours["loops"] and theirs["loops"]
    barriers = [side["main"]["barriers"] + side["main"]["waits"] for side in (ours, theirs)] if has_loops else [
        side["whole"]["barriers"] + side["whole"]["waits"] for side in (ours, theirs)
    ]  # fmt: skip
    more = barriers[0] / (scale(row) if has_loops else 1) - barriers[1]
    if more >= 0.5:
        yield "barriers", round(more, 1)
    if ratio(row) > RATIO:
        yield "loop", round(ratio(row), 2)
    if ours["spills"] > theirs["spills"]:
        yield "spills", ours["spills"] - theirs["spills"]


def report(rows: list[Row]) -> str:
    """A summary, and a line for each variant that ours is behind in."""
    whole = [row for row in rows if is_complete(row)]
    lines = [f"{len(rows)} variants, {len(whole)} compiled by both"]
    for side, other in (("ours", "theirs"), ("theirs", "ours")):
        refused = [row for row in rows if "error" in row[side] and "error" not in row[other]]
        lines += [f"refused by {side} alone: {row['name']}: {row[side]['error']}" for row in refused]
    if not whole:
        return "\n".join(lines)
    mean = math.exp(sum(math.log(ratio(row)) for row in whole) / len(whole))
    times = {side: sum(row[side]["seconds"] for row in whole) for side in compilers.SIDES}
    kinds = Counter(kind for row in whole for kind in row["behind"])
    lines += [
        f"instructions of the main loop, ours / Triton's for equal work: geometric mean {mean:.3f}",
        f"CPU seconds to PTX: ours {times['ours']:.1f}, Triton {times['theirs']:.1f}: "
        f"{times['ours'] / times['theirs']:.2f}",
        f"behind in nothing: {sum(not row['behind'] for row in whole)}; "
        + ", ".join(f"{kind}: {number}" for kind, number in kinds.items()),
        "",
        f"{'variant':64} {'behind in':34} {'loop':>11}"
        + "".join(f" {title:>9}" for title in ("copies", "LDG", "barriers", "registers", "spills")),
    ]  # fmt: skip
    for row in sorted((row for row in whole if row["behind"]), key=lambda row: -ratio(row)):
        ours, theirs = row["ours"], row["theirs"]

        def pair(part: str, *names: str, ours: Any = ours, theirs: Any = theirs) -> str:
            values = [sum((side[part] if part else side)[name] for name in names) for side in (ours, theirs)]
            return f"{values[0]}/{values[1]}"

        what = " ".join(f"{kind}:{value}" for kind, value in row["behind"].items())
        module, _, name = row["name"].rpartition(".")
        lines.append(
            f"{(module.split('.')[-1] + '.' + name)[-64:]:64} {what:34} {pair('main', 'instructions'):>11} "
            f"{pair('whole', 'copies', 'tma'):>9} {pair('main', 'loads'):>9} {pair('main', 'barriers', 'waits'):>9} "
            f"{pair('', 'registers'):>9} {pair('', 'spills'):>9}"
        )
    return "\n".join(lines)
