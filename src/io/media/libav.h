#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/error.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswscale/swscale.h>
}

/// Ownership and errors of FFmpeg's libraries. Included by the .cpp files of src/io/media only.
namespace miniacc::libav {

struct FreeOutput {  ///< a muxer, with the file it may have open
  void operator()(AVFormatContext* context) const noexcept;
};
struct CloseInput {
  void operator()(AVFormatContext* context) const noexcept;
};
struct FreeIo {
  void operator()(AVIOContext* context) const noexcept;
};
struct FreeCodec {
  void operator()(AVCodecContext* context) const noexcept;
};
struct FreeFrame {
  void operator()(AVFrame* frame) const noexcept;
};
struct FreePacket {
  void operator()(AVPacket* packet) const noexcept;
};
struct FreeScaler {
  void operator()(SwsContext* context) const noexcept;
};

using Output = std::unique_ptr<AVFormatContext, FreeOutput>;
using Input = std::unique_ptr<AVFormatContext, CloseInput>;
using Io = std::unique_ptr<AVIOContext, FreeIo>;
using Codec = std::unique_ptr<AVCodecContext, FreeCodec>;
using Frame = std::unique_ptr<AVFrame, FreeFrame>;
using Packet = std::unique_ptr<AVPacket, FreePacket>;
using Scaler = std::unique_ptr<SwsContext, FreeScaler>;

/// Key/value options for one call; what the callee did not know is left in it.
class Options {
 public:
  Options() = default;
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  ~Options();
  void set(const char* key, const std::string& value);
  AVDictionary** get() { return &dictionary_; }
  /// kInternal when a callee did not take every option (a misspelt name would be silent otherwise).
  [[nodiscard]] Status check_all_used(const std::string& what) const;

 private:
  AVDictionary* dictionary_ = nullptr;
};

/// Throws ErrorException(kOutOfMemory) when libav has no memory for an object this small.
Frame make_frame();
Packet make_packet();

/// "<what>: <libav's text>" with the ErrorCode that fits; `status` is a negative AVERROR.
[[nodiscard]] tl::unexpected<Error> failure(int status, const std::string& what);
/// A Status of a call that returns an AVERROR.
[[nodiscard]] Status check(int status, const std::string& what);

/// "file:<path>", so that no part of a path is read as another protocol.
std::string file_url(const std::filesystem::path& path);

/// FFmpeg prints to stderr by default. The level is a variable of the whole process (there is no
/// other way); each entry point of this folder sets it to "fatal". What goes wrong is in the
/// Result.
void quiet();

/// RGB24 to or from another format of the same size. YUV sides are BT.709 (or `colorspace`, an
/// SWS_CS_* value), limited range unless `full_range`; rounding is exact and the same on each
/// machine. Chroma is sited as H.264 defaults to: left, vertically between two rows (ITU-T H.264
/// figure E-1, type 0), unless told otherwise in 1/256 of a luma pixel.
struct Conversion {
  int width = 0;
  int height = 0;
  AVPixelFormat from = AV_PIX_FMT_NONE;
  AVPixelFormat to = AV_PIX_FMT_NONE;
  int colorspace = SWS_CS_ITU709;
  bool full_range = false;
  int chroma_x = 0;
  int chroma_y = 128;
  bool operator==(const Conversion&) const = default;
};
[[nodiscard]] Result<Scaler> make_scaler(const Conversion& conversion);

}  // namespace miniacc::libav
