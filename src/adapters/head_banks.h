#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"
#include "device/device.h"
#include "io/tensor_file.h"

namespace miniacc {

/// Shifts that the heads of PDD adapters were trained for; others make their fusion wrong.
inline constexpr double kPddVideoShift = 12.0;
inline constexpr double kPddAudioShift = 3.0;

/// w_j = Δσ_j / ΣΔσ over intervals [first, first + count) of the uniform `num_steps`-interval base
/// grid under `shift`, Δσ_n = σ_n - σ_{n+1}, all in double. They sum to 1.
/// Source: spec model.md §6.5.
[[nodiscard]] std::vector<double> interval_weights(double shift, std::int64_t num_steps,
                                                   std::int64_t first, std::int64_t count);

/// The output heads of one evaluation.
struct FusedHeads {
  Tensor video_weight;  ///< [video rows, D] f32
  Tensor video_bias;    ///< [video rows]
  Tensor audio_weight;  ///< [audio rows, D]
  Tensor audio_bias;    ///< [audio rows]
};

/// The head banks of a PDD adapter: head n predicts the velocity of fine interval n from the state
/// at the start of its block. Because an Euler update is linear in the velocity, a block of
/// intervals is one step with one fused head. Source: spec model.md §6.5, adapters.md §6.
class HeadBanks {
 public:
  /// Checks banks and metadata against each other and against heads of [video_rows, hidden_size]
  /// and [audio_rows, hidden_size]. Entries belong to `file`. kInvalidInput names what is missing
  /// or does not fit.
  [[nodiscard]] static Result<HeadBanks> read(const TensorFile& file, std::int64_t video_rows,
                                              std::int64_t audio_rows, std::int64_t hidden_size);

  /// Fine intervals, and how many of them one evaluation was trained to cover.
  [[nodiscard]] std::int64_t num_steps() const { return num_steps_; }
  [[nodiscard]] std::int64_t block_size() const { return block_size_; }
  /// True when a stream's heads 1, 2, … are stored as offsets from head 0 (re-uploads for ComfyUI),
  /// told from their norms.
  [[nodiscard]] bool video_is_offsets() const { return video_.offsets; }
  [[nodiscard]] bool audio_is_offsets() const { return audio_.offsets; }

  /// Heads of intervals [first, first + count) as one: Σ w_j · head_j, summed in double and rounded
  /// to f32 once, biases likewise; weights of each stream's own shift.
  [[nodiscard]] Result<FusedHeads> fuse(const TensorFile& file, std::int64_t first,
                                        std::int64_t count, Device& device) const;

 private:
  struct Bank {
    const TensorEntry* weight = nullptr;  ///< [num_steps, rows, D] or [num_steps · rows, D]
    const TensorEntry* bias = nullptr;    ///< [num_steps, rows] or [num_steps · rows]
    std::int64_t rows = 0;
    bool offsets = false;
  };
  [[nodiscard]] static Status find_bank(const TensorFile& file, const std::string& module,
                                        std::int64_t rows, std::int64_t hidden_size, Bank& bank,
                                        std::int64_t& num_heads);
  [[nodiscard]] Status fuse_bank(const TensorFile& file, const Bank& bank,
                                 const std::vector<double>& weights, std::int64_t first,
                                 Tensor& weight, Tensor& bias, Device& device) const;

  std::int64_t num_steps_ = 0;
  std::int64_t block_size_ = 0;
  std::int64_t hidden_size_ = 0;
  Bank video_;
  Bank audio_;
};

}  // namespace miniacc
