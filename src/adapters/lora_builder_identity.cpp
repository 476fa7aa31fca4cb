#include <fmt/format.h>

#include "adapters/lora_builder.h"

/// What LoraBuilder finds out about a file as a whole: which adapter it is, which half of
/// MiniMax-H3 it is for, whether it brings output heads.
namespace miniacc {
namespace {

constexpr std::string_view kRefPrefix = "transformer_ref.";
constexpr std::string_view kVideoHead = "final_layer.video_out";
constexpr std::string_view kAudioHead = "final_layer.audio_out";

}  // namespace

Status LoraBuilder::identify() {
  if (options_.identity != nullptr) {
    identity_ = *options_.identity;
  } else {
    MINIACC_ASSIGN(identity_, identify_adapter(file()));
  }
  LoraReport& report = lora_.report_;
  report.recipe = identity_.recipe;
  report.recipe_source = identity_.recipe.empty() ? "" : known_by_name(identity_.recipe_by);
  report.sparse_attention = identity_.sparse;
  if (identity_.sparse) {
    lora_.warnings_.push_back(
        fmt::format("{}: it was trained with block-sparse attention and runs with full attention "
                    "here, which it was not made for",
                    file().path().string()));
  }
  return {};
}

Status LoraBuilder::choose_half() {
  bool has_ref = false;
  bool has_other = false;
  for (const TensorEntry& entry : file().entries()) {
    if (const auto name = parse_adapter_name(entry.name)) {
      const bool ref = name->prefix.find(kRefPrefix) != std::string::npos;
      has_ref = has_ref || ref;
      has_other = has_other || !ref;
    }
  }
  has_both_halves_ = has_ref && has_other;
  const std::string& wanted = request_.half.empty() ? options_.half : request_.half;
  if (has_ref && has_other) {
    if (wanted.empty()) {
      return refuse(
          "it holds changes for both halves of MiniMax-H3; --lora-half fl2va or ref2va says "
          "which to take");
    }
    half_ = wanted;
  } else {
    half_ = has_ref ? "ref2va" : identity_.half;
  }
  lora_.report_.half = request_.half.empty() ? half_ : request_.half;
  if (has_ref && !has_other && !request_.half.empty() && request_.half != half_) {
    return refuse("all of its tensors are named for the Ref2VA half, and --lora-half says fl2va");
  }
  const std::string& half = lora_.report_.half;
  if (half.empty()) {
    return {};  // nobody knows
  }
  if (options_.half.empty()) {
    if (half == "ref2va" && request_.half.empty()) {
      lora_.warnings_.push_back(fmt::format(
          "{}: it is for the Ref2VA half of MiniMax-H3, and nothing tells which half this "
          "transformer is; on the other one it does harm",
          file().path().string()));
    }
  } else if (half != options_.half) {
    const bool told_by_table = !has_ref && request_.half.empty();
    return refuse(fmt::format(
        "it is for the {} half of MiniMax-H3 and the transformer is the {} half; load the other "
        "transformer{}",
        half, options_.half,
        told_by_table ? fmt::format(", or give --lora-half {} if you know better", options_.half)
                      : ""));
  }
  return {};
}

bool LoraBuilder::is_for_other_half(const AdapterName& name) const {
  const bool ref = name.prefix.find(kRefPrefix) != std::string::npos;
  return ref ? half_ != "ref2va" : half_ == "ref2va" && has_both_halves_;
}

bool LoraBuilder::is_bank_entry(const AdapterName& name) const {
  return has_head_banks_ && name.role == AdapterRole::kReplacement &&
         (name.module == kVideoHead || name.module == kAudioHead);
}

Status LoraBuilder::read_head_banks() {
  MINIACC_ASSIGN(const Shape video, base_.shape(std::string(kVideoHead) + ".weight"));
  MINIACC_ASSIGN(const Shape audio, base_.shape(std::string(kAudioHead) + ".weight"));
  for (const TensorEntry& entry : file().entries()) {
    const auto name = parse_adapter_name(entry.name);
    if (!name || name->role != AdapterRole::kReplacement || entry.name.ends_with(".bias")) {
      continue;
    }
    const bool head = name->module == kVideoHead || name->module == kAudioHead;
    const std::int64_t rows = name->module == kVideoHead ? video[0] : audio[0];
    has_head_banks_ = has_head_banks_ || (head && entry.shape.rank() > 0 &&
                                          (entry.shape.rank() == 3 || entry.shape[0] > rows));
  }
  if (!has_head_banks_ && !file().metadata().contains("pdd_num_steps")) {
    return {};
  }
  MINIACC_ASSIGN(HeadBanks banks, HeadBanks::read(file(), video[0], audio[0], video[1]));
  lora_.report_.head_steps = banks.num_steps();
  if (request_.strength != 0.0F) {
    lora_.head_banks_ = banks;
  }
  if (request_.strength != 1.0F && request_.strength != 0.0F) {
    lora_.warnings_.push_back(
        fmt::format("{}: its output heads are used whole, whatever the strength, and fit blocks "
                    "changed with strength 1 only",
                    file().path().string()));
  }
  return {};
}

}  // namespace miniacc
