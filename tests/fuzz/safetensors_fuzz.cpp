#include "fuzz/tensor_file_fuzz.h"

// Safetensors files and index files; what the input is, the reader decides.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const miniacc::fuzz::MemoryFile file;
  file.set(data, size);
  miniacc::fuzz::open_and_check(file);
  return 0;
}
