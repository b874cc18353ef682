"""The compiler: from a kernel's Python model to a `Compiled`, with every stage kept."""
