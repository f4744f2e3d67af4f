"""The parts of TransformersLocal: prompts and level tokens, shared prefixes, the model."""
