#include "io/gguf_types.h"

#include <fmt/format.h>

#include <array>

namespace miniacc {
namespace {

struct Readable {
  std::uint32_t type;
  DType dtype;
};
// Numbers of enum ggml_type.
constexpr std::array<Readable, 13> kReadable = {{
    {0, DType::kF32},
    {1, DType::kF16},
    {2, DType::kQ4_0},
    {8, DType::kQ8_0},
    {12, DType::kQ4_K},
    {13, DType::kQ5_K},
    {14, DType::kQ6_K},
    {24, DType::kI8},
    {25, DType::kI16},
    {26, DType::kI32},
    {27, DType::kI64},
    {28, DType::kF64},
    {30, DType::kBF16},
}};

struct Named {
  std::uint32_t type;
  std::string_view name;
};
constexpr std::array<Named, 21> kUnreadable = {{
    {3, "q4_1"},      {6, "q5_0"},    {7, "q5_1"},     {9, "q8_1"},    {10, "q2_k"},
    {11, "q3_k"},     {15, "q8_k"},   {16, "iq2_xxs"}, {17, "iq2_xs"}, {18, "iq3_xxs"},
    {19, "iq1_s"},    {20, "iq4_nl"}, {21, "iq3_s"},   {22, "iq2_s"},  {23, "iq4_xs"},
    {29, "iq1_m"},    {34, "tq1_0"},  {35, "tq2_0"},   {39, "mxfp4"},  {40, "nvfp4"},
    {31, "q4_0_4_4"},
}};

}  // namespace

std::optional<DType> dtype_of_ggml_type(std::uint32_t type) {
  for (const Readable& entry : kReadable) {
    if (entry.type == type) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

std::optional<std::uint32_t> ggml_type_of_dtype(DType dtype) {
  for (const Readable& entry : kReadable) {
    if (entry.dtype == dtype) {
      return entry.type;
    }
  }
  return std::nullopt;
}

std::string ggml_type_name(std::uint32_t type) {
  if (const auto dtype = dtype_of_ggml_type(type)) {
    return std::string(dtype_name(*dtype));
  }
  for (const Named& entry : kUnreadable) {
    if (entry.type == type) {
      return std::string(entry.name);
    }
  }
  return fmt::format("type {}", type);
}

}  // namespace miniacc
