"""Machine code for this process: objects that LLVM makes, kept on disk, linked, and shown to profilers."""
