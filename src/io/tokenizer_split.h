#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;

namespace miniacc {

/// The pattern of the released tokenizer (Qwen2 family), used where no tokenizer.json gives one.
extern const char* const kQwenSplitPattern;

/// Cuts text into pieces with a regular expression: each match is a piece, and so is each stretch
/// between matches ("isolated"): nothing is dropped. Immutable, usable from several threads.
class RegexSplitter {
 public:
  /// kInvalidInput names the position of a mistake in the pattern. `\s` and `\S` mean Unicode's
  /// White_Space, as in the reference's engine.
  [[nodiscard]] static Result<RegexSplitter> compile(std::string_view pattern);

  /// Calls `piece` for each non-empty piece of well-formed UTF-8, in order. kInvalidInput when a
  /// match runs into the engine's limit on steps or memory: the text is never silently cut.
  [[nodiscard]] Status split(std::string_view utf8,
                             const std::function<void(std::string_view)>& piece) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const noexcept;
  };
  struct FreeMatchContext {
    void operator()(pcre2_real_match_context_8* context) const noexcept;
  };
  RegexSplitter() = default;

  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
  std::unique_ptr<pcre2_real_match_context_8, FreeMatchContext> context_;
};

}  // namespace miniacc
