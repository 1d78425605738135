/* Structs of older and newer programs. */
#include "base/sized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct first { /* as an old program knows it */
    int64_t a;
    int32_t b;
};
struct known { /* ours */
    int64_t a;
    int32_t b;
    int64_t c;
};
struct later { /* as a newer program knows it */
    int64_t a;
    int32_t b;
    int64_t c;
    char d[24];
};
static const struct known defaults = {1, 2, 3};
static const struct shoali_sized *const type = SHOALI_SIZED(struct known, b);

static bool unchanged(const struct known *ours)
{
    return ours->a == defaults.a && ours->b == defaults.b && ours->c == defaults.c;
}

static void refused(shoal_status status, const char *word, const char *other)
{
    assert_int_equal(status, SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), word) || !strstr(shoal_error_message(), other))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", shoal_error_message(), word, other);
}

static void test_older_programs_get_defaults(void **state)
{
    struct known ours = defaults;
    const struct first old = {10, 20};
    (void)state;
    assert_int_equal(shoali_sized_read(type, &old, sizeof old, &ours), SHOAL_OK);
    assert_true(ours.a == 10 && ours.b == 20 && ours.c == 3);
    ours = defaults;
    assert_int_equal(shoali_sized_read(type, NULL, 0, &ours), SHOAL_OK);
    assert_true(unchanged(&ours));
    const struct known same = {4, 5, 6};
    assert_int_equal(shoali_sized_read(type, &same, sizeof same, &ours), SHOAL_OK);
    assert_true(ours.a == 4 && ours.b == 5 && ours.c == 6);
}

/* A member that we do not know may be there, but may ask for nothing: whichever byte of it is set. */
static void test_newer_programs_may_not_ask_for_more(void **state)
{
    struct known ours = defaults;
    struct later new;
    (void)state;
    memset(&new, 0, sizeof new);
    new.c = 7;
    assert_int_equal(shoali_sized_read(type, &new, sizeof new, &ours), SHOAL_OK);
    assert_int_equal(ours.c, 7);
    for (size_t i = 0; i < sizeof new.d; i++) {
        char place[64];
        memset(new.d, 0, sizeof new.d);
        new.d[i] = 1;
        ours = defaults;
        snprintf(place, sizeof place, "at byte %zu of %zu", offsetof(struct later, d) + i,
                 sizeof new);
        refused(shoali_sized_read(type, &new, sizeof new, &ours), "struct known", place);
        assert_true(unchanged(&ours));
    }
}

static void test_sizes_that_are_none(void **state)
{
    struct known ours = defaults;
    const struct known theirs = {4, 5, 6};
    (void)state;
    for (size_t bytes = 0; bytes < 12; bytes++) /* 8: of a pointer */
        refused(shoali_sized_read(type, &theirs, bytes, &ours), "struct known",
                "never had fewer than 12");
    assert_true(unchanged(&ours));
}

static void test_what_is_filled(void **state)
{
    const struct known from = {4, 5, 6};
    struct {
        struct first value;
        int64_t behind;
    } old = {.behind = 99};
    struct later new;
    (void)state;
    shoali_sized_copy(&old.value, sizeof old.value, &from, sizeof from);
    assert_true(old.value.a == 4 && old.value.b == 5 && old.behind == 99);
    memset(&new, 0xff, sizeof new);
    shoali_sized_copy(&new, sizeof new, &from, sizeof from);
    assert_true(new.a == 4 && new.b == 5 && new.c == 6);
    for (size_t i = 0; i < sizeof new.d; i++)
        assert_int_equal(new.d[i], 0);
    shoali_sized_copy(NULL, 0, &from, sizeof from); /* an info that is not wanted */
}

static void test_reserved_members(void **state)
{
    const void *reserved[3] = {NULL};
    (void)state;
    assert_int_equal(shoali_check_reserved("x.reserved", reserved, sizeof reserved), SHOAL_OK);
    reserved[2] = &reserved;
    refused(shoali_check_reserved("x.reserved", reserved, sizeof reserved), "x.reserved is not 0",
            "zero the struct");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_older_programs_get_defaults),
                                       cmocka_unit_test(test_newer_programs_may_not_ask_for_more),
                                       cmocka_unit_test(test_sizes_that_are_none),
                                       cmocka_unit_test(test_what_is_filled),
                                       cmocka_unit_test(test_reserved_members)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
