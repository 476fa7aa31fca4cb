#pragma once

#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>

/// The order in which the clusters of a persistent product take the tiles of the result.
namespace miniacc::ops::cuda::hopper {

/// Tag of GroupedRasterScheduler in GemmUniversal's template arguments.
struct GroupedRaster {};

/// Tiles are taken in bands of `group` clusters along one axis, a band from end to end, so that the
/// tiles in flight form a block about as high as it is wide and their operands stay in L2. Unlike
/// the library's swizzle, `group` need not be a power of 2 and the last band is only as high as
/// what is left: no tile outside the result is computed (the library pads both axes to whole
/// swizzles, 14 % more tiles at 21 columns of tiles and swizzle 8).
class GroupedRasterScheduler
    : public cutlass::gemm::kernel::detail::StaticPersistentTileScheduler<GroupedRasterScheduler> {
  using Base = cutlass::gemm::kernel::detail::StaticPersistentTileScheduler<GroupedRasterScheduler>;
  using Library = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90;

 public:
  struct Params : Base::Params {
    std::uint32_t group = 1;
  };
  struct Arguments : Base::Arguments {
    std::uint32_t group = 1;  ///< clusters; max_swizzle_size stays 1
  };

  using Pipeline = Library::Pipeline;
  using PipelineStorage = Library::PipelineStorage;
  using ThrottlePipeline = Library::ThrottlePipeline;
  using ThrottlePipelineStorage = Library::ThrottlePipelineStorage;
  using CLCResponse = Library::CLCResponse;
  using SharedStorage = Library::SharedStorage;

  template <class ProblemShape, class TileShape, class ClusterShape>
  static Params to_underlying_arguments(ProblemShape problem, TileShape tile, ClusterShape cluster,
                                        const cutlass::KernelHardwareInfo& hardware,
                                        const Arguments& arguments, void* workspace = nullptr,
                                        std::uint32_t epilogue_subtile = 1,
                                        std::uint32_t k_alignment = 1) {
    Params params;
    static_cast<Base::Params&>(params) = Base::to_underlying_arguments(
        problem, tile, cluster, hardware, arguments, workspace, epilogue_subtile, k_alignment);
    params.group = arguments.group;
    return params;
  }
  static bool can_implement(const Arguments& arguments) {
    return arguments.group > 0 && arguments.max_swizzle_size == 1;
  }
  template <class ProblemShape, class Sum>
  static std::size_t get_workspace_size(const Arguments&, ProblemShape,
                                        const cutlass::KernelHardwareInfo&, std::uint32_t,
                                        std::uint32_t = 1, std::uint32_t = 1) {
    return 0;
  }
  template <class ProblemShape, class Sum>
  static cutlass::Status initialize_workspace(const Arguments&, void*, cudaStream_t, ProblemShape,
                                              const cutlass::KernelHardwareInfo&, std::uint32_t,
                                              std::uint32_t = 1, std::uint32_t = 1,
                                              cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }

  CUTLASS_DEVICE explicit GroupedRasterScheduler(const Params& params)
      : Base(params), group_(params.group) {}

  template <class ClusterShape>
  CUTLASS_DEVICE WorkTileInfo initial_work_tile_info(ClusterShape) {
    return get_current_work();
  }
  CUTLASS_DEVICE WorkTileInfo get_current_work() const { return tile_at(next_); }
  CUTLASS_DEVICE void advance_to_next_work(std::uint32_t count = 1) { next_ += stride_ * count; }
  CUTLASS_DEVICE bool is_last_tile(WorkTileInfo&, std::uint32_t count = 1) const {
    return !tile_at(next_ + stride_ * count).is_valid();
  }
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo) {
    advance_to_next_work();
    return cute::make_tuple(get_current_work(), true);
  }
  template <class TilePipeline, class TilePipelineState>
  CUTLASS_DEVICE auto fetch_next_work(WorkTileInfo tile, TilePipeline&, TilePipelineState) {
    return fetch_next_work(tile);
  }

 private:
  /// Of the cluster with this number in the order; the block adds its place in the cluster.
  CUTLASS_DEVICE WorkTileInfo tile_at(std::uint32_t cluster) const {
    const auto& p = scheduler_params;
    const bool along_m = p.raster_order_ == RasterOrder::AlongM;
    const std::uint32_t length = along_m ? p.problem_tiles_m_ : p.problem_tiles_n_;
    const std::uint32_t bands_height = along_m ? p.problem_tiles_n_ : p.problem_tiles_m_;
    if (cluster >= length * bands_height) {
      return WorkTileInfo::invalid_work_tile();
    }
    const std::uint32_t group = min(group_, bands_height);
    const std::uint32_t first = cluster / (group * length) * group;
    const std::uint32_t height = min(group, bands_height - first);
    const std::uint32_t within = cluster - first * length;
    const std::uint32_t across = first + within % height;
    const std::uint32_t along = within / height;
    const dim3 place = cute::block_id_in_cluster();
    return {static_cast<int>((along_m ? along : across) * p.cluster_shape_m_ + place.x),
            static_cast<int>((along_m ? across : along) * p.cluster_shape_n_ + place.y), 0, true};
  }

  CUTLASS_DEVICE std::uint32_t blocks_in_cluster() const {
    return scheduler_params.cluster_shape_m_ * scheduler_params.cluster_shape_n_;
  }

  std::uint32_t group_;
  // The grid is clusters side by side along one axis, one cluster wide along the other.
  std::uint32_t next_ = (blockIdx.x / scheduler_params.cluster_shape_m_) *
                            (gridDim.y / scheduler_params.cluster_shape_n_) +
                        blockIdx.y / scheduler_params.cluster_shape_n_;
  std::uint32_t stride_ = gridDim.x * gridDim.y / blocks_in_cluster();
};

}  // namespace miniacc::ops::cuda::hopper

template <class ArchTag, class TileShape, class ClusterShape, std::uint32_t kStages>
struct cutlass::gemm::kernel::detail::TileSchedulerSelector<
    miniacc::ops::cuda::hopper::GroupedRaster, ArchTag, TileShape, ClusterShape, kStages> {
  using Scheduler = miniacc::ops::cuda::hopper::GroupedRasterScheduler;
};
