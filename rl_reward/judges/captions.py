"""A judge of single states: each distinct caption is asked once, alone, and anchored on the task's start and goal."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rl_reward._checks import check_text
from rl_reward.errors import BackendError, ConfigError
from rl_reward.progress import anchor, checkpoints, hold
from rl_reward.scores import ProgressCurve, Score
from rl_reward.types import Step, Usage
from rl_reward.verifier import Verifier

Caption = tuple[str, str]
"""A task and the text of a state."""


@dataclass(frozen=True)
class Anchors:
    """Captions of the two ends of a task, taken from the task and never from an episode; several are averaged."""

    start: tuple[str, ...]
    """What is seen before anything is done, at least one."""
    goal: tuple[str, ...]
    """What is seen when the task is solved, at least one."""

    def __post_init__(self) -> None:
        """Refuse an end without captions."""
        for end, texts in (("start", self.start), ("goal", self.goal)):
            if isinstance(texts, str) or not texts:
                raise ConfigError(f"the {end} needs a tuple of at least 1 caption, got {texts!r:.80}")
            for text in texts:
                check_text(f"a caption of the {end}", text)


class CaptionJudge:
    """A `ProgressJudge` for which the progress of a step is the verifier's score of that step's text, alone.

        progress_t = clip((R(x, text_t) - R_start) / (R_goal - R_start), 0, 1)

    with R_start and R_goal the mean scores of the captions in `anchors`, or R(x, text_t) itself without them. The text
    of a step says all that a camera shows then; what came before tells a small model little and makes every step a new
    question. Images and `Step.data` are left out.

    Every distinct caption is asked once, however often it is seen: the new ones of a call in one batch. A caption whose
    answer held no score stays unscored; one that got no answer (timeout, error) is asked again when it is next seen.
    Pickling keeps what is known. Calls from several threads follow one another.
    """

    def __init__(self, verifier: Verifier, *, anchors: Anchors | None = None) -> None:
        """Judge with `verifier`; `anchors` stretch its scores over [0, 1], None leaves them as they are."""
        self.verifier, self.anchors = verifier, anchors
        self.asked = 0
        """Captions put to the verifier so far, those of the anchors included."""
        self._scores: dict[Caption, Score] = {}
        self._calls = threading.Lock()

    @property
    def name(self) -> str:
        """Who judges, as tables call it."""
        return f"caption({self.verifier.name})"

    @property
    def distinct(self) -> int:
        """Distinct captions seen so far, those of the anchors included; `asked` is no higher unless requests failed."""
        return len(self._scores)

    def track_many(self, episodes: Sequence[tuple[str, Sequence[Step]]], *, every: int = 1) -> list[ProgressCurve]:
        """Return the progress of (task, steps) episodes; `scores` of a curve are those before anchoring.

        Raises:
            BackendError: The verifier cannot serve at all, or a caption of the anchors has no score.
            ConfigError: The verifier does not score the goal above the start.
        """
        seen = [
            (task, {step: (task, steps[step].text) for step in checkpoints(len(steps), every)}, len(steps))
            for task, steps in episodes
        ]
        with self._calls:
            ends = {caption for task, _, _ in seen for end in self._ends(task) for caption in end}
            unpaid = self._learn([*ends, *(caption for _, captions, _ in seen for caption in captions.values())])
            curves = [self._curve(task, captions, length, unpaid) for task, captions, length in seen]
        if unpaid:  # the anchors
            curves[0] = replace(curves[0], usage=sum(unpaid.values(), curves[0].usage))
        return curves

    def _ends(self, task: str) -> tuple[list[Caption], list[Caption]]:
        if self.anchors is None:
            return [], []
        return [(task, text) for text in self.anchors.start], [(task, text) for text in self.anchors.goal]

    def _learn(self, captions: Sequence[Caption]) -> dict[Caption, Usage]:
        """Ask about the captions that have no answer yet and return what each cost."""
        new = [caption for caption in dict.fromkeys(captions) if self._is_open(caption)]
        if not new:
            return {}
        # As an episode of one step: the verifier asks how far the task is, and the step is all it sees.
        curves = self.verifier.track_many([(task, [text]) for task, text in new])
        found = {caption: curve.scores[0] for caption, curve in zip(new, curves, strict=True)}
        self.asked += len(new)
        self._scores.update({caption: replace(score, usage=Usage()) for caption, score in found.items()})
        return {caption: score.usage for caption, score in found.items()}

    def _is_open(self, caption: Caption) -> bool:
        return caption not in self._scores or self._scores[caption].status in ("timeout", "error")

    def _curve(
        self, task: str, captions: dict[int, Caption], length: int, unpaid: dict[Caption, Usage]
    ) -> ProgressCurve:
        """Return one curve; it takes what it pays for out of `unpaid`."""
        scores = {step: self._scores[caption] for step, caption in captions.items()}
        usage = sum((unpaid.pop(caption, Usage()) for caption in captions.values()), Usage())
        held = hold({step: score.value for step, score in scores.items()}, length)
        return ProgressCurve(self._anchored(task, held.values_S), held.scored_S, scores, usage)

    def _anchored(self, task: str, values_S: Any) -> Any:
        if self.anchors is None:
            return values_S
        start, goal = (self._mean(end) for end in self._ends(task))
        return anchor(values_S, start=start, goal=goal)

    def _mean(self, captions: Sequence[Caption]) -> float:
        scores = [self._scores[caption] for caption in captions]
        values = [score.value for score in scores if score.value is not None]
        if len(values) < len(scores):
            text, lost = next((c[1], s) for c, s in zip(captions, scores, strict=True) if s.value is None)
            raise BackendError(f"no score for the anchor {text!r:.80}: {lost.reason}; change the caption or the judge")
        return float(np.mean(values))

    def __getstate__(self) -> dict[str, Any]:
        # The copy is one step of the interpreter: a checkpoint may be written while a thread asks.
        return {**self.__dict__, "_scores": dict(self._scores), "_calls": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._calls = threading.Lock()
