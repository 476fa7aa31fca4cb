#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "miniacc/lora.h"

namespace miniacc {

/// A prompt without its `<lora:NAME>` and `<lora:NAME:WEIGHT>` tags, and what they ask for.
struct TaggedPrompt {
  struct Tag {
    std::string name;
    float weight = 1.0F;
  };
  std::string prompt;  ///< one of the spaces around a removed tag goes with it
  std::vector<Tag> tags;
};
/// kInvalidArgument quotes a tag that is cut off, has no name or a weight that is no finite number.
[[nodiscard]] Result<TaggedPrompt> split_lora_tags(const std::string& prompt);

/// The file that a tag names: NAME or NAME.safetensors in `folder`. A name is a file's, not a
/// path: separators, "..", and links that lead out of the folder are kInvalidArgument. kNotFound
/// lists what the folder holds, the most similar names first.
[[nodiscard]] Result<std::filesystem::path> find_lora_file(const std::filesystem::path& folder,
                                                           const std::string& name);

}  // namespace miniacc
