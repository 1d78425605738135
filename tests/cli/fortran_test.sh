#!/usr/bin/env bash
# The example in Fortran, compiled with the shared library, alone and on two ranks.
# Usage: fortran_test.sh SHOAL LIBSHOAL.so SOURCE      FC is the compiler
. "$(dirname "$0")/check.sh"
shoal=$1
library=$2
compiler=${FC:-gfortran}
[ -z "$SANITIZE" ] || { echo "skipped: a Fortran program has no sanitizer's runtime" && exit 77; }
command -v "$compiler" >/dev/null || { echo "skipped: there is no Fortran compiler ($compiler)" && exit 77; }
expect 0 "$compiler" -std=f2018 -Wall -Wextra -Werror -J "$folder" "$3/examples/fortran/shoal.f90" "$3/examples/fortran/main.f90" -o "$folder/main" \
    "$library" -Wl,-rpath,"$(dirname "$library")"
expect 0 "$folder/main"
says "step 60  loss ."
expect 0 "$shoal" run --num_gpus 2 --master_port 0 "$folder/main"
says "step 60  loss ."

# Each type has the size of C's struct, and each member its place
awk '/^  type, bind\(C\) ::/ { name = $NF }
     /^  end type/ { name = "" }
     name != "" && !/^  type,/ { sub(/!.*/, ""); sub(/.*::/, ""); gsub(/ = [^,&]*/, ""); gsub(/&/, " ")
                                 count = split($0, part, ","); for (i = 1; i <= count; i++) { gsub(/ /, "", part[i]); if (part[i] != "") print name, part[i] } }' \
    "$3/examples/fortran/shoal.f90" >"$folder/members"
{
    echo 'program places'
    echo '  use shoal'
    awk '!seen[$1]++ { printf "  type(%s), target :: a_%s\n", $1, $1 }' "$folder/members"
    awk '!seen[$1]++ { printf "  print \"(a,i0)\", \"%s \", c_sizeof(a_%s)\n", $1, $1 }
         { printf "  print \"(a,i0)\", \"%s.%s \", place(c_loc(a_%s), c_loc(a_%s%%%s))\n", $1, $2, $1, $1, $2 }' "$folder/members"
    echo 'contains'
    echo '  integer(c_intptr_t) function place(from, to)'
    echo '    type(c_ptr), intent(in) :: from, to'
    echo '    place = transfer(to, place) - transfer(from, place)'
    echo '  end function'
    echo 'end program'
} >"$folder/places.f90"
{
    echo '#include <shoal/shoal.h>'
    echo '#include <stddef.h>'
    echo '#include <stdio.h>'
    echo 'int main(void) {'
    awk '!seen[$1]++ { printf "printf(\"%s %%zu\\n\", sizeof(%s));\n", $1, $1 }
         { printf "printf(\"%s.%s %%zu\\n\", offsetof(%s, %s));\n", $1, $2, $1, $2 }' "$folder/members"
    echo '}'
} >"$folder/places.c"
expect 0 "$compiler" -ffree-line-length-none -J "$folder" "$3/examples/fortran/shoal.f90" "$folder/places.f90" -o "$folder/fortran_places" "$library" \
    -Wl,-rpath,"$(dirname "$library")"
expect 0 "${CC:-cc}" -std=c11 -I"$3/include" "$folder/places.c" -o "$folder/c_places"
"$folder/fortran_places" | sort >"$folder/fortran"
"$folder/c_places" | sort >"$folder/c"
[ "$(wc -l <"$folder/c")" -gt 40 ] || complain "only $(wc -l <"$folder/c") places were compared"
output=$(diff "$folder/fortran" "$folder/c") || complain "types of examples/fortran/shoal.f90 (<) and structs of C (>): $output"
finish
