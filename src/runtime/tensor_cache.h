#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "device/device.h"

namespace miniacc {

/// Tensors that cost more to compute than to keep, on disk: one safetensors file a key. The file's
/// name is the key's SHA-256; the key itself is stored inside and compared, and so is a checksum of
/// the data, so that no damage and no collision is served. Several processes may share a folder:
/// files appear whole, by renaming.
class TensorCache {
 public:
  /// Makes the folder where it is missing, for its user alone. `max_bytes` bounds what the folder's
  /// cache files take together. kIo where it cannot be made or written.
  [[nodiscard]] static Result<TensorCache> open(const std::filesystem::path& folder,
                                                std::size_t max_bytes);

  /// What was stored under the key, f32 on `device` (a CPU device), in the order of storing; empty
  /// when nothing was. A damaged file is removed, counts as nothing, and `warning` says so. A hit
  /// makes the file the most recently used one.
  [[nodiscard]] std::optional<std::vector<Tensor>> find(const std::string& key, Device& device,
                                                        std::string& warning) const;

  /// Keeps contiguous f32 CPU tensors under the key, replacing what was there, and removes the
  /// least recently used files beyond max_bytes. What is larger than max_bytes by itself is not
  /// kept. kIo where the disk refuses.
  [[nodiscard]] Status store(const std::string& key,
                             const std::vector<ConstTensorView>& tensors) const;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  TensorCache(std::filesystem::path folder, std::size_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}
  [[nodiscard]] std::filesystem::path file_of(const std::string& key) const;
  void evict(const std::filesystem::path& keep) const;

  std::filesystem::path folder_;
  std::size_t max_bytes_;
};

}  // namespace miniacc
