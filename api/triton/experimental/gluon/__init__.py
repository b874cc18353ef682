"""`triton.experimental.gluon`: kernels in Gluon can be defined, so that libraries that have some can be imported. What
would compile one, such as a launch, is refused."""

from ziggurat.frontends.triton.compile_time import constexpr_function, must_use_result
from ziggurat.triton.experimental.gluon import language
from ziggurat.triton.experimental.gluon._runtime import jit

__all__ = ["constexpr_function", "jit", "language", "must_use_result"]
