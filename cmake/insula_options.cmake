# Warnings, sanitizers and the way a folder becomes a library; every target of the tree goes through here.
option(INSULA_WERROR "Warnings are errors" OFF)
set(INSULA_SANITIZE "" CACHE STRING "Sanitizers for everything but the static agent, e.g. address,undefined or thread")

# A precompiled header is the same text for ccache, whenever it was made and whatever is defined.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
endif()

# Builds for tests link some eighty programs with debug information, each of which takes the usual linker five seconds.
# What is shipped is linked by the usual one.
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND CMAKE_BUILD_TYPE STREQUAL Debug)
  add_link_options(-fuse-ld=mold)
endif()

add_library(insula_options INTERFACE)
target_compile_options(insula_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers -Werror=switch -Werror=return-type)
# A name without linkage means nothing to other files, but for a compiler that is given several files as one.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(insula_options INTERFACE -Wno-shadow -Wno-subobject-linkage)
endif()
if(INSULA_WERROR)
  target_compile_options(insula_options INTERFACE -Werror)
endif()
target_include_directories(insula_options INTERFACE "${CMAKE_SOURCE_DIR}")
target_link_libraries(insula_options INTERFACE Threads::Threads)

add_library(insula_sanitize INTERFACE)
if(INSULA_SANITIZE)
  target_compile_options(insula_sanitize INTERFACE
    # Some checks fail in the headers of CAF and RapidJSON (tests/ubsan.supp); only what recovers can be suppressed.
    -fsanitize=${INSULA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined
    -fsanitize-recover=null,pointer-overflow
    # It opens a pipe for a type that it meets for the first time, and takes a program without descriptors for a wrong one;
    # tests have programs run out of them.
    -fno-sanitize=vptr)
  target_link_options(insula_sanitize INTERFACE -fsanitize=${INSULA_SANITIZE})
endif()

# insula_library(name source... LINK library...): the library of one folder.
function(insula_library name)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC insula_options insula_sanitize ${arg_LINK})
endfunction()

# insula_alone(source...): what a unity build compiles by itself, because a file beside it has the same names for its own.
function(insula_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# insula_precompile(target header...): headers of others that most sources of a target include are read once. Builds that
# put many sources into one file read them less often anyway.
function(insula_precompile target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT CMAKE_UNITY_BUILD)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
