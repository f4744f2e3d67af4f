"""Judges of single captions: a language model, the rule that controls it, and what both are told of carrying."""
