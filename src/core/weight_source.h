#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/shape.h"
#include "core/weight_matrix.h"

namespace miniacc {

class Device;

/// What a matrix has beside its values and row scales.
struct MatrixExtras {
  std::int64_t rotation_group = 0;
  std::vector<LowRankDelta> low_rank = {};
};

/// Weights of one component (transformer, text encoder, a VAE) by canonical name, whatever file
/// format and naming they are stored in. Canonical names and layouts: docs/checkpoints.md.
/// Reads happen when asked for; nothing is cached here. Several threads may read at once, each into
/// a device of its own or one that is thread-safe.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  [[nodiscard]] virtual bool has(std::string_view name) const = 0;
  /// Shape in canonical layout; kNotFound names the tensor and the file.
  [[nodiscard]] virtual Result<Shape> shape(std::string_view name) const = 0;
  /// A hyper-parameter that shapes do not tell (rope_theta, latents_mean, ...), from config.json or
  /// file metadata, under its canonical key; empty where the checkpoint says nothing.
  [[nodiscard]] virtual std::optional<std::vector<double>> config(std::string_view key) const = 0;

  /// The tensor as f32 in canonical layout on `device` (a CPU device). Dequantises and undoes any
  /// rotation. Every value is checked: NaN or infinity is kInvalidInput naming the tensor.
  [[nodiscard]] virtual Result<Tensor> load(std::string_view name, Device& device) = 0;
  /// Rows [first, first + count) of a matrix as f32, e.g. embedding rows.
  [[nodiscard]] virtual Result<Tensor> load_rows(std::string_view name, std::int64_t first,
                                                 std::int64_t count, Device& device) = 0;
  /// A linear layer's matrix in the form `precision` needs: f32 or bf16 values, or i8 with row
  /// scales (kept as stored when the file holds int8 weights, quantised per row otherwise).
  [[nodiscard]] virtual Result<OwnedWeightMatrix> load_matrix(std::string_view name,
                                                              Precision precision,
                                                              Device& device) = 0;
  /// The same into memory of the caller, at memory speed where no arithmetic is needed:
  ///   values [n, k] of the precision's dtype · row_scale [n] f32, for kInt8 only · both on the CPU
  /// Uses up to `num_threads` threads; their number changes no bit. `scratch` is a CPU device.
  [[nodiscard]] virtual Result<MatrixExtras> read_matrix(std::string_view name, Precision precision,
                                                         int num_threads, Device& scratch,
                                                         TensorView values, TensorView row_scale);

  /// Identity for metadata and caches: a hash over headers (names, shapes, dtypes, sizes) and over
  /// samples of every tensor's bytes, so that files of equal headers differ.
  [[nodiscard]] virtual std::string identity() const = 0;
};

}  // namespace miniacc
