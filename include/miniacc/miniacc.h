#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "miniacc/cancel_token.h"
#include "miniacc/error.h"
#include "miniacc/lora.h"

/// The interface of libminiacc: from a request to a finished clip. The command line uses nothing
/// else. Strings are UTF-8.
namespace miniacc {

/// Where the weights are: one folder in any published layout, or the parts one by one. A part given
/// by itself replaces the folder's.
struct ModelPaths {
  std::filesystem::path folder;
  std::filesystem::path transformer;
  std::filesystem::path text_encoder;
  std::filesystem::path tokenizer;  ///< folder with tokenizer.json, or the file
  std::filesystem::path video_vae;
  std::filesystem::path audio_vae;
  /// Which half of MiniMax-H3 the transformer is: "fl2va" (text and keyframes), "ref2va"
  /// (references) or empty: told from its folder or file name.
  std::string half;
};

/// A file, or a folder of frames, that a clip is conditioned on.
struct InputFile {
  std::filesystem::path path;
  /// Of the content that was used, in hex; where it is given, other content is an error.
  std::string sha256;

  [[nodiscard]] bool empty() const { return path.empty(); }
};

/// One thing that the clip should take over: what is in a picture, how a video moves, how a voice
/// sounds. The prompt names references as <Picture 1>, <Video 1>, <Audio 1>, numbered by kind.
struct ReferenceInput {
  enum class Kind { kImage, kVideo, kAudio };
  Kind kind = Kind::kImage;
  InputFile file;
  bool with_sound = false;  ///< a video together with its own sound
};

/// How the noise schedule is made; see `miniacc recipes` for the names.
struct SamplingOptions {
  std::string recipe;                 ///< empty: the one that the adapters ask for, else "base"
  std::optional<std::int64_t> steps;  ///< forwards; empty: as many as the recipe has
  std::optional<float> video_shift;
  std::optional<float> audio_shift;
  std::vector<float> video_sigmas;  ///< explicit schedule, from at most 1 down to 0
  std::vector<float> audio_sigmas;  ///< empty: derived from video_sigmas
  std::string noise = "sglang";     ///< draw order of the noise: sglang, diffusers or comfy
};

/// One clip to make.
struct GenerateRequest {
  std::string prompt;
  /// Pixels; rounded up to a multiple of 32, and said so. Both 0: the trained size for the aspect
  /// ratio of the first keyframe, or 1344×768.
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t num_frames = 124;  ///< at 24 frames a second; rounded up to 17·n + 5, and said so
  std::uint64_t seed = 0;         ///< its low 32 bits decide, as in torch
  InputFile init_image;           ///< the clip starts with this picture
  InputFile end_image;            ///< the clip ends with this picture
  /// At most 9 images, 3 videos, 3 sounds, 12 in all, in the order in which the model reads them.
  /// Not together with keyframes.
  std::vector<ReferenceInput> references;
  /// Size of reference images: "diffusers" (short edge 2048, also upwards), "max" (short edge at
  /// most 2048) or "match" (at most the clip's area).
  std::string ref_image_size = "diffusers";
  /// How keyframes of another aspect ratio are put onto the clip: "reference" (the first one given
  /// is stretched, a second one covers), "stretch", "cover" (cropped) or "contain" (bars of
  /// picture_background).
  std::string keyframe_fit = "reference";
  /// What shows through transparent parts of pictures, RGB.
  std::array<std::uint8_t, 3> picture_background{255, 255, 255};
  SamplingOptions sampling;
  ModelPaths model;
  /// Products of the transformer's attention: "f32", "bf16", "int8" (8-bit q·k, f16 weights of v),
  /// or empty: f32 with precision f32, else bf16.
  std::string attention;
  std::vector<LoraRequest> loras;   ///< summed in this order
  bool lora_allow_partial = false;  ///< tensors that match nothing are a warning, not an error
  /// "merge" into the weights, "side" products beside them, or "auto": side where the transformer
  /// is stored quantised or products are int8.
  std::string lora_mode = "auto";
  std::filesystem::path lora_dir;    ///< where files of <lora:NAME:WEIGHT> in the prompt are
  std::filesystem::path adaln_base;  ///< full transformer that carries AdaLN over to a pruned one

  std::filesystem::path output;  ///< .mp4, .mkv, .wav, or a folder for PNG frames (ends in '/')
  bool overwrite = false;
  bool write_metadata = true;            ///< store the request in the file
  std::filesystem::path save_latents;    ///< also keep the clean latents in this file
  std::filesystem::path resume_latents;  ///< decode these latents instead of sampling
};

/// What the machine may give to the work.
struct EngineOptions {
  int num_threads = 0;            ///< 0: every core
  std::string precision = "f32";  ///< f32 (reference), bf16 or int8 products
  /// Products of the video decoder: f32, bf16, int8, or auto: those of `precision`, but bf16 where
  /// a CUDA device decodes and `precision` is int8.
  std::string vae_precision = "auto";
  /// auto (a CUDA device that can be used, or else the CPU), cpu, cuda or cuda:N.
  std::string device = "auto";
  /// The most bytes of device memory a job may hold; empty: what is free, less 512 MiB.
  std::optional<std::size_t> vram_bytes = {};
  std::size_t weight_cache_bytes = std::size_t{512} << 20;  ///< layers kept between steps
  /// Folder of what costs more to compute than to keep, of all requests: encoded prompts, and what
  /// blocks are modulated with. Empty: nothing is kept on disk. Hits change no bit of a clip.
  std::filesystem::path cache_dir = {};
  std::size_t cache_bytes = std::size_t{8} << 30;  ///< the most that the folder may take
};

/// What happens during a job, in order. Programs get the same as people.
struct Event {
  enum class Kind {
    kStageBegin,  ///< `stage` begins; `total` units of work lie ahead
    kProgress,    ///< `done` of `total` units of the stage are finished
    kStageEnd,    ///< `seconds` were spent in the stage
    kNote,        ///< something was adjusted (a rounded size): `message`
    kWarning,     ///< something the user must know: `message`
  };
  Kind kind = Kind::kNote;
  std::string stage;
  std::int64_t done = 0;
  std::int64_t total = 0;
  double seconds = 0.0;           ///< since the stage began
  double overall_fraction = 0.0;  ///< of the whole job, 0 … 1, never falls
  double eta_seconds = -1.0;      ///< of the whole job; negative: not known yet
  std::string message;
};
/// Called from the thread that runs the job.
using EventSink = std::function<void(const Event&)>;

struct StageReport {
  std::string name;
  double seconds = 0.0;
  std::size_t peak_resident_bytes = 0;  ///< of the process, so far
};

struct GenerateResult {
  std::filesystem::path output;
  GenerateRequest request;  ///< as carried out: sizes rounded, shifts and sigmas filled in
  std::int64_t num_forwards = 0;
  std::vector<double> step_seconds;  ///< of each forward with its step
  std::int64_t num_text_tokens = 0;
  std::string attention;  ///< form that was used, e.g. "int8 mma.sync"; empty: latents were resumed
  std::string audio;  ///< "ok", "flat" (constant sound) or "failed" (not finite: silence written)
  std::vector<StageReport> stages;
  double seconds = 0.0;
  std::size_t peak_resident_bytes = 0;
  std::size_t planned_device_bytes = 0;  ///< by the memory plan; 0: the CPU computed
  std::size_t peak_device_bytes = 0;     ///< as measured by the allocator
  std::string streams;                   ///< JSON array: how weights reached the GPU
  std::vector<std::string> cache_hits;   ///< what was found in the cache: "text", "modulation"
  std::vector<LoraReport> loras;
  std::vector<std::string> warnings;
};

/// What a request comes to, before any weight is read.
struct PlanReport {
  std::string text;  ///< layout, final prompt, memory and work, readable
  std::string json;  ///< the same for programs, one object
  std::vector<std::string> warnings;
};

class Engine {
 public:
  explicit Engine(EngineOptions options);

  /// Checks everything that can be checked before any weight is read, then makes the clip. The
  /// output appears under its name only when it is complete. After an error past sampling the
  /// latents are kept beside it in `<output>.latents.safetensors`, and the error says so.
  [[nodiscard]] Result<GenerateResult> generate(const GenerateRequest& request,
                                                const EventSink& events,
                                                const CancelToken& cancel) const;

  /// The packed sequence, the final text, what each reference costs, memory and work of the
  /// request. Reads headers and configurations only; the model folder may be "synthetic:full", the
  /// released sizes without any file. Fails as generate() would before its first stage.
  [[nodiscard]] Result<PlanReport> plan(const GenerateRequest& request) const;

 private:
  EngineOptions options_;
};

/// The request as JSON (the form that files carry) and back. Unknown fields are errors.
[[nodiscard]] std::string request_to_json(const GenerateRequest& request);
[[nodiscard]] Result<GenerateRequest> request_from_json(const std::string& json);

/// What became of adapters as a JSON array, as metadata and `--json` carry it.
[[nodiscard]] std::string lora_reports_to_json(const std::vector<LoraReport>& reports);

/// Frames of a duration at 24 a second, rounded up to what the model makes.
[[nodiscard]] Result<std::int64_t> frames_for_seconds(double seconds);

struct FrameSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
};
/// The trained size for an aspect ratio such as "16:9".
[[nodiscard]] Result<FrameSize> size_for_aspect(const std::string& aspect);

/// "0.1.0 (commit, backends)".
const char* version();

}  // namespace miniacc
