/* test_brief - tests under an emulator or AddressSanitizer: with SHOAL_TEST_BRIEF=1 they repeat
 * themselves less. Every case stays; what is left out is the same work by other threads, ranks or
 * orders. The optimised build runs all of it. */
#ifndef SHOALI_TEST_BRIEF_H
#define SHOALI_TEST_BRIEF_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* How often: `count`, or once. */
static inline uint64_t test_repeats(uint64_t count)
{
    const char *brief = getenv("SHOAL_TEST_BRIEF");
    return brief != NULL && strcmp(brief, "1") == 0 ? 1 : count;
}

#endif
