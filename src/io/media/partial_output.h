#pragma once

#include <filesystem>

#include "core/error.h"

namespace miniacc {

enum class ExistingOutput { kRefuse, kReplace };

/// Output that appears under its final name only when it is complete. Data goes to a hidden name in
/// the same folder (`.clip.partial-<pid>-<n>.mp4`); commit() syncs and renames it; an object
/// destroyed before commit() removes it. Move-only.
class PartialOutput {
 public:
  /// Reserves the temporary name with an empty file. kInvalidArgument when `target` exists (and may
  /// not be replaced) or is no regular file, kNotFound when its folder is missing, kIo when the
  /// folder cannot be written.
  [[nodiscard]] static Result<PartialOutput> create_file(const std::filesystem::path& target,
                                                         ExistingOutput existing);
  /// The same for a folder. An existing empty folder is filled; another one is replaced only if
  /// every entry is a file such as PngFolderWriter makes, never a folder of the user's own.
  [[nodiscard]] static Result<PartialOutput> create_folder(const std::filesystem::path& target,
                                                           ExistingOutput existing);

  PartialOutput(PartialOutput&& other) noexcept;
  PartialOutput& operator=(PartialOutput&& other) noexcept;
  PartialOutput(const PartialOutput&) = delete;
  PartialOutput& operator=(const PartialOutput&) = delete;
  ~PartialOutput();

  /// Where to write until commit().
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }

  /// Syncs to disk and renames; kInvalidArgument when another program made the target meanwhile.
  [[nodiscard]] Status commit();

 private:
  PartialOutput(std::filesystem::path path, std::filesystem::path target, ExistingOutput existing)
      : path_(std::move(path)), target_(std::move(target)), existing_(existing) {}
  void remove() noexcept;
  Status set_old_folder_aside(std::filesystem::path& aside) const;

  std::filesystem::path path_;  // empty once committed or moved from
  std::filesystem::path target_;
  ExistingOutput existing_ = ExistingOutput::kRefuse;
};

/// True for the names that a frame folder consists of: digits with ".png", audio.wav,
/// metadata.json.
bool is_frame_folder_entry(const std::filesystem::path& name);

/// fsync of a file or folder by name.
[[nodiscard]] Status sync_to_disk(const std::filesystem::path& path);

}  // namespace miniacc
