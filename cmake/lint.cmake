# `cmake --build ... --target format` rewrites, `format-check` and `tidy` only judge.
find_program(CLANG_FORMAT NAMES clang-format-14 clang-format)
find_program(CLANG_TIDY NAMES clang-tidy-14 clang-tidy)
file(GLOB_RECURSE MINIACC_FORMAT_FILES
     ${CMAKE_SOURCE_DIR}/src/*.[ch]* ${CMAKE_SOURCE_DIR}/include/*.h ${CMAKE_SOURCE_DIR}/apps/*.[ch]*
     ${CMAKE_SOURCE_DIR}/tests/*.[ch]* ${CMAKE_SOURCE_DIR}/bench/*.[ch]*)
list(FILTER MINIACC_FORMAT_FILES INCLUDE REGEX "\\.(h|cpp|cu|cuh)$")
add_custom_target(format COMMAND ${CLANG_FORMAT} -i ${MINIACC_FORMAT_FILES} VERBATIM)
add_custom_target(format-check COMMAND ${CLANG_FORMAT} --dry-run --Werror ${MINIACC_FORMAT_FILES}
                  VERBATIM)
