#include "device/cuda_device.h"
#include "kernels/backend_test.h"

namespace miniacc::testing {
namespace {

class CudaBackend final : public BackendDevice {
 public:
  explicit CudaBackend(std::unique_ptr<CudaDevice> device)
      : device_(std::move(device)), stream_(cuda::make_stream(device_->id().ordinal)) {}

  Device& device() override { return *device_; }
  CUstream_st* stream() override { return stream_.get(); }
  void upload(TensorView to, const void* host) override {
    cuda::copy_async(to, ConstTensorView(host, to.shape, to.dtype), stream());
    cuda::synchronize(stream());
  }
  void download(void* host, ConstTensorView from) override {
    cuda::copy_async(TensorView(host, from.shape, from.dtype), from, stream());
    cuda::synchronize(stream());
  }

 private:
  std::unique_ptr<CudaDevice> device_;
  cuda::Stream stream_;
};

}  // namespace

Result<std::unique_ptr<BackendDevice>> open_cuda_backend() {
  MINIACC_ASSIGN(auto device, CudaDevice::open(0));
  return std::make_unique<CudaBackend>(std::move(device));
}

}  // namespace miniacc::testing
