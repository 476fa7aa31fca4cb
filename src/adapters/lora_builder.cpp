#include "adapters/lora_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/dequantize.h"

namespace miniacc {
namespace {

constexpr std::size_t kNamesInMessage = 5;
constexpr std::int64_t kLightx2vRank = 128;
constexpr double kNotedLoss = 1e-3;
constexpr std::int64_t kScanValues = std::int64_t{1} << 16;

std::string first_names(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kNamesInMessage);
  return fmt::format("{}{}",
                     fmt::join(names.begin(), names.begin() + static_cast<long>(count), ", "),
                     names.size() > count ? fmt::format(" and {} more", names.size() - count) : "");
}

bool is_float(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

bool is_time_embedding(std::string_view module) { return module.starts_with("time_embedder."); }

bool is_modulation(std::string_view module) {
  return module.find("adaln_proj") != std::string_view::npos;
}
// Curve tables have 8 columns as published, 64 at most in the field.
constexpr std::int64_t kMaxCurveRank = 64;

/// FNV-1a over 64-bit words: sees every bit of a gigabyte in a fraction of a second.
class ContentHash {
 public:
  void add(std::span<const std::byte> bytes) {
    mix(bytes.size());
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, std::min(sizeof(word), bytes.size() - i));
      mix(word);
    }
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  void mix(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001B3ULL;
    value_ ^= value_ >> 32;  // a product carries upwards only
  }
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

}  // namespace

const TensorEntry* LoraBuilder::Module::find(AdapterRole role) const {
  const auto found = tensors.find(role);
  return found == tensors.end() ? nullptr : found->second;
}

WeightSource& LoraBuilder::owner_of(const Module& module) const {
  return pruned_ && is_time_embedding(module.name.module) ? *options_.adaln_base : base_;
}

std::vector<LoraDelta>& LoraBuilder::deltas_for(const Module& module) {
  return pruned_ && is_time_embedding(module.name.module) ? time_deltas_ : lora_.deltas_;
}

LoraBuilder::LoraBuilder(WeightSource& base, const LoraRequest& request, const LoraOptions& options,
                         TensorFile file)
    : base_(base),
      request_(request),
      options_(options),
      lora_(std::move(file)),
      pruned_(base.has("adaln_t_table")) {}

tl::unexpected<Error> LoraBuilder::refuse(const std::string& what, ErrorCode code) const {
  return fail(code, fmt::format("{}: {}", file().path().string(), what));
}

Result<Lora> LoraBuilder::build() {
  lora_.report_.path = request_.path;
  lora_.report_.strength = request_.strength;
  MINIACC_RETURN_IF_ERROR(identify());
  MINIACC_RETURN_IF_ERROR(choose_half());
  MINIACC_RETURN_IF_ERROR(read_head_banks());
  MINIACC_RETURN_IF_ERROR(read_names());
  MINIACC_RETURN_IF_ERROR(check_vocabulary());
  MINIACC_RETURN_IF_ERROR(match_modules());
  MINIACC_RETURN_IF_ERROR(choose_alpha_rule());
  // The time embedding first: AdaLN changes are carried over to the curve that it makes.
  for (const bool time : {true, false}) {
    for (const auto& [key, module] : modules_) {
      if (is_time_embedding(module.name.module) == time) {
        MINIACC_RETURN_IF_ERROR(add_module(module));
      }
    }
  }
  MINIACC_RETURN_IF_ERROR(add_curve_change());
  for (const auto& [entry, name] : replacements_) {
    MINIACC_RETURN_IF_ERROR(add_replacement(*entry, name));
  }
  MINIACC_RETURN_IF_ERROR(read_values());
  finish_report();
  return std::move(lora_);
}

Status LoraBuilder::read_names() {
  for (const TensorEntry& entry : file().entries()) {
    const auto name = parse_adapter_name(entry.name);
    if (!name) {
      unmatched_.push_back(entry.name);
      continue;
    }
    if (is_for_other_half(*name)) {
      ++num_other_half_;
      continue;
    }
    if (is_bank_entry(*name)) {
      continue;
    }
    MINIACC_RETURN_IF_ERROR(add_name(entry, *name));
  }
  return {};
}

Status LoraBuilder::add_name(const TensorEntry& entry, const AdapterName& name) {
  if (name.role == AdapterRole::kUnsupported) {
    return refuse(
        fmt::format("{} belongs to an adapter method that is not built in (plain low-rank "
                    "pairs, .alpha, .diff and .diff_b are)",
                    entry.name),
        ErrorCode::kUnsupported);
  }
  if (is_curve_replacement(name)) {
    replacements_.emplace_back(&entry, name);
    return {};
  }
  if (name.role == AdapterRole::kReplacement) {
    return refuse(fmt::format("{} replaces a whole tensor, which is not built in for adapters; a "
                              "checkpoint goes to --diffusion-model",
                              entry.name),
                  ErrorCode::kUnsupported);
  }
  if (!is_float(entry.dtype)) {
    return refuse(
        fmt::format("{} is {}, wanted f32, f16, bf16 or f64", entry.name, dtype_name(entry.dtype)));
  }
  if (!modules_.empty() && modules_.begin()->second.name.prefix != name.prefix) {
    return refuse(fmt::format("prefixes differ in one file: {} begins with '{}', {} with '{}'",
                              modules_.begin()->second.tensors.begin()->second->name,
                              modules_.begin()->second.name.prefix, entry.name, name.prefix));
  }
  Module& module = modules_[{name.module, name.qkv_part.value_or(-1)}];
  if (module.tensors.empty()) {
    module.name = name;
  }
  const auto [place, added] = module.tensors.emplace(name.role, &entry);
  if (!added) {
    return refuse(fmt::format("{} and {} are the same part of {}", place->second->name, entry.name,
                              name.module));
  }
  vocabularies_.insert(name.vocabulary);
  interleaved_qkv_ =
      interleaved_qkv_ || (name.default_infix && name.vocabulary == AdapterVocabulary::kOfficial);
  return {};
}

Status LoraBuilder::check_vocabulary() const {
  std::map<AdapterVocabulary, std::string> examples;
  for (const auto& [key, module] : modules_) {
    if (module.name.vocabulary != AdapterVocabulary::kEither) {
      examples.emplace(module.name.vocabulary, module.tensors.begin()->second->name);
    }
  }
  if (examples.size() > 1) {
    return refuse(
        fmt::format("{} and {} are named after two conventions, so the order of rows "
                    "cannot be told",
                    examples.begin()->second, std::next(examples.begin())->second));
  }
  return {};
}

Status LoraBuilder::match_modules() {
  for (auto it = modules_.begin(); it != modules_.end();) {
    const Module& module = it->second;
    const bool reject = pruned_ && options_.adaln_base == nullptr &&
                        (is_time_embedding(module.name.module) || is_of_full_width(module));
    if (!reject && owner_of(module).has(module.name.module + ".weight")) {
      ++it;
      continue;
    }
    for (const auto& [role, entry] : module.tensors) {
      (reject ? rejected_ : unmatched_).push_back(entry->name);
    }
    it = modules_.erase(it);
  }
  LoraReport& report = lora_.report_;
  const std::size_t total = file().entries().size();
  report.unmatched = static_cast<std::int64_t>(unmatched_.size());
  report.rejected = static_cast<std::int64_t>(rejected_.size());
  report.other_half = num_other_half_;
  report.matched =
      static_cast<std::int64_t>(total) - report.unmatched - report.rejected - report.other_half;
  if (report.matched == 0) {
    const auto hint = std::find_if(unmatched_.begin(), unmatched_.end(), [](const auto& name) {
      return !guess_other_family(name).empty();
    });
    std::vector<std::string> names = unmatched_;
    names.insert(names.end(), rejected_.begin(), rejected_.end());
    return refuse(total == 0
                      ? "holds no tensors"
                      : fmt::format("none of its {} tensors can be merged into this "
                                    "transformer ({}){}{}",
                                    total, first_names(names), hint == unmatched_.end() ? "" : "; ",
                                    hint == unmatched_.end() ? "" : guess_other_family(*hint)));
  }
  const std::string advice =
      options_.allow_partial ? "they are left out" : "--lora-allow-partial merges the others";
  std::string message;
  if (!unmatched_.empty()) {
    message = fmt::format("{} of its {} tensors match nothing in this transformer ({}); {}",
                          unmatched_.size(), total, first_names(unmatched_), advice);
  }
  if (!rejected_.empty()) {
    message += fmt::format(
        "{}{} of its {} tensors change the time embedding or full-width AdaLN, which a pruned "
        "transformer (adaln_t_table) cannot take as they are ({}); {}{}",
        message.empty() ? "" : "; ", rejected_.size(), total, first_names(rejected_),
        "--adaln-base FULL carries them over to the table, ", advice);
  }
  if (!message.empty()) {
    if (!options_.allow_partial) {
      return refuse(message);
    }
    lora_.warnings_.push_back(fmt::format("{}: {}", file().path().string(), message));
  }
  return {};
}

Result<std::optional<double>> LoraBuilder::read_alpha(const Module& module) const {
  const TensorEntry* entry = module.find(AdapterRole::kAlpha);
  if (entry == nullptr) {
    return std::optional<double>();
  }
  if (entry->shape.num_elements() != 1 || entry->shape.rank() > 1) {
    return refuse(fmt::format("{} is {}, wanted one value", entry->name, entry->shape.to_string()));
  }
  if (module.find(AdapterRole::kDown) == nullptr) {
    return refuse(fmt::format("{} belongs to no low-rank pair", entry->name));
  }
  MINIACC_ASSIGN(const auto bytes, file().bytes(*entry));
  float value = 0.0F;
  dequantize(entry->dtype, bytes, 1, &value);
  if (!std::isfinite(value) || value <= 0.0F) {
    return refuse(fmt::format("{} is {}, wanted a number above 0", entry->name, value));
  }
  return std::optional<double>(value);
}

Status LoraBuilder::choose_alpha_rule() {
  AlphaQuery query;
  query.identity = &identity_;
  query.given = request_.alpha ? std::optional<double>(*request_.alpha) : std::nullopt;
  query.like_lightx2v = !modules_.empty();
  for (const auto& [key, module] : modules_) {
    const std::string& name = module.name.module;
    const TensorEntry* down = module.find(AdapterRole::kDown);
    query.has_alpha_tensors =
        query.has_alpha_tensors || module.find(AdapterRole::kAlpha) != nullptr;
    query.like_lightx2v =
        query.like_lightx2v && module.name.vocabulary == AdapterVocabulary::kDiffusers &&
        down != nullptr && down->shape.rank() == 2 && down->shape[0] == kLightx2vRank &&
        (name.find(".attn.") != std::string::npos || name.find(".mlp.") != std::string::npos);
  }
  MINIACC_ASSIGN(rule_, find_alpha_rule(file(), query));
  if (!rule_.warning.empty()) {
    lora_.warnings_.push_back(rule_.warning);
  }
  lora_.report_.alpha_source = std::string(alpha_source_name(rule_.source));
  return {};
}

Status LoraBuilder::add_module(const Module& module) {
  const bool pair = module.find(AdapterRole::kDown) != nullptr;
  if (pair != (module.find(AdapterRole::kUp) != nullptr)) {
    const TensorEntry* there = module.find(pair ? AdapterRole::kDown : AdapterRole::kUp);
    return refuse(fmt::format("{} has no {} beside it: a low-rank change needs both", there->name,
                              pair ? "up (B) matrix" : "down (A) matrix"));
  }
  MINIACC_ASSIGN(const auto alpha, read_alpha(module));
  (void)alpha;
  LoraDelta delta;
  delta.tensor = module.name.module + ".weight";
  MINIACC_ASSIGN(const Shape target, owner_of(module).shape(delta.tensor));
  if (pair) {
    MINIACC_RETURN_IF_ERROR(add_pair(module, target, delta));
  }
  if (module.find(AdapterRole::kDiff) != nullptr) {
    MINIACC_RETURN_IF_ERROR(add_dense(module, AdapterRole::kDiff, delta));
  }
  if (const TensorEntry* entry = module.find(AdapterRole::kDiffBias); entry != nullptr) {
    // Some DoRA files keep a matrix under this name; adding it to a bias would be nonsense.
    if (pair || entry->shape.rank() != 1) {
      return refuse(fmt::format("{} {} is a .diff_b {}, wanted a vector on its own", entry->name,
                                entry->shape.to_string(),
                                pair ? "beside a low-rank pair" : "that is no vector"),
                    ErrorCode::kUnsupported);
    }
    delta.tensor = module.name.module + ".bias";
    MINIACC_RETURN_IF_ERROR(add_dense(module, AdapterRole::kDiffBias, delta));
  }
  return {};
}

Status LoraBuilder::place_rows(const Module& module, const Shape& target, LoraDelta& delta) const {
  delta.num_rows = target[0];
  if (module.name.qkv_part) {
    delta.num_rows = target[0] / 3;
    delta.first_row = *module.name.qkv_part * delta.num_rows;
  } else if (module.name.value_first) {
    delta.order = DeltaRowOrder::kSwappedHalves;
  } else if (interleaved_qkv_ && module.name.module.ends_with("qkv_proj")) {
    const std::string norm =
        module.name.module.substr(0, module.name.module.size() - 8) + "q_norm.weight";
    MINIACC_ASSIGN(const Shape head, base_.shape(norm));
    delta.order = DeltaRowOrder::kInterleavedQkv;
    delta.head_dim = head.num_elements();
    if (delta.head_dim == 0 || target[0] % (3 * delta.head_dim) != 0) {
      return refuse(fmt::format("{} has {} rows, which are no heads of {}", delta.tensor, target[0],
                                delta.head_dim));
    }
  }
  return {};
}

Status LoraBuilder::add_pair(const Module& module, const Shape& target, LoraDelta delta) {
  delta.down = module.find(AdapterRole::kDown);
  delta.up = module.find(AdapterRole::kUp);
  for (const TensorEntry* entry : {delta.down, delta.up}) {
    if (entry->shape.rank() != 2 || entry->shape.num_elements() == 0) {
      return refuse(
          fmt::format("{} is {}, wanted a matrix", entry->name, entry->shape.to_string()));
    }
  }
  const std::int64_t rank = delta.down->shape[0];
  if (delta.up->shape[1] != rank) {
    return refuse(fmt::format("ranks differ: {} is {} and {} is {}", delta.down->name,
                              delta.down->shape.to_string(), delta.up->name,
                              delta.up->shape.to_string()));
  }
  if (target.rank() != 2) {
    return refuse(fmt::format("{} changes {}, which is no matrix", delta.down->name, delta.tensor));
  }
  MINIACC_RETURN_IF_ERROR(place_rows(module, target, delta));
  const bool project = is_of_full_width(module);
  if (!project && delta.down->shape[1] != target[1]) {
    if (is_modulation(module.name.module) && !pruned_ && delta.down->shape[1] <= kMaxCurveRank) {
      return refuse(fmt::format(
          "{} is {}: it was trained on a pruned transformer, and this one is full; `miniacc adaln "
          "lift` carries it over",
          delta.down->name, delta.down->shape.to_string()));
    }
    return refuse(fmt::format("{} is {}, wanted {} columns for {} {}", delta.down->name,
                              delta.down->shape.to_string(), target[1], delta.tensor,
                              target.to_string()));
  }
  if (delta.up->shape[0] != delta.num_rows) {
    return refuse(fmt::format("{} is {}, wanted {} rows for {} {}", delta.up->name,
                              delta.up->shape.to_string(), delta.num_rows, delta.tensor,
                              target.to_string()));
  }
  MINIACC_ASSIGN(const auto alpha, read_alpha(module));
  const auto scale = rule_.scale(module.name.stored_module, rank, alpha);
  if (!scale) {
    return refuse(scale.error().message, scale.error().code);
  }
  const double factor = *scale * static_cast<double>(request_.strength);
  delta.factor = static_cast<float>(factor);
  if (!std::isfinite(delta.factor)) {
    return refuse(
        fmt::format("{}: strength times alpha / rank is {}, beyond f32", delta.down->name, factor));
  }
  LoraReport& report = lora_.report_;
  const bool first = report.max_rank == 0;
  report.min_scale = first ? *scale : std::min(report.min_scale, *scale);
  report.max_scale = first ? *scale : std::max(report.max_scale, *scale);
  report.min_rank = first ? rank : std::min(report.min_rank, rank);
  report.max_rank = std::max(report.max_rank, rank);
  if (project) {
    return project_pair(std::move(delta));
  }
  deltas_for(module).push_back(std::move(delta));
  return {};
}

Status LoraBuilder::add_dense(const Module& module, AdapterRole role, LoraDelta delta) {
  delta.dense = module.find(role);
  const WeightSource& owner = owner_of(module);
  if (!owner.has(delta.tensor)) {
    return refuse(fmt::format("{} changes {}, which this transformer does not have",
                              delta.dense->name, delta.tensor));
  }
  MINIACC_ASSIGN(const Shape target, owner.shape(delta.tensor));
  MINIACC_RETURN_IF_ERROR(place_rows(module, target, delta));
  Shape wanted = target;
  wanted.set(0, delta.num_rows);
  const bool project = role == AdapterRole::kDiff && is_of_full_width(module);
  if (project) {
    MINIACC_RETURN_IF_ERROR(fit_curve());
    wanted.set(1, curve_->full_width());
  }
  if (delta.dense->shape != wanted) {
    return refuse(fmt::format("{} is {}, wanted {}", delta.dense->name,
                              delta.dense->shape.to_string(), wanted.to_string()));
  }
  delta.factor = request_.strength;
  if (project) {
    return project_dense(std::move(delta));
  }
  deltas_for(module).push_back(std::move(delta));
  return {};
}

Status LoraBuilder::read_values() {
  ContentHash hash;
  std::vector<float> values(static_cast<std::size_t>(kScanValues));
  for (const TensorEntry& entry : file().entries()) {
    hash.add(entry.name);
    hash.add(dtype_name(entry.dtype));
    hash.add(entry.shape.to_string());
    MINIACC_ASSIGN(const auto bytes, file().bytes(entry));
    hash.add(bytes);
    const std::size_t value_bytes = block_bytes(entry.dtype);
    const std::int64_t total = is_float(entry.dtype) ? entry.shape.num_elements() : 0;
    for (std::int64_t first = 0; first < total; first += kScanValues) {
      const std::int64_t count = std::min(kScanValues, total - first);
      dequantize(entry.dtype,
                 bytes.subspan(static_cast<std::size_t>(first) * value_bytes,
                               static_cast<std::size_t>(count) * value_bytes),
                 count, values.data());
      if (!std::all_of(values.begin(), values.begin() + count,
                       [](float value) { return std::isfinite(value); })) {
        return refuse(fmt::format("{} holds values that are not finite", entry.name));
      }
    }
    file().drop_pages(entry);
  }
  lora_.content_hash_ = hash.value();
  return {};
}

void LoraBuilder::finish_report() {
  LoraReport& report = lora_.report_;
  report.num_modules = static_cast<std::int64_t>(lora_.deltas_.size());
  report.family = vocabularies_.contains(AdapterVocabulary::kFlat)        ? "lora_unet"
                  : vocabularies_.contains(AdapterVocabulary::kDiffusers) ? "diffusers"
                  : interleaved_qkv_                                      ? "DiffSynth"
                                                                          : "official";
  if (report.max_scale != report.min_scale) {
    lora_.warnings_.push_back(fmt::format(
        "{}: alpha / rank differs between modules ({:g} to {:g}); files with a fused qkv of "
        "stacked rank sometimes keep the alpha of one part",
        file().path().string(), report.min_scale, report.max_scale));
  }
  if (worst_loss_ > kNotedLoss) {
    lora_.warnings_.push_back(fmt::format(
        "{}: carried over to the pruned transformer's curve, its AdaLN changes lose up to {:.2g} "
        "of their size",
        file().path().string(), worst_loss_));
  }
  if (request_.strength == 0.0F) {
    lora_.deltas_.clear();
  }
}

}  // namespace miniacc
