"""Triton-C: from its source to the Python code model. Importing this package imports neither the parser nor the
preprocessor; its modules do."""
