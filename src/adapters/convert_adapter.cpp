#include "adapters/convert_adapter.h"

#include <fmt/format.h>

#include "adapters/adapter_converter.h"
#include "io/sha256.h"

namespace miniacc {

Result<AdapterConversion> convert_adapter(const std::filesystem::path& in,
                                          const std::filesystem::path& out,
                                          const ConvertAdapterOptions& options) {
  MINIACC_ASSIGN(TensorFile file, TensorFile::open(in));
  MINIACC_ASSIGN(std::string digest, sha256_of_file(in));
  AdapterConverter converter(std::move(file), options);
  converter.report().sha256 = std::move(digest);
  MINIACC_RETURN_IF_ERROR(converter.prepare());
  if (converter.report().problems.empty() && !out.empty()) {
    MINIACC_RETURN_IF_ERROR(converter.write(out));
  }
  return std::move(converter.report());
}

}  // namespace miniacc
