#include "io/media/partial_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxAttempts = 1000;
// File systems take names of 255 bytes; the temporary one adds some 40 to the target's.
constexpr std::size_t kMaxStemBytes = 120;

tl::unexpected<Error> system_failure(const fs::path& path, const std::string& what, int error) {
  return fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

fs::path folder_of(const fs::path& target) {
  return target.has_parent_path() ? target.parent_path() : fs::path(".");
}

fs::path temporary_name(const fs::path& target, int attempt, const char* role) {
  const std::string stem = target.stem().string().substr(0, kMaxStemBytes);
  return folder_of(target) / fmt::format(".{}.{}-{}-{}{}", stem, role, getpid(), attempt,
                                         target.extension().string().substr(0, kMaxStemBytes));
}

/// Makes the first free temporary name with `make` (0, or -1 and errno).
template <typename Make>
Result<fs::path> reserve(const fs::path& target, Make make) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const fs::path path = temporary_name(target, attempt, "partial");
    if (make(path) == 0) {
      return path;
    }
    if (errno != EEXIST) {
      return system_failure(target, "cannot write into its folder", errno);
    }
  }
  return fail(ErrorCode::kIo, fmt::format("{}: {} temporary files lie beside it already",
                                          target.string(), kMaxAttempts));
}

tl::unexpected<Error> already_exists(const fs::path& target) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: exists already; not replaced without the overwrite option",
                          target.string()));
}

}  // namespace

bool is_frame_folder_entry(const fs::path& name) {
  const std::string text = name.string();
  if (text == "audio.wav" || text == "metadata.json") {
    return true;
  }
  const std::string digits = name.stem().string();
  return name.extension() == ".png" && !digits.empty() &&
         digits.find_first_not_of("0123456789") == std::string::npos;
}

Status sync_to_disk(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return system_failure(path, "cannot be opened", errno);
  }
  const int status = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // EINVAL: a file system without fsync (some network and FUSE mounts); nothing more can be done.
  if (status != 0 && error != EINVAL) {
    return system_failure(path, "cannot be synced to disk", error);
  }
  return {};
}

Result<PartialOutput> PartialOutput::create_file(const fs::path& target, ExistingOutput existing) {
  std::error_code ignored;
  if (fs::exists(target, ignored)) {
    if (!fs::is_regular_file(target, ignored)) {  // renaming over a device or folder would harm
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: exists and is not a regular file", target.string()));
    }
    if (existing == ExistingOutput::kRefuse) {
      return already_exists(target);
    }
  }
  const auto make = [](const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return descriptor < 0 ? -1 : ::close(descriptor);
  };
  MINIACC_ASSIGN(fs::path path, reserve(target, make));
  return PartialOutput(std::move(path), target, existing);
}

Result<PartialOutput> PartialOutput::create_folder(const fs::path& target,
                                                   ExistingOutput existing) {
  std::error_code error;
  if (fs::exists(target, error)) {
    if (!fs::is_directory(target, error)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: exists and is not a folder", target.string()));
    }
    const bool is_empty = fs::is_empty(target, error);
    if (!error && !is_empty && existing == ExistingOutput::kRefuse) {
      return already_exists(target);
    }
    for (fs::directory_iterator entry(target, error), end; !error && entry != end;
         entry.increment(error)) {
      if (!is_frame_folder_entry(entry->path().filename()) || !entry->is_regular_file(error)) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}: holds {}, which is not a frame; such a folder is not replaced",
                                target.string(), entry->path().filename().string()));
      }
    }
    if (error) {
      return system_failure(target, "cannot be listed", error.value());
    }
  }
  MINIACC_ASSIGN(fs::path path,
                 reserve(target, [](const fs::path& name) { return ::mkdir(name.c_str(), 0777); }));
  return PartialOutput(std::move(path), target, existing);
}

PartialOutput::PartialOutput(PartialOutput&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      target_(std::move(other.target_)),
      existing_(other.existing_) {}

PartialOutput& PartialOutput::operator=(PartialOutput&& other) noexcept {
  if (this != &other) {
    remove();
    path_ = std::exchange(other.path_, {});
    target_ = std::move(other.target_);
    existing_ = other.existing_;
  }
  return *this;
}

PartialOutput::~PartialOutput() { remove(); }

void PartialOutput::remove() noexcept {
  if (!path_.empty()) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    path_.clear();
  }
}

/// Renames a non-empty folder that is to be replaced; rename() replaces files and empty folders.
Status PartialOutput::set_old_folder_aside(fs::path& aside) const {
  std::error_code ignored;
  if (existing_ != ExistingOutput::kReplace || !fs::is_directory(target_, ignored) ||
      fs::is_empty(target_, ignored)) {
    return {};
  }
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const fs::path name = temporary_name(target_, attempt, "old");
    if (fs::exists(name, ignored)) {
      continue;
    }
    if (std::rename(target_.c_str(), name.c_str()) != 0) {
      return system_failure(target_, "cannot be replaced", errno);
    }
    aside = name;
    return {};
  }
  return already_exists(target_);
}

Status PartialOutput::commit() {
  MINIACC_REQUIRE(!path_.empty(), "partial output: commit() once");
  MINIACC_RETURN_IF_ERROR(sync_to_disk(path_));
  fs::path aside;
  MINIACC_RETURN_IF_ERROR(set_old_folder_aside(aside));
  int status = 0;
  std::error_code ignored;
  const bool is_file = !fs::is_directory(path_, ignored);
  if (is_file && existing_ == ExistingOutput::kRefuse) {
    status = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
    if (status != 0 && (errno == EINVAL || errno == ENOSYS)) {  // not on every file system
      if (fs::exists(target_, ignored)) {
        return already_exists(target_);
      }
      status = std::rename(path_.c_str(), target_.c_str());
    }
  } else {
    status = std::rename(path_.c_str(), target_.c_str());
  }
  if (status != 0) {
    const int error = errno;
    if (!aside.empty()) {
      fs::rename(aside, target_, ignored);
    }
    if (error == EEXIST || error == ENOTEMPTY) {
      return already_exists(target_);
    }
    return system_failure(target_, "cannot be renamed into place", error);
  }
  path_.clear();
  if (!aside.empty()) {
    fs::remove_all(aside, ignored);
  }
  return sync_to_disk(folder_of(target_));
}

}  // namespace miniacc
