"""The place of Triton's C++ compiler, of which programs call one part: cuBLAS (`libtriton`)."""
