"""Dense RL rewards from the score-token expectation of a language-model verifier."""
