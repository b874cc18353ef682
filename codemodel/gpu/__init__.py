"""GPU facts: the targets, the options of compilation, the layouts of the matrix units, and the GPU dialect."""
