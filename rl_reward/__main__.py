"""`python -m rl_reward` is the command `rl-reward`."""

import sys

from rl_reward.cli import main

sys.exit(main())
