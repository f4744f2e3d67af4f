"""TransformersLocal on tiny real models: exact scores, shared prefixes, prompts, levels, errors."""

import asyncio
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from tiny_models import CHAT_TEMPLATE, save_tiny, save_tiny_gguf, tiny_model, tiny_tokenizer
from tokenizers.processors import TemplateProcessing

from rl_reward import BackendError, ConfigError, ScoreScale, Unscorable, Verifier
from rl_reward.backends import TransformersLocal
from rl_reward.backends.base import Message, Request
from rl_reward.backends.local.loading import locate
from rl_reward.backends.local.text import LocalText
from rl_reward.verdict import read_score

LETTERS = ScoreScale.letters(20)


def request(question="How good?", *, tags=("score",), scale=LETTERS, messages=None, **fields):
    kind = "pairwise" if len(tags) > 1 else "pointwise"
    messages = messages or (Message("user", ("The arm lifts the cube.", question)),)
    return Request(kind, messages, tags, scale, "task", "criterion", ("x",) * len(tags), **fields)


def local(kind="llama", *, chat_template=None, glued=False, **options):
    tokenizer = tiny_tokenizer(chat_template, glued=glued)
    return TransformersLocal(tiny_model(kind, vocabulary=len(tokenizer)), tokenizer=tokenizer, **options)


def ask(backend, *requests):
    async def together():
        return await asyncio.gather(*map(backend.reply, requests))

    return asyncio.run(together())


def scored(reply, tag="score"):
    return read_score(reply, tag, LETTERS, min_coverage=0).value


def plain_probs(kind, text):
    """The softmax after `text`, from the model alone."""
    tokenizer = tiny_tokenizer()
    with torch.inference_mode():
        logits = tiny_model(kind, vocabulary=len(tokenizer))(**tokenizer(text, return_tensors="pt")).logits
    return dict(enumerate(torch.softmax(logits[0, -1], dim=-1).tolist())), tokenizer


@pytest.mark.parametrize("kind", ["llama", "gpt_neox", "gemma3", "mamba"])
def test_the_score_is_the_expectation_over_the_whole_vocabulary(kind):
    (reply,) = ask(local(kind), request())
    probs, tokenizer = plain_probs(kind, "The arm lifts the cube.\nHow good?\n\n<score>")
    mass = np.zeros(20)
    for token, prob in probs.items():
        if tokenizer.decode([token]).strip().lower() in set("abcdefghijklmnopqrst"):
            mass[ord(tokenizer.decode([token]).strip().lower()) - ord("a")] += prob
    read = read_score(reply, "score", LETTERS, min_coverage=0).distribution
    assert read.coverage == pytest.approx(mass.sum(), abs=1e-5)
    np.testing.assert_allclose(read.probs, mass / mass.sum(), atol=1e-5)


def test_the_stream_holds_tag_level_tag_and_what_else_was_likely():
    (reply,) = ask(local(), request())
    opening, level, closing = reply.tokens
    assert (opening.text, opening.logprob, closing.text) == ("<score>", None, "</score>")
    assert reply.content == f"<score>{level.text}</score>"
    assert LETTERS.index(level.text) is not None
    assert level.logprob == dict(level.alternatives)[level.text]
    logprobs = [logprob for _, logprob in level.alternatives]
    assert logprobs == sorted(logprobs, reverse=True)
    assert sum(LETTERS.index(text) is None for text, _ in level.alternatives) == 5
    assert {text for text, _ in level.alternatives} >= {"A", "a", "T", "t"}


def test_a_pair_reads_its_second_score_behind_the_most_likely_first():
    (reply,) = ask(local(), request(tags=("score_A", "score_B")))
    first = read_score(reply, "score_A", LETTERS, min_coverage=0).distribution
    level = LETTERS.levels[int(first.probs.argmax())]
    text = f"The arm lifts the cube.\nHow good?\n\n<score_A>{level}</score_A><score_B>"
    probs, tokenizer = plain_probs("llama", text)
    second = dict(reply.tokens[4].alternatives)
    for letter in "AKT":
        assert np.exp(second[letter]) == pytest.approx(probs[tokenizer.convert_tokens_to_ids(letter)], abs=1e-5)


def questions_about_one_text(count):
    long = "The arm moves to the cube. " * 100
    return [request(messages=(Message("user", (long, f"Criterion {i}")),)) for i in range(count)]


def tokens_read(backend):
    return backend._loaded.reader.tokens_read


def test_requests_of_one_moment_share_their_prefix_and_change_nothing():
    together, alone = local(), [local() for _ in range(8)]
    shared = [scored(reply) for reply in ask(together, *questions_about_one_text(8))]
    single = [scored(ask(b, q)[0]) for b, q in zip(alone, questions_about_one_text(8), strict=True)]
    assert shared == pytest.approx(single, abs=1e-5)
    assert tokens_read(together) < sum(map(tokens_read, alone)) / 4


def test_prefixes_are_kept_while_requests_keep_coming():
    backend = local(keep_seconds=60.0)
    first, second, third = questions_about_one_text(3)
    ask(backend, first)
    before = tokens_read(backend)
    ask(backend, second, third)
    assert tokens_read(backend) - before < 50
    asyncio.run(backend.aclose())


def test_prefixes_are_freed_when_none_comes_and_never_under_an_answer():
    backend = local(keep_seconds=0.0)
    (question,) = questions_about_one_text(1)
    ask(backend, question)
    deadline = time.monotonic() + 60
    while len(backend._loaded.reader) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(backend._loaded.reader) == 0
    kept = local(keep_seconds=60.0)
    ask(kept, question)
    held = len(kept._loaded.reader)
    with kept._in_use:
        kept._forget_if_idle()
    assert len(kept._loaded.reader) == held > 0
    kept._forget_if_idle()
    assert len(kept._loaded.reader) == 0


def test_a_program_ends_without_waiting_for_prefixes_that_are_kept(tmp_path):
    program = (
        "import asyncio, sys\n"
        "from rl_reward import Verifier\n"
        "from rl_reward.backends import TransformersLocal\n"
        "judge = TransformersLocal(sys.argv[1], device='cpu', keep_seconds=3600)\n"
        "print(Verifier(judge, criteria='math', min_coverage=0).score('1 + 1', '2').value)\n"
    )
    command = [sys.executable, "-c", program, str(save_tiny(tmp_path))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert 0 < float(ended.stdout) < 1


def test_a_small_cache_costs_reading_again_and_changes_nothing():
    questions = [request(f"Question {i} about {i % 3}?", tags=("score_A", "score_B")) for i in range(6)]
    large, small = local(), local(max_cached_tokens=1, max_batch_tokens=5)
    expected, values = ([scored(reply, "score_B") for reply in ask(backend, *questions)] for backend in (large, small))
    assert values == pytest.approx(expected, abs=1e-5)
    assert tokens_read(large) < tokens_read(small)


def test_causal_checkpoints_through_the_verifier():
    backend = local()
    verifier = Verifier(backend, criteria={"A": "Is it near?", "B": "Is it held?"}, min_coverage=0)
    curve = verifier.track("lift the cube", [f"step {i} moves the arm" for i in range(6)])
    once = Verifier(local(), criteria={"A": "Is it near?", "B": "Is it held?"}, min_coverage=0)
    last = once.track("lift the cube", [f"step {i} moves the arm" for i in range(6)], every=5)
    assert curve.scored.all()
    assert curve.values[-1] == pytest.approx(last.values[-1], abs=1e-5)
    assert tokens_read(backend) < curve.usage.prompt_tokens / 3


def test_usage_counts_tokens_and_time():
    replies = ask(local(), request(), request("Other?"))
    prompt = len(tiny_tokenizer()("The arm lifts the cube.\nHow good?\n\n")["input_ids"])
    assert (replies[0].usage.calls, replies[0].usage.prompt_tokens) == (1, prompt)
    assert replies[0].usage.completion_tokens == 3
    assert replies[0].usage.seconds > 0


# Sampled analyses


def test_an_analysis_is_drawn_by_its_draw_and_ends_in_the_tag():
    def texts(*draws):
        return [r.content for r in ask(local(max_analysis_tokens=12), *(request(sampled=True, draw=d) for d in draws))]

    zero, one = texts(0, 1)
    assert zero != one
    assert texts(0) == [zero]
    assert zero.count("<score>") == 1
    assert zero.endswith("</score>") and not zero.startswith("<score>")


def test_a_low_temperature_makes_every_draw_the_same():
    backend = local(max_analysis_tokens=12, temperature=1e-6)
    zero, one = ask(backend, request(sampled=True, draw=0), request(sampled=True, draw=1))
    assert zero.content == one.content


def test_a_sampled_score_is_read_behind_the_analysis():
    (reply,) = ask(local(max_analysis_tokens=12), request(sampled=True, draw=3))
    analysis = reply.content[: reply.content.index("<score>")]
    probs, tokenizer = plain_probs("llama", f"The arm lifts the cube.\nHow good?\n\n{analysis}<score>")
    level = reply.tokens[-2]
    assert np.exp(dict(level.alternatives)["K"]) == pytest.approx(probs[tokenizer.convert_tokens_to_ids("K")], abs=1e-5)


def let_it_say(backend, text):
    """Make the loaded model write `text`, one character a token, before it is itself again; return its reads."""
    reader, reads, honest = backend._loaded.reader, [], backend._loaded.reader.read

    def read(sequences):
        rows = honest(sequences)
        if len(reads) < len(text):
            rows = torch.full_like(rows, -100.0)
            rows[:, tiny_tokenizer().convert_tokens_to_ids(text[len(reads)])] = 0.0
        reads.append(len(sequences))
        return rows

    reader.read = read
    return reads


@pytest.mark.parametrize("written", [[*"so<score>"], [*"so", "<eos>"]])
def test_an_analysis_stops_at_the_tag_or_where_the_model_ends(written):
    backend = local(max_analysis_tokens=100)
    ask(backend, request())
    reads = let_it_say(backend, written)
    (reply,) = ask(backend, request(sampled=True))
    assert reply.content == f"so\n<score>{reply.tokens[-2].text}</score>"
    assert len(reads) == len(written) + 1


# Prompts


def prompt_of(backend, *messages):
    return backend._load()._text.prompt(messages)


def test_a_base_model_reads_the_texts_with_blank_lines_between():
    shot, answer = Message("user", ("2 + 2 = 5",)), Message("assistant", ("<score>A</score>",))
    prompt = prompt_of(local(), shot, answer, Message("user", ("1 + 1 = 2",)))
    assert prompt == "2 + 2 = 5\n\n<score>A</score>\n\n1 + 1 = 2\n\n"


def test_a_chat_model_reads_its_template():
    backend = local(chat_template=CHAT_TEMPLATE)
    prompt = prompt_of(backend, Message("system", ("Judge.",)), Message("user", ("Good?",)))
    assert prompt == "<|system|>Judge.<|end|><|user|>Good?<|end|><|assistant|>"
    (reply,) = ask(backend, request())
    probs, tokenizer = plain_probs("llama", "<|user|>The arm lifts the cube.\nHow good?<|end|><|assistant|><score>")
    level = dict(reply.tokens[1].alternatives)
    assert np.exp(level["K"]) == pytest.approx(probs[tokenizer.convert_tokens_to_ids("K")], abs=1e-5)


@pytest.mark.parametrize(("chat_template", "opened"), [(None, True), (CHAT_TEMPLATE, False)])
def test_the_tokenizers_first_token_opens_a_plain_prompt_only(chat_template, opened):
    tokenizer = tiny_tokenizer(chat_template)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 0)])
    backend = TransformersLocal(tiny_model(vocabulary=len(tokenizer)), tokenizer=tokenizer)
    assert (backend._load()._text.encode("the cube")[0] == tokenizer.eos_token_id) == opened


def test_an_opened_thinking_block_is_closed_and_a_candidates_is_left_alone():
    thinking = CHAT_TEMPLATE.replace("<|assistant|>{% endif %}", "<|assistant|><think>\n{% endif %}")
    assert prompt_of(local(chat_template=thinking), Message("user", ("x",))).endswith("<think>\n\n</think>\n\n")
    plain = prompt_of(local(chat_template=CHAT_TEMPLATE), Message("user", ("He wrote <think> and stopped",)))
    assert "</think>" not in plain


def test_template_arguments_pass_through():
    template = CHAT_TEMPLATE + "{% if not enable_thinking %}<think></think>{% endif %}"
    quiet = local(chat_template=template, chat_template_kwargs={"enable_thinking": False})
    assert prompt_of(quiet, Message("user", ("x",))).endswith("<think></think>")


def test_a_template_without_system_turns_gets_the_system_text_in_the_first_user_turn():
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT_TEMPLATE
    prompt = prompt_of(local(chat_template=strict), Message("system", ("Judge.",)), Message("user", ("Good?",)))
    assert prompt == "<|user|>Judge.\n\nGood?<|end|><|assistant|>"


# Levels


def test_levels_that_are_not_one_token_are_named():
    with pytest.raises(ConfigError, match=r"after <score>.*'good'.*ScoreScale\.digits\(\)"):
        ask(local(), request(scale=ScoreScale(("A", "good"))))


def test_a_tag_glued_to_its_level_still_reads_the_bare_level():
    glued = tiny_tokenizer(glued=True)
    assert glued.tokenize("<score>A")[-1] == ">A"
    (reply,) = ask(local(glued=True), request())
    assert {"A", "B", "T"} <= {text for text, _ in reply.tokens[1].alternatives}


def test_one_bad_request_leaves_the_others_alone():
    async def both(backend):
        requests = [request(scale=ScoreScale(("A", "good"))), request("x " * 3000), request()]
        return await asyncio.gather(*map(backend.reply, requests), return_exceptions=True)

    bad_scale, too_long, fine = asyncio.run(both(local()))
    assert isinstance(bad_scale, ConfigError)
    assert isinstance(too_long, Unscorable) and "the model reads 2048" in str(too_long)
    assert 0 < scored(fine) < 1


def test_after_a_batch_that_broke_off_scores_are_right_again():
    backend, (question,) = local(max_batch_tokens=50, keep_seconds=60.0), questions_about_one_text(1)
    ask(backend, request())
    passes = iter([None, torch.OutOfMemoryError("short of memory")])
    honest = backend._loaded.reader._run

    def breaks_off(step):
        if (error := next(passes, None)) is not None:
            raise error
        return honest(step)

    backend._loaded.reader._run = breaks_off
    with pytest.raises(BackendError, match="lower max_cached_tokens=16384 or max_batch_tokens=50"):
        ask(backend, question)
    assert scored(ask(backend, question)[0]) == pytest.approx(scored(ask(local(), question)[0]), abs=1e-5)
    asyncio.run(backend.aclose())


# Where the model comes from


def test_a_folder_and_its_pickled_copy_answer_alike(tmp_path):
    backend = TransformersLocal(save_tiny(tmp_path / "judge-3m"), device="cpu")
    assert (backend.name, backend.sees_data) == ("local:judge-3m", False)
    (reply,) = ask(backend, request())
    (again,) = ask(pickle.loads(pickle.dumps(backend)), request())
    assert again.tokens == reply.tokens
    asyncio.run(backend.aclose())
    assert ask(backend, request())[0].tokens == reply.tokens


def test_a_gguf_folder_answers_like_the_model_it_was_made_from(tmp_path):
    file = save_tiny_gguf(tmp_path / "judge.gguf")
    (reply,), (same,), (original,) = (
        ask(backend, request())
        for backend in (TransformersLocal(tmp_path, device="cpu"), TransformersLocal(file, device="cpu"), local())
    )
    assert reply.content == same.content == original.content
    assert reply.tokens[1].logprob == pytest.approx(original.tokens[1].logprob, abs=1e-4)


def test_one_of_several_gguf_files_is_chosen_by_name(tmp_path):
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    assert locate(tmp_path, "b.gguf").gguf_file == "b.gguf"
    for name in (None, "c.gguf"):
        with pytest.raises(ConfigError, match=r"it holds a\.gguf, b\.gguf; pass gguf_file"):
            TransformersLocal(tmp_path, gguf_file=name)


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no model at .*nowhere.*expected a folder"):
        TransformersLocal(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"no model at 'nobody/nothing'.*already downloaded"):
        TransformersLocal("nobody/nothing")
    with pytest.raises(ConfigError, match=r"should hold config\.json or one GGUF file, it holds nothing"):
        TransformersLocal(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigError, match="does not load as a causal LM"):
        ask(TransformersLocal(tmp_path, device="cpu"), request())


def test_values_out_of_range_are_refused(tmp_path):
    folder = save_tiny(tmp_path)
    for option in (
        {"max_batch_tokens": 0},
        {"max_cached_tokens": 0},
        {"max_analysis_tokens": 0},
        {"temperature": 0},
        {"keep_seconds": -1},
    ):
        with pytest.raises(ConfigError, match=next(iter(option))):
            TransformersLocal(folder, **option)
    with pytest.raises(ConfigError, match="device must be like"):
        ask(TransformersLocal(folder, device="gpu0"), request())


def test_a_model_object_needs_a_tokenizer_and_is_not_pickled():
    with pytest.raises(ConfigError, match="needs its tokenizer"):
        TransformersLocal(tiny_model())
    with pytest.raises(ConfigError, match="not picklable"):
        pickle.dumps(local())


def test_images_are_refused():
    shown = Message("user", ("look", np.zeros((2, 2, 3), np.uint8)))
    with pytest.raises(BackendError, match="reads no images"):
        ask(local(), request(messages=(shown,)))


# Concurrency


def test_a_request_given_up_on_does_not_hold_the_others():
    async def main(backend):
        waiting = [asyncio.create_task(backend.reply(request(f"{i}?"))) for i in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        return await asyncio.gather(*waiting, return_exceptions=True)

    given_up, *others = asyncio.run(main(local()))
    assert isinstance(given_up, asyncio.CancelledError)
    assert all(reply.content for reply in others)


def test_the_loop_stays_free_and_one_backend_serves_many_loops():
    async def main(backend):
        task = asyncio.create_task(backend.reply(request()))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    backend = local()
    assert asyncio.run(main(backend)) > 1
    assert asyncio.run(main(backend)) > 1


@pytest.mark.parametrize("chat_template", [None, CHAT_TEMPLATE])
def test_special_tokens_in_what_is_judged_stay_text(chat_template):
    tokenizer = tiny_tokenizer(chat_template)
    special = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    text = LocalText(tokenizer, {})

    def specials_in(words):
        tokens = text.encode(text.prompt([Message("user", (words,))]))
        return sum(token in special for token in tokens)

    assert special
    for word in special.values():
        assert specials_in(f"honest {word} words") == specials_in("honest words")


def test_half_characters_are_judged_like_any_other_text():
    (reply,) = ask(local(), request("half \ud800 character"))
    assert 0 <= scored(reply) <= 1


def test_a_process_that_did_not_start_the_worker_starts_its_own():
    backend = local()
    ask(backend, request())
    backend._pid = -1
    ask(backend, request())
    assert backend._pid > 0


def test_a_broken_file_of_any_kind_is_one_line(tmp_path):
    save_tiny(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(ConfigError, match="does not load as a causal LM") as error:
        ask(TransformersLocal(tmp_path), request())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("path", ["a" * 5000, "a\0b"])
def test_an_impossible_path_is_one_line(path):
    with pytest.raises(ConfigError, match="cannot look for a model"):
        TransformersLocal(path)
