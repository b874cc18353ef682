"""A folder for the path of child processes: its `triton` makes `import triton` give `ziggurat.triton` there."""
