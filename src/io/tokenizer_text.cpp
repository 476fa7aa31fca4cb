#include "io/tokenizer_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

namespace miniacc {
namespace {

// Length of the well-formed sequence at `text[0]`, or 0.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  std::size_t length = 0;
  unsigned char low = 0x80;  // bounds of the second byte, which carry every special rule
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    low = lead == 0xE0 ? 0xA0 : low;    // shorter forms exist
    high = lead == 0xED ? 0x9F : high;  // surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    low = lead == 0xF0 ? 0x90 : low;    // shorter forms exist
    high = lead == 0xF4 ? 0x8F : high;  // above U+10FFFF
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) {
    return 0;
  }
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  return length;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t offset = 0; offset < text.size();) {
    const std::size_t length = sequence_length(text.substr(offset));
    if (length == 0) {
      return offset;
    }
    offset += length;
  }
  return std::nullopt;
}

std::size_t count_characters(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

Status check_prompt_length(std::string_view prompt) {
  if (const auto offset = find_invalid_utf8(prompt)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("prompt: byte {} is not valid UTF-8", *offset));
  }
  const std::size_t characters = count_characters(prompt);
  if (characters > kMaxPromptCharacters) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("prompt: has {} characters, at most {} are accepted", characters,
                            kMaxPromptCharacters));
  }
  return {};
}

Result<std::string> normalize_nfc(std::string_view utf8) {
  if (is_ascii(utf8)) {
    return std::string(utf8);
  }
  // utf8proc_map() would do it in one call, but orders combining marks by exchanging neighbours:
  // quadratic in a run of marks, hence a way to hang on a hostile text. Here: decompose, sort each
  // run of marks by class (stable, Unicode 15 §3.11 D109), let utf8proc compose what is in order.
  std::vector<utf8proc_int32_t> decomposed;
  decomposed.reserve(utf8.size() + 4);
  for (std::size_t offset = 0; offset < utf8.size();) {
    utf8proc_int32_t code_point = -1;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(utf8.data()) + offset,
                         static_cast<utf8proc_ssize_t>(utf8.size() - offset), &code_point);
    if (length <= 0) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("byte {} is not valid UTF-8", offset));
    }
    // The longest canonical decomposition of one code point has 4; 32 leaves room.
    std::array<utf8proc_int32_t, 32> parts{};
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code_point, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    if (count < 0 || static_cast<std::size_t>(count) > parts.size()) {
      return fail(ErrorCode::kInternal, fmt::format("NFC: cannot decompose U+{:04X}", code_point));
    }
    decomposed.insert(decomposed.end(), parts.begin(), parts.begin() + count);
    offset += static_cast<std::size_t>(length);
  }

  const auto mark_class = [](utf8proc_int32_t code_point) {
    return utf8proc_get_property(code_point)->combining_class;
  };
  const auto is_mark = [&](utf8proc_int32_t code_point) { return mark_class(code_point) != 0; };
  for (auto run = decomposed.begin(); run != decomposed.end();) {
    run = std::find_if(run, decomposed.end(), is_mark);
    const auto run_end = std::find_if_not(run, decomposed.end(), is_mark);
    std::stable_sort(run, run_end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return mark_class(a) < mark_class(b);
    });
    run = run_end;
  }

  const utf8proc_ssize_t composed =
      utf8proc_normalize_utf32(decomposed.data(), static_cast<utf8proc_ssize_t>(decomposed.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (composed < 0) {
    return fail(ErrorCode::kInternal, fmt::format("NFC: {}", utf8proc_errmsg(composed)));
  }
  std::string out;
  out.reserve(utf8.size());
  for (utf8proc_ssize_t i = 0; i < composed; ++i) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const utf8proc_ssize_t length =
        utf8proc_encode_char(decomposed[static_cast<std::size_t>(i)], bytes.data());
    out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
  }
  return out;
}

}  // namespace miniacc
