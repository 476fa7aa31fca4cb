#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "core/error.h"

namespace miniacc {

/// A file written under a temporary name beside its target and given its name when complete.
/// Move-only; destroyed before commit(), it removes the temporary file. Private to the io layer.
class OutputFile {
 public:
  /// Reserves `size_bytes` where the file system can. kIo names the target and the reason.
  [[nodiscard]] static Result<OutputFile> create(const std::filesystem::path& target,
                                                 std::uint64_t size_bytes);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  [[nodiscard]] Status write(std::span<const std::byte> bytes);
  /// Syncs, renames to the target (replacing what is there) and syncs the folder.
  [[nodiscard]] Status commit();

 private:
  OutputFile(std::filesystem::path target, std::filesystem::path temporary, int descriptor,
             std::uint64_t size_bytes);
  /// The system's refusal in one sentence.
  [[nodiscard]] tl::unexpected<Error> refused(const char* what, int error_number) const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;  ///< empty once it is gone
  int descriptor_ = -1;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace miniacc
