#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/weight_source.h"
#include "model/common/layer_source.h"
#include "runtime/compute_device.h"
#include "runtime/stream_report.h"

namespace miniacc {

/// The stacks that are streamed.
enum class StreamedStack { kTextEncoder, kTransformer, kVideoVae };

struct StreamOptions {
  std::int64_t num_slots = 3;
  /// The most layers of a stack on the device at once, slots included; empty: what the ceiling
  /// allows.
  std::optional<std::int64_t> max_places = {};
  /// Pinned host memory for records of all stacks together; empty: what the system has available
  /// beside a headroom of 4 GiB.
  std::optional<std::size_t> pinned_bytes = {};
  int num_threads = 1;  ///< that read records
};

/// What a stage asks for.
struct StreamRequest {
  StreamedStack which = StreamedStack::kTransformer;
  WeightSource* weights = nullptr;  ///< outlives the streams; the same in every request
  LayerStack stack;
  /// Device memory that the stage takes beside the layers: activations, workspace, small weights.
  std::size_t reserved_bytes = 0;
  /// Side products of adapters beside the layers.
  std::size_t side_bytes = 0;
  /// The stack is walked once a request: residents that do not stay until the next one are no use.
  bool one_pass = false;
};

/// The layers of a pipeline's stacks on a CUDA device: as many resident as the ceiling allows, the
/// others streamed. Device memory goes from stage to stage; what fits beside the stage at work
/// stays for the next request, and so do the pinned records.
class WeightStreams {
 public:
  virtual ~WeightStreams() = default;

  /// Readies the stack for a stage and sets the stage's reserve aside in the arena. The source
  /// serves until the next begin(). kOutOfMemory says what would do.
  [[nodiscard]] virtual Result<LayerSource*> begin(const StreamRequest& request) = 0;
  /// Sets the reserve of a stage without a stack aside; residents in its way go.
  [[nodiscard]] virtual Status reserve(std::size_t reserved_bytes) = 0;
  /// Of every stack that was begun so far.
  [[nodiscard]] virtual std::vector<StreamReport> reports() = 0;
};

/// `compute` has a card and outlives the streams. kUnsupported in a build without CUDA.
[[nodiscard]] Result<std::unique_ptr<WeightStreams>> make_weight_streams(
    ComputeDevice& compute, const StreamOptions& options = {});

}  // namespace miniacc
