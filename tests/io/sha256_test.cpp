#include "io/sha256.h"

#include <gtest/gtest.h>

namespace miniacc {
namespace {

std::string digest(const std::string& text, std::size_t piece) {
  Sha256 hash;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    const std::string part = text.substr(at, piece);
    hash.add(std::as_bytes(std::span(part.data(), part.size())));
  }
  return hash.hex();
}

TEST(Sha256, MatchesPublishedDigestsInAnyPieces) {
  // FIPS 180-4 examples (NIST), and a million letters 'a'.
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  for (const std::size_t piece : {1U, 7U, 64U, 100000U}) {
    EXPECT_EQ(digest("", piece),
              "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(digest("abc", piece),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(digest(two_blocks, piece),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  }
  EXPECT_EQ(digest(std::string(1000000, 'a'), 4096),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace miniacc
