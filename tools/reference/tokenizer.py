"""The micro tokenizer (byte-level BPE trained on corpus.txt), and token ids for a list of texts.

The ids come from transformers' own tokenizer class reading the folder. `main` makes the list for any other vocabulary
folder, such as the released one: nothing of that vocabulary is stored, only the ids.
"""

import argparse
import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import Qwen2Tokenizer

import storage

VOCABULARY_SIZE = 520
EMBEDDING_ROWS = 576  # rows beyond the last token id are padding, as in the released model

PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# (text, special) in id order; the first follows the last BPE token.
ADDED_TOKENS = [
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|object_ref_start|>", True),
    ("<|object_ref_end|>", True),
    ("<|box_start|>", True),
    ("<|box_end|>", True),
    ("<|quad_start|>", True),
    ("<|quad_end|>", True),
    ("<|vision_start|>", True),
    ("<|vision_end|>", True),
    ("<|vision_pad|>", True),
    ("<|image_pad|>", True),
    ("<|video_pad|>", True),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<|fim_prefix|>", False),
    ("<|fim_middle|>", False),
    ("<|fim_suffix|>", False),
    ("<|fim_pad|>", False),
    ("<|repo_name|>", False),
    ("<|file_sep|>", False),
    ("<tool_response>", False),
    ("</tool_response>", False),
    ("<think>", False),
    ("</think>", False),
]
# No file gives these an id: a reader appends them, in this order, after the tokens above.
H3_TOKENS = [
    "<d>",
    "</d>",
    "<|cutoff|>",
    "<|lyrics_start|>",
    "<|lyrics_end|>",
    "<|caption_start|>",
    "<|caption_end|>",
]


def train(corpus: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges, learned with the pieces and the normaliser that encoding uses."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.NFC()
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    learner.train_from_iterator(corpus.read_text(encoding="utf-8").splitlines(keepends=True), trainer)
    model = json.loads(learner.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def added_token(text: str, special: bool) -> dict:
    return {
        "content": text,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": special,
    }


def tokenizer_config(first_added_id: int) -> dict:
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(first_added_id + index): added_token(text, special)
            for index, (text, special) in enumerate(ADDED_TOKENS)
        },
        "additional_special_tokens": [text for text, special in ADDED_TOKENS[1:14] if special] + H3_TOKENS,
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


def tokenizer_json(vocabulary: dict[str, int], merges: list[tuple[str, str]], merges_as_pairs: bool) -> dict:
    """Both spellings of a merge, "a b" and ["a", "b"], are found in published files."""
    first_added_id = len(vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": first_added_id + index} | added_token(text, special)
            for index, (text, special) in enumerate(ADDED_TOKENS)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            ],
        },
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [list(merge) if merges_as_pairs else " ".join(merge) for merge in merges],
        },
    }


def write_tokenizer(folder: Path, vocabulary: dict, merges: list, merges_as_pairs: bool) -> None:
    storage.write_json(folder / "tokenizer.json", tokenizer_json(vocabulary, merges, merges_as_pairs), indent=1)
    storage.write_json(folder / "tokenizer_config.json", tokenizer_config(len(vocabulary)))
    storage.write_json(folder / "vocab.json", vocabulary, indent=None)
    # No "#version" line, as in the released file.
    (folder / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")


def token_ids(vocabulary: dict[str, int]) -> dict[str, int]:
    texts = [text for text, _ in ADDED_TOKENS] + H3_TOKENS
    return {text: len(vocabulary) + index for index, text in enumerate(texts)}


def load(folder: Path) -> Qwen2Tokenizer:
    """The reference class, with a check that every added token is where the released numbering puts it."""
    tokenizer = Qwen2Tokenizer.from_pretrained(folder)
    first = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    for index, text in enumerate([text for text, _ in ADDED_TOKENS] + H3_TOKENS):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if ids != [first + index]:
            raise AssertionError(f"{text} encodes to {ids}, expected [{first + index}]")
    return tokenizer


# ---------------------------------------------------------------------------------------------------- texts

LONG_SENTENCES = [
    "The camera follows a courier through the rain, past the market and over the bridge. ",
    "Ein Junge ruft: «Warte!» Das Echo läuft durch die Straße. ",
    "她说：<d>别走，雨还没停。</d> 远处响起钟声。",
    "At 19:08:30 the lights go out; 24 fps, 1344x768, take #7. ",
    "🎻 A violin plays, l'été s'achève, and we'll never know why…\n",
]


def long_text(length: int) -> str:
    """Sentences in a fixed, non-repeating rotation, cut to exactly `length` code points."""
    pieces = []
    position = 0
    while sum(map(len, pieces)) < length:
        pieces.append(LONG_SENTENCES[(position * position + position // 3) % len(LONG_SENTENCES)])
        position += 1
    return "".join(pieces)[:length]


TEXTS = [
    # The worked examples of the specification.
    "A red fox walking through snow",
    "Hello, WORLD!  2026\n\u4e2d\u6587 caf\u00e9's",
    "\U0001f642a!\n",
    "A cinematic close-up of a clockwork bird taking flight.",
    "She says <d>Don't stop!</d>  \n\nThen 3.5 s of rain.",
    "cafe\u0301",
    "a   b\t\tc  12   3 ",
    " \n \n  y",
    "<d> x",
    "<Picture 1>: ",
    "<Picture 2>: ",
    "<Picture 9>: ",
    "<Video 1>: ",
    "<Audio 1>: ",
    "<0.2 seconds>",
    "<14.0 seconds>",
    # Empty, and white space of every kind.
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\r\n\r\n\t \r\n x",
    "line one\r\nline two\rline three\n\nline five",
    "tab\tvt\x0bff\x0cend",
    "next\u0085line nbsp\u00a0here ogham\u1680mark",
    "en\u2000quad em\u2003space thin\u2009space hair\u200aspace",
    "line\u2028separator paragraph\u2029separator narrow\u202fspace math\u205fspace ideographic\u3000space",
    "zero\u200bwidth joiner\u200dnon\u200cjoiner bom\ufeffhere",
    "trailing spaces    ",
    "    leading spaces",
    "spaces before digits    42   and   7",
    "!!!\n\n\n???  \n  ...",
    # Contractions, quotes, and the long s that folds to s.
    "it's I'm you're we've they'll he'd don't SHE'S I'M YOU'RE WE'VE THEY'LL HE'D",
    "the ship'\u017f bell, it'\u017ft, o'clock, rock'n'roll, '\u017f",
    "it\u2019s not the same quote, 'tis, 'twas, 's",
    # Numbers of several kinds.
    "1234567890 3.14159 1,000,000 2e10 0x1F 50% #7",
    "\u0661\u0662\u0663 \u0967\u0968\u0969 \uff11\uff12\uff13 \u2460\u2461 \u00bd\u00bc \u2167 x\u00b2 y\u2083",
    # Combining marks, composition, Hangul, normalisation exclusions.
    "A\u030angstro\u0308m e\u0301te\u0301 n\u0303 u\u0308ber \u1e9b\u0323",
    "\u1112\u1161\u11ab\u1100\u1173\u11af and \ud55c\uae00",
    "a\u0315\u0300\u05ae\u0062 q\u0307\u0323 q\u0323\u0307",
    "\u212b \u2126 \u0958 \ufb1d \u0374 \u037e \u2329",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947 \u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627",
    # Languages.
    "\u6e05\u6668\u7684\u96fe\u6c14\u7b3c\u7f69\u7740\u5c71\u8c37\uff0c\u955c\u5934\u7f13\u7f13\u63a8\u8fdb\u3002",
    "\u96e8\u306e\u97f3\u304c\u805e\u3053\u3048\u308b\u3002\u53e4\u3044\u99c5\u3067\u3001\u5c11\u5e74\u304c\u624b\u7d19\u3092\u8aad\u3080\u3002",
    "\ubc14\ub78c\uc774 \ubd88\uace0 \ub098\ubb47\uc78e\uc774 \ub5a8\uc5b4\uc9c4\ub2e4.",
    "\u0421\u0442\u0430\u0440\u044b\u0439 \u043f\u043e\u0435\u0437\u0434 \u0438\u0434\u0451\u0442 \u0447\u0435\u0440\u0435\u0437 \u043f\u043e\u043b\u0435.",
    "\u0397 \u03b8\u03ac\u03bb\u03b1\u03c3\u03c3\u03b1 \u03b5\u03af\u03bd\u03b1\u03b9 \u03ae\u03c1\u03b5\u03bc\u03b7, \u03a3\u03a3 \u03c2\u03c3.",
    "Stra\u00dfe \u1e9e \ufb01n \ufb00 \u0130stanbul \u0131\u015f\u0131k \u01c5 \u02b0 \u00aa \u00ba",
    # Emoji: modifiers, ZWJ sequences, flags, keycaps, variation selectors.
    "\U0001f44b\U0001f3fd hi \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family",
    "\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea\U0001f1ef\U0001f1f5 1\ufe0f\u20e3 \u2764\ufe0f\u200d\U0001f525 \u2602\ufe0e",
    "\U0001d54f\U0001d4ea \U0001f000 \U00020000\U0002a6d6 \U000e0041\U0010fffd",
    # Code and punctuation.
    "for (int i = 0; i < n; ++i) { x[i] *= 2.5f; }  // scale",
    "def f(a, b=None):\n    return {'k': [a, b], \"q\": lambda x: x ** 2}\n",
    "https://example.org/a_b?c=d&e=%20f#g user@example.com C:\\path\\file.txt",
    "snake_case camelCase kebab-case ALLCAPS x86_64 v1.2.3-rc4",
    "\u00ab\u00a1Hola!\u00bb \u2014 \u201cquoted\u201d \u2026 \u20ac5 \u00a37 \u00a9\u00ae\u2122 \u2190\u2192 \u00b1\u00d7\u00f7 \u2211\u221a\u221e",
    "a\u0000b\u0001c\u001b[0m\u007fd\u0080e",
    # Special tokens typed by a user; near misses; tokens inside words and next to white space.
    "<|endoftext|>",
    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
    "<think>plan</think><tool_call>{\"a\": 1}</tool_call><tool_response>ok</tool_response>",
    "<|fim_prefix|>a<|fim_middle|>b<|fim_suffix|>c<|fim_pad|><|repo_name|>r<|file_sep|>f",
    "<|vision_start|><|image_pad|><|vision_end|><|video_pad|><|vision_pad|>",
    "<|object_ref_start|>o<|object_ref_end|><|box_start|>b<|box_end|><|quad_start|>q<|quad_end|>",
    "<|lyrics_start|>La la\nla<|lyrics_end|> <|caption_start|>A sea.<|caption_end|><|cutoff|>",
    "word<d>inside</d>word <d></d> <d><d> </d> </ d> < d> <D> <d",
    "before  <d>  two spaces  </d>  after",
    "cafe<d>\u0301</d>\u0301",
    "<|im_start <|im_end|> im_end|> <||> <|cutoff|<|cutoff|>",
    "\n<d>\n\n</d>\n",
    # Long texts.
    "a" * 300,
    " " * 257 + "x",
    "ab " * 100,
    "\u4e2d" * 120,
    long_text(7000),
]


def cases(tokenizer: Qwen2Tokenizer) -> list[dict]:
    return [{"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]} for text in TEXTS]


def write_cases(path: Path, tokenizer: Qwen2Tokenizer, with_texts: bool) -> None:
    """One case a line. The list for a foreign vocabulary leaves the texts to the micro list, which has the same order."""
    lines = []
    for index, case in enumerate(cases(tokenizer)):
        value = case if with_texts else {"case": index, "ids": case["ids"]}
        lines.append(json.dumps(value, ensure_ascii=True, separators=(", ", ": ")))
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


# Ids the specification gives for the released vocabulary, by text.
OFFICIAL_EXAMPLES = {
    TEXTS[0]: [32, 2518, 38835, 11435, 1526, 11794],
    TEXTS[1]: [9707, 11, 50891, 0, 220, 220, 17, 15, 17, 21, 198, 104811, 51950, 594],
    TEXTS[2]: [145080, 64, 4894],
    TEXTS[3]: [32, 64665, 3265, 5239, 315, 264, 8866, 1778, 11958, 4633, 10971, 13],
    TEXTS[4]: [7941, 2727, 220, 151669, 8002, 944, 2936, 0, 151670, 18611, 12209, 220, 18, 13, 20, 274, 315, 11174, 13],
    TEXTS[5]: [924, 58858],
    TEXTS[6]: [64, 256, 293, 197, 1444, 220, 220, 16, 17, 256, 220, 18, 220],
    TEXTS[7]: [31906, 220, 379],
    TEXTS[8]: [151669, 856],
    TEXTS[9]: [21604, 3826, 220, 16, 26818, 220],
    TEXTS[10]: [21604, 3826, 220, 17, 26818, 220],
    TEXTS[11]: [21604, 3826, 220, 24, 26818, 220],
    TEXTS[12]: [27, 10724, 220, 16, 26818, 220],
    TEXTS[13]: [65406, 220, 16, 26818, 220],
    TEXTS[14]: [27, 15, 13, 17, 6486, 29],
    TEXTS[15]: [27, 16, 19, 13, 15, 6486, 29],
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Token ids of the test texts for the released vocabulary.")
    parser.add_argument("vocabulary", type=Path, help="folder with vocab.json, merges.txt and tokenizer_config.json")
    parser.add_argument("output", type=Path, help="JSON file to write, e.g. tests/golden/tokenizer_cases_official.json")
    arguments = parser.parse_args()
    tokenizer = load(arguments.vocabulary)
    for text, expected in OFFICIAL_EXAMPLES.items():
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if ids != expected:
            raise SystemExit(f"{text!r} encodes to {ids}, expected {expected}: not the released vocabulary?")
    write_cases(arguments.output, tokenizer, with_texts=False)


if __name__ == "__main__":
    main()
