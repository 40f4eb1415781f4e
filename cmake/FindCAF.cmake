# CAF 0.17 as Debian packages it: headers and shared objects, neither a CMake package nor a .pc file.
# Provides CAF::core, CAF::io and CAF::openssl, as far as they are installed, and CAF_VERSION.
find_path(CAF_INCLUDE_DIR NAMES caf/actor_system.hpp)
if(CAF_INCLUDE_DIR)
  file(STRINGS "${CAF_INCLUDE_DIR}/caf/config.hpp" version_line REGEX "#define CAF_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+" version_number "${version_line}")
  math(EXPR version_major "${version_number} / 10000")
  math(EXPR version_minor "(${version_number} / 100) % 100")
  math(EXPR version_patch "${version_number} % 100")
  set(CAF_VERSION "${version_major}.${version_minor}.${version_patch}")
endif()
foreach(part core io openssl)
  find_library(CAF_${part}_LIBRARY NAMES caf_${part})
  mark_as_advanced(CAF_${part}_LIBRARY)
  if(CAF_${part}_LIBRARY)
    set(CAF_${part}_FOUND TRUE)
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CAF
  REQUIRED_VARS CAF_core_LIBRARY CAF_INCLUDE_DIR
  VERSION_VAR CAF_VERSION
  HANDLE_COMPONENTS)

if(CAF_FOUND)
  foreach(part core io openssl)
    if(CAF_${part}_LIBRARY AND NOT TARGET CAF::${part})
      add_library(CAF::${part} SHARED IMPORTED)
      set_target_properties(CAF::${part} PROPERTIES
        IMPORTED_LOCATION "${CAF_${part}_LIBRARY}"
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}")
      if(NOT part STREQUAL "core")
        target_link_libraries(CAF::${part} INTERFACE CAF::core)
      endif()
    endif()
  endforeach()
endif()
mark_as_advanced(CAF_INCLUDE_DIR)
