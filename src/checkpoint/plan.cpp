#include "checkpoint/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>

#include "checkpoint/schema.h"

namespace miniacc {
namespace {

constexpr std::size_t kListedNames = 5;
constexpr std::int64_t kReleasedVideoHeadDim = 64;  // spec vae.md §2.3

bool is_weight_dtype(DType dtype, ContainerFormat container) {
  switch (dtype) {
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kU8:
    case DType::kBool:
      return false;
    case DType::kI8:
      return container == ContainerFormat::kGguf;  // elsewhere only with a scale
    default:
      return true;
  }
}

/// The vision blocks that llama.cpp numbers its DeepStack mergers by, in order.
std::set<std::int64_t> deepstack_blocks(const TensorFile& file) {
  constexpr std::string_view kStem = "v.deepstack.";
  std::set<std::int64_t> blocks;
  for (const TensorEntry& entry : file.entries()) {
    if (!entry.name.starts_with(kStem)) {
      continue;
    }
    std::int64_t block = 0;
    const char* digits = entry.name.data() + kStem.size();
    const auto parsed = std::from_chars(digits, entry.name.data() + entry.name.size(), block);
    if (parsed.ec == std::errc() && parsed.ptr != digits) {
      blocks.insert(block);
    }
  }
  return blocks;
}

/// v.deepstack.16.x -> v.deepstack.1.x when 16 is the second block with a merger.
std::string renumber_deepstack(const std::string& stored, const std::set<std::int64_t>& blocks) {
  std::int64_t position = 0;
  for (const std::int64_t block : blocks) {
    if (auto renamed = rewrite(stored, fmt::format("v.deepstack.{}.*", block),
                               fmt::format("v.deepstack.{}.*", position))) {
      return *std::move(renamed);
    }
    ++position;
  }
  return stored;
}

class Planner {
 public:
  Planner(const TensorFile& file, const Recognised& recognised,
          const QuantizationRecords& quantization, const ComponentConfig& config, bool interleaved)
      : file_(file),
        recognised_(recognised),
        quantization_(quantization),
        config_(config),
        interleaved_(interleaved) {}

  Result<Plan> run() {
    MINIACC_RETURN_IF_ERROR(collect_parts());
    drop_incomplete();
    for (auto& [name, tensor] : plan_.tensors) {
      set_shape(tensor);
    }
    MINIACC_RETURN_IF_ERROR(set_head_dims());
    const ShapeLookup lookup = [this](std::string_view name) -> const Shape* {
      const auto found = plan_.tensors.find(name);
      return found == plan_.tensors.end() ? nullptr : &found->second.shape;
    };
    const std::optional<TextLayers> layers = wanted_text_layers();
    MINIACC_ASSIGN(Schema schema, read_schema(recognised_.component, lookup,
                                              layers ? std::optional(layers->used) : std::nullopt,
                                              file_.path().string()));
    if (!schema.encoder_problem.empty()) {
      plan_.encoder_problems.push_back(std::move(schema.encoder_problem));
    }
    compare_config(schema.facts, layers);
    plan_.dimensions = std::move(schema.dimensions);
    if (recognised_.component == Component::kTextEncoder) {
      drop_unused_layers(plan_.dimensions["num_layers_used"]);
    }
    compare(schema.tensors);
    return std::move(plan_);
  }

 private:
  Status collect_parts() {
    const std::set<std::int64_t> deepstack = deepstack_blocks(file_);
    for (const TensorEntry& entry : file_.entries()) {
      if (quantization_.side_tensors.contains(&entry)) {
        continue;
      }
      std::optional<MappedName> mapped;
      if (entry.name.starts_with(recognised_.prefix)) {
        const std::string name =
            renumber_deepstack(entry.name.substr(recognised_.prefix.size()), deepstack);
        mapped = to_canonical(recognised_.component, recognised_.naming, name);
      }
      if (!mapped) {
        plan_.unknown.push_back(entry.name);
        continue;
      }
      if (is_ignored(recognised_.component, mapped->canonical)) {
        continue;
      }
      MINIACC_RETURN_IF_ERROR(add_part(entry, *mapped));
    }
    return {};
  }

  Status add_part(const TensorEntry& entry, const MappedName& mapped) {
    CanonicalTensor& tensor = plan_.tensors[mapped.canonical];
    const auto index = static_cast<std::size_t>(mapped.part);
    const auto num_parts = static_cast<std::size_t>(mapped.num_parts);
    const bool is_new = tensor.parts.empty();
    if (is_new) {
      tensor.name = mapped.canonical;
      tensor.layout = mapped.layout;
      tensor.parts.resize(num_parts);
    }
    if (tensor.parts.size() != num_parts || tensor.layout != mapped.layout ||
        tensor.parts[index].values != nullptr) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: {} is stored twice (second time as {})", file_.path().string(),
                              mapped.canonical, entry.name));
    }
    StoredTensor& part = tensor.parts[index];
    part.values = &entry;
    if (const auto found = quantization_.weights.find(&entry);
        found != quantization_.weights.end()) {
      part.quantization = found->second;
    } else if (!is_weight_dtype(entry.dtype, file_.format())) {
      problems_of(mapped.canonical)
          .push_back(fmt::format("{}: {} is {}, wanted floating-point values", file_of(entry),
                                 entry.name, dtype_name(entry.dtype)));
    }
    return {};
  }

  void drop_incomplete() {
    for (auto place = plan_.tensors.begin(); place != plan_.tensors.end();) {
      const auto& parts = place->second.parts;
      const auto absent = std::find_if(parts.begin(), parts.end(), [](const StoredTensor& part) {
        return part.values == nullptr;
      });
      if (absent == parts.end()) {
        ++place;
        continue;
      }
      add_missing(place->first,
                  fmt::format("part {} of {}", absent - parts.begin() + 1, place->first));
      incomplete_.insert(place->first);
      place = plan_.tensors.erase(place);
    }
  }

  void set_shape(CanonicalTensor& tensor) {
    const Shape& first = tensor.parts.front().values->shape;
    tensor.shape = first;
    const auto bad_parts = [&](const TensorEntry& part) {
      problems_of(tensor.name)
          .push_back(fmt::format("{}: {} is {}, which does not fit {} {}", file_of(part), part.name,
                                 part.shape.to_string(), tensor.parts.front().values->name,
                                 first.to_string()));
      tensor.layout = RowLayout::kAsStored;
    };
    if (tensor.layout == RowLayout::kConcatenated) {
      for (std::size_t i = 1; i < tensor.parts.size(); ++i) {
        Shape same = tensor.parts[i].values->shape;
        if (same.rank() == 0 || same.rank() != first.rank()) {
          return bad_parts(*tensor.parts[i].values);
        }
        tensor.shape.set(0, tensor.shape[0] + same[0]);
        same.set(0, first[0]);
        if (same != first) {
          return bad_parts(*tensor.parts[i].values);
        }
      }
    } else if (tensor.layout == RowLayout::kWeightNorm) {
      const TensorEntry& magnitude = *tensor.parts[1].values;
      if (first.rank() == 0 || magnitude.shape.num_elements() != first[0]) {
        return bad_parts(magnitude);
      }
    } else if (tensor.layout == RowLayout::kPatchSlots) {
      const TensorEntry& second = *tensor.parts[1].values;
      if (first.rank() != 4 || second.shape != first) {
        return bad_parts(second);
      }
      tensor.shape = {first[0], first[1], 2, first[2], first[3]};
    } else if (tensor.layout == RowLayout::kSwappedHalves &&
               (first.rank() == 0 || first[0] % 2 != 0)) {
      plan_.problems.push_back(fmt::format("{}: {} is {}, wanted an even number of rows",
                                           file_of(*tensor.parts.front().values),
                                           tensor.parts.front().values->name, first.to_string()));
      tensor.layout = RowLayout::kAsStored;
    }
  }

  /// Channels per head of the fused rows; plain rows become kAsStored.
  Status set_head_dims() {
    std::int64_t head_dim = 0;
    if (recognised_.component == Component::kTransformer && interleaved_) {
      const auto norm = plan_.tensors.find("blocks.0.attn.q_norm.weight");
      if (norm != plan_.tensors.end() && norm->second.shape.rank() == 1) {
        head_dim = norm->second.shape[0];
      }
    } else if (recognised_.component == Component::kVideoVae) {
      MINIACC_ASSIGN(head_dim, video_head_dim());
    }
    for (auto& [name, tensor] : plan_.tensors) {
      if (tensor.layout != RowLayout::kInterleavedQkv) {
        continue;
      }
      if (recognised_.component == Component::kTransformer && !interleaved_) {
        tensor.layout = RowLayout::kAsStored;
        continue;
      }
      tensor.head_dim = head_dim;
      if (head_dim <= 0 || tensor.shape.rank() == 0 || tensor.shape[0] % (3 * head_dim) != 0) {
        plan_.problems.push_back(fmt::format("{}: {} is {}, wanted rows in whole heads of 3 x {}",
                                             file_of(*tensor.parts.front().values), name,
                                             tensor.shape.to_string(), head_dim));
        tensor.layout = RowLayout::kAsStored;
      }
    }
    return {};
  }

  /// How many layers of the text encoder are used, and the words of the configuration for it.
  struct TextLayers {
    std::int64_t used = 0;
    std::string said;
  };

  [[nodiscard]] std::optional<TextLayers> wanted_text_layers() const {
    for (const char* key : {"miniacc_text_layers", "num_hidden_layers"}) {
      const auto given = config_.values.find(key);
      const auto source = config_.sources.find(key);
      if (given == config_.values.end() || source == config_.sources.end()) {
        continue;
      }
      const auto count = static_cast<std::int64_t>(given->second.front());  // range checked
      TextLayers layers{count, fmt::format("{} {}", source->second, count)};
      if (std::string_view(key) == "num_hidden_layers" && count > kReleasedTextLayers) {
        layers.used = kReleasedTextLayers;
        layers.said += fmt::format(", of which {} are used", kReleasedTextLayers);
      }
      return layers;
    }
    return std::nullopt;
  }

  /// What the configuration says against what the tensors tell.
  void compare_config(Facts& facts, const std::optional<TextLayers>& layers) {
    if (recognised_.component == Component::kVideoVae) {
      add_video_head_dim(facts);
    }
    if (const auto stored = facts.find("stored_layers"); stored != facts.end() && layers) {
      const auto count = static_cast<std::int64_t>(stored->second.values.front());
      if (layers->used > count) {
        plan_.problems.push_back(
            fmt::format("{}, {}", layers->said, missing_member(stored->second.stack, count)));
      }
    }
    Facts encoder_facts;
    for (auto place = facts.begin(); place != facts.end();) {
      const auto next = std::next(place);
      if (place->first.starts_with(kEncoderFacts)) {
        encoder_facts.insert(facts.extract(place));
      }
      place = next;
    }
    for (std::string& sentence : contradictions(config_.claims, facts)) {
      plan_.problems.push_back(std::move(sentence));
    }
    for (std::string& sentence : contradictions(config_.claims, encoder_facts)) {
      plan_.encoder_problems.push_back(std::move(sentence));
    }
  }

  /// Shapes tell the width of the heads only together with their number.
  void add_video_head_dim(Facts& facts) const {
    const auto embedder = plan_.tensors.find("decoder.x_embedder.weight");
    const auto head_dim = video_head_dim();
    if (embedder == plan_.tensors.end() || !head_dim || *head_dim == 0) {
      return;  // reported by the schema and by set_head_dims
    }
    const std::int64_t width = embedder->second.shape[0];
    facts["head_dim"] = {{static_cast<double>(*head_dim)},
                         "",
                         fmt::format("the width {} in {} heads gives", width, width / *head_dim)};
  }

  [[nodiscard]] Result<std::int64_t> video_head_dim() const {
    const auto embedder = plan_.tensors.find("decoder.x_embedder.weight");
    if (embedder == plan_.tensors.end() || embedder->second.shape.rank() == 0) {
      return 0;  // reported as missing by the schema
    }
    const std::int64_t hidden = embedder->second.shape[0];
    const auto heads = config_.values.find("num_heads");
    if (heads == config_.values.end()) {
      return kReleasedVideoHeadDim;
    }
    const double count = heads->second.front();
    if (!(count >= 1.0) || count > static_cast<double>(hidden) ||
        hidden % static_cast<std::int64_t>(count) != 0) {
      return fail(ErrorCode::kInvalidInput,
                  fmt::format("{}: config says {} heads, wanted a divisor of the width {}",
                              file_.path().string(), count, hidden));
    }
    return hidden / static_cast<std::int64_t>(count);
  }

  /// Layers of the full language model after those whose output is used.
  void drop_unused_layers(std::int64_t used) {
    for (auto place = plan_.tensors.begin(); place != plan_.tensors.end();) {
      std::int64_t layer = -1;
      if (place->first.starts_with("layers.")) {
        const char* digits = place->first.data() + 7;
        std::from_chars(digits, place->first.data() + place->first.size(), layer);
      }
      place = layer >= used ? plan_.tensors.erase(place) : std::next(place);
    }
  }

  void compare(const std::vector<ExpectedTensor>& expected) {
    std::set<std::string> groups;
    std::set<std::string_view> names;
    for (const ExpectedTensor& wanted : expected) {
      names.insert(wanted.name);
      if (plan_.tensors.contains(wanted.name)) {
        groups.insert(wanted.group);
      }
    }
    for (const ExpectedTensor& wanted : expected) {
      const auto found = plan_.tensors.find(wanted.name);
      if (found != plan_.tensors.end()) {
        compare_shape(found->second, wanted.shape);
      } else if (wanted.name.ends_with(".filter")) {
        plan_.tensors[wanted.name] = {wanted.name, wanted.shape, RowLayout::kResampleFilter, 0, {}};
      } else if (!wanted.optional && !incomplete_.contains(wanted.name) &&
                 (wanted.group.empty() || groups.contains(wanted.group))) {
        add_missing(wanted.name, wanted.name);
      }
    }
    const bool has_encoder_sizes = names.contains(encoder_entry(recognised_.component));
    const bool has_encoder_tensors = std::any_of(
        plan_.tensors.begin(), plan_.tensors.end(),
        [&](const auto& item) { return is_encoder_tensor(recognised_.component, item.first); });
    if (has_encoder_tensors && !has_encoder_sizes && plan_.encoder_problems.empty()) {
      const std::string entry(encoder_entry(recognised_.component));
      add_missing(entry, entry);
    }
    for (auto place = plan_.tensors.begin(); place != plan_.tensors.end();) {
      if (names.contains(place->first)) {
        ++place;
        continue;
      }
      for (const StoredTensor& part : place->second.parts) {
        if (is_encoder_tensor(recognised_.component, place->first)) {
          if (!has_encoder_sizes) {
            continue;  // whether it belongs there cannot be said
          }
          plan_.encoder_problems.push_back(fmt::format("{}: tensor {} of the encoder is unknown",
                                                       file_of(*part.values), part.values->name));
        } else {
          plan_.unknown.push_back(part.values->name);
        }
      }
      place = plan_.tensors.erase(place);
    }
    std::sort(plan_.unknown.begin(), plan_.unknown.end());
  }

  void compare_shape(CanonicalTensor& tensor, const Shape& wanted) {
    if (tensor.shape == wanted) {
      return;
    }
    // GGUF has four dimensions at most and drops leading ones, so kernels may come flattened.
    if (file_.format() == ContainerFormat::kGguf &&
        tensor.shape.num_elements() == wanted.num_elements() &&
        tensor.layout == RowLayout::kAsStored) {
      tensor.shape = wanted;
      return;
    }
    const TensorEntry& stored = *tensor.parts.front().values;
    problems_of(tensor.name)
        .push_back(fmt::format("{}: {} is {}, wanted {}", file_of(stored), tensor.name,
                               tensor.shape.to_string(), wanted.to_string()));
  }

  std::vector<std::string>& problems_of(std::string_view canonical) {
    return is_encoder_tensor(recognised_.component, canonical) ? plan_.encoder_problems
                                                               : plan_.problems;
  }

  void add_missing(std::string_view canonical, std::string what) {
    if (is_encoder_tensor(recognised_.component, canonical)) {
      plan_.encoder_problems.push_back(
          fmt::format("{}: tensor {} of the encoder is missing", file_.path().string(), what));
    } else {
      plan_.missing.push_back(std::move(what));
    }
  }

  [[nodiscard]] std::string file_of(const TensorEntry& entry) const {
    return file_.files()[entry.file].path().string();
  }

  const TensorFile& file_;
  const Recognised& recognised_;
  const QuantizationRecords& quantization_;
  const ComponentConfig& config_;
  bool interleaved_;
  Plan plan_;
  std::set<std::string> incomplete_;
};

std::string list_names(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(kListedNames, names.size());
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > shown) {
    text += fmt::format(" and {} more", names.size() - shown);
  }
  return text;
}

}  // namespace

Result<Plan> make_plan(const TensorFile& file, const Recognised& recognised,
                       const QuantizationRecords& quantization, const ComponentConfig& config,
                       bool interleaved) {
  return Planner(file, recognised, quantization, config, interleaved).run();
}

Status check_plan(const TensorFile& file, Component component, const Plan& plan) {
  const auto counted = [&](const std::vector<std::string>& names, std::string_view what) {
    return fail(ErrorCode::kInvalidInput,
                fmt::format("{}: {} has {} {} tensor{}: {}", file.path().string(),
                            component_name(component), names.size(), what,
                            names.size() == 1 ? "" : "s", list_names(names)));
  };
  if (!plan.missing.empty()) {
    return counted(plan.missing, "missing");
  }
  if (!plan.problems.empty()) {
    std::string text = plan.problems.front();
    if (plan.problems.size() > 1) {
      text += fmt::format(" (and {} more problems)", plan.problems.size() - 1);
    }
    return fail(ErrorCode::kInvalidInput, std::move(text));
  }
  if (!plan.unknown.empty()) {
    return counted(plan.unknown, "unknown");
  }
  return {};
}

}  // namespace miniacc
