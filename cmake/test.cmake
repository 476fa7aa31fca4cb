# miniacc_add_tests(name SOURCES a_test.cpp ... DEPENDS layers ... [LIBRARIES ...] [LABELS unit ...] [CUDA])
#
# One GoogleTest program a layer. CTest runs it as a whole (a program start costs more than most
# tests) and `bin/<name>_tests --gtest_filter=...` runs any part of it. On the emulated CUDA device the
# parts that use it run twice more, in other orders of threads and streams.
function(miniacc_add_tests name)
  cmake_parse_arguments(ARG "CUDA" "" "SOURCES;DEPENDS;LIBRARIES;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  set(cuda_sources ${ARG_SOURCES})
  list(FILTER cuda_sources INCLUDE REGEX "\\.cu$")
  miniacc_cuda_sources(${cuda_sources})
  add_executable(${name}_tests ${ARG_SOURCES})
  # Tests are compiled more often than they run for long.
  target_compile_options(${name}_tests PRIVATE $<$<CONFIG:Release>:-O1>)
  target_include_directories(${name}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  # Only where they are used: these paths differ between checkouts, which ccache should not see.
  foreach(source IN LISTS ARG_SOURCES)
    file(STRINGS ${source} uses LIMIT_COUNT 1 REGEX "MINIACC_(TEST_DATA|BIN_DIR)")
    if(uses)
      set_property(
        SOURCE ${source}
        APPEND
        PROPERTY COMPILE_DEFINITIONS "MINIACC_TEST_DATA=\"${CMAKE_SOURCE_DIR}/tests\""
                 "MINIACC_BIN_DIR=\"${CMAKE_BINARY_DIR}/bin\"")
    endif()
  endforeach()
  target_link_libraries(${name}_tests PRIVATE miniacc::options miniacc::test_support ${ARG_LIBRARIES}
                                              GTest::gmock GTest::gtest_main)
  foreach(dependency IN LISTS ARG_DEPENDS)
    target_link_libraries(${name}_tests PRIVATE miniacc::${dependency})
  endforeach()
  add_test(NAME ${name} COMMAND ${name}_tests)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 1200)
  if(MINIACC_CUDA_EMULATION AND ARG_CUDA)
    set_property(TEST ${name} APPEND PROPERTY LABELS cuda-emulated)
    foreach(schedule "threads=reverse,streams=random" "threads=random,streams=random,seed=7")
      string(REGEX REPLACE "[^a-z0-9]+" "-" suffix "${schedule}")
      add_test(NAME ${name}-${suffix} COMMAND ${name}_tests --gtest_filter=*/Cuda*:*Cuda*)
      set_tests_properties(
        ${name}-${suffix} PROPERTIES LABELS cuda-emulated TIMEOUT 1200
                                     ENVIRONMENT "MINIACC_CUDA_EMULATION=${schedule}")
    endforeach()
  endif()
endfunction()
