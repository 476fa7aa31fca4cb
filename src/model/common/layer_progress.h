#pragma once

#include <cstdint>
#include <functional>

namespace miniacc {

/// Called after each layer of a stack with the number of finished ones.
using LayerProgress = std::function<void(std::int64_t finished, std::int64_t total)>;

}  // namespace miniacc
