#include <string>

#include "fuzz/tensor_file_fuzz.h"

// The magic is put in front, so that no run is spent on other containers.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const miniacc::fuzz::MemoryFile file;
  std::string bytes = "GGUF";
  bytes.append(reinterpret_cast<const char*>(data), size);
  file.set(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  miniacc::fuzz::open_and_check(file);
  return 0;
}
