# cmake -DPAGE=<html> -DPARTS=<name;file;name;file...> -DOUT=<file> -P assemble_page.cmake
# Writes the page with each file in the place of its @name@.
file(READ "${PAGE}" page)
while(PARTS)
  list(POP_FRONT PARTS name path)
  file(READ "${path}" part)
  # Maps of the sources are not served.
  get_filename_component(file "${path}" NAME)
  string(REPLACE "/*# sourceMappingURL=${file}.map*/" "" part "${part}")
  string(REPLACE "//# sourceMappingURL=${file}.map" "" part "${part}")
  # In HTML these begin and end something else. In a script both spellings mean the same.
  if(path MATCHES "\\.js$")
    string(REPLACE "<!--" "\\x3C!--" part "${part}")
    string(REPLACE "</script" "<\\/script" part "${part}")
  endif()
  string(REPLACE "@${name}@" "${part}" page "${page}")
endwhile()
file(WRITE "${OUT}" "${page}")
