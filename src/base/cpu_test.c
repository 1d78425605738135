/* Signatures of processors, and what is said of them. */
#include "base/cpu.h"

#include <string.h>

#include "base/test_cmocka.h"

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

static void test_midr(void **state)
{
    (void)state;
    static const struct {
        uint64_t midr;
        const char *vendor;
        int32_t part;
    } known[] = {
        {0x410fd0c1, "ARM", 0xd0c},        /* Neoverse N1 */
        {0x411fd401, "ARM", 0xd40},        /* Neoverse V1 */
        {0x410fd083, "ARM", 0xd08},        /* Cortex-A72 */
        {0x460f0010, "Fujitsu", 0x001},    /* A64FX */
        {0x480fd010, "HiSilicon", 0xd01},  /* Kunpeng 920 */
        {0xc00fac30, "Ampere", 0xac3},     /* Ampere-1 */
        {0x000f0510, "maker 0x00", 0x051}, /* one of the emulator's */
        {0x1610f0321, "Apple", 0x032},     /* what is above 32 bits is not looked at */
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct shoali_cpu cpu = {.family = 1};
        shoali_cpu_read_midr(known[i].midr, &cpu);
        assert_string_equal(cpu.vendor, known[i].vendor);
        assert_int_equal(cpu.family, 0);
        assert_int_equal(cpu.model, known[i].part);
    }
}

/* Capabilities as Linux gives them, and what is said of them. */
static void test_hwcaps(void **state)
{
    (void)state;
    char text[SHOALI_CPU_VECTORS_BYTES], name[SHOALI_CPU_NAME_BYTES];
    struct shoali_cpu cpu = {.vendor = "ARM", .model = 0xd08};
    assert_string_equal(shoali_cpu_describe_vectors(&cpu, text), "none in this CPU");
    shoali_cpu_read_hwcaps(0x8ff, 0, &cpu); /* Cortex-A72 */
    assert_true(cpu.asimd && !cpu.asimddp && !cpu.sve && !cpu.bf16);
    assert_string_equal(shoali_cpu_describe(&cpu, name), "ARM part 0xd08");
    assert_string_equal(shoali_cpu_describe_vectors(&cpu, text),
                        "Advanced SIMD; no BFDOT (bf16), so bf16 is widened");
    shoali_cpu_read_hwcaps(1u << 1 | 1u << 20 | 1u << 22, 1u << 14, &cpu);
    assert_true(cpu.asimd && cpu.asimddp && cpu.sve && cpu.bf16);
    assert_string_equal(shoali_cpu_describe_vectors(&cpu, text),
                        "Advanced SIMD; products of bf16 by BFDOT; SVE exists but is not used");
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
#if defined(__aarch64__)
    assert_true(cpu.asimd);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures), cmocka_unit_test(test_midr),
        cmocka_unit_test(test_hwcaps),     cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
