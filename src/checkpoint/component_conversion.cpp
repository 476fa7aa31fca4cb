#include "checkpoint/component_conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "core/float_convert.h"

namespace miniacc {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPrunedGrid = 1025;  // what Comfy-Org publishes
constexpr std::int64_t kScanValues = std::int64_t{1} << 20;
constexpr double kRopeTheta = 10000.0;  // spec model.md §3.3

bool is_plain_float(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

std::string form_of(const CheckpointInfo& info, const TensorFile& file) {
  std::string text(info.container == ContainerFormat::kGguf ? "gguf" : naming_name(info.naming));
  if (info.pruned) {
    text += ", pruned";
  }
  if (!info.quantization.empty()) {
    return text + ", " + info.quantization;
  }
  std::map<std::string_view, std::size_t> bytes;
  for (const TensorEntry& entry : file.entries()) {
    bytes[dtype_name(entry.dtype)] += entry.size_bytes;
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? text : fmt::format("{}, {}", text, most->first);
}

float rounded(DType dtype, float value) {
  return dtype == DType::kF16    ? f16_to_float(float_to_f16(value))
         : dtype == DType::kBF16 ? round_to_bf16(value)
                                 : value;
}

}  // namespace

/// One AdaLN layer projected onto the curve table as its rows are written, and measured over the
/// grid: W_p = W·directions, b_p = b + W·mean.
class ComponentConversion::AdalnFit {
 public:
  AdalnFit(ComponentConversion& owner, std::string layer, const CanonicalTensor& weight,
           const CanonicalTensor& bias, DType stored)
      : owner_(owner),
        layer_(std::move(layer)),
        weight_(weight),
        bias_(bias),
        stored_(stored),
        biases_(static_cast<std::size_t>(weight.rows()), std::numeric_limits<float>::quiet_NaN()) {}

  Status values(std::int64_t first, std::int64_t count, float* out) {
    const std::int64_t width = weight_.columns();
    const std::int64_t rank = owner_.table_.rank;
    // A slab of the narrow output is a large one of the source.
    const std::int64_t slab =
        std::max<std::int64_t>(1, kScanValues / std::max<std::int64_t>(1, width));
    for (std::int64_t done = 0; done < count; done += slab) {
      const std::int64_t rows = std::min(slab, count - done);
      MINIACC_RETURN_IF_ERROR(project(first + done, rows, out + done * rank));
    }
    return {};
  }

  Status biases(std::int64_t first, std::int64_t count, float* out) {
    std::vector<float> unused(static_cast<std::size_t>(owner_.table_.rank));
    for (std::int64_t r = 0; r < count; ++r) {
      if (std::isnan(biases_[static_cast<std::size_t>(first + r)])) {
        MINIACC_RETURN_IF_ERROR(project(first + r, 1, unused.data()));
      }
      out[r] = biases_[static_cast<std::size_t>(first + r)];
    }
    return {};
  }

  [[nodiscard]] const FitSums& sums() const { return sums_; }
  [[nodiscard]] const std::string& layer() const { return layer_; }

 private:
  Status project(std::int64_t first, std::int64_t rows, float* out) {
    const std::int64_t width = weight_.columns();
    const std::int64_t rank = owner_.table_.rank;
    const auto count = static_cast<std::size_t>(rows);
    std::vector<float> weights(count * static_cast<std::size_t>(width));
    std::vector<float> bias(count);
    MINIACC_RETURN_IF_ERROR(
        read_rows(owner_.analysis_->file, weight_, first, rows, owner_.device_, weights.data()));
    MINIACC_RETURN_IF_ERROR(
        read_rows(owner_.analysis_->file, bias_, first, rows, owner_.device_, bias.data()));
    OpContext ctx{owner_.device_, owner_.options_.num_threads};
    const Tensor projected =
        times_transposed(ctx, weights.data(), rows, owner_.table_.projection, width);
    const Tensor coordinates =
        times_transposed(ctx, weights.data(), rows, owner_.basis_.directions, width);
    const float* p = projected.view().f32();
    std::vector<float> stored(count * static_cast<std::size_t>(rank));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t k = 0; k < rank; ++k) {
        out[r * rank + k] = p[r * (rank + 1) + k];
        stored[static_cast<std::size_t>(r * rank + k)] = rounded(stored_, out[r * rank + k]);
      }
      biases_[static_cast<std::size_t>(first + r)] =
          bias[static_cast<std::size_t>(r)] + p[r * (rank + 1) + rank];
    }
    const Tensor full = times_transposed(ctx, coordinates.view().f32(), rows,
                                         owner_.basis_.coefficients, owner_.basis_.size);
    const Tensor pruned = times_transposed(ctx, stored.data(), rows, owner_.table_.table, rank);
    const std::int64_t grid = full.shape()[1];
    for (std::int64_t r = 0; r < rows; ++r) {
      const float stored_bias = rounded(stored_, biases_[static_cast<std::size_t>(first + r)]);
      for (std::int64_t g = 0; g < grid; ++g) {
        const double wanted = static_cast<double>(full.view().f32()[r * grid + g]) +
                              bias[static_cast<std::size_t>(r)];
        const double off =
            static_cast<double>(pruned.view().f32()[r * grid + g]) + stored_bias - wanted;
        sums_.wanted += wanted * wanted;
        sums_.residual += off * off;
        sums_.max_abs = std::max(sums_.max_abs, std::fabs(off));
        ++sums_.count;
      }
    }
    return {};
  }

  ComponentConversion& owner_;
  std::string layer_;
  const CanonicalTensor& weight_;
  const CanonicalTensor& bias_;
  DType stored_;
  std::vector<float> biases_;
  FitSums sums_;
};

ComponentConversion::ComponentConversion(const ConvertOptions& options)
    : options_(options), meter_(options.num_threads) {}

Result<std::unique_ptr<ComponentConversion>> ComponentConversion::open(
    const fs::path& path, const ConvertOptions& options) {
  std::unique_ptr<ComponentConversion> conversion(new ComponentConversion(options));
  MINIACC_RETURN_IF_ERROR(conversion->read(path));
  return conversion;
}

bool ComponentConversion::is_gguf() const {
  return options_.format == CheckpointFormat::kGguf &&
         (component() == Component::kTransformer || component() == Component::kTextEncoder);
}

bool ComponentConversion::prunes() const {
  return component() == Component::kTransformer && !analysis_->info.pruned &&
         options_.format == CheckpointFormat::kComfyPruned;
}

const CanonicalTensor* ComponentConversion::find(const std::string& name) const {
  const auto found = analysis_->plan.tensors.find(name);
  return found == analysis_->plan.tensors.end() ? nullptr : &found->second;
}

Status ComponentConversion::read(const fs::path& path) {
  MINIACC_ASSIGN(analysis_, analyse_component(path));
  MINIACC_RETURN_IF_ERROR(check_plan(analysis_->file, component(), analysis_->plan));
  MINIACC_RETURN_IF_ERROR(check_source());
  MINIACC_ASSIGN(documents_, read_config_documents(component(), analysis_->info.path,
                                                   analysis_->file.metadata()));
  report_.component = component();
  report_.in = analysis_->info.path;
  report_.from = form_of(analysis_->info, analysis_->file);
  has_weight_norm_ =
      std::any_of(analysis_->plan.tensors.begin(), analysis_->plan.tensors.end(),
                  [](const auto& item) { return item.second.layout == RowLayout::kWeightNorm; });
  choose_copies();
  if (!copies_.empty()) {
    report_.copied = true;
    return {};
  }
  if (options_.format == CheckpointFormat::kGguf && options_.storage == WeightStorage::kAsStored) {
    options_.storage = WeightStorage::kQ8_0;
  }
  MINIACC_RETURN_IF_ERROR(describe());
  if (prunes()) {
    MINIACC_RETURN_IF_ERROR(fit_table());
  }
  return build_outputs();
}

Status ComponentConversion::check_source() const {
  const CheckpointInfo& info = analysis_->info;
  const std::string where = info.path.string();
  if (info.pruned && options_.format != CheckpointFormat::kComfyPruned &&
      options_.format != CheckpointFormat::kGguf) {
    return fail(ErrorCode::kInvalidArgument,
                where +
                    ": is pruned, and its time MLP cannot be had back; --to comfy-pruned or "
                    "gguf keeps that form");
  }
  if (!options_.measure_int8) {
    return {};
  }
  for (const TensorEntry& entry : analysis_->file.entries()) {
    if (!is_plain_float(entry.dtype) && !analysis_->quantization.side_tensors.contains(&entry)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {} is {}: the file is quantised already, and the error must be "
                              "measured against the original",
                              where, entry.name, dtype_name(entry.dtype)));
    }
  }
  return {};
}

/// Sizes and hyper-parameters, as far as configurations of the target need them.
Status ComponentConversion::describe() {
  const ShapeLookup lookup = [this](std::string_view name) -> const Shape* {
    const auto found = analysis_->plan.tensors.find(name);
    return found == analysis_->plan.tensors.end() ? nullptr : &found->second.shape;
  };
  const std::string where = analysis_->info.path.string();
  const ConfigMap& values = analysis_->config.values;
  const auto list = [&](const char* key) {
    const auto found = values.find(key);
    return found == values.end() ? std::vector<double>() : found->second;
  };
  const auto integers = [&](const char* key, std::vector<std::int64_t> absent) {
    const std::vector<double> given = list(key);
    return given.empty() ? std::move(absent)
                         : std::vector<std::int64_t>(given.begin(), given.end());
  };
  const auto from_document = [&](const char* pointer) -> const nlohmann::json* {
    const nlohmann::json::json_pointer place(pointer);
    for (const ConfigDocument& document : documents_) {
      if (document.content.contains(place)) {
        return &document.content.at(place);
      }
    }
    return nullptr;
  };
  // What a file does not tell is the released model's.
  model_ = synthetic_model(SyntheticSize::kFull, 0);
  switch (component()) {
    case Component::kTransformer: {
      MINIACC_ASSIGN(model_.transformer, read_transformer_dims(lookup, where));
      if (model_.transformer.rope_inv_freq_len == 0) {
        model_.transformer.rope_inv_freq_len =
            integers("rope_inv_freq_len", {model_.transformer.head_dim / 8}).front();
      }
      return {};
    }
    case Component::kTextEncoder: {
      const auto layers = analysis_->plan.dimensions["num_layers_used"];
      MINIACC_ASSIGN(model_.text_encoder, read_text_encoder_dims(lookup, layers, where));
      model_.mrope_section = integers("mrope_section", model_.mrope_section);
      if (const auto* heads = from_document("/vision_config/num_heads");
          heads != nullptr && heads->is_number_integer()) {
        model_.vision_heads = heads->get<std::int64_t>();
      }
      const std::int64_t mergers =
          model_.text_encoder.vision ? model_.text_encoder.vision->num_deepstack : 0;
      const auto* blocks = from_document("/vision_config/deepstack_visual_indexes");
      if (blocks != nullptr && blocks->is_array() &&
          static_cast<std::int64_t>(blocks->size()) == mergers &&
          std::all_of(blocks->begin(), blocks->end(),
                      [](const auto& block) { return block.is_number_unsigned(); })) {
        model_.deepstack_blocks = blocks->get<std::vector<std::int64_t>>();
      } else if (static_cast<std::int64_t>(model_.deepstack_blocks.size()) != mergers) {
        model_.deepstack_blocks.clear();
        for (std::int64_t j = 0; j < mergers; ++j) {
          model_.deepstack_blocks.push_back(j);
        }
      }
      model_.stored_text_layers = model_.text_encoder.num_layers;
      for (const TensorEntry& entry : analysis_->file.entries()) {
        const std::string& prefix = analysis_->info.prefix;
        const auto mapped = entry.name.starts_with(prefix)
                                ? to_canonical(component(), analysis_->info.naming,
                                               entry.name.substr(prefix.size()))
                                : std::nullopt;
        if (mapped && mapped->canonical.starts_with("layers.")) {
          model_.stored_text_layers =
              std::max<std::int64_t>(model_.stored_text_layers,
                                     std::strtoll(mapped->canonical.c_str() + 7, nullptr, 10) + 1);
        }
      }
      return {};
    }
    case Component::kVideoVae: {
      MINIACC_ASSIGN(model_.video_vae, read_video_vae_dims(lookup, where));
      model_.video_vae_heads = integers("num_heads", {model_.video_vae.hidden_size / 64}).front();
      model_.video_latents_mean = list("latents_mean");
      model_.video_latents_std = list("latents_std");
      return {};
    }
    case Component::kAudioVae: {
      MINIACC_ASSIGN(model_.audio_vae, read_audio_vae_dims(lookup, where));
      model_.audio_rates = integers("decoder_rates", model_.audio_rates);
      model_.audio_latents_mean = list("latents_mean");
      model_.audio_latents_std = list("latents_std");
      return {};
    }
  }
  return {};
}

Status ComponentConversion::fit_table() {
  const std::int64_t width = model_.transformer.time_embed_dim;
  if (options_.rank < 1 || options_.rank > width || options_.rank >= kPrunedGrid) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--rank is {}, wanted 1 to {} (the width of the time embedding)",
                            options_.rank, std::min(width, kPrunedGrid - 1)));
  }
  MINIACC_ASSIGN(weights_, open_component(analysis_->info.path));
  OpContext ctx{device_, options_.num_threads};
  MINIACC_ASSIGN(const Tensor curve, time_curve(*weights_, kPrunedGrid, ctx));
  const MatrixF64 exact = to_f64(curve.f32(), kPrunedGrid, width);
  table_ = fit_curve_table(exact, options_.rank);
  basis_ = curve_basis(exact);
  report_.prune = PruneReport{options_.rank, kPrunedGrid, table_.curve_rel_resid, 0.0, ""};
  return {};
}

RowFill ComponentConversion::rows_of(const CanonicalTensor& tensor) {
  return [this, &tensor](std::int64_t first, std::int64_t count, float* out) {
    return read_rows(analysis_->file, tensor, first, count, device_, out);
  };
}

CanonicalSource ComponentConversion::source_of(const ExpectedTensor& wanted,
                                               const CanonicalTensor& tensor) {
  CanonicalSource source{wanted, rows_of(tensor)};
  if (tensor.parts.empty()) {
    source.stored = DType::kF32;  // computed
    return source;
  }
  const StoredTensor& first = tensor.parts.front();
  source.stored = first.quantization.scale == nullptr ? first.values->dtype : DType::kU8;
  if (tensor.layout == RowLayout::kWeightNorm) {
    std::array<const CanonicalTensor*, 2> parts{};
    for (std::size_t i = 0; i < 2; ++i) {
      own_tensors_.push_back(
          {wanted.name, tensor.parts[i].values->shape, RowLayout::kAsStored, 0, {tensor.parts[i]}});
      parts[i] = &own_tensors_.back();
    }
    source.direction = rows_of(*parts[0]);
    source.magnitude = rows_of(*parts[1]);
    source.magnitude_stored = tensor.parts[1].values->dtype;
    if (!is_folder_format(options_.format)) {
      source.stored = DType::kF32;  // folded values are products, which bf16 would round
    }
  }
  source.splits_weight_norm = tensor.layout == RowLayout::kWeightNorm || !has_weight_norm_;
  source.peak = [this, &tensor]() -> Result<float> {
    float peak = 0.0F;
    const std::int64_t rows =
        std::max<std::int64_t>(1, kScanValues / std::max<std::int64_t>(1, tensor.columns()));
    std::vector<float> slab(static_cast<std::size_t>(rows * tensor.columns()));
    for (std::int64_t row = 0; row < tensor.rows(); row += rows) {
      const std::int64_t count = std::min(rows, tensor.rows() - row);
      MINIACC_RETURN_IF_ERROR(read_rows(analysis_->file, tensor, row, count, device_, slab.data()));
      for (std::int64_t i = 0; i < count * tensor.columns(); ++i) {
        peak = std::max(peak, std::fabs(slab[static_cast<std::size_t>(i)]));
      }
    }
    return peak;
  };
  if (is_row_int8(tensor)) {
    source.int8_rotation_group = first.quantization.rotation_group;
    source.int8_values = [this, &tensor]() -> Result<std::vector<std::byte>> {
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.rows() * tensor.columns()));
      MINIACC_RETURN_IF_ERROR(copy_rows(analysis_->file, tensor, 0, tensor.rows(), bytes.data()));
      return bytes;
    };
    source.int8_scales = [this, &tensor]() -> Result<std::vector<std::byte>> {
      std::vector<float> scales(static_cast<std::size_t>(tensor.rows()));
      MINIACC_RETURN_IF_ERROR(copy_row_scales(analysis_->file, tensor, scales.data()));
      std::vector<std::byte> bytes(scales.size() * sizeof(float));
      std::memcpy(bytes.data(), scales.data(), bytes.size());
      return bytes;
    };
  }
  return source;
}

std::vector<ExpectedTensor> ComponentConversion::wanted_tensors() {
  switch (component()) {
    case Component::kTransformer: {
      TransformerDims dims = model_.transformer;
      if (prunes()) {
        dims = pruned(dims);
        dims.time_embed_dim = table_.rank;
        dims.table_rows = kPrunedGrid;
      }
      return transformer_tensors(dims);
    }
    case Component::kTextEncoder:
      return text_encoder_tensors(model_.text_encoder);
    case Component::kVideoVae:
      return video_vae_tensors(model_.video_vae);
    case Component::kAudioVae:
      return audio_vae_tensors(model_.audio_vae);
  }
  return {};
}

Status ComponentConversion::build_outputs() {
  LayoutOptions layout;
  layout.component = component();
  layout.format = options_.format;
  layout.storage = options_.storage;
  layout.head_dim =
      component() == Component::kTransformer
          ? model_.transformer.head_dim
          : model_.video_vae.hidden_size / std::max<std::int64_t>(1, model_.video_vae_heads);
  layout.deepstack_blocks = model_.deepstack_blocks;
  layout.rotation_group = options_.rotation_group;
  if (options_.measure_int8) {
    layout.int8_observer = [this](const Int8Slab& slab) { return meter_.observe(slab); };
  }
  LayoutBuilder builder(std::move(layout));
  for (const ExpectedTensor& wanted : wanted_tensors()) {
    const CanonicalTensor* tensor = find(wanted.name);
    if (prunes() &&
        (wanted.name == "adaln_t_table" || wanted.name.find("adaln_proj") != std::string::npos)) {
      add_pruned(builder, wanted);
    } else if (tensor != nullptr) {
      builder.add(source_of(wanted, *tensor));
    } else if (wanted.name == "rope.inv_freq") {
      add_inverse_frequencies(builder, wanted);
    }
  }
  add_extras(builder);
  outputs_ = builder.finish();
  report_.num_tensors = static_cast<std::int64_t>(outputs_.size());
  report_.size_bytes = output_bytes(outputs_);
  return {};
}

void ComponentConversion::add_pruned(LayoutBuilder& builder, const ExpectedTensor& wanted) {
  const std::int64_t rank = table_.rank;
  if (wanted.name == "adaln_t_table") {
    builder.add({wanted,
                 [this, rank](std::int64_t first, std::int64_t count, float* out) -> Status {
                   std::copy_n(table_.table.begin() + first * rank, count * rank, out);
                   return {};
                 },
                 DType::kF32});
    return;
  }
  const std::string stem = wanted.name.substr(0, wanted.name.rfind('.'));
  if (fits_.empty() || fits_.back()->layer() != stem) {
    const DType stored = options_.storage == WeightStorage::kF32 ? DType::kF32 : DType::kF16;
    fits_.push_back(std::make_shared<AdalnFit>(*this, stem, *find(stem + ".weight"),
                                               *find(stem + ".bias"), stored));
  }
  const bool weight = wanted.name.ends_with(".weight");
  builder.add({wanted,
               [fit = fits_.back(), weight](std::int64_t first, std::int64_t count, float* out) {
                 return weight ? fit->values(first, count, out) : fit->biases(first, count, out);
               },
               options_.storage == WeightStorage::kF32 ? DType::kF32 : DType::kF16});
}

/// diffusers computes them; the other layouts store what it computes.
void ComponentConversion::add_inverse_frequencies(LayoutBuilder& builder,
                                                  const ExpectedTensor& wanted) {
  const auto given = analysis_->config.values.find("rope_theta");
  const double theta = given == analysis_->config.values.end() ? kRopeTheta : given->second.front();
  const auto count = static_cast<float>(wanted.shape[0]);
  builder.add({wanted,
               [theta, count](std::int64_t first, std::int64_t rows, float* out) -> Status {
                 // In f32 step by step, as the reference computes what the vendor ships.
                 for (std::int64_t r = 0; r < rows; ++r) {
                   const float exponent = static_cast<float>(first + r) / count;
                   out[r] = 1.0F / static_cast<float>(std::pow(theta, exponent));
                 }
                 return {};
               },
               DType::kF32});
}

/// What files carry and nothing reads.
void ComponentConversion::add_extras(LayoutBuilder& builder) {
  const bool folder = is_folder_format(options_.format);
  std::int64_t left_out = 0;
  for (const TensorEntry& entry : analysis_->file.entries()) {
    const std::string& prefix = analysis_->info.prefix;
    if (analysis_->quantization.side_tensors.contains(&entry) || !entry.name.starts_with(prefix)) {
      continue;
    }
    const auto mapped =
        to_canonical(component(), analysis_->info.naming, entry.name.substr(prefix.size()));
    if (!mapped || find(mapped->canonical) != nullptr ||
        mapped->canonical.starts_with("latents_") ||
        mapped->canonical.starts_with("visual.deepstack_merger_list.")) {
      continue;
    }
    const bool text = component() == Component::kTextEncoder;
    if ((text && !folder) ||
        (component() == Component::kVideoVae && builder.naming() == Naming::kDiffusers)) {
      ++left_out;
      continue;
    }
    StoredTensor stored{&entry, {}};
    if (const auto found = analysis_->quantization.weights.find(&entry);
        found != analysis_->quantization.weights.end()) {
      stored.quantization = found->second;
    }
    own_tensors_.push_back({mapped->canonical, entry.shape, RowLayout::kAsStored, 0, {stored}});
    builder.add(source_of({mapped->canonical, entry.shape}, own_tensors_.back()));
  }
  if (left_out > 0) {
    report_.notes.push_back(fmt::format("{} tensors that nothing reads are left out", left_out));
  }
  if (!folder && component() == Component::kVideoVae) {
    add_latent_statistics(builder, model_.video_latents_mean, model_.video_latents_std);
  } else if (!folder && component() == Component::kAudioVae) {
    add_latent_statistics(builder, model_.audio_latents_mean, model_.audio_latents_std);
  }
}

Status ComponentConversion::finish() {
  report_.int8_errors = meter_.errors();
  if (!report_.prune) {
    return {};
  }
  for (const auto& fit : fits_) {
    const double relative = fit->sums().relative();
    // A plain maximum would let NaN through.
    if (!(relative <= report_.prune->worst_rel_resid)) {
      report_.prune->worst_rel_resid = relative;
      report_.prune->worst_layer = fit->layer();
    }
  }
  if (!(report_.prune->worst_rel_resid <= options_.max_rel_resid)) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} fits the curve table of rank {} to {:.2e} only, wanted {:.2e}; "
                            "a larger --rank fits better",
                            report_.in.string(), report_.prune->worst_layer, table_.rank,
                            report_.prune->worst_rel_resid, options_.max_rel_resid));
  }
  return {};
}

}  // namespace miniacc
