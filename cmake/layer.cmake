# miniacc_add_layer(name SOURCES a.cpp ... [DEPENDS core io ...] [LIBRARIES PkgConfig::X ...])
#
# One static library a layer of the architecture (docs/architecture.md). DEPENDS names layers whose
# headers this one may include; LIBRARIES are third party and stay private to the layer.
function(miniacc_add_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  set(cuda_sources ${ARG_SOURCES})
  list(FILTER cuda_sources INCLUDE REGEX "\\.cu$")
  miniacc_cuda_sources(${cuda_sources})
  add_library(miniacc_${name} STATIC ${ARG_SOURCES})
  add_library(miniacc::${name} ALIAS miniacc_${name})
  target_link_libraries(miniacc_${name} PUBLIC miniacc::options)
  foreach(dependency IN LISTS ARG_DEPENDS)
    target_link_libraries(miniacc_${name} PUBLIC miniacc::${dependency})
  endforeach()
  target_link_libraries(miniacc_${name} PRIVATE ${ARG_LIBRARIES})
  set_target_properties(miniacc_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
