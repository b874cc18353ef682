"""The options `--ziggurat-sanitize` and `--ziggurat-sanitizers=NAMES` of pytest: launches in tests are sanitised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_ALL, _SOME = "--ziggurat-sanitize", "--ziggurat-sanitizers"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("ziggurat")
    what = "check the kernels that tests launch for races, bounds, overflow, undefined elements and NaN"
    group.addoption(_ALL, action="store_true", help=what)
    group.addoption(_SOME, metavar="NAMES", help="… or for some of races,bounds,overflow,undefined,nan")


def pytest_configure(config: pytest.Config) -> None:
    """Sanitise launches from now on that do not give the option `sanitize` themselves."""
    names: str | None = config.getoption(_SOME)
    if names is None and not config.getoption(_ALL):
        return
    import pytest

    from ziggurat.codemodel.errors import LaunchError
    from ziggurat.codemodel.gpu.options import sanitizers
    from ziggurat.kernels.kernel import Kernel

    try:
        Kernel.sanitizers = sanitizers(_SOME, True if names is None else names.split(","))
    except LaunchError as error:
        raise pytest.UsageError(str(error)) from None
    config.add_cleanup(_stop)


def _stop() -> None:
    from ziggurat.kernels.kernel import Kernel

    Kernel.sanitizers = ()
