#include "io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace miniacc {
namespace {

constexpr int kMaxAttempts = 1000;                 // other writers may hold a name each
constexpr std::size_t kMaxWriteBytes = 64U << 20;  // one write call; the kernel's limit is 2 GiB

std::filesystem::path folder_of(const std::filesystem::path& target) {
  return target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::filesystem::path& target,
                                      std::uint64_t size_bytes) {
  std::filesystem::path temporary;
  int descriptor = -1;
  for (int attempt = 0; attempt < kMaxAttempts && descriptor < 0; ++attempt) {
    temporary = folder_of(target) / fmt::format(".miniacc-{}-{}.tmp", ::getpid(), attempt);
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) {
      break;
    }
  }
  if (descriptor < 0) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot write in the folder: {}", target.string(),
                                            std::generic_category().message(errno)));
  }
  OutputFile file(target, std::move(temporary), descriptor, size_bytes);
  std::error_code ignored;
  if (std::filesystem::is_directory(target, ignored)) {
    return fail(ErrorCode::kIo, fmt::format("{}: is a folder", target.string()));
  }
  // Reserving tells now, not hours later, that the space does not suffice. Where it is not offered,
  // write() will tell.
  if (size_bytes > 0 && ::fallocate(descriptor, 0, 0, static_cast<off_t>(size_bytes)) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
    return file.refused("cannot reserve space", errno);
  }
  return file;
}

OutputFile::OutputFile(std::filesystem::path target, std::filesystem::path temporary,
                       int descriptor, std::uint64_t size_bytes)
    : target_(std::move(target)),
      temporary_(std::move(temporary)),
      descriptor_(descriptor),
      size_bytes_(size_bytes) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

tl::unexpected<Error> OutputFile::refused(const char* what, int error_number) const {
  return fail(ErrorCode::kIo,
              fmt::format("{}: {} for {} bytes: {}", target_.string(), what, size_bytes_,
                          std::generic_category().message(error_number)));
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxWriteBytes));
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return refused("cannot write a file", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status OutputFile::commit() {
  if (::fsync(descriptor_) != 0) {
    return refused("cannot sync a file", errno);
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    return refused("cannot close a file", errno);
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    return refused("cannot rename a file", errno);
  }
  temporary_.clear();
  // The rename itself is on disk once the folder is. File systems that cannot sync a folder say
  // EINVAL; the file is complete either way.
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return {};
}

}  // namespace miniacc
