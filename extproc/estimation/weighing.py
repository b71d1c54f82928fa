"""From the parts of a prompt to its tokens."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from extproc.dialects import InferenceBody, Media, MediaKind, Section, Text, TokenIds, Turn
from extproc.estimation.media_rules import media_tokens
from extproc.estimation.settings import EstimationSettings
from extproc.estimation.text_counter import TextCounter
from extproc.estimation.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Weight:
    """The tokens of a prompt and where they come from.

    Attributes:
        by_section: tokens of text and token ids.
        media: each medium's kind and tokens, in order.
        framing: tokens the chat template adds.
        is_exact: False where a part was extrapolated, had to go by a rule, or cannot be seen.
        bound: tokens the engine cuts the prompt to, or None.
    """

    by_section: dict[Section, int]
    media: list[tuple[MediaKind, int]]
    framing: int
    is_exact: bool
    bound: int | None

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the prompt, as the engine will see it."""
        whole = sum(self.by_section.values()) + sum(tokens for _, tokens in self.media) + self.framing
        return whole if self.bound is None else min(whole, self.bound)


def weigh(
    body: InferenceBody, tokenizer: Tokenizer | None, counter: TextCounter, settings: EstimationSettings
) -> Weight:
    """Return the weight of a body's prompt; without a tokenizer, texts are weighed by their size."""
    texts = [part.text for part in body.prompt if isinstance(part, Text)]
    counts = iter(counter.skim(texts) if tokenizer is None else counter.count(tokenizer, texts))
    by_section: defaultdict[Section, int] = defaultdict(int)
    media: list[tuple[MediaKind, int]] = []
    turns, is_exact = 0, True
    for part in body.prompt:
        if isinstance(part, Text):
            count = next(counts)
            by_section[part.section] += count.tokens * part.times
            is_exact = is_exact and count.is_exact
        elif isinstance(part, Turn):
            turns += 1
        elif isinstance(part, TokenIds):
            by_section[part.section] += part.tokens * part.times
        else:
            is_exact = False
            if isinstance(part, Media):
                media.append((part.kind, media_tokens(part, settings.media) * part.times))
    framing = turns * settings.turn_tokens + settings.reply_tokens if turns else 0
    bound = None if body.truncate_tokens is None else body.truncate_tokens * body.prompts
    return Weight(dict(by_section), media, framing, is_exact, bound)
