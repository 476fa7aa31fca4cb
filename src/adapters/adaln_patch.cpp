#include "adapters/adaln_patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "adapters/adapter_names.h"
#include "io/dequantize.h"
#include "io/tensor_file.h"
#include "io/tensor_writer.h"

namespace miniacc {
namespace {

constexpr std::string_view kPrefix = "diffusion_model.";

/// A tensor to be written: its bytes when asked for.
struct Piece {
  TensorSpec spec;
  std::function<Result<std::vector<std::byte>>()> make;
};

std::vector<std::byte> bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

Piece as_stored(const TensorFile& file, const TensorEntry& entry) {
  return {{entry.name, entry.dtype, entry.shape},
          [&file, &entry]() -> Result<std::vector<std::byte>> {
            MINIACC_ASSIGN(const auto bytes, file.bytes(entry));
            return std::vector<std::byte>(bytes.begin(), bytes.end());
          }};
}

Piece from_values(std::string name, const Shape& shape, std::vector<float> values) {
  return {{std::move(name), DType::kF32, shape},
          [values = std::move(values)]() -> Result<std::vector<std::byte>> {
            return bytes_of(values);
          }};
}

Status write(const std::filesystem::path& out, const std::vector<Piece>& pieces,
             const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  specs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    specs.push_back(piece.spec);
  }
  MINIACC_ASSIGN(const auto writer, create_safetensors(out, specs, metadata));
  for (const Piece& piece : pieces) {
    MINIACC_ASSIGN(const auto bytes, piece.make());
    MINIACC_RETURN_IF_ERROR(writer->append(bytes));
  }
  return writer->finish();
}

Result<std::vector<float>> values_of(const TensorFile& file, const TensorEntry& entry) {
  MINIACC_ASSIGN(const auto bytes, file.bytes(entry));
  std::vector<float> values(static_cast<std::size_t>(entry.shape.num_elements()));
  dequantize(entry.dtype, bytes, entry.shape.num_elements(), values.data());
  return values;
}

bool is_adaln(const std::string& module) { return module.find("adaln_proj") != std::string::npos; }

class Lifter {
 public:
  Lifter(TensorFile file, const WidthLift& lift) : file_(std::move(file)), lift_(lift) {}

  Result<LiftReport> run(const std::filesystem::path& out) {
    for (const TensorEntry& entry : file_.entries()) {
      MINIACC_RETURN_IF_ERROR(add(entry));
    }
    if (report_.num_lifted == 0) {
      return refuse("has no AdaLN changes of the pruned width, so there is nothing to lift");
    }
    std::map<std::string, std::string> metadata = file_.metadata();
    metadata["lifted_by"] = "miniacc adaln lift";
    MINIACC_RETURN_IF_ERROR(write(out, pieces_, metadata));
    return report_;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> refuse(const std::string& what) const {
    return fail(ErrorCode::kInvalidInput, fmt::format("{}: {}", file_.path().string(), what));
  }

  Status add(const TensorEntry& entry) {
    const auto name = parse_adapter_name(entry.name);
    if (!name) {
      return refuse(entry.name + ": unknown module or suffix");
    }
    if (name->module.starts_with("time_embedder.") || name->role == AdapterRole::kReplacement ||
        name->role == AdapterRole::kUnsupported) {
      return refuse(entry.name + " is no change that a pruned transformer can have been given");
    }
    if (!is_adaln(name->module) || name->role == AdapterRole::kUp ||
        name->role == AdapterRole::kAlpha ||
        (name->role == AdapterRole::kDiffBias && lift_.c.empty())) {
      pieces_.push_back(as_stored(file_, entry));
      ++report_.num_kept;
      return {};
    }
    if (name->role == AdapterRole::kDiffBias) {
      return lift_bias(entry);
    }
    if (entry.shape.rank() != 2 || entry.shape[1] != lift_.rank) {
      return refuse(fmt::format("{} is {}, wanted {} columns, as the pruned table has", entry.name,
                                entry.shape.to_string(), lift_.rank));
    }
    ++report_.num_lifted;
    if (name->role == AdapterRole::kDown) {
      if (!lift_.c.empty()) {
        return refuse(entry.name +
                      ": this table needs a constant, which a low-rank pair cannot carry; merge "
                      "the pair into a .diff first");
      }
      pieces_.push_back({{entry.name, DType::kF32, {entry.shape[0], lift_.width}},
                         [this, &entry]() -> Result<std::vector<std::byte>> {
                           MINIACC_ASSIGN(const auto narrow, values_of(file_, entry));
                           return wide_bytes(narrow, entry.shape[0]);
                         }});
      return {};
    }
    return lift_dense(entry);
  }

  /// [rows, width] f32 of values [rows, rank] times q, as bytes: at full size there is no room for
  /// a second copy.
  [[nodiscard]] std::vector<std::byte> wide_bytes(const std::vector<float>& values,
                                                  std::int64_t rows) const {
    const auto row_bytes = static_cast<std::size_t>(lift_.width) * sizeof(float);
    std::vector<std::byte> out(static_cast<std::size_t>(rows) * row_bytes);
    std::vector<double> sums(static_cast<std::size_t>(lift_.width));
    std::vector<float> row(sums.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::int64_t k = 0; k < lift_.rank; ++k) {
        const double factor = values[static_cast<std::size_t>(r * lift_.rank + k)];
        for (std::int64_t c = 0; c < lift_.width; ++c) {
          sums[static_cast<std::size_t>(c)] +=
              factor * lift_.q[static_cast<std::size_t>(k * lift_.width + c)];
        }
      }
      std::copy(sums.begin(), sums.end(), row.begin());
      std::memcpy(out.data() + static_cast<std::size_t>(r) * row_bytes, row.data(), row_bytes);
    }
    return out;
  }

  /// A pair where it can be one; a reader takes no bias beside a pair, so that a change with a bias
  /// stays dense.
  [[nodiscard]] Status lift_dense(const TensorEntry& entry) {
    const std::string stem = entry.name.substr(0, entry.name.rfind('.'));
    if (file_.find(stem + ".lora_A.weight") != nullptr) {
      return refuse(entry.name + " lies beside a low-rank pair");
    }
    const bool has_bias = file_.find(stem + ".diff_b") != nullptr;
    if (has_bias || !lift_.c.empty()) {
      pieces_.push_back({{entry.name, DType::kF32, {entry.shape[0], lift_.width}},
                         [this, &entry]() -> Result<std::vector<std::byte>> {
                           MINIACC_ASSIGN(const auto narrow, values_of(file_, entry));
                           return wide_bytes(narrow, entry.shape[0]);
                         }});
      if (!has_bias) {
        MINIACC_ASSIGN(const auto weight, values_of(file_, entry));
        std::vector<float> bias(static_cast<std::size_t>(entry.shape[0]));
        add_constant(weight, bias);
        pieces_.push_back(from_values(stem + ".diff_b", {entry.shape[0]}, std::move(bias)));
      }
      return {};
    }
    for (const char* key : {"alpha", "lora_alpha"}) {
      if (file_.metadata().contains(key)) {
        return refuse(
            fmt::format("its metadata give an {} for every pair, and {} becomes one; "
                        "rewrite it with lora convert first",
                        key, entry.name));
      }
    }
    pieces_.push_back(from_values(stem + ".lora_A.weight", {lift_.rank, lift_.width},
                                  {lift_.q.begin(), lift_.q.end()}));
    Piece up = as_stored(file_, entry);
    up.spec.name = stem + ".lora_B.weight";
    pieces_.push_back(std::move(up));
    return {};
  }

  /// bias += weight · c.
  void add_constant(const std::vector<float>& weight, std::vector<float>& bias) const {
    for (std::size_t r = 0; r < bias.size(); ++r) {
      double sum = bias[r];
      for (std::size_t k = 0; k < lift_.c.size(); ++k) {
        sum += static_cast<double>(weight[r * lift_.c.size() + k]) * lift_.c[k];
      }
      bias[r] = static_cast<float>(sum);
    }
  }

  [[nodiscard]] Status lift_bias(const TensorEntry& entry) {
    const std::string stem = entry.name.substr(0, entry.name.rfind('.'));
    MINIACC_ASSIGN(std::vector<float> bias, values_of(file_, entry));
    const TensorEntry* dense = file_.find(stem + ".diff");
    if (dense != nullptr && dense->shape.rank() == 2 && dense->shape[1] == lift_.rank &&
        dense->shape[0] == entry.shape.num_elements()) {
      MINIACC_ASSIGN(const std::vector<float> weight, values_of(file_, *dense));
      add_constant(weight, bias);
    }
    pieces_.push_back(from_values(entry.name, entry.shape, std::move(bias)));
    return {};
  }

  TensorFile file_;
  const WidthLift& lift_;
  std::vector<Piece> pieces_;
  LiftReport report_;
};

}  // namespace

Status write_dense_patch(const std::filesystem::path& out, const std::vector<DensePatch>& patches,
                         const std::filesystem::path& merge_into,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<Piece> pieces;
  std::optional<TensorFile> other;
  std::map<std::string, std::string> all = metadata;
  if (!merge_into.empty()) {
    MINIACC_ASSIGN(other, TensorFile::open(merge_into));
    all.insert(other->metadata().begin(), other->metadata().end());
    for (const TensorEntry& entry : other->entries()) {
      if (!entry.name.starts_with(kPrefix)) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{}: {} does not begin with {}; lora convert --to comfy rewrites "
                                "an adapter so",
                                merge_into.string(), entry.name, kPrefix));
      }
      pieces.push_back(as_stored(*other, entry));
    }
  }
  for (const DensePatch& patch : patches) {
    const std::string stem = std::string(kPrefix) + patch.module;
    for (const char* suffix : {".diff", ".diff_b", ".lora_A.weight"}) {
      if (other && other->find(stem + suffix) != nullptr) {
        return fail(ErrorCode::kInvalidInput,
                    fmt::format("{}: has {} already, which the patch changes too",
                                merge_into.string(), stem + suffix));
      }
    }
    const auto rows = static_cast<std::int64_t>(patch.bias.size());
    const auto columns =
        static_cast<std::int64_t>(patch.weight.size()) / std::max<std::int64_t>(1, rows);
    // Spans, not copies: the patches of a full-size model are 180 MB.
    pieces.push_back(
        {{stem + ".diff", DType::kF32, {rows, columns}},
         [weight = patch.weight]() -> Result<std::vector<std::byte>> { return bytes_of(weight); }});
    pieces.push_back(
        {{stem + ".diff_b", DType::kF32, {rows}},
         [bias = patch.bias]() -> Result<std::vector<std::byte>> { return bytes_of(bias); }});
  }
  return write(out, pieces, all);
}

Result<LiftReport> lift_adapter(const std::filesystem::path& in, const std::filesystem::path& out,
                                const WidthLift& lift) {
  MINIACC_ASSIGN(TensorFile file, TensorFile::open(in));
  return Lifter(std::move(file), lift).run(out);
}

}  // namespace miniacc
