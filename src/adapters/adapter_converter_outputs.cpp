#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "adapters/adapter_converter.h"
#include "core/float_convert.h"
#include "io/dequantize.h"

namespace miniacc {
namespace {

constexpr std::int64_t kReleasedHeadDim = 128;  // spec model.md §1
constexpr std::array kMatrixRoles = {AdapterRole::kDiff, AdapterRole::kDiffBias};

std::string_view suffix_of(AdapterRole role) {
  switch (role) {
    case AdapterRole::kDown:
      return ".lora_A.weight";
    case AdapterRole::kUp:
      return ".lora_B.weight";
    case AdapterRole::kAlpha:
      return ".alpha";
    case AdapterRole::kDiff:
      return ".diff";
    default:
      return ".diff_b";
  }
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

std::int64_t columns_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape.num_elements() / shape[0];
}

double read_value(DType dtype, const std::byte* bytes) {
  if (dtype == DType::kF64) {
    double value = 0.0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  float value = 0.0F;
  dequantize(dtype, {bytes, block_bytes(dtype)}, 1, &value);
  return value;
}

void write_value(DType dtype, double value, std::byte* bytes) {
  if (dtype == DType::kF64) {
    std::memcpy(bytes, &value, sizeof value);
    return;
  }
  const auto rounded = static_cast<float>(value);
  quantize(dtype, {&rounded, 1}, {bytes, block_bytes(dtype)});
}

Shape with_rows(Shape shape, std::int64_t rows) {
  shape.set(0, rows);
  return shape;
}

}  // namespace

std::int64_t AdapterConverter::head_dim(const Module& module) const {
  if (options_.model == nullptr) {
    return kReleasedHeadDim;
  }
  const std::string& name = module.name.module;
  const Shape* norm = model_shape(name.substr(0, name.size() - 8) + "q_norm.weight");
  return norm != nullptr && norm->num_elements() > 0 ? norm->num_elements() : kReleasedHeadDim;
}

AdapterConverter::Indices AdapterConverter::target_rows(const Module& module,
                                                        std::int64_t num_rows) const {
  const bool swaps = module.name.module.ends_with(".mlp.fc1") &&
                     module.name.value_first != (options_.to == AdapterTarget::kDiffusers);
  const bool interleaved = interleaved_qkv_ && module.name.module.ends_with(".qkv_proj");
  if (!swaps && !interleaved) {
    return {};
  }
  Indices rows = range(0, num_rows);
  if (swaps) {
    std::rotate(rows.begin(), rows.begin() + num_rows / 2, rows.end());
    return rows;
  }
  const std::int64_t width = head_dim(module);
  const std::int64_t inner = num_rows / 3;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t head = row % inner / width;
    rows[static_cast<std::size_t>(row)] = (3 * head + row / inner) * width + row % width;
  }
  return rows;
}

void AdapterConverter::push(const std::string& module, int part, AdapterRole role, DType dtype,
                            const Shape& shape, std::vector<Piece> pieces) {
  std::string name;
  if (options_.to == AdapterTarget::kComfy) {
    name = "diffusion_model." + module;
  } else {
    const auto theirs =
        diffusers_module_name(module, part < 0 ? std::nullopt : std::optional<int>(part));
    MINIACC_REQUIRE(theirs.has_value(), "adapter converter: a module without a diffusers name");
    name = (report_.base == "ref2va" ? "transformer_ref." : "transformer.") + *theirs;
  }
  name += suffix_of(role);
  outputs_.push_back({{name, dtype, shape}, adapter_key(module, part, role), std::move(pieces)});
}

void AdapterConverter::push_alpha(const std::string& module, int part, double scale,
                                  std::int64_t rank) {
  if (scale != 1.0) {
    push(module, part, AdapterRole::kAlpha, DType::kF32, Shape(), {});
    outputs_.back().value = scale * static_cast<double>(rank);
  }
}

Status AdapterConverter::plan_outputs() {
  const bool to_diffusers = options_.to == AdapterTarget::kDiffusers;
  for (const auto& [key, module] : modules_) {
    const bool fused = key.first.ends_with(".qkv_proj") && key.second < 0;
    if (key.second >= 0 && !to_diffusers) {
      if (key.second == 0) {
        plan_fused(key.first);
      }
    } else if (fused && to_diffusers) {
      MINIACC_RETURN_IF_ERROR(plan_split(module));
    } else {
      plan_same(module);
    }
  }
  return {};
}

/// One tensor in, one out, rows perhaps moved.
void AdapterConverter::plan_same(const Module& module) {
  for (const auto& [role, entry] : module.tensors) {
    if (role == AdapterRole::kAlpha) {
      continue;
    }
    Piece piece{entry};
    if (role != AdapterRole::kDown) {
      piece.rows = target_rows(module, entry->shape[0]);
    }
    push(module.name.module, module.part(), role, entry->dtype, entry->shape, {std::move(piece)});
  }
  if (const TensorEntry* down = module.find(AdapterRole::kDown); down != nullptr) {
    push_alpha(module.name.module, module.part(), module.scale, down->shape[0]);
  }
}

/// A = [A_q; A_k; A_v], B = diag(B_q, B_k, B_v). Source: spec adapters.md §3.
void AdapterConverter::plan_fused(const std::string& name) {
  std::array<const Module*, 3> parts{};
  for (int part = 0; part < 3; ++part) {
    parts[static_cast<std::size_t>(part)] = &modules_.at({name, part});
  }
  for (const AdapterRole role : kMatrixRoles) {
    const TensorEntry* first = parts[0]->find(role);
    if (first == nullptr) {
      continue;
    }
    std::vector<Piece> pieces;
    for (std::int64_t part = 0; part < 3; ++part) {
      Piece piece{parts[static_cast<std::size_t>(part)]->find(role)};
      piece.at_row = part * first->shape[0];
      pieces.push_back(std::move(piece));
    }
    push(name, -1, role, first->dtype, with_rows(first->shape, 3 * first->shape[0]),
         std::move(pieces));
  }
  const TensorEntry* first_down = parts[0]->find(AdapterRole::kDown);
  if (first_down == nullptr) {
    return;
  }
  const bool one_scale = parts[0]->scale == parts[1]->scale && parts[0]->scale == parts[2]->scale;
  std::vector<Piece> downs;
  std::vector<Piece> ups;
  std::int64_t rank = 0;
  std::int64_t rows = 0;
  for (const Module* part : parts) {
    Piece down{part->find(AdapterRole::kDown)};
    Piece up{part->find(AdapterRole::kUp)};
    down.at_row = rank;
    up.at_row = rows;
    up.at_column = rank;
    up.factor = one_scale ? 1.0 : part->scale;
    rank += down.entry->shape[0];
    rows += up.entry->shape[0];
    downs.push_back(std::move(down));
    ups.push_back(std::move(up));
  }
  if (!one_scale) {
    report_.notes.push_back(
        fmt::format("{}: q, k and v have the scales {:g}, {:g} and {:g}, which are multiplied into "
                    "their rows of B",
                    name, parts[0]->scale, parts[1]->scale, parts[2]->scale));
  }
  push(name, -1, AdapterRole::kDown, first_down->dtype, {rank, first_down->shape[1]},
       std::move(downs));
  const DType up_dtype = ups.front().entry->dtype;
  push(name, -1, AdapterRole::kUp, up_dtype, {rows, rank}, std::move(ups));
  push_alpha(name, -1, one_scale ? parts[0]->scale : 1.0, rank);
}

/// B cut in thirds; A copied, or the rows that the part uses.
Status AdapterConverter::plan_split(const Module& module) {
  const std::string& name = module.name.module;
  const TensorEntry* up = module.find(AdapterRole::kUp);
  std::array<Indices, 3> columns;
  if (up != nullptr) {
    MINIACC_ASSIGN(columns, compacted(*up, target_rows(module, up->shape[0])));
  }
  for (int part = 0; part < 3; ++part) {
    const auto part_rows = [&](const TensorEntry& entry) {
      const std::int64_t count = entry.shape[0] / 3;
      const Indices order = target_rows(module, entry.shape[0]);
      return order.empty()
                 ? range(part * count, count)
                 : Indices(order.begin() + part * count, order.begin() + (part + 1) * count);
    };
    for (const AdapterRole role : kMatrixRoles) {
      if (const TensorEntry* entry = module.find(role); entry != nullptr) {
        push(name, part, role, entry->dtype, with_rows(entry->shape, entry->shape[0] / 3),
             {Piece{entry, part_rows(*entry)}});
      }
    }
    if (up == nullptr) {
      continue;
    }
    const TensorEntry* down = module.find(AdapterRole::kDown);
    const Indices& kept = columns[static_cast<std::size_t>(part)];
    const auto rank = static_cast<std::int64_t>(kept.size());
    push(name, part, AdapterRole::kDown, down->dtype, {rank, down->shape[1]}, {Piece{down, kept}});
    push(name, part, AdapterRole::kUp, up->dtype, {up->shape[0] / 3, rank},
         {Piece{up, part_rows(*up), kept}});
    push_alpha(name, part, module.scale, rank);
  }
  return {};
}

/// The columns of B that q, k and v use. Three equal blocks on the diagonal are taken whole, zeros
/// inside them included, so that fusing and splitting give the same tensors; elsewhere only columns
/// of zeros are left out.
Result<std::array<AdapterConverter::Indices, 3>> AdapterConverter::compacted(
    const TensorEntry& up, const Indices& rows) const {
  const std::int64_t num_rows = up.shape[0];
  const std::int64_t rank = up.shape[1];
  std::array<Indices, 3> columns;
  columns.fill(range(0, rank));
  if (!options_.compact) {
    return columns;
  }
  MINIACC_ASSIGN(const auto bytes, file_.bytes(up));
  std::vector<float> values(static_cast<std::size_t>(num_rows * rank));
  dequantize(up.dtype, bytes, num_rows * rank, values.data());
  std::vector<bool> used(static_cast<std::size_t>(3 * rank));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t stored = rows.empty() ? row : rows[static_cast<std::size_t>(row)];
    for (std::int64_t column = 0; column < rank; ++column) {
      if (values[static_cast<std::size_t>(stored * rank + column)] != 0.0F) {
        used[static_cast<std::size_t>(3 * row / num_rows * rank + column)] = true;
      }
    }
  }
  bool diagonal = rank % 3 == 0;
  for (std::int64_t i = 0; i < 3 * rank && diagonal; ++i) {
    diagonal = !used[static_cast<std::size_t>(i)] || i / rank == i % rank / (rank / 3);
  }
  for (std::int64_t part = 0; part < 3; ++part) {
    Indices& kept = columns[static_cast<std::size_t>(part)];
    if (diagonal) {
      kept = range(part * (rank / 3), rank / 3);
      continue;
    }
    std::erase_if(kept, [&](std::int64_t column) {
      return !used[static_cast<std::size_t>(part * rank + column)];
    });
    if (kept.empty()) {
      kept.push_back(0);  // a pair of rank 0 is no pair
    }
  }
  return columns;
}

Result<std::vector<std::byte>> AdapterConverter::make(const Output& output) const {
  const DType dtype = output.spec.dtype;
  const auto size = static_cast<std::int64_t>(block_bytes(dtype));
  std::vector<std::byte> bytes(
      storage_bytes(dtype, output.spec.shape.num_elements()).value());  // zeros
  if (output.pieces.empty()) {
    write_value(dtype, output.value, bytes.data());
    return bytes;
  }
  const std::int64_t out_columns = columns_of(output.spec.shape);
  for (const Piece& piece : output.pieces) {
    MINIACC_ASSIGN(const auto stored, file_.bytes(*piece.entry));
    const std::int64_t stored_columns = columns_of(piece.entry->shape);
    const auto num_rows =
        piece.rows.empty() ? piece.entry->shape[0] : static_cast<std::int64_t>(piece.rows.size());
    const auto num_columns =
        piece.columns.empty() ? stored_columns : static_cast<std::int64_t>(piece.columns.size());
    for (std::int64_t r = 0; r < num_rows; ++r) {
      const std::int64_t row = piece.rows.empty() ? r : piece.rows[static_cast<std::size_t>(r)];
      const std::byte* from = stored.data() + row * stored_columns * size;
      std::byte* to = bytes.data() + ((piece.at_row + r) * out_columns + piece.at_column) * size;
      if (piece.columns.empty() && piece.factor == 1.0) {
        std::memcpy(to, from, static_cast<std::size_t>(num_columns * size));
        continue;
      }
      for (std::int64_t c = 0; c < num_columns; ++c, to += size) {
        const std::int64_t column =
            piece.columns.empty() ? c : piece.columns[static_cast<std::size_t>(c)];
        if (piece.factor == 1.0) {
          std::memcpy(to, from + column * size, static_cast<std::size_t>(size));
          continue;
        }
        const double product = read_value(dtype, from + column * size) * piece.factor;
        write_value(dtype, product, to);
        if (!std::isfinite(read_value(dtype, to))) {
          return fail(ErrorCode::kInvalidInput, fmt::format("{}: times its scale is beyond {}",
                                                            piece.entry->name, dtype_name(dtype)));
        }
      }
    }
    file_.drop_pages(*piece.entry);
  }
  return bytes;
}

/// Every tensor against the twin's, by value. The shapes come first: nothing is broadcast.
Status AdapterConverter::compare() {
  if (options_.compare.empty()) {
    return {};
  }
  MINIACC_ASSIGN(const TensorFile twin, TensorFile::open(options_.compare));
  std::map<std::string, const TensorEntry*> theirs;
  const AdapterVocabulary wanted = options_.to == AdapterTarget::kComfy
                                       ? AdapterVocabulary::kOfficial
                                       : AdapterVocabulary::kDiffusers;
  for (const TensorEntry& entry : twin.entries()) {
    const auto name = parse_adapter_name(entry.name);
    if (!name || (name->vocabulary != wanted && name->vocabulary != AdapterVocabulary::kEither)) {
      problem(fmt::format("{}: {} is no name of the convention that is compared",
                          options_.compare.string(), entry.name));
      return {};
    }
    if (name->role != AdapterRole::kAlpha) {
      theirs[adapter_key(name->module, name->qkv_part.value_or(-1), name->role)] = &entry;
    }
  }
  for (const Output& output : outputs_) {
    if (output.pieces.empty()) {
      continue;  // alpha: a twin may say the scale elsewhere
    }
    MINIACC_RETURN_IF_ERROR(check_cancelled());
    const auto found = theirs.find(output.key);
    if (found == theirs.end()) {
      problem(fmt::format("{}: has no twin of {}", options_.compare.string(), output.spec.name));
      continue;
    }
    const TensorEntry& twin_entry = *found->second;
    theirs.erase(found);
    if (twin_entry.shape != output.spec.shape) {
      problem(fmt::format("{}: {} is {}, wanted {}", options_.compare.string(), twin_entry.name,
                          twin_entry.shape.to_string(), output.spec.shape.to_string()));
      continue;
    }
    if (!is_adapter_dtype(twin_entry.dtype)) {
      problem(fmt::format("{}: {} is {}", options_.compare.string(), twin_entry.name,
                          dtype_name(twin_entry.dtype)));
      continue;
    }
    MINIACC_ASSIGN(const auto ours, make(output));
    MINIACC_ASSIGN(const auto their_bytes, twin.bytes(twin_entry));
    const std::size_t our_size = block_bytes(output.spec.dtype);
    const std::size_t their_size = block_bytes(twin_entry.dtype);
    std::int64_t different = 0;
    const bool same_bits = output.spec.dtype == twin_entry.dtype &&
                           std::memcmp(ours.data(), their_bytes.data(), ours.size()) == 0;
    for (std::size_t i = 0; !same_bits && i * our_size < ours.size(); ++i) {
      const double a = read_value(output.spec.dtype, ours.data() + i * our_size);
      const double b = read_value(twin_entry.dtype, their_bytes.data() + i * their_size);
      different += a == b ? 0 : 1;  // NaN equals nothing
    }
    twin.drop_pages(twin_entry);
    if (different > 0) {
      problem(fmt::format("{}: {} of {} values of {} differ", options_.compare.string(), different,
                          output.spec.shape.num_elements(), twin_entry.name));
    } else {
      ++report_.num_compared;
    }
  }
  for (const auto& [key, entry] : theirs) {
    problem(fmt::format("{}: {} has no counterpart in the converted adapter",
                        options_.compare.string(), entry->name));
  }
  return {};
}

std::map<std::string, std::string> AdapterConverter::output_metadata() const {
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : file_.metadata()) {
    // What spoke of the source's ranks and scales says nothing about these tensors.
    if (key != "alpha" && key != "lora_rank" && text.find("lora_alpha") == std::string::npos &&
        key.find("lora_alpha") == std::string::npos) {
      metadata[key] = text;
    }
  }
  metadata["converted_by"] = "miniacc lora convert";
  metadata["source_sha256"] = report_.sha256;
  metadata["scale_source"] = report_.alpha_source;
  if (!report_.base.empty()) {
    metadata["base"] = report_.base;
  }
  for (const auto& [reason, count] : report_.dropped) {
    metadata["dropped"] += fmt::format("{} {}; ", count, reason);
  }
  // Without any alpha a reader may take the scale of a file of this name and rank from a table.
  std::optional<std::int64_t> rank;
  bool uniform = true;
  for (const Output& output : outputs_) {
    if (output.key.ends_with(".lora_A")) {
      uniform = uniform && rank.value_or(output.spec.shape[0]) == output.spec.shape[0];
      rank = output.spec.shape[0];
    }
    uniform = uniform && !output.pieces.empty();
  }
  if (rank && uniform) {
    metadata["alpha"] = std::to_string(*rank);
  }
  return metadata;
}

Status AdapterConverter::write(const std::filesystem::path& out) {
  std::vector<TensorSpec> specs;
  specs.reserve(outputs_.size());
  for (const Output& output : outputs_) {
    specs.push_back(output.spec);
  }
  MINIACC_ASSIGN(const auto writer, create_safetensors(out, specs, output_metadata()));
  for (const Output& output : outputs_) {
    MINIACC_RETURN_IF_ERROR(check_cancelled());
    MINIACC_ASSIGN(const auto bytes, make(output));
    MINIACC_RETURN_IF_ERROR(writer->append(bytes));
  }
  MINIACC_RETURN_IF_ERROR(writer->finish());
  report_.num_written = static_cast<std::int64_t>(outputs_.size());
  return {};
}

}  // namespace miniacc
