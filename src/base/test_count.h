/* test_count - how many allocations the calling thread makes. It is a measure of work that no other
 * CPU and no busy machine changes. The fault point "alloc" counts them and never fires. */
#ifndef SHOALI_TEST_COUNT_H
#define SHOALI_TEST_COUNT_H

#include "base/fault.h"
#include "base/test_cmocka.h"

#define COUNT_NEVER INT64_C(1000000000000)

static inline void count_begin(void)
{
    assert_true(shoali_fault_arm("alloc:1000000000000"));
}

static inline int64_t count_end(void)
{
    const int64_t left = shoali_fault_left();
    assert_true(left >= 0 && shoali_fault_arm(NULL));
    return COUNT_NEVER - left;
}

#endif
