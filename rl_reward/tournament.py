"""The Probabilistic Pivot Tournament and its kin: which pairs to judge, and what their preferences say (paper Sec. 5).

A tournament is a generator: it yields one round of pairings, takes the preference of each, and goes on, so that the
same code is played one comparison at a time (`play`) or a whole round concurrently. No model, no clock: a
`numpy.random.Generator` comes in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rl_reward._checks import check_int
from rl_reward.errors import ConfigError

Array = NDArray[np.float64]
Method = Literal["pivots", "round_robin", "anchored"]
Stage = Literal["ring", "pivots", "round_robin", "anchored"]


@dataclass(frozen=True)
class Pairing:
    """Two candidates to be judged side by side, in this slot order only."""

    slot_a: int
    """Number of the candidate in slot A; in an anchored tournament of N candidates, reference m is number N + m."""
    slot_b: int
    """Number of the candidate in slot B."""
    stage: Stage
    """The part of the tournament that asks."""


@dataclass(frozen=True)
class Comparison:
    """A pairing and what the judge said of it."""

    pairing: Pairing
    """Who stood where."""
    preference: float
    """P(slot A beats slot B) in [0, 1]; NaN where it could not be read, which adds to no score."""
    reason: str = ""
    """Why it could not be read."""


@dataclass(frozen=True)
class Budget:
    """What a tournament asks for, known before anything is asked."""

    comparisons: int
    """Pairings that are judged."""
    calls: int
    """Requests at most: comparisons x criteria x sampled repeats; equal requests are sent once."""


Rounds = Generator[Sequence[Pairing], Sequence[float], None]
"""Yields the pairings of a round, receives their preferences in the same order (NaN: unread)."""

Compare = Callable[[int, int], float]
"""P(the first, in slot A, beats the second, in slot B) in [0, 1]; NaN where it could not be read."""


def pivot_tournament(n: int, pivots: int, rng: np.random.Generator) -> Rounds:
    """Play the Probabilistic Pivot Tournament: a ring, then every candidate against the `pivots` best of the ring.

    The ring is a uniformly random Hamiltonian cycle: each candidate stands once in slot A and once in slot B. Pivots
    are the candidates with the highest mean preference of the ring, ties in the ring's own (random) order. Then every
    non-pivot meets every pivot, and the pivots each other: N + k(N - k) + k(k - 1)/2 comparisons. A pair the ring has
    judged already is now judged in the other slot order, and the other slots are dealt so that every non-pivot stands
    as often in A as in B (up to one comparison).

    One candidate is compared with nobody. Two are fully judged by the ring (both slot orders), which ends there. More
    pivots than candidates are all candidates.

    Args:
        n: N, the number of candidates.
        pivots: k; 0 is the ring alone.
        rng: Draws the ring.
    """
    cycle = [int(i) for i in rng.permutation(n)]
    if n < 2:
        return
    ring = [Pairing(first, second, "ring") for first, second in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
    preferences = yield ring
    best = _best(cycle, mean_preferences(_judged(ring, preferences), n), pivots)
    if n > 2 and best:
        yield _pivot_round(best, [i for i in cycle if i not in best], ring)


def round_robin(n: int) -> Rounds:
    """Judge every pair in both slot orders: N(N - 1) comparisons."""
    if n > 1:
        yield [Pairing(i, j, "round_robin") for i in range(n) for j in range(n) if i != j]


def anchored(n: int, references: int) -> Rounds:
    """Judge each of N candidates against each of `references` fixed ones in both slot orders: 2 N M comparisons.

    Scores mean the same in every group judged against the same pool: 0.5 is as good as the pool.
    """
    pool = range(n, n + references)
    yield [Pairing(*slots, "anchored") for i in range(n) for m in pool for slots in ((i, m), (m, i))]


def rounds_of(n: int, *, method: Method, pivots: int, references: int, rng: np.random.Generator) -> Rounds:
    """Return the tournament of that `method`; `rng` draws the ring, `references` is the size of the pool."""
    if method == "pivots":
        return pivot_tournament(n, pivots, rng)
    return round_robin(n) if method == "round_robin" else anchored(n, references)


def play(rounds: Rounds, compare: Compare) -> list[Comparison]:
    """Return every comparison of a tournament, asking `compare` for one after another."""
    played: list[Comparison] = []
    preferences: list[float] | None = None
    try:
        while True:
            pairings = next(rounds) if preferences is None else rounds.send(preferences)
            preferences = [compare(pairing.slot_a, pairing.slot_b) for pairing in pairings]
            played += _judged(pairings, preferences)
    except StopIteration:
        return played


def mean_preferences(comparisons: Sequence[Comparison], n: int) -> Array:
    """Return w/c of each of the first `n` numbers, float [N] in [0, 1].

    w_i adds P(i beats j) over the c_i comparisons of i that were read, whichever slot i stood in; 0.5 is average. NaN
    where none was read; a candidate that is alone in its tournament has 0.5.
    """
    wins_N, count_N = np.zeros(n), np.zeros(n)
    for one in _read(comparisons):
        for number, won in ((one.pairing.slot_a, one.preference), (one.pairing.slot_b, 1.0 - one.preference)):
            if number < n:
                wins_N[number] += won
                count_N[number] += 1
    if n == 1 and not comparisons:
        return np.array([0.5])
    return np.divide(wins_N, count_N, out=np.full(n, np.nan), where=count_N > 0)


def std_errors(comparisons: Sequence[Comparison], n: int) -> Array:
    """Return the standard error of each of the `n` mean preferences, float [N].

    How far w/c would move if the same pairings were judged again: sigma / sqrt(c_i), sigma the residual standard
    deviation of the additive model P(a beats b) - 1/2 = u_a - u_b + s (s: the judge's lean to slot A) fitted by least
    squares to all read comparisons. Different opponents and a slot bias are in the model, so they are no noise. NaN
    where nothing was read or the comparisons do not outnumber what is fitted (two candidates, any ring alone).
    A new tournament may choose other pivots: then scores moved up to 1.6 times as far in simulation. Where preferences
    are far from linear in quality (a low temperature) the misfit counts as noise: 1.2 to 1.3 times too wide.
    """
    read = _read(comparisons)
    numbers = 1 + max((max(one.pairing.slot_a, one.pairing.slot_b) for one in read), default=-1)
    design = np.zeros((len(read), numbers + 1))
    count = np.zeros(max(n, numbers))
    for row, one in enumerate(read):
        slots = [one.pairing.slot_a, one.pairing.slot_b]
        design[row, slots] = 1.0, -1.0
        count[slots] += 1
    design[:, -1] = 1.0
    spare = len(read) - int(np.linalg.matrix_rank(design)) if read else 0
    if spare < 1:
        return np.full(n, np.nan)
    centred = np.array([one.preference for one in read]) - 0.5
    residual = centred - design @ np.linalg.lstsq(design, centred)[0]
    sigma = np.sqrt(residual @ residual / spare)
    return np.divide(sigma, np.sqrt(count[:n]), out=np.full(n, np.nan), where=count[:n] > 0)


def call_budget(
    n: int, *, method: Method = "pivots", pivots: int = 2, references: int = 0, criteria: int = 1, repeats: int = 1
) -> Budget:
    """Return what a tournament of `n` candidates asks for.

    Args:
        n: N, >= 1.
        method: "pivots", "round_robin" or "anchored".
        pivots: k, >= 0, for "pivots".
        references: M, the size of the pool, for "anchored".
        criteria: C, >= 1.
        repeats: K, >= 1: repeats that differ (1 where nothing is sampled).

    Raises:
        ConfigError: A value is outside its range.
    """
    check_int("candidates", n, least=1)
    check_method(method, pivots)
    check_int("references", references, least=1 if method == "anchored" else 0)
    if references and method != "anchored":
        raise ConfigError(f'references belong to method "anchored", got {references} with {method!r}')
    for name, value in (("criteria", criteria), ("repeats", repeats)):
        check_int(name, value, least=1)
    k = min(pivots, n)
    law = n + k * (n - k) + k * (k - 1) // 2 if n > 2 else n
    counts = {
        "pivots": law if n > 1 else 0,
        "round_robin": n * (n - 1),
        "anchored": 2 * n * references,
    }
    return Budget(counts[method], counts[method] * criteria * repeats)


def check_method(method: str, pivots: int) -> None:
    """Raise ConfigError unless `method` is known and `pivots` is an integer of at least 0."""
    if method not in get_args(Method):
        raise ConfigError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    check_int("pivots", pivots, least=0)


def _best(cycle: Sequence[int], scores_N: Array, k: int) -> list[int]:
    """Return the k best of the ring; a sort that is stable over the ring leaves ties to chance, not to position."""
    return sorted((i for i in cycle if not np.isnan(scores_N[i])), key=lambda i: -round(scores_N[i], 9))[:k]


def _pivot_round(pivots: Sequence[int], others: Sequence[int], ring: Sequence[Pairing]) -> list[Pairing]:
    asked = {(pairing.slot_a, pairing.slot_b) for pairing in ring}
    pairs = [(i, p) for i in others for p in pivots] + [(p, q) for m, p in enumerate(pivots) for q in pivots[:m]]
    # Pairs whose slots the ring has settled come first: the free ones then balance what is left.
    pairs.sort(key=lambda pair: pair not in asked and pair[::-1] not in asked)
    lean: dict[int, int] = defaultdict(int)
    found: list[Pairing] = []
    for first, second in pairs:
        if (first, second) in asked or ((second, first) not in asked and _leans(first, second, lean, pivots)):
            first, second = second, first
        lean[first] += 1
        lean[second] -= 1
        found.append(Pairing(first, second, "pivots"))
    return found


def _leans(first: int, second: int, lean: dict[int, int], pivots: Sequence[int]) -> bool:
    """Return whether `first` has stood in slot A too often; a non-pivot goes first, as it meets fewer."""
    if first in pivots:
        return lean[first] > lean[second]
    return (lean[first] or -lean[second]) > 0


def _judged(pairings: Sequence[Pairing], preferences: Sequence[float]) -> list[Comparison]:
    return [Comparison(pairing, value) for pairing, value in zip(pairings, preferences, strict=True)]


def _read(comparisons: Sequence[Comparison]) -> list[Comparison]:
    return [one for one in comparisons if not np.isnan(one.preference)]
