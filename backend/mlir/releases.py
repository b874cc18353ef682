"""The releases of the C++ Triton, and what its text has had since which of them."""

from __future__ import annotations

import re

from ziggurat.codemodel.errors import TargetError

NEWEST: tuple[int, int] = (3, 9)
OLDEST: tuple[int, int] = (3, 4)

# Found by parsing the texts of every op with each release.
SINCE: dict[str, tuple[int, int]] = {
    # `scf.for unsigned`; before, a loop over the number of iterations.
    "unsigned loops": (3, 5),
    # `tt.unsplat`; before, a reduction of a tensor of one element.
    "unsplat": (3, 5),
    # `tt.map_elementwise`; before, an error.
    "map": (3, 5),
    # `inputPrecision = bf16x3` and `bf16x6` of a dot; before, an error.
    "bf16 parts": (3, 6),
    # `ttg.barrier all`; before, `gpu.barrier`.
    "ttg.barrier": (3, 7),
    # `arith.negf`, which earlier releases parse and do not compile; before, a difference from -0.0.
    "negf": (3, 8),
    # `!tt.tensordesc<64x64xf16>`; before, `!tt.tensordesc<tensor<64x64xf16>>`.
    "blocks of descriptors": (3, 8),
    # One attribute `#tt.cache_policy<…>` of an access; before, a cache modifier and an eviction policy.
    "cache policies": (3, 9),
}


def release_of(name: str | None) -> tuple[int, int]:
    """The release by its name, `"3.6"` or `"3.6.0"`; for None the one that is installed, or else the newest.

    Raises `TargetError` for a release that `to_mlir` does not know.
    """
    if name is None:
        return _installed()
    match = re.fullmatch(r"(\d+)\.(\d+)(\..*)?", name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    release: tuple[int, int] = (int(match[1]), int(match[2])) if match else (0, 0)
    if not OLDEST <= release <= NEWEST:
        releases = ", ".join(f'"{major}.{minor}"' for major, minor in _known())
        raise TargetError(
            f"to_mlir: 'release' must be a release of Triton; got {name!r}", hint=f"it is one of {releases}"
        )
    return release


def _known() -> list[tuple[int, int]]:
    return [(OLDEST[0], minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]


def _installed() -> tuple[int, int]:
    from importlib.metadata import DistributionFinder, MetadataPathFinder

    # Not `version("triton")`: `ziggurat.triton.install` has that say another.
    installed = next(iter(MetadataPathFinder.find_distributions(DistributionFinder.Context(name="triton"))), None)
    match = None if installed is None else re.match(r"(\d+)\.(\d+)", installed.version)
    release = (int(match[1]), int(match[2])) if match else NEWEST
    return min(max(release, OLDEST), NEWEST)
