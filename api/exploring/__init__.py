"""A kernel at every tier in one page: `zg.explore`, docs/guides/exploring.md."""
