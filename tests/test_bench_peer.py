"""The peer's benchmark: the stub serves both sides alike, and the ratios are what they say."""

import json

import pytest
from protocol_server import StubServer

pytest.importorskip("openai")

from training import bench_peer


def question(opening: str, *good: int):
    text = f"{opening}\n" + "\n".join(f"an answer; quality {one} of 16" for one in good) + "\n<score_A> <score_B>"
    return [{"role": "user", "content": text}]


def test_the_best_candidate_is_the_one_of_the_highest_quality():
    found = [bench_peer.quality(i) for i in range(16)]
    assert sorted(found) == list(range(1, 17)) and found[bench_peer.BEST] == 16


@pytest.mark.parametrize(("opening", "letters"), [("Judge.", "DP"), (bench_peer.PEER_SAYS, "QE")])
def test_each_side_reads_the_letters_of_its_own_scale(opening: str, letters: str):
    # Quality 3 and 15: the letters D and P where T is best, Q and E where A is best.
    slots = [bench_peer.letters(question(opening, 3, 15), f"score_{slot}") for slot in "AB"]
    assert [next(iter(probabilities)) for probabilities in slots] == list(letters)


def test_a_prefilled_second_tag_is_continued_with_its_own_score_and_no_analysis():
    begun = {"role": "assistant", "content": "An analysis.\n<score_A>Q</score_A>\n<score_B>"}
    body = {"model": "stub", "messages": [*question(bench_peer.PEER_SAYS, 3, 15), begun], "max_tokens": 1}
    body |= {"temperature": 1.0, "seed": 0, "continue_final_message": True}
    (choice,) = StubServer(bench_peer.letters).completion(body)["choices"]
    assert choice["message"]["content"] in ("E", "The"), "drawn at temperature 1"
    assert choice["logprobs"]["content"][0]["top_logprobs"][0]["token"] == "E"


@pytest.mark.parametrize(("arm", "requests"), [("ours, no analysis", 45 * 3), ("ours, sampled analysis", 45 * 3 * 4)])
def test_a_group_of_sixteen_asks_what_the_tournament_law_says(arm: str, requests: int):
    with StubServer(bench_peer.letters) as server:
        best = bench_peer.ARMS[arm](server.base_url)(bench_peer.TASK, bench_peer.group())
    probes = sum("2 + 2 = 4" in json.dumps(body["messages"]) for body in server.bodies)
    assert best == bench_peer.BEST
    assert server.requests == requests + probes and probes == (arm == "ours, no analysis")


def test_the_peer_asks_three_times_for_every_evaluation():
    pytest.importorskip("llm_verifier")
    with StubServer(bench_peer.letters) as server:
        best = bench_peer.peer(server.base_url)(bench_peer.TASK, bench_peer.group())
    assert best == bench_peer.BEST and server.requests == 45 * 3 * 4 * 3


def test_fewer_is_the_median_over_rounds_of_the_ratio_within_a_round():
    def took(value: float):
        return {"requests": 6.0, "seconds": value, "cpu_seconds": 1.0}

    found = {"peer": [took(8.0), took(9.0), took(4.0)], "ours": [took(2.0), took(3.0), took(4.0)]}
    assert bench_peer.fewer(found) == {"ours": {"requests": 1.0, "seconds": 3.0, "cpu_seconds": 1.0}}
