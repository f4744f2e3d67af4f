"""Step credit on the tensors of a real GRPOTrainer whose completions are scripted."""

from __future__ import annotations

import asyncio
import string

import numpy as np
import pytest
import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from rl_reward import Verifier
from rl_reward.adapters.trl import EMPTY_COMPLETION
from rl_reward.adapters.trl.step_credit import LOSS_TYPES, StepCreditConfig, StepCreditGRPOTrainer
from rl_reward.adapters.trl.step_reward import NOTHING_YET, ProgressReward
from rl_reward.backends import Simulated
from rl_reward.errors import BackendError, ConfigError
from rl_reward.scores import Score, curve_of
from rl_reward.step_credit import EPSILON
from rl_reward.steps import separated_by
from rl_reward.types import Usage

NAN = float("nan")
MARKS = separated_by(";")
PROMPT = "1+1="
# What four completions of one group are worth after each step, the prompt alone being worth .1.
GROUP = {
    "a;bb;ccc": (0.5, 0.3, 0.9),
    "dd;e": (0.2, 0.3),
    "ff;gggg": (0.6, 0.4),
    "h": (0.2,),
}


class Judge:
    """Knows what every prefix is worth (None: unreadable) and remembers what it was asked."""

    def __init__(self, group, start=0.1, split=MARKS):
        self.values = {NOTHING_YET: start}
        for text, scores in group.items():
            steps = [text[slice(*span)] for span in split(text)]
            self.values |= {"".join(steps[: i + 1]): score for i, score in enumerate(scores)}
        self.episodes = []

    async def atrack_many(self, episodes):
        self.episodes += episodes
        return [self._curve(steps) for _, steps in episodes]

    def _curve(self, steps):
        prefixes = ["".join(steps[: i + 1]) for i in range(len(steps))]
        return curve_of({i: self._score(prefix) for i, prefix in enumerate(prefixes)}, len(steps))

    def _score(self, prefix):
        value = self.values[prefix]
        status, reason = ("timeout", "no reply in 30 s") if value is None else ("logprob", "")
        return Score(value, None, {}, {}, 1, status, reason, Usage(1, 30, 2, 0.5))


def progress(group=None, *, steps=MARKS, group_size=4, start=0.1, **options):
    judge = Judge(GROUP if group is None else group, start, steps)
    return ProgressReward(judge, steps=steps, group_size=group_size, **({"max_unscored": 1.0} | options))


def tiny_tokenizer():
    letters = ["<pad>", "<eos>", *string.digits, *string.ascii_lowercase, "+", "=", ";", "."]
    tokenizer = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(letters)}, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(""), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


class Scripted:
    """Writes the scripted completions, again and again, and keeps what the loss was given."""

    script = tuple(GROUP)

    def _generate_single_turn(self, prompt_ids, *rest, **more):
        texts = [self.script[row % len(self.script)] for row in range(len(prompt_ids))]
        tokenizer = self.processing_class
        return [[*tokenizer.convert_tokens_to_ids(list(text)), tokenizer.eos_token_id] for text in texts], None

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self.batches = [*getattr(self, "batches", []), output]
        return output

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        self.losses = [*getattr(self, "losses", []), (inputs, loss.item())]
        return loss


class Plain(Scripted, GRPOTrainer):
    """TRL's own."""


class Credited(Scripted, StepCreditGRPOTrainer):
    """Ours."""


def right_by_length(completions, **_):
    """A reward that is not the judge's: 0 or 1."""
    return [float(len(completion) % 2) for completion in completions]


def trainer_of(
    tmp_path, *reward_funcs, credit=None, script=None, prompts=(PROMPT,), evaluate=False, more=None, **options
):
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    settings = {
        "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 16, "max_steps": 1,
        "logging_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "beta": 0.0,
        "learning_rate": 1e-2,
    }  # fmt: skip
    dataset = Dataset.from_dict({"prompt": list(prompts)})
    kind, own = (Plain, {}) if credit is None else (Credited, {"step_credit": credit})
    trainer = kind(
        model=LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **special)),
        reward_funcs=list(reward_funcs),
        args=GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **(settings | options)),
        train_dataset=dataset,
        eval_dataset=dataset if evaluate else None,
        processing_class=tokenizer,
        **own,
        **(more or {}),
    )
    trainer.script = tuple(script or GROUP)
    return trainer


def trained(tmp_path, *reward_funcs, **options):
    trainer = trainer_of(tmp_path, *reward_funcs, **options)
    trainer.train()
    return trainer


def added(tmp_path, group, *, form="difference", weight=1.0, split=MARKS, **options):
    """What step credit adds to each token, float [B, T] with the end token; nothing else is rewarded."""
    options = {"max_completion_length": 32} | options
    reward = progress(group, steps=split, group_size=len(group), **options.pop("reward", {}))
    credit = StepCreditConfig(weight, form=form, **options.pop("credit", {}))
    sizes = {"num_generations": len(group), "per_device_train_batch_size": len(group)}
    trainer = trained(tmp_path, reward, credit=credit, script=tuple(group), **sizes, **options)
    return trainer.batches[0]["advantages"].double().numpy()


# ---------------------------------------------------------------------------------------------------- the numbers


def test_every_token_has_the_advantage_of_its_completion_and_the_credit_of_its_step(tmp_path):
    trainer = trained(tmp_path, right_by_length, progress(), credit=StepCreditConfig(0.5))
    outcome = np.array([-0.5, -0.5, 0.5, 0.5]) / (3**-0.5 + EPSILON)  # 0, 0, 1, 1
    gains = [0.8, 0.2, 0.3, 0.1]
    sigma = np.std(gains, ddof=1) + EPSILON
    steps = ["a;", "bb;", "ccc$"], ["dd;", "e$"], ["ff;", "gggg$"], ["h$"]  # $: the end token
    change = (0.4, -0.2, 0.6), (0.1, 0.1), (0.5, -0.2), (0.1,)
    expected = np.tile(outcome[:, None], 9)
    for row, texts, values in zip(expected, steps, change, strict=True):
        credit = np.repeat(values, [len(text) for text in texts]) / sigma
        row[: credit.size] += 0.5 * credit
    found = trainer.batches[0]["advantages"]
    assert found.shape == trainer.batches[0]["completion_ids"].shape and found.dtype == torch.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_is_logged(tmp_path):
    group = GROUP | {"dd;e": (None, 0.3)}
    trainer = trained(
        tmp_path, right_by_length, progress(group, weight=0.5), credit=StepCreditConfig(0.25), log_completions=True
    )
    log = trainer.state.log_history[0]
    sigma = np.std([0.8, 0.2, 0.3, 0.1], ddof=1)
    assert log["step_credit/sigma"] == pytest.approx(sigma)
    assert log["step_credit/mean_abs"] == pytest.approx(
        (0.4 + 0.2 + 0.6 + 0.5 + 0.2 + 0.1) / 6 / (sigma + EPSILON), rel=1e-5
    )
    assert log["step_credit/credited"] == log["step_credit/unscored"] * 3 == pytest.approx(6 / 8)
    assert (log["step_credit/flat"], log["step_credit/weight"]) == (0.0, 0.25)
    assert log["progress/unscored_rate"] == pytest.approx(1 / 12)
    assert log["progress/score_mean"] == pytest.approx((0.9 + 0.3 + 0.4 + 0.2) / 4)
    assert (log["progress/steps"], log["progress/start_mean"]) == (2.0, pytest.approx(0.1))
    assert log["progress/calls"] == 9.0, "eight prefixes, and the prompt alone once"
    assert list(trainer._logs["extra"]["progress/curve"])[1] == "0.100 nan 0.300"


def test_final_scores_against_correctness_are_logged_and_pay_nothing(tmp_path):
    judged = progress(weight=0.5, correct=right_by_length)
    told = trained(tmp_path, right_by_length, judged, credit=StepCreditConfig(0.25))
    log = told.state.log_history[0]
    # Right end at .4 and .2, wrong at .9 and .3: the gaps are -.5, .1, -.7 and -.1.
    assert log["progress/correct_agreement"] == 0.25
    assert log["progress/score_correct_gap"] == pytest.approx(-0.3)
    assert log["progress/score_minus_correct"] == pytest.approx(0.45 - 0.5)
    untold = trained(tmp_path, right_by_length, progress(weight=0.5), credit=StepCreditConfig(0.25))
    assert "progress/correct_agreement" not in untold.state.log_history[0]
    assert torch.equal(told.batches[0]["advantages"], untold.batches[0]["advantages"])


# -------------------------------------------------------------------------------------------------------- the laws


def same_training(one, other):
    for (_, first), (_, second) in zip(one.losses, other.losses, strict=True):
        assert first == second
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_without_weight_it_is_plain_grpo(tmp_path, loss_type):
    options = {"max_steps": 2, "loss_type": loss_type}
    plain = trained(tmp_path, right_by_length, progress(weight=0.3), **options)
    ours = trained(tmp_path, right_by_length, progress(weight=0.3), credit=StepCreditConfig(0.0), **options)
    assert torch.equal(ours.batches[0]["advantages"], plain.batches[0]["advantages"][:, None].expand(-1, 9))
    assert same_training(ours, plain)
    credited = trained(tmp_path, right_by_length, progress(weight=0.3), credit=StepCreditConfig(0.3), **options)
    ends = zip(credited.model.parameters(), plain.model.parameters(), strict=True)
    assert any(not torch.allclose(one, two, atol=1e-4) for one, two in ends), "and with weight it is not"


def test_with_one_step_to_go_is_grpo_on_the_verifiers_score(tmp_path):
    group = {"a": (0.5,), "bb": (0.2,), "ccc": (0.9,), "d": (0.35,)}

    def score(completions, **_):
        return [group[completion][0] for completion in completions]

    plain = trained(tmp_path, score, script=group)
    ours = trained(tmp_path, progress(group), credit=StepCreditConfig(1.0, form="to_go"), script=group)
    expected, found = plain.batches[0]["advantages"][:, None], ours.batches[0]["advantages"]
    mask = ours.batches[0]["completion_mask"].bool()
    torch.testing.assert_close(found[mask], expected.expand_as(found)[mask], rtol=2e-6, atol=1e-6)
    ends = zip(ours.model.parameters(), plain.model.parameters(), strict=True)
    assert all(torch.allclose(one, two, atol=1e-5) for one, two in ends)


@pytest.mark.parametrize("form", ["difference", "to_go", "min"])
def test_equal_curves_add_exactly_zero(tmp_path, form):
    group = {f"{letter};bb;ccc": (0.7, 0.3, 0.5) for letter in "xyzw"}
    assert not added(tmp_path, group, form=form).any()


@pytest.mark.parametrize("form", ["difference", "to_go"])
def test_splitting_a_step_leaves_the_tokens_of_all_others(tmp_path, form):
    whole = {"a;bb.bb;c": (0.5, 0.3, 0.9), "d": (0.2,)}
    split = {"a;bb.bb;c": (0.5, 0.95, 0.3, 0.9), "d": (0.2,)}
    before = added(tmp_path, whole, form=form)
    after = added(tmp_path, split, form=form, split=separated_by(";", "."))
    others = [0, 1, 8, 9]
    np.testing.assert_array_equal(after[0, [0, 1, 8, 9]], before[0, others])
    np.testing.assert_array_equal(after[1], before[1])
    assert not np.allclose(after[0, 2:8], before[0, 2:8])


def test_inside_a_completion_lowering_progress_gets_less_than_raising_it(tmp_path):
    tokens = added(tmp_path, GROUP)[0]
    raised, lowered = [0, 1, 5, 6, 7], [2, 3, 4]
    assert tokens[lowered].max() < 0.0 < tokens[raised].min()


@pytest.mark.parametrize("form", ["difference", "to_go"])
def test_an_unscored_step_gets_the_outcome_alone_and_shifts_nobody(tmp_path, form):
    whole = {"a;bb;c;dd;ee": (0.5, 0.3, 0.4, 0.7, 0.9), "f;g": (0.2, 0.3)}
    torn = whole | {"a;bb;c;dd;ee": (0.5, None, 0.4, 0.7, 0.9)}
    before, after = added(tmp_path, whole, form=form), added(tmp_path, torn, form=form)
    assert not after[0, 2:7].any(), "steps bb; and c;, as nobody knows where c; began"
    np.testing.assert_array_equal(np.delete(after[0], range(2, 7)), np.delete(before[0], range(2, 7)))
    np.testing.assert_array_equal(after[1], before[1])


def test_a_completion_without_a_final_score_does_not_vote(tmp_path):
    pair = {"a;bb": (0.5, 0.9), "c;d": (0.2, 0.3)}
    with_it = added(tmp_path, pair | {"e": (None,)}, form="to_go")
    np.testing.assert_array_equal(with_it[:2], added(tmp_path, pair, form="to_go"))
    assert not with_it[2].any()


@pytest.mark.parametrize("form", ["difference", "to_go"])
def test_the_stuck_run_never_beats_the_solved_one(tmp_path, form):
    group = {"a;b;c": (0.2, 0.6, 1.0), "d;" * 11 + "d": (0.5,) * 12, "e;f;g": (0.1,) * 3}
    solved, stuck, failed = added(tmp_path, group, form=form, reward={"start": 0.0})
    # Two tokens a step, the end token in place of the last mark.
    totals = [row[::2].sum() for row in (solved, stuck, failed)]
    if form == "difference":
        assert totals[0] > totals[1] > totals[2] > 0.0
        np.testing.assert_allclose(np.divide(totals, totals[0]), [1.0, 0.5, 0.1], rtol=1e-5)
        assert not stuck[2:].any() and solved[2:6].min() > 0.0
    else:
        assert solved[0] > stuck[0] > failed[0] and totals[0] > totals[1]


def test_a_spread_under_the_floor_is_none(tmp_path):
    group = {"a;b": (0.9, 0.500), "c;d": (0.1, 0.510)}
    assert not added(tmp_path, group).any()
    assert np.abs(added(tmp_path, group, credit={"sigma_floor": 0.005})).max() > 10.0


# ------------------------------------------------------------------------------------------------ how TRL uses it


def test_it_survives_shuffling_micro_batches_and_several_iterations(tmp_path):
    trainer = trained(
        tmp_path, right_by_length, progress(), credit=StepCreditConfig(0.5), max_steps=2, num_iterations=2,
        per_device_train_batch_size=2, gradient_accumulation_steps=2, steps_per_generation=2, learning_rate=0.0,
    )  # fmt: skip
    (batch,) = trainer.batches
    wanted = {tuple(ids): row for ids, row in zip(batch["completion_ids"].tolist(), batch["advantages"], strict=True)}
    assert len(trainer.losses) == 4
    for inputs, _ in trainer.losses:
        for ids, row in zip(inputs["completion_ids"].tolist(), inputs["advantages"], strict=True):
            assert torch.equal(row, wanted[tuple(ids)])


def test_evaluation_has_its_own_groups(tmp_path):
    evaluation = {"num_generations_eval": 2, "per_device_eval_batch_size": 4, "eval_strategy": "steps", "eval_steps": 1}
    trainer = trained(
        tmp_path, progress(eval_group_size=2), credit=StepCreditConfig(1.0),
        prompts=(PROMPT, "1+2="), evaluate=True, **evaluation,
    )  # fmt: skip
    train, held_out = (batch["advantages"] for batch in trainer.batches)
    assert held_out[0, 0].item() == pytest.approx(0.4 / (np.std([0.8, 0.2], ddof=1) + EPSILON), rel=1e-5)
    assert held_out[2, 0].item() == pytest.approx(0.5 / (np.std([0.3, 0.1], ddof=1) + EPSILON), rel=1e-5)
    assert train[0, 0].item() == pytest.approx(0.4 / (np.std([0.8, 0.2, 0.3, 0.1], ddof=1) + EPSILON), rel=1e-5)
    assert "eval_step_credit/sigma" in trainer.state.log_history[1]


def token_gradients(trainer, advantages, ratio):
    """The gradient of the loss by the log-probability of each token, where the policy has moved by `ratio`."""
    batch = dict(trainer.batches[0])
    logps = torch.full(batch["completion_ids"].shape, -2.0, requires_grad=True)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logps, torch.ones_like(logps), None)
    batch |= {"advantages": advantages, "old_per_token_logps": logps.detach() - float(np.log(ratio))}
    GRPOTrainer._compute_loss(trainer, trainer.model, batch).backward()
    return logps.grad, batch["completion_mask"].bool()


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_every_loss_moves_each_token_by_the_sign_of_its_own_advantage(tmp_path, loss_type):
    trainer = trained(tmp_path, progress(), credit=StepCreditConfig(1.0), loss_type=loss_type, learning_rate=0.0)
    per_row = torch.tensor([1.5, -0.5, 0.7, -2.0])
    wide = per_row[:, None].expand(-1, 9).contiguous()
    signs = torch.where(torch.arange(9) % 2 == 0, 1.0, -1.0) * wide
    for ratio in (1.0, 1.05, 0.95):
        constant, mask = token_gradients(trainer, per_row, ratio)
        torch.testing.assert_close(token_gradients(trainer, wide, ratio)[0], constant)
        mixed, _ = token_gradients(trainer, signs, ratio)
        assert torch.equal(mixed[mask].sign(), -signs[mask].sign())
        assert not mixed[~mask].any()


def test_turns_are_split_by_the_mask(tmp_path):
    def rollout(prompts, trainer):
        ids = trainer.processing_class.convert_tokens_to_ids
        own = [[1, 1, 0, 0, 1, 1], [1, 0, 0, 0, 0, 1]] * 2
        texts = ["ab==cd", "a====b", "ef==gh", "e====f"]
        return {
            "prompt_ids": [ids(list(prompt)) for prompt in prompts], "completion_ids": [ids(list(t)) for t in texts],
            "logprobs": [[0.0] * 6] * 4, "env_mask": own,
        }  # fmt: skip

    reward = ProgressReward(Judge({}), steps="turns", group_size=4)
    reward.verifier.values |= {"ab==": 0.5, "ab==cd": 0.4, "a====": 0.3, "a====b": 0.9}
    reward.verifier.values |= {"ef==": 0.1, "ef==gh": 0.2, "e====": 0.2, "e====f": 0.1}
    trainer = trained(
        tmp_path, reward, credit=StepCreditConfig(1.0), more={"rollout_func": rollout}, max_completion_length=6
    )
    sigma = np.std([0.3, 0.8, 0.1, 0.0], ddof=1) + EPSILON
    expected = np.array([[0.4, 0.4, 0, 0, -0.1, -0.1], [0.2, 0, 0, 0, 0, 0.6]]) / sigma
    np.testing.assert_allclose(trainer.batches[0]["advantages"][:2], expected, atol=1e-5)


# ---------------------------------------------------------------------------------------------------- the settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"importance_sampling_level": "sequence"},
            "gives all tokens of a completion one ratio, which erases step credit",
        ),
        ({"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold drops completions by the sign"),
    ],
)
def test_settings_that_erase_or_break_it_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        trainer_of(tmp_path, progress(), credit=StepCreditConfig(1.0), **options)


def test_a_sequence_ratio_would_erase_it(tmp_path):
    trainer = trained(tmp_path, progress(), credit=StepCreditConfig(1.0), learning_rate=0.0)
    signs = torch.where(torch.arange(9) % 2 == 0, 1.0, -1.0).expand(4, -1)
    trainer.importance_sampling_level = "sequence"
    mixed, mask = token_gradients(trainer, signs, 1.0)
    for row, kept in zip(mixed, mask, strict=True):
        assert torch.unique(row[kept]).numel() == 1, "why it is refused: all tokens of a row are moved alike"


def test_the_rewards_of_the_trainer_must_fit(tmp_path):
    with pytest.raises(ConfigError, match="exactly 1 ProgressReward among reward_funcs, got 0"):
        trainer_of(tmp_path, right_by_length, credit=StepCreditConfig(1.0))
    with pytest.raises(ConfigError, match="exactly 1 ProgressReward among reward_funcs, got 2"):
        trainer_of(tmp_path, progress(), progress(name="other"), credit=StepCreditConfig(1.0))
    with pytest.raises(ConfigError, match="group_size must equal the trainer's num_generations, 4, got 2"):
        trained(tmp_path, progress(group_size=2), credit=StepCreditConfig(1.0))
    with pytest.raises(ConfigError, match=r"the splitter's step \(1, 3\) begins before 2"):
        trained(tmp_path, ProgressReward(Judge(GROUP), steps=overlapping, group_size=4), credit=StepCreditConfig(1.0))


def overlapping(text):
    return [(0, 2), (1, 3)] if len(text) > 3 else [text]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": -1.0}, "weight must be a finite number >= 0, got -1.0"),
        ({"weight": 1.0, "sigma_floor": 0.0}, "sigma_floor must be a finite number > 0, got 0.0"),
        ({"weight": 1.0, "form": "total"}, "form must be one of difference, to_go, min, sum, got 'total'"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        StepCreditConfig(**options)


def test_the_sum_form_is_warned_of():
    with pytest.warns(UserWarning, match="pays for every step that is written"):
        StepCreditConfig(1.0, form="sum")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_size": 1}, "group_size must be an integer of at least 2, got 1"),
        ({"weight": -0.1}, "weight must be a finite number >= 0, got -0.1"),
        ({"timeout_s": 0}, "timeout_s must be a finite number > 0, got 0"),
        ({"name": " "}, "name must be a text that is not empty"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        progress(**options)
    with pytest.raises(ConfigError, match="steps must be one of"):
        ProgressReward(Judge(GROUP), steps="lines", group_size=4)


def test_the_weight_follows_training(tmp_path):
    trainer = trained(tmp_path, progress(), credit=StepCreditConfig((1.0, 0.0)), max_steps=2, learning_rate=0.0)
    first, second = (batch["advantages"] for batch in trainer.batches)
    torch.testing.assert_close(second, first / 2)


# ------------------------------------------------------------------------------------------------- what is judged


def test_it_pays_as_the_verifier_reward_does(tmp_path):
    trainer = trained(tmp_path, progress(weight=0.1), credit=StepCreditConfig(0.0), scale_rewards="none")
    finals = np.array([0.9, 0.3, 0.4, 0.2])
    expected = 0.1 * (finals - finals.mean()) / finals.std(ddof=1)
    np.testing.assert_allclose(trainer.batches[0]["advantages"][:, 0], expected, atol=1e-6)


def test_nothing_is_asked_twice_and_nothing_is_seen_early(tmp_path):
    asked = []

    def truth(request):
        asked.append((request.task, [step.text for step in request.candidate.steps]))
        return len(request.text) / 40

    reward = ProgressReward(Verifier(Simulated(truth)), steps=MARKS, group_size=4)
    trained(tmp_path, reward, credit=StepCreditConfig(1.0), script=("a;b", "a;c;d", "a;b", ""))
    steps = [seen for _, seen in asked]
    expected = [[NOTHING_YET], ["a;"], ["a;", "b"], ["a;", "c;"], ["a;", "c;", "d"], [EMPTY_COMPLETION]]
    assert sorted(steps) == sorted(expected)
    assert {task for task, _ in asked} == {PROMPT}


def test_a_dead_judge_ends_training(tmp_path):
    dead = progress({text: (None,) * len(scores) for text, scores in GROUP.items()}, max_unscored=0.2, window=32)
    with pytest.raises(BackendError, match="progress: 7 of the last 8 rows are unscored"):
        trained(tmp_path, right_by_length, dead, credit=StepCreditConfig(1.0), max_steps=50)


@pytest.mark.parametrize("broken", [float("inf"), NAN])
def test_no_score_that_is_not_finite_gets_through(tmp_path, broken):
    tokens = added(tmp_path, GROUP | {"h": (broken,)})
    assert np.isfinite(tokens).all() and not tokens[3].any() and tokens[0].any()


def test_it_needs_a_trainer_to_know_the_tokens():
    with pytest.raises(ConfigError, match="progress needs the tokenizer of its trainer; use StepCreditGRPOTrainer"):
        asyncio.run(progress()(prompts=[PROMPT] * 4, completions=list(GROUP), completion_ids=[[1]] * 4))
