"""Which pass broke it: `zg.bisect`, docs/guides/bisecting.md."""
