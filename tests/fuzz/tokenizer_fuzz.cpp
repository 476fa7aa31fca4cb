#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "fuzz/memory_file.h"
#include "io/tokenizer.h"

namespace {

using miniacc::Tokenizer;
using miniacc::fuzz::require;

/// Encoding either refuses the text or gives ids of the vocabulary, which decode.
void encode_and_check(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text, miniacc::PadTokens::kKeep);
  if (!ids) {
    require(!ids.error().message.empty());
    return;
  }
  for (const std::int32_t id : *ids) {
    require(id >= 0 && id < tokenizer.vocabulary_size());
    require(tokenizer.token_text(id).has_value());
  }
  require(tokenizer.decode(*ids).has_value());
}

const Tokenizer& known_tokenizer() {
  static const auto tokenizer = Tokenizer::open(std::filesystem::path(MINIACC_TEST_DATA) /
                                                "golden/h3-micro/tokenizer/tokenizer.json");
  require(tokenizer.has_value());
  return *tokenizer;
}

}  // namespace

// The input is a text, a zero byte and a tokenizer.json. The text is encoded by a known tokenizer
// and, if the file is accepted, by that one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const miniacc::fuzz::MemoryFile file;
  const std::uint8_t* end = data + size;
  const std::uint8_t* zero = std::find(data, end, std::uint8_t{0});
  const std::string_view text(reinterpret_cast<const char*>(data),
                              static_cast<std::size_t>(zero - data));
  encode_and_check(known_tokenizer(), text);
  if (zero != end) {
    file.set(zero + 1, static_cast<std::size_t>(end - zero - 1));
    const auto tokenizer = Tokenizer::open(file.path());
    if (tokenizer) {
      encode_and_check(*tokenizer, text);
    } else {
      require(!tokenizer.error().message.empty());
    }
  }
  return 0;
}
