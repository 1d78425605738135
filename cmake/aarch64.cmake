# A toolchain of Debian's cross compiler, with libraries that scripts/arm-sysroot fetched; tests run under qemu.
#   scripts/arm-sysroot build-arm/sysroot && cmake --preset arm && ninja -C build-arm
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(shoal_sysroot ${CMAKE_CURRENT_LIST_DIR}/../build-arm/sysroot)
get_filename_component(shoal_sysroot ${shoal_sysroot} ABSOLUTE)
set(shoal_sysroot_libraries ${shoal_sysroot}/usr/lib/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} ${shoal_sysroot_libraries}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${shoal_sysroot})
set(CMAKE_FIND_ROOT_PATH ${shoal_sysroot})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${shoal_sysroot_libraries})
set(CMAKE_SHARED_LINKER_FLAGS_INIT -Wl,-rpath-link,${shoal_sysroot_libraries})
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${shoal_sysroot_libraries})
