#pragma once

#include <filesystem>
#include <string>

#include "device/device.h"
#include "runtime/pipeline.h"

namespace miniacc {

/// Clean latents with the request that made them, as a .safetensors file: tensors `video_latents`
/// [C, T, h, w] and `audio_latents` [2, C, A] in f32, metadata key `miniacc` = request JSON.
[[nodiscard]] Status save_latents(const std::filesystem::path& path, const ClipLatents& latents,
                                  const std::string& request_json);
/// Learns before the sampling that save_latents could not write here, or would replace a file that
/// nobody said to replace.
[[nodiscard]] Status check_latents_target(const std::filesystem::path& path,
                                          const std::filesystem::path& output, bool overwrite);
/// The request that made the latents of a file.
[[nodiscard]] Result<GenerateRequest> load_latents_request(const std::filesystem::path& path);
[[nodiscard]] Result<ClipLatents> load_latents(const std::filesystem::path& path, Device& device);

}  // namespace miniacc
