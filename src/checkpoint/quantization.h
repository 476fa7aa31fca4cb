#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "core/error.h"
#include "io/tensor_file.h"

namespace miniacc {

/// What a quantised weight needs beside its values.
struct WeightQuantization {
  const TensorEntry* scale = nullptr;  ///< one value, or one per row; f32, f16 or bf16
  std::int64_t rotation_group = 0;     ///< ConvRot group of input columns; 0: not rotated
};

/// The quantisation records of a safetensors file: scale tensors, `.comfy_quant` blobs and the
/// `_quantization_metadata` entry (spec model.md §2.5).
struct QuantizationRecords {
  std::map<const TensorEntry*, WeightQuantization> weights;
  std::set<const TensorEntry*> side_tensors;  ///< scales, blobs and markers: not weights
  std::string summary;                        ///< "", "fp8_scaled", "int8_tensorwise", ...
};

/// kUnsupported names a format this build cannot read (nvfp4, asym_w4a8_int8, ...) and a tensor of
/// it; kInvalidInput says what is wrong with a record.
[[nodiscard]] Result<QuantizationRecords> read_quantization(const TensorFile& file);

}  // namespace miniacc
