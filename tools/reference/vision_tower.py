"""Goldens of pictures in the conditioner: sizes, resizing, patch rows, the vision tower, hidden states, presentations.

Sizes, resizing and patch rows come from the processors of transformers, which resize with torchvision (needed for this
stage); tower and hidden states from its Qwen3-VL classes on the micro model; presentations from the blocks of diffusers.
"""

import itertools
import logging
import types
from pathlib import Path

import numpy as np
import torch
from diffusers.modular_pipelines.minimax_h3.encoders import (
    MiniMaxH3FL2VATextEncoderStep,
    MiniMaxH3Ref2VATextEncoderStep,
)
from diffusers.modular_pipelines.minimax_h3.references import (
    MiniMaxH3AudioReference,
    MiniMaxH3ImageReference,
    MiniMaxH3VideoReference,
)
from PIL import Image
from torchvision.transforms.v2 import functional as tv
from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize as image_size
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as video_size
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

import micro_config as config
import storage
import text_encoder
import tokenizer as micro_tokenizer

# What H3's processor files set.
IMAGE_LIMITS = {"shortest_edge": 65536, "longest_edge": 16777216}
VIDEO_LIMITS = {"shortest_edge": 4096, "longest_edge": 25165824}
GEOMETRY = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}

PROMPT = "A red fox walking through snow"

# (height, width) of pictures and (frames, height, width) of videos.
IMAGE_SIZES = [
    (768, 1344), (1080, 1920), (720, 1280), (1100, 1744), (100, 150), (208, 240), (4000, 6000), (2048, 8192), (2048, 2048),
    (8192, 2048), (2048, 3648), (2048, 2720), (256, 256), (32, 32), (32, 4096), (64, 96), (1, 200), (16, 48), (255, 257),
    (5000, 3333), (1152, 768), (672, 1536), (20, 3000), (48, 80), (3200, 16), (8191, 2049), (65, 1000),
]  # fmt: skip
VIDEO_SIZES = [
    (2, 768, 1344), (24, 768, 1344), (25, 768, 1344), (26, 768, 1344), (27, 768, 1344), (29, 768, 1344), (29, 768, 768),
    (29, 512, 2016), (30, 1344, 768), (2, 32, 32), (2, 16, 40), (3, 64, 96), (5, 31, 64), (100, 768, 1024), (31, 672, 1536),
    (2, 20, 1000), (9, 48, 80), (1000, 768, 1344), (3, 48, 48), (2, 32, 48),
]  # fmt: skip
RESIZES = [(37, 53, 64, 32), (90, 70, 32, 64), (40, 24, 64, 96), (33, 64, 32, 64), (64, 50, 64, 32), (5, 300, 32, 96), (120, 7, 32, 32)]


def picture(height: int, width: int, seed: int) -> np.ndarray:
    """An 8-bit RGB picture from whole-number arithmetic, so that the tests make the same one. Edges, ramps, texture."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    value = x * (7 + seed) + y * (13 + 2 * seed) + c * 29 + (x * y) // (5 + seed) + ((x // 9 + y // 7 + c) % 2) * 90
    return (value % 256).astype(np.uint8)


def processor(tokenizer) -> Qwen3VLProcessor:
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=dict(IMAGE_LIMITS), **GEOMETRY),
        video_processor=Qwen3VLVideoProcessor(size=dict(VIDEO_LIMITS), cap_pixels_per_frame=False, **GEOMETRY),
        tokenizer=tokenizer,
    )


def write_sizes(tensors: dict) -> None:
    images = [image_size(*size, 32, IMAGE_LIMITS["shortest_edge"], IMAGE_LIMITS["longest_edge"]) for size in IMAGE_SIZES]
    videos = [
        video_size(*size, 2, 32, VIDEO_LIMITS["shortest_edge"], VIDEO_LIMITS["longest_edge"]) for size in VIDEO_SIZES
    ]
    tensors["sizes.images"] = torch.tensor(IMAGE_SIZES)
    tensors["sizes.images_resized"] = torch.tensor(images)
    tensors["sizes.videos"] = torch.tensor(VIDEO_SIZES)
    tensors["sizes.videos_resized"] = torch.tensor(videos)


def write_resizes(tensors: dict) -> None:
    tensors["resize.sizes"] = torch.tensor(RESIZES)
    for index, (height, width, new_height, new_width) in enumerate(RESIZES):
        source = torch.from_numpy(picture(height, width, index)).permute(2, 0, 1).contiguous()
        resized = tv.resize(source, [new_height, new_width], interpolation=tv.InterpolationMode.BICUBIC, antialias=True)
        several = tv.resize(
            source[None, None].expand(1, 3, -1, -1, -1).contiguous(),
            [new_height, new_width],
            interpolation=tv.InterpolationMode.BICUBIC,
            antialias=True,
        )
        if not torch.equal(several[0, 2], resized):
            raise AssertionError("a video's frames are resized otherwise than a picture")
        tensors[f"resize.{index}"] = resized.permute(1, 2, 0)


def write_patches(tensors: dict) -> None:
    small = Qwen2VLImageProcessor(size={"shortest_edge": 1024, "longest_edge": 65536}, **GEOMETRY)
    features = small(images=[Image.fromarray(picture(32, 64, 3))], return_tensors="pt")
    tensors["patches.image"] = features["pixel_values"]
    videos = Qwen3VLVideoProcessor(size=dict(VIDEO_LIMITS), cap_pixels_per_frame=False, **GEOMETRY)
    frames = np.stack([picture(32, 32, seed) for seed in range(3)])
    features = videos(videos=[frames], do_sample_frames=False, return_tensors="pt")
    if features["video_grid_thw"].tolist() != [[2, 2, 2]]:
        raise AssertionError(features["video_grid_thw"])
    # Each frame slot on its own would be as good; both pairs are kept, the second with its repeated frame.
    tensors["patches.video"] = features["pixel_values_videos"]
    ramp = np.repeat(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), 3, axis=2)
    ramp = np.tile(ramp, (2, 2, 1))
    tensors["patches.ramp"] = small(images=[Image.fromarray(ramp)], return_tensors="pt")["pixel_values"][0, :256]


def rows_of(frames: list[np.ndarray]) -> torch.Tensor:
    """Patch rows of one picture, or of a pair of frames, without any resizing."""
    if len(frames) == 1:
        reader = Qwen2VLImageProcessor(size=dict(IMAGE_LIMITS), do_resize=False, **GEOMETRY)
        return reader(images=[Image.fromarray(frames[0])], return_tensors="pt")["pixel_values"]
    reader = Qwen3VLVideoProcessor(size=dict(VIDEO_LIMITS), do_resize=False, cap_pixels_per_frame=False, **GEOMETRY)
    return reader(videos=[np.stack(frames)], do_sample_frames=False, return_tensors="pt")["pixel_values_videos"]


def write_positions(tensors: dict, tower) -> None:
    for height, width in ((4, 6), (2, 8), (10, 6), (2, 2)):
        grid = torch.tensor([[1, height, width]])
        indices, weights = get_vision_interpolation_indices_and_weights(
            grid, num_grid_per_side=tower.num_grid_per_side, mode="bilinear", align_corners=True, spatial_merge_size=2
        )
        tensors[f"positions.{height}x{width}"] = (tower.pos_embed(indices) * weights[:, :, None]).sum(1)
        cos, sin = tower.rotary_pos_emb(torch.zeros(1), get_vision_position_ids(grid, 2))
        half = cos.shape[1] // 2
        tensors[f"rope.{height}x{width}.cos"] = cos[:, :half]
        tensors[f"rope.{height}x{width}.sin"] = sin[:, :half]


# name: (frames of each grid as (height, width, seeds)), all of one call.
TOWER_CASES = {
    "square": [(64, 64, [0])],
    "wide": [(32, 128, [1])],
    "tall": [(160, 96, [2])],
    "three": [(64, 96, [3]), (96, 64, [4]), (32, 32, [5])],
    "video": [(64, 96, [6, 7]), (64, 96, [8, 8])],
}
LARGE = (768, 832, 9)  # 2496 patches, more than one chunk of rows
LARGE_STRIDE = 13


def write_tower(tensors: dict, tower) -> None:
    outputs = {}
    hooks = [
        block.register_forward_hook(lambda _, __, output, index=index: outputs.update({index: output}))
        for index, block in enumerate(tower.blocks)
    ]
    for name, grids in TOWER_CASES.items():
        rows = torch.cat([rows_of([picture(h, w, seed) for seed in seeds]) for h, w, seeds in grids])
        # The frame pairs of one video are one entry with a temporal extent; the others are entries of their own.
        if name == "video":
            grid = torch.tensor([[2, 4, 6]])
        else:
            grid = torch.tensor([[1, h // 16, w // 16] for h, w, _ in grids])
        result = tower(rows, grid_thw=grid, return_dict=True)
        tensors[f"tower.{name}.merged"] = result.pooler_output
        for index, features in enumerate(result.deepstack_features):
            tensors[f"tower.{name}.deepstack_{index}"] = features
        if name == "tall":
            for index in (0, len(tower.blocks) - 1):
                tensors[f"tower.{name}.block_{index}"] = outputs[index]
    for hook in hooks:
        hook.remove()
    height, width, seed = LARGE
    grid = torch.tensor([[1, height // 16, width // 16]])
    result = tower(rows_of([picture(height, width, seed)]), grid_thw=grid, return_dict=True)
    tensors["tower.large.merged"] = result.pooler_output[::LARGE_STRIDE]
    tensors["tower.large.deepstack_2"] = result.deepstack_features[2][::LARGE_STRIDE]
    # The mergers behind other blocks than those of their own numbers.
    usual = tower.deepstack_visual_indexes
    tower.deepstack_visual_indexes = [0, 2, 3]
    rows = rows_of([picture(*TOWER_CASES["tall"][0][:2], 2)])
    result = tower(rows, grid_thw=torch.tensor([[1, 10, 6]]), return_dict=True)
    for index, features in enumerate(result.deepstack_features):
        tensors[f"tower.blocks_0_2_3.deepstack_{index}"] = features
    tower.deepstack_visual_indexes = usual


def image(height: int, width: int, seed: int) -> MiniMaxH3ImageReference:
    return MiniMaxH3ImageReference(image=Image.fromarray(picture(height, width, seed)))


def video(frames: int, height: int, width: int, seed: int, sound: bool = False) -> MiniMaxH3VideoReference:
    pixels = np.stack([picture(height, width, seed + index) for index in range(frames)])
    return MiniMaxH3VideoReference(frames=pixels, fps=24.0, audio=torch.zeros(2, 8) if sound else None)


def audio() -> MiniMaxH3AudioReference:
    return MiniMaxH3AudioReference(audio=torch.zeros(2, 8), sample_rate=32000)


def components_of(model, tokenizer, layer: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        text_encoder=model,
        tokenizer=tokenizer,
        processor=processor(tokenizer),
        text_encoder_layer=layer,
        text_tag=1,
        video_tag=0,
        fps=24.0,
        _execution_device=torch.device("cpu"),
    )


def run_block(block, components, **inputs):
    """One block of the reference's pipeline on values of ours."""
    values = types.SimpleNamespace(prompt=PROMPT, **inputs)
    block.get_block_state = lambda state: values
    block.set_block_state = lambda state, result: None
    block(components, None)
    return values


def write_hidden_states(tensors: dict, model, tokenizer) -> None:
    keyframes = [Image.fromarray(picture(256, 256, 10)), Image.fromarray(picture(256, 256, 11))]
    cases = {
        "first": (MiniMaxH3FL2VATextEncoderStep, {"keyframes": keyframes[:1]}),
        "both": (MiniMaxH3FL2VATextEncoderStep, {"keyframes": keyframes}),
        # Below the least pixels of a picture: the processor enlarges it to 320 x 224.
        "small": (MiniMaxH3FL2VATextEncoderStep, {"keyframes": [Image.fromarray(picture(96, 160, 12))]}),
        "references": (
            MiniMaxH3Ref2VATextEncoderStep,
            {"normalized_references": [image(256, 288, 13), video(25, 64, 96, 20, sound=True), audio(), video(13, 96, 64, 50)]},
        ),
    }
    for name, (block, inputs) in cases.items():
        # The state behind layer 3 has two DeepStack additions, the third one follows it.
        layers = [config.TEXT_LAYERS_USED] + ([config.TEXT_LAYERS_USED + 1] if name == "references" else [])
        for layer in layers:
            components = components_of(model, tokenizer, layer)
            kinds_of = components.processor.create_mm_token_type_ids

            def record(batch, name=name, kinds_of=kinds_of):
                tensors[f"{name}.ids"] = torch.tensor(batch[0])
                return kinds_of(batch)

            components.processor.create_mm_token_type_ids = record
            result = run_block(block(), components, **inputs)
            tensors[f"{name}.hidden_state_{layer}"] = result.prompt_embeds[0]
        tensors[f"{name}.tags"] = result.text_token_tags.to(torch.int32)


def describe(reference) -> dict:
    if reference.kind == "image":
        return {"kind": "image", "height": reference.image.size[1], "width": reference.image.size[0]}
    if reference.kind == "video":
        frames, height, width = reference.frames.shape[:3]
        return {"kind": "video", "frames": frames, "height": height, "width": width, "sound": reference.has_audio}
    return {"kind": "audio"}


class Sized:
    """A picture or a video of a size without pixels: presentations need no more."""

    def __init__(self, kind: str, size: tuple, sound: bool = False):
        self.kind, self.has_audio = kind, sound or kind == "audio"
        if kind == "image":
            self.image = types.SimpleNamespace(size=(size[1], size[0]))
        if kind == "video":
            self.frames = np.broadcast_to(np.uint8(0), (*size, 3))


def presentation(tokenizer, prompt: str, references: list) -> dict:
    reader = processor(tokenizer)
    images, videos, times = [], [], []
    for reference in references:
        if reference.kind == "image":
            width, height = reference.image.size
            images.append(reader.image_processor.get_number_of_image_patches(height, width) // 4)
        if reference.kind == "video":
            sampled, blocks = MiniMaxH3Ref2VATextEncoderStep._sample_video_condition_frames(
                reference.frames, 24.0, MiniMaxH3Ref2VATextEncoderStep().video_sample_fps, 2
            )
            height, width = reference.frames.shape[1:3]
            patches = reader.video_processor.get_num_of_video_patches(len(sampled), height, width)
            videos.append(patches // 4 // len(blocks))
            times.append(blocks)
    ids, tags = MiniMaxH3Ref2VATextEncoderStep._build_presentation(tokenizer, prompt, references, images, videos, times)
    runs = [[key[0], key[1], len(list(group))] for key, group in itertools.groupby(zip(ids, tags))]
    return {"prompt": prompt, "references": [describe(reference) for reference in references], "runs": runs}


def write_presentations(path: Path, tokenizer) -> None:
    picture_a, picture_b = Sized("image", (2048, 3648)), Sized("image", (2048, 2720))
    clip = Sized("video", (124, 768, 1344))
    loud = Sized("video", (345, 768, 1344), sound=True)
    brief = Sized("video", (13, 768, 768))
    odd = Sized("video", (25, 512, 2016), sound=True)
    voice = Sized("audio", ())
    mixes = [
        [picture_a],
        [clip],
        [loud],
        [picture_a, voice],
        [voice, picture_a],
        [picture_a, odd, voice],
        [odd, picture_b, picture_a],
        [brief, loud, clip],
        [loud, voice, clip, voice, odd],
        [Sized("image", (256, 256))] * 9,
        [picture_a, picture_b] * 3 + [brief, odd, clip] + [voice] * 3,
        [clip, clip],
        [picture_b, brief, voice],
    ]
    prompts = [PROMPT, "", "<Picture 1> dances like <Video 1>, <d>Don't stop!</d>", " 5 leading", "seconds> and more", "A"]
    cases = [presentation(tokenizer, prompts[index % len(prompts)], mix) for index, mix in enumerate(mixes)]
    storage.write_json(path, cases, indent=None)


def write_goldens(golden: Path, official: Path) -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    model = text_encoder.load(official / "text_encoder")
    tokenizer = micro_tokenizer.load(official / "tokenizer")
    tensors = {}
    write_sizes(tensors)
    write_resizes(tensors)
    write_patches(tensors)
    with torch.no_grad():
        write_positions(tensors, model.model.visual)
        write_tower(tensors, model.model.visual)
        states = {}
        write_hidden_states(states, model, tokenizer)
    storage.write_tensors(golden / "vision.safetensors", tensors)
    storage.write_tensors(golden / "conditioner.safetensors", states)
    write_presentations(golden / "presentations.json", tokenizer)
