enable_language(ASM)

# insula_embed(target file symbol): links a program that is built here, or a file of this build directory, into
# the target, between symbol_begin and symbol_end.
function(insula_embed target name symbol)
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  if(TARGET ${name})
    get_target_property(where ${name} BINARY_DIR)
    set(file "${where}/${name}")
  endif()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${symbol}.S")
  configure_file("${CMAKE_SOURCE_DIR}/cmake/embed.S.in" "${source}" @ONLY)
  target_sources(${target} PRIVATE "${source}")
  set_source_files_properties("${source}" PROPERTIES OBJECT_DEPENDS "${file}")
  if(TARGET ${name})
    add_dependencies(${target} ${name})
  endif()
endfunction()
