#include "model/vision/vision_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "model/common/shape_check.h"
#include "model/vision/vision_size.h"

namespace miniacc {
namespace {

constexpr std::string_view kComponent = "vision tower";
constexpr std::string_view kPatchWeight = "visual.patch_embed.proj.weight";
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kMergeArea = 4;

constexpr std::int64_t kReleasedHidden = 1152;
constexpr std::int64_t kReleasedHeads = 16;
constexpr std::int64_t kReleasedBlocks = 27;

template <typename Name>
std::int64_t count_stack(const WeightSource& weights, const Name& name) {
  std::int64_t count = 0;
  while (weights.has(name(count))) {
    ++count;
  }
  return count;
}

Status read_heads(const WeightSource& weights, VisionConfig& config) {
  if (!weights.config("vision_num_heads") && config.hidden_size != kReleasedHidden) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("{}: the configuration does not say vision_config.num_heads, and width "
                    "{} is not the released {}: put the model's config.json beside the file",
                    kComponent, config.hidden_size, kReleasedHidden));
  }
  MINIACC_ASSIGN(config.num_heads, count_config(weights, kComponent, "vision_num_heads",
                                                kReleasedHeads, config.hidden_size));
  // Height and width turn a quarter of the channels each, in pairs.
  if (config.hidden_size % (4 * config.num_heads) != 0) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("{}: width {} does not divide into {} heads of a multiple of 4 channels",
                    kComponent, config.hidden_size, config.num_heads));
  }
  config.head_dim = config.hidden_size / config.num_heads;
  return {};
}

Status read_deepstack_blocks(const WeightSource& weights, VisionConfig& config) {
  const std::int64_t num_mergers = count_stack(weights, [](std::int64_t j) {
    return fmt::format("visual.deepstack_merger_list.{}.linear_fc1.weight", j);
  });
  const auto values = weights.config("deepstack_visual_indexes");
  if (!values) {
    if (num_mergers != 0 && (num_mergers != 3 || config.num_blocks != kReleasedBlocks)) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: the configuration does not say "
                              "vision_config.deepstack_visual_indexes, and {} DeepStack mergers "
                              "with {} blocks are not the released 3 with {}: put the model's "
                              "config.json beside the file",
                              kComponent, num_mergers, config.num_blocks, kReleasedBlocks));
    }
    config.deepstack_blocks =
        num_mergers == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{8, 16, 24};
    return {};
  }
  bool valid = static_cast<std::int64_t>(values->size()) == num_mergers;
  double previous = -1.0;
  for (const double value : *values) {
    valid = valid && value > previous && value < static_cast<double>(config.num_blocks) &&
            value == std::floor(value);
    previous = value;
  }
  if (!valid) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: config key deepstack_visual_indexes holds [{}], wanted {} rising "
                            "block numbers below {}, one a DeepStack merger of the file",
                            kComponent, fmt::join(*values, ", "), num_mergers, config.num_blocks));
  }
  for (const double value : *values) {
    config.deepstack_blocks.push_back(static_cast<std::int64_t>(value));
  }
  return {};
}

Status read_position_table(const WeightSource& weights, VisionConfig& config) {
  const std::string name = "visual.pos_embed.weight";
  MINIACC_ASSIGN(const Shape table, shape_of_rank(weights, kComponent, name, 2));
  const auto side =
      static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(table[0]))));
  if (side * side != table[0]) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} is {}, wanted a square number of rows", kComponent, name,
                            table.to_string()));
  }
  config.positions_per_side = side;
  return check_shape(weights, kComponent, name, {table[0], config.hidden_size});
}

Status check_linear(const WeightSource& weights, const std::string& stem, std::int64_t out,
                    std::int64_t in) {
  MINIACC_RETURN_IF_ERROR(check_shape(weights, kComponent, stem + ".weight", {out, in}));
  return check_shape(weights, kComponent, stem + ".bias", {out});
}

Status check_norm(const WeightSource& weights, const std::string& stem, std::int64_t size) {
  MINIACC_RETURN_IF_ERROR(check_shape(weights, kComponent, stem + ".weight", {size}));
  return check_shape(weights, kComponent, stem + ".bias", {size});
}

Status check_block(const WeightSource& weights, const VisionConfig& config, std::int64_t index) {
  const std::string stem = fmt::format("visual.blocks.{}.", index);
  const std::int64_t hidden = config.hidden_size;
  MINIACC_RETURN_IF_ERROR(check_norm(weights, stem + "norm1", hidden));
  MINIACC_RETURN_IF_ERROR(check_norm(weights, stem + "norm2", hidden));
  MINIACC_RETURN_IF_ERROR(check_linear(weights, stem + "attn.qkv", 3 * hidden, hidden));
  MINIACC_RETURN_IF_ERROR(check_linear(weights, stem + "attn.proj", hidden, hidden));
  MINIACC_RETURN_IF_ERROR(
      check_linear(weights, stem + "mlp.linear_fc1", config.ffn_hidden_size, hidden));
  return check_linear(weights, stem + "mlp.linear_fc2", hidden, config.ffn_hidden_size);
}

Status check_merger(const WeightSource& weights, const VisionConfig& config,
                    const std::string& stem, std::int64_t norm_size) {
  const std::int64_t merged = kMergeArea * config.hidden_size;
  MINIACC_RETURN_IF_ERROR(check_norm(weights, stem + "norm", norm_size));
  MINIACC_RETURN_IF_ERROR(check_linear(weights, stem + "linear_fc1", merged, merged));
  return check_linear(weights, stem + "linear_fc2", config.out_size, merged);
}

Status check_tensors(const WeightSource& weights, const VisionConfig& config) {
  MINIACC_RETURN_IF_ERROR(
      check_shape(weights, kComponent, "visual.patch_embed.proj.bias", {config.hidden_size}));
  for (std::int64_t b = 0; b < config.num_blocks; ++b) {
    MINIACC_RETURN_IF_ERROR(check_block(weights, config, b));
  }
  MINIACC_RETURN_IF_ERROR(check_merger(weights, config, "visual.merger.", config.hidden_size));
  for (std::size_t j = 0; j < config.deepstack_blocks.size(); ++j) {
    MINIACC_RETURN_IF_ERROR(check_merger(weights, config,
                                         fmt::format("visual.deepstack_merger_list.{}.", j),
                                         kMergeArea * config.hidden_size));
  }
  return {};
}

}  // namespace

bool has_vision_tower(const WeightSource& weights) { return weights.has(kPatchWeight); }

Result<VisionConfig> read_vision_config(const WeightSource& weights) {
  if (!has_vision_tower(weights)) {
    return fail(ErrorCode::kNotFound,
                "vision tower: the text encoder has no tensors visual.*, which pictures and videos "
                "need: use a text encoder file with its vision tower");
  }
  VisionConfig config;
  const std::string patch_name(kPatchWeight);
  MINIACC_ASSIGN(const Shape patch, shape_of_rank(weights, kComponent, patch_name, 5));
  config.hidden_size = patch[0];
  MINIACC_RETURN_IF_ERROR(check_shape(
      weights, kComponent, patch_name,
      {config.hidden_size, kChannels, kVisionFramesPerPatch, kVisionPatchSize, kVisionPatchSize}));
  config.num_blocks = count_stack(
      weights, [](std::int64_t b) { return fmt::format("visual.blocks.{}.norm1.weight", b); });
  if (config.num_blocks == 0) {
    return fail(
        ErrorCode::kInvalidInput,
        fmt::format("{}: there is no visual.blocks.0.norm1.weight, wanted at least one block",
                    kComponent));
  }
  MINIACC_ASSIGN(const Shape fc1,
                 shape_of_rank(weights, kComponent, "visual.blocks.0.mlp.linear_fc1.weight", 2));
  config.ffn_hidden_size = fc1[0];
  MINIACC_ASSIGN(const Shape fc2,
                 shape_of_rank(weights, kComponent, "visual.merger.linear_fc2.weight", 2));
  config.out_size = fc2[0];
  MINIACC_ASSIGN(const Shape embedding,
                 shape_of_rank(weights, kComponent, "embed_tokens.weight", 2));
  if (embedding[1] != config.out_size) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: visual.merger.linear_fc2.weight is {} and embed_tokens.weight {}, "
                            "wanted as many rows there as columns here: tower and language layers "
                            "are not of one model",
                            kComponent, fc2.to_string(), embedding.to_string()));
  }
  MINIACC_RETURN_IF_ERROR(read_heads(weights, config));
  MINIACC_RETURN_IF_ERROR(read_position_table(weights, config));
  MINIACC_RETURN_IF_ERROR(read_deepstack_blocks(weights, config));
  MINIACC_RETURN_IF_ERROR(check_tensors(weights, config));
  return config;
}

}  // namespace miniacc
