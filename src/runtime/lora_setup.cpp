#include "runtime/lora_setup.h"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/model_half.h"

namespace miniacc {
namespace {

std::string stored_quantization(const ComponentWeights& transformer) {
  const CheckpointInfo& info = transformer.info();
  return info.quantization.empty() ? info.block_type : info.quantization;
}

/// As adapters spell it: "fl2va", "ref2va", or empty.
std::string half_of(const ComponentWeights& transformer, const std::string& given) {
  if (!given.empty()) {
    return given;
  }
  const auto half = detect_half(transformer.info().path).half;
  return !half ? "" : *half == ModelHalf::kFl2va ? "fl2va" : "ref2va";
}

std::string merge_warning(Precision precision, const std::string& quantization) {
  if (precision == Precision::kInt8) {
    return "the adapters are merged before the weights are quantised to int8: changes below half a "
           "step of a row's scale are lost";
  }
  if (!quantization.empty()) {
    return fmt::format(
        "the transformer is stored as {}; each layer that the adapters change is dequantised as it "
        "is read, and small changes may be below the resolution of its weights",
        quantization);
  }
  return {};
}

}  // namespace

Result<LoraMode> choose_lora_mode(const std::string& mode, Precision precision,
                                  const std::string& quantization) {
  if (mode == "merge") {
    return LoraMode::kMerge;
  }
  if (mode == "side") {
    return LoraMode::kSide;
  }
  if (mode == "auto") {
    return precision == Precision::kInt8 || !quantization.empty() ? LoraMode::kSide
                                                                  : LoraMode::kMerge;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--lora-mode must be auto, merge or side, got '{}'", mode));
}

Result<AdaptedTransformer> adapt_transformer(ComponentWeights& transformer, const LoraSetup& setup,
                                             Precision precision) {
  MINIACC_REQUIRE(setup.identities.empty() || setup.identities.size() == setup.loras.size(),
                  "adapt_transformer: one identity an adapter");
  AdaptedTransformer result;
  const std::string quantization = stored_quantization(transformer);
  const std::string half = half_of(transformer, setup.half);
  MINIACC_ASSIGN(const LoraMode mode, choose_lora_mode(setup.mode, precision, quantization));
  std::unique_ptr<ComponentWeights> adaln_base;
  if (!setup.adaln_base.empty()) {
    MINIACC_ASSIGN(adaln_base, open_component(setup.adaln_base, Component::kTransformer));
    if (!transformer.has("adaln_t_table")) {
      result.warnings.emplace_back(
          "--adaln-base is not needed: this transformer is a full one, which takes AdaLN changes "
          "as "
          "they are");
    }
  }
  std::vector<Lora> loras;
  bool changes = false;
  const Lora* head_banks = nullptr;
  loras.reserve(setup.loras.size());
  for (std::size_t i = 0; i < setup.loras.size(); ++i) {
    const LoraOptions options{
        .allow_partial = setup.allow_partial,
        .half = half,
        .adaln_base = adaln_base.get(),
        .identity = setup.identities.empty() ? nullptr : &setup.identities[i]};
    MINIACC_ASSIGN(Lora opened, Lora::open(transformer, setup.loras[i], options));
    const Lora& lora = loras.emplace_back(std::move(opened));
    result.warnings.insert(result.warnings.end(), lora.warnings().begin(), lora.warnings().end());
    LoraReport& report = result.reports.emplace_back(lora.report());
    report.mode = mode == LoraMode::kSide ? "side" : "merge";
    changes = changes || !lora.deltas().empty();
    if (lora.head_banks()) {
      if (head_banks != nullptr) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} and {} both bring output heads; only one adapter can",
                                head_banks->file().path().string(), lora.file().path().string()));
      }
      head_banks = &lora;
    }
  }
  if (const std::string warning = merge_warning(precision, quantization);
      changes && mode == LoraMode::kMerge && !warning.empty()) {
    result.warnings.push_back(warning);
  }
  result.weights =
      std::make_unique<AdaptedWeights>(transformer, std::move(loras), setup.num_threads, mode);
  return result;
}

}  // namespace miniacc
