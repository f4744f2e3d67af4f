"""The small LLaMA-style policy that calls the calculator: its vocabulary, its chat template, its rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_reward.errors import MissingExtraError
from rl_reward.experiments.calculator.task import OPERATIONS, TURNS, Calculator, Expression

try:
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
except ImportError as error:
    raise MissingExtraError("transformers", "trl") from error

POLICY = Path(__file__).parent / "policy"
"""The folder of the pretrained policy, as `from_pretrained` reads it."""

MAX_NEW_TOKENS = 24
"""A turn is one call, 20 tokens at most with numbers the calculator shows, or an answer."""

_MARKS = ("<pad>", "<eos>", "<unk>", "<user>", "<assistant>", "<call>", "<tool>", "<error>")
_WORDS = (*OPERATIONS.values(), "a=", "b=")
_CHARACTERS = "0123456789+-*(),"

# One token for what a tool says when it fails: TRL hands the model the text of {"error": ...}.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- "<" + message.role + ">" -}}
{%- if message.role == "tool" and message.content.startswith("{'error'") -%}<error>
{%- else -%}{{- message.content or "" -}}{%- endif -%}
{%- for call in message.tool_calls or [] -%}
{{- "<call>" + call.function.name + "(" -}}
{%- for name, value in call.function.arguments.items() -%}
{{- name + "=" + value | string -}}{{- "," if not loop.last -}}
{%- endfor -%}
{{- ")" -}}
{%- endfor -%}
{%- if message.role == "assistant" -%}<eos>{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<assistant>{%- endif -%}
"""

RESPONSE_TEMPLATE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<assistant>",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<call>(?P<name>\w+)\((?=[^<]*\))",
            "close_pattern": r"\)",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"(?P<key>\w+)=(?P<value>[^,]*)"},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": r"<eos>|$", "content": "text"},
    },
}
"""How transformers reads a call in what the policy wrote; a call without its bracket is text."""


def calculator_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token for each mark, tool, argument and character."""
    vocabulary = [*_MARKS, *_WORDS, *_CHARACTERS]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>"))
    pattern = "|".join(("<[a-z]+>", *_WORDS, "."))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    wrapped: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )
    wrapped.response_template = RESPONSE_TEMPLATE
    return wrapped


def fresh_model(tokenizer: Any) -> LlamaForCausalLM:
    """Return an untrained model of 0.16 M parameters; its weights come from torch's global seed."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=192,
            num_hidden_layers=3,
            num_attention_heads=4,
            max_position_embeddings=160,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def load_policy(folder: Path = POLICY) -> tuple[Any, Any]:
    """Return the model in `folder`, in float32, and its tokenizer."""
    # Untyped: what transformers declares for these does not hold for every version.
    model_class: Any = LlamaForCausalLM
    tokenizer_class: Any = PreTrainedTokenizerFast
    return model_class.from_pretrained(folder, dtype=torch.float32), tokenizer_class.from_pretrained(folder)


def prompt_of(expression: Expression) -> list[dict[str, Any]]:
    """Return the conversation before the first turn."""
    return [{"role": "user", "content": expression.text}]


def rollouts(
    model: Any, tokenizer: Any, asked: Sequence[Expression], *, temperature: float | None = None
) -> list[list[dict[str, Any]]]:
    """Return what was said after each prompt: greedy, or sampled at `temperature` with torch's global seed.

    Each has `TURNS` turns at most, like a right solution, and ends with the first turn that calls no tool.
    """
    said: list[list[dict[str, Any]]] = [[] for _ in asked]
    going = list(range(len(asked)))
    for _ in range(TURNS):
        written = _written(model, tokenizer, [prompt_of(asked[i]) + said[i] for i in going], temperature)
        for i, message in zip(going, written, strict=True):
            said[i] += [message, *_tool_messages(message)]
        going = [i for i in going if said[i][-1]["role"] == "tool"]
        if not going:
            break
    return said


def _written(model: Any, tokenizer: Any, conversations: list[Any], temperature: float | None) -> list[dict[str, Any]]:
    """Return the next message of each conversation."""
    texts = [tokenizer.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in conversations]
    batch = tokenizer(texts, padding=True, return_token_type_ids=False, return_tensors="pt").to(model.device)
    sampling = {"do_sample": temperature is not None, "temperature": temperature, "top_k": 0 if temperature else None}
    with torch.inference_mode():
        ids_NT = model.generate(**batch, **sampling, top_p=None, max_new_tokens=MAX_NEW_TOKENS)
    written = tokenizer.batch_decode(ids_NT[:, batch["input_ids"].shape[1] :])
    tools = [getattr(Calculator(), name) for name in OPERATIONS.values()]
    return [
        {"content": "", **tokenizer.parse_response(text.replace("<pad>", ""), prefix="<assistant>", tools=tools)}
        for text in written
    ]


def _tool_messages(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the calculator says to each call of `message`, as GRPOTrainer writes it."""
    answers: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    for call in calls:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        try:
            if name not in OPERATIONS.values():
                raise ValueError(f"Tool {name} not found.")
            content = getattr(Calculator(), name)(**arguments)
        except Exception as error:  # whatever a tool raises is the model's to read
            content = str({"error": str(error)})
        answers.append({"role": "tool", "name": name, "content": content})
    return answers
