#pragma once

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

}  // namespace miniacc
