# cmake -Dsource=DIR -Dversion=TEXT -Dto=FILE -P: the header that says what a program was built from, new when that changes.
# Only what it says about the commit is wanted, so a tree of somebody else is no danger.
execute_process(
  COMMAND git -c safe.directory=* -C "${source}" describe --always "--dirty= with changes" --exclude *
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
configure_file("${source}/benchmarks/built_from.hpp.in" "${to}" @ONLY)
