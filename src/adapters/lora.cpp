#include "adapters/lora.h"

#include <fmt/format.h>

#include <cmath>

#include "adapters/lora_builder.h"

namespace miniacc {

std::int64_t LoraDelta::stored_row(std::int64_t row) const {
  switch (order) {
    case DeltaRowOrder::kAsStored:
      return row;
    case DeltaRowOrder::kSwappedHalves:
      return row < num_rows / 2 ? row + num_rows / 2 : row - num_rows / 2;
    case DeltaRowOrder::kInterleavedQkv: {
      const std::int64_t inner = num_rows / 3;
      const std::int64_t part = row / inner;
      const std::int64_t head = row % inner / head_dim;
      return (head * 3 + part) * head_dim + row % head_dim;
    }
  }
  MINIACC_REQUIRE(false, "stored_row: unknown order");
}

Status check_lora_request(const LoraRequest& request) {
  if (request.path.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--lora names no file");
  }
  if (!std::isfinite(request.strength)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--lora {}: the strength must be a finite number, got {}",
                            request.path.string(), request.strength));
  }
  if (request.alpha && !(std::isfinite(*request.alpha) && *request.alpha > 0.0F)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--lora {}: alpha must be a number above 0, got {}",
                            request.path.string(), *request.alpha));
  }
  if (!request.half.empty() && request.half != "fl2va" && request.half != "ref2va") {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--lora-half must be fl2va or ref2va, got '{}'", request.half));
  }
  return {};
}

Result<Lora> Lora::open(WeightSource& base, const LoraRequest& request,
                        const LoraOptions& options) {
  MINIACC_RETURN_IF_ERROR(check_lora_request(request));
  MINIACC_ASSIGN(TensorFile file, TensorFile::open(request.path));
  return LoraBuilder(base, request, options, std::move(file)).build();
}

}  // namespace miniacc
