"""Where the verdict stands: replies as servers really send them."""

import math

import pytest

from rl_reward import ScoreScale, Unscorable, read_score
from rl_reward.backends.base import Reply, Token

SCALE = ScoreScale.letters(20)


def level(text, **alternatives):
    shares = alternatives or {text: 0.9, "J": 0.05}
    listed = tuple((token.replace("_", " "), math.log(p)) for token, p in shares.items())
    return Token(text, listed[0][1], listed)


def words(text):
    return [Token(text, -0.1, ((text, -0.1),))] if text else []


def reply(*pieces, content=None, **fields):
    tokens = tuple(token for piece in pieces for token in ([piece] if isinstance(piece, Token) else words(piece)))
    whole = "".join(token.text for token in tokens)
    return Reply(tokens, whole if content is None else content, **fields)


def mean(answer, tag="score"):
    return read_score(answer, tag, SCALE).value


def test_the_distribution_stands_at_the_letter_not_at_the_blank_before_it():
    blank = Token(" ", math.log(0.99), ((" ", math.log(0.99)), (" T", math.log(0.005))))
    answer = reply("<score_A>", blank, level("A", A=0.95, B=0.05), "</score_A>")
    assert mean(answer, "score_A") == pytest.approx(0.05 / 19)


def test_a_letter_glued_to_the_bracket_is_found():
    glued = Token(">T", math.log(0.9), ((">T", math.log(0.9)), (">A", math.log(0.1))))
    assert mean(reply("<score", glued, "</score>")) == pytest.approx(0.9)


def test_the_last_complete_tag_is_the_verdict():
    quoted = reply(
        "I might say <score>", level("A"), "</score> but: <score>", level("T", T=1 - 1e-9, A=1e-9), "</score>"
    )
    assert mean(quoted) == pytest.approx(1.0)
    trailing = reply("<score>", level("T", T=1 - 1e-9, A=1e-9), "</score> That is my <score> for it.")
    assert mean(trailing) == pytest.approx(1.0)


def test_a_reply_without_a_tag_is_unscored():
    with pytest.raises(Unscorable, match="no complete <score>"):
        mean(reply("I would say T, 17 of 20."))
    with pytest.raises(Unscorable, match="empty"):
        mean(reply("<score> </score>"))


def test_a_tag_inside_the_thinking_does_not_count():
    thought = ("<think>perhaps <score>", level("T"), "</score></think>")
    with pytest.raises(Unscorable, match="no complete"):
        mean(reply(*thought, "I cannot rate this."))
    with pytest.raises(Unscorable, match="no complete"):
        mean(reply("<think>perhaps <score>", level("T"), "</score> or"))
    assert mean(reply(*thought, "<score>", level("A", A=1 - 1e-9, T=1e-9), "</score>")) == pytest.approx(0.0, abs=1e-6)


def test_reasoning_in_its_own_field_does_not_count_either():
    stream = ("First <score>", level("T"), "</score> then", "Sorry.")
    with pytest.raises(Unscorable, match="no complete"):
        mean(reply(*stream, content="Sorry.", reasoning="First <score>T</score> then"))


def test_a_letter_that_the_server_put_into_the_reasoning_field_is_read():
    stream = ("It is right. <score>", level("T", T=0.9, A=0.1), "</score>")
    answer = reply(*stream, content="", reasoning="It is right. <score>T</score>")
    assert mean(answer) == pytest.approx(0.9)


def test_both_scores_of_a_pair_are_read_from_the_reasoning_field():
    stream = ("<score_A>", level("T", T=0.9, A=0.1), "</score_A> <score_B>", level("A", A=0.8, T=0.2), "</score_B>")
    answer = reply(*stream, content="", reasoning="...")
    assert (mean(answer, "score_A"), mean(answer, "score_B")) == (pytest.approx(0.9), pytest.approx(0.2))


def test_a_tag_in_the_middle_of_reasoning_that_never_ended_is_unscored():
    stream = ("Perhaps <score>", level("T"), "</score>, but wait")
    with pytest.raises(Unscorable, match="at the end of the reasoning"):
        mean(reply(*stream, content="", reasoning="x"))
    with pytest.raises(Unscorable, match="cut off"):
        mean(reply("Perhaps <score>", level("T"), "</score>", content="", reasoning="x", finish_reason="length"))


@pytest.mark.parametrize("content", ["I refuse.", "<score>A</score>"])
def test_text_and_tokens_that_disagree_are_unscored(content):
    with pytest.raises(Unscorable, match="disagree"):
        mean(reply("<score>", level("T"), "</score>", content=content))


@pytest.mark.parametrize("end", ["</think>", "</thinking>"])
def test_a_thought_whose_beginning_the_template_wrote_does_not_count(end):
    with pytest.raises(Unscorable, match="no complete"):
        mean(reply("maybe <score>", level("A"), "</score>? hmm", end, "I cannot rate."))


def test_a_tag_quoted_in_an_analysis_that_was_cut_off_is_no_verdict():
    quoted = ("If it were wrong: <score>", level("A"), "</score>, but step 2 of the")
    with pytest.raises(Unscorable, match="cut off"):
        mean(reply(*quoted, finish_reason="length"))
    assert mean(reply("So <score>", level("T", T=0.9, A=0.1), "</score>", finish_reason="length")) == pytest.approx(0.9)


@pytest.mark.parametrize("blank", ["▁", "Ġ", "\n", " "])
def test_every_kind_of_blank_token_before_the_letter_is_stepped_over(blank):
    mark = Token(blank, math.log(0.6), ((blank, math.log(0.6)), ("A", math.log(0.3))))
    assert mean(reply("<score>", mark, level("T", T=0.9, A=0.1), "</score>")) == pytest.approx(0.9)


def test_a_placeholder_or_an_empty_tag_after_the_verdict_is_not_the_verdict():
    placeholder = Token("LEVEL", math.log(0.5), (("LEVEL", math.log(0.5)), ("A", math.log(0.3))))
    verdict = ("<score>", level("T", T=0.9, A=0.1), "</score>")
    assert mean(reply(*verdict, " in the form <score>", placeholder, "</score>")) == pytest.approx(0.9)
    assert mean(reply(*verdict, " as <score></score>.")) == pytest.approx(0.9)


def test_a_verdict_in_other_words_is_unscored_not_read_at_its_first_token():
    stars = Token("**", math.log(0.6), (("**", math.log(0.6)), ("A", math.log(0.2))))
    with pytest.raises(Unscorable, match="none of the levels"):
        mean(reply("<score>", stars, level("T"), "**", "</score>"))


def test_one_word_off_the_scale_counts_by_its_coverage():
    word = Token("The", math.log(0.4), (("The", math.log(0.4)), ("T", math.log(0.6))))
    assert mean(reply("<score>", word, "</score>")) == pytest.approx(1.0)


def test_a_letter_without_alternatives_has_no_distribution():
    with pytest.raises(Unscorable, match="no logprobs of alternatives"):
        mean(reply("<score>", Token("T", -0.2), "</score>"))


@pytest.mark.parametrize("rest", ["0", "/10", ".5"])
def test_a_level_that_goes_on_is_another_number(rest):
    digits = ScoreScale.digits()
    answer = reply("<score>", level("1", **{"1": 0.9, "2": 0.1}), rest, "</score>")
    with pytest.raises(Unscorable, match=r"none of the levels 0\.\.9"):
        read_score(answer, "score", digits)


def test_no_logprobs_is_unscored_and_the_literal_letter_only_on_demand():
    answer = reply("<score>", Token("T"), "</score>")
    with pytest.raises(Unscorable, match="no logprobs"):
        mean(answer)
    literal = read_score(answer, "score", SCALE, allow_text=True)
    assert (literal.value, literal.distribution) == (1.0, None)


def test_a_literal_that_is_no_level_is_unscored_even_on_demand():
    answer = reply("<score>", Token("seventeen"), "</score>")
    with pytest.raises(Unscorable):
        read_score(answer, "score", SCALE, allow_text=True)
