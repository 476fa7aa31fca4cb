#include "adapters/lora.h"

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

Result<Lora> Lora::open(const WeightSource& base, const LoraRequest& request, bool allow_partial) {
  MINIACC_REQUIRE(std::isfinite(request.strength), "Lora::open: strength is finite");
  MINIACC_REQUIRE(!request.alpha || (std::isfinite(*request.alpha) && *request.alpha > 0.0F),
                  "Lora::open: alpha is above 0");
  MINIACC_ASSIGN(TensorFile file, TensorFile::open(request.path));
  return LoraBuilder(base, request, allow_partial, std::move(file)).build();
}

}  // namespace miniacc
