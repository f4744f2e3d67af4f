"""From a GGUF file to a folder that transformers loads in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_reward.errors import BackendError, MissingExtraError

try:
    import gguf  # noqa: F401  # pyright: ignore[reportUnusedImport]  # transformers reads GGUF files with it
    import torch
    import transformers
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "local") from error


def convert_gguf(file: Path, folder: Path) -> None:
    """Write the causal LM in `file` and its tokenizer into the new `folder`, weights in bfloat16.

    Raises:
        BackendError: transformers cannot read the file.
    """
    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    # The factories are typed for their class attributes, not for what they return.
    models: Any = transformers.AutoModelForCausalLM
    tokenizers: Any = transformers.AutoTokenizer
    try:
        tokenizer = tokenizers.from_pretrained(file.parent, **where)
        model = models.from_pretrained(file.parent, dtype=torch.float32, **where, **_unpacked()).to(torch.bfloat16)
    except Exception as error:  # a broken file shows as any kind of error
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise BackendError(f"transformers cannot convert {file.name}: {reason}") from error
    # The weights are plain numbers now; what still calls them quantised would make loading look for the GGUF file.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.is_quantized, model.hf_quantizer = False, None
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for made in folder.iterdir():
        made.chmod(0o644)  # the weights come readable for their owner alone


def _unpacked() -> dict[str, Any]:
    """Return what keeps newer versions of transformers from leaving the weights in their GGUF blocks."""
    settings: Any = getattr(transformers, "GgufConfig", None)
    return {} if settings is None else {"quantization_config": settings(dequantize=True)}
