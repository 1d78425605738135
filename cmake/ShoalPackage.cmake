# The CMake package, in the build folder's package/, from where `make install` copies it: what find_package(Shoal) of other projects reads.
include(CMakePackageConfigHelpers)
set(SHOAL_PART_NAMES "")
set(SHOAL_PARTS_ON "")
foreach(part ${SHOAL_PARTS})
  string(TOLOWER ${part} name)
  list(APPEND SHOAL_PART_NAMES ${name})
  if(SHOAL_WITH_${part})
    list(APPEND SHOAL_PARTS_ON ${name})
  endif()
endforeach()
foreach(list SHOAL_PART_NAMES SHOAL_PARTS_ON SHOAL_REQUIRES)
  list(JOIN ${list} " " ${list})
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/ShoalConfig.cmake.in ${CMAKE_BINARY_DIR}/package/ShoalConfig.cmake @ONLY)
# As the soname: before 1.0 a minor version may change structs.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/ShoalConfigVersion.cmake VERSION ${PROJECT_VERSION}
                                 COMPATIBILITY SameMinorVersion)
