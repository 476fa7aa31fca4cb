#pragma once

#include "kernels/cuda/matmul.h"

/// How the products choose among their kernels. Free of CUDA's headers.
namespace miniacc::ops::cuda {

[[nodiscard]] bool is_wgmma(MatmulTile tile);

/// The form itself, or chosen_tile for kAuto. Throws InternalError where a wgmma form was named
/// that does not take the product.
[[nodiscard]] MatmulTile resolved(MatmulTile tile, ConstTensorView out);

/// The same with a group other than 0.
[[nodiscard]] MatmulRaster resolved(MatmulRaster raster, MatmulTile tile, ConstTensorView out);

}  // namespace miniacc::ops::cuda
