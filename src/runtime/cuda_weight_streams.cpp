#include "runtime/cuda_weight_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "device/cuda_device.h"
#include "runtime/cuda_streamed_layers.h"
#include "runtime/device_plan.h"

namespace miniacc::cuda {
namespace {

constexpr std::int64_t kNumStaging = 3;
constexpr std::array<const char*, 3> kNames = {"text encoder", "transformer", "video VAE"};

class CudaWeightStreams final : public WeightStreams {
 public:
  CudaWeightStreams(ComputeDevice& compute, const StreamOptions& options)
      : compute_(compute), options_(options) {}

  Result<LayerSource*> begin(const StreamRequest& request) override {
    const auto which = static_cast<std::size_t>(request.which);
    if (!stacks_[which]) {
      stacks_[which] = std::make_unique<StreamedLayers>(*request.weights, request.stack,
                                                        *compute_.card, options_.num_threads);
    }
    StreamedLayers& layers = *stacks_[which];
    const std::size_t beside =
        request.reserved_bytes + request.side_bytes + reserve_slack(compute_.ceiling_bytes);
    if (layers.device_plan() != nullptr &&
        layers.device_bytes() + beside + others_bytes(which) > compute_.ceiling_bytes) {
      close_others(which);
      if (layers.device_bytes() + beside > compute_.ceiling_bytes) {
        layers.close_device();
      }
    }
    if (layers.device_plan() == nullptr) {
      MINIACC_RETURN_IF_ERROR(open(request, layers, beside));
    }
    MINIACC_RETURN_IF_ERROR(set_aside(request.reserved_bytes));
    return static_cast<LayerSource*>(&layers);
  }

  Status reserve(std::size_t reserved_bytes) override {
    constexpr std::size_t kNone = 3;
    if (reserved_bytes + others_bytes(kNone) > compute_.ceiling_bytes) {
      close_others(kNone);
    }
    return set_aside(reserved_bytes);
  }

  std::vector<StreamReport> reports() override {
    std::vector<StreamReport> reports;
    for (std::size_t i = 0; i < stacks_.size(); ++i) {
      if (stacks_[i]) {
        reports.push_back(stacks_[i]->report(kNames[i]));
      }
    }
    return reports;
  }

 private:
  [[nodiscard]] std::size_t others_bytes(std::size_t which) const {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < stacks_.size(); ++i) {
      bytes += i != which && stacks_[i] ? stacks_[i]->device_bytes() : 0;
    }
    return bytes;
  }

  void close_others(std::size_t which) {
    for (std::size_t i = 0; i < stacks_.size(); ++i) {
      if (i != which && stacks_[i]) {
        stacks_[i]->close_device();
      }
    }
  }

  /// The reserve as one region, unless regions of earlier stages serve.
  [[nodiscard]] Status set_aside(std::size_t bytes) {
    if (compute_.arena->region_bytes() > bytes) {
      const std::size_t layers = others_bytes(stacks_.size());
      if (compute_.arena->region_bytes() + layers > compute_.ceiling_bytes) {
        compute_.arena->trim();
      }
    }
    return compute_.arena->reserve(bytes);
  }

  [[nodiscard]] static std::size_t left(std::size_t all, std::size_t taken) {
    return all > taken ? all - taken : 0;
  }

  [[nodiscard]] Status open(const StreamRequest& request, StreamedLayers& layers,
                            std::size_t beside) {
    compute_.arena->trim();
    const auto which = static_cast<std::size_t>(request.which);
    const auto choice = choose_ring({request.stack.count, layers.layer_bytes(), request.one_pass},
                                    options_, compute_.ceiling_bytes, beside, others_bytes(which));
    if (!choice) {
      return fail(ErrorCode::kOutOfMemory,
                  fmt::format("{}: {}; the stage takes {} of {} bytes beside them", kNames[which],
                              choice.error().message, beside, compute_.ceiling_bytes));
    }
    if (choice->others_go) {
      close_others(which);
    }
    const RingPlan& plan = choice->plan;
    // A stack that had to go and comes back will do so again: then its records are worth keeping.
    const bool comes_back = layers.is_host_open();
    if (!comes_back || !is_kept_[which]) {
      is_kept_[which] = comes_back || plan.num_streamed() > 0;
      MINIACC_RETURN_IF_ERROR(layers.open_host(
          *compute_.pinned,
          is_kept_[which] ? pinned(plan, layers) : std::vector<bool>(plan.resident.size(), false),
          kNumStaging));
    }
    return layers.open_device(plan);
  }

  /// Which layers get a pinned record, as far as host memory goes: streamed ones first.
  [[nodiscard]] std::vector<bool> pinned(const RingPlan& plan, const StreamedLayers& layers) const {
    std::vector<bool> chosen(plan.resident.size(), false);
    const std::size_t budget = pinned_budget_bytes(options_, compute_.pinned->bytes_in_use());
    const std::size_t staging = static_cast<std::size_t>(kNumStaging) * layers.layer_bytes();
    std::size_t places = budget / layers.layer_bytes();
    if (places < chosen.size()) {
      places = left(budget, staging) / layers.layer_bytes();
    }
    for (const bool resident : {false, true}) {
      for (std::size_t i = 0; i < chosen.size() && places > 0; ++i) {
        if (plan.resident[i] == resident) {
          chosen[i] = true;
          --places;
        }
      }
    }
    return chosen;
  }

  ComputeDevice& compute_;
  StreamOptions options_;
  std::array<std::unique_ptr<StreamedLayers>, 3> stacks_;
  std::array<bool, 3> is_kept_{};  ///< the stack's records were chosen with its return in mind
};

}  // namespace

Result<std::unique_ptr<WeightStreams>> make_weight_streams(ComputeDevice& compute,
                                                           const StreamOptions& options) {
  MINIACC_REQUIRE(options.num_slots >= 2 && options.num_threads > 0,
                  "make_weight_streams: at least two slots and a thread");
  return std::unique_ptr<WeightStreams>(std::make_unique<CudaWeightStreams>(compute, options));
}

}  // namespace miniacc::cuda
