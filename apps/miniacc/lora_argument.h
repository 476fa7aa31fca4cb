#pragma once

#include <string>

#include "miniacc/error.h"
#include "miniacc/lora.h"

namespace miniacc {

/// FILE[:STRENGTH[:ALPHA]]. What follows a colon is part of the file's name when a file of that
/// name exists.
[[nodiscard]] Result<LoraRequest> parse_lora(const std::string& text);

}  // namespace miniacc
