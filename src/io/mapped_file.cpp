#include "io/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>

namespace miniacc {
namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

/// Closes the descriptor on every early return of open().
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) {
      ::close(value_);
    }
  }
  [[nodiscard]] int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer; it is refused below.
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) {
    const int error_number = errno;
    if (error_number == ENOENT || error_number == ENOTDIR) {
      return fail(ErrorCode::kNotFound, fmt::format("{}: no such file", path.string()));
    }
    return fail(ErrorCode::kIo,
                fmt::format("{}: cannot open: {}", path.string(), reason(error_number)));
  }
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot stat: {}", path.string(), reason(errno)));
  }
  if (S_ISDIR(status.st_mode)) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is a folder, wanted a file", path.string()));
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is a device or pipe, wanted a regular file", path.string()));
  }
  if (status.st_size <= 0) {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: is empty (0 bytes)", path.string()));
  }
  if (static_cast<std::uintmax_t>(status.st_size) > std::numeric_limits<std::size_t>::max()) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {} bytes do not fit the address space",
                                                     path.string(), status.st_size));
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) {  // NOLINT(performance-no-int-to-ptr): the system's macro
    return fail(ErrorCode::kIo,
                fmt::format("{}: cannot map {} bytes: {}", path.string(), size, reason(errno)));
  }
  return MappedFile(path, descriptor.release(), static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(std::filesystem::path path, int descriptor, const std::byte* data,
                       std::size_t size)
    : path_(std::move(path)), descriptor_(descriptor), data_(data), size_(size) {}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    close();
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() { close(); }

void MappedFile::close() noexcept {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
    data_ = nullptr;
    size_ = 0;
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    descriptor_ = -1;
  }
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  if (part.empty()) {
    return;
  }
  MINIACC_REQUIRE(part.data() >= data_ && part.data() + part.size() <= data_ + size_,
                  "mapped file: the part to drop lies outside the file");
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = static_cast<std::size_t>(part.data() - data_);
  const std::size_t last = first + part.size();
  const std::size_t begin = (first + page - 1) / page * page;
  // The file's last page is whole for the kernel although the file ends inside it.
  const std::size_t end = last == size_ ? last : last / page * page;
  if (begin < end) {
    // Advice only: if the kernel declines, the pages stay resident and nothing else changes.
    ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
  }
}

Status MappedFile::check_unchanged() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    return fail(ErrorCode::kIo, fmt::format("{}: cannot stat: {}", path_.string(), reason(errno)));
  }
  if (static_cast<std::uintmax_t>(status.st_size) != size_) {
    return fail(ErrorCode::kIo, fmt::format("{}: changed while in use: has {} bytes, had {}",
                                            path_.string(), status.st_size, size_));
  }
  return {};
}

}  // namespace miniacc
