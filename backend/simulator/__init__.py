"""A simulated GPU: emitted code run thread by thread on the host; races and stray accesses are errors."""
