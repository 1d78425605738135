#!/usr/bin/env bash
# The Debian packages of a build: what is in which, on what they depend, and that the same build makes the same packages.
# `tests/bare/run package` installs and uses them.
# Usage: deb_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1
root=$2
build=${shoal%/bin/shoal}
[ -z "${SANITIZE:-}" ] || { echo "skipped: a sanitizer's build is no package" && exit 77; }
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture make; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed" && exit 77; }
done
dpkg -S /usr/include/jansson.h >/dev/null 2>&1 || { echo "skipped: jansson is not a package of this system" && exit 77; }
export DPKG_DEB_COMPRESSOR_TYPE=none SOURCE_DATE_EPOCH=1900000000 DEBFULLNAME="A Packager" DEBEMAIL=packager@shoal.invalid
expect 0 "$root/scripts/deb" "$build" "$folder/deb"
[ "$(grep -c '\.deb$' <<<"$output")" = "$(grep -c . <<<"$output")" ] || complain "scripts/deb says: $output"
package() { echo "$folder/deb/$1"_*.deb; }
# holds PACKAGE PATTERN...: a file of the package matches each
holds() {
    local name=$1 pattern files
    shift
    files=$(dpkg-deb -c "$(package "$name")" | awk '{ print $1, $2, $6 }')
    ! grep -v ' root/root ' <<<"$files" || complain "$name: files of others"
    for pattern in "$@"; do
        grep -qE " \./usr/$pattern\$" <<<"$files" || complain "$name has no $pattern"
    done
}
# depends PACKAGE NAME...: each is in the package's field Depends
depends() {
    local name=$1 field wanted
    shift
    field=", $(dpkg-deb -f "$(package "$name")" Depends),"
    for wanted in "$@"; do
        grep -qE ", $wanted[ ,]" <<<"$field" || complain "$name does not depend on $wanted: $field"
    done
}
minor=$("$shoal" --version | sed 's/^shoal \([0-9]*\.[0-9]*\).*/\1/')
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
holds shoal bin/shoal share/man/man1/shoal-pretrain.1.gz share/man/man5/shoal-config.5.gz share/bash-completion/completions/shoal \
    share/zsh/vendor-completions/_shoal share/doc/shoal/copyright share/doc/shoal/changelog.gz
depends shoal libc6 'libjansson4[a-z0-9]*' 'libpcre2-8-0[a-z0-9]*' 'libsodium[0-9]+'
holds "libshoal$minor" "lib/$triplet/libshoal.so.$minor" "lib/$triplet/libshoal.so.$minor.[0-9]+"
depends "libshoal$minor" libc6
holds libshoal-dev include/shoal/shoal.h "lib/$triplet/libshoal.a" "lib/$triplet/libshoal.so" "lib/$triplet/pkgconfig/shoal.pc" \
    "lib/$triplet/cmake/Shoal/ShoalConfig.cmake"
depends libshoal-dev "libshoal$minor" libjansson-dev libsodium-dev
for plugin in "$build"/lib/libshoal_{mpi_*,ucx}.so; do
    [ -e "$plugin" ] || continue
    name=${plugin##*_} name=shoal-${name%.so}
    holds "$name" "lib/$triplet/shoal/${plugin##*/}" "lib/shoal/${plugin##*/}"
    depends "$name" libc6
done
expect 0 dpkg-deb -f "$(package shoal)" Version Maintainer Source
says "A Packager <packager@shoal.invalid>" "Source: shoal"
# a version without a date of release sorts before the release
version=$("$shoal" --version | cut -d' ' -f2)
packed=$(dpkg-deb -f "$(package shoal)" Version)
grep -qE "^## \[$version\] - [0-9]" "$root/CHANGELOG.md" || dpkg --compare-versions "$packed" lt "$version" || complain "$packed is not before $version"
# no debug information, no path of the build
dpkg-deb -x "$(package shoal)" "$folder/root"
if command -v readelf >/dev/null; then
    ! readelf -SW "$folder/root/usr/bin/shoal" | grep -q '\.debug_' || complain "the program is not stripped"
fi
first=$(cd "$folder/deb" && sha256sum -- *.deb)
expect 0 "$root/scripts/deb" "$build" "$folder/deb"
[ "$(cd "$folder/deb" && sha256sum -- *.deb)" = "$first" ] || complain "another time, other packages"
expect 1 "$root/scripts/deb" "$folder/root"
says "run make"
finish
