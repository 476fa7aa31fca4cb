#include "runtime/tensor_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <system_error>

#include "io/sha256.h"
#include "io/tensor_file.h"
#include "io/tensor_writer.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

/// Raised whenever what is stored, or how it is computed, changes its meaning.
constexpr const char* kFormat = "1";
constexpr const char* kEnding = ".cache.safetensors";

std::string digest_of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

std::string tensor_name(std::size_t index) { return fmt::format("{:04}", index); }

Result<std::vector<Tensor>> read_entry(const fs::path& path, const std::string& key,
                                       Device& device) {
  MINIACC_ASSIGN(const TensorFile file, TensorFile::open(path));
  const auto text = [&](const char* name) {
    const auto found = file.metadata().find(name);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  if (text("miniacc_cache") != kFormat || text("key") != key) {
    return fail(ErrorCode::kInvalidInput, "it was made for something else");
  }
  std::vector<Tensor> tensors;
  Sha256 hash;
  for (std::size_t i = 0; i < file.entries().size(); ++i) {
    const TensorEntry* entry = file.find(tensor_name(i));
    if (entry == nullptr || entry->dtype != DType::kF32) {
      return fail(ErrorCode::kInvalidInput, "a tensor is missing");
    }
    MINIACC_ASSIGN(const std::span<const std::byte> bytes, file.bytes(*entry));
    hash.add(bytes);
    MINIACC_ASSIGN(Tensor tensor, try_empty_tensor(device, entry->shape, DType::kF32));
    if (!bytes.empty()) {
      std::memcpy(tensor.f32().data(), bytes.data(), bytes.size());
    }
    tensors.push_back(std::move(tensor));
  }
  if (text("sha256") != hash.hex()) {
    return fail(ErrorCode::kInvalidInput, "its checksum is wrong");
  }
  return tensors;
}

}  // namespace

Result<TensorCache> TensorCache::open(const fs::path& folder, std::size_t max_bytes) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder, error)) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot be made as the cache's folder: {}",
                                            folder.string(), error.message()));
  }
  if (made) {  // what is kept there tells what was asked for
    fs::permissions(folder, fs::perms::owner_all, error);
  }
  return TensorCache(folder, max_bytes);
}

fs::path TensorCache::file_of(const std::string& key) const {
  return folder_ / (digest_of(std::as_bytes(std::span(key))) + kEnding);
}

std::optional<std::vector<Tensor>> TensorCache::find(const std::string& key, Device& device,
                                                     std::string& warning) const {
  const fs::path path = file_of(key);
  std::error_code error;
  // A link is not followed: it could name any file.
  if (fs::symlink_status(path, error).type() != fs::file_type::regular) {
    return std::nullopt;
  }
  auto tensors = read_entry(path, key, device);
  if (!tensors) {
    if (tensors.error().code == ErrorCode::kOutOfMemory) {
      return std::nullopt;  // the file is fine
    }
    warning = fmt::format("{}: a damaged cache file was removed ({})", path.string(),
                          tensors.error().message);
    fs::remove(path, error);
    return std::nullopt;
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return *std::move(tensors);
}

Status TensorCache::store(const std::string& key,
                          const std::vector<ConstTensorView>& tensors) const {
  std::size_t total = 0;
  Sha256 hash;
  std::vector<TensorSpec> specs;
  std::vector<std::span<const std::byte>> data;
  for (const ConstTensorView& tensor : tensors) {
    MINIACC_REQUIRE(tensor.dtype == DType::kF32 && tensor.is_contiguous() &&
                        tensor.device.kind == DeviceKind::kCpu,
                    "TensorCache: contiguous f32 tensors on the CPU");
    data.push_back(
        std::as_bytes(std::span(tensor.f32(), static_cast<std::size_t>(tensor.num_elements()))));
    specs.push_back({tensor_name(specs.size()), DType::kF32, tensor.shape});
    total += data.back().size();
    hash.add(data.back());
  }
  if (total > max_bytes_) {
    return {};
  }
  const fs::path path = file_of(key);
  MINIACC_ASSIGN(
      auto writer,
      create_safetensors(path, specs,
                         {{"miniacc_cache", kFormat}, {"key", key}, {"sha256", hash.hex()}}));
  for (const auto bytes : data) {
    MINIACC_RETURN_IF_ERROR(writer->append(bytes));
  }
  MINIACC_RETURN_IF_ERROR(writer->finish());
  evict(path);
  return {};
}

void TensorCache::evict(const fs::path& keep) const {
  struct Kept {
    fs::path path;
    fs::file_time_type used;
    std::uintmax_t size_bytes;
  };
  std::vector<Kept> files;
  std::uintmax_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // another process may remove files too
    if (!it->path().string().ends_with(kEnding) || !it->is_regular_file(gone)) {
      continue;
    }
    const std::uintmax_t size_bytes = it->file_size(gone);
    const auto used = it->last_write_time(gone);
    if (!gone) {
      files.push_back({it->path(), used, size_bytes});
      total += size_bytes;
    }
  }
  std::sort(files.begin(), files.end(),
            [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (const Kept& file : files) {
    if (total <= max_bytes_) {
      return;
    }
    if (file.path != keep) {
      std::error_code gone;
      fs::remove(file.path, gone);
      total -= file.size_bytes;
    }
  }
}

}  // namespace miniacc
