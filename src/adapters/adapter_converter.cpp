#include "adapters/adapter_converter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "io/dequantize.h"

namespace miniacc {
namespace {

constexpr std::int64_t kLightx2vRank = 128;
constexpr std::int64_t kScanValues = std::int64_t{1} << 16;
constexpr std::string_view kRefPrefix = "transformer_ref.";
constexpr std::array kRoles = {AdapterRole::kDown, AdapterRole::kUp, AdapterRole::kDiff,
                               AdapterRole::kDiffBias};

std::string_view role_name(AdapterRole role) {
  switch (role) {
    case AdapterRole::kDown:
      return "lora_A";
    case AdapterRole::kUp:
      return "lora_B";
    case AdapterRole::kAlpha:
      return "alpha";
    case AdapterRole::kDiff:
      return "diff";
    case AdapterRole::kDiffBias:
      return "diff_b";
    default:
      return "?";
  }
}

bool is_ref(const AdapterName& name) { return name.prefix.find(kRefPrefix) != std::string::npos; }

bool is_time_embedder(const std::string& module) { return module.starts_with("time_embedder."); }
bool is_adaln(const std::string& module) { return module.find("adaln_proj") != std::string::npos; }

}  // namespace

std::string adapter_key(const std::string& module, int part, AdapterRole role) {
  constexpr std::array<std::string_view, 4> kParts = {"", "/q", "/k", "/v"};
  return fmt::format("{}{}.{}", module, kParts.at(static_cast<std::size_t>(part) + 1),
                     role_name(role));
}

bool is_adapter_dtype(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

const TensorEntry* AdapterConverter::Module::find(AdapterRole role) const {
  const auto found = tensors.find(role);
  return found == tensors.end() ? nullptr : found->second;
}

AdapterConverter::AdapterConverter(TensorFile file, const ConvertAdapterOptions& options)
    : file_(std::move(file)), options_(options) {}

void AdapterConverter::problem(std::string text) { report_.problems.push_back(std::move(text)); }

const Shape* AdapterConverter::model_shape(const std::string& name) const {
  const auto found = options_.model->find(name);
  return found == options_.model->end() ? nullptr : &found->second;
}

Status AdapterConverter::check_cancelled() const {
  return options_.cancel != nullptr && options_.cancel->cancelled()
             ? fail(ErrorCode::kCancelled, "lora convert: cancelled")
             : Status();
}

Status AdapterConverter::prepare() {
  report_.num_read = static_cast<std::int64_t>(file_.entries().size());
  read_names();
  choose_partition();
  check_vocabulary();
  if (options_.model != nullptr) {
    match_model();
  }
  check_modules();
  MINIACC_RETURN_IF_ERROR(check_values());
  if (modules_.empty() && report_.problems.empty()) {
    problem(report_.num_read == 0 ? "holds no tensors"
                                  : "nothing is left to write: none of its tensors is a change of "
                                    "this transformer");
  }
  if (!report_.problems.empty()) {
    return {};  // what follows relies on pairs and triples that fit
  }
  MINIACC_RETURN_IF_ERROR(choose_scales());
  if (!report_.problems.empty()) {
    return {};
  }
  MINIACC_RETURN_IF_ERROR(plan_outputs());
  return compare();
}

void AdapterConverter::read_names() {
  std::vector<std::pair<const TensorEntry*, AdapterName>> names;
  std::array<const TensorEntry*, 2> partitions{};
  for (const TensorEntry& entry : file_.entries()) {
    auto name = parse_adapter_name(entry.name);
    if (!name) {
      const std::string_view hint = guess_other_family(entry.name);
      problem(fmt::format("{}: unknown module or suffix{}{}", entry.name, hint.empty() ? "" : "; ",
                          hint));
      continue;
    }
    partitions[is_ref(*name) ? 1 : 0] = &entry;
    names.emplace_back(&entry, *std::move(name));
  }
  if (partitions[0] != nullptr && partitions[1] != nullptr && !options_.base) {
    return problem(
        fmt::format("{} and {} are changes of two transformers; --force-base fl2va or "
                    "ref2va takes one",
                    partitions[0]->name, partitions[1]->name));
  }
  for (const auto& [entry, name] : names) {
    add_name(*entry, name);
  }
}

void AdapterConverter::add_name(const TensorEntry& entry, const AdapterName& name) {
  if (name.role == AdapterRole::kUnsupported) {
    return problem(fmt::format("{}: belongs to a method other than plain low rank", entry.name));
  }
  if (name.role == AdapterRole::kReplacement) {
    const bool head =
        name.module == "final_layer.video_out" || name.module == "final_layer.audio_out";
    return problem(head
                       ? fmt::format("{} {}: is a bank of output heads; PDD adapters have one form "
                                     "only and need no conversion",
                                     entry.name, entry.shape.to_string())
                       : fmt::format("{}: replaces a whole tensor, which is no change to convert",
                                     entry.name));
  }
  if (!is_adapter_dtype(entry.dtype)) {
    return problem(fmt::format("{}: is {}, wanted f64, f32, f16 or bf16", entry.name,
                               dtype_name(entry.dtype)));
  }
  if (options_.base && is_ref(name) != (*options_.base == AdapterBase::kRef2va) &&
      (is_ref(name) || name.prefix == "transformer.")) {
    ++report_.dropped["of the other transformer (transformer. or transformer_ref.)"];
    return;
  }
  Module& module = modules_[{name.module, name.qkv_part.value_or(-1)}];
  if (module.tensors.empty()) {
    module.name = name;
  }
  const auto [place, added] = module.tensors.emplace(name.role, &entry);
  if (!added) {
    return problem(fmt::format("{} and {} are the same part of {}", place->second->name, entry.name,
                               name.module));
  }
  vocabularies_.insert(name.vocabulary);
  interleaved_qkv_ =
      interleaved_qkv_ || (name.default_infix && name.vocabulary == AdapterVocabulary::kOfficial);
}

void AdapterConverter::choose_partition() {
  for (const auto& [key, module] : modules_) {
    const Module& first = modules_.begin()->second;
    if (module.name.prefix != first.name.prefix) {
      problem(
          fmt::format("{} and {}: prefixes differ in one file", first.example(), module.example()));
      break;
    }
  }
  if (options_.base && modules_.empty() && !report_.dropped.empty()) {
    problem(fmt::format("holds no changes of the {} transformer, which --force-base asks for",
                        *options_.base == AdapterBase::kRef2va ? "Ref2VA" : "FL2VA"));
  }
  const bool ref = options_.base ? *options_.base == AdapterBase::kRef2va
                                 : !modules_.empty() && is_ref(modules_.begin()->second.name);
  report_.base = ref ? "ref2va" : options_.base ? "fl2va" : "";
}

void AdapterConverter::check_vocabulary() {
  std::map<AdapterVocabulary, std::string> examples;
  for (const auto& [key, module] : modules_) {
    if (module.name.vocabulary != AdapterVocabulary::kEither) {
      examples.emplace(module.name.vocabulary, module.example());
    }
  }
  if (examples.size() > 1) {
    problem(
        fmt::format("{} and {} are named after two conventions, so the order of rows cannot be "
                    "told",
                    examples.begin()->second, std::next(examples.begin())->second));
  }
  report_.family = vocabularies_.contains(AdapterVocabulary::kFlat)        ? "lora_unet"
                   : vocabularies_.contains(AdapterVocabulary::kDiffusers) ? "diffusers"
                   : interleaved_qkv_                                      ? "DiffSynth"
                                                                           : "official";
}

/// Changes that this form of the transformer cannot take are dropped and counted; modules that no
/// form has are problems.
void AdapterConverter::match_model() {
  const Shape* table = model_shape("adaln_t_table");
  for (auto it = modules_.begin(); it != modules_.end();) {
    const Module& module = it->second;
    const auto count = static_cast<std::int64_t>(module.tensors.size());
    const TensorEntry* down = module.find(AdapterRole::kDown);
    const TensorEntry* diff = module.find(AdapterRole::kDiff);
    const TensorEntry* matrix = down != nullptr ? down : diff;
    if (table != nullptr && is_time_embedder(module.name.module)) {
      report_.dropped["time embedding, which a pruned transformer does not have"] += count;
      it = modules_.erase(it);
    } else if (table != nullptr && is_adaln(module.name.module) && matrix != nullptr &&
               matrix->shape.rank() == 2 && matrix->shape[1] != table->back()) {
      report_.dropped
          ["AdaLN of another width than the pruned transformer's table (see adaln "
           "rebase)"] += count;
      it = modules_.erase(it);
    } else {
      if (model_shape(module.name.module + ".weight") == nullptr) {
        problem(fmt::format("{}: the model has no {}", module.example(), module.name.module));
      }
      ++it;
    }
  }
}

void AdapterConverter::check_modules() {
  const TensorEntry* alpha = nullptr;
  std::int64_t num_alphas = 0;
  for (const auto& [key, module] : modules_) {
    check_pair(module);
    check_shapes(module);
    alpha = alpha == nullptr ? module.find(AdapterRole::kAlpha) : alpha;
    num_alphas += module.find(AdapterRole::kAlpha) != nullptr ? 1 : 0;
  }
  check_triples();
  if (alpha != nullptr && !options_.alpha && !options_.trust_alpha_tensors) {
    problem(
        fmt::format("{} and {} more: trainers disagree about what an alpha is divided by; "
                    "--alpha file takes alpha / rank, --alpha X one number for every module",
                    alpha->name, num_alphas - 1));
  }
}

void AdapterConverter::check_pair(const Module& module) {
  const TensorEntry* down = module.find(AdapterRole::kDown);
  const TensorEntry* up = module.find(AdapterRole::kUp);
  const TensorEntry* diff = module.find(AdapterRole::kDiff);
  const TensorEntry* bias = module.find(AdapterRole::kDiffBias);
  const TensorEntry* alpha = module.find(AdapterRole::kAlpha);
  if ((down == nullptr) != (up == nullptr)) {
    problem(fmt::format("{}: has no {} beside it", (down == nullptr ? up : down)->name,
                        down == nullptr ? "A (down)" : "B (up)"));
  }
  bool matrices = true;
  for (const TensorEntry* entry : {down, up}) {
    if (entry != nullptr && (entry->shape.rank() != 2 || entry->shape.num_elements() == 0)) {
      problem(fmt::format("{} is {}, wanted a matrix", entry->name, entry->shape.to_string()));
      matrices = false;
    }
  }
  if (matrices && down != nullptr && up != nullptr && up->shape[1] != down->shape[0]) {
    problem(fmt::format("ranks differ: {} is {} and {} is {}", down->name, down->shape.to_string(),
                        up->name, up->shape.to_string()));
  }
  if (diff != nullptr && (diff->shape.rank() == 0 || diff->shape.num_elements() == 0)) {
    problem(fmt::format("{} is {}, wanted rows", diff->name, diff->shape.to_string()));
  }
  if (bias != nullptr && (bias->shape.rank() != 1 || bias->shape.num_elements() == 0 ||
                          down != nullptr || up != nullptr)) {
    // Some DoRA files keep a matrix under this name.
    problem(fmt::format("{} is {}{}, wanted a vector on its own", bias->name,
                        bias->shape.to_string(), down != nullptr ? " beside a low-rank pair" : ""));
  }
  if (alpha == nullptr) {
    return;
  }
  if (down == nullptr || alpha->shape.rank() > 1 || alpha->shape.num_elements() != 1) {
    problem(fmt::format("{} is {}{}, wanted one value beside a low-rank pair", alpha->name,
                        alpha->shape.to_string(), down == nullptr ? " without a pair" : ""));
  }
}

void AdapterConverter::check_shapes(const Module& module) {
  const bool fused = module.name.module.ends_with(".qkv_proj");
  const bool whole_qkv = fused && !module.name.qkv_part;
  const bool halves = module.name.module.ends_with(".mlp.fc1");
  for (const AdapterRole role : {AdapterRole::kUp, AdapterRole::kDiff, AdapterRole::kDiffBias}) {
    const TensorEntry* entry = module.find(role);
    if (entry == nullptr || entry->shape.rank() == 0) {
      continue;
    }
    const std::int64_t unit =
        whole_qkv ? (interleaved_qkv_ ? 3 * head_dim(module) : 3) : (halves ? 2 : 1);
    if (entry->shape[0] % unit != 0) {
      problem(fmt::format("{} is {}, wanted rows in a multiple of {}", entry->name,
                          entry->shape.to_string(), unit));
    }
  }
  if (options_.model == nullptr) {
    return;
  }
  const auto wanted = [&](const char* tail) {
    const Shape* shape = model_shape(module.name.module + tail);
    std::optional<Shape> part = shape == nullptr ? std::nullopt : std::optional(*shape);
    if (part && module.name.qkv_part && part->rank() > 0) {
      part->set(0, (*part)[0] / 3);
    }
    return part;
  };
  const auto weight = wanted(".weight");
  const TensorEntry* down = module.find(AdapterRole::kDown);
  const TensorEntry* up = module.find(AdapterRole::kUp);
  if (weight && down != nullptr && down->shape.rank() == 2 &&
      (weight->rank() != 2 || down->shape[1] != weight->back())) {
    problem(fmt::format("{} is {}, the model's {}.weight is {}{}", down->name,
                        down->shape.to_string(), module.name.module, weight->to_string(),
                        is_adaln(module.name.module) ? " (see adaln lift)" : ""));
  }
  if (weight && up != nullptr && up->shape.rank() == 2 &&
      (weight->rank() != 2 || up->shape[0] != (*weight)[0])) {
    problem(fmt::format("{} is {}, wanted {} rows for {}.weight", up->name, up->shape.to_string(),
                        weight->rank() == 0 ? 0 : (*weight)[0], module.name.module));
  }
  if (const TensorEntry* diff = module.find(AdapterRole::kDiff);
      weight && diff != nullptr && diff->shape != *weight) {
    problem(fmt::format("{} is {}, wanted {}", diff->name, diff->shape.to_string(),
                        weight->to_string()));
  }
  if (const TensorEntry* bias = module.find(AdapterRole::kDiffBias); bias != nullptr) {
    const auto shape = wanted(".bias");
    if (!shape || bias->shape != *shape) {
      problem(fmt::format("{} is {}, {}", bias->name, bias->shape.to_string(),
                          shape ? "wanted " + shape->to_string()
                                : "the model's " + module.name.module + " has no bias"));
    }
  }
}

/// q, k and v of one layer carry the same kinds of tensors, each alike.
void AdapterConverter::check_triples() {
  std::set<std::string> checked;
  for (const auto& [key, module] : modules_) {
    if (key.second < 0 || !checked.insert(key.first).second) {
      continue;
    }
    for (const AdapterRole role : kRoles) {
      std::array<const TensorEntry*, 3> parts{};
      for (int part = 0; part < 3; ++part) {
        const auto found = modules_.find({key.first, part});
        parts[static_cast<std::size_t>(part)] =
            found == modules_.end() ? nullptr : found->second.find(role);
      }
      const auto missing = std::count(parts.begin(), parts.end(), nullptr);
      if (missing == 3) {
        continue;
      }
      if (missing > 0) {
        problem(fmt::format("{}: {} is there for {} of q, k and v", module.name.module,
                            role_name(role), 3 - missing));
        continue;
      }
      for (const TensorEntry* part : parts) {
        const bool columns_fit =
            part->shape.rank() != 2 || role == AdapterRole::kUp ||
            (parts[0]->shape.rank() == 2 && part->shape[1] == parts[0]->shape[1]);
        if (part->dtype != parts[0]->dtype || part->shape.rank() != parts[0]->shape.rank() ||
            !columns_fit || (role != AdapterRole::kDown && part->shape[0] != parts[0]->shape[0])) {
          problem(fmt::format("{} is {} {} and {} is {} {}: q, k and v do not fit each other",
                              parts[0]->name, dtype_name(parts[0]->dtype),
                              parts[0]->shape.to_string(), part->name, dtype_name(part->dtype),
                              part->shape.to_string()));
        }
      }
    }
  }
}

Status AdapterConverter::check_values() {
  std::vector<float> values(static_cast<std::size_t>(kScanValues));
  std::int64_t done = 0;
  for (const auto& [key, module] : modules_) {
    for (const auto& [role, entry] : module.tensors) {
      MINIACC_RETURN_IF_ERROR(check_cancelled());
      MINIACC_ASSIGN(const auto bytes, file_.bytes(*entry));
      const std::size_t size = block_bytes(entry->dtype);
      const std::int64_t total = entry->shape.num_elements();
      for (std::int64_t first = 0; first < total; first += kScanValues) {
        const std::int64_t count = std::min(kScanValues, total - first);
        dequantize(entry->dtype,
                   bytes.subspan(static_cast<std::size_t>(first) * size,
                                 static_cast<std::size_t>(count) * size),
                   count, values.data());
        if (!std::all_of(values.begin(), values.begin() + count,
                         [](float value) { return std::isfinite(value); })) {
          problem(fmt::format("{}: holds values that are not finite", entry->name));
          break;
        }
      }
      file_.drop_pages(*entry);
      if (options_.progress) {
        options_.progress(++done, report_.num_read);
      }
    }
  }
  return {};
}

Status AdapterConverter::choose_scales() {
  AlphaQuery query;
  query.given = options_.alpha;
  query.like_lightx2v = true;
  for (const auto& [key, module] : modules_) {
    const TensorEntry* down = module.find(AdapterRole::kDown);
    query.has_alpha_tensors =
        query.has_alpha_tensors || module.find(AdapterRole::kAlpha) != nullptr;
    query.like_lightx2v = query.like_lightx2v &&
                          module.name.vocabulary == AdapterVocabulary::kDiffusers &&
                          down != nullptr && down->shape[0] == kLightx2vRank &&
                          !is_adaln(module.name.module) && !is_time_embedder(module.name.module);
  }
  MINIACC_ASSIGN(const AdapterIdentity identity, identify_adapter(file_));
  query.identity = &identity;
  const auto rule = find_alpha_rule(file_, query);
  if (!rule) {
    problem(rule.error().message);
    return {};
  }
  report_.alpha_source = std::string(alpha_source_name(rule->source));
  if (!rule->warning.empty()) {
    if (rule->source == AlphaSource::kDefault) {
      problem(
          "its names and rank are those of lightx2v files, some of which need alpha 8 and some "
          "alpha 128, and it does not say which; --alpha tells");
      return {};
    }
    report_.notes.push_back(rule->warning);
  }
  for (auto& [key, module] : modules_) {
    const TensorEntry* down = module.find(AdapterRole::kDown);
    if (down == nullptr) {
      continue;
    }
    std::optional<double> own;
    if (const TensorEntry* alpha = module.find(AdapterRole::kAlpha);
        alpha != nullptr && !options_.alpha) {
      MINIACC_ASSIGN(const auto bytes, file_.bytes(*alpha));
      float value = 0.0F;
      dequantize(alpha->dtype, bytes, 1, &value);
      if (!(value > 0.0F)) {
        problem(fmt::format("{} is {}, wanted a number above 0", alpha->name, value));
        continue;
      }
      own = value;
    }
    const auto scale = rule->scale(module.name.stored_module, down->shape[0], own);
    if (!scale) {
      problem(scale.error().message);
      continue;
    }
    module.scale = *scale;
  }
  return {};
}

}  // namespace miniacc
