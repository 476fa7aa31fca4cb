#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/cancel_token.h"
#include "core/error.h"
#include "io/tensor_writer.h"

namespace miniacc {

/// Rows [first, first + count) of a tensor as f32 into out [count * columns].
using RowFill = std::function<Status(std::int64_t first, std::int64_t count, float* out)>;

/// One tensor of a file to be written, made when asked for: its rows in stored order, which are
/// then converted to spec.dtype, or its whole content.
struct OutputTensor {
  TensorSpec spec;
  RowFill fill;
  std::function<Result<std::vector<std::byte>>()> content = {};  ///< where `fill` is empty
};

/// What the writing of a set of files shares.
struct WriteControl {
  std::string tool;  ///< "convert", as messages name it
  const CancelToken* cancel = nullptr;
  std::function<void(std::size_t size_bytes)> progress = {};  ///< now and then, bytes so far
  std::size_t written = 0;
};

/// A .safetensors or (by its ending) .gguf file, tensor by tensor in slabs of a few MB, under a
/// temporary name until it is complete. kInvalidInput names a tensor with values that the stored
/// type cannot hold.
[[nodiscard]] Status write_tensor_file(const std::filesystem::path& path,
                                       const std::vector<OutputTensor>& outputs,
                                       const std::map<std::string, std::string>& metadata,
                                       WriteControl& control);

/// Shards of at most about 5 GiB, at least `min_shards`, named after `stem`, with their index file.
[[nodiscard]] Status write_shards(const std::filesystem::path& folder, const std::string& stem,
                                  const std::vector<OutputTensor>& outputs, std::size_t min_shards,
                                  WriteControl& control);

/// Bytes of the tensors of a file, without its header.
[[nodiscard]] std::size_t output_bytes(const std::vector<OutputTensor>& outputs);

/// A folder that is removed unless it was renamed into place.
class StagingFolder {
 public:
  explicit StagingFolder(std::filesystem::path target);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// kNotFound when there is no folder to make it in.
  [[nodiscard]] Status create();
  [[nodiscard]] Status finish();

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  bool done_ = false;
};

}  // namespace miniacc
