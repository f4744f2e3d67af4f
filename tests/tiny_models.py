"""Randomly initialised language models of a few kB, some that see, with a real tokenizer and image processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SEEING_TEMPLATE = CHAT_TEMPLATE.replace(
    "{{ m.content }}",
    "{% for part in m.content %}{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}{% endfor %}",
)
"""A chat template as vision-language models have it; IMAGE becomes the image token of the model."""
SEEING = ["idefics3", "idefics3_tiles", "llava", "gemma3"]
"""The kinds of `tiny_vlm`."""
WINDOW = 12
"""The attention window of the sliding models, shorter than every prompt."""

_CORPUS = ["Rate the candidate <score>A</score> from A to T. The arm moves to the cube and lifts the cube."] * 4
_SPECIAL = ["<eos>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
_SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
}
_GROUPED = {**_SIZE, "num_key_value_heads": 2}
_GEMMA_LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
_CONFIGS: dict[str, tuple[type, dict[str, Any]]] = {
    "llama": (transformers.LlamaConfig, _GROUPED),
    "gpt_neox": (transformers.GPTNeoXConfig, _SIZE),
    "qwen2": (transformers.Qwen2Config, _GROUPED),
    "gemma3": (
        transformers.Gemma3TextConfig,
        {**_GROUPED, "head_dim": 16, "sliding_window": WINDOW, "layer_types": _GEMMA_LAYERS, "pad_token_id": 0},
    ),
    "mistral": (transformers.MistralConfig, {**_GROUPED, "sliding_window": WINDOW}),
    "mpt": (transformers.MptConfig, {"d_model": 32, "n_layers": 2, "n_heads": 4}),
    "mamba": (transformers.MambaConfig, {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
}


def tiny_tokenizer(chat_template: str | None = None, *, glued: bool = False) -> transformers.PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer trained on one sentence; `glued` lets merges cross the end of a tag (">A")."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not glued)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*_CORPUS, *([">A"] * 50 if glued else [])], trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>", chat_template=chat_template
    )


def tiny_model(kind: str = "llama", *, vocabulary: int = 340, seed: int = 0) -> transformers.PreTrainedModel:
    """Return a causal LM with random weights that make a token's distribution far from uniform."""
    config_class, sizes = _CONFIGS[kind]
    config = config_class(vocab_size=vocabulary, bos_token_id=None, eos_token_id=0, **sizes)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.2)
    return model


def save_tiny(folder: Path, kind: str = "llama", chat_template: str | None = None) -> Path:
    """Write a tiny model and its tokenizer into `folder`, as `save_pretrained` does."""
    tokenizer = tiny_tokenizer(chat_template)
    tiny_model(kind, vocabulary=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


_EYES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
_IMAGE_TOKENS = {"idefics3": "<image>", "llava": "<image>", "gemma3": "<soi>"}


def tiny_vlm(kind: str = "idefics3", *, seed: int = 0) -> tuple[transformers.PreTrainedModel, Any]:
    """Return a vision-language model with random weights, and its processor (which needs no torchvision)."""
    kind, tiles = kind.removesuffix("_tiles"), kind.endswith("_tiles")
    processor = _processor(kind, tiles)
    tokenizer = processor.tokenizer
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    text = {**_CONFIGS["gemma3" if kind == "gemma3" else "llama"][1], "vocab_size": len(tokenizer), "pad_token_id": 0}
    text |= {"bos_token_id": None, "eos_token_id": 0}
    if kind == "idefics3":
        config = transformers.Idefics3Config(
            vision_config=_EYES, text_config={"model_type": "llama", **text}, image_token_id=image_token, scale_factor=2
        )
    elif kind == "llava":
        config = transformers.LlavaConfig(
            vision_config=transformers.CLIPVisionConfig(**_EYES),
            text_config=transformers.LlamaConfig(**text),
            image_token_index=image_token,
        )
    else:
        config = transformers.Gemma3Config(
            vision_config=_EYES,
            text_config=text,
            image_token_index=image_token,
            boi_token_index=tokenizer.convert_tokens_to_ids("<soi>"),
            eoi_token_index=tokenizer.convert_tokens_to_ids("<eoi>"),
            mm_tokens_per_image=4,
        )
    torch.manual_seed(seed)
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.2)
    return model, processor


def _processor(kind: str, tiles: bool) -> Any:
    template = SEEING_TEMPLATE.replace("IMAGE", _IMAGE_TOKENS[kind])
    tokenizer = tiny_tokenizer()
    marks = {"image_token": "<image>", "boi_token": "<soi>", "eoi_token": "<eoi>"} if kind == "gemma3" else {}
    frames = ["<fake_token_around_image>", "<end_of_utterance>", "<global-img>", "<row_1_col_1>"]
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>", *frames, *marks.values()]})
    for name, mark in marks.items():
        setattr(tokenizer, name, mark)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(mark))
    size = {"height": 32, "width": 32}
    if kind == "idefics3":
        edges = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}, "do_image_splitting": tiles}
        images = transformers.Idefics3ImageProcessorPil(**edges)
        return transformers.Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=template)
    if kind == "llava":
        images = transformers.CLIPImageProcessorPil(size=size, crop_size=size)
        how = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
        return transformers.LlavaProcessor(images, tokenizer, chat_template=template, **how)
    images = transformers.Gemma3ImageProcessorPil(size=size)
    return transformers.Gemma3Processor(images, tokenizer, chat_template=template, image_seq_length=4)


def save_tiny_vlm(folder: Path, kind: str = "idefics3") -> Path:
    """Write a tiny vision-language model and its processor into `folder`, as `save_pretrained` does."""
    model, processor = tiny_vlm(kind)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def save_small(folder: Path) -> Path:
    """Write a LLaMA of 5 M random weights, large enough to time, and its tokenizer into `folder`."""
    tokenizer = tiny_tokenizer()
    sizes = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 8}
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=0, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_tiny_gguf(file: Path) -> Path:
    """Write the tiny LLaMA and its tokenizer into one GGUF file."""
    tokenizer = tiny_tokenizer()
    model = tiny_model("llama", vocabulary=len(tokenizer))
    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _write_tokenizer(writer, tokenizer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        writer.add_tensor(names.get_name(name, (".weight",)), _interleaved(weight, heads).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    bpe = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if t in _SPECIAL else gguf.TokenType.NORMAL for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def _interleaved(weight: torch.Tensor, heads: int | None) -> torch.Tensor:
    """Return `weight` as llama.cpp keeps it: its rotary halves interleaved where it has heads."""
    if heads is None:
        return weight
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
