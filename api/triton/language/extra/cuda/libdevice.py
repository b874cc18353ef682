"""`triton.language.extra.cuda.libdevice`: CUDA's functions of numbers."""

from ziggurat.triton.language.extra.libdevice import __dir__ as __dir__
from ziggurat.triton.language.extra.libdevice import __getattr__ as __getattr__
