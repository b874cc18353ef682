"""Any Python function as a code model: every statement and expression, with names from outside as names."""
