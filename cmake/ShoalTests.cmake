# Tests and their labels. A stage of CI chooses its tests by label; docs/TESTING.md lists the labels and the stages.
#
# Each test has its folder as a label: the part of its name before the first dot. A test that links shoali_X has the label X too.
# CMake writes two files for the stages, which .ci/touched and `make tsan` read:
#   folder-deps    FOLDER: FOLDER...   the folders that a folder uses
#   test-targets   TEST TARGET...      the programs that a test runs

# shoal_depends(FOLDER USED...): a line of folder-deps.
function(shoal_depends folder)
  list(JOIN ARGN " " used)
  set_property(GLOBAL APPEND PROPERTY SHOAL_FOLDER_DEPS "${folder}: ${used}")
endfunction()

# shoal_label(TEST LABEL...): adds labels to a test of the same CMakeLists.txt.
function(shoal_label test)
  foreach(label ${ARGN})
    set_property(TEST ${test} APPEND PROPERTY LABELS ${label})
  endforeach()
endfunction()

# The label, if a sentence says why these tests have it.
function(shoali_reasoned_label label reason)
  if(NOT reason MATCHES " ")
    message(FATAL_ERROR "label ${label}: give the reason first, then the tests: \"${reason}\" is no sentence")
  endif()
  foreach(test ${ARGN})
    shoal_label(${test} ${label})
  endforeach()
endfunction()
# shoal_nightly(REASON TEST...): `make test WITHOUT=` and `.ci/run nightly` run these tests, `make test` does not.
function(shoal_nightly reason)
  shoali_reasoned_label(nightly "${reason}" ${ARGN})
endfunction()
# shoal_clock(REASON TEST...): what these tests see is a matter of time. In CI they may run again (CONTRIBUTING.md).
function(shoal_clock reason)
  shoali_reasoned_label(clock "${reason}" ${ARGN})
endfunction()
# shoal_plain(REASON TEST...): no sanitizer runs these tests, so that the plain build runs them for each change.
function(shoal_plain reason)
  shoali_reasoned_label(plain "${reason}" ${ARGN})
endfunction()

# shoal_command(NAME [SKIPS] [TIMEOUT s] [COST n] [LABELS ...] [LOCK ...] [ENVIRONMENT ...] [TARGETS ...] COMMAND ...): a test that is
# any command. SKIPS: exit 77 = skipped. LOCK: of tests with the same lock one runs at a time. TARGETS: the programs that it runs.
function(shoal_command name)
  cmake_parse_arguments(ARG "SKIPS" "TIMEOUT;COST" "LABELS;LOCK;ENVIRONMENT;TARGETS;COMMAND" ${ARGN})
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  string(REGEX MATCH "^[^.]+" folder ${name})
  list(PREPEND ARG_LABELS ${folder})
  list(REMOVE_DUPLICATES ARG_LABELS)
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  foreach(property TIMEOUT COST ENVIRONMENT)
    if(ARG_${property})
      set_tests_properties(${name} PROPERTIES ${property} "${ARG_${property}}")
    endif()
  endforeach()
  if(ARG_SKIPS)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
  if(ARG_LOCK)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK "${ARG_LOCK}")
  endif()
  list(JOIN ARG_TARGETS " " targets)
  set_property(GLOBAL APPEND PROPERTY SHOAL_TEST_TARGETS "${name} ${targets}")
endfunction()

# shoal_absent(VARIABLE LIBRARY...): whether one of the libraries is of a part that is off.
function(shoal_absent variable)
  set(${variable} OFF PARENT_SCOPE)
  foreach(library ${ARGN})
    if(library MATCHES "^shoali_" AND NOT TARGET ${library})
      set(${variable} ON PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# shoal_test(NAME SOURCE [ARGUMENTS ...] [LIBRARIES ...] [SOURCES ...] [TIMEOUT s] [COST n] [LABELS ...]): a cmocka program; exit 77 = skipped.
# Nothing where a library is absent.
function(shoal_test name source)
  cmake_parse_arguments(ARG "" "TIMEOUT;COST" "ARGUMENTS;LIBRARIES;LABELS;SOURCES" ${ARGN})
  shoal_absent(absent ${ARG_LIBRARIES})
  if(absent)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(SHOAL_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4") # instrumented code, and machines that do other things too
  endif()
  add_executable(${name} ${source} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} PkgConfig::CMOCKA Threads::Threads m)
  foreach(library ${ARG_LIBRARIES})
    if(library MATCHES "^shoali_(.*)$")
      list(APPEND ARG_LABELS ${CMAKE_MATCH_1})
    endif()
  endforeach()
  shoal_command(${name} SKIPS TIMEOUT ${ARG_TIMEOUT} COST ${ARG_COST} LABELS ${ARG_LABELS} TARGETS ${name} COMMAND ${name} ${ARG_ARGUMENTS})
  # The long ones begin first, so that no core waits for one of them at the end.
  if(name MATCHES "covering_test$|^engine\\.(tensor_parallel|pipeline|splits)_test$|^conformance\\.comm_ucx$|^ops\\.(conformance|cpu\\.(attention|gemm)_test)$")
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()

# The two files, after all folders.
function(shoal_write_test_files)
  foreach(file folder-deps test-targets)
    string(TOUPPER shoal-${file} property)
    string(REPLACE - _ property ${property})
    get_property(lines GLOBAL PROPERTY ${property})
    list(JOIN lines "\n" text)
    file(WRITE ${CMAKE_BINARY_DIR}/${file} "${text}\n")
  endforeach()
endfunction()
