#pragma once

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp>

namespace miniacc::ops::cuda::hopper {

/// A leaf of an epilogue's tree: a value per column straight from memory, -0 where there is no
/// vector, which added to x gives x for every x, -0 included. The library's own leaf keeps a tile's
/// values in shared memory, which for 8-bit products with large tiles costs a stage of the ring of
/// operands (of four); the model's large products have no bias, so that its loads matter little.
struct Bias {
  struct SharedStorage {};
  struct Arguments {
    const float* values = nullptr;  ///< [n] or null
  };
  using Params = Arguments;

  template <class ProblemShape>
  static constexpr Params to_underlying_arguments(const ProblemShape&, const Arguments& arguments,
                                                  void*) {
    return arguments;
  }
  template <class ProblemShape>
  static bool can_implement(const ProblemShape&, const Arguments&) {
    return true;
  }
  template <class ProblemShape>
  static std::size_t get_workspace_size(const ProblemShape&, const Arguments&) {
    return 0;
  }
  template <class ProblemShape>
  static cutlass::Status initialize_workspace(const ProblemShape&, const Arguments&, void*,
                                              cudaStream_t, cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }

  CUTLASS_HOST_DEVICE Bias() {}
  CUTLASS_HOST_DEVICE Bias(const Params& arguments, const SharedStorage&) : params(arguments) {}

  CUTLASS_DEVICE bool is_producer_load_needed() const { return false; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return false; }
  template <class... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      const cutlass::epilogue::fusion::ProducerLoadArgs<Args...>&) {
    return cutlass::epilogue::fusion::EmptyProducerLoadCallbacks{};
  }

  /// values and places: of this thread, (copy, copies along m, along n, epilogue tile m, n).
  template <class Values, class Places, class Residue>
  struct StoreCallbacks : cutlass::epilogue::fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE StoreCallbacks(Values all_values, Places all_places, Residue end, bool any)
        : values(all_values), places(all_places), residue(end), present(any) {}

    Values values;
    Places places;
    Residue residue;
    bool present;

    template <class Sum, int kCount>
    CUTLASS_DEVICE cutlass::Array<float, kCount> visit(const cutlass::Array<Sum, kCount>&,
                                                       int piece, int tile_m, int tile_n) {
      using cute::_;
      cutlass::Array<float, kCount> result;
      cute::Tensor tile_values = values(_, _, _, tile_m, tile_n);
      cute::Tensor tile_places = places(_, _, _, tile_m, tile_n);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const int at = piece * kCount + i;
        result[i] = present && cute::elem_less(tile_places(at), residue) ? tile_values(at) : -0.0F;
      }
      return result;
    }
  };

  template <bool kReferenceSource, class... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::ConsumerStoreArgs<Args...>& args) {
    const auto [m, n, k, l] = args.problem_shape_mnkl;
    cute::Tensor row =
        cute::make_tensor(cute::make_gmem_ptr(params.values),
                          cute::make_layout(cute::make_shape(m, n, l),
                                            cute::make_stride(cute::_0{}, cute::_1{}, cute::_0{})));
    cute::Tensor mine = cutlass::epilogue::fusion::sm90_partition_for_epilogue<kReferenceSource>(
        row, args.tile_shape_mnk, args.tile_coord_mnkl, args.epi_tile, args.tiled_copy,
        args.thread_idx);
    return StoreCallbacks<decltype(mine), decltype(args.tCcD), decltype(args.residue_tCcD)>(
        mine, args.tCcD, args.residue_tCcD, params.values != nullptr);
  }

  Params params;
};

}  // namespace miniacc::ops::cuda::hopper
