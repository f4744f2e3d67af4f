"""`rl-reward fetch-model NAME`: put a small model into the cache."""

from __future__ import annotations

import argparse
import sys

import rl_reward.cli.tables as tables
from rl_reward.errors import BackendError
from rl_reward.models import MODELS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("name", metavar="NAME", help=" or ".join(MODELS))
    parser.add_argument("--out", help="the folder to make; default: the cache, where --backend local:NAME finds it")
    parser.set_defaults(command=fetch_model)


def fetch_model(options: argparse.Namespace) -> int:
    """Fetch a model and say what to do with it; return 0, or 1 where it could not be had."""
    from rl_reward.models.fetching import fetch

    try:
        folder = fetch(options.name, options.out, say=lambda line: print(line, flush=True))
    except BackendError as error:
        print(f"rl-reward: error: {tables.one_line(str(error))}", file=sys.stderr)
        return 1
    print(f"use it as: --backend local:{options.name if options.out is None else folder}")
    return 0
