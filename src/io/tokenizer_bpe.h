#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"

namespace miniacc {

/// One merge of the vocabulary: two symbols, in the byte alphabet.
using BpeMerge = std::pair<std::string, std::string>;
/// Text of a token in the byte alphabet -> id.
using BpeVocabulary = std::unordered_map<std::string, std::int32_t>;

/// Byte-level byte-pair encoding (Sennrich et al. 2016; the byte alphabet of GPT-2): a piece starts
/// as one symbol a byte; the adjacent pair whose merge has the lowest rank (the leftmost of equals)
/// is joined until no pair has a merge.
class BytePairEncoder {
 public:
  /// kInvalidInput when one of the 256 byte symbols, a side of a merge or its result is not in the
  /// vocabulary, or when a merge comes twice. A merge's rank is its place in the list.
  [[nodiscard]] static Result<BytePairEncoder> build(const BpeVocabulary& vocabulary,
                                                     const std::vector<BpeMerge>& merges);

  /// Appends the ids of one piece; n log n in its bytes.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t id = 0;  // of the joined symbol
  };
  static std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U |
           static_cast<std::uint32_t>(right);
  }

  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, Merge> merges_;
};

/// The byte alphabet's symbol for a byte, in UTF-8: printable Latin-1 bytes stand for themselves,
/// the other 68, in increasing order, are U+0100 and up.
std::string byte_symbol(unsigned char byte);
/// The bytes that a token's text in the byte alphabet stands for; empty Result when a character is
/// outside the alphabet.
[[nodiscard]] Result<std::string> bytes_of_symbols(std::string_view text);

}  // namespace miniacc
