"""A simulated GPU: emitted code run thread by thread on the host, with races and stray accesses reported."""
