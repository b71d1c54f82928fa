"""What was seen of each request, kept in a file so that two runs can be compared later."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from extproc.bench.workload import BenchOptions
from extproc.domain.errors import ConfigError

OK = "ok"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen of one request.

    Attributes:
        priority_class: asked for.
        sent_s: when, after the start.
        late_s: how much later than it should have been; the generator's own fault.
        outcome: `OK` for a whole answer; or the status and `x-forebay-reason`; or what went wrong.
        e2e_s: from sending to the end of the answer.
        ttft_s: from sending to the first event of a stream; None without any.
        queue_wait_s: what `x-forebay-queue-wait-ms` says; None without it.
    """

    priority_class: str
    sent_s: float
    late_s: float
    outcome: str
    e2e_s: float
    ttft_s: float | None
    queue_wait_s: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        started_at: ISO 8601, UTC.
        duration_s: of sending, without the warm-up.
        options: of the run, for readers; headers, which may hold keys, are left out.
        samples: in order of sending, the warm-up left out.
    """

    started_at: str
    duration_s: float
    options: dict[str, Any]
    samples: tuple[Sample, ...]

    @property
    def has_answers(self) -> bool:
        """True if any request was answered in whole."""
        return any(sample.outcome == OK for sample in self.samples)

    def save(self, path: Path) -> None:
        """Write the run to a file.

        Raises:
            ConfigError: it cannot be written.
        """
        try:
            path.write_bytes(orjson.dumps({"format": _FORMAT, **asdict(self)}))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a run from a file.

        Raises:
            ConfigError: it cannot be read, or is none of ours.
        """
        try:
            document = orjson.loads(path.read_bytes())
            if document.pop("format") != _FORMAT:
                raise ConfigError(f"{path}: written by another version of `forebay bench`")
            samples = tuple(Sample(**sample) for sample in document.pop("samples"))
            return cls(samples=samples, **document)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}: not a result of `forebay bench`") from error


def describe(options: BenchOptions) -> dict[str, Any]:
    """Return options as a result keeps them."""
    described = asdict(options)
    del described["headers"]
    return described
