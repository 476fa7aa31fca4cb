# The CUDA compiler and runtime, only when MINIACC_CUDA asks for them. The architectures come from the
# preset (CMAKE_CUDA_ARCHITECTURES); the runtime is linked statically, so that the program needs nothing
# but the driver where it runs, and starts without one.
#
# MINIACC_CUDA_EMULATION builds the same sources without CUDA: .cu files as C++ (cmake/layer.cmake),
# against the runtime of tests/cuda_emulation. Either way miniacc::cudart is the runtime.
if(MINIACC_CUDA_EMULATION)
  set(MINIACC_CUDA ON)
elseif(MINIACC_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    message(FATAL_ERROR "MINIACC_CUDA needs CMAKE_CUDA_ARCHITECTURES; the presets cuda and cuda-dist set it")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  find_package(CUDAToolkit 13 REQUIRED)
  add_library(miniacc_cudart INTERFACE)
  target_link_libraries(miniacc_cudart INTERFACE CUDA::cudart_static)
  add_library(miniacc::cudart ALIAS miniacc_cudart)
  if("90a-real" IN_LIST CMAKE_CUDA_ARCHITECTURES)
    set(MINIACC_HOPPER ON)  # the kernels of src/kernels/cuda/hopper, made of CUTLASS's templates
    set(MINIACC_CACHE_DIR "$ENV{XDG_CACHE_HOME}")
    if(NOT MINIACC_CACHE_DIR)
      set(MINIACC_CACHE_DIR "$ENV{HOME}/.cache")
    endif()
    set(MINIACC_CUTLASS_DIR ${MINIACC_CACHE_DIR}/miniacc/cutlass-4.2.0
        CACHE PATH "Folder whose include/ holds CUTLASS 4.2; scripts/setup makes the default")
    if(NOT EXISTS ${MINIACC_CUTLASS_DIR}/include/cutlass/cutlass.h)
      message(FATAL_ERROR "CUDA for sm_90a needs CUTLASS's headers: no include/cutlass/cutlass.h in "
                          "${MINIACC_CUTLASS_DIR}. Run scripts/setup, or set MINIACC_CUTLASS_DIR.")
    endif()
  endif()
endif()

# miniacc_cuda_sources(FILES...): tells CMake how to compile these .cu files. nvcc includes its header
# by itself; the C++ compiler has no #pragma unroll.
function(miniacc_cuda_sources)
  if(MINIACC_CUDA_EMULATION)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-include;cuda_runtime.h;-Wno-unknown-pragmas")
  endif()
endfunction()
