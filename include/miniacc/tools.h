#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "miniacc/error.h"
#include "miniacc/miniacc.h"

/// The smaller tools of the command line. Reports come as finished text.
namespace miniacc {

enum class ReportFormat { kText, kJson };

/// What a checkpoint file or model folder holds: kind, dimensions, dtypes, bytes, what is missing
/// or unknown. Reads headers only.
[[nodiscard]] Result<std::string> inspect_checkpoint(const std::filesystem::path& path,
                                                     ReportFormat format);

/// A random model with the real structure. `size`: tiny, small or full; `format`: official,
/// diffusers, comfy, comfy-pruned or gguf; `dtype` empty: bf16 (q8_0 for gguf).
struct MakeCheckpointRequest {
  std::string size = "tiny";
  std::string format = "official";
  std::string dtype;
  std::uint64_t seed = 0;
  std::filesystem::path output;  ///< folder to make; an existing one is refused
};
[[nodiscard]] Status make_checkpoint(const MakeCheckpointRequest& request, const EventSink& events,
                                     const CancelToken& cancel);

struct TokenizeResult {
  std::vector<std::int32_t> ids;
  std::vector<std::string> tokens;  ///< as the vocabulary spells them
  std::vector<std::string> warnings;
};
/// `tokenizer`: a tokenizer folder or file, or a model folder that has one.
[[nodiscard]] Result<TokenizeResult> tokenize(const std::filesystem::path& tokenizer,
                                              const std::string& text);

/// What a clip made by MiniAcc says about itself.
struct ClipReport {
  std::string text;               ///< streams and request, readable
  std::string json;               ///< the same for programs
  GenerateRequest request;        ///< to run it again; its output is empty
  std::string precision = "f32";  ///< it was made in
  std::string vae_precision = "auto";
  bool has_request = false;
};
[[nodiscard]] Result<ClipReport> show_clip(const std::filesystem::path& path);

/// Measures what a finished clip shows and sounds like and, against a caption, whether the named
/// attributes are there (docs/judge.md). Without `caption` the prompt stored in the clip is used,
/// if it has one. What cannot be measured is reported as unknown. kInvalidInput for a file that is
/// no clip.
[[nodiscard]] Result<std::string> judge_clip(const std::filesystem::path& path,
                                             std::optional<std::string> caption,
                                             ReportFormat format);

/// One PNG that shows clips below each other: frames of each in a row, its waveforms under them.
struct SheetRequest {
  std::vector<std::filesystem::path> clips;
  std::filesystem::path output;  ///< ends in .png
  std::int64_t num_frames = 5;   ///< of each clip
  bool overwrite = false;
};
/// kInvalidInput for a file that is no clip, kInvalidArgument for a number of frames outside 1 to
/// 100 and for an output that exists.
[[nodiscard]] Status make_sheet(const SheetRequest& request);

/// What this machine and this build can do.
struct MachineReport {
  std::string text;          ///< or JSON
  bool device_works = true;  ///< the device that was asked for can be used
};
/// CPU, memory, GPUs with the reason where one cannot be used, what the build supports. `device` as
/// in EngineOptions; kInvalidArgument for another word.
[[nodiscard]] Result<MachineReport> report_machine(const std::string& device, ReportFormat format);

/// The table of recipes: name, steps, shifts, what it is for.
[[nodiscard]] std::string list_recipes(ReportFormat format);

}  // namespace miniacc
