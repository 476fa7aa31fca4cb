#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"

namespace miniacc {

/// What a tensor file will hold; the header is written before any data.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

/// Writes a tensor file front to back, one tensor's bytes at a time, so that memory stays small.
/// Data goes to a temporary name beside the target; finish() renames it, replacing a file that was
/// there. An object destroyed before finish() removes what it wrote. Running out of space is kIo,
/// known before the first byte where the file system can reserve.
class TensorWriter {
 public:
  virtual ~TensorWriter() = default;
  /// Appends bytes of the tensors in the order of the specs; the pieces of one tensor may come in
  /// several calls, and one call may hold several tensors. kInternal when there are more bytes than
  /// the specs say.
  [[nodiscard]] virtual Status append(std::span<const std::byte> bytes) = 0;
  /// kInternal if bytes are missing; otherwise flushes, syncs and renames. Called once, last.
  [[nodiscard]] virtual Status finish() = 0;
};

/// Both refuse, as kInvalidArgument naming the tensor, names no reader would take, duplicates and
/// values that do not fill blocks; dtypes that the format lacks are kUnsupported.
[[nodiscard]] Result<std::unique_ptr<TensorWriter>> create_safetensors(
    const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata);
/// GGUF v3, alignment 32. `metadata` becomes string key/values; empty writes none. Tensors of more
/// than four dimensions (ggml's limit) or of none are stored folded, with their shape in
/// `comfy.gguf.orig_shape.<name>`, which TensorFile undoes.
[[nodiscard]] Result<std::unique_ptr<TensorWriter>> create_gguf(
    const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata);

}  // namespace miniacc
