"""What `rl-reward compare` needs: configurations, runners for SAC and GRPO, results, reports."""
