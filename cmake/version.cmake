# Run at each build: writes app/version.h with the commit, and leaves it alone when nothing changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=-changed --abbrev=10 --exclude=* OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT COMMIT)
  set(COMMIT "unknown")
endif()
configure_file(${SOURCE}/src/app/version.h.in ${OUT} @ONLY)
