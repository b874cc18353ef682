"""A simulated GPU: emitted code run thread by thread on the host; races and stray accesses are errors."""

# The default limit of instructions in a program: about half a minute of simulation.
MAX_STEPS = 500_000
