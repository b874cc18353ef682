"""Native code for the CPU: a CPU model becomes LLVM text, an object file, and a launch."""
