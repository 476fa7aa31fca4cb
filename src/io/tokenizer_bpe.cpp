#include "io/tokenizer_bpe.h"

#include <algorithm>
#include <cstddef>
#include <queue>
#include <tuple>

#include <fmt/format.h>

namespace miniacc {
namespace {

bool is_printable_latin1(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174);
}

/// Code point of each byte's symbol; all are below U+0144, two UTF-8 bytes at most.
std::array<int, 256> byte_code_points() {
  std::array<int, 256> code_points{};
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    code_points[static_cast<std::size_t>(byte)] = is_printable_latin1(byte) ? byte : next++;
  }
  return code_points;
}

}  // namespace

std::string byte_symbol(unsigned char byte) {
  static const std::array<int, 256> alphabet = byte_code_points();
  const int code_point = alphabet[byte];
  if (code_point < 0x80) {
    return std::string(1, static_cast<char>(code_point));
  }
  return {static_cast<char>(0xC0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3F))};
}

Result<std::string> bytes_of_symbols(std::string_view text) {
  static const std::unordered_map<std::string, unsigned char> bytes_of = [] {
    std::unordered_map<std::string, unsigned char> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      bytes.emplace(byte_symbol(static_cast<unsigned char>(byte)),
                    static_cast<unsigned char>(byte));
    }
    return bytes;
  }();
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = static_cast<unsigned char>(text[i]) < 0x80 ? 1 : 2;
    const auto found = bytes_of.find(std::string(text.substr(i, length)));
    if (found == bytes_of.end()) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("token \"{}\" is not written in the byte alphabet", text));
    }
    out += static_cast<char>(found->second);
    i += length;
  }
  return out;
}

Result<BytePairEncoder> BytePairEncoder::build(const BpeVocabulary& vocabulary,
                                               const std::vector<BpeMerge>& merges) {
  BytePairEncoder encoder;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary.find(byte_symbol(static_cast<unsigned char>(byte)));
    if (found == vocabulary.end()) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("vocabulary lacks \"{}\", the symbol of byte {}",
                              byte_symbol(static_cast<unsigned char>(byte)), byte));
    }
    encoder.byte_ids_[static_cast<std::size_t>(byte)] = found->second;
  }
  encoder.merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    std::array<std::int32_t, 3> ids{};
    const std::array<std::string, 3> symbols = {left, right, left + right};
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      const auto found = vocabulary.find(symbols[i]);
      if (found == vocabulary.end()) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("merge {} (\"{}\" with \"{}\") needs \"{}\", which is not in the "
                                "vocabulary",
                                rank, left, right, symbols[i]));
      }
      ids[i] = found->second;
    }
    const Merge merge{static_cast<std::int32_t>(rank), ids[2]};
    if (!encoder.merges_.emplace(pair_key(ids[0], ids[1]), merge).second) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("merge {} (\"{}\" with \"{}\") is listed twice", rank, left, right));
    }
  }
  return encoder;
}

void BytePairEncoder::encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
  // Symbols are a doubly linked list; every mergeable pair waits in a heap by (rank, position).
  // An entry whose symbols changed since it was queued is recognised by its ids and skipped.
  struct Symbol {
    std::int32_t id = 0;  // -1 once it was joined to its left neighbour
    std::ptrdiff_t previous = -1;
    std::ptrdiff_t next = -1;
  };
  struct Candidate {
    std::int32_t rank = 0;
    std::ptrdiff_t left = 0;
    std::int32_t left_id = 0;
    std::int32_t right_id = 0;
    std::int32_t joined_id = 0;
    bool operator>(const Candidate& other) const {
      return std::tie(rank, left) > std::tie(other.rank, other.left);
    }
  };
  const auto length = static_cast<std::ptrdiff_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (std::ptrdiff_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    symbols[static_cast<std::size_t>(i)] = {byte_ids_[byte], i - 1, i + 1 < length ? i + 1 : -1};
  }
  const auto at = [&symbols](std::ptrdiff_t i) -> Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto queue_pair = [&](std::ptrdiff_t left) {
    const Symbol& symbol = at(left);
    if (symbol.next < 0) {
      return;
    }
    const std::int32_t right_id = at(symbol.next).id;
    const auto found = merges_.find(pair_key(symbol.id, right_id));
    if (found != merges_.end()) {
      queue.push({found->second.rank, left, symbol.id, right_id, found->second.id});
    }
  };
  for (std::ptrdiff_t i = 0; i + 1 < length; ++i) {
    queue_pair(i);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.left);
    if (left.id != best.left_id || left.next < 0 || at(left.next).id != best.right_id) {
      continue;
    }
    Symbol& right = at(left.next);
    right.id = -1;
    left.id = best.joined_id;
    left.next = right.next;
    if (left.next >= 0) {
      at(left.next).previous = best.left;
    }
    queue_pair(best.left);
    if (left.previous >= 0) {
      queue_pair(left.previous);
    }
  }
  for (std::ptrdiff_t i = length > 0 ? 0 : -1; i >= 0; i = at(i).next) {
    ids.push_back(at(i).id);
  }
}

}  // namespace miniacc
