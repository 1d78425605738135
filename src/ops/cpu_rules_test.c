/* Which kernels serve on processors that this one pretends to be. */
#include "base/base.h"
#include "ops/cpu_rules.h"

#include "base/test_cmocka.h"
#include "ops/kernel.h"
#include "ops/ops.h"

#include <string.h>

/* What the pretended processor can run; a test of one thread. */
static struct {
    bool amx, avx512_bf16, avx512, avx2, neon_bf16, neon;
} able;
static bool probe_amx(void)
{
    return able.amx;
}
static bool probe_avx512_bf16(void)
{
    return able.avx512_bf16;
}
static bool probe_avx512(void)
{
    return able.avx512;
}
static bool probe_avx2(void)
{
    return able.avx2;
}
static bool probe_neon_bf16(void)
{
    return able.neon_bf16;
}
static bool probe_neon(void)
{
    return able.neon;
}
static bool always(void)
{
    return true;
}

static void never(const void *args, const struct shoali_kernel_context *context)
{
    (void)args, (void)context;
    fail_msg("nothing is computed here");
}

#define BF16 (1u << SHOAL_BF16)
static const struct shoali_ops_entry tiles[] = {
    {&shoali_kernel_gemm, never, BF16, NULL, NULL},
    {&shoali_kernel_attention, never, BF16, NULL, NULL},
};
static const struct shoali_ops_entry vectors[] = {
    {&shoali_kernel_gemm, never, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_attention, never, SHOALI_SHORT_FLOATS, NULL, NULL},
    {&shoali_kernel_norm, never, SHOALI_SHORT_FLOATS, NULL, NULL},
};
static const struct shoali_ops_entry all[] = {
    {&shoali_kernel_gemm, never, SHOALI_ALL_DTYPES, NULL, NULL},
    {&shoali_kernel_attention, never, SHOALI_ALL_DTYPES, NULL, NULL},
    {&shoali_kernel_norm, never, SHOALI_ALL_DTYPES, NULL, NULL},
};
#define TABLE(table, is_able, its, count, named)                                        \
    {                                                                                   \
        .abi = SHOALI_OPS_ABI, .bytes = sizeof(struct shoali_ops_table), .name = table, \
        .probe = is_able, .entries = its, .entry_count = count, .by_name = named        \
    }
static const struct shoali_ops_table built[] = {
    TABLE("cpu-amx", probe_amx, tiles, 2, false),
    TABLE("cpu-amx-emulated", always, tiles, 2, true),
    TABLE("cpu-avx512_bf16", probe_avx512_bf16, vectors, 3, false),
    TABLE("cpu-avx512", probe_avx512, vectors, 3, false),
    TABLE("cpu-avx2", probe_avx2, vectors, 3, false),
    TABLE("ref", always, all, 3, false),
    TABLE("cpu-neon_bf16", probe_neon_bf16, vectors, 3, false),
    TABLE("cpu-neon", probe_neon, vectors, 3, false),
};
static const struct shoali_ops_table *const tables[] = {&built[0], &built[1], &built[2], &built[3],
                                                        &built[4], &built[5], NULL};
static const struct shoali_ops_table *const tables_of_arm[] = {&built[1], &built[6], &built[7],
                                                               &built[5], NULL};

struct processor {
    const char *what, *vendor;
    int32_t family, model;
    bool amx, avx512_bf16, avx512, avx2;
    const char *name, *bf16, *fp32, *norm; /* of the tables: first; gemm in two types; norm */
};
static const struct processor processors[] = {
    {"Sapphire Rapids", "GenuineIntel", 6, 143, true, true, true, true, "cpu-amx", "cpu-amx",
     "cpu-avx512", "cpu-avx512"},
    {"the same without tiles", "GenuineIntel", 6, 143, false, true, true, true, "cpu-avx512",
     "cpu-avx512", "cpu-avx512", "cpu-avx512"},
    {"Granite Rapids", "GenuineIntel", 6, 173, true, true, true, true, "cpu-amx", "cpu-amx",
     "cpu-avx512", "cpu-avx512"},
    {"Cooper Lake", "GenuineIntel", 6, 85, false, true, true, true, "cpu-avx512", "cpu-avx512",
     "cpu-avx512", "cpu-avx512"},
    {"Ice Lake", "GenuineIntel", 6, 106, false, false, true, true, "cpu-avx512", "cpu-avx512",
     "cpu-avx512", "cpu-avx512"},
    {"Haswell", "GenuineIntel", 6, 63, false, false, false, true, "cpu-avx2", "cpu-avx2",
     "cpu-avx2", "cpu-avx2"},
    {"Zen 4", "AuthenticAMD", 25, 17, false, true, true, true, "cpu-avx512_bf16", "cpu-avx512_bf16",
     "cpu-avx512_bf16", "cpu-avx512_bf16"},
    {"Zen 5", "AuthenticAMD", 26, 2, false, true, true, true, "cpu-avx512_bf16", "cpu-avx512_bf16",
     "cpu-avx512_bf16", "cpu-avx512_bf16"},
    {"Zen 2", "AuthenticAMD", 23, 49, false, false, false, true, "cpu-avx2", "cpu-avx2", "cpu-avx2",
     "cpu-avx2"},
    {"one of tomorrow", "SomebodyElse", 6, 143, true, true, true, true, "cpu-amx", "cpu-amx",
     "cpu-avx512_bf16", "cpu-avx512_bf16"},
    {"one without vectors", "", 0, 0, false, false, false, false, "ref", "ref", "ref", "ref"},
};

static struct shoali_cpu pretend(const struct processor *p)
{
    struct shoali_cpu cpu = {.family = p->family, .model = p->model, .amx_tile = p->amx};
    memcpy(cpu.vendor, p->vendor, strlen(p->vendor));
    able.amx = p->amx;
    able.avx512_bf16 = p->avx512_bf16;
    able.avx512 = p->avx512;
    able.avx2 = p->avx2;
    return cpu;
}

static const char *server(const struct shoali_ops *ops, const struct shoali_kernel *kernel,
                          shoal_dtype dtype)
{
    return shoali_ops_table_for(ops, kernel, dtype)->name;
}

/* Of a product of bf16, the weight's gradient, that leaves its sums in fp32; and with a bias of
 * either. */
static void test_sums_follow(const struct shoali_ops *ops, const char *name)
{
    static const float bias[1] = {0};
    const struct shoali_ops_table *table = NULL;
    for (int i = 0; i < 3; i++) {
        const struct shoali_gemm_args args = {.m = 1,
                                              .n = 1,
                                              .bias = i > 0 ? bias : NULL,
                                              .dtype_ab = SHOAL_BF16,
                                              .dtype_c = SHOAL_F32,
                                              .dtype_bias = i > 1 ? SHOAL_BF16 : SHOAL_F32};
        assert_non_null(shoali_ops_choose(ops, &shoali_kernel_gemm, &args, &table));
        assert_string_equal(table->name, name);
    }
}

static void test_processors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof processors / sizeof processors[0]; i++) {
        const struct processor *p = &processors[i];
        const struct shoali_cpu cpu = pretend(p);
        struct shoali_ops ops, again;
        print_message("%s\n", p->what);
        assert_int_equal(shoali_ops_select_for(tables, shoali_ops_rules, &cpu, NULL, NULL, &ops),
                         SHOAL_OK);
        assert_string_equal(ops.name, p->name);
        assert_string_equal(server(&ops, &shoali_kernel_gemm, SHOAL_BF16), p->bf16);
        assert_string_equal(server(&ops, &shoali_kernel_attention, SHOAL_BF16), p->bf16);
        assert_string_equal(server(&ops, &shoali_kernel_gemm, SHOAL_F32), p->fp32);
        assert_string_equal(server(&ops, &shoali_kernel_gemm, SHOAL_F16), p->fp32);
        assert_string_equal(server(&ops, &shoali_kernel_norm, SHOAL_BF16), p->norm);
        test_sums_follow(&ops, p->bf16);
        /* The same every time; and by the name that came out, the same bits. */
        assert_int_equal(shoali_ops_select_for(tables, shoali_ops_rules, &cpu, NULL, NULL, &again),
                         SHOAL_OK);
        assert_int_equal(again.digest, ops.digest);
        assert_int_equal(
            shoali_ops_select_for(tables, shoali_ops_rules, &cpu, ops.name, NULL, &again),
            SHOAL_OK);
        assert_int_equal(again.digest, ops.digest);
    }
}

/* From what Linux says of them to the table that comes first (bits: base/cpu.c). */
static void test_processors_of_arm(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        uint64_t midr, hwcap, hwcap2;
        const char *name;
    } arms[] = {
        {"Cortex-A72", 0x410fd083, 0x8ff, 0, "cpu-neon"},
        {"Neoverse N1", 0x413fd0c1, 0x1107fff, 0, "cpu-neon"},
        {"A64FX, whose vectors are SVE's", 0x461f0010, 0x4007ff, 0, "cpu-neon"},
        {"Neoverse V1", 0x411fd401, 0x5007ff, 1u << 14, "cpu-neon_bf16"},
        {"Neoverse V2", 0x410fd4f0, 0x5007ff, 1u << 14, "cpu-neon_bf16"},
        {"one of tomorrow", 0xff0f0010, 0x1007ff, 1u << 14, "cpu-neon_bf16"},
        {"one whose identity is hidden", 0, 0x1007ff, 1u << 14, "cpu-neon_bf16"},
    };
    for (size_t i = 0; i < sizeof arms / sizeof arms[0]; i++) {
        struct shoali_cpu cpu = {.vendor = ""};
        struct shoali_ops ops;
        print_message("%s\n", arms[i].what);
        if (arms[i].midr != 0)
            shoali_cpu_read_midr(arms[i].midr, &cpu);
        shoali_cpu_read_hwcaps(arms[i].hwcap, arms[i].hwcap2, &cpu);
        able.neon = cpu.asimd;
        able.neon_bf16 = cpu.asimd && cpu.bf16;
        assert_int_equal(
            shoali_ops_select_for(tables_of_arm, shoali_ops_rules, &cpu, NULL, NULL, &ops),
            SHOAL_OK);
        assert_string_equal(ops.name, arms[i].name);
        assert_string_equal(server(&ops, &shoali_kernel_gemm, SHOAL_BF16), arms[i].name);
        assert_string_equal(server(&ops, &shoali_kernel_norm, SHOAL_F32), arms[i].name);
    }
}

/* What tiles do not have is no fallback; what vectors lack is. */
static void test_fallbacks(void **state)
{
    (void)state;
    static const struct shoali_ops_entry one[] = {
        {&shoali_kernel_gemm, never, BF16, NULL, NULL},
    };
    static const struct shoali_ops_table small = TABLE("cpu-amx", probe_amx, one, 1, false);
    const struct shoali_ops_table *const list[] = {&small, &built[3], &built[5], NULL};
    const struct shoali_ops_table *const alone[] = {&small, &built[5], NULL};
    struct shoali_ops ops;
    struct shoali_str text = {0};
    const struct shoali_cpu cpu = pretend(&processors[0]);
    assert_int_equal(shoali_ops_select_for(list, shoali_ops_rules, &cpu, NULL, NULL, &ops),
                     SHOAL_OK);
    shoali_ops_describe_fallbacks(&ops, &text);
    assert_string_equal(shoali_str_get(&text), "none");
    shoali_str_fini(&text);
    assert_int_equal(shoali_ops_select_for(alone, shoali_ops_rules, &cpu, NULL, NULL, &ops),
                     SHOAL_OK);
    shoali_ops_describe_fallbacks(&ops, &text);
    assert_string_equal(shoali_str_get(&text), "attention, norm to ref");
    shoali_str_fini(&text);
}

/* A name overrides the rules, for its table alone. */
static void test_names(void **state)
{
    (void)state;
    struct shoali_ops ops;
    const struct shoali_cpu cpu = pretend(&processors[0]);
    assert_int_equal(
        shoali_ops_select_for(tables, shoali_ops_rules, &cpu, "cpu-avx512_bf16", NULL, &ops),
        SHOAL_OK);
    assert_string_equal(server(&ops, &shoali_kernel_gemm, SHOAL_BF16), "cpu-avx512_bf16");
    assert_int_equal(
        shoali_ops_select_for(tables, shoali_ops_rules, &cpu, "cpu-amx-emulated", NULL, &ops),
        SHOAL_OK);
    assert_string_equal(server(&ops, &shoali_kernel_gemm, SHOAL_BF16), "cpu-amx-emulated");
    assert_string_equal(server(&ops, &shoali_kernel_norm, SHOAL_BF16), "cpu-avx512");
}

/* A product goes where its operands are multiplied best, whatever it is added to. */
static void test_operands_choose(void **state)
{
    (void)state;
    float number = 0;
    struct shoali_gemm_args args = {.c = &number,
                                    .bias = &number,
                                    .dtype_ab = SHOAL_BF16,
                                    .dtype_c = SHOAL_F32,
                                    .dtype_bias = SHOAL_F32};
    struct shoali_ops ops;
    const struct shoali_ops_table *table = NULL;
    const struct shoali_cpu cpu = pretend(&processors[0]);
    assert_int_equal(shoali_ops_select_for(tables, shoali_ops_rules, &cpu, NULL, NULL, &ops),
                     SHOAL_OK);
    (void)shoali_ops_choose(&ops, &shoali_kernel_gemm, &args, &table);
    assert_string_equal(table->name, "cpu-amx");
    args.dtype_ab = SHOAL_F32;
    (void)shoali_ops_choose(&ops, &shoali_kernel_gemm, &args, &table);
    assert_string_equal(table->name, "cpu-avx512");
}

/* Rules of one kernel, of one type, of some models. */
static void test_parts_of_tables(void **state)
{
    (void)state;
    static const struct shoali_ops_rule rules[] = {
        {"AuthenticAMD", 25, 16, 31, "cpu-avx512_bf16", &shoali_kernel_attention, BF16, "a test"},
        {"AuthenticAMD", 0, 0, 0, "cpu-avx512", NULL, BF16, "a test"},
        {0},
    };
    struct shoali_ops ops, whole;
    struct shoali_cpu cpu = pretend(&processors[6]);
    const struct shoali_ops_rule none = {0};
    assert_int_equal(shoali_ops_select_for(tables, rules, &cpu, NULL, NULL, &ops), SHOAL_OK);
    assert_string_equal(server(&ops, &shoali_kernel_gemm, SHOAL_BF16), "cpu-avx512_bf16");
    assert_string_equal(server(&ops, &shoali_kernel_attention, SHOAL_BF16), "cpu-avx2");
    assert_string_equal(server(&ops, &shoali_kernel_attention, SHOAL_F32), "cpu-avx512_bf16");
    /* One name, other functions: ranks see that. */
    assert_int_equal(shoali_ops_select_for(tables, &none, &cpu, NULL, NULL, &whole), SHOAL_OK);
    assert_string_equal(whole.name, ops.name);
    assert_true(whole.digest != ops.digest);
    cpu.model = 97;
    assert_int_equal(shoali_ops_select_for(tables, rules, &cpu, NULL, NULL, &ops), SHOAL_OK);
    assert_string_equal(server(&ops, &shoali_kernel_attention, SHOAL_BF16), "cpu-avx512_bf16");
}

/* Each rule names a table that is built somewhere, and says why. */
static void test_rules(void **state)
{
    (void)state;
    for (const struct shoali_ops_rule *rule = shoali_ops_rules; rule->vendor != NULL; rule++) {
        size_t t = 0;
        while (t < sizeof built / sizeof built[0] && strcmp(built[t].name, rule->table) != 0)
            t++;
        assert_true(t < sizeof built / sizeof built[0]);
        assert_true(strlen(rule->why) > 10);
        assert_true(rule->first <= rule->last);
        assert_string_not_equal(rule->table, "ref");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processors),      cmocka_unit_test(test_processors_of_arm),
        cmocka_unit_test(test_fallbacks),       cmocka_unit_test(test_names),
        cmocka_unit_test(test_operands_choose), cmocka_unit_test(test_parts_of_tables),
        cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
