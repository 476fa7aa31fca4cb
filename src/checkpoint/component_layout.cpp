#include "checkpoint/component_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "device/cpu_device.h"
#include "kernels/linear.h"

namespace miniacc {
namespace {

constexpr float kF8Max = 448.0F;
constexpr std::string_view kComfyPrefix = "model.diffusion_model.";
constexpr std::size_t kWeightTail = 7;  // of ".weight"

Naming naming_of(Component component, CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::kOfficial:
      return Naming::kOfficial;
    case CheckpointFormat::kDiffusers:
      return component == Component::kTextEncoder ? Naming::kOfficial : Naming::kDiffusers;
    case CheckpointFormat::kComfy:
    case CheckpointFormat::kComfyPruned:
      return Naming::kComfy;
    case CheckpointFormat::kGguf:
      return component == Component::kTextEncoder ? Naming::kLlamaCpp : Naming::kComfy;
  }
  return Naming::kOfficial;
}

bool is_comfy(CheckpointFormat format) {
  return format == CheckpointFormat::kComfy || format == CheckpointFormat::kComfyPruned;
}

bool is_plain_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

DType gguf_type(WeightStorage storage, std::int64_t columns) {
  const DType wanted = storage == WeightStorage::kQ4_K   ? DType::kQ4_K
                       : storage == WeightStorage::kQ4_0 ? DType::kQ4_0
                                                         : DType::kQ8_0;
  return columns % block_elements(wanted) == 0 ? wanted : DType::kF16;
}

std::int64_t columns_of(const Shape& shape) { return shape.num_elements() / shape[0]; }

/// Where a stored row lies among the canonical ones, and how many after it follow there as well.
struct Run {
  std::int64_t row = 0;
  std::int64_t length = 0;
};

template <typename Locate>
RowFill moved(const RowFill& canonical, std::int64_t columns, Locate locate) {
  return [=](std::int64_t first, std::int64_t count, float* out) -> Status {
    for (std::int64_t done = 0; done < count;) {
      const Run run = locate(first + done);
      const std::int64_t rows = std::min(run.length, count - done);
      MINIACC_RETURN_IF_ERROR(canonical(run.row, rows, out + done * columns));
      done += rows;
    }
    return {};
  };
}

/// Canonical [Q;K;V] stored head by head.
RowFill interleaved(const RowFill& canonical, std::int64_t rows, std::int64_t columns,
                    std::int64_t head_dim) {
  return moved(canonical, columns, [=](std::int64_t stored) -> Run {
    const std::int64_t head = stored / (3 * head_dim);
    const std::int64_t projection = stored / head_dim % 3;
    const std::int64_t channel = stored % head_dim;
    return {projection * (rows / 3) + head * head_dim + channel, head_dim - channel};
  });
}

RowFill swapped(const RowFill& canonical, std::int64_t rows, std::int64_t columns) {
  return moved(canonical, columns, [=](std::int64_t stored) -> Run {
    const std::int64_t half = rows / 2;
    return stored < half ? Run{stored + half, half - stored} : Run{stored - half, rows - stored};
  });
}

/// ConvRot and per-row int8: rows rotated, with the scale of each. The scales are kept as the
/// values are made, because they are stored after them.
class RotatedRows {
 public:
  RotatedRows(ExpectedTensor tensor, RowFill canonical, const Shape& shape, std::int64_t group,
              Int8Observer observer)
      : tensor_(std::move(tensor)),
        canonical_(std::move(canonical)),
        columns_(shape[1]),
        group_(group),
        observer_(std::move(observer)),
        steps_(static_cast<std::size_t>(shape[0]), std::numeric_limits<float>::quiet_NaN()) {}

  Status values(std::int64_t first, std::int64_t count, float* out) {
    MINIACC_RETURN_IF_ERROR(canonical_(first, count, out));
    std::vector<float> original;
    if (observer_) {
      original.assign(out, out + count * columns_);
    }
    if (group_ > 0) {
      CpuDevice device;
      OpContext ctx{device};
      ops::rotate_rows(ctx, TensorView(out, {count, columns_}, DType::kF32), group_);
    }
    for (std::int64_t r = 0; r < count; ++r) {
      float peak = 0.0F;
      for (std::int64_t c = 0; c < columns_; ++c) {
        peak = std::max(peak, std::fabs(out[r * columns_ + c]));
      }
      const float step = peak > 0.0F ? peak / 127.0F : 1.0F;
      steps_[static_cast<std::size_t>(first + r)] = step;
      for (std::int64_t c = 0; c < columns_; ++c) {
        out[r * columns_ + c] =
            std::clamp(std::nearbyint(out[r * columns_ + c] / step), -127.0F, 127.0F);
      }
    }
    return observer_ ? observer_({&tensor_, count, columns_, original.data(), out,
                                  steps_.data() + first, group_})
                     : Status();
  }

  Status scales(std::int64_t first, std::int64_t count, float* out) {
    std::vector<float> row(static_cast<std::size_t>(columns_));
    for (std::int64_t r = 0; r < count; ++r) {
      float& step = steps_[static_cast<std::size_t>(first + r)];
      if (std::isnan(step)) {  // asked before the values
        MINIACC_RETURN_IF_ERROR(values(first + r, 1, row.data()));
      }
      out[r] = step;
    }
    return {};
  }

 private:
  ExpectedTensor tensor_;
  RowFill canonical_;
  std::int64_t columns_;
  std::int64_t group_;
  Int8Observer observer_;
  std::vector<float> steps_;
};

}  // namespace

void add_latent_statistics(LayoutBuilder& builder, const std::vector<double>& mean,
                           const std::vector<double>& deviation) {
  for (const auto& [name, values] :
       {std::pair("latents_mean", &mean), {"latents_std", &deviation}}) {
    if (!values->empty()) {
      const std::vector<float> stored(values->begin(), values->end());
      builder.add_stored(name, DType::kF32, {static_cast<std::int64_t>(stored.size())},
                         [stored](std::int64_t first, std::int64_t count, float* out) -> Status {
                           std::copy_n(stored.begin() + first, count, out);
                           return {};
                         });
    }
  }
}

bool is_folder_format(CheckpointFormat format) {
  return format == CheckpointFormat::kOfficial || format == CheckpointFormat::kDiffusers;
}

bool is_quantised_matrix(Component component, const ExpectedTensor& tensor) {
  const std::string& name = tensor.name;
  if (tensor.shape.rank() != 2 || name.find("norm") != std::string::npos) {
    return false;
  }
  if (component == Component::kTransformer) {
    return name.starts_with("blocks.") && name.find("adaln") == std::string::npos;
  }
  return component == Component::kTextEncoder && name.starts_with("layers.");
}

LayoutBuilder::LayoutBuilder(LayoutOptions options)
    : options_(std::move(options)), naming_(naming_of(options_.component, options_.format)) {}

/// The stored type of a tensor that is no 8-bit safetensors matrix.
DType LayoutBuilder::plain_type(const CanonicalSource& source) const {
  const ExpectedTensor& tensor = source.tensor;
  const bool keeps = options_.storage == WeightStorage::kAsStored;
  const auto stored_or = [&](DType other) {
    return is_plain_float(source.stored) ? source.stored : other;
  };
  if (options_.component == Component::kVideoVae || options_.component == Component::kAudioVae) {
    return stored_or(DType::kF32);
  }
  if (options_.component == Component::kTransformer) {
    if (is_f32_island(tensor.name)) {
      return keeps ? stored_or(DType::kF32) : DType::kF32;
    }
    if (options_.format == CheckpointFormat::kComfyPruned &&
        tensor.name.find("adaln_proj") != std::string::npos) {
      return keeps                                     ? stored_or(DType::kF16)
             : options_.storage == WeightStorage::kF32 ? DType::kF32
                                                       : DType::kF16;
    }
  }
  const std::int64_t columns = tensor.shape.rank() == 2 ? tensor.shape[1] : 1;
  switch (options_.storage) {
    case WeightStorage::kAsStored:
      return stored_or(DType::kBF16);
    case WeightStorage::kF32:
      return DType::kF32;
    case WeightStorage::kF16:
      return DType::kF16;
    case WeightStorage::kQ8_0:
    case WeightStorage::kQ4_0:
    case WeightStorage::kQ4_K:
      if (is_quantised_matrix(options_.component, tensor)) {
        return gguf_type(options_.storage, columns);
      }
      return tensor.shape.rank() >= 2 ? stored_or(DType::kBF16) : DType::kF32;
    default:
      return DType::kBF16;
  }
}

std::string LayoutBuilder::prefix() const {
  return options_.component == Component::kTransformer && is_comfy(options_.format)
             ? std::string(kComfyPrefix)
             : "";
}

void LayoutBuilder::add_stored(const std::string& name, DType dtype, const Shape& shape,
                               RowFill fill) {
  outputs_.push_back({{prefix() + name, dtype, shape}, std::move(fill)});
}

void LayoutBuilder::push_content(const std::string& name, DType dtype, const Shape& shape,
                                 std::function<Result<std::vector<std::byte>>()> content) {
  outputs_.push_back({{prefix() + name, dtype, shape}, {}, std::move(content)});
}

std::vector<OutputTensor> LayoutBuilder::finish() {
  if (has_fp8_) {
    push_content("scaled_fp8", DType::kF8E4M3, {2},
                 []() -> Result<std::vector<std::byte>> { return std::vector<std::byte>(2); });
  }
  return std::move(outputs_);
}

/// llama.cpp numbers the DeepStack mergers by vision block.
std::string LayoutBuilder::renumbered(const std::string& name) const {
  if (naming_ != Naming::kLlamaCpp) {
    return name;
  }
  for (std::size_t j = 0; j < options_.deepstack_blocks.size(); ++j) {
    if (auto renamed = rewrite(
            name, fmt::format("visual.deepstack_merger_list.{}.*", j),
            fmt::format("visual.deepstack_merger_list.{}.*", options_.deepstack_blocks[j]))) {
      return *std::move(renamed);
    }
  }
  return name;
}

void LayoutBuilder::add(const CanonicalSource& source) {
  const std::string& name = source.tensor.name;
  if (options_.component == Component::kTransformer && name == "rope.inv_freq" &&
      naming_ == Naming::kDiffusers) {
    return;  // that layout computes it
  }
  if (options_.component == Component::kAudioVae && is_folder_format(options_.format) &&
      is_weight_normed(name) && source.splits_weight_norm) {
    return add_weight_norm(source);
  }
  const Shape& shape = source.tensor.shape;
  const std::int64_t rows = shape[0];
  const std::int64_t columns = columns_of(shape);
  for (const StoredName& stored : to_stored(options_.component, naming_, renumbered(name))) {
    switch (stored.layout) {
      case RowLayout::kConcatenated: {
        Shape part = shape;
        part.set(0, rows / 3);
        const std::int64_t begin = stored.part * (rows / 3);
        add_values(stored.stored, source, part,
                   [begin, fill = source.rows](std::int64_t first, std::int64_t count, float* out) {
                     return fill(begin + first, count, out);
                   });
        break;
      }
      case RowLayout::kInterleavedQkv:
        // ComfyUI's transformer files hold the rows plain; the video VAE has one order only.
        add_values(stored.stored, source, shape,
                   options_.component == Component::kTransformer && naming_ == Naming::kComfy
                       ? source.rows
                       : interleaved(source.rows, rows, columns, options_.head_dim));
        break;
      case RowLayout::kSwappedHalves:
        add_values(stored.stored, source, shape, swapped(source.rows, rows, columns));
        break;
      case RowLayout::kPatchSlots:
        add_patch_slot(stored, source);
        break;
      default:
        add_values(stored.stored, source, shape, source.rows);
    }
  }
}

void LayoutBuilder::add_weight_norm(const CanonicalSource& source) {
  const Shape& shape = source.tensor.shape;
  const std::string& name = source.tensor.name;
  const std::string stem = name.substr(0, name.size() - kWeightTail);
  const DType dtype = plain_type(source);
  add_stored(stem + ".weight_v", dtype, shape, source.direction ? source.direction : source.rows);
  RowFill magnitude = source.magnitude;
  if (!magnitude) {
    magnitude = [fill = source.rows, columns = columns_of(shape)](
                    std::int64_t first, std::int64_t count, float* out) -> Status {
      std::vector<float> row(static_cast<std::size_t>(columns));
      for (std::int64_t r = 0; r < count; ++r) {
        MINIACC_RETURN_IF_ERROR(fill(first + r, 1, row.data()));
        double squares = 0.0;
        for (const float value : row) {
          squares += static_cast<double>(value) * value;
        }
        out[r] = static_cast<float>(std::sqrt(squares));
      }
      return {};
    };
  }
  Shape one_a_row = shape;
  for (int axis = 1; axis < shape.rank(); ++axis) {
    one_a_row.set(axis, 1);
  }
  const bool given = static_cast<bool>(source.magnitude) && is_plain_float(source.magnitude_stored);
  add_stored(stem + ".weight_g", given ? source.magnitude_stored : dtype, one_a_row,
             std::move(magnitude));
}

void LayoutBuilder::add_patch_slot(const StoredName& stored, const CanonicalSource& source) {
  const Shape& shape = source.tensor.shape;  // [n, c, 2, p, p]
  const std::int64_t columns = columns_of(shape);
  const std::int64_t plane = shape[3] * shape[4];
  add_stored(stored.stored, plain_type(source), {shape[0], shape[1], shape[3], shape[4]},
             [=, part = stored.part, fill = source.rows](std::int64_t first, std::int64_t count,
                                                         float* out) -> Status {
               std::vector<float> row(static_cast<std::size_t>(columns));
               for (std::int64_t r = 0; r < count; ++r) {
                 MINIACC_RETURN_IF_ERROR(fill(first + r, 1, row.data()));
                 for (std::int64_t c = 0; c < shape[1]; ++c) {
                   std::copy_n(row.data() + (2 * c + part) * plane, plane,
                               out + (r * shape[1] + c) * plane);
                 }
               }
               return {};
             });
}

void LayoutBuilder::add_values(const std::string& name, const CanonicalSource& source,
                               const Shape& shape, const RowFill& fill) {
  const bool quantised = is_quantised_matrix(options_.component, source.tensor);
  if (options_.storage == WeightStorage::kAsStored && source.int8_values &&
      is_comfy(options_.format)) {
    const std::string stem = name.substr(0, name.size() - kWeightTail);
    push_content(name, DType::kI8, shape, source.int8_values);
    push_content(stem + ".weight_scale", DType::kF32, {shape[0], 1}, source.int8_scales);
    add_int8_record(stem, source.int8_rotation_group);
  } else if (quantised && options_.storage == WeightStorage::kFp8Scaled) {
    add_fp8(name, source, shape, fill);
  } else if (quantised && options_.storage == WeightStorage::kInt8ConvRot) {
    add_int8(name, source, shape, fill);
  } else {
    add_stored(name, plain_type(source), shape, fill);
  }
}

void LayoutBuilder::add_fp8(const std::string& name, const CanonicalSource& source,
                            const Shape& shape, const RowFill& fill) {
  // Found once, by whichever of the two tensors is written first.
  const auto scale = [found = std::make_shared<float>(0.0F),
                      peak = source.peak]() -> Result<float> {
    if (*found == 0.0F) {
      MINIACC_ASSIGN(const float largest, peak());
      *found = largest > 0.0F ? largest / kF8Max : 1.0F;
    }
    return *found;
  };
  const std::int64_t columns = shape[1];
  add_stored(name, DType::kF8E4M3, shape,
             [=](std::int64_t first, std::int64_t count, float* out) -> Status {
               MINIACC_ASSIGN(const float factor, scale());
               MINIACC_RETURN_IF_ERROR(fill(first, count, out));
               for (std::int64_t i = 0; i < count * columns; ++i) {
                 out[i] /= factor;
               }
               return {};
             });
  add_stored(name.substr(0, name.size() - kWeightTail) + ".scale_weight", DType::kF32, {1},
             [=](std::int64_t, std::int64_t, float* out) -> Status {
               MINIACC_ASSIGN(*out, scale());
               return {};
             });
  has_fp8_ = true;
}

void LayoutBuilder::add_int8(const std::string& name, const CanonicalSource& source,
                             const Shape& shape, const RowFill& fill) {
  const std::int64_t wanted = options_.rotation_group;
  const std::int64_t group = wanted > 0 && shape[1] % wanted == 0 ? wanted : 0;
  const auto rows =
      std::make_shared<RotatedRows>(source.tensor, fill, shape, group, options_.int8_observer);
  const std::string stem = name.substr(0, name.size() - kWeightTail);
  add_stored(name, DType::kI8, shape, [rows](std::int64_t first, std::int64_t count, float* out) {
    return rows->values(first, count, out);
  });
  add_stored(stem + ".weight_scale", DType::kF32, {shape[0], 1},
             [rows](std::int64_t first, std::int64_t count, float* out) {
               return rows->scales(first, count, out);
             });
  add_int8_record(stem, group);
}

void LayoutBuilder::add_int8_record(const std::string& stem, std::int64_t group) {
  const std::string record = group > 0
                                 ? fmt::format(R"({{"format": "int8_tensorwise", "convrot": true, )"
                                               R"("convrot_groupsize": {}}})",
                                               group)
                                 : R"({"format": "int8_tensorwise"})";
  push_content(stem + ".comfy_quant", DType::kU8, {static_cast<std::int64_t>(record.size())},
               [record]() -> Result<std::vector<std::byte>> {
                 const auto bytes = std::as_bytes(std::span(record));
                 return std::vector<std::byte>(bytes.begin(), bytes.end());
               });
}

}  // namespace miniacc
