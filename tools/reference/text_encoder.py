"""Hidden states of the conditioner for four prompts, by transformers' own Qwen3-VL reading the written folder."""

from pathlib import Path

import torch
from diffusers.modular_pipelines.minimax_h3.encoders import get_qwen3vl_prompt_embeds
from transformers import Qwen3VLForConditionalGeneration

import micro_config as config
import storage
import tokenizer as micro_tokenizer

# An empty prompt has no tokens and no reference result; the specification puts the padding token in its place.
PROMPTS = {
    "empty": "",
    "short": "A red fox walking through snow",
    "dialogue": 'Close shot, rain. She says <d>Don\'t go!</d> 镜头缓缓推进, the café closes at 19:08. 🌧️',
    "long": micro_tokenizer.long_text(320),
}


def load(folder: Path) -> Qwen3VLForConditionalGeneration:
    model = Qwen3VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return model.eval().requires_grad_(False)


class TextOnlyProcessor:
    """The reference asks its processor for one thing, the kind of each token: all are text here."""

    def create_mm_token_type_ids(self, batch: list[list[int]]) -> list[list[int]]:
        return [[0] * len(ids) for ids in batch]


def encode(model, ids: list[int]) -> torch.Tensor:
    return get_qwen3vl_prompt_embeds(
        model, TextOnlyProcessor(), ids, {}, text_encoder_layer=config.TEXT_LAYERS_USED, dtype=torch.float32
    )[0]


def write_goldens(golden: Path, official: Path) -> None:
    model = load(official / "text_encoder")
    tokenizer = micro_tokenizer.load(official / "tokenizer")
    tensors = {}
    for name, prompt in PROMPTS.items():
        ids = tokenizer(prompt, add_special_tokens=False)["input_ids"] or [tokenizer.pad_token_id]
        tensors[f"{name}.ids"] = torch.tensor(ids)
        tensors[f"{name}.hidden_state"] = encode(model, ids)
        if name == "short":
            states = model.model(
                input_ids=torch.tensor([ids]),
                mm_token_type_ids=torch.zeros(1, len(ids), dtype=torch.long),
                use_cache=False,
                output_hidden_states=True,
            ).hidden_states
            for layer in range(config.TEXT_LAYERS_USED + 1):
                tensors[f"{name}.after_layer_{layer}"] = states[layer][0]
    storage.write_tensors(golden / "text_encoder.safetensors", tensors)
    storage.write_json(golden / "text_encoder.json", {"prompts": PROMPTS})
