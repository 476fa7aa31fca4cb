#include "checkpoint/edit_file.h"

#include <gtest/gtest.h>

#include "checkpoint/open_component.h"
#include "io/dequantize.h"
#include "io/tensor_file.h"
#include "io/tensor_writer.h"

namespace miniacc::testing {

EditableFile EditableFile::read(const std::filesystem::path& path) {
  EditableFile result;
  const auto file = TensorFile::open(component_file(path).value());
  EXPECT_TRUE(file) << file.error().message;
  for (const TensorEntry& entry : file->entries()) {
    const auto bytes = file->bytes(entry).value();
    result.tensors[entry.name] = {entry.dtype, entry.shape, {bytes.begin(), bytes.end()}};
  }
  result.metadata = file->metadata();
  return result;
}

void EditableFile::write(const std::filesystem::path& path) const {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) {
    specs.push_back({name, tensor.dtype, tensor.shape});
  }
  auto writer = create_safetensors(path, specs, metadata);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE((*writer)->append(tensor.bytes)) << name;
  }
  ASSERT_TRUE((*writer)->finish());
}

void EditableFile::rename(const std::string& from, const std::string& to) {
  auto node = tensors.extract(from);
  ASSERT_FALSE(node.empty()) << from;
  node.key() = to;
  tensors.insert(std::move(node));
}

void EditableFile::add_prefix(const std::string& prefix) {
  std::map<std::string, EditableTensor> renamed;
  for (auto& [name, tensor] : tensors) {
    renamed[prefix + name] = std::move(tensor);
  }
  tensors = std::move(renamed);
}

void EditableFile::set_f32(const std::string& name, const Shape& shape,
                           const std::vector<float>& values) {
  EditableTensor tensor{DType::kF32, shape, std::vector<std::byte>(values.size() * sizeof(float))};
  quantize(DType::kF32, values, tensor.bytes);
  tensors[name] = std::move(tensor);
}

std::vector<float> EditableFile::f32(const std::string& name) const {
  const EditableTensor& tensor = tensors.at(name);
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.num_elements()));
  dequantize(tensor.dtype, tensor.bytes, tensor.shape.num_elements(), values.data());
  return values;
}

}  // namespace miniacc::testing
