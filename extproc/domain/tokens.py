"""Tokens: asked for (`Demand`) and booked (`Estimate`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request body asks for, before any limit of the pool is applied.

    Attributes:
        prompt_tokens: tokens the engine will see as input, all prompts together.
        max_output_tokens: the client's limit for one answer, or None where it gave none.
        answers: how many answers are generated side by side, over all prompts (`n`, `best_of`); 0 for
            endpoints that generate nothing, such as embeddings.
        prompts: how many prompts the body has; each has the context for itself.
        is_exact: False where a part was extrapolated instead of counted.
    """

    prompt_tokens: int
    max_output_tokens: int | None = None
    answers: int = 1
    prompts: int = 1
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens a request is expected to hold in the engines' KV caches until it ends."""

    prompt_tokens: int
    output_tokens: int

    @property
    def reservation_tokens(self) -> int:
        """Tokens to book; at least one, so that no request is free."""
        return max(1, self.prompt_tokens + self.output_tokens)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a response took, as its engine reports them; None where it does not say.

    Attributes:
        prompt_tokens: of the prompt, those from a cache included.
        output_tokens: of all answers.
        cached_tokens: of the prompt, from a cache.
        is_guess: the engine did not say; the size of the body tells.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    is_guess: bool = False
