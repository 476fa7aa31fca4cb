"""h3-tiny's own byte-level BPE: training, and the official tokenizer files.

    python tokenizer.py --out ../../models/h3-tiny/tokenizer
"""

import argparse
import json
import random
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from captions import caption
from scenes import sample_scenes

VOCABULARY = 1200
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Order fixes the ids: they follow the last vocabulary entry. (text, special)
ADDED_TOKENS = (
    ("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True),
    ("<|object_ref_start|>", True), ("<|object_ref_end|>", True),
    ("<|box_start|>", True), ("<|box_end|>", True), ("<|quad_start|>", True), ("<|quad_end|>", True),
    ("<|vision_start|>", True), ("<|vision_end|>", True), ("<|vision_pad|>", True),
    ("<|image_pad|>", True), ("<|video_pad|>", True),
    ("<tool_call>", False), ("</tool_call>", False),
    ("<|fim_prefix|>", False), ("<|fim_middle|>", False), ("<|fim_suffix|>", False), ("<|fim_pad|>", False),
    ("<|repo_name|>", False), ("<|file_sep|>", False),
    ("<tool_response>", False), ("</tool_response>", False), ("<think>", False), ("</think>", False),
)  # fmt: skip
# Named only in tokenizer_config.json, as in the full-size model; loaders append them in this order.
H3_TOKENS = (
    "<d>", "</d>", "<|cutoff|>", "<|lyrics_start|>", "<|lyrics_end|>", "<|caption_start|>", "<|caption_end|>",
)  # fmt: skip
EMBEDDING_ROWS = 1280

GENERAL_ENGLISH = Path(__file__).with_name("general_english.txt")


def token_id(text: str) -> int:
    """Id of an added or H3 token."""
    names = [name for name, _ in ADDED_TOKENS] + list(H3_TOKENS)
    return VOCABULARY + names.index(text)


def train() -> Tokenizer:
    """Trains on captions of all scenes and on a page of general English. Deterministic."""
    rng = random.Random(0)
    scenes = sample_scenes(6000, torch.Generator().manual_seed(0))
    lines = [caption(scenes, index, rng) for index in range(len(scenes))]
    # Enough copies of the page that its words, too, earn merges.
    lines += GENERAL_ENGLISH.read_text().splitlines() * 20

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise RuntimeError(f"BPE has {tokenizer.get_vocab_size()} entries, wanted {VOCABULARY}")
    for text, special in ADDED_TOKENS:
        token = AddedToken(text, normalized=False, special=special)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
    return tokenizer


def write(tokenizer: Tokenizer, folder: Path) -> None:
    """tokenizer.json, vocab.json, merges.txt and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    # The library sorts special tokens before the others; the official ids follow one fixed order.
    content = json.loads((folder / "tokenizer.json").read_text())
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    content["added_tokens"] = [
        {"id": VOCABULARY + i, "content": text, **flags, "special": special}
        for i, (text, special) in enumerate(ADDED_TOKENS)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False))
    (folder / "vocab.json").write_text(json.dumps(content["model"]["vocab"], ensure_ascii=False))
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(merges) + "\n")
    special = [text for text, is_special in ADDED_TOKENS if is_special and text != "<|endoftext|>"]
    settings = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(VOCABULARY + i): {"content": text, **flags, "special": is_special}
            for i, (text, is_special) in enumerate(ADDED_TOKENS)
        },
        "additional_special_tokens": special + list(H3_TOKENS),
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 262144,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))


def load(folder: Path) -> Tokenizer:
    """The tokenizer as generation uses it, H3 tokens included."""
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in H3_TOKENS])
    return tokenizer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    write(train(), parser.parse_args().out)
