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
# the size of a pointer, where that of the struct belongs
sed 's/call check(shoal_engine_create(args, c_sizeof(args), engine))/call check(shoal_engine_create(args, c_sizeof(engine), engine))/' \
    "$3/examples/fortran/shoal.f90" >"$folder/wrong.f90"
expect 0 "$compiler" -J "$folder" "$folder/wrong.f90" "$3/examples/fortran/main.f90" -o "$folder/wrong" "$library" -Wl,-rpath,"$(dirname "$library")"
expect 1 "$folder/wrong"
says "8 bytes were given as the size of a shoal_engine_args" "pass the size of the struct itself"
finish
