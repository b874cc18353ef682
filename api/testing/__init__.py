"""Tests and measurements of kernels and passes: `check`, `assert_close`, `assert_same`, `do_bench`, `perf_report`.

import ziggurat as zg

milliseconds = zg.testing.do_bench(lambda: kernel[grid](x, out, n))
zg.testing.assert_close(out, 2 * x)
"""

from ziggurat.backend.cuda.gpu_timing import do_bench
from ziggurat.testing.comparison import assert_close, assert_same
from ziggurat.testing.passes import check
from ziggurat.testing.reports import Benchmark, Report, Table, perf_report

__all__ = ["Benchmark", "Report", "Table", "assert_close", "assert_same", "check", "do_bench", "perf_report"]
