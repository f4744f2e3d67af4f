"""Reading with shared prefixes gives what one prompt at a time gives, whatever the model does with positions."""

import logging

import pytest
import torch
from tiny_models import WINDOW, tiny_model

from rl_reward.backends.local.reader import CausalReader

VOCABULARY = 97
SHARING = ["llama", "gpt_neox", "qwen2", "gemma3", "mistral"]


def plain(model, sequences):
    with torch.inference_mode():
        rows = [model(torch.tensor([tokens])).logits[0, -1] for tokens in sequences]
    return torch.log_softmax(torch.stack(rows), dim=-1)


def checkpoints(length=60):
    """Three questions at each of four checkpoints of one trajectory; the trajectory itself; one prompt twice."""
    tokens = torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(0)).tolist()
    asked = [[*tokens[:t], 90, 91, 92, question] for t in (3, WINDOW, 31, 52) for question in (1, 2, 3)]
    return [*asked, tokens, tokens[:20], tokens[:20]]


@pytest.mark.parametrize("pass_tokens", [8, 48, 512])
@pytest.mark.parametrize("kind", SHARING)
def test_shared_prefixes_change_nothing(kind, pass_tokens):
    model = tiny_model(kind, vocabulary=VOCABULARY)
    reader = CausalReader(model, pass_tokens=pass_tokens)
    assert reader.shares_prefixes
    asked = checkpoints()
    torch.testing.assert_close(reader.read(asked), plain(model, asked), atol=1e-4, rtol=0)
    longer = [[*tokens, 7, 8] for tokens in asked]
    torch.testing.assert_close(reader.read(longer), plain(model, longer), atol=1e-4, rtol=0)


def test_the_window_is_what_the_sliding_models_are_tested_for():
    model = tiny_model("mistral", vocabulary=VOCABULARY)
    reader = CausalReader(model, pass_tokens=64)
    reader._windows = {"full_attention": None}
    assert (reader.read(checkpoints()) - plain(model, checkpoints())).abs().max() > 0.1


def test_a_prefix_goes_through_the_model_once():
    reader = CausalReader(tiny_model(vocabulary=VOCABULARY), pass_tokens=16)
    before = reader.tokens_read
    trunk = [5] * 50
    reader.read([[*trunk, question] for question in range(10)])
    assert reader.tokens_read - before == 60
    reader.read([[*trunk, 3, 4]])
    assert reader.tokens_read - before == 61
    reader.forget()
    reader.read([[*trunk, 3, 4]])
    assert reader.tokens_read - before == 61 + 52


def test_a_tree_of_many_branches_runs_in_short_rows():
    model = tiny_model(vocabulary=VOCABULARY)
    reader, shapes = CausalReader(model, pass_tokens=64), []
    asked = [[*range(40), 50 + answer, *range(12), 80 + question] for answer in range(8) for question in range(3)]
    expected = plain(model, asked)
    model.register_forward_pre_hook(lambda _, args, kwargs: shapes.append(kwargs["input_ids"].shape), with_kwargs=True)
    torch.testing.assert_close(reader.read(asked), expected, atol=1e-4, rtol=0)
    assert [tuple(shape) for shape in shapes] == [(1, 40), (4, 16), (4, 16)]


def test_memory_that_nothing_has_filled_is_not_read(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *shape: self.new_full(shape, float("nan")))
    model = tiny_model(vocabulary=VOCABULARY)
    asked = [[1, 2], [*range(5, 40)], [*range(5, 30), 3], [*range(5, 20), 4]]
    reader = CausalReader(model, pass_tokens=8)
    assert reader.shares_prefixes
    torch.testing.assert_close(reader.read(asked), plain(model, asked), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["mpt", "mamba"])
def test_a_model_that_cannot_share_says_so_and_reads_one_at_a_time(kind, caplog):
    model = tiny_model(kind, vocabulary=VOCABULARY)
    with caplog.at_level(logging.WARNING):
        reader = CausalReader(model, pass_tokens=64)
    assert not reader.shares_prefixes
    assert "one prompt at a time" in caplog.text
    asked = checkpoints()
    torch.testing.assert_close(reader.read(asked), plain(model, asked), atol=1e-4, rtol=0)


def test_half_precision_shares_too():
    assert CausalReader(tiny_model(vocabulary=VOCABULARY).to(torch.bfloat16), pass_tokens=64).shares_prefixes
