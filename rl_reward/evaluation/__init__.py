"""Did the judge agree with the truth, and did the dense reward help: statistics of arrays, no judge and no trainer."""
