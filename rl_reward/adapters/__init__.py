"""Adapters: the reward in the language of its hosts, TRL and stable-baselines3; they know nothing of backends."""
