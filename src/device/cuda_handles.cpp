#include "device/cuda_handles.h"

#include "device/cuda_check.h"

namespace miniacc::cuda {

DeviceScope::DeviceScope(int ordinal) {
  check(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ != ordinal) {
    check(cudaSetDevice(ordinal), "cudaSetDevice");
    changed_ = true;
  }
}

DeviceScope::~DeviceScope() {
  if (changed_) {
    // A destructor cannot report; a device that cannot be selected fails the next checked call.
    static_cast<void>(cudaSetDevice(previous_));
  }
}

void StreamDestroy::operator()(CUstream_st* stream) const noexcept {
  static_cast<void>(cudaStreamDestroy(stream));
}

void EventDestroy::operator()(CUevent_st* event) const noexcept {
  static_cast<void>(cudaEventDestroy(event));
}

Stream make_stream(int ordinal, StreamOrder order) {
  const DeviceScope scope(ordinal);
  cudaStream_t stream = nullptr;
  const unsigned flags = order == StreamOrder::kFree ? cudaStreamNonBlocking : cudaStreamDefault;
  check(cudaStreamCreateWithFlags(&stream, flags), "cudaStreamCreateWithFlags");
  return Stream(stream);
}

void synchronize(CUstream_st* stream) {
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

Event make_event(int ordinal, EventTiming timing) {
  const DeviceScope scope(ordinal);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(
            &event, timing == EventTiming::kOn ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
  return Event(event);
}

void record(const Event& event, CUstream_st* stream) {
  check(cudaEventRecord(event.get(), stream), "cudaEventRecord");
}

void wait(CUstream_st* stream, const Event& event) {
  check(cudaStreamWaitEvent(stream, event.get(), 0), "cudaStreamWaitEvent");
}

void synchronize(const Event& event) {
  check(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
}

float elapsed_ms(const Event& start, const Event& stop) {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()), "cudaEventElapsedTime");
  return milliseconds;
}

}  // namespace miniacc::cuda
