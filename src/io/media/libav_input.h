#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "io/media/input_file.h"
#include "io/media/libav.h"

namespace miniacc::libav {

/// Containers by FFmpeg's names of their demuxers. None of them opens what a file names.
inline constexpr const char* kClipFormats = "mov,matroska,avi";
inline constexpr const char* kSoundFormats = "mov,matroska,avi,wav,flac,mp3,ogg,aac";
inline constexpr const char* kAllFormats = "mov,matroska,wav,avi,png_pipe,flac,mp3,ogg";

/// A demuxer over one open file. The file is the only one that it can reach, its name plays no
/// part in finding the format. Move-only.
class MediaInput {
 public:
  MediaInput() = default;
  MediaInput(MediaInput&&) noexcept = default;
  MediaInput& operator=(MediaInput&& other) noexcept;
  MediaInput(const MediaInput&) = delete;
  MediaInput& operator=(const MediaInput&) = delete;
  ~MediaInput() = default;

  /// Recognises the container among `formats` and reads its stream headers; the file is one of
  /// `wanted` ("a clip") in the sentence of a refusal.
  [[nodiscard]] static Result<MediaInput> open(InputFile file, const char* formats,
                                               std::string_view wanted);

  [[nodiscard]] AVFormatContext* get() const { return context_.get(); }
  AVFormatContext* operator->() const { return context_.get(); }
  AVFormatContext& operator*() const { return *context_; }
  [[nodiscard]] const InputFile& file() const { return source_->file; }
  [[nodiscard]] std::string path() const { return file().path().string(); }

  /// kInvalidInput where the container's own sizes reach behind the end of the file.
  [[nodiscard]] Status check_complete() const;

 private:
  /// Where libav is in the file.
  struct Source {
    InputFile file;
    std::int64_t position = 0;
  };
  static int read_packet(void* opaque, std::uint8_t* buffer, int size);
  static std::int64_t seek(void* opaque, std::int64_t offset, int whence);

  // In this order: each uses the one before it.
  std::unique_ptr<Source> source_;
  Io io_;
  Input context_;
};

/// A media file of any of the common containers.
[[nodiscard]] Result<MediaInput> open_input(const std::filesystem::path& path);

}  // namespace miniacc::libav
