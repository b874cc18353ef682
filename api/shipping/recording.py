"""Recording of launches: with `ZIGGURAT_RECORD=launches.json`, a process writes a variant for each new launch.

Launches happen as they do without. `%p` in the name stands for the number of the process; a file that is there already
keeps its variants.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from ziggurat.codemodel.errors import ZigguratError, warn
from ziggurat.codemodel.gpu.options import COMPILE_OPTIONS

if TYPE_CHECKING:
    from ziggurat.kernels.kernel import Kernel
    from ziggurat.shipping.variant import Variant


class Recorder:
    """Observes launches. `variants` has those of launches so far, by their keys."""

    def __init__(self) -> None:
        self.variants: dict[str, Variant] = {}
        self._keys: set[Any] = set()
        self._lock = threading.RLock()

    def __call__(self, kernel: Kernel, grid: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Note a launch that is about to happen. One that no variant can be made of gives a warning once."""
        from ziggurat.tuning.measuring import is_measuring

        if is_measuring():
            return  # The chosen configuration is launched afterwards.
        try:
            self._note(kernel, grid, arguments, keywords)
        except ZigguratError as error:
            if (kernel, error.summary) not in self._keys:
                self._keys.add((kernel, error.summary))
                warn(f"a launch of '{kernel.name}' is not recorded: {error.summary}", kernel.place)

    def _note(self, kernel: Kernel, grid: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        from ziggurat.kernels.arguments import bind
        from ziggurat.launches.inspected import ones_of
        from ziggurat.shipping.variant import variant_of

        names = kernel.signature.parameters
        bound = bind(kernel, arguments, {name: value for name, value in keywords.items() if name in names})
        own_options = {name: value for name, value in keywords.items() if name in COMPILE_OPTIONS and name not in names}
        options = {name: value for name, value in own_options.items() if value is not None and name != "target"}
        with self._lock:
            signature, own, values = kernel.specialized(bound, read_anywhere)
            signature = attrs.evolve(signature, small=())  # A library has one variant for numbers of any size.
            ones = ones_of(kernel, own, values)
            key = kernel, signature, tuple(ones), tuple(sorted(options.items(), key=lambda item: item[0]))
            if key in self._keys:
                return
            self._keys.add(key)
            variant = variant_of(kernel, signature, bound, options, ones, grid)
            self.variants.setdefault(variant.key, variant)

    def save(self, path: str) -> None:
        """Write the variants, with those that the file has."""
        from ziggurat.shipping.variant import read_variants, write_variants

        file = Path(path.replace("%p", str(os.getpid())))
        before = read_variants(file) if file.exists() else []
        together = {variant.key: variant for variant in (*before, *self.variants.values())}
        write_variants(file, together.values())


def read_anywhere(value: Any, name: str) -> Any:
    """The value, the element type and the address of an array in any memory; None for another thing."""
    from ziggurat.backend.launch.arrays import on_gpu, read_array
    from ziggurat.backend.launch.device_arrays import view

    if not on_gpu(value):
        return read_array(value, name)
    array = view(value, name)
    return None, array.element, array.address


def start(path: str) -> None:
    """Record the launches of this process until it ends."""
    from ziggurat.kernels.kernel import Kernel

    recorder, owner = Recorder(), os.getpid()
    Kernel.observer = recorder

    @atexit.register
    def finish() -> None:
        # A process that compiles for this one has no launches, and must not write the file meanwhile.
        if recorder.variants and (os.getpid() == owner or "%p" in path):
            recorder.save(path)
