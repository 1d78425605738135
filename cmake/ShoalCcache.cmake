# Compiles through ccache where it is installed: a file that was compiled before, in any build folder or clone, is not compiled
# again. Without ccache nothing changes. It is included before project(), which reads the launcher.
#
# Clones share results because ccache sees paths below the source folder as relative ones (CCACHE_BASEDIR), and the current
# folder is no part of a result (CCACHE_NOHASHDIR).
set(SHOAL_CCACHE AUTO CACHE STRING "compile through ccache: AUTO, ON or OFF")
set(SHOAL_USES_CCACHE OFF)
if(DEFINED CMAKE_C_COMPILER_LAUNCHER OR NOT (SHOAL_CCACHE STREQUAL "AUTO" OR SHOAL_CCACHE))
  return()
endif()
find_program(SHOAL_CCACHE_PROGRAM ccache)
set(ccache_state 1)
if(SHOAL_CCACHE_PROGRAM)
  # Its folder has to be writable.
  execute_process(COMMAND ${SHOAL_CCACHE_PROGRAM} --print-stats RESULT_VARIABLE ccache_state OUTPUT_QUIET ERROR_QUIET)
endif()
if(ccache_state EQUAL 0)
  set(SHOAL_USES_CCACHE ON)
  set(CMAKE_C_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${SHOAL_CCACHE_PROGRAM})
elseif(NOT SHOAL_CCACHE STREQUAL "AUTO")
  message(FATAL_ERROR "SHOAL_CCACHE=ON: there is no ccache that works; install ccache, or give it a folder (CCACHE_DIR)")
endif()
