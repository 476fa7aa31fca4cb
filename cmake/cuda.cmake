# The CUDA compiler and runtime, only when MINIACC_CUDA asks for them. The architectures come from the
# preset (CMAKE_CUDA_ARCHITECTURES); the runtime is linked statically, so that the program needs nothing
# but the driver where it runs, and starts without one.
if(MINIACC_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    message(FATAL_ERROR "MINIACC_CUDA needs CMAKE_CUDA_ARCHITECTURES; the presets cuda and cuda-dist set it")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  find_package(CUDAToolkit 13 REQUIRED)
endif()
