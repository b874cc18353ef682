"""`triton.language.extra.cuda.utils`: what a program on the GPU asks about itself."""

from __future__ import annotations

from ziggurat.frontends.triton.triton_library import SPELLED

globals().update({name: SPELLED[name] for name in ("globaltimer", "num_threads", "num_warps", "smid")})
