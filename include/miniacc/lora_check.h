#pragma once

#include <filesystem>
#include <string>

#include "miniacc/error.h"
#include "miniacc/lora.h"
#include "miniacc/tools.h"

/// The commands that look at adapters without making a clip. Reports come as finished text.
namespace miniacc {

/// What an adapter holds and what a transformer takes of it: naming, scale and where it comes from,
/// counts of tensors. `transformer`: its file or folder, or a model folder. Fails where merging
/// would.
[[nodiscard]] Result<std::string> show_lora(const LoraRequest& request,
                                            const std::filesystem::path& transformer,
                                            bool allow_partial, ReportFormat format);

struct LoraVerifyRequest {
  LoraRequest lora;
  std::filesystem::path transformer;  ///< its file or folder, or a model folder
  bool allow_partial = false;
  std::string mode = "auto";  ///< as GenerateRequest::lora_mode
  std::filesystem::path adaln_base;
  EngineOptions engine;
};
struct LoraVerifyResult {
  bool verified = false;
  std::string report;  ///< finished text, in the format asked for
};
/// Proof by difference that an adapter does something and the right thing: every layer that it
/// changes is run on random rows with and without it and compared with the definition, and one step
/// of the transformer is run both ways on a small clip. Neither prompt nor text encoder is needed.
/// `verified` is false when any layer differs from the definition by more than rounding, when one
/// that should change does not, or when the latents are the same.
[[nodiscard]] Result<LoraVerifyResult> verify_lora(const LoraVerifyRequest& request,
                                                   ReportFormat format, const CancelToken& cancel);

}  // namespace miniacc
