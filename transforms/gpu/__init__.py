"""From a Triton model to a GPU model: layouts, shared memory, matrix units and barriers."""
