"""Steps: where they are in a text, and which tokens wrote them, for tokenizers with all the usual traps."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rl_reward.errors import ConfigError
from rl_reward.steps import (
    NAMED,
    _reach,
    checked_splitting,
    numbered,
    paragraphs,
    sentences,
    separated_by,
    spans_of,
    steps_of,
    turns_of,
)

TEXT = "First 😀 we add 3 and 4.\n\n😀🎉 Then 7*2 = 14. Done\n \n\U0001f9d1\u200d\U0001f680 ok\n"


def said(text, split):
    return [text[first:last] for first, last in spans_of(text, split)]


# ------------------------------------------------------------------------------------------------------ characters


def test_paragraphs_are_between_blank_lines():
    assert said("a\nb\n\n\n c \n \t\nd\n", paragraphs) == ["a\nb", "c ", "d\n"]
    assert said("\n\n", paragraphs) == []


def test_numbered_steps_begin_at_their_numbers():
    text = "To begin:\n1. add 2.\n2.5 is no step\n 2) carry\n**Step 3**: write\n(4) end"
    assert said(text, numbered) == [
        "To begin:\n",
        "1. add 2.\n2.5 is no step\n",
        " 2) carry\n",
        "**Step 3**: write\n",
        "(4) end",
    ]
    assert said("no number", numbered) == ["no number"]


def test_sentences_keep_decimals_quotes_and_list_numbers_together():
    text = '1. It is 3.5! "So?" Yes\nnext line\n2. end.'
    assert said(text, sentences) == ["1. It is 3.5!", '"So?', "Yes", "next line", "2. end."]
    assert said("好。再来。", sentences) == ["好。", "再来。"]


def test_marks_end_a_step_and_belong_to_it():
    assert said("11;12#121", separated_by(";", "#")) == ["11;", "12#", "121"]
    assert said("11;", separated_by(";")) == ["11;"]
    assert said("a.b", separated_by(".")) == ["a.", "b"], "a mark is no pattern"
    with pytest.raises(ConfigError, match="separated_by needs one or more texts that are not empty"):
        separated_by("")


def test_a_function_may_give_strings_or_spans_and_blank_ones_are_passed_over():
    assert said("aa  aa\n\nb", lambda text: text.split("\n\n")) == ["aa  aa", "b"]
    assert spans_of("aa  aa", lambda text: ["aa", "", "  ", "aa"]) == [(0, 2), (4, 6)], "the second aa is the second"
    assert spans_of("abcd", lambda text: [(0, 1), (2, 4)]) == [(0, 1), (2, 4)]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([(0, 3), (2, 4)], r"step \(2, 4\) begins before 3, where the last one ends; steps must not overlap"),
        ([(2, 4), (0, 2)], "steps must not overlap"),
        ([(0, 9)], r"step \(0, 9\) is outside the text of 4 characters"),
        ([(-1, 2)], "outside the text"),
        ([(3, 2)], "outside the text"),
        (["ab", "ab"], "step 'ab' is not in the text after character 2"),
        ([3], r"step is \(first, one past the last\) or a string, got 3"),
        ([(0.0, 1.5)], "or a string, got"),
        ("abcd", "returns a list of spans or of strings, got str"),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_split_is_refused_in_one_line(found, message):
    with pytest.raises(ConfigError, match=message) as refused:
        spans_of("abcd", lambda text: found)
    assert "\n" not in str(refused.value)


def test_an_unknown_name_is_refused():
    assert checked_splitting("turns") == "turns"
    with pytest.raises(ConfigError, match="steps must be one of paragraphs, numbered, sentences, turns or a function"):
        checked_splitting("lines")


# ---------------------------------------------------------------------------------------------------------- tokens


def byte_level(*merged):
    """One token per byte, longer ones for `merged`, as GPT-2 spells them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate([*letters, *merged, "<eos>"])}))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<eos>"])
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def ids_of(*pieces):
        tokens = []
        for piece in pieces:
            (spelt, _), *_ = spell.pre_tokenize_str(piece)
            tokens += [spelt] if spelt in merged else list(spelt)
        return [tokenizer.token_to_id(token) for token in tokens]

    return tokenizer, ids_of


def byte_fallback():
    """Metaspace pieces and bytes for what is not in the vocabulary, as SentencePiece models have them."""
    pieces = ["<eos>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁First", "▁we", "▁", "▁ok", "."]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


def held(steps):
    return [(step.text, step.start, step.end) for step in steps]


def test_a_token_with_the_space_before_a_step_belongs_to_it():
    tokenizer, ids_of = byte_level("ĠThen", "It", "Ġis.", "ĊĊ")
    ids = [*ids_of("It"), *ids_of(" is."), *ids_of(" Then"), *ids_of("\n\n"), *ids_of("It")]
    assert held(steps_of(ids, tokenizer.decode, sentences)) == [("It is. ", 0, 2), ("Then\n\n", 2, 4), ("It", 4, 5)]
    assert held(steps_of(ids, tokenizer.decode, paragraphs)) == [("It is. Then\n\n", 0, 4), ("It", 4, 5)]


def test_a_token_across_two_steps_belongs_to_the_earlier():
    tokenizer, ids_of = byte_level("a;b", "b;c;", "d")
    ids = [*ids_of("a;b"), *ids_of("d"), *ids_of(";"), *ids_of("d")]
    assert held(steps_of(ids, tokenizer.decode, separated_by(";"))) == [("a;", 0, 1), ("bd;", 1, 3), ("d", 3, 4)]


def test_a_step_without_a_token_of_its_own_joins_the_one_that_has_it():
    tokenizer, ids_of = byte_level("a;b;", "c;d")
    (both,) = ids_of("a;b;")
    assert held(steps_of([both, *ids_of("d")], tokenizer.decode, separated_by(";"))) == [("a;b;", 0, 1), ("d", 1, 2)]
    assert held(steps_of([both], tokenizer.decode, separated_by(";"))) == [("a;b;", 0, 1)]
    assert held(steps_of(ids_of("c;d"), tokenizer.decode, separated_by(";"))) == [("c;d", 0, 1)]


def test_the_bytes_of_a_character_stay_together():
    tokenizer, ids_of = byte_level()
    ids = ids_of("😀;🎉;")
    assert len(ids) == 10
    assert held(steps_of(ids, tokenizer.decode, separated_by(";"))) == [("😀;", 0, 5), ("🎉;", 5, 10)]
    spaced = ids_of("a.", " ", "😀")
    assert held(steps_of(spaced, tokenizer.decode, sentences)) == [("a. ", 0, 3), ("😀", 3, 7)]


def test_sentencepiece_spaces_and_byte_fallback():
    tokenizer = byte_fallback()
    ids = [
        tokenizer.token_to_id(t) for t in ("▁First", "▁we", ".", "▁", *(f"<0x{b:02X}>" for b in "😀".encode()), "▁ok")
    ]
    assert tokenizer.decode(ids) == "First we. 😀 ok"
    assert held(steps_of(ids, tokenizer.decode, sentences)) == [("First we. ", 0, 4), ("😀 ok", 4, 9)]


def test_special_tokens_and_the_end_belong_to_the_step_before():
    tokenizer, ids_of = byte_level()
    (eos,) = [tokenizer.token_to_id("<eos>")]
    ids = [eos, *ids_of("a;"), eos, *ids_of("b"), eos, eos]
    assert held(steps_of(ids, tokenizer.decode, separated_by(";"))) == [("a;", 0, 4), ("b", 4, 7)]
    assert held(steps_of([eos], tokenizer.decode, separated_by(";"))) == [("", 0, 1)]


def test_a_cut_off_character_is_held_too():
    tokenizer, ids_of = byte_level()
    ids = ids_of("a;😀")[:-2]
    steps = steps_of(ids, tokenizer.decode, separated_by(";"))
    assert [(step.start, step.end) for step in steps] == [(0, 2), (2, 4)]


@pytest.mark.parametrize("name", [*NAMED, "cuts"])
def test_every_token_is_in_one_step_in_order_and_every_character_too(name):
    rng = np.random.default_rng(0)
    tokenizer, ids_of = byte_level()
    for _ in range(15):
        cuts = sorted(rng.choice(len(TEXT), size=6, replace=False).tolist())
        split = NAMED.get(name) or (lambda text, cuts=cuts: list(zip(cuts[::2], cuts[1::2], strict=True)))
        ids = ids_of(TEXT)
        steps = steps_of(ids, tokenizer.decode, split)
        assert "".join(step.text for step in steps) == TEXT
        assert [step.start for step in steps] == [0, *(step.end for step in steps[:-1])] and steps[-1].end == len(ids)
        for step in steps:  # one byte a token: the tokens of a step write its text and nothing else
            assert tokenizer.decode(ids[step.start : step.end]) == step.text


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 400])
def test_where_tokens_reach_is_what_their_prefix_decodes_to(kind, length):
    rng = np.random.default_rng(length)
    tokenizer = byte_level()[0] if kind == "bytes" else byte_fallback()
    letters = [*"ab .\n", "é", "漢", "😀"]
    written = "".join(rng.choice(letters, size=length))
    ids = byte_level()[1](written) if kind == "bytes" else [1 + byte for byte in written.encode()]
    text = tokenizer.decode(ids)
    begun, ended = _reach(ids, tokenizer.decode, text)
    for t in range(len(ids) + 1):
        prefix = tokenizer.decode(ids[:t])
        if text.startswith(prefix):  # no character is cut
            assert (begun(t), ended(t)) == (len(prefix), len(prefix))


def test_a_long_text_is_not_decoded_from_its_beginning_again_and_again():
    tokenizer, ids_of = byte_level()
    ids, decoded = ids_of("a;" * 4 + "b" * 40_000), []

    def decode(some):
        decoded.append(len(some))
        return tokenizer.decode(some)

    steps_of(ids, decode, separated_by(";"))
    assert sum(decoded) < 4 * len(ids)


# ----------------------------------------------------------------------------------------------------------- turns


def test_a_turn_is_a_run_of_the_models_own_tokens():
    tokenizer, ids_of = byte_level()
    ids = ids_of("call[tool]more[x]")
    own = [1] * 4 + [0] * 6 + [1] * 4 + [0] * 3
    assert held(turns_of(ids, tokenizer.decode, own)) == [("call[tool]", 0, 4), ("more[x]", 10, 14)]
    assert held(turns_of(ids_of("[x]ab"), tokenizer.decode, [0, 0, 0, 1, 1])) == [("[x]ab", 3, 5)]
    assert held(turns_of(ids_of("ab"), tokenizer.decode, [0, 0])) == [("ab", 0, 2)]
