#include "support/golden.h"

#include <cstring>
#include <stdexcept>

#include "io/dequantize.h"

namespace miniacc::testing {
namespace {

TensorFile open_or_throw(const std::filesystem::path& path) {
  auto file = TensorFile::open(path);
  if (!file) {
    throw std::runtime_error(file.error().message);
  }
  return *std::move(file);
}

}  // namespace

std::filesystem::path test_data(const std::string& relative) {
  return std::filesystem::path(MINIACC_TEST_DATA) / relative;
}

Golden::Golden(const std::string& relative) : file_(open_or_throw(test_data(relative))) {}

const TensorEntry& Golden::entry(const std::string& name) const {
  const TensorEntry* found = file_.find(name);
  if (found == nullptr) {
    throw std::runtime_error("no golden tensor " + name + " in " + file_.path().string());
  }
  return *found;
}

std::vector<float> Golden::floats(const std::string& name) const {
  const TensorEntry& found = entry(name);
  std::vector<float> values(static_cast<std::size_t>(found.shape.num_elements()));
  dequantize(found.dtype, file_.bytes(found).value(), found.shape.num_elements(), values.data());
  return values;
}

template <typename T>
std::vector<T> Golden::raw(const std::string& name, DType dtype) const {
  const TensorEntry& found = entry(name);
  if (found.dtype != dtype) {
    throw std::runtime_error("golden tensor " + name + " has another dtype");
  }
  std::vector<T> values(static_cast<std::size_t>(found.shape.num_elements()));
  std::memcpy(values.data(), file_.bytes(found).value().data(), found.size_bytes);
  return values;
}

std::vector<double> Golden::doubles(const std::string& name) const {
  return raw<double>(name, DType::kF64);
}
std::vector<std::int64_t> Golden::integers(const std::string& name) const {
  return raw<std::int64_t>(name, DType::kI64);
}
std::vector<std::uint8_t> Golden::bytes(const std::string& name) const {
  return raw<std::uint8_t>(name, DType::kU8);
}

}  // namespace miniacc::testing
