#!/usr/bin/env bash
# Release builds are hardened: read from the ELF files themselves, so that a flag that gets lost is missed.
# Usage: hardening_test.sh SHOAL LIBSHOAL
command -v readelf >/dev/null || { echo "skipped: there is no readelf" && exit 77; }
failures=0
# wants FILE WHAT PATTERN READELF_OPTION...: fails unless a line of readelf's output matches
wants() {
    local file=$1 what=$2 pattern=$3
    shift 3
    readelf -W "$@" "$file" | grep -Eq "$pattern" && return
    echo "FAILED: $file: $what" >&2
    failures=$((failures + 1))
}
for file in "$@"; do
    wants "$file" "not position-independent" 'Type: +DYN' -h
    wants "$file" "no read-only relocations (-z relro)" 'GNU_RELRO' -l
    wants "$file" "symbols are bound late (-z now)" '\((FLAGS|FLAGS_1)\).*NOW|BIND_NOW' -d
    wants "$file" "the stack is executable, or not said to be none (-z noexecstack)" 'GNU_STACK .* RW +0x' -l
    wants "$file" "no stack protector" '__stack_chk_fail' --dyn-syms
    wants "$file" "no checked string functions (_FORTIFY_SOURCE)" '__(memcpy|snprintf|vsnprintf)_chk' --dyn-syms
    # Programs begin with the marker of indirect branch tracking where the processor has it.
    if readelf -h "$file" | grep -q X86-64 && command -v objdump >/dev/null; then
        # no `grep -q`: it would leave objdump writing to nobody
        count=$(objdump -d --no-show-raw-insn -j .text "$file" | grep -c endbr64)
        [ "$count" -gt 100 ] || { echo "FAILED: $file: $count endbr64 (-fcf-protection)" >&2 && failures=$((failures + 1)); }
    fi
done
wants "$1" "no PIE" 'FLAGS_1.*PIE' -d
[ "$failures" -eq 0 ] && echo "all passed"
