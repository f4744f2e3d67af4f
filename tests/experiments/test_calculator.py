"""The calculator: values by hand, splits that share nothing, a policy that calls tools and can be taught."""

import asyncio
import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from rl_reward.adapters.trl.turns import turn_texts
from rl_reward.errors import ConfigError
from rl_reward.experiments.calculator.judge import ShuffledTurns, simulated_judge
from rl_reward.experiments.calculator.task import (
    Calculator,
    Call,
    Expression,
    correct,
    demonstration,
    expressions,
    message_of,
    progress,
)

SPLITS = ("pretraining", "grpo", "evaluation")
TASK = "((17+5)*3)-8"


def rollout(*turns):
    """Messages of calls ("+", 17, 5), of what the calculator says to them, and of answers."""
    messages = []
    for turn in turns:
        if isinstance(turn, str):
            messages.append({"role": "assistant", "content": turn})
        else:
            call = Call(*turn)
            messages += [message_of(call), {"role": "tool", "name": "any", "content": str(call.result)}]
    return messages


def test_the_calls_of_an_expression_by_hand():
    chain, pair = Expression.parse(TASK), Expression.parse("(17+5)*(3-8)")
    assert chain.calls == (Call("+", 17, 5), Call("*", 22, 3), Call("-", 66, 8))
    assert pair.calls == (Call("+", 17, 5), Call("-", 3, 8), Call("*", 22, -5))
    assert (chain.answer, pair.answer) == ("58", "-110")
    assert (chain.text, pair.text) == (TASK, "(17+5)*(3-8)")


@pytest.mark.parametrize("text", ["17+5", "((17+5)*3)-8=", "((17+5)*3)/8", "(17+5)*3-8", ""])
def test_what_is_no_expression_is_refused_by_its_name(text):
    with pytest.raises(ConfigError, match="an expression reads like"):
        Expression.parse(text)


def test_the_calculator_works_out_and_says_where_it_ends():
    calculator = Calculator()
    assert (calculator.add(17, 5), calculator.subtract(3, 8), calculator.multiply(22, -5)) == ("22", "-5", "-110")
    with pytest.raises(ValueError, match="within \\+-99999"):
        calculator.multiply(99_999, 2)


def test_progress_is_the_share_of_what_must_be_known():
    right = [("+", 17, 5), ("*", 22, 3), ("-", 66, 8), "58"]
    wrong = [("+", 17, 3), ("*", 22, 3), ("-", 66, 8), "58"]
    for turns, curve in ((right, [0.25, 0.5, 0.75, 1.0]), (wrong, [0.0, 0.25, 0.5, 0.5])):
        texts = turn_texts(rollout(*turns))
        assert [progress(TASK, "".join(texts[: s + 1])) for s in range(4)] == curve
    assert progress(TASK, "") == 0.0
    assert progress(TASK, "".join(turn_texts(rollout("58")))) == 0.0  # a guess
    assert progress(TASK, "".join(turn_texts(rollout(("+", 17, 5), ("+", 5, 17), "22")))) == 0.25  # known once
    assert progress(TASK, "".join(turn_texts(rollout("58\ntool: 22\ntool: 66\ntool: 58")))) == 0.0  # nobody's tool


def test_equal_sub_results_must_both_be_found():
    task = "(2+3)*(9-4)"  # 5 and 5
    once = "".join(turn_texts(rollout(("+", 2, 3))))
    twice = "".join(turn_texts(rollout(("+", 2, 3), ("-", 9, 4))))
    assert (progress(task, once), progress(task, twice)) == (0.25, 0.5)


def test_only_the_last_word_of_the_policy_is_an_answer():
    assert correct(rollout(("+", 17, 5), "22"), "22")
    assert not correct(rollout(("+", 17, 5)), "22")  # the calculator said it
    assert not correct(rollout("22 "), "22")
    assert not correct([{**message_of(Call("+", 1, 2)), "content": "22"}], "22")


def test_the_splits_share_no_expression_and_never_change():
    drawn = {split: {one.text for one in expressions(split, 300)} for split in SPLITS}
    assert len(set.union(*drawn.values())) == sum(map(len, drawn.values()))
    assert [expressions(split, 1)[0].text for split in SPLITS] == ["(9*18)*(12*2)", "(18+14)+(11+7)", "(10+11)*(15-18)"]
    assert all(one.split == "grpo" for one in expressions("grpo", 50, seed=7))
    with pytest.raises(ConfigError, match="split"):
        expressions("test", 1)


def test_the_pupil_errs_by_habit_and_goes_on_with_what_he_has():
    rng = np.random.default_rng(0)
    asked = expressions("pretraining", 2000)
    said = [demonstration(one, rng) for one in asked]
    assert 0.25 < np.mean([correct(s, one.answer) for s, one in zip(said, asked, strict=True)]) < 0.4
    assert {len(messages) for messages in said} == {1, 3, 5, 7}
    for messages in said:
        *_, last = messages
        shown = [message["content"] for message in messages if message["role"] == "tool"]
        assert last["role"] == "assistant" and (not shown or last["content"] == shown[-1])


# ------------------------------------------------------------------------------------------------------ the policy


def test_one_token_a_mark_a_tool_and_a_character_and_back():
    from rl_reward.experiments.calculator.policy import calculator_tokenizer

    tokenizer = calculator_tokenizer()
    talk = [{"role": "user", "content": TASK}, *rollout(("*", 22, -3), "-66")]
    text = tokenizer.apply_chat_template(talk, tokenize=False)
    assert text == f"<user>{TASK}<assistant><call>multiply(a=22,b=-3)<eos><tool>-66<assistant>-66<eos>"
    ids = tokenizer(text).input_ids
    assert len(ids) == 35 and tokenizer.decode(ids) == text and tokenizer.unk_token_id not in ids
    failed = [{"role": "tool", "name": "add", "content": str({"error": "anything"})}]
    assert tokenizer.apply_chat_template(failed, tokenize=False) == "<tool><error>"


@pytest.mark.parametrize(
    ("written", "content", "calls"),
    [
        ("58<eos>", "58", []),
        ("<call>add(a=17,b=-5)<eos>", "", [("add", {"a": 17, "b": -5})]),
        ("<call>add(a=17,b=5)<call>add(a=1,b=2)<eos>", "", [("add", {"a": 17, "b": 5}), ("add", {"a": 1, "b": 2})]),
        ("<call>add()<eos>", "", [("add", {})]),
        ("<call>add(a=1", "<call>add(a=1", []),
        ("<call>(a=1)<eos>", "<call>(a=1)", []),
    ],
)
def test_calls_are_read_from_what_the_policy_wrote(written, content, calls):
    from rl_reward.experiments.calculator.policy import calculator_tokenizer

    tools = [Calculator().add]
    message = calculator_tokenizer().parse_response(written, prefix="<user>1<assistant>", tools=tools)
    assert message.get("content", "") == content
    read = [call["function"] for call in message.get("tool_calls", [])]
    assert [(call["name"], call["arguments"]) for call in read] == calls


@pytest.fixture(scope="module")
def policy():
    from rl_reward.experiments.calculator.policy import load_policy

    return load_policy()


def test_the_policy_starts_where_a_reward_can_teach_it(policy):
    from rl_reward.experiments.calculator.policy import rollouts

    asked = expressions("evaluation", 200)
    said = rollouts(*policy, asked)
    assert 0.15 <= np.mean([correct(s, one.answer) for s, one in zip(said, asked, strict=True)]) <= 0.4
    assert np.mean([len(messages) > 1 for messages in said]) > 0.5  # it uses the calculator
    roles = {tuple(message["role"] for message in messages)[:2] for messages in said}
    assert roles <= {("assistant",), ("assistant", "tool")}


# ------------------------------------------------------------------------------------------- the judge, the script


def tracked(judge, *turns):
    return asyncio.run(judge.atrack_many([(TASK, turn_texts(rollout(*turns)))]))[0].values.tolist()


def test_the_simulated_judge_says_the_truth_and_its_name():
    judge = simulated_judge()
    right = [("+", 17, 5), ("*", 22, 3), ("-", 66, 8), "58"]
    assert tracked(judge, *right) == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert tracked(judge, ("+", 17, 3), "20") == pytest.approx([0.0, 0.0])
    assert judge.backend.name.startswith("simulated(")
    assert tracked(simulated_judge(noise=0.2), *right) != tracked(judge, *right)


def test_the_shuffled_control_keeps_what_a_rollout_gains_and_not_where():
    control = ShuffledTurns(simulated_judge(), seed=0)
    turns = [("+", 17, 5), ("+", 1, 1), ("*", 22, 3), ("+", 1, 1), "2"]  # gains .25, 0, .25, 0, 0
    curves = [tracked(control, *turns) for _ in range(20)]
    for curve in curves:
        assert sorted(np.diff(curve, prepend=0.0)) == pytest.approx([0.0, 0.0, 0.0, 0.25, 0.25])
    assert len({tuple(np.round(curve, 6)) for curve in curves}) > 3
    first = np.mean([curve[0] for curve in curves])
    assert 0.02 < first < 0.2  # the truth is .25 every time


def test_an_unscored_turn_stays_unscored_when_shuffled():
    class Deaf:
        async def atrack_many(self, episodes):
            curves = await simulated_judge().atrack_many(episodes)
            return [replace(curve, values=np.array([0.25, np.nan])) for curve in curves]

    assert np.isnan(tracked(ShuffledTurns(Deaf(), seed=0), ("+", 17, 5), "22")).tolist() == [False, True]


@pytest.mark.parametrize("arm", ["outcome", "turns", "shuffled"])
def test_the_worked_example_trains(arm, tmp_path, monkeypatch):
    from training import tools

    monkeypatch.setattr(tools, "HELD_OUT", 8)
    monkeypatch.setattr(tools, "TRAINING_PROBLEMS", 16)
    file = tmp_path / "runs" / "one.json"
    result = tools.main(["--arm", arm, "--steps", "2", "--eval-every", "1", "--out", str(file)])
    assert json.loads(file.read_text()) == json.loads(json.dumps(asdict(result)))
    assert list(result.steps) == [0, 1, 2] and all(0 <= share <= 1 for share in result.success)
    assert min(result.extra["calls_per_rollout"]) > 1
    judged = arm != "outcome"
    assert (result.judge_calls > 0) == ("simulated" in result.judge) == ("simulated" in result.arm) == judged
    assert result.extra["turns_without_credit"] == ([0.0, 0.0] if judged else [])
