"""Print the MLIR that the C++ Triton makes of kernels, in a Python that has Triton. No GPU is needed.

    python print_with_triton.py REQUESTS.json

The file has a list of requests: `file`, a Python file with kernels of Triton; `kernel`, its name; `signature`, the type
of each run-time argument by its parameter (`"*fp32"`, `"i32"`, `"tensordesc<fp16[64,64]>"`); `constexprs`, the values
of the other parameters, where {"dtype": "float16"} is a dtype and {"function": "name"} is a function of the file;
`divisible`, the parameters whose values are divisible by 16; and `options` of the compilation. Prints one JSON object a
line: `text`, or `error`.
"""

import ast
import json
import os
import sys
import traceback
import warnings

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 warns where it is unset.

import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

TARGET = GPUTarget("cuda", 90, 32)
FILES = {}


def names_of(file):
    """The functions of a file. Statements that fail, because they ask for a GPU, are skipped, as are plain calls."""
    if file not in FILES:
        with open(file, encoding="utf-8") as source:
            tree = ast.parse(source.read(), file)
        names = {"__name__": "kernels", "__file__": file}
        for statement in tree.body:
            if isinstance(statement, (ast.Expr, ast.If)):
                continue
            if isinstance(statement, ast.FunctionDef):  # An autotuner asks for a GPU.
                statement.decorator_list = [d for d in statement.decorator_list if "jit" in ast.unparse(d)]
            try:
                exec(compile(ast.Module([statement], []), file, "exec"), names)
            except Exception:
                continue
        FILES[file] = names
    return FILES[file]


def constant(value, names):
    if isinstance(value, dict) and "dtype" in value:
        return getattr(tl, value["dtype"])
    return names[value["function"]] if isinstance(value, dict) else value


def printed(request):
    """The MLIR text of a request."""
    names = names_of(request["file"])
    kernel = names[request["kernel"]]
    while not isinstance(kernel, triton.runtime.JITFunction):
        kernel = kernel.fn
    constexprs = {name: constant(value, names) for name, value in request.get("constexprs", {}).items()}
    signature = {name: request["signature"].get(name, "constexpr") for name in kernel.arg_names}
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in request.get("divisible", ())}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attributes)
    backend = make_backend(TARGET)
    options = backend.parse_options(request.get("options", {}))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(
        TARGET, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    if request.get("stage", "ttir") == "ttir":
        module = backend.make_ttir(module, {}, options, 90)
    return str(module)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with open(sys.argv[1], encoding="utf-8") as requests:
        for request in json.load(requests):
            try:
                results = {"text": printed(request), "version": triton.__version__}
            except Exception:
                results = {"error": traceback.format_exc()}
            print(json.dumps(results), flush=True)
