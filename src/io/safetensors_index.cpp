#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "io/file_content.h"
#include "io/safetensors.h"

namespace miniacc {
namespace {

/// Reads {"metadata": anything, "weight_map": {tensor: shard}, ...} from JSON events, so that
/// duplicate names are seen; what is not weight_map is skipped.
class IndexReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using WeightMap = std::map<std::string, std::string>;

  explicit IndexReader(const std::filesystem::path& path) : path_(path) {}

  [[nodiscard]] Result<WeightMap> finish() {
    if (!error_ && !has_weight_map_) {
      reject("has no weight_map, so it is not a safetensors index");
    }
    if (!error_ && weight_map_.empty()) {
      reject("weight_map is empty");
    }
    if (error_) {
      return fail(ErrorCode::kInvalidInput, fmt::format("{}: {}", path_.string(), *error_));
    }
    return std::move(weight_map_);
  }

  bool null() override { return value(); }
  bool boolean(bool /*value*/) override { return value(); }
  bool number_integer(number_integer_t /*value*/) override { return value(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return value(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return value(); }
  bool binary(binary_t& /*value*/) override { return value(); }
  bool string(string_t& text) override {
    if (!in_weight_map_ || depth_ != 2) {
      return value();
    }
    if (const auto problem = shard_problem(text)) {
      return reject(fmt::format("weight_map sends tensor {} to shard '{}', which {}",
                                printable(name_), printable(text), *problem));
    }
    weight_map_[name_] = text;
    return true;
  }

  bool start_object(std::size_t /*size*/) override {
    if (depth_ == 1 && in_weight_map_) {
      ++depth_;
      return true;
    }
    return open();
  }
  bool start_array(std::size_t /*size*/) override {
    if (depth_ == 0) {
      return reject("is a JSON array, wanted a safetensors index");
    }
    return open();
  }
  bool end_object() override { return shut(); }
  bool end_array() override { return shut(); }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      in_weight_map_ = key == "weight_map";
      if (in_weight_map_ && std::exchange(has_weight_map_, true)) {
        return reject("has weight_map twice");
      }
      return true;
    }
    if (!in_weight_map_) {
      return true;
    }
    if (const auto problem = tensor_name_problem(key)) {
      return reject(fmt::format("tensor name '{}' {}", printable(key), *problem));
    }
    if (weight_map_.contains(key)) {
      return reject(fmt::format("weight_map has tensor {} twice", printable(key)));
    }
    name_ = key;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*exception*/) override {
    return reject(fmt::format("is not valid JSON at byte {}", position));
  }

 private:
  /// Why a shard name is refused: it must stay inside the index file's folder. (A link inside the
  /// folder may point elsewhere: download caches are built that way.)
  [[nodiscard]] static std::optional<std::string> shard_problem(const std::string& shard) {
    if (const auto problem = tensor_name_problem(shard)) {
      return problem;
    }
    const std::filesystem::path path(shard);
    if (path.is_absolute()) {
      return "is an absolute path";
    }
    if (std::find(path.begin(), path.end(), "..") != path.end()) {
      return "leaves the folder";
    }
    return std::nullopt;
  }

  bool reject(std::string message) {
    error_ = std::move(message);
    return false;
  }
  bool value() {
    if (depth_ == 0) {
      return reject("is a JSON value, wanted a safetensors index");
    }
    return in_weight_map_ ? not_a_map() : true;
  }
  bool open() {
    if (in_weight_map_) {
      return not_a_map();
    }
    ++depth_;
    return true;
  }
  bool shut() {
    --depth_;
    return true;
  }
  bool not_a_map() {
    return reject(depth_ == 1 ? "weight_map is not an object"
                              : fmt::format("weight_map gives no shard name for tensor {}",
                                            printable(name_)));
  }

  const std::filesystem::path& path_;
  std::optional<std::string> error_;
  std::size_t depth_ = 0;
  bool has_weight_map_ = false;
  bool in_weight_map_ = false;
  std::string name_;
  WeightMap weight_map_;
};

/// Every tensor of the shard is listed under this shard.
Status check_listed(const std::filesystem::path& index, const IndexReader::WeightMap& weight_map,
                    const std::string& shard, const TensorFileHeader& header) {
  for (const TensorEntry& entry : header.entries) {
    const auto listed = weight_map.find(entry.name);
    if (listed == weight_map.end()) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: weight_map does not list tensor {} of shard {}", index.string(),
                              entry.name, shard));
    }
    if (listed->second != shard) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: weight_map sends tensor {} to {}, but {} holds one too",
                              index.string(), entry.name, listed->second, shard));
    }
  }
  return {};
}

/// Names a tensor that is listed under this shard and not in it.
Status report_absent(const std::filesystem::path& index, const IndexReader::WeightMap& weight_map,
                     const std::string& shard, const TensorFileHeader& header) {
  std::set<std::string_view> present;
  for (const TensorEntry& entry : header.entries) {
    present.insert(entry.name);
  }
  for (const auto& [name, place] : weight_map) {
    if (place == shard && !present.contains(name)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: weight_map lists tensor {} in {}, which lacks it",
                              index.string(), name, shard));
    }
  }
  return {};
}

}  // namespace

Result<TensorFile> open_safetensors_index(const MappedFile& index) {
  const std::span<const std::byte> bytes = index.bytes();
  if (bytes.size() > kMaxHeaderBytes) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: is {} bytes long, an index may have at most {}",
                            index.path().string(), bytes.size(), kMaxHeaderBytes));
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  IndexReader reader(index.path());
  // False when the reader has an error, which finish() returns.
  static_cast<void>(nlohmann::json::sax_parse(text, text + bytes.size(), &reader));
  MINIACC_ASSIGN(const IndexReader::WeightMap weight_map, reader.finish());

  std::map<std::string, std::size_t> listed_tensors;  // by shard
  for (const auto& [name, shard] : weight_map) {
    ++listed_tensors[shard];
  }
  TensorFileBuilder builder(ContainerFormat::kSafetensors, index.path());
  for (const auto& [shard, count] : listed_tensors) {
    const std::filesystem::path path = index.path().parent_path() / shard;
    auto file = MappedFile::open(path);
    if (!file && file.error().code == ErrorCode::kNotFound) {
      return fail(ErrorCode::kNotFound,
                  fmt::format("{}: shard {} with {} tensors is missing (an incomplete download?)",
                              index.path().string(), shard, count));
    }
    MINIACC_ASSIGN(MappedFile mapped, std::move(file));
    MINIACC_ASSIGN(const FileContent content, recognise_content(mapped));
    if (content != FileContent::kSafetensors) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: is not a safetensors file, but {} lists it as a shard",
                              path.string(), index.path().string()));
    }
    MINIACC_ASSIGN(TensorFileHeader header, read_safetensors_header(mapped));
    MINIACC_RETURN_IF_ERROR(check_listed(index.path(), weight_map, shard, header));
    if (header.entries.size() != count) {
      MINIACC_RETURN_IF_ERROR(report_absent(index.path(), weight_map, shard, header));
    }
    builder.add(std::move(mapped), std::move(header));
  }
  return std::move(builder).finish();
}

}  // namespace miniacc
