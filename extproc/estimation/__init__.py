"""How many tokens a request asks for: bodies are read and counted in worker threads, within bounds.

`TiktokenEstimator.appraise` is what the request loop calls; `explain` is what `forebay estimate` prints.
"""

from extproc.estimation.settings import EstimationSettings, MediaSettings
from extproc.estimation.tiktoken_estimator import Appraisal, TiktokenEstimator

__all__ = ["Appraisal", "EstimationSettings", "MediaSettings", "TiktokenEstimator"]
