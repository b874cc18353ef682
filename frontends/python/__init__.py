"""Any Python function as a code model: every statement and expression, names from outside as names."""
