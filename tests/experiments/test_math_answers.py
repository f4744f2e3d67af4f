"""Final answers: where they stand, and that values count and not how they are written."""

import threading

import pytest

pytest.importorskip("math_verify")

from rl_reward.experiments.math_answers import boxed, correct, well_formed


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{4}", "4"),
        (r"first \boxed{3}, no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{4", None),
        ("4", None),
        ("", None),
    ],
)
def test_the_last_complete_box_is_the_answer(text, answer):
    assert boxed(text) == answer


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{\dfrac{1}{2}}", r"so $x=\boxed{ \frac{1} {2} }$"),
        (r"\boxed{$4$}", "4"),
        (r"\boxed{0.5}", r"\boxed{\frac{1}{2}}"),
        (r"first \boxed{3}, no, \boxed{1 + x}", "x + 1"),
        (r"\boxed{1,000}", "1000"),
        (r"\boxed{east}", "east"),
        (r"\boxed{" + "0" * 290 + "150}", "150"),
    ],
)
def test_a_boxed_answer_counts_by_its_value(completion, answer):
    assert correct(completion, answer, "boxed") and well_formed(completion, "boxed")


def test_without_a_box_there_is_no_boxed_answer():
    assert not correct("4", "4", "boxed") and not well_formed("4", "boxed")
    assert not correct(r"\boxed{5}", "4", "boxed")
    assert not correct(r"\boxed{}", "4", "boxed")


@pytest.mark.parametrize(
    ("completion", "right"),
    [("0 - 4 = -4", True), ("The answer is -4.", True), ("-4", True), ("4", False), ("It is -4, or 5", False)],
)
def test_in_plain_text_the_last_number_counts(completion, right):
    assert correct(completion, "-4", "plain") is right and well_formed(completion, "plain")


@pytest.mark.parametrize("copied", ["9 - 8", "9-8", "8/8", "1 * 1.0", "9 \u2212 8", "1 + 0", "1^9", "9 - 8 ="])
def test_a_sum_written_down_again_is_not_worked_out(copied):
    assert not correct(f"The final answer is {copied}", "1", "plain") or copied == "1 * 1.0"
    assert not correct(rf"\boxed{{{copied.rstrip(' =')}}}", "1", "boxed")


def test_answers_that_are_no_plain_number_may_have_signs():
    assert correct(r"\boxed{2+3\sqrt{2}}", r"3\sqrt{2}+2", "boxed")
    assert correct(r"\boxed{x^2-1}", "-1 + x^2", "boxed")
    assert correct(r"\boxed{1/2}", "0.5", "boxed") and correct("it is 1/2", "0.5", "plain")
    assert correct(r"\boxed{-4}", "-4", "boxed") and correct("x = -4", "-4", "plain")


def test_words_without_a_number_are_no_plain_answer():
    assert not correct("No.", "-4", "plain") and not well_formed("No.", "plain") and not well_formed("", "plain")


ENDLESS = [
    "100000!!",
    r"\sum_{n=1}^{10^9} n",
    r"\binom{999999999}{500000000}",
    "9**9**9**9",
    "(" * 140 + "1" + ")" * 140,
]
ENDLESS += [r"\sin(" * 40 + "x" + ")" * 40, "e^{" * 40 + "x" + "}" * 40]


def test_a_thread_of_its_own_has_no_time_limit_and_still_ends():
    found = []

    def off_the_main_thread():
        found.append(correct("it is 0.5", "1/2", "plain"))
        for tower in ("9^{9^{9^{9}}}", "(9^9)^9^9", "x^{99999}", *ENDLESS):
            found.append(correct(rf"\boxed{{{tower}}}", "x", "boxed"))

    thread = threading.Thread(target=off_the_main_thread)
    thread.start()
    thread.join()
    assert found == [True] + [False] * (3 + len(ENDLESS))


@pytest.mark.parametrize(
    "hostile", ["9^9^9^9", " ".join(map(str, range(5000))), "(" * 2000 + "1" + ")" * 2000, "7" * 50_000]
)
def test_hostile_answers_are_wrong_and_end(hostile):
    assert not correct(hostile, "42", "plain")
    assert not correct(rf"\boxed{{{hostile}}}", "42", "boxed")
