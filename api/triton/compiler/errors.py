"""The errors of compilation, under Triton's names."""

from ziggurat.codemodel.errors import ZigguratError

# Each error of a kernel is one of these: its class says which.
CompilationError = CompileTimeAssertionFailure = UnsupportedLanguageConstruct = ZigguratError

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"]
