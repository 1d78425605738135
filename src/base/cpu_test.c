/* Signatures of processors, and what is said of them. */
#include "base/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_signatures(void **state)
{
    (void)state;
    static const struct {
        uint32_t signature;
        int32_t family, model;
    } known[] = {
        {0x000806f8, 6, 143}, /* Sapphire Rapids */
        {0x00050657, 6, 85},  /* Cascade Lake; Cooper Lake is its model, too */
        {0x000a06d1, 6, 173}, /* Granite Rapids */
        {0x00a10f11, 25, 17}, /* Zen 4 */
        {0x00b00f21, 26, 2},  /* Zen 5 */
        {0x00000f4a, 15, 4},  /* as old as 64 bits */
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        int32_t family, model;
        shoali_cpu_read_signature(known[i].signature, &family, &model);
        assert_int_equal(family, known[i].family);
        assert_int_equal(model, known[i].model);
    }
}

static void test_descriptions(void **state)
{
    (void)state;
    char text[SHOALI_CPU_NAME_BYTES];
    struct shoali_cpu cpu = {.vendor = "GenuineIntel", .family = 6, .model = 143};
    assert_string_equal(shoali_cpu_describe(&cpu, text), "GenuineIntel family 6 model 143");
    assert_string_equal(shoali_cpu_describe_tiles(&cpu, false), "none in this CPU");
    cpu.amx_tile = true;
    assert_non_null(strstr(shoali_cpu_describe_tiles(&cpu, false), "XCR0"));
    cpu.tiles_kept = true;
    assert_non_null(strstr(shoali_cpu_describe_tiles(&cpu, false), "arch_prctl"));
    assert_string_equal(shoali_cpu_describe_tiles(&cpu, true), "usable, without bf16");
    cpu.amx_bf16 = true;
    assert_string_equal(shoali_cpu_describe_tiles(&cpu, true), "usable");
    cpu.vendor[0] = '\0';
    assert_string_equal(shoali_cpu_describe(&cpu, text), "unknown");
}

/* Of this machine: the same each time; a permission needs tiles that the system keeps. */
static void test_this_one(void **state)
{
    (void)state;
    const struct shoali_cpu cpu = shoali_cpu_get(), again = shoali_cpu_get();
    assert_memory_equal(&cpu, &again, sizeof cpu);
    const bool permitted = shoali_cpu_permit_tiles();
    assert_true(!permitted || (cpu.amx_tile && cpu.tiles_kept));
    assert_int_equal(shoali_cpu_permit_tiles(), permitted);
#if defined(__x86_64__)
    assert_int_equal(strlen(cpu.vendor), 12);
    assert_true(cpu.family > 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
