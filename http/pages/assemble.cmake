# cmake -DPAGES=<this directory> -DLIBRARY=<Swagger UI's directory> -DOUT=<file> -P assemble.cmake
# Writes the page from its title on, with scripts and styles inside; what stands before is written by the server.
file(READ "${PAGES}/openapi.html" page)
file(READ "${PAGES}/openapi.css" own_style)
file(READ "${PAGES}/openapi.js" own_script)
file(READ "${LIBRARY}/swagger-ui.css" library_style)
file(READ "${LIBRARY}/swagger-ui-bundle.js" library)

# Maps of the sources are not served.
string(REPLACE "/*# sourceMappingURL=swagger-ui.css.map*/" "" library_style "${library_style}")
string(REPLACE "//# sourceMappingURL=swagger-ui-bundle.js.map" "" library "${library}")
# In HTML these begin and end something else. In a script both spellings mean the same.
string(REPLACE "<!--" "\\x3C!--" library "${library}")
string(REPLACE "</script" "<\\/script" library "${library}")

foreach(part library_style own_style library own_script)
  string(REPLACE "@${part}@" "${${part}}" page "${page}")
endforeach()
file(WRITE "${OUT}" "${page}")
