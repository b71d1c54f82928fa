"""Poisson load against a running gateway, and what came of it: percentiles by class, and two runs compared.

`workload.py` says what is sent, `load.py` sends it, `result.py` keeps what was seen, `report.py` shows it.
`wire.py` and `meters.py` serve `bench/gateway.py`, which measures what Forebay itself costs.
"""

from extproc.bench import report
from extproc.bench.load import run_bench
from extproc.bench.result import Result, Sample
from extproc.bench.workload import BenchOptions, ClassLoad

__all__ = ["BenchOptions", "ClassLoad", "Result", "Sample", "report", "run_bench"]
