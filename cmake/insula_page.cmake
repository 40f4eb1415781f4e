include(insula_embed)
find_program(GZIP_PROGRAM gzip REQUIRED)

# insula_page(target symbol html name file [name file...]): puts each file in the place of its @name@ in the page and links
# that, compressed, into the target, between symbol_begin and symbol_end.
function(insula_page target symbol html)
  set(files ${ARGN})
  list(LENGTH files left)
  while(left GREATER 0)
    math(EXPR left "${left} - 2")
    list(REMOVE_AT files ${left})
  endwhile()
  add_custom_command(OUTPUT ${symbol}.gz
    COMMAND "${CMAKE_COMMAND}" "-DPAGE=${html}" "-DPARTS=${ARGN}" -DOUT=${symbol} -P "${CMAKE_SOURCE_DIR}/cmake/assemble_page.cmake"
    COMMAND "${GZIP_PROGRAM}" -9nf ${symbol}
    DEPENDS "${CMAKE_SOURCE_DIR}/cmake/assemble_page.cmake" "${html}" ${files}
    VERBATIM)
  insula_embed(${target} ${symbol}.gz ${symbol})
endfunction()
