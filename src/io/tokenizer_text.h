#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace miniacc {

/// Characters (Unicode code points) a prompt may have. The reference sets no limit; the hosted
/// product takes 7,000. Every token of the prompt is one more row in the attention of every
/// denoising step, so a text far beyond that is a mistake (a pasted file) that would cost hours.
inline constexpr std::size_t kMaxPromptCharacters = 20'000;

/// Offset of the first byte that is not well-formed UTF-8 (Unicode 15, table 3-7: no overlong form,
/// no surrogate, nothing above U+10FFFF, no cut sequence); empty when all of it is.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Number of code points of well-formed UTF-8.
std::size_t count_characters(std::string_view utf8);

/// kInvalidArgument when `prompt` is not UTF-8 (names the byte offset) or longer than
/// kMaxPromptCharacters (names the count).
[[nodiscard]] Status check_prompt_length(std::string_view prompt);

/// Unicode normalisation form C of well-formed UTF-8, in time linear in the length except for the
/// sort of each run of combining marks (n log n).
[[nodiscard]] Result<std::string> normalize_nfc(std::string_view utf8);

}  // namespace miniacc
