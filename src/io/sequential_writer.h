#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/output_file.h"
#include "io/tensor_writer.h"

namespace miniacc {

/// The TensorWriter of both formats: header, then the tensors with zeros up to the next multiple of
/// `alignment` after each. Private to the io layer.
///   header   complete, its length a multiple of `alignment`
///   sizes    bytes of each tensor, in order
[[nodiscard]] Result<std::unique_ptr<TensorWriter>> create_sequential_writer(
    const std::filesystem::path& path, std::string_view header, std::vector<std::uint64_t> sizes,
    std::uint64_t alignment);

/// What neither format can hold: a bad or repeated name, values that do not fill whole blocks of a
/// row, metadata that is not UTF-8.
[[nodiscard]] Status check_specs(const std::filesystem::path& path,
                                 const std::vector<TensorSpec>& tensors,
                                 const std::map<std::string, std::string>& metadata);

/// Bytes of a tensor that check_specs has accepted.
[[nodiscard]] std::uint64_t spec_bytes(const TensorSpec& spec);

}  // namespace miniacc
