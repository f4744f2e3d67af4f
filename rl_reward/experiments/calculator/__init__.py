"""Expressions worked out with a calculator over several turns: the task, a small policy, a simulated judge."""
