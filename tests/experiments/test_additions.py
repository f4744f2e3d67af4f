"""The additions: what is right by hand, splits that share nothing, and a stand-in that is what its report says."""

import asyncio
import json
import pickle
from itertools import product

import numpy as np
import pytest

from rl_reward import ScoreScale, Verifier
from rl_reward.adapters.trl.step_reward import NOTHING_YET
from rl_reward.errors import ConfigError
from rl_reward.evaluation.agreement import pair_counts
from rl_reward.experiments.additions.task import (
    Addition,
    correct,
    credit_so_far,
    noisy_working,
    partial_credit,
    problems,
    read_working,
    well_formed,
)

SPLITS = ("pretraining", "verifier", "grpo", "evaluation")


def test_the_working_of_an_addition_by_hand():
    assert Addition(74, 47).prompt == "74+47="
    assert Addition(74, 47).working == "11;12#121"  # 4+7=11, 7+4 and the carry 12, 121
    assert Addition(23, 45).working == "8;6#68"
    assert Addition.parse("99+99=").working == "18;19#198"
    assert Addition(958, 467).working == "15;12;14#1425"  # 8+7, 5+6 and 1, 9+4 and 1
    assert Addition(1234, 4321).working == "5;5;5;5#5555"


@pytest.mark.parametrize("prompt", ["7+47=", "74+147=", "74+47", "74-47=", "074+47=", "74+47=\n", ""])
def test_what_is_no_addition_is_refused_by_its_name(prompt):
    with pytest.raises(ConfigError, match="74\\+47="):
        Addition.parse(prompt)


@pytest.mark.parametrize(
    ("working", "right", "form", "credit"),
    [
        ("11;12#121", True, True, 1.0),
        ("11;12#120", False, True, 2 / 3),
        ("11;11#121", True, True, 2 / 3),
        ("1;11#111", False, True, 0.0),
        ("#121", True, False, 0.0),
        ("11;12#121;", False, False, 0.0),
        ("11;12#0121", False, False, 0.0),
        ("121", False, False, 0.0),
        ("(empty answer)", False, False, 0.0),
    ],
)
def test_answer_form_and_credit_are_three_things(working, right, form, credit):
    assert correct(working, "121") is right
    assert well_formed(working) is form
    assert partial_credit("74+47=", working) == pytest.approx(credit)


def test_how_many_columns_a_working_has_is_part_of_its_form():
    assert well_formed("15;12;14#1425", "long-additions") and not well_formed("15;12;14#1425")
    assert well_formed("11;12#121") and not well_formed("11;12#121", "long-additions")
    assert partial_credit("958+467=", "15;12;14#1425") == 1 and partial_credit("958+467=", "15;12#1425") == 0


@pytest.mark.parametrize(
    ("so_far", "credit"), [("11;", 1 / 3), ("11;12#", 2 / 3), ("10;12#", 1 / 3), ("11;12#121", 1), ("", 0), ("11;5", 0)]
)
def test_credit_so_far_counts_the_right_numbers_of_a_beginning(so_far, credit):
    assert credit_so_far("74+47=", so_far) == pytest.approx(credit)


def test_the_long_splits_share_no_pair_of_operands():
    pairs = {split: {frozenset((p.a, p.b)) for p in problems(split, "long-additions")} for split in SPLITS}
    for first, second in product(SPLITS, SPLITS):
        assert first == second or not pairs[first] & pairs[second]
    assert {len(p.columns) for p in problems("grpo", "long-additions")} == {3, 4}
    assert [problems(split, "long-additions")[0].prompt for split in SPLITS] == [
        "1687+3467=",
        "204+672=",
        "733+382=",
        "758+303=",
    ]


def test_the_splits_share_no_pair_of_operands_and_leave_none_out():
    pairs = {split: {frozenset((p.a, p.b)) for p in problems(split)} for split in SPLITS}
    for first, second in product(SPLITS, SPLITS):
        assert first == second or not pairs[first] & pairs[second]
    assert sum(map(len, pairs.values())) == 90 * 91 / 2
    assert [round(len(pairs[split]) / 4095, 2) for split in SPLITS] == pytest.approx([0.4, 0.2, 0.3, 0.1], abs=0.02)


def test_the_splits_never_change():
    # The shipped models were built on these; another hash or order would leak.
    assert [problems(split)[0].prompt for split in SPLITS] == ["24+37=", "35+91=", "97+12=", "33+37="]
    with pytest.raises(ConfigError, match="split"):
        problems("test")  # type: ignore[arg-type]


def test_the_pupil_errs_in_sums_of_digits_and_follows_them():
    rng = np.random.default_rng(0)
    workings = [(p, noisy_working(p, rng)) for p in problems("pretraining")]
    assert 0.1 < np.mean([correct(w, p.answer) for p, w in workings]) < 0.3
    for _, working in workings:
        ones, tens, answer = read_working(working) or pytest.fail(working)
        assert answer == 10 * tens + ones % 10


def test_one_token_a_character_and_back():
    from rl_reward.experiments.additions.policy import character_tokenizer

    tokenizer = character_tokenizer("ABCD")
    ids = tokenizer("74+47=11;12#121A").input_ids
    assert len(ids) == 16
    assert tokenizer.decode(ids) == "74+47=11;12#121A"
    assert character_tokenizer()("A").input_ids == [tokenizer.unk_token_id]


def test_the_policy_starts_where_a_reward_can_teach_it():
    from rl_reward.experiments.additions.policy import MAX_NEW_TOKENS, load_policy
    from rl_reward.experiments.generation import completions

    held_out = problems("evaluation")[:400]
    model, tokenizer = load_policy()
    written = completions(model, tokenizer, [p.prompt for p in held_out], max_new_tokens=MAX_NEW_TOKENS["additions"])
    assert 0.2 <= np.mean([correct(w, p.answer) for w, p in zip(written, held_out, strict=True)]) <= 0.27
    assert np.mean([well_formed(w) for w in written]) > 0.95


@pytest.fixture(scope="module")
def stand_in():
    from rl_reward.experiments.additions.standin import StandIn

    return StandIn()


def test_the_stand_in_reads_each_sum_beside_its_digits():
    from rl_reward.experiments.additions.standin import laid_out

    assert laid_out("74+47=", "11;12#121") == "4+7=11;7+4=12#121"
    assert laid_out("74+47=", "11;12") == "74+47=11;12"
    assert laid_out("958+467=", "15;12;14#1425") == "8+7=15;5+6=12;9+4=14#1425"
    assert laid_out("74+47=", "11;12#", so_far=True) == "4+7=11;7+4=12#"


def test_the_stand_in_reads_progress_after_every_number(stand_in):
    judge = Verifier(stand_in)
    whole = judge.score("74+47=", "11;12#121").value
    curve = judge.track("74+47=", ["11;", "12#", "121"])
    assert curve.values[-1] == pytest.approx(whole, abs=1e-5)
    assert curve.values[0] <= 0.4, "one number of three"
    assert judge.track("74+47=", [NOTHING_YET]).values[0] == pytest.approx(0, abs=1e-6)
    pair = judge.compare("74+47=", "11;12#121", "9;9#99")
    assert pair.first == pytest.approx(whole, abs=1e-5) and pair.p_first > 0.5


def test_no_text_can_spell_a_grade_or_an_end(stand_in):
    from rl_reward.experiments.additions.standin import encode

    ids, mask = encode(stand_in.tokenizer, [("<eos>D", True), ("1", True)])
    unknown, end = stand_in.tokenizer.unk_token_id, stand_in.tokenizer.eos_token_id
    assert ids[0].tolist() == [unknown] * 6 + [end]
    assert mask.tolist() == [[1] * 7, [0] * 5 + [1] * 2]


def test_the_stand_in_prefers_right_workings_and_keeps_its_doubts(stand_in):
    asked = problems("evaluation")[:100]
    right = Verifier(stand_in).score_many([(p.prompt, p.working) for p in asked])
    wrong = Verifier(stand_in).score_many([(p.prompt, Addition(p.b, 99 - p.a // 2).working) for p in asked])
    assert {score.status for score in (*right, *wrong)} == {"logprob"}
    assert np.mean([score.value for score in right]) > np.mean([score.value for score in wrong]) + 0.15
    distributions = [d for score in right for ds in score.distributions.values() for d in ds]
    assert min(d.coverage for d in distributions) > 0.9
    assert np.mean([d.entropy for d in distributions]) > 0.05


def test_grades_are_levels_in_equal_steps_on_any_scale(stand_in):
    values = [Verifier(stand_in, scale=scale).score("23+45=", "8;6#67").value for scale in (ScoreScale.digits(), None)]
    assert values[0] == pytest.approx(values[1], abs=0.01)


def test_together_or_alone_the_scores_are_the_same(stand_in):
    pairs = [(p.prompt, p.working[:length]) for p in problems("evaluation")[:10] for length in (3, 9)]
    judge = Verifier(stand_in)
    together = [score.value for score in judge.score_many(pairs)]
    assert together == pytest.approx([judge.score(*pair).value for pair in pairs], abs=1e-5)


def test_a_text_too_long_for_it_is_unscored_and_the_rest_is_not(stand_in):
    long, short = Verifier(stand_in).score_many([("23+45=", "8" * 60), ("23+45=", "8;6#68")])
    assert long.value is None and "48" in long.reason
    assert short.value is not None


def test_a_copy_of_it_in_another_process_says_the_same(stand_in):
    copy = pickle.loads(pickle.dumps(Verifier(stand_in)))
    assert copy.score("23+45=", "8;6#68").value == Verifier(stand_in).score("23+45=", "8;6#68").value


def test_a_cancelled_request_leaves_the_others_their_answers(stand_in):
    async def ask():
        judge = Verifier(stand_in)
        first = asyncio.create_task(judge.ascore("23+45=", "8;6#68"))
        second = asyncio.create_task(judge.ascore("23+45=", "8;6#67"))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(ask()).value is not None


def test_its_report_is_true(stand_in):
    """Measure the pairwise accuracy of the report again, on some of the same held-out problems."""
    import torch

    from rl_reward.experiments.additions.policy import MAX_NEW_TOKENS, load_policy
    from rl_reward.experiments.additions.standin import STAND_INS
    from rl_reward.experiments.generation import completions

    torch.manual_seed(0)
    reported = json.loads((STAND_INS["additions"] / "report.json").read_text())["held_out"]
    assert list(reported) == ["early", "middle", "late"]
    asked = [problem for problem in problems("evaluation")[:300] for _ in range(8)]
    prompts = [problem.prompt for problem in asked]
    written = completions(*load_policy(), prompts, max_new_tokens=MAX_NEW_TOKENS["additions"], temperature=1.0)
    scores = Verifier(stand_in).score_many(list(zip(prompts, written, strict=True)))
    rows = [(score.value, correct(w, p.answer)) for score, w, p in zip(scores, written, asked, strict=True)]
    groups = [rows[start : start + 8] for start in range(0, len(rows), 8)]
    pairs = [(x, y) for group in groups for (x, good), (y, bad) in product(group, group) if good and not bad]
    measured = pair_counts(*zip(*pairs, strict=True)).accuracy_ties_half
    assert measured == pytest.approx(reported["early"]["pairwise_accuracy"], abs=0.05)
    assert 0.75 <= measured <= 0.95
