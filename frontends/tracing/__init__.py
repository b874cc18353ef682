"""Tracing: from a Python function run on symbolic values to the Python code model."""

from ziggurat.frontends.tracing.control import for_, if_, while_
from ziggurat.frontends.tracing.trace import Trace, begin, finished, recording, trace_function

__all__ = ["Trace", "begin", "finished", "for_", "if_", "recording", "trace_function", "while_"]
