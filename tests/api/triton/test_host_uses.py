"""Uses of Triton's host classes by libraries, each in a few lines: subclasses, monitors, generated kernels, patches."""

import functools
import importlib
import inspect
import linecache
import re
import types

import numpy as np

import ziggurat.triton as triton
import ziggurat.triton.language as tl
from ziggurat.triton import knobs
from ziggurat.triton.runtime import jit


class KeptTuner(triton.runtime.Autotuner):
    """A tuner that has some choices by the values of its keys, and whose hooks skip None, as that of FLA."""

    choices: dict[tuple, triton.Config] = {}  # noqa: RUF012

    def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **settings):
        super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **settings)
        self.copies = {}
        if not self.user_defined_pre_hook and self.restore_value:
            self.pre_hook = self.keep
        if not self.user_defined_post_hook and self.restore_value:
            self.post_hook = self.give_back

    def keep(self, arguments, reset_only=False):
        if not reset_only:
            names = [name for name in self.restore_value if arguments[name] is not None]
            self.copies = {name: arguments[name].copy() for name in names}

    def give_back(self, arguments, exception):
        for name, copy in self.copies.items():
            arguments[name][...] = copy
        self.copies = {}

    def run(self, *args, **kwargs):
        bound = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        key = tuple(bound[name] for name in self.keys if name in bound)
        if key in self.choices:
            self.cache[(*key, *(str(value.dtype) for value in bound.values() if hasattr(value, "dtype")))] = (
                self.choices[key]
            )
        return super().run(*args, **kwargs)


@triton.jit
def doubled(x_ptr, y_ptr, n, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at, at < n), at < n)
    if y_ptr is not None:
        tl.store(y_ptr + at, at, at < n)


def test_a_tuner_of_a_library_keeps_and_restores():
    configs, measured = [triton.Config({"B": size}) for size in (16, 32)], []

    def do_bench(run, quantiles):
        run()
        measured.append(1)
        return [float(len(measured))] * 3

    tuned = KeptTuner(doubled, doubled.arg_names, configs, ["n"], [], ["x_ptr", "y_ptr"], do_bench=do_bench)
    x = np.arange(4, dtype=np.float32)
    tuned[(1,)](x, None, 4)
    assert [*x] == [0, 2, 4, 6] and len(measured) == 2 and tuned.best_config is configs[0]
    KeptTuner.choices[3,] = configs[1]
    tuned[(1,)](x, None, 3)
    assert [*x] == [0, 4, 8, 6] and len(measured) == 2 and tuned.best_config is configs[1]


def test_a_benchmark_is_put_in_the_place_of_a_tuner_s():
    tuned = triton.autotune([triton.Config({"B": size}) for size in (16, 32)], key=["n"])(doubled)
    runs = []

    def in_place(call, quantiles=None):
        runs.append(call())
        return [10.0 - len(runs)] * len(quantiles)

    tuned._do_bench = tuned.do_bench = in_place
    tuned[(1,)](np.zeros(4, np.float32), None, 4)
    assert len(runs) == 2 and tuned.best_config.kwargs == {"B": 32}


def test_a_monitor_is_told_of_compilations(monkeypatch):
    names, plain = [], jit.serialize_specialization_data

    @functools.wraps(plain)
    def guarded(*arguments, **keywords):
        return plain(*arguments, **keywords)

    monkeypatch.setattr(jit, "serialize_specialization_data", guarded)

    def note(**facts):
        names.append((facts["fn"].name, facts["already_compiled"]))
        return before(**facts) if before is not None else None

    before = knobs.runtime.jit_post_compile_hook
    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", note)
    kernel = triton.jit(doubled.fn)
    for _ in range(2):
        kernel[(1,)](np.zeros(4, np.float32), None, 4, B=16, debug=True)
    assert len(names) == 1 and names[0][0].endswith("doubled")


@triton.jit
def applied(x_ptr, n, FUNCTION: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(x_ptr + at, FUNCTION(tl.load(x_ptr + at, at < n)), at < n)


@triton.jit
def thrice(x):
    return 3 * x


def test_a_kernel_is_specialized_by_its_source():
    """The constants become lines of the function, as in triton_kernels: a function among them by its name."""
    constants = {"FUNCTION": thrice, "B": 8}
    source = inspect.getsource(applied.fn)
    body = source[source.index(":\n") + 2 :]
    lines = [f"    {name}: tl.constexpr = {getattr(value, '__name__', value)}\n" for name, value in constants.items()]
    names = [name for name in applied.arg_names if name not in constants]
    text = f"@triton.jit\ndef applied_thrice({', '.join(names)}):\n{''.join(lines)}{body}"
    settings = {
        parameter.name: getattr(applied, parameter.name, parameter.default)
        for parameter in [*inspect.signature(triton.JITFunction.__init__).parameters.values()][2:]
    }
    base = settings["repr"]
    settings["repr"] = lambda specialization: f"{base(specialization)}_{thrice.repr(None).rpartition('.')[2]}"
    variables = {"thrice": thrice, **applied.get_capture_scope()}
    linecache.cache["<specialized>"] = (len(text), None, text.splitlines(keepends=True), "<specialized>")
    exec(compile(re.sub("@triton.jit\n", "\n", text), "<specialized>", "exec"), variables)
    kernel = triton.JITFunction(variables["applied_thrice"], **settings)
    kernel._unsafe_update_src(text[text.index("def ") :])
    x = np.arange(8, dtype=np.float32)
    kernel[(1,)](x, 5)
    assert [*x] == [0, 3, 6, 9, 12, 5, 6, 7] and kernel.repr(None).endswith("applied_thrice")


def test_a_generated_module_has_the_globals_of_a_function(tmp_path, monkeypatch):
    """As FlagGems makes its pointwise kernels."""
    text = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef generated(x_ptr, B: tl.constexpr):\n"
    text += "    at = tl.arange(0, B)\n    tl.store(x_ptr + at, thrice(tl.load(x_ptr + at)))\n"
    (tmp_path / "generated_by_test.py").write_text(text.replace("import triton", "import ziggurat.triton", 1).replace(
        "import triton.language", "import ziggurat.triton.language"
    ).replace("import ziggurat.triton\n", "import ziggurat.triton as triton\n"))  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("generated_by_test")
    for name, value in thrice.__globals__.items():
        if isinstance(value, (triton.JITFunction, types.ModuleType)):
            vars(module).setdefault(name, value)
    x = np.ones(4, np.float32)
    module.generated[(1,)](x, 4)
    assert [*x] == [3] * 4


def test_active_drivers_are_counted():
    """vLLM has Triton where exactly one driver besides that of the CPU is active."""
    drivers = [backend.driver for name, backend in triton.backends.backends.items() if name != "cpu" and backend.driver]
    assert drivers and all(driver.is_active() in (False, True) for driver in drivers)
