#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "core/weight_source.h"

namespace miniacc::testing {

struct AdapterTensor {
  Shape shape;
  std::vector<float> values;
  DType dtype = DType::kF32;
};
using AdapterTensors = std::map<std::string, AdapterTensor>;
using Metadata = std::map<std::string, std::string>;

AdapterTensor random_factor(std::int64_t rows, std::int64_t columns, std::uint64_t seed);
/// Throws when the file cannot be written.
std::filesystem::path write_adapter(const std::filesystem::path& path,
                                    const AdapterTensors& tensors, const Metadata& metadata = {});

/// A low-rank change of one module in canonical layout; q, k and v apart.
struct ModuleChange {
  std::string module;  ///< canonical
  int part = -1;       ///< 0, 1, 2: q, k, v
  std::int64_t rank = 0;
  AdapterTensor down;  ///< [rank, in]
  AdapterTensor up;    ///< [rows, rank], gate first
};
/// Random changes of all linear layers of blocks and refiner, small against the weights.
std::vector<ModuleChange> random_changes(const WeightSource& base, std::int64_t rank,
                                         std::uint64_t seed);

/// The same changes in the conventions of the field. `down` and `up` are the suffixes.
AdapterTensors diffusers_names(const std::vector<ModuleChange>& changes, const std::string& prefix,
                               const std::string& down, const std::string& up);
/// Fused qkv of three times the rank with a block-diagonal up matrix.
AdapterTensors fused_names(const std::vector<ModuleChange>& changes, const std::string& prefix,
                           const std::string& down, const std::string& up);
/// `tensors` (of fused_names) with the rows of every qkv up matrix in order of heads.
AdapterTensors interleave_heads(AdapterTensors tensors, std::int64_t head_dim);
/// `tensors` (of fused_names without prefix) under kohya's flat names.
AdapterTensors flat_names(const AdapterTensors& tensors);

}  // namespace miniacc::testing
