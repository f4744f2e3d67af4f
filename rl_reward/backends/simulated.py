"""A judge whose true answers are known, with faults to order; for tests and controlled studies only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rl_reward._checks import check_int, check_number
from rl_reward.backends.base import Reply, Request, Token
from rl_reward.errors import ConfigError
from rl_reward.scale import ScoreScale
from rl_reward.types import Candidate, Trajectory, Usage

_COVERAGE = 0.98


class Simulated:
    """Turns a known quality into the reply of a judge; always named simulated(...) where it shows.

    The quality q in [0, 1] becomes Binomial(L - 1, q) over the L levels, whose expectation is exactly q. Before that

        q <- clip(clip(truth + noise * N(0, 1) + bias + slot_bias [slot A] + length_bias * characters / 1000)
                  / (1 - saturation))

    The noise belongs to what is asked about and not to how a prompt words it; `draw` and `seed` change it.
    """

    sees_data = True

    def __init__(
        self,
        truth: Callable[[Request], float],
        *,
        noise: float = 0.0,
        bias: float = 0.0,
        saturation: float = 0.0,
        slot_bias: float = 0.0,
        length_bias: float = 0.0,
        unscored_rate: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Configure the judge.

        Args:
            truth: The quality in [0, 1] of `request.candidate` under `request.task` and `request.criterion`; the last
                step's `data` holds privileged truth. Asked once per candidate of a pair.
            noise: Standard deviation of the error, >= 0.
            bias: Added to every quality.
            saturation: Qualities above 1 - saturation cannot be told from 1; in [0, .999].
            slot_bias: Added to the candidate in slot A of a pair.
            length_bias: Added per 1,000 characters of the candidate.
            unscored_rate: Share of replies without a verdict, in [0, 1].
            seed: Seed of the noise.

        Raises:
            ConfigError: A number is outside its range.
        """
        check_number("noise", noise, least=0)
        check_number("saturation", saturation, least=0, most=0.999)
        check_number("unscored_rate", unscored_rate, least=0, most=1)
        for name, value in (("bias", bias), ("slot_bias", slot_bias), ("length_bias", length_bias)):
            check_number(name, value)
        check_int("seed", seed, least=0)
        self._truth, self._seed = truth, seed
        self._noise, self._bias, self._saturation = noise, bias, saturation
        self._slot_bias, self._length_bias, self._unscored_rate = slot_bias, length_bias, unscored_rate
        faults = {
            "noise": noise,
            "bias": bias,
            "saturation": saturation,
            "slot_bias": slot_bias,
            "length_bias": length_bias,
            "unscored_rate": unscored_rate,
        }
        self.name = f"simulated({', '.join(f'{name}={value:g}' for name, value in faults.items() if value)})"

    async def reply(self, request: Request) -> Reply:
        """Answer with the distribution of the (faulty) quality at every tag."""
        random = np.random.default_rng([self._seed, int(request.subject[:16], 16)])
        usage = Usage(calls=1, prompt_tokens=sum(len(m.text) for m in request.messages) // 4, completion_tokens=1)
        if random.random() < self._unscored_rate:
            return Reply((Token("I cannot rate this."),), "I cannot rate this.", usage=usage)
        tokens: list[Token] = []
        for slot, (tag, candidate) in enumerate(zip(request.tags, request.candidates, strict=True)):
            quality = self._judged(replace(request, candidates=(candidate,)), slot, float(random.standard_normal()))
            tokens += [Token(f"<{tag}>"), _level_token(request.scale, quality), Token(f"</{tag}>")]
        return Reply(tuple(tokens), "".join(token.text for token in tokens), usage=usage)

    async def aclose(self) -> None:
        """Nothing to free."""

    def _judged(self, request: Request, slot: int, error: float) -> float:
        """Return the quality this judge sees, in [0, 1]."""
        truth = float(self._truth(request))
        if not 0.0 <= truth <= 1.0:
            raise ConfigError(f"the truth of a simulated judge must be in [0, 1], got {truth}")
        lean = self._slot_bias if len(request.tags) == 2 and slot == 0 else 0.0
        lean += self._length_bias * len(_text(request.candidate)) / 1000
        seen = min(max(truth + self._noise * error + self._bias + lean, 0.0), 1.0)
        return min(seen / (1.0 - self._saturation), 1.0)


def _level_token(scale: ScoreScale, quality: float) -> Token:
    """Return the level token whose alternatives are Binomial(L - 1, quality), a little mass staying off the scale."""
    top = len(scale) - 1
    mass = [math.comb(top, g) * quality**g * (1.0 - quality) ** (top - g) * _COVERAGE for g in range(top + 1)]
    logprobs = [(level, math.log(p)) for level, p in zip(scale.levels, mass, strict=True) if p > 0.0]
    level, logprob = max(logprobs, key=lambda pair: pair[1])
    return Token(level, logprob, (*logprobs, ("\n", math.log(1.0 - _COVERAGE))))


def _text(candidate: Candidate) -> str:
    return candidate.text if isinstance(candidate, Trajectory) else candidate
