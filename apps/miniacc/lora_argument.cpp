#include "lora_argument.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <vector>

namespace miniacc {

Result<LoraRequest> parse_lora(const std::string& text) {
  LoraRequest lora;
  std::string name = text;
  std::vector<float> numbers;
  std::error_code ignored;
  while (numbers.size() < 2 && !std::filesystem::exists(name, ignored)) {
    const std::size_t colon = name.rfind(':');
    if (colon == std::string::npos) {
      break;
    }
    const char* begin = name.data() + colon + 1;
    const char* end = name.data() + name.size();
    float value = 0.0F;
    const auto [next, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || next != end) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--lora is FILE, FILE:STRENGTH or FILE:STRENGTH:ALPHA, got '{}', where "
                      "'{}' is no number",
                      text, std::string(begin, end)));
    }
    numbers.insert(numbers.begin(), value);
    name.resize(colon);
  }
  lora.path = name;
  if (!numbers.empty()) {
    lora.strength = numbers.front();
  }
  if (numbers.size() == 2) {
    lora.alpha = numbers.back();
  }
  return lora;
}

}  // namespace miniacc
