#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda_device.h"
#include "kernels/attention.h"
#include "kernels/attention_int8.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/hopper/attention.h"
#include "kernels/cuda/matmul.h"
#include "kernels/fused.h"

// gpu_bench [--smoke] [--filter WORD] [--repeats N] [--json]: times copies (the memory's and the
// bus's ceiling), the matrix products in every form that the card has, attention and their
// producers at the sizes of the frozen workload (spec acceleration_full.md §11: 37,966
// rows) on CUDA device 0, beside each one's floor: the operations and the bytes that no
// implementation avoids. A row: median, smallest and largest of N runs after two that are not
// counted, operations a second and compulsory bytes a second. --smoke: small sizes, one run, to see
// that all cases work.
namespace miniacc::bench {
namespace {

struct Settings {
  bool smoke = false;
  bool json = false;
  int repeats = 10;
  std::string filter;
};

/// Sizes of one transformer block.
struct Workload {
  std::int64_t rows, hidden, ffn, heads, head_dim;
};
constexpr Workload kFull = {37966, 5376, 14336, 56, 128};
constexpr Workload kSmoke = {130, 256, 512, 2, 128};

struct Floor {
  double operations = 0.0;
  double bytes = 0.0;
};

/// A matrix of the block: out = x [rows, k] · w [n, k].
struct Layer {
  const char* name;
  std::int64_t n, k;
};

/// A kernel of the products and its order of tiles.
struct Form {
  ops::cuda::MatmulTile tile = ops::cuda::MatmulTile::kAuto;
  ops::cuda::MatmulRaster raster = {};
};

/// How int8 operands are spread: over all codes alike, or as the quantiser leaves normal values,
/// the largest of a row at 127. A card at its power limit is faster with the second.
enum class Codes { kUniform, kNormal };

class Bench {
 public:
  Bench(CudaDevice& device, const Settings& settings, const Workload& sizes)
      : device_(device),
        settings_(settings),
        sizes_(sizes),
        stream_(cuda::make_stream(device.id().ordinal)) {}

  void run_all() {
    if (!settings_.json) {
      fmt::print("{:<62} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "case", "median ms", "min", "max",
                 "TOP/s", "GB/s");
    }
    copies();
    block_products(Codes::kUniform);
    block_products(Codes::kNormal);
    for (const Layer& layer : layers()) {
      products(layer);
    }
    attentions();
    long_attentions();
    producers();
  }

 private:
  OpContext ctx() { return {.device = device_, .num_threads = 1, .stream = stream_.get()}; }

  [[nodiscard]] bool wanted(const std::string& name) const {
    return name.find(settings_.filter) != std::string::npos;
  }

  /// Values that are neither zero nor special: f32 in [-1, 1), bf16 likewise, random bytes for i8.
  Tensor filled(const Shape& shape, DType dtype, std::uint64_t seed,
                Codes codes = Codes::kUniform) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 22;
    Tensor tensor = empty_tensor(device_, shape, dtype);
    const auto bytes = static_cast<std::int64_t>(tensor.size_bytes());
    std::vector<std::uint8_t> host(static_cast<std::size_t>(std::min(kPiece, bytes)));
    std::uint64_t state = seed * 2 + 1;
    const auto next = [&] {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return static_cast<float>(static_cast<std::int64_t>(state) >> 32) * 0x1.0p-31F;
    };
    const auto code = [&] {
      if (codes == Codes::kUniform) {
        return 127.0F * next();
      }
      float sum = 0.0F;  // of eight: a standard deviation of 1.63; 127 becomes 4.3 of them
      for (int i = 0; i < 8; ++i) {
        sum += next();
      }
      return std::clamp(18.0F * sum, -127.0F, 127.0F);
    };
    const std::size_t width = block_bytes(dtype);
    for (std::size_t at = 0; at + width <= host.size(); at += width) {
      const float value = dtype == DType::kI8 ? 0.0F : next();
      if (dtype == DType::kI8) {
        host[at] = static_cast<std::uint8_t>(static_cast<int>(code()));
      } else {  // the upper half of an f32 is a bf16
        std::memcpy(host.data() + at,
                    reinterpret_cast<const std::uint8_t*>(&value) + (sizeof(float) - width), width);
      }
    }
    const TensorView flat(tensor.view().data, {bytes}, DType::kU8, device_.id());
    for (std::int64_t at = 0; at < bytes; at += kPiece) {
      const std::int64_t count = std::min(kPiece, bytes - at);
      cuda::copy_async(flat.narrow(0, at, count), ConstTensorView(host.data(), {count}, DType::kU8),
                       stream_.get());
    }
    cuda::synchronize(stream_.get());
    return tensor;
  }

  struct Case {
    std::string name;
    Floor floor;
    std::function<void(OpContext&)> body;
  };

  void measure(const std::string& name, const Floor& floor,
               const std::function<void(OpContext&)>& body) {
    measure({{name, floor, body}});
  }

  /// In turns: a card at its power limit lowers its clock as it warms up, so that cases timed one
  /// after the other are not comparable.
  void measure(const std::vector<Case>& cases) {
    OpContext context = ctx();
    const int unmeasured = settings_.smoke ? 0 : 2;
    const int repeats = settings_.smoke ? 1 : settings_.repeats;
    const cuda::Event start = cuda::make_event(device_.id().ordinal, cuda::EventTiming::kOn);
    const cuda::Event stop = cuda::make_event(device_.id().ordinal, cuda::EventTiming::kOn);
    std::vector<std::vector<double>> times(cases.size());
    for (int round = 0; round < unmeasured + repeats; ++round) {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        cuda::record(start, stream_.get());
        cases[i].body(context);
        cuda::record(stop, stream_.get());
        cuda::synchronize(stop);
        if (round >= unmeasured) {
          times[i].push_back(static_cast<double>(cuda::elapsed_ms(start, stop)));
        }
      }
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
      print(cases[i], times[i]);
    }
  }

  void print(const Case& measured, std::vector<double> times) const {
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    const Floor& floor = measured.floor;
    const double tops = median > 0.0 ? floor.operations / median * 1e-9 : 0.0;
    const double gbs = median > 0.0 ? floor.bytes / median * 1e-6 : 0.0;
    if (settings_.json) {
      fmt::print(
          "{{\"case\":\"{}\",\"gpu\":\"{}\",\"median_ms\":{:.4f},\"min_ms\":{:.4f},\"max_ms\":{:."
          "4f},"
          "\"repeats\":{},\"floor_operations\":{:.0f},\"floor_bytes\":{:.0f}}}\n",
          measured.name, device_.info().name, median, times.front(), times.back(), times.size(),
          floor.operations, floor.bytes);
    } else {
      fmt::print("{:<62} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.1f} {:>9.1f}\n", measured.name, median,
                 times.front(), times.back(), tops, gbs);
    }
    std::fflush(stdout);
  }

  [[nodiscard]] std::vector<Layer> layers() const {
    const std::int64_t attention = sizes_.heads * sizes_.head_dim;
    return {{"qkv_proj", 3 * attention, sizes_.hidden},
            {"out_proj", sizes_.hidden, attention},
            {"fc1", 2 * sizes_.ffn, sizes_.hidden},
            {"fc2", sizes_.hidden, sizes_.ffn}};
  }

  /// What the card takes besides its own choice, which comes first.
  static std::vector<Form> forms(const TensorView& out) {
    using ops::cuda::MatmulTile;
    std::vector<Form> all = {{}, {MatmulTile::k128x256}};
    if (ops::cuda::wgmma_takes(out)) {
      for (const MatmulTile tile : {MatmulTile::kWgmma128x256, MatmulTile::kWgmmaPingPong128x128}) {
        for (const int group : {4, 8, 12, 16}) {
          all.push_back({tile, {group, true}});
          all.push_back({tile, {group, false}});
        }
      }
    }
    return all;
  }

  static std::string form_name(const Form& form, const TensorView& out) {
    if (form.tile == ops::cuda::MatmulTile::kAuto) {
      return fmt::format("auto: {}", ops::cuda::name(ops::cuda::chosen_tile(out)));
    }
    if (form.raster.group == 0) {
      return ops::cuda::name(form.tile);
    }
    return fmt::format("{} {}{}", ops::cuda::name(form.tile), form.raster.along_rows ? "m" : "n",
                       form.raster.group);
  }

  /// What the card's memory and the bus give to plain copies.
  void copies() {
    const std::int64_t bytes = settings_.smoke ? 1 << 16 : std::int64_t{1} << 30;
    if (!wanted("copy")) {
      return;
    }
    const Tensor from = filled({bytes}, DType::kI8, 7);
    Tensor to = empty_tensor(device_, {bytes}, DType::kI8);
    CudaPinnedHost host(static_cast<std::size_t>(bytes));
    Tensor pinned = empty_tensor(host, {bytes}, DType::kI8);
    const auto size = static_cast<double>(bytes);
    measure("copy inside the device, read and written", {0.0, 2.0 * size},
            [&](OpContext& context) { cuda::copy_async(to.view(), from.view(), context.stream); });
    measure("copy to the host, pinned", {0.0, size}, [&](OpContext& context) {
      cuda::copy_async(pinned.view(), from.view(), context.stream);
    });
    measure("copy from the host, pinned", {0.0, size}, [&](OpContext& context) {
      cuda::copy_async(to.view(), pinned.view(), context.stream);
    });
  }

  struct Int8Operands {
    Tensor x, x_scale, w, w_scale;
  };
  Int8Operands int8_operands(const Layer& layer, Codes codes = Codes::kUniform) {
    return {filled({sizes_.rows, layer.k}, DType::kI8, 1, codes),
            filled({sizes_.rows}, DType::kF32, 3), filled({layer.n, layer.k}, DType::kI8, 2, codes),
            filled({layer.n}, DType::kF32, 4)};
  }

  /// The four int8 products of a block one after the other, as the block runs them.
  void block_products(Codes codes) {
    const std::string name =
        codes == Codes::kUniform ? "linear int8 block " : "linear int8 block, normal values, ";
    if (!wanted(name)) {
      return;
    }
    std::vector<Int8Operands> operands;
    Floor floor;
    for (const Layer& layer : layers()) {
      operands.push_back(int8_operands(layer, codes));
      const Floor part = product_floor(layer, 1);
      floor.operations += part.operations;
      floor.bytes += part.bytes;
    }
    Tensor largest = empty_tensor(device_, {sizes_.rows, 2 * sizes_.ffn});
    std::vector<Case> cases;
    for (const Form& form : forms(largest.view())) {
      cases.push_back(
          {name + form_name(form, largest.view()), floor, [&, form](OpContext& context) {
             for (std::size_t i = 0; i < operands.size(); ++i) {
               const TensorView out(largest.view().data, {sizes_.rows, layers()[i].n}, DType::kF32,
                                    device_.id());
               const Int8Operands& o = operands[i];
               ops::cuda::matmul_int8(context, out, o.x.view(), o.x_scale.view(), o.w.view(),
                                      o.w_scale.view(), {}, form.tile, form.raster);
             }
           }});
    }
    if (codes == Codes::kNormal) {
      cases.resize(1);
    }
    measure(cases);
  }

  [[nodiscard]] Floor product_floor(const Layer& layer, std::int64_t value_bytes) const {
    const std::int64_t m = sizes_.rows;
    return {2.0 * static_cast<double>(m) * static_cast<double>(layer.n * layer.k),
            static_cast<double>((m + layer.n) * layer.k * value_bytes + 4 * m * layer.n)};
  }

  /// One of the four products, in bf16 and in int8 with its epilogue, operands already made.
  void products(const Layer& layer) {
    const std::int64_t m = sizes_.rows;
    const std::string shape = fmt::format("{} {}x{}x{}", layer.name, m, layer.n, layer.k);
    Tensor out = empty_tensor(device_, {m, layer.n});
    if (wanted("linear bf16 " + shape)) {
      const Tensor x = filled({m, layer.k}, DType::kBF16, 1);
      const Tensor w = filled({layer.n, layer.k}, DType::kBF16, 2);
      std::vector<Case> cases;
      for (const Form& form : forms(out.view())) {
        if (form.raster.group == 0 || form.raster.group == 8) {
          cases.push_back({"linear bf16 " + shape + " " + form_name(form, out.view()),
                           product_floor(layer, 2), [&, form](OpContext& context) {
                             ops::cuda::matmul_bf16(context, out.view(), x.view(), w.view(), {},
                                                    form.tile, form.raster);
                           }});
        }
      }
      measure(cases);
    }
    if (wanted("linear int8 " + shape)) {
      const Int8Operands o = int8_operands(layer);
      std::vector<Case> cases;
      for (const Form& form : forms(out.view())) {
        cases.push_back({"linear int8 " + shape + " " + form_name(form, out.view()),
                         product_floor(layer, 1), [&, form](OpContext& context) {
                           ops::cuda::matmul_int8(context, out.view(), o.x.view(), o.x_scale.view(),
                                                  o.w.view(), o.w_scale.view(), {}, form.tile,
                                                  form.raster);
                         }});
      }
      measure(cases);
    }
  }

  void attentions() {
    const std::int64_t rows = sizes_.rows;
    const std::string shape = fmt::format("{}x{}x{}", rows, sizes_.heads, sizes_.head_dim);
    const std::int64_t values = rows * sizes_.heads * sizes_.head_dim;
    const auto operations = 4.0 * static_cast<double>(rows) * static_cast<double>(values);
    if (!wanted("attention bf16 " + shape) && !int8_attention_wanted(shape)) {
      return;
    }
    const Tensor qkv = filled({rows, 3 * sizes_.heads, sizes_.head_dim}, DType::kF32, 1);
    const auto part = [&](std::int64_t at) {
      return qkv.view().narrow(1, at * sizes_.heads, sizes_.heads);
    };
    Tensor out = empty_tensor(device_, {rows, sizes_.heads, sizes_.head_dim});
    const float scale = 0.0883883476F;  // 1 / sqrt(128)
    if (wanted("attention bf16 " + shape)) {
      measure("attention bf16 " + shape + " from f32",
              {operations, static_cast<double>(16 * values)}, [&](OpContext& context) {
                ops::attention(context, out.view(), part(0), part(1), part(2),
                               {.scale = scale, .precision = Precision::kBF16});
              });
    }
    int8_attentions(rows, sizes_.heads, qkv, out, scale);
  }

  /// Sizes beyond the frozen workload's, on a few heads.
  void long_attentions() {
    const std::int64_t heads = settings_.smoke ? 1 : 8;
    for (const std::int64_t rows : settings_.smoke ? std::vector<std::int64_t>{200}
                                                   : std::vector<std::int64_t>{110000, 170000}) {
      if (!int8_attention_wanted(fmt::format("{}x{}x{}", rows, heads, sizes_.head_dim))) {
        continue;
      }
      const Tensor qkv = filled({rows, 3 * heads, sizes_.head_dim}, DType::kF32, 1);
      Tensor out = empty_tensor(device_, {rows, heads, sizes_.head_dim});
      int8_attentions(rows, heads, qkv, out, 0.0883883476F);
    }
  }

  [[nodiscard]] bool int8_attention_wanted(const std::string& shape) const {
    return wanted("qk_norm_rope_quantize int8 mma.sync " + shape) ||
           wanted("qk_norm_rope_quantize int8 wgmma " + shape) ||
           wanted("attention int8 mma.sync " + shape) || wanted("attention int8 wgmma " + shape);
  }

  /// Both steps of every form that the device has, the second in every schedule.
  void int8_attentions(std::int64_t rows, std::int64_t heads, const Tensor& qkv, Tensor& out,
                       float scale) {
    using ops::AttentionForm;
    const std::int64_t dim = sizes_.head_dim;
    const std::string shape = fmt::format("{}x{}x{}", rows, heads, dim);
    const auto values = static_cast<double>(rows * heads * dim);
    const Floor floor = {4.0 * static_cast<double>(rows) * values, 8.0 * values};
    const auto part = [&](std::int64_t at) { return qkv.view().narrow(1, at * heads, heads); };
    const Tensor norm = filled({dim}, DType::kF32, 5);
    const Tensor angles = filled({rows, 48}, DType::kF32, 6);
    for (const AttentionForm form : {AttentionForm::kMmaSync, AttentionForm::kWgmma}) {
      if (form == AttentionForm::kWgmma && !ops::cuda::hopper::attention_available(device_.id())) {
        continue;
      }
      const std::string name(ops::attention_form_name(form));
      auto quantized = ops::empty_quantized_attention(device_, rows, heads, rows, heads, dim, form);
      const auto quantize = [&](OpContext& context) {
        ops::qk_norm_rope_quantize(context, quantized, part(0), part(1), part(2),
                                   {norm.view(), norm.view(), 1e-6F, angles.view(), angles.view()});
      };
      if (wanted("qk_norm_rope_quantize " + name + " " + shape)) {
        // k is read once more for its means, v for its peaks.
        measure("qk_norm_rope_quantize " + name + " " + shape, {0.0, 24.0 * values}, quantize);
      } else {
        OpContext context = ctx();
        quantize(context);
      }
      if (!wanted("attention " + name + " " + shape)) {
        continue;
      }
      if (form == AttentionForm::kMmaSync) {
        for (const auto layout : ops::cuda::kAttentionLayouts) {
          measure(fmt::format("attention {} {} layout {}", name, shape, static_cast<int>(layout)),
                  floor, [&](OpContext& context) {
                    ops::cuda::attention_int8_mma(context, out.view(), quantized, scale, layout);
                  });
        }
        continue;
      }
      for (const auto schedule : ops::cuda::hopper::kAttentionSchedules) {
        measure(fmt::format("attention {} {} {}", name, shape,
                            ops::cuda::hopper::attention_schedule_name(schedule)),
                floor, [&](OpContext& context) {
                  ops::cuda::hopper::attention_int8(context, out.view(), quantized, scale,
                                                    schedule);
                });
      }
    }
  }

  void producers() {
    const std::int64_t rows = sizes_.rows;
    const auto bytes = [&](std::int64_t columns, std::int64_t a_value) {
      return Floor{0.0, static_cast<double>(rows * columns * a_value)};
    };
    const std::int64_t attention = sizes_.heads * sizes_.head_dim;
    Tensor scale = empty_tensor(device_, {rows});
    const auto name = [&](const char* op, std::int64_t columns) {
      return fmt::format("{} {}x{}", op, rows, columns);
    };
    if (wanted(name("modulated_rms_norm_quantize", sizes_.hidden))) {
      const Tensor x = filled({rows, sizes_.hidden}, DType::kF32, 1);
      const Tensor weight = filled({sizes_.hidden}, DType::kF32, 2);
      const Tensor table = filled({1, sizes_.hidden}, DType::kF32, 3);
      Tensor index = empty_tensor(device_, {rows}, DType::kI32);
      const std::vector<std::int32_t> zeros(static_cast<std::size_t>(rows), 0);
      cuda::copy_async(index.view(), ConstTensorView(zeros.data(), {rows}, DType::kI32),
                       stream_.get());
      cuda::synchronize(stream_.get());
      Tensor out = empty_tensor(device_, {rows, sizes_.hidden}, DType::kI8);
      measure(name("modulated_rms_norm_quantize", sizes_.hidden), bytes(sizes_.hidden, 5),
              [&](OpContext& context) {
                ops::modulated_rms_norm_quantize(context, out.view(), scale.view(), x.view(),
                                                 weight.view(), table.view(), table.view(),
                                                 index.view(), 1e-5F, 256);
              });
    }
    if (wanted(name("rotate_quantize_rows", attention))) {
      const Tensor x = filled({rows, attention}, DType::kF32, 1);
      Tensor out = empty_tensor(device_, {rows, attention}, DType::kI8);
      measure(name("rotate_quantize_rows", attention), bytes(attention, 5),
              [&](OpContext& context) {
                ops::rotate_quantize_rows(context, out.view(), scale.view(), x.view(), 256);
              });
    }
    if (wanted(name("silu_mul_quantize", sizes_.ffn))) {
      const Tensor fc1 = filled({rows, 2 * sizes_.ffn}, DType::kF32, 1);
      Tensor out = empty_tensor(device_, {rows, sizes_.ffn}, DType::kI8);
      measure(name("silu_mul_quantize", sizes_.ffn), bytes(sizes_.ffn, 9), [&](OpContext& context) {
        ops::silu_mul_quantize(context, out.view(), scale.view(),
                               fc1.view().narrow(1, 0, sizes_.ffn),
                               fc1.view().narrow(1, sizes_.ffn, sizes_.ffn), 256);
      });
    }
  }

  CudaDevice& device_;
  const Settings& settings_;
  const Workload& sizes_;
  cuda::Stream stream_;
};

int usage() {
  fmt::print(stderr, "usage: gpu_bench [--smoke] [--json] [--filter WORD] [--repeats N]\n");
  return 2;
}

int run(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--smoke") {
      settings.smoke = true;
    } else if (flag == "--json") {
      settings.json = true;
    } else if (flag == "--filter" && i + 1 < argc) {
      settings.filter = argv[++i];
    } else if (flag == "--repeats" && i + 1 < argc) {
      settings.repeats = std::atoi(argv[++i]);
      if (settings.repeats < 1 || settings.repeats > 10000) {
        fmt::print(stderr, "gpu_bench: --repeats is 1 to 10000, got {}\n", argv[i]);
        return 2;
      }
    } else {
      return usage();
    }
  }
  auto device = CudaDevice::open(0);
  if (!device) {
    fmt::print(stderr, "gpu_bench: {}\n", device.error().message);
    return 1;
  }
  if (!settings.json) {
    fmt::print("{}, compute capability {}.{}\n", (*device)->info().name,
               (*device)->info().compute_major, (*device)->info().compute_minor);
  }
  Bench(**device, settings, settings.smoke ? kSmoke : kFull).run_all();
  return 0;
}

}  // namespace
}  // namespace miniacc::bench

int main(int argc, char** argv) {
  try {
    return miniacc::bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 1;
  }
}
