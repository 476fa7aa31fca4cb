// The functions of cuda_runtime_api.h over the emulated runtime.
#include <cstdlib>
#include <cstring>

#include "runtime.h"

using cuda_emulation::Call;
using cuda_emulation::Record;
using cuda_emulation::Runtime;

namespace {

// Of host threads; the worker, whose thread_local variables are shared memory, calls nothing here.
thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

using Lock = std::lock_guard<std::recursive_mutex>;

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

/// What every call but the plainest says first: no driver, no device, or a dead context.
cudaError_t usable(const Runtime& runtime) {
  if (runtime.machine.driver_version == 0 || runtime.machine.driver_version < CUDART_VERSION) {
    return cudaErrorInsufficientDriver;
  }
  if (runtime.machine.num_devices == 0) {
    return cudaErrorNoDevice;
  }
  return runtime.sticky;
}

/// usable(), and the injected failure of this call.
cudaError_t begin(Runtime& runtime, Call kind, cudaError_t injected) {
  const cudaError_t state = usable(runtime);
  if (state != cudaSuccess) {
    return state;
  }
  return runtime.fails(kind) ? injected : cudaSuccess;
}

std::size_t free_bytes(const Runtime& runtime, int ordinal) {
  const std::size_t used = runtime.memory.bytes_in_use(ordinal) + runtime.other_bytes;
  return used >= runtime.machine.total_bytes ? 0 : runtime.machine.total_bytes - used;
}

/// Each side is device memory exactly where `kind` says so, all of it inside one allocation.
bool sides_fit(const Runtime& runtime, const void* to, const void* from, std::size_t bytes,
               cudaMemcpyKind kind) {
  const bool to_device = runtime.memory.owns(to);
  const bool from_device = runtime.memory.owns(from);
  if (kind == cudaMemcpyDefault) {
    kind = to_device     ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
           : from_device ? cudaMemcpyDeviceToHost
                         : cudaMemcpyHostToHost;
  }
  const bool wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return to != nullptr && from != nullptr && to_device == wants_to && from_device == wants_from &&
         (!to_device || runtime.memory.find(to, bytes) != nullptr) &&
         (!from_device || runtime.memory.find(from, bytes) != nullptr);
}

std::optional<std::string> nothing_wrong() { return std::nullopt; }

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDeviceFunction:
      return "cudaErrorInvalidDeviceFunction";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorUnknown:
      break;
  }
  return "cudaErrorUnknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "error of the CUDA emulation";
  }
}

cudaError_t cudaGetLastError() {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t error = runtime.sticky != cudaSuccess ? runtime.sticky : last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  return runtime.sticky != cudaSuccess ? runtime.sticky : last_error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  *version = runtime.machine.driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = usable(runtime);
  if (state == cudaSuccess) {
    *count = runtime.machine.num_devices;
  }
  return result(state);
}

cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int ordinal) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  if (ordinal < 0 || ordinal >= runtime.machine.num_devices) {
    return result(cudaErrorInvalidDevice);
  }
  current_device = ordinal;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  if (const cudaError_t state = usable(runtime); state != cudaSuccess) {
    return result(state);
  }
  if (ordinal < 0 || ordinal >= runtime.machine.num_devices) {
    return result(cudaErrorInvalidDevice);
  }
  *properties = {};
  std::strcpy(properties->name, "emulated");
  properties->totalGlobalMem = runtime.machine.total_bytes;
  properties->sharedMemPerBlock = std::size_t{48} << 10;
  properties->sharedMemPerBlockOptin = cuda_emulation::most_dynamic_shared(runtime.machine);
  properties->major = runtime.machine.compute_major;
  properties->minor = runtime.machine.compute_minor;
  properties->multiProcessorCount = 1;
  properties->warpSize = 32;
  properties->l2CacheSize = 1 << 20;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  if (const cudaError_t state = usable(runtime); state != cudaSuccess) {
    return result(state);
  }
  *free = free_bytes(runtime, current_device);
  *total = runtime.machine.total_bytes;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kWait, cudaErrorUnknown);
  return result(state != cudaSuccess ? state : runtime.run_all());
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kAllocate, cudaErrorMemoryAllocation);
  if (state != cudaSuccess) {
    return result(state);
  }
  if (runtime.later_other_at > 0 && --runtime.later_other_at == 0) {
    runtime.other_bytes = runtime.later_other_bytes;
  }
  *data = nullptr;
  if (bytes == 0) {
    return cudaSuccess;
  }
  if (bytes > free_bytes(runtime, current_device)) {
    return result(cudaErrorMemoryAllocation);
  }
  *data = runtime.memory.allocate(bytes, current_device);
  runtime.peak = std::max(runtime.peak, runtime.memory.bytes_in_use(current_device));
  return result(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* data) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  if (data == nullptr) {
    return cudaSuccess;
  }
  const cudaError_t state = runtime.run_all();  // it waits for the device
  if (!runtime.memory.free(data)) {
    return result(cudaErrorInvalidValue);
  }
  return result(state);
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kPin, cudaErrorMemoryAllocation);
  if (state != cudaSuccess) {
    return result(state);
  }
  constexpr std::size_t kPage = 4096;
  *data = std::aligned_alloc(kPage, (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage);
  if (*data == nullptr) {
    return result(cudaErrorMemoryAllocation);
  }
  std::memset(*data, 0xFF, bytes);
  runtime.pinned.emplace(*data, bytes);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* data) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  if (data == nullptr) {
    return cudaSuccess;
  }
  if (runtime.pinned.erase(data) == 0) {
    return result(cudaErrorInvalidValue);
  }
  const cudaError_t state = runtime.run_all();
  std::free(data);
  return result(state);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kCopy, cudaErrorUnknown);
  if (state != cudaSuccess) {
    return result(state);
  }
  if (width == 0 || height == 0) {
    return cudaSuccess;
  }
  if (width > to_pitch || width > from_pitch) {
    return result(cudaErrorInvalidValue);
  }
  const std::size_t to_bytes = (height - 1) * to_pitch + width;
  const std::size_t from_bytes = (height - 1) * from_pitch + width;
  if (!sides_fit(runtime, to, from, 1, kind) ||
      (runtime.memory.owns(to) && runtime.memory.find(to, to_bytes) == nullptr) ||
      (runtime.memory.owns(from) && runtime.memory.find(from, from_bytes) == nullptr)) {
    return result(cudaErrorInvalidValue);
  }
  return result(runtime.enqueue(
      stream, {.run = [=] {
        for (std::size_t row = 0; row < height; ++row) {
          std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                       static_cast<const std::byte*>(from) + row * from_pitch, width);
        }
        return nothing_wrong();
      }}));
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kFill, cudaErrorUnknown);
  if (state != cudaSuccess) {
    return result(state);
  }
  if (bytes == 0) {
    return cudaSuccess;
  }
  if (runtime.memory.find(data, bytes) == nullptr) {
    return result(cudaErrorInvalidValue);
  }
  return result(runtime.enqueue(stream, {.run = [=] {
                                  std::memset(data, value, bytes);
                                  return nothing_wrong();
                                }}));
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  const cudaError_t error = cudaMemsetAsync(data, value, bytes, nullptr);
  return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kStream, cudaErrorMemoryAllocation);
  if (state != cudaSuccess) {
    return result(state);
  }
  auto made = std::make_unique<cuda_emulation::Stream>();
  made->queue = runtime.next_queue();
  made->with_default = (flags & cudaStreamNonBlocking) == 0;
  *stream = made.get();
  runtime.streams.emplace(*stream, std::move(made));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  return result(runtime.streams.erase(stream) == 1 ? runtime.sticky
                                                   : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kWait, cudaErrorUnknown);
  if (state != cudaSuccess) {
    return result(state);
  }
  const auto queue = runtime.queue_of(stream);
  return result(queue ? runtime.run_queue(*queue) : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const auto queue = runtime.queue_of(stream);
  if (!queue) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (runtime.sticky != cudaSuccess) {
    return result(runtime.sticky);
  }
  return runtime.idle(*queue) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kWait, cudaErrorUnknown);
  if (state != cudaSuccess) {
    return result(state);
  }
  const auto found = runtime.events.find(event);
  if (found == runtime.events.end()) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (!found->second->last) {
    return cudaSuccess;  // never recorded: nothing to wait for
  }
  return result(runtime.enqueue(stream, {.wait = found->second->last}));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kEvent, cudaErrorMemoryAllocation);
  if (state != cudaSuccess) {
    return result(state);
  }
  auto made = std::make_unique<cuda_emulation::Event>();
  made->timing = (flags & cudaEventDisableTiming) == 0;
  *event = made.get();
  runtime.events.emplace(*event, std::move(made));
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  return result(runtime.events.erase(event) == 1 ? runtime.sticky : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kWait, cudaErrorUnknown);
  if (state != cudaSuccess) {
    return result(state);
  }
  const auto found = runtime.events.find(event);
  if (found == runtime.events.end()) {
    return result(cudaErrorInvalidResourceHandle);
  }
  found->second->last = std::make_shared<Record>();
  return result(runtime.enqueue(stream, {.reach = found->second->last}));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const auto found = runtime.events.find(event);
  if (found == runtime.events.end()) {
    return result(cudaErrorInvalidResourceHandle);
  }
  const auto& last = found->second->last;
  return last && !last->reached ? cudaErrorNotReady : runtime.sticky;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kWait, cudaErrorUnknown);
  if (state != cudaSuccess) {
    return result(state);
  }
  const auto found = runtime.events.find(event);
  if (found == runtime.events.end()) {
    return result(cudaErrorInvalidResourceHandle);
  }
  const std::shared_ptr<Record> last = found->second->last;
  return result(last ? runtime.run_until(last->stream, [&] { return last->reached; })
                     : runtime.sticky);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const auto first = runtime.events.find(start);
  const auto second = runtime.events.find(stop);
  if (first == runtime.events.end() || second == runtime.events.end() || !first->second->timing ||
      !second->second->timing || !first->second->last || !second->second->last) {
    return result(cudaErrorInvalidResourceHandle);
  }
  const Record& from = *first->second->last;
  const Record& to = *second->second->last;
  if (!from.reached || !to.reached) {
    return cudaErrorNotReady;
  }
  *milliseconds = static_cast<float>(to.at_ms - from.at_ms);
  return cudaSuccess;
}

namespace cuda_emulation {

std::size_t most_dynamic_shared(const Machine& machine) {
  const int compute = machine.compute_major * 10 + machine.compute_minor;
  const std::size_t kib = compute == 80 ? 163 : compute == 90 || compute == 100 ? 227 : 99;
  return kib << 10;
}

cudaError_t enqueue_launch(Launch launch, cudaStream_t stream) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  const cudaError_t state = begin(runtime, Call::kLaunch, cudaErrorLaunchOutOfResources);
  if (state != cudaSuccess) {
    return result(state);
  }
  if (!runtime.machine.has_code) {
    return result(cudaErrorNoKernelImageForDevice);
  }
  constexpr std::uint64_t kMaxGridX = 0x7FFFFFFF;
  constexpr std::uint64_t kMaxGridYz = 65535;
  constexpr std::uint64_t kMaxThreads = 1024;
  const dim3 grid = launch.grid;
  const dim3 block = launch.block;
  const auto threads = static_cast<std::uint64_t>(block.x) * block.y * block.z;
  const auto limit = runtime.dynamic_limits.find(launch.kernel);
  const std::size_t most_dynamic =
      limit == runtime.dynamic_limits.end() ? std::size_t{48} << 10 : limit->second;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > kMaxGridX || grid.y > kMaxGridYz ||
      grid.z > kMaxGridYz || threads == 0 || threads > kMaxThreads || block.z > 64) {
    return result(cudaErrorInvalidConfiguration);
  }
  if (launch.dynamic_bytes > most_dynamic) {
    return result(cudaErrorInvalidValue);
  }
  const std::uint64_t number = runtime.calls[static_cast<std::size_t>(Call::kLaunch)];
  return result(runtime.enqueue(
      stream, {.run = [launch = std::move(launch), number, &runtime] {
        std::optional<std::string> what;
        for (std::size_t i = 0; i < launch.pointers.size(); ++i) {
          const void* pointer = launch.pointers[i];
          // Host memory is no memory of a kernel, unless pinned; that of another place cannot be
          // told.
          if (pointer != nullptr && runtime.memory.owns(pointer) &&
              runtime.memory.find(pointer, 0) == nullptr) {
            what =
                "memory fault: pointer argument " + std::to_string(i) + " is freed device memory";
          } else if (pointer != nullptr && !runtime.memory.owns(pointer) &&
                     !runtime.is_pinned(pointer)) {
            what = "memory fault: pointer argument " + std::to_string(i) + " is no device memory";
          }
        }
        if (!what) {
          what = run_launch(launch, runtime.plan, number);
        }
        if (what) {
          std::string signature(launch.signature);
          const std::size_t begin = signature.find('{');
          const std::size_t end = signature.find('}');
          if (begin != std::string::npos && end != std::string::npos) {
            signature = signature.substr(begin + 1, end - begin - 1);
          }
          const dim3 blocks = launch.grid;
          const dim3 size = launch.block;
          *what = "launch " + std::to_string(number) + ", grid " + std::to_string(blocks.x) + "x" +
                  std::to_string(blocks.y) + "x" + std::to_string(blocks.z) + ", block " +
                  std::to_string(size.x) + "x" + std::to_string(size.y) + "x" +
                  std::to_string(size.z) + ", kernel(" + signature + "): " + *what;
        }
        return what;
      }}));
}

cudaError_t function_attributes(cudaFuncAttributes* attributes, const void*) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  if (!runtime.machine.has_code) {
    return result(cudaErrorNoKernelImageForDevice);
  }
  *attributes = {
      .sharedSizeBytes = 0, .maxThreadsPerBlock = 1024, .maxDynamicSharedSizeBytes = 48 << 10};
  return result(usable(runtime));
}

cudaError_t set_function_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  Runtime& runtime = Runtime::get();
  const Lock lock(runtime.mutex);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || static_cast<std::size_t>(value) > most_dynamic_shared(runtime.machine)) {
      return result(cudaErrorInvalidValue);
    }
    runtime.dynamic_limits[kernel] = static_cast<std::size_t>(value);
  }
  return result(usable(runtime));
}

}  // namespace cuda_emulation
