#include "io/tokenizer_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>

#include <fmt/format.h>

namespace miniacc {
namespace {

constexpr std::size_t kMaxPatternBytes = 4096;
// Steps one match may take. The released pattern needs at most two for each character of a white
// space run, so that texts of 500,000 characters pass; a pattern that explodes is stopped.
constexpr std::uint32_t kMatchLimit = 1'000'000;
constexpr std::uint32_t kHeapLimitKib = 65'536;

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const noexcept { pcre2_match_data_free(data); }
};

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// PCRE2's \s also takes U+180E, which left White_Space in Unicode 6.3; the reference's engine
// follows Unicode. White_Space is U+0009..000D, U+0085 and the separators (category Z).
std::string with_unicode_white_space(std::string_view pattern) {
  constexpr std::string_view kWhiteSpace = "\\x{09}-\\x{0D}\\x{85}\\p{Z}";
  std::string out;
  bool in_class = false;
  std::size_t class_start = 0;  // a ']' there is a literal
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
      } else if (escaped == 'S' && !in_class) {
        out += fmt::format("[^{}]", kWhiteSpace);
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      class_start = i + (pattern.substr(i + 1).starts_with('^') ? 2 : 1);
    } else if (c == ']' && i != class_start) {
      in_class = false;
    } else if (in_class && pattern.substr(i).starts_with("[:")) {
      const std::size_t end = pattern.find(":]", i);
      if (end != std::string_view::npos) {
        out += pattern.substr(i, end + 2 - i);
        i = end + 1;
        continue;
      }
    }
    out += c;
  }
  return out;
}

std::size_t character_length(std::string_view utf8) {
  std::size_t length = 1;
  while (length < utf8.size() && (static_cast<unsigned char>(utf8[length]) & 0xC0U) == 0x80U) {
    ++length;
  }
  return length;
}

}  // namespace

const char* const kQwenSplitPattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

void RegexSplitter::FreeCode::operator()(pcre2_real_code_8* code) const noexcept {
  pcre2_code_free(code);
}
void RegexSplitter::FreeMatchContext::operator()(
    pcre2_real_match_context_8* context) const noexcept {
  pcre2_match_context_free(context);
}

Result<RegexSplitter> RegexSplitter::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("split pattern has {} bytes, at most {} are accepted", pattern.size(),
                            kMaxPatternBytes));
  }
  if (pattern.find("\\Q") != std::string_view::npos) {  // would hide escapes from the rewriting
    return fail(ErrorCode::kUnsupported, "split pattern uses \\Q quoting, which is not supported");
  }
  const std::string source = with_unicode_white_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  RegexSplitter splitter;
  splitter.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                                     &offset, nullptr));
  if (!splitter.code_) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("split pattern is not a regular expression: {} at byte {} of {}",
                            error_text(error), offset, source));
  }
  // Machine code where the system allows it; otherwise pcre2_match() interprets, with equal result.
  pcre2_jit_compile(splitter.code_.get(), PCRE2_JIT_COMPLETE);
  splitter.context_.reset(pcre2_match_context_create(nullptr));
  if (!splitter.context_) {
    return fail(ErrorCode::kOutOfMemory, "split pattern: no memory for its match context");
  }
  pcre2_set_match_limit(splitter.context_.get(), kMatchLimit);
  pcre2_set_heap_limit(splitter.context_.get(), kHeapLimitKib);
  return splitter;
}

Status RegexSplitter::split(std::string_view utf8,
                            const std::function<void(std::string_view)>& piece) const {
  const std::unique_ptr<pcre2_match_data, FreeMatchData> match(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  if (!match) {
    return fail(ErrorCode::kOutOfMemory, "split pattern: no memory for a match");
  }
  std::size_t begin = 0;   // of the text not yet handed out
  std::size_t search = 0;  // where the next match may start
  while (search < utf8.size()) {
    const int count =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(utf8.data()), utf8.size(), search,
                    PCRE2_NO_UTF_CHECK, match.get(), context_.get());
    if (count == PCRE2_ERROR_NOMATCH) {
      break;
    }
    if (count < 0) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("split pattern stopped at byte {} of the text: {}", search,
                              error_text(count)));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    const std::size_t match_begin = bounds[0];
    const std::size_t match_end = bounds[1];
    if (match_begin < search || match_end < match_begin) {  // possible through \K in a lookaround
      return fail(ErrorCode::kInvalidInput,
                  "split pattern gives a match that ends before it begins");
    }
    if (match_end == match_begin) {  // an empty match is no piece
      search = match_end;
      search += search < utf8.size() ? character_length(utf8.substr(search)) : 0;
      continue;
    }
    if (match_begin > begin) {
      piece(utf8.substr(begin, match_begin - begin));
    }
    piece(utf8.substr(match_begin, match_end - match_begin));
    begin = match_end;
    search = match_end;
  }
  if (begin < utf8.size()) {
    piece(utf8.substr(begin));
  }
  return {};
}

}  // namespace miniacc
