"""One whole text-to-video-and-sound request through the reference's own pipeline blocks, on the micro components."""

import logging
from pathlib import Path

import torch
from diffusers import MiniMaxH3ModularPipeline, MiniMaxH3Scheduler
from diffusers.modular_pipelines.minimax_h3.decoders import MiniMaxH3AudioDecodeStep, MiniMaxH3VideoDecodeStep
from diffusers.modular_pipelines.minimax_h3.encoders import MiniMaxH3TextEncoderStep
from diffusers.modular_pipelines.minimax_h3.modular_blocks_minimax_h3 import MiniMaxH3CoreDenoiseStep
from diffusers.modular_pipelines.modular_pipeline import SequentialPipelineBlocks

import audio_vae
import micro_config as config
import micro_model
import noise
import packing
import storage
import text_encoder
import tokenizer as micro_tokenizer
import video_vae

PROMPT = "A red fox walking through snow, <d>the wind hums</d>, 镜头缓缓推进."
SEED = 42
HEIGHT, WIDTH, FRAMES = 64, 96, 22
GRID_POINTS = 5  # four forwards
SIZES = noise.REQUESTS["micro"]


class TextToVideo(SequentialPipelineBlocks):
    """The text-only path: the reference's automatic pipeline without its image and reference branches."""

    model_name = "minimax-h3"
    block_classes = [MiniMaxH3TextEncoderStep, MiniMaxH3CoreDenoiseStep]
    block_names = ["text_encoder", "denoise"]


class MicroPipeline(MiniMaxH3ModularPipeline):
    """Two facts of the released model that the library keeps as properties, at micro size."""

    default_blocks_name = None

    @property
    def text_encoder_layer(self):
        return config.TEXT_LAYERS_USED

    @property
    def min_duration(self):
        return 0.0


def make_pipeline(blocks, components: dict) -> MicroPipeline:
    pipeline = MicroPipeline(blocks=blocks)
    wanted = {spec.name for spec in blocks.expected_components}
    pipeline.update_components(**{name: value for name, value in components.items() if name in wanted})
    return pipeline


def own_loop(components: dict, prompt_embeds: torch.Tensor, order: str) -> tuple[torch.Tensor, torch.Tensor, list]:
    """The same request written out: used to record the state after every step and to confirm the blocks."""
    layout = packing.build([packing.TEXT_TAG] * prompt_embeds.shape[1], FRAMES, HEIGHT, WIDTH, ())
    video, audio = noise.draw(order, SEED, **SIZES)
    rows = packing.patchify_video_latents(video, packing.PATCH_SIZE)
    audio_rows = audio.permute(0, 2, 1).reshape(-1, audio.shape[1])
    scheduler, audio_scheduler = MiniMaxH3Scheduler(shift=12.0), MiniMaxH3Scheduler(shift=3.0)
    scheduler.set_timesteps(GRID_POINTS)
    audio_scheduler.set_timesteps(GRID_POINTS)
    states = [(rows, audio_rows)]
    for video_time, audio_time in zip(scheduler.timesteps, audio_scheduler.timesteps):
        timesteps, timestep_indices = packing.row_timesteps(layout, float(video_time), float(audio_time))
        velocity, audio_velocity = components["transformer"](
            hidden_states=rows[None],
            audio_hidden_states=audio_rows[None],
            encoder_hidden_states=prompt_embeds,
            timestep=timesteps,
            timestep_indices=timestep_indices,
            return_dict=False,
            **{key: layout[key] for key in ("token_tags", "position_ids", "video_indices", "audio_indices", "text_indices")},
        )
        rows = scheduler.step(velocity[0], video_time, rows, return_dict=False)[0]
        audio_rows = audio_scheduler.step(audio_velocity[0], audio_time, audio_rows, return_dict=False)[0]
        states.append((rows, audio_rows))
    return rows, audio_rows, states


def write_goldens(golden: Path, official: Path, parts: dict[str, dict]) -> None:
    logging.getLogger("diffusers").setLevel(logging.ERROR)
    components = {
        "text_encoder": text_encoder.load(official / "text_encoder"),
        "tokenizer": micro_tokenizer.load(official / "tokenizer"),
        "processor": text_encoder.TextOnlyProcessor(),
        "transformer": micro_model.load_transformer(parts["transformer"]),
        "scheduler": MiniMaxH3Scheduler(shift=12.0),
        "audio_scheduler": MiniMaxH3Scheduler(shift=3.0),
        "vae": micro_model.load_video_vae(parts["video_vae"]),
        "audio_vae": micro_model.load_audio_vae(parts["audio_vae"]),
    }
    tensors = {}
    request = {
        "prompt": PROMPT,
        "height": HEIGHT,
        "width": WIDTH,
        "num_frames": FRAMES,
        "num_inference_steps": GRID_POINTS,
    }
    decoded = {}
    for order in noise.ORDERS:
        arguments = {"generator": torch.Generator().manual_seed(SEED)}
        if order != "diffusers":
            # The library's own draws are the `diffusers` order; the others are handed over as tensors.
            video, audio = noise.draw(order, SEED, **SIZES)
            arguments = {"latents": video, "audio_latents": audio}
        blocks = TextToVideo()
        blocks.sub_blocks["denoise"].sub_blocks["denoise"].set_progress_bar_config(disable=True)
        pipeline = make_pipeline(blocks, components)
        state = pipeline(**request, **arguments)
        latents, audio_latents = state.get("latents"), state.get("audio_latents")
        tensors[f"{order}.latents"] = latents[0]
        tensors[f"{order}.audio_latents"] = audio_latents
        decoded[order] = (latents, audio_latents)

        embeds = state.get("prompt_embeds")
        with torch.no_grad():
            rows, audio_rows, states = own_loop(components, embeds, order)
        torch.testing.assert_close(
            packing.patchify_video_latents(latents, packing.PATCH_SIZE), rows, rtol=0, atol=0, msg=f"{order} video"
        )
        torch.testing.assert_close(
            audio_latents.permute(0, 2, 1).reshape(audio_rows.shape), audio_rows, rtol=0, atol=0, msg=f"{order} audio"
        )
        if order == "sglang":
            tensors["prompt_embeds"] = embeds[0]
            for index, (video_state, audio_state) in enumerate(states[1:-1], start=1):
                tensors[f"{order}.after_step_{index}.video_rows"] = video_state
                tensors[f"{order}.after_step_{index}.audio_rows"] = audio_state

    ids = components["tokenizer"](PROMPT, add_special_tokens=False)["input_ids"]
    tensors["ids"] = torch.tensor(ids)

    # Decoding of the default order by the reference's decode blocks.
    latents, audio_latents = decoded["sglang"]
    video_pipeline = make_pipeline(MiniMaxH3VideoDecodeStep(), components)
    frames = video_pipeline(latents=latents, output_type="np").get("videos")[0]  # [frames, H, W, 3] in [0, 1]
    audio_pipeline = make_pipeline(MiniMaxH3AudioDecodeStep(), components)
    waveform = audio_pipeline(audio_latents=audio_latents).get("audio")[0]  # [2, samples]
    frames = torch.from_numpy(frames)
    expected = video_vae.to_unit_range(video_vae.decode(components["vae"], latents))[0].permute(1, 2, 3, 0)
    torch.testing.assert_close(frames, expected, rtol=0, atol=0)
    tensors["sglang.frames_u8"] = (frames * 255).round().to(torch.uint8)
    positions = audio_vae.kept_positions(waveform.shape[1], 3)
    tensors["sglang.audio.positions"] = positions
    tensors["sglang.audio.samples"] = waveform[:, positions]
    storage.write_tensors(golden / "pipeline.safetensors", tensors)
    storage.write_json(golden / "pipeline.json", request | {"seed": SEED, "num_forwards": GRID_POINTS - 1})
