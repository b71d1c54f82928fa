"""The dialects clients speak: which paths are inference calls, what their bodies ask for, how we refuse.

Pure: bytes in, values out. `recognise` a path, `read` a body, write an `error_body`.
"""

from extproc.dialects.body import Dialect, InferenceBody
from extproc.dialects.endpoints import Endpoint, recognise
from extproc.dialects.prompt import Media, MediaKind, Part, Section, Text, TokenIds, Turn, Unseen
from extproc.dialects.reading import BodyLimits, read
from extproc.dialects.refusals import error_body

__all__ = [
    "BodyLimits",
    "Dialect",
    "Endpoint",
    "InferenceBody",
    "Media",
    "MediaKind",
    "Part",
    "Section",
    "Text",
    "TokenIds",
    "Turn",
    "Unseen",
    "error_body",
    "read",
    "recognise",
]
