"""`triton.backends.nvidia`: the tools and the driver of NVIDIA on this machine."""
