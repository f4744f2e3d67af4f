"""A scripted judge and a tiny GRPOTrainer, for the tests of the TRL adapter."""

from __future__ import annotations

import asyncio
import string

import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from rl_reward.adapters.trl import VerifierReward
from rl_reward.scores import Score
from rl_reward.types import Usage


class ScriptedJudge:
    """Gives the listed values in order, again and again (None is unscored), and remembers what it was asked."""

    def __init__(self, *values):
        self.values = values
        self.asked, self.criteria, self.given = [], [], 0

    async def ascore_many(self, pairs, *, criteria=None):
        self.asked += pairs
        self.criteria.append(criteria)
        await asyncio.sleep(0)
        return [self._next() for _ in pairs]

    def _next(self):
        value = self.values[self.given % len(self.values)]
        self.given += 1
        status, reason = ("timeout", "no reply in 30 s") if value is None else ("logprob", "")
        return Score(value, None, {}, {}, 1, status, reason, Usage(1, 30, 2, 0.5))


def reward_of(*values, group_size=4, weight=1.0, standardize=False, **options):
    options = {"max_unscored": 1.0} | options
    return VerifierReward(
        ScriptedJudge(*values), weight=weight, group_size=group_size, standardize=standardize, **options
    )


def call(reward, prompts=("2+2=",) * 4, completions=("a", "bb", "ccc", "dddd"), **columns):
    return asyncio.run(reward(prompts=list(prompts), completions=list(completions), **columns))


def wrong(completions, **_):
    return [0.0] * len(completions)


def fine_format(completions, **_):
    return [1.0] * len(completions)


def first_is_right(completions, **_):
    return [1.0, *[0.0] * (len(completions) - 1)]


class Recorder(GRPOTrainer):
    """Keeps the advantages of every batch in the order of its rows."""

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self.seen = [*getattr(self, "seen", []), output["advantages"].tolist()]
        return output


def tiny_tokenizer():
    letters = ["<pad>", "<eos>", *string.digits, *string.ascii_lowercase, "+", "=", " ", "?"]
    tokenizer = Tokenizer(models.WordLevel({letter: i for i, letter in enumerate(letters)}, unk_token="<eos>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(""), "isolated")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return fast


def trainer_with(
    tmp_path, *reward_funcs, prompts=("1+1=",), columns=None, evaluate=False, kind=Recorder, host=None, **options
):
    """A GRPOTrainer of one group of 4 a step around a random two-layer model; `host` goes to the class `kind`."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **special))
    settings = {
        "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 4, "max_steps": 1,
        "logging_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "beta": 0.0,
    }  # fmt: skip
    dataset = Dataset.from_dict({"prompt": list(prompts)} | (columns or {}))
    return kind(
        **(host or {}),
        model=model,
        reward_funcs=list(reward_funcs),
        args=GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **(settings | options)),
        train_dataset=dataset,
        eval_dataset=dataset if evaluate else None,
        processing_class=tokenizer,
    )


def advantages_of(tmp_path, *reward_funcs, **options):
    trainer = trainer_with(tmp_path, *reward_funcs, **options)
    trainer.train()
    return trainer.seen[0]
