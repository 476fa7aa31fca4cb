#include "io/media/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace miniacc {
namespace {

// File times advance in ticks of up to 10 ms: a file written twice within one tick keeps its stamp.
// A file younger than this is waited for, so that its stamp means something.
constexpr std::int64_t kRestNs = 20'000'000;
constexpr int kMaxWaits = 10;

std::string reason(int error_number) { return std::generic_category().message(error_number); }

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      stamp_(other.stamp_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

Result<InputFile> InputFile::open(const std::filesystem::path& path, std::string_view wanted) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer; it is refused below. O_NOCTTY: a
  // terminal must not become ours.
  InputFile file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.descriptor_ < 0) {
    const int error_number = errno;
    if (error_number == ENOENT || error_number == ENOTDIR) {
      return fail(ErrorCode::kNotFound, fmt::format("{}: no such file", path.string()));
    }
    return fail(ErrorCode::kIo,
                fmt::format("{}: cannot open: {}", path.string(), reason(error_number)));
  }
  for (int waits = 0;; ++waits) {
    MINIACC_ASSIGN(file.stamp_, file.read_stamp(wanted));
    const std::int64_t age = now_ns() - file.stamp_.modified_ns;
    if (age < 0 || age >= kRestNs) {  // negative: the time is another machine's
      break;
    }
    if (waits == kMaxWaits) {
      return fail(
          ErrorCode::kInvalidInput,
          fmt::format("{}: is being written to; read it when it is finished", path.string()));
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kRestNs - age));
  }
  if (file.size_bytes() == 0) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is empty (0 bytes), wanted {}", path.string(), wanted));
  }
  return file;
}

Result<InputFile> InputFile::again() const {
  InputFile copy(path_, ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0));
  if (copy.descriptor_ < 0) {
    return fail(ErrorCode::kIo,
                fmt::format("{}: cannot read it twice: {}", path_.string(), reason(errno)));
  }
  copy.stamp_ = stamp_;
  return copy;
}

Result<InputFile::Stamp> InputFile::read_stamp(std::string_view wanted) const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot stat: {}", path_.string(), reason(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    const char* what = S_ISDIR(status.st_mode)    ? "a folder"
                       : S_ISFIFO(status.st_mode) ? "a pipe"
                       : S_ISSOCK(status.st_mode) ? "a socket"
                                                  : "a device";
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is {}, wanted {}", path_.string(), what, wanted));
  }
  return Stamp{status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

Result<std::size_t> InputFile::read_at(std::int64_t offset, std::span<std::uint8_t> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done,
                                  offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return fail(ErrorCode::kIo,
                  fmt::format("{}: cannot read: {}", path_.string(), reason(errno)));
    }
    if (count == 0) {
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  return done;
}

Result<std::vector<std::uint8_t>> InputFile::read_all(std::int64_t max_bytes) const {
  if (size_bytes() > max_bytes) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: has {} bytes, at most {} are accepted",
                                                      path_.string(), size_bytes(), max_bytes));
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size_bytes()));
  MINIACC_ASSIGN(const std::size_t count, read_at(0, bytes));
  if (count != bytes.size()) {
    MINIACC_RETURN_IF_ERROR(check_unchanged());
    return fail(ErrorCode::kIo,
                fmt::format("{}: ends after {} of {} bytes", path_.string(), count, bytes.size()));
  }
  return bytes;
}

Status InputFile::check_unchanged() const {
  MINIACC_ASSIGN(const Stamp stamp, read_stamp("a file"));
  if (stamp != stamp_) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: was changed while it was read ({} bytes then, {} bytes now); try "
                            "again when nothing writes to it",
                            path_.string(), stamp_.size_bytes, stamp.size_bytes));
  }
  return {};
}

}  // namespace miniacc
