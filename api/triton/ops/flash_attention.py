"""`triton.ops.flash_attention` of Triton 2.1 to 3.1."""

from ziggurat.triton.ops import attention as attention
