"""From launches to programs that need no compiler. Prints the picture shipping.svg."""

import sys

WIDTH, HEIGHT, STEP = 170, 50, 205
COLUMNS = [
    ("where kernels are", [("a program that runs", "ZIGGURAT_RECORD=…"), ("declarations", "zg.variant(kernel, …)")]),
    ("variants", [("launches.json", "Triton models as text")]),
    (
        "ziggurat build",
        [("sm_80, sm_90a …", "cubins or PTX"), ("cpu", "machine code"), ("launcher", "machine code, tables")],
    ),
    (
        "one folder",
        [("lib.h, lib.a, lib.so", "functions of C"), ("__init__.py, manifest", "the loader"), ("code/", "each object")],
    ),
    ("no compiler here", [("C, C++, Rust …", "scale_launch, scale_run"), ("Python", "lib.scale[grid](…)")]),
]


def boxes(column):
    """The rows of a column, centred."""
    items = COLUMNS[column][1]
    top = 145 - (len(items) * 70 - 20) / 2
    return [(20 + STEP * column, top + 70 * row, *item) for row, item in enumerate(items)]


lines = [
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {20 + STEP * len(COLUMNS)} 270" font-family="sans-serif">',
    "<style>text{fill:#1d2733}.c{font-size:13px;font-weight:600}.t{font-size:12px}.s{font-size:10.5px;fill:#5b6b7b}"
    "rect{fill:#eef3f8;stroke:#7d95ad}path{stroke:#7d95ad;fill:none}.g{fill:#fff;stroke:none}</style>",
    '<rect class="g" width="100%" height="100%"/>',
]
for column, (title, _) in enumerate(COLUMNS):
    lines.append(f'<text class="c" x="{20 + STEP * column}" y="24">{title}</text>')
    for x, y, name, about in boxes(column):
        lines.append(f'<rect x="{x}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="5"/>')
        lines.append(f'<text class="t" x="{x + 10}" y="{y + 21:g}">{name}</text>')
        lines.append(f'<text class="s" x="{x + 10}" y="{y + 38:g}">{about}</text>')
        for before, top, *_ in boxes(column - 1) if column else ():
            start, end = (before + WIDTH, top + HEIGHT / 2), (x, y + HEIGHT / 2)
            middle = (start[0] + end[0]) / 2
            curve = f"{middle:g} {start[1]:g} {middle:g} {end[1]:g} {end[0]} {end[1]:g}"
            lines.append(f'<path d="M{start[0]} {start[1]:g}C{curve}"/>')
sys.stdout.write("\n".join([*lines, "</svg>\n"]))
