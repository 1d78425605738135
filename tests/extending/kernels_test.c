/* The kernel and the table of docs/EXTENDING.md, made of the page's own code. */
#include "clamp.h"
#include "ops/conformance/conformance.h"

extern const struct shoali_ops_table shoali_ops_toy;

static bool yes(void)
{
    return true;
}

/* What a line of the lists of ref.h and isa.h puts into the tables. */
#define KERNEL(name) {&shoali_kernel_##name, shoali_ref_##name, SHOALI_ALL_DTYPES, NULL, NULL},
static const struct shoali_ops_entry ref_entries[] = {
#include "clamp_ref_line.inc"
};
#undef KERNEL
static const struct shoali_ops_table ref = {.abi = SHOALI_OPS_ABI,
                                            .bytes = sizeof ref,
                                            .name = "ref",
                                            .probe = yes,
                                            .entries = ref_entries,
                                            .entry_count = SHOALI_COUNT_OF(ref_entries)};
#define KERNEL(name, dtypes) {&shoali_kernel_##name, SHOALI_CPU_SYMBOL(name), dtypes, NULL, NULL},
static const struct shoali_ops_entry fast_entries[] = {
#include "clamp_fast_line.inc"
};
#undef KERNEL
static const struct shoali_ops_table fast = {.abi = SHOALI_OPS_ABI,
                                             .bytes = sizeof fast,
                                             .name = "fast",
                                             .probe = yes,
                                             .entries = fast_entries,
                                             .entry_count = SHOALI_COUNT_OF(fast_entries)};
static const struct shoali_ops_table *const clamp_tables[] = {&fast, &ref, NULL};

#include "clamp_case.inc"

static const struct conformance_case clamp_cases[] = {
#include "clamp_case_line.inc"
};

/* ---- the kernel ---- */

static void test_kernel_conforms(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHOALI_COUNT_OF(clamp_cases); i++)
        check_case(&clamp_cases[i], clamp_tables);
}

/* Through its front, on every device. */
static void test_kernel_is_launched(void **state)
{
    const float x[4] = {-2, 0.25f, 3, NAN};
    const size_t bytes = sizeof x;
    (void)state;
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    for (int i = 0; shoali_accelerator_all()[i] != NULL; i++) {
        struct shoali_ops ops;
        struct shoali_exec exec = {.ops = &ops};
        struct shoali_device *device;
        void *from, *to;
        float y[4];
        if (!shoali_accelerator_all()[i]->probe())
            continue;
        assert_int_equal(shoali_ops_select_from(clamp_tables, NULL, NULL, &ops), SHOAL_OK);
        assert_int_equal(shoali_device_create(shoali_accelerator_all()[i], 0, NULL, &device), 0);
        assert_int_equal(shoali_stream_create(device, &exec.stream), SHOAL_OK);
        assert_int_equal(shoali_device_alloc(device, bytes, &from), SHOAL_OK);
        assert_int_equal(shoali_device_alloc(device, bytes, &to), SHOAL_OK);
        assert_int_equal(shoali_upload(exec.stream, from, x, bytes), SHOAL_OK);
        struct shoali_clamp_args args = {from, to, 4, -1, 1, SHOAL_F32};
        assert_int_equal(shoali_op_clamp(&exec, &args), SHOAL_OK);
        assert_int_equal(shoali_download(exec.stream, y, to, bytes), SHOAL_OK);
        assert_true(y[0] == -1 && y[1] == 0.25f && y[2] == 1 && isnan(y[3]));
        args.low = 2;
        assert_int_equal(shoali_op_clamp(&exec, &args), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), "must not be above high"));
        args = (struct shoali_clamp_args){.y = to, .count = 4};
        assert_int_equal(shoali_op_clamp(&exec, &args), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), "clamp: x is NULL"));
        shoali_device_free(device, from);
        shoali_device_free(device, to);
        shoali_stream_destroy(exec.stream);
        shoali_device_destroy(device);
    }
    assert_int_equal(unsetenv("SHOAL_SIM_BYTES"), 0);
    shoali_error_clear();
}

/* ---- the table ---- */

static const struct shoali_ops_table *with_toy[SHOALI_OPS_MAX_TABLES + 1];

/* Behind the toy: the first that has the kernel for this type. */
static const struct shoali_ops_table *
next_with(const struct shoali_ops *ops, const struct shoali_kernel *kernel, shoal_dtype dtype)
{
    for (int i = 1; ops->chain[i] != NULL; i++) {
        const struct shoali_ops_entry *entry = shoali_ops_entry(ops->chain[i], kernel);
        if (entry != NULL && (entry->dtypes >> dtype & 1u))
            return ops->chain[i];
    }
    return NULL;
}

static void test_table_serves_what_it_has(void **state)
{
    struct shoali_ops ops;
    const struct shoali_ops_table *table;
    struct shoali_str text = {0};
    (void)state;
    with_toy[0] = &shoali_ops_toy;
    for (int i = 0; shoali_ops_all()[i] != NULL; i++)
        with_toy[i + 1] = shoali_ops_all()[i];
    assert_int_equal(shoali_ops_select_from(with_toy, "toy", NULL, &ops), SHOAL_OK);
    struct shoali_axpy_args axpy = {.x = &axpy, .y = &axpy, .count = 1};
    (void)shoali_ops_choose(&ops, &shoali_kernel_axpy, &axpy, &table);
    assert_ptr_equal(table, &shoali_ops_toy);
    axpy.accumulate = 1;
    (void)shoali_ops_choose(&ops, &shoali_kernel_axpy, &axpy, &table);
    assert_ptr_equal(table, next_with(&ops, &shoali_kernel_axpy, SHOAL_F32));
    axpy = (struct shoali_axpy_args){.x = &axpy, .y = &axpy, .count = 1, .dtype = SHOAL_BF16};
    (void)shoali_ops_choose(&ops, &shoali_kernel_axpy, &axpy, &table);
    assert_ptr_equal(table, next_with(&ops, &shoali_kernel_axpy, SHOAL_BF16));
    shoali_ops_describe_fallbacks(&ops, &text);
    /* The toy has few kernels by intent: what the next table has instead is not worth a word. */
    assert_non_null(strstr(shoali_str_get(&text), "clip"));
    assert_non_null(strstr(shoali_str_get(&text), " to ref"));
    assert_non_null(strstr(shoali_str_get(&text), "; axpy"));
    assert_non_null(strstr(shoali_str_get(&text), " for some arguments"));
    shoali_str_fini(&text);
}

static void test_table_conforms(void **state)
{
    const struct shoali_ops_table *const tables[] = {&shoali_ops_toy, &shoali_ops_ref, NULL};
    (void)state;
    for (size_t i = 0; i < flat_case_count; i++)
        if (shoali_ops_entry(&shoali_ops_toy, flat_cases[i].kernel) != NULL)
            check_case(&flat_cases[i], tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_conforms),
        cmocka_unit_test(test_kernel_is_launched),
        cmocka_unit_test(test_table_serves_what_it_has),
        cmocka_unit_test(test_table_conforms),
    };
    return cmocka_run_group_tests_name("extending.kernels", tests, NULL, NULL);
}
