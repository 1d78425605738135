/* Conformance of every built table with ref, and of the tables with what table.h asks of them.
 * Usage: ops.conformance [attention | flat | trapped | cuda]: the cases of attention; those of
 * flat.c and updates.c; those of cpu-amx alone on a CPU without tiles, whose instructions are
 * trapped; all cases of the kernels of cuda alone, on a GPU or its emulator; without, the cases
 * that neither attention nor flat has. */
#include "ops/conformance/conformance.h"

#include "tools/tile_trap.h"

static void test_case(void **state)
{
    check_case(*state, shoali_ops_all());
}

static const struct shoali_ops_table *find_table(const char *name)
{
    const struct shoali_ops_table *const *table = shoali_ops_all();
    while (*table != NULL && strcmp((*table)->name, name) != 0)
        table++;
    return *table;
}

/* cmocka handles SIGILL during a test, so the trap begins in each. */
static void test_trapped_case(void **state)
{
    const struct conformance_case *c = *state;
    const struct shoali_ops_table *const tables[] = {find_table("cpu-amx"), &shoali_ops_ref, NULL};
    const int64_t before = tile_trap_counts().multiplies;
    assert_null(tile_trap_begin());
    check_case(c, tables);
    tile_trap_end();
    assert_true(tile_trap_counts().multiplies > before);
    assert_int_equal(tile_trap_counts().configured_threads, 0);
}

static bool has_case(const struct conformance_case *cases, size_t count,
                     const struct shoali_kernel *kernel)
{
    size_t i = 0;
    while (i < count && cases[i].kernel != kernel)
        i++;
    return i < count;
}

static void test_every_kernel_has_a_case(void **state)
{
    (void)state;
    for (int32_t i = 0; i < shoali_ops_ref.entry_count; i++) {
        const struct shoali_kernel *kernel = shoali_ops_ref.entries[i].kernel;
        if (!has_case(shaped_cases, shaped_case_count, kernel) &&
            !has_case(loss_cases, loss_case_count, kernel) &&
            !has_case(flat_cases, flat_case_count, kernel) &&
            !has_case(update_cases, update_case_count, kernel))
            fail_msg("kernel %s has no conformance case: write one in shaped.c, losses.c, flat.c "
                     "or updates.c",
                     kernel->type.name);
    }
}

/* ref has every kernel once, for all types and arguments; the others have some of them, each once;
 * who packs matrices multiplies them. */
static void test_tables(void **state)
{
    (void)state;
    for (int t = 0; shoali_ops_all()[t] != NULL; t++) {
        const struct shoali_ops_table *table = shoali_ops_all()[t];
        const bool last = table == &shoali_ops_ref;
        for (int32_t i = 0; i < table->entry_count; i++) {
            const struct shoali_ops_entry *entry = &table->entries[i];
            assert_ptr_equal(shoali_ops_entry(table, entry->kernel), entry);
            assert_non_null(shoali_ops_entry(&shoali_ops_ref, entry->kernel));
            assert_non_null(entry->fn);
            assert_true(entry->dtypes != 0);
            assert_true(!last || (entry->dtypes == SHOALI_ALL_DTYPES && entry->supports == NULL));
        }
        if (table->packed_b_bytes != NULL) {
            const struct shoali_ops_entry *gemm = shoali_ops_entry(table, &shoali_kernel_gemm);
            const struct shoali_ops_entry *pack = shoali_ops_entry(table, &shoali_kernel_pack_b);
            assert_true(gemm != NULL && pack != NULL && gemm->dtypes == pack->dtypes);
        }
        assert_true(last == (shoali_ops_all()[t + 1] == NULL));
    }
}

/* What every user of a description relies on: pointers in rising, aligned order within the block,
 * each with a name, none of them twice; sizes and types within the block. */
static void test_descriptions(void **state)
{
    (void)state;
    for (int32_t k = 0; k < shoali_ops_ref.entry_count; k++) {
        const struct shoali_kernel *kernel = shoali_ops_ref.entries[k].kernel;
        const struct shoali_kernel_type *type = &kernel->type;
        assert_true(type->name != NULL && type->name[0] != '\0');
        assert_true(type->pointers[0].name != NULL);
        for (int i = 0; type->pointers[i].name != NULL; i++) {
            const struct shoali_kernel_pointer *at = &type->pointers[i];
            assert_int_equal(at->offset % sizeof(void *), 0);
            assert_true(at->offset + sizeof(void *) <= type->args_bytes);
            assert_true(i == 0 || at->offset > type->pointers[i - 1].offset);
            assert_true(at->element.dtype_at + sizeof(shoal_dtype) <= type->args_bytes);
            assert_true(at->use >= SHOALI_READS && at->use <= SHOALI_UPDATES);
        }
        for (int i = 0; kernel->dtypes[i].name != NULL; i++)
            assert_true(kernel->dtypes[i].offset + sizeof(shoal_dtype) <= type->args_bytes);
    }
}

static bool is_attention(const struct conformance_case *c)
{
    return c->kernel == &shoali_kernel_attention || c->kernel == &shoali_kernel_attention_backward;
}

static void add_cases(struct CMUnitTest *tests, size_t *count, const struct conformance_case *cases,
                      size_t case_count, bool attention)
{
    for (size_t i = 0; i < case_count; i++)
        if (is_attention(&cases[i]) == attention)
            tests[(*count)++] = (struct CMUnitTest){cases[i].kernel->type.name, test_case, NULL,
                                                    NULL, (void *)(uintptr_t)&cases[i]};
}

/* Of what cpu-amx has; all of it is shaped. */
static int run_trapped(void)
{
    struct CMUnitTest tests[SHOALI_OPS_MAX_KERNELS];
    const struct shoali_ops_table *table = find_table("cpu-amx");
    const char *reason = tile_trap_begin();
    size_t count = 0;
    if (reason == NULL)
        tile_trap_end();
    if (reason == NULL && table == NULL)
        reason = "there is no cpu-amx";
    if (reason != NULL) {
        printf("skipped: %s\n", reason);
        return 77;
    }
    for (size_t i = 0; i < shaped_case_count; i++) {
        const struct conformance_case *c = &shaped_cases[i];
        const struct shoali_ops_entry *entry = shoali_ops_entry(table, c->kernel);
        if (entry != NULL && (entry->dtypes & c->dtypes) != 0)
            tests[count++] = (struct CMUnitTest){c->kernel->type.name, test_trapped_case, NULL,
                                                 NULL, (void *)(uintptr_t)c};
    }
    return _cmocka_run_group_tests("trapped", tests, count, NULL, NULL);
}

static void test_cuda_case(void **state)
{
    const struct shoali_ops_table *const tables[] = {find_table("cuda"), &shoali_ops_ref, NULL};
    check_case(*state, tables);
}

static void add_cuda_cases(struct CMUnitTest *tests, size_t *count,
                           const struct conformance_case *cases, size_t case_count)
{
    for (size_t i = 0; i < case_count; i++)
        if (shoali_ops_entry(find_table("cuda"), cases[i].kernel) != NULL)
            tests[(*count)++] = (struct CMUnitTest){cases[i].kernel->type.name, test_cuda_case,
                                                    NULL, NULL, (void *)(uintptr_t)&cases[i]};
}

static int run_cuda(void)
{
    struct CMUnitTest tests[2 * SHOALI_OPS_MAX_KERNELS];
    size_t count = 0;
    if (find_table("cuda") == NULL || !find_table("cuda")->probe()) {
        printf("skipped: there is no GPU, or no kernels for one\n");
        return 77;
    }
    add_cuda_cases(tests, &count, shaped_cases, shaped_case_count);
    add_cuda_cases(tests, &count, loss_cases, loss_case_count);
    add_cuda_cases(tests, &count, flat_cases, flat_case_count);
    add_cuda_cases(tests, &count, update_cases, update_case_count);
    return _cmocka_run_group_tests("cuda", tests, count, NULL, NULL);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[3 + SHOALI_OPS_MAX_KERNELS] = {
        cmocka_unit_test(test_every_kernel_has_a_case),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_descriptions),
    };
    if (argc == 2 && strcmp(argv[1], "trapped") == 0)
        return run_trapped();
    if (argc == 2 && strcmp(argv[1], "cuda") == 0)
        return run_cuda();
    const bool flat = argc == 2 && strcmp(argv[1], "flat") == 0;
    const bool attention = argc == 2 && strcmp(argv[1], "attention") == 0;
    size_t count = flat || attention ? 0 : 3;
    if (flat) {
        add_cases(tests, &count, flat_cases, flat_case_count, false);
        add_cases(tests, &count, update_cases, update_case_count, false);
    } else {
        add_cases(tests, &count, shaped_cases, shaped_case_count, attention);
        add_cases(tests, &count, loss_cases, loss_case_count, attention);
    }
    return _cmocka_run_group_tests("conformance", tests, count, NULL, NULL);
}
