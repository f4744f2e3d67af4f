"""Groups over processes: the shares by hand, then two and three real CPU processes, then a GRPOTrainer on two."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import gloo_ranks
import numpy as np
import pytest
from gloo_ranks import on_ranks

from rl_reward.adapters.trl.agreement import agreed
from rl_reward.adapters.trl.processes import Alone, judged_together, processes, shared_out
from rl_reward.errors import BackendError, ConfigError
from rl_reward.step_credit import credit, spread_of

# ------------------------------------------------------------------------------------------------------ one process


def test_groups_are_shared_by_what_they_cost():
    assert shared_out([1, 1, 1, 1, 1, 1, 1], 3) == [[0, 3, 6], [1, 4], [2, 5]]
    assert shared_out([1, 4, 1, 1, 1], 2) == [[1], [0, 2, 3, 4]]
    assert shared_out([1, 1], 3) == [[0], [1], []]
    assert shared_out([1, 4, 2], 1) == [[0, 1, 2]], "the judge reads them in the order of the batch"


def test_one_process_judges_all_at_once_and_hands_errors_on_as_they_are():
    verdicts = asyncio.run(judged_together("abcd", 2, gloo_ranks.judge_on(0), Alone()))
    assert verdicts == [
        ("a", 0, ["a", "b"], 0),
        ("b", 1, ["a", "b"], 0),
        ("c", 0, ["c", "d"], 0),
        ("d", 1, ["c", "d"], 0),
    ]

    async def fails():
        raise KeyError("gold")

    with pytest.raises(KeyError, match="gold"):
        asyncio.run(agreed(fails(), Alone()))


def test_one_process_needs_no_torch():
    script = """
import asyncio, sys
from rl_reward.adapters.trl.processes import judged_together, processes
async def judge(groups): return groups
assert asyncio.run(judged_together([1, 2], 2, judge, processes())) == [1, 2]
print(*{"torch", "accelerate", "trl"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_processes_that_nobody_connected_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2 but"):
        processes()


# -------------------------------------------------------------------------------------------------- several processes


@pytest.mark.parametrize(
    ("rows_by_rank", "group_size", "groups", "shares"),
    [
        # Per-device batch 3, 2 generations: the middle group is on both processes.
        ([["5a", "5b", "4a"], ["4b", "2a", "2b"]], 2, [["5a", "5b"], ["4a", "4b"], ["2a", "2b"]], [(0, 2), (1, 1)]),
        ([["1a"], ["1b"], ["1c"]], 3, [["1a", "1b", "1c"]], [(0, 1)]),
        # One process has more rows than the others, one has none.
        ([["1a", "1b", "2a"], [], ["2b"]], 2, [["1a", "1b"], ["2a", "2b"]], [(0, 1), (1, 1)]),
    ],
)
def test_every_row_is_judged_in_its_group(rows_by_rank, group_size, groups, shares):
    ends = on_ranks(len(rows_by_rank), gloo_ranks.judges, rows_by_rank, group_size)
    of_row = {row: group for group in groups for row in group}
    for rows, end in zip(rows_by_rank, ends, strict=True):
        assert [verdict[:3] for verdict in end.value] == [(row, of_row[row].index(row), of_row[row]) for row in rows]
    assert gloo_ranks.judged_where(ends) == shares


def test_the_work_is_shared_evenly():
    rows = [[f"{rank}{row}" for row in range(7)] for rank in range(3)]
    assert gloo_ranks.judged_where(on_ranks(3, gloo_ranks.judges, rows, 3)) == [(0, 3), (1, 2), (2, 2)]


def test_a_repeated_prompt_makes_two_groups():
    (first, second) = on_ranks(2, gloo_ranks.judges, [["same"] * 3, ["same"] * 3], 2)
    # Groups 0 and 2 are judged by process 0, group 1 by process 1, though all rows are equal.
    assert [(place, rank) for _, place, _, rank in [*first.value, *second.value]] == [
        *[(0, 0), (1, 0), (0, 1)],
        *[(1, 1), (0, 0), (1, 0)],
    ]


def test_evaluation_has_another_group_size():
    (first, second) = on_ranks(2, gloo_ranks.judges_twice, ["abc", "def"], (2, 3))
    for end in (first, second):
        same, _ = end.value
        assert same, "a second call creates no second process group"
    (train, held_out), (train_1, held_out_1) = first.value[1], second.value[1]
    assert ["".join(group) for _, _, group, _ in [*train, *train_1]] == ["ab", "ab", "cd", "cd", "ef", "ef"]
    assert ["".join(group) for _, _, group, _ in [*held_out, *held_out_1]] == ["abc"] * 3 + ["def"] * 3


def test_two_rewards_at_once_do_not_mix():
    (first, second) = on_ranks(2, gloo_ranks.runs_two_rewards, ("a", "b"))
    assert first.value == [[["0: 00", "0: 01", "0: 02"]] * 2, [["1: 00", "1: 01", "1: 02"]] * 2]
    assert second.value == [[["0: 10", "0: 11", "0: 12"]] * 2, [["1: 10", "1: 11", "1: 12"]] * 2]


# ------------------------------------------------------------------------------------------------------------- errors


def test_what_one_process_raises_all_raise():
    cases = [
        (("backend", [1]), BackendError, "process 1: no such model: m"),
        (("config", [1]), ConfigError, "process 1: criteria must be named"),
        (("other", [0]), BackendError, "process 0: KeyError: 'gold'"),
        (("unpicklable", [1]), BackendError, "process 1: Locked: two lines"),
        (("short", [1]), BackendError, "process 1: the judge returned [1] verdicts for groups of [2] rows"),
        (("backend", [1, 2]), BackendError, "process 1: no such model: m (process 2 raised an error too)"),
    ]
    for end in on_ranks(3, gloo_ranks.each, gloo_ranks.fails, [case for case, _, _ in cases]):
        assert end.value == [(error, message) for _, error, message in cases]


def test_bad_rows_of_one_process_are_refused_on_all():
    cases = {
        "column": "process 1: reference column 'gold' is not in the dataset",
        "unpicklable": "process 1: what one process tells the others must pickle, got TypeError: cannot pickle",
        "sizes": "group_size must be the same on all processes, got [2, 1]",
        "none": "process 1: group_size must be an integer of at least 1, got 0",
        "odd": "4 rows of 2 processes do not fill groups of 3",
        "large": "process 1: one process may tell the others 8 bytes in one batch, got",
    }
    (first, second) = on_ranks(2, gloo_ranks.each, gloo_ranks.has_bad_rows, [(fault,) for fault in cases])
    assert first == second
    for (error, told), message in zip(first.value, cases.values(), strict=True):
        assert error is ConfigError
        assert told.startswith(message)


def test_a_judge_that_hangs_is_given_up_on_all():
    for end in on_ranks(2, gloo_ranks.fails, "hangs", [1], 5.0):
        told = "process 1: the judge has not finished 2 rows within 4.5 s"
        assert (end.error, end.message) == (BackendError, told)


def test_a_judge_that_blocks_its_process_is_named_by_the_others():
    first, blocked, third = on_ranks(3, gloo_ranks.fails, "blocks", [1], 3.0)
    told = "process 1 sent nothing within 3 s; look at its output for the first error"
    assert (first.error, first.message) == (third.error, third.message) == (BackendError, told)
    assert blocked.error is BackendError


def test_a_process_that_dies_is_named_by_the_others():
    first, dead, third = on_ranks(3, gloo_ranks.fails, "dies", [1])
    assert dead.exitcode == 3
    told = "process 1 is gone; look at its output for the first error"
    assert (first.error, first.message) == (third.error, third.message) == (BackendError, told)


def test_a_process_that_never_comes_is_waited_for_no_longer_than_allowed():
    first, dead, third = on_ranks(3, gloo_ranks.dies_before_the_first_call)
    assert dead.exitcode == 3
    for end in (first, third):
        assert end.error is BackendError
        assert "waited 2 s for all 3 processes to call the reward" in end.message


def test_a_check_that_fails_on_one_process_fails_on_all_and_leaves_the_training_collectives_in_step():
    for end in on_ranks(2, gloo_ranks.agrees):
        assert end.value == ([[0, 10], "process 1: 9 of the last 12 rows are unscored"], [0, 1])


# --------------------------------------------------------------------------------------------------- the real trainer


def test_a_trainer_on_two_processes_gets_the_rewards_of_one(tmp_path):
    (first, second) = on_ranks(2, gloo_ranks.trains, str(tmp_path))
    assert (first.message, second.message) == ("", "")
    (calls, advantages, size), (calls_1, advantages_1, _) = first.value, second.value
    assert size == 2
    paid = {"letters": [], "digits": []}
    for (name, training, *columns), (name_1, training_1, *columns_1) in zip(calls, calls_1, strict=True):
        assert (name, training) == (name_1, training_1)
        prompts, completions, given = (one + other for one, other in zip(columns, columns_1, strict=True))
        size = 2 if training else 3
        assert all(prompt == prompts[row - row % size] for row, prompt in enumerate(prompts)), "TRL's own order"
        # pytest has no process group: this reward judges all rows of the batch, in one process.
        alone = {reward.__name__: reward for reward in gloo_ranks.rewards_for(size)}[name]
        assert given == pytest.approx(asyncio.run(alone(prompts, completions)))
        paid[name].append((training, given))
    assert [training for training, _ in paid["letters"]] == [True, True, False, False, False]
    for seen, seen_1, (_, letters), (_, digits) in zip(advantages, advantages_1, *paid.values(), strict=True):
        # TRL subtracts the mean of what it takes for a group: nothing is left to subtract if ours are the same.
        assert seen + seen_1 == pytest.approx([a + b for a, b in zip(letters, digits, strict=True)], abs=1e-5)
        assert max(map(abs, letters)) > 0.5


def test_step_credit_of_a_group_on_two_processes_is_that_of_the_whole_group(tmp_path):
    ends = on_ranks(2, gloo_ranks.credits, str(tmp_path))
    assert [end.message for end in ends] == ["", ""]
    rows = [row for end in ends for row in end.value]
    assert len(rows) == 6, "three groups of 2 over two batches of 3: the second group straddles"
    moved = 0
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        group = spread_of([np.array(first[0]), np.array(second[0])])
        for curve, starts, advantages in (first, second):
            right = 0.5 * credit(np.array(curve), group, form="difference", floor=1e-6)
            assert [advantages[start] for start in starts] == pytest.approx(right.tolist(), abs=1e-5)
            moved += bool(np.abs(right).max() > 0.1)
    assert moved > 2
