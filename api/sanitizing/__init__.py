"""Sanitised launches: `kernel[grid](…, sanitize=…)`, `zg.sanitized`, and `pytest --ziggurat-sanitize`."""
