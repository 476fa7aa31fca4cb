#pragma once

#include <memory>

// What cudaStream_t and cudaEvent_t point to; this header stays free of CUDA's.
struct CUstream_st;
struct CUevent_st;

/// Owning handles of CUDA streams and events, and the few calls on them. Every function that can
/// fail throws DeviceError. A null CUstream_st* is the device's default stream.
namespace miniacc::cuda {

/// Makes a device current for this thread (launches, streams and events belong to the current one)
/// and restores the one before it.
class DeviceScope {
 public:
  explicit DeviceScope(int ordinal);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

struct StreamDestroy {
  void operator()(CUstream_st* stream) const noexcept;
};
/// Destroying it does not wait: CUDA keeps the stream until its work is done.
using Stream = std::unique_ptr<CUstream_st, StreamDestroy>;

struct EventDestroy {
  void operator()(CUevent_st* event) const noexcept;
};
using Event = std::unique_ptr<CUevent_st, EventDestroy>;

/// How a stream stands to the device's default stream.
enum class StreamOrder {
  kFree,         ///< neither waits for the other
  kWithDefault,  ///< work of both runs in the order in which it was given
};
[[nodiscard]] Stream make_stream(int ordinal, StreamOrder order = StreamOrder::kFree);
/// Waits on the host until all work in the stream is done; reports errors of that work.
void synchronize(CUstream_st* stream);

/// Events that order streams need no clock; recording is cheaper without one.
enum class EventTiming { kOff, kOn };
[[nodiscard]] Event make_event(int ordinal, EventTiming timing = EventTiming::kOff);
/// The event is reached once the work that `stream` holds at this call is done.
void record(const Event& event, CUstream_st* stream);
/// Work given to `stream` after this call starts once the event is reached; the host does not wait.
void wait(CUstream_st* stream, const Event& event);
/// Waits on the host until the event is reached.
void synchronize(const Event& event);
/// Milliseconds between two events, both with timing, recorded and reached.
[[nodiscard]] float elapsed_ms(const Event& start, const Event& stop);

}  // namespace miniacc::cuda
