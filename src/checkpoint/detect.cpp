#include "checkpoint/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "checkpoint/stored_tensor.h"
#include "device/cpu_device.h"

namespace miniacc {
namespace {

/// Any one of `names` present means this component in this naming, so that a file which lacks one
/// of them is still recognised and told what it lacks.
struct Signature {
  Component component;
  Naming naming;
  std::array<std::string_view, 2> names;
};
constexpr std::array<Signature, 9> kSignatures = {{
    {Component::kTransformer,
     Naming::kOfficial,
     {"video_patch_proj.weight", "audio_patch_proj.weight"}},
    {Component::kTransformer,
     Naming::kDiffusers,
     {"audio_proj_in.weight", "token_refiner.refiner_blocks.0.attn.to_q.weight"}},
    {Component::kVideoVae, Naming::kOfficial, {"decoder.x_embedder.weight", "decoder.mask_token"}},
    {Component::kVideoVae, Naming::kDiffusers, {"decoder.proj_in.weight", "decoder.proj_in.bias"}},
    {Component::kAudioVae, Naming::kOfficial, {"dec_in_proj.weight", "dec_in_proj.bias"}},
    {Component::kAudioVae,
     Naming::kOfficial,
     {"decoder.activation_post.act.alpha", "decoder.resblocks.0.activations.0.act.alpha"}},
    {Component::kTextEncoder,
     Naming::kOfficial,
     {"model.language_model.embed_tokens.weight",
      "model.language_model.layers.0.input_layernorm.weight"}},
    {Component::kTextEncoder,
     Naming::kComfy,
     {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight"}},
    {Component::kTextEncoder, Naming::kLlamaCpp, {"token_embd.weight", "blk.0.attn_norm.weight"}},
}};
constexpr std::array<std::string_view, 6> kPrefixes = {
    "", "model.diffusion_model.", "diffusion_model.", "transformer.", "first_stage_model.", "vae."};

std::optional<Recognised> match_signature(const TensorFile& file) {
  for (const std::string_view prefix : kPrefixes) {
    for (const Signature& signature : kSignatures) {
      for (const std::string_view name : signature.names) {
        if (file.find(std::string(prefix).append(name)) != nullptr) {
          return Recognised{signature.component, signature.naming, std::string(prefix)};
        }
      }
    }
  }
  return std::nullopt;
}

Status refuse(const TensorFile& file, std::string_view what) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: {}, which this build cannot run", file.path().string(), what));
}

Status refuse_derivatives(const TensorFile& file, const Recognised& recognised) {
  const auto find = [&](const char* name) { return file.find(recognised.prefix + name); };
  for (const TensorEntry& entry : file.entries()) {
    if (entry.name.find(".attn.to_gate_compress.") != std::string::npos) {
      return refuse(file, "has FastH3 sparse-attention gates (" + entry.name + ")");
    }
  }
  if (find("adaln_basis.weight") != nullptr) {
    return refuse(file, "has FastVideo's reduced AdaLN basis (adaln_basis.weight)");
  }
  if (find("time_embedder.table") != nullptr || find("adaln_basis") != nullptr) {
    return refuse(file, "is a vLLM-omni partition with folded AdaLN (time_embedder.table)");
  }
  const bool diffusers = recognised.naming == Naming::kDiffusers;
  const TensorEntry* head = find(diffusers ? "proj_out.weight" : "final_layer.video_out.weight");
  const TensorEntry* patch = find(diffusers ? "proj_in.weight" : "video_patch_proj.weight");
  if (head == nullptr || patch == nullptr || patch->shape.rank() != 2) {
    return {};
  }
  const std::int64_t features = patch->shape[1];
  const bool stacked = head->shape.rank() == 2 && features > 0 && head->shape[0] > features &&
                       head->shape[0] % features == 0;
  if (head->shape.rank() == 3 || stacked) {
    return refuse(
        file, fmt::format("has a PDD head bank ({} is {})", head->name, head->shape.to_string()));
  }
  return {};
}

Error not_recognised(const TensorFile& file) {
  const auto any_contains = [&](std::string_view part) {
    return std::any_of(file.entries().begin(), file.entries().end(), [&](const TensorEntry& entry) {
      return entry.name.find(part) != std::string::npos;
    });
  };
  if (any_contains(".lora_")) {
    return {ErrorCode::kUnsupported,
            file.path().string() + ": is a LoRA adapter, not a component of a model"};
  }
  if (any_contains("v.patch_embd.")) {
    return {ErrorCode::kUnsupported,
            file.path().string() +
                ": is a vision projector (mmproj) without a language model, not a text encoder"};
  }
  std::string examples;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, file.entries().size()); ++i) {
    examples += i == 0 ? "" : ", ";
    examples += file.entries()[i].name;
  }
  return {ErrorCode::kInvalidInput,
          fmt::format("{}: is no transformer, text encoder or VAE of MiniMax-H3 ({} tensors: {})",
                      file.path().string(), file.entries().size(), examples)};
}

/// Variance between the means of three classes of groups.
template <typename Label>
double variance_between(const std::vector<double>& groups, Label&& label) {
  std::array<double, 3> sums{};
  for (std::size_t g = 0; g < groups.size(); ++g) {
    sums[label(g)] += groups[g];
  }
  const double per_class = static_cast<double>(groups.size()) / 3.0;
  double mean = 0.0;
  for (double& sum : sums) {
    sum /= per_class;
    mean += sum / 3.0;
  }
  double variance = 0.0;
  for (const double sum : sums) {
    variance += (sum - mean) * (sum - mean) / 3.0;
  }
  return variance;
}

/// RMS of each group of head_dim rows, from a few rows of it.
Result<std::vector<double>> group_rms(const TensorFile& file, const CanonicalTensor& tensor) {
  constexpr std::int64_t kSampledRows = 8;
  CpuDevice scratch;
  const std::int64_t columns = tensor.columns();
  const std::int64_t step = std::max<std::int64_t>(1, tensor.head_dim / kSampledRows);
  std::vector<double> groups;
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t first = 0; first < tensor.rows(); first += tensor.head_dim) {
    double squares = 0.0;
    std::int64_t sampled = 0;
    for (std::int64_t r = 0; r < tensor.head_dim; r += step, ++sampled) {
      MINIACC_RETURN_IF_ERROR(read_rows(file, tensor, first + r, 1, scratch, row.data()));
      for (const float value : row) {
        squares += static_cast<double>(value) * value;
      }
    }
    groups.push_back(std::sqrt(squares / static_cast<double>(sampled * columns)));
  }
  return groups;
}

}  // namespace

Result<Recognised> recognise(const TensorFile& file) {
  const auto recognised = match_signature(file);
  if (!recognised) {
    return tl::unexpected(not_recognised(file));
  }
  if (recognised->component == Component::kTransformer) {
    MINIACC_RETURN_IF_ERROR(refuse_derivatives(file, *recognised));
  }
  return *recognised;
}

Result<bool> has_interleaved_qkv(const TensorFile& file, const Recognised& recognised,
                                 const QuantizationRecords& quantization,
                                 const ComponentConfig& config) {
  if (file.find(recognised.prefix + "adaln_t_table") != nullptr ||
      file.format() == ContainerFormat::kGguf || !quantization.weights.empty()) {
    return false;
  }
  if (config.class_name == "MiniMaxH3DiTModel" && recognised.prefix.empty()) {
    return true;
  }
  auto by_content = qkv_interleaved_by_content(file, recognised.prefix, quantization);
  // Small models can be ambiguous. What our own converter wrote down then decides.
  const auto said = file.metadata().find(kQkvRowsKey);
  if (!by_content && said != file.metadata().end() && said->second == kPlainQkvRows) {
    return false;
  }
  return by_content;
}

Result<bool> qkv_interleaved_by_content(const TensorFile& file, const std::string& prefix,
                                        const QuantizationRecords& quantization) {
  constexpr double kMinRatio = 2.0;
  std::int64_t num_blocks = 0;
  while (file.find(fmt::format("{}blocks.{}.attn.qkv_proj.weight", prefix, num_blocks)) !=
         nullptr) {
    ++num_blocks;
  }
  std::optional<bool> answer;
  for (const std::int64_t block : {std::int64_t{0}, num_blocks / 2, num_blocks - 1}) {
    const std::string stem = fmt::format("{}blocks.{}.attn.", prefix, block);
    const TensorEntry* fused = file.find(stem + "qkv_proj.weight");
    const TensorEntry* norm = file.find(stem + "q_norm.weight");
    if (fused == nullptr || norm == nullptr || fused->shape.rank() != 2 ||
        norm->shape.rank() != 1 || norm->shape[0] == 0 || fused->shape.num_elements() == 0 ||
        fused->shape[0] % (3 * norm->shape[0]) != 0) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {}qkv_proj.weight and {}q_norm.weight must be there and fit",
                              file.path().string(), stem, stem));
    }
    CanonicalTensor tensor{fused->name, fused->shape, RowLayout::kAsStored, norm->shape[0], {}};
    StoredTensor stored{fused, {}};
    if (const auto found = quantization.weights.find(fused); found != quantization.weights.end()) {
      stored.quantization = found->second;
    }
    tensor.parts.push_back(stored);
    MINIACC_ASSIGN(const std::vector<double> groups, group_rms(file, tensor));
    const std::size_t heads = groups.size() / 3;
    const double interleaved = variance_between(groups, [](std::size_t g) { return g % 3; });
    const double plain = variance_between(groups, [heads](std::size_t g) { return g / heads; });
    const bool is_interleaved = interleaved > plain;
    const double larger = std::max(interleaved, plain);
    const double smaller = std::min(interleaved, plain);
    // One head: both labellings are the same, and so are the orders.
    const bool ambiguous = heads > 1 && !(larger > kMinRatio * smaller);
    if (ambiguous || (answer && *answer != is_interleaved)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: cannot tell whether the rows of {} are interleaved per head "
                              "(variance ratio {:.2f}, wanted above {}); keep the file beside its "
                              "config.json or use a folder or a converted file",
                              file.path().string(), fused->name,
                              smaller > 0.0 ? larger / smaller : 0.0, kMinRatio));
    }
    answer = is_interleaved;
  }
  return *answer;
}

}  // namespace miniacc
