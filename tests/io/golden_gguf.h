#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "io/dequantize.h"
#include "io/tensor_file.h"
#include "support/golden.h"

namespace miniacc::testing {

/// A file of tests/golden/gguf/ (made by tools/reference/gguf_goldens.py).
inline TensorFile golden_gguf(const char* name) {
  auto file = TensorFile::open(test_data("golden/gguf") / name);
  EXPECT_TRUE(file) << file.error().message;
  return *std::move(file);
}

inline std::vector<float> values_of(const TensorFile& file, const TensorEntry& entry) {
  std::vector<float> values(static_cast<std::size_t>(entry.shape.num_elements()));
  dequantize(entry.dtype, file.bytes(entry).value(), entry.shape.num_elements(), values.data());
  return values;
}

}  // namespace miniacc::testing
