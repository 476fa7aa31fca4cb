# miniacc_options carries every compiler flag of ours; layers, apps, tests and benches link it.
add_library(miniacc_options INTERFACE)
target_compile_features(miniacc_options INTERFACE cxx_std_20)
target_include_directories(miniacc_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include
                                                     ${CMAKE_BINARY_DIR}/generated)
target_compile_options(
  miniacc_options
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
            -Woverloaded-virtual -Wcast-qual -Wformat=2 -Wimplicit-fallthrough>
            # GCC 12 sees overlapping copies in std::string's operator+ that are not there (GCC bug 105651).
            $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
            $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${MINIACC_WERROR}>>:-Werror>
            # CMake 3.25 does not know nvcc's C++20 and drops CUDA_STANDARD 20 without a word.
            $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>
            # -Wpedantic and -Wcast-qual would judge the host code that nvcc writes, not ours.
            "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler -Wall,-Wextra>"
            "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${MINIACC_WERROR}>>:SHELL:-Werror all-warnings>")
if(MINIACC_SANITIZE)
  target_compile_options(
    miniacc_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MINIACC_SANITIZE}
                              -fno-omit-frame-pointer -fno-sanitize-recover=undefined>)
  target_link_options(miniacc_options INTERFACE -fsanitize=${MINIACC_SANITIZE})
endif()
add_library(miniacc::options ALIAS miniacc_options)
