/* test_cmocka - cmocka with the headers that it wants before it, for tests. */
#ifndef SHOALI_TEST_CMOCKA_H
#define SHOALI_TEST_CMOCKA_H

#include "shoal/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Fails with the call's sentence. */
static inline void ok(shoal_status status)
{
    if (status < 0)
        fail_msg("%s: %s", shoal_status_name(status), shoal_error_trace());
}

#endif
