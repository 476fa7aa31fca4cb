#include "io/media/picture_writer.h"

#include <fmt/format.h>

#include "io/media/file_sink.h"
#include "io/media/png_encoder.h"

namespace miniacc {

Status write_picture(const RgbImage& image, const std::filesystem::path& path,
                     ExistingOutput existing) {
  if (path.extension() != ".png") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: a picture is written as .png", path.string()));
  }
  MINIACC_ASSIGN(PartialOutput output, PartialOutput::create_file(path, existing));
  MINIACC_ASSIGN(PngEncoder encoder, PngEncoder::create(image.width, image.height, path.string()));
  MINIACC_ASSIGN(const std::string_view bytes, encoder.encode(image.pixels));
  MINIACC_ASSIGN(FileSink sink, FileSink::create(output.path()));
  MINIACC_RETURN_IF_ERROR(sink.write(bytes));
  MINIACC_RETURN_IF_ERROR(sink.close());
  return output.commit();
}

}  // namespace miniacc
