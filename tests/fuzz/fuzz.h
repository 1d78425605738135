/* fuzz - parsers fed with bytes that nobody meant them to read.
 *
 * A target NAME is one file, NAME_fuzz.c, that defines LLVMFuzzerTestOneInput: it hands the bytes
 * to one reader and checks what the reader promises for every input: an error or a right result, no
 * crash, no leak, the same answer twice. It is built twice:
 *
 * - with libFuzzer, clang and the address and undefined-behaviour sanitizers (preset `fuzz`): `make
 *   fuzz` searches for inputs; what it finds stays in build-fuzz/found.
 * - in every other build together with replay.c: the test fuzz.NAME feeds it each file of
 *   corpus/NAME. An input that once failed is mended and then kept there, so it never fails again.
 *
 * A new target: NAME_fuzz.c, a line in CMakeLists.txt, some files in corpus/NAME (at most 100, and
 * 200 KB, replay.c sees to it), and a line of dictionary() in scripts/fuzz if it reads words that
 * are hard to guess.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* libFuzzer's interface. The bytes are not NUL-terminated. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a target promises; not assert(), which release builds drop. */
#define FUZZ_CHECK(condition)                                                              \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

/* The bytes as a file without a name, for readers that want a path. One per process: each call
 * replaces what the last one wrote. The path is borrowed. */
const char *fuzz_file(const uint8_t *data, size_t size);
/* Drops log lines of the calling thread and what is printed to standard output: millions of help
 * texts and unknown keys are of no use. */
void fuzz_be_silent(void);

#endif
