#pragma once

#include <optional>
#include <string>

#include "checkpoint/component.h"
#include "checkpoint/config.h"
#include "checkpoint/quantization.h"
#include "core/error.h"
#include "io/tensor_file.h"

namespace miniacc {

struct Recognised {
  Component component = Component::kTransformer;
  Naming naming = Naming::kOfficial;
  std::string prefix;
};

/// What the names of a file say it is (spec model.md §2.7, vae.md §7.2, text_encoder.md §7).
/// kInvalidInput for something else, kUnsupported for derivatives this build cannot run (FastH3
/// gates, PDD head banks, FastVideo's rank form, adapters), each named.
[[nodiscard]] Result<Recognised> recognise(const TensorFile& file);

/// Metadata of converted single files: the order of fused rows, asked only where content does not
/// tell.
inline constexpr const char* kQkvRowsKey = "miniacc_qkv_rows";
inline constexpr const char* kPlainQkvRows = "plain";

/// Whether the fused query/key/value rows of a transformer with official names are stored head by
/// head. Quantised, pruned and GGUF files are plain; the vendor's folder is interleaved; for a bare
/// full single file the content decides (qkv_order_by_content).
[[nodiscard]] Result<bool> has_interleaved_qkv(const TensorFile& file, const Recognised& recognised,
                                               const QuantizationRecords& quantization,
                                               const ComponentConfig& config);

/// The content test of spec model.md §2.2: rows fall into 3 x heads groups of head_dim; the
/// root-mean-square of the groups differs more between q, k and v than within them, so the
/// labelling with the larger variance between classes is the right one. Asked of several blocks;
/// kInvalidInput when they disagree or the ratio is below 2.
[[nodiscard]] Result<bool> qkv_interleaved_by_content(const TensorFile& file,
                                                      const std::string& prefix,
                                                      const QuantizationRecords& quantization);

}  // namespace miniacc
