#pragma once

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kernels/cuda/hopper/grouped_raster.cuh"
#include "kernels/cuda/hopper/matmul.h"
#include "kernels/cuda/launch.cuh"

/// One product for sm_90a, put together by CUTLASS's collective builders: one warp of a block
/// starts TMA copies of operand slabs of 128 bytes of depth into a ring in shared memory, two
/// warpgroups multiply from there with wgmma, and the epilogue goes through shared memory to TMA
/// stores.
///
/// Floor: 2·rows·n·depth operations; at the full model's shapes (docs/performance.md) the matrix
/// units bound it, memory moves under a third of what it could in that time. What keeps it from the
/// floor: the clock under load, and the epilogue of a tile where the warpgroups share it
/// (cooperative), which their products wait for. In the ping-pong form each warpgroup has a tile
/// of its own and one multiplies while the other stores.
namespace miniacc::ops::cuda::hopper {

namespace epilogue = cutlass::epilogue;
using cute::_0;
using cute::_1;
using cute::_2;

struct Cooperative {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using Store = epilogue::TmaWarpSpecializedCooperative;
};
struct PingPong {
  using Mainloop = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using Store = epilogue::TmaWarpSpecialized;
};

/// kTileM × kTileN of the result a block; kClusterM × kClusterN neighbouring blocks fetch each slab
/// once for all that need it.
template <int kTileM, int kTileN, int kClusterM, int kClusterN, class Schedule_>
struct Form {
  template <class Element>
  using Tile = cute::Shape<cute::Int<kTileM>, cute::Int<kTileN>, cute::Int<128 / sizeof(Element)>>;
  using Cluster = cute::Shape<cute::Int<kClusterM>, cute::Int<kClusterN>, _1>;
  using Schedule = Schedule_;
};

/// A value per row of the result, and one per column.
template <class Tile>
using PerRow = epilogue::fusion::Sm90ColBroadcast<0, Tile, float, float, cute::Stride<_1, _0, _0>>;
template <class Tile>
using PerColumn =
    epilogue::fusion::Sm90RowBroadcast<0, Tile, float, float, cute::Stride<_0, _1, _0>>;

/// Callbacks: a tree over the accumulator that gives the f32 result.
template <class Element, class Sum, class FormType, class Callbacks>
class Product {
  using Tile = typename FormType::template Tile<Element>;
  using Cluster = typename FormType::Cluster;
  using Schedule = typename FormType::Schedule;
  static constexpr int kOperandAlignment = 16 / sizeof(Element);
  static constexpr int kOutAlignment = 16 / sizeof(float);

  using Store = typename epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      epilogue::collective::EpilogueTileAuto, Sum, float, void, cutlass::layout::RowMajor,
      kOutAlignment, float, cutlass::layout::RowMajor, kOutAlignment, typename Schedule::Store,
      Callbacks>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor,
      kOperandAlignment, Element, cutlass::layout::ColumnMajor, kOperandAlignment, Sum, Tile,
      Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Store::SharedStorage))>,
      typename Schedule::Mainloop>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop,
                                                      Store, GroupedRaster>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

 public:
  static void launch(OpContext& ctx, TensorView out, const Operands& operands,
                     const typename Callbacks::Arguments& callbacks, MatmulRaster raster) {
    const miniacc::cuda::DeviceScope scope(out.device.ordinal);
    typename Adapter::Arguments arguments{};
    arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    arguments.problem_shape =
        cute::make_shape(static_cast<int>(out.dim(0)), static_cast<int>(out.dim(1)),
                         static_cast<int>(operands.depth), 1);
    arguments.mainloop.ptr_A = static_cast<const Element*>(operands.x);
    arguments.mainloop.dA = {operands.depth, _1{}, 0};
    arguments.mainloop.ptr_B = static_cast<const Element*>(operands.w);
    arguments.mainloop.dB = {operands.depth, _1{}, 0};
    arguments.epilogue.thread = callbacks;
    arguments.epilogue.ptr_D = out.f32();
    arguments.epilogue.dD = {out.stride(0), _1{}, 0};
    arguments.hw_info.device_id = out.device.ordinal;
    arguments.hw_info.sm_count = multiprocessors(out.device.ordinal);
    arguments.scheduler.group = static_cast<std::uint32_t>(raster.group);
    using Order = typename Kernel::TileScheduler::RasterOrderOptions;
    arguments.scheduler.raster_order = raster.along_rows ? Order::AlongM : Order::AlongN;
    MINIACC_REQUIRE(Adapter::can_implement(arguments) == cutlass::Status::kSuccess &&
                        Adapter::get_workspace_size(arguments) == 0,
                    "linear: the wgmma form was chosen for operands that it does not take");
    Adapter adapter;
    const cutlass::Status status = adapter.run(arguments, nullptr, ctx.stream);
    miniacc::cuda::check(cudaGetLastError(), "linear (wgmma)");
    MINIACC_REQUIRE(status == cutlass::Status::kSuccess,
                    "linear: the driver did not take the wgmma form's tensor maps");
  }
};

/// Calls `body` with the form that `tile` names.
template <class Body>
void with_form(MatmulTile tile, const Body& body) {
  switch (tile) {
    case MatmulTile::kWgmma128x256:
      return body(Form<128, 256, 2, 1, Cooperative>{});
    case MatmulTile::kWgmmaPingPong128x128:
      return body(Form<128, 128, 2, 1, PingPong>{});
    default:
      MINIACC_REQUIRE(false, "linear: not a wgmma form");
  }
}

}  // namespace miniacc::ops::cuda::hopper
