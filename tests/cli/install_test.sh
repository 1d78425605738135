#!/usr/bin/env bash
# What `make install` puts below a prefix: all of it, and usable by CMake projects (examples/cmake), also after a move.
# Usage: install_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1
root=$2
build=${shoal%/bin/shoal}
[ -z "${SANITIZE:-}" ] || { echo "skipped: programs of a sanitizer's libraries need its flags" && exit 77; }
for tool in make cmake ninja pkg-config; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed" && exit 77; }
done
install_files() { make -s -C "$root" install-files BUILD="$build" "$@"; }
expect 0 install_files PREFIX="$folder/first"
for file in bin/shoal lib/libshoal.a lib/libshoal.so lib/pkgconfig/shoal.pc lib/cmake/Shoal/ShoalConfig.cmake include/shoal/shoal.h \
    lib/cmake/Shoal/ShoalConfigVersion.cmake share/man/man1/shoal.1 share/bash-completion/completions/shoal share/zsh/site-functions/_shoal; do
    [ -s "$folder/first/$file" ] || complain "PREFIX/$file is missing"
done
mv "$folder/first" "$folder/moved"

# configure [CODE] FLAG...: of the project for consumers
configure() {
    local code=$1
    shift
    rm -rf "$folder/consumer"
    expect "$code" cmake -S "$root/examples/cmake" -B "$folder/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$folder/moved" "$@"
    output=$(tr -s ' \n' ' ' <<<"$output") # CMake folds long sentences
}
# uses shared|static PROGRAM: which library it was linked with
uses() {
    local kind=static
    ! ldd "$folder/consumer/$2" | grep -q 'libshoal\.so' || kind=shared
    [ "$kind" = "$1" ] || complain "$2 is linked with the $kind library"
    expect 0 "$folder/consumer/$2"
    says "step 300  loss 0.00"
}
configure 0 -DCONSUMER_COMPONENTS=all
says "Shoal 0." "inference"
expect 0 cmake --build "$folder/consumer"
uses shared consumer
uses shared consumer_shared
uses static consumer_static
[ ! -e "$folder/consumer/consumer_cpp" ] || uses shared consumer_cpp
for flags in "-DCONSUMER_COMPONENTS=core;static" -DBUILD_SHARED_LIBS=OFF; do
    configure 0 "$flags"
    expect 0 cmake --build "$folder/consumer" --target consumer
    uses static consumer
done
configure 1 -DCONSUMER_COMPONENTS=nosuch
says "there is no component nosuch; there are: shared static core all tokenizer"
rm "$folder/moved/lib"/libshoal.so*
configure 1 "-DCONSUMER_COMPONENTS=core;shared"
says "libshoal.so.0" "does not exist"
sed -i 's/^set(Shoal_PARTS .*/set(Shoal_PARTS tokenizer)/' "$folder/moved/lib/cmake/Shoal/ShoalConfig.cmake"
configure 1 "-DCONSUMER_COMPONENTS=hub"
says "this Shoal has no hub: it was built with SHOAL_WITH_HUB=OFF"
configure 1 "-DCONSUMER_COMPONENTS=all"
says "smaller build"

# A system's folders: libraries below LIBDIR, plug-ins apart, DESTDIR in front.
expect 0 install_files DESTDIR="$folder/stage" PREFIX=/usr LIBDIR=lib/some-triplet PLUGINDIR=lib/some-triplet/shoal
for plugin in "$build"/lib/libshoal_{mpi_*,ucx}.so; do
    [ ! -e "$plugin" ] || [ -e "$folder/stage/usr/lib/some-triplet/shoal/${plugin##*/}" ] || complain "no ${plugin##*/} in PLUGINDIR"
done
[ "$(PKG_CONFIG_PATH=$folder/stage/usr/lib/some-triplet/pkgconfig pkg-config --variable=libdir shoal)" = /usr/lib/some-triplet ] ||
    complain "shoal.pc: $(cat "$folder/stage/usr/lib/some-triplet/pkgconfig/shoal.pc")"
! grep -rl "$folder/stage" "$folder/stage" --include='*.pc' --include='*.cmake' || complain "DESTDIR is named in installed files"
mv "$folder/moved" "$folder/gone"
rm -rf "$folder/consumer"
expect 0 cmake -S "$root/examples/cmake" -B "$folder/consumer" -G Ninja -DShoal_DIR="$folder/stage/usr/lib/some-triplet/cmake/Shoal"
finish
