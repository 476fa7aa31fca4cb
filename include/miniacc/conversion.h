#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "miniacc/cancel_token.h"
#include "miniacc/error.h"
#include "miniacc/miniacc.h"

/// Tools that rewrite checkpoints and adapters (docs/tools.md). All of them write to a temporary
/// name that is renamed when the output is complete, and refuse an existing output unless told.
namespace miniacc {

/// What a tool has to say at its end.
struct ToolReport {
  std::string text;  ///< lines for people
  std::string json;  ///< one object for programs
  /// Why nothing was written although every file could be read: a sentence each. Empty: done.
  std::vector<std::string> problems;
};

/// `miniacc lora convert`: an adapter in the other naming, bit for bit.
struct LoraConvertRequest {
  std::filesystem::path input;
  std::filesystem::path output;   ///< empty: check and compare only
  std::string to;                 ///< "comfy" or "diffusers"
  std::filesystem::path model;    ///< transformer file or folder, or model folder; header only
  std::filesystem::path compare;  ///< a twin to compare with; empty: none
  std::string alpha;              ///< a number, "file" (trust `.alpha` tensors) or ""
  std::string force_base;         ///< "fl2va", "ref2va" or ""
  bool compact = true;            ///< undo block-diagonal fusion when splitting
  bool overwrite = false;
};
[[nodiscard]] Result<ToolReport> convert_lora(const LoraConvertRequest& request,
                                              const EventSink& events, const CancelToken& cancel);

/// `miniacc convert`: a model folder, or one component, in another layout.
struct ConvertRequest {
  std::filesystem::path input;
  std::filesystem::path output;
  std::string to;         ///< official, diffusers, comfy, comfy-pruned or gguf
  std::string dtype;      ///< bf16, f32, f16, fp8_scaled, int8_convrot, q8_0, q4_0, q4_k; "" keeps
  std::string component;  ///< transformer, text-encoder, video-vae, audio-vae; "": all there are
  std::int64_t rank = 8;  ///< comfy-pruned: columns of the curve table
  double max_rel_resid = 1e-2;  ///< comfy-pruned: of the worst layer over the curve
  bool overwrite = false;       ///< an existing file; folders are never replaced
};
[[nodiscard]] Result<ToolReport> convert_model(const ConvertRequest& request,
                                               const EventSink& events, const CancelToken& cancel);

/// `miniacc quantize`: int8 weights with row scales, rotated (ConvRot), in ComfyUI's form, and what
/// that does to each layer.
struct QuantizeRequest {
  std::filesystem::path input;  ///< unquantised model folder, transformer or text encoder
  std::filesystem::path output;
  std::string component;              ///< as in ConvertRequest
  std::int64_t rotation_group = 256;  ///< power of 4; 0: not rotated
  bool overwrite = false;
};
[[nodiscard]] Result<ToolReport> quantize_model(const QuantizeRequest& request,
                                                const EventSink& events, const CancelToken& cancel);

/// `miniacc adaln rebase`: what a finetuned full checkpoint does to the modulation, as an adapter
/// for a pruned one.
struct AdalnRebaseRequest {
  std::filesystem::path full;    ///< finetuned transformer with its time MLP
  std::filesystem::path pruned;  ///< pruned transformer
  std::filesystem::path output;
  std::filesystem::path merge_into;  ///< adapter whose tensors are written as well; empty: none
  double max_rel_resid = 1e-2;       ///< of the worst layer; above it nothing is written
  bool overwrite = false;
};
[[nodiscard]] Result<ToolReport> rebase_adaln(const AdalnRebaseRequest& request,
                                              const EventSink& events, const CancelToken& cancel);

/// `miniacc adaln lift`: an adapter trained on a pruned transformer, for the full one.
struct AdalnLiftRequest {
  std::filesystem::path input;   ///< adapter
  std::filesystem::path full;    ///< transformer with the time MLP
  std::filesystem::path pruned;  ///< transformer it was trained on
  std::filesystem::path output;
  double max_rel_resid = 1e-4;  ///< of the table as a function of the full width
  bool overwrite = false;
};
[[nodiscard]] Result<ToolReport> lift_adaln(const AdalnLiftRequest& request,
                                            const EventSink& events, const CancelToken& cancel);

}  // namespace miniacc
