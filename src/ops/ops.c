/* ops - which tables a rank uses, and which of their functions a call. */
#include "base/hash.h"
#include "ops/choice.h"
#include "ops/kernel.h"

#include <stdlib.h>
#include <string.h>

const struct shoali_ops_entry *shoali_ops_entry(const struct shoali_ops_table *table,
                                                const struct shoali_kernel *kernel)
{
    for (int32_t i = 0; i < table->entry_count; i++)
        if (table->entries[i].kernel == kernel)
            return &table->entries[i];
    return NULL;
}

/* ---- selection ---- */

static shoal_status unknown_name(const struct shoali_ops_table *const *tables, size_t count,
                                 const char *name)
{
    const char *names[SHOALI_OPS_MAX_TABLES];
    struct shoali_str list = {0};
    for (size_t i = 0; i < count; i++) {
        names[i] = tables[i]->name;
        shoali_str_append(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = shoali_nearest(name, names, count);
    const shoal_status status =
        SHOAL_FAIL(SHOAL_ECONFIG, "kernel table '%s' is unknown%s%s%s; set SHOAL_OPS to one of: %s",
                   name, near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "", shoali_str_get(&list));
    shoali_str_fini(&list);
    return status;
}

/* The kernels are those of the last table, which has them all. `forced`: tables that rules do not
 * touch. */
static void index_entries(struct shoali_ops *ops, size_t tables, size_t forced,
                          const struct shoali_ops_rule *rules, const struct shoali_cpu *cpu)
{
    const struct shoali_ops_table *last = ops->chain[tables - 1];
    SHOAL_ASSERT(last->entry_count <= SHOALI_OPS_MAX_KERNELS);
    ops->kernel_count = last->entry_count;
    for (int32_t k = 0; k < ops->kernel_count; k++) {
        ops->kernels[k] = last->entries[k].kernel;
        for (size_t t = 0; t < tables; t++) {
            const struct shoali_ops_entry *entry = shoali_ops_entry(ops->chain[t], ops->kernels[k]);
            const uint32_t refused =
                t < forced ? 0
                           : shoali_ops_refused_dtypes(rules, cpu, ops->chain[t], ops->kernels[k]);
            ops->entries[k][t] = entry;
            ops->dtypes[k][t] = entry != NULL ? entry->dtypes & ~refused : 0;
        }
    }
}

/* Names, and what was taken from the tables. Without that it is the first one's name: those behind
 * follow from it. */
static uint64_t digest_of(const struct shoali_ops *ops)
{
    uint64_t digest = shoali_hash64(ops->name, strlen(ops->name));
    for (int32_t k = 0; k < ops->kernel_count; k++)
        for (size_t t = 0; ops->chain[t] != NULL; t++) {
            const struct shoali_ops_entry *entry = ops->entries[k][t];
            if (entry == NULL || entry->dtypes == ops->dtypes[k][t])
                continue;
            const char *of[2] = {ops->chain[t]->name, ops->kernels[k]->type.name};
            for (int i = 0; i < 2; i++)
                digest = digest * 31 + shoali_hash64(of[i], strlen(of[i]));
            digest = digest * 31 + ops->dtypes[k][t];
        }
    return digest;
}

shoal_status shoali_ops_select_for(const struct shoali_ops_table *const *tables,
                                   const struct shoali_ops_rule *rules,
                                   const struct shoali_cpu *cpu, const char *name,
                                   struct shoali_ops *ops)
{
    size_t count = 0, first = 0, used = 0;
    *ops = (struct shoali_ops){0};
    while (tables[count] != NULL)
        count++;
    SHOAL_ASSERT(count > 0 && count <= SHOALI_OPS_MAX_TABLES);
    while (name != NULL && first < count && strcmp(tables[first]->name, name) != 0)
        first++;
    if (first == count)
        return unknown_name(tables, count, name);
    if (name != NULL && !tables[first]->probe())
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "this CPU cannot run the kernel table '%s'; leave SHOAL_OPS unset to use "
                          "the best that it can",
                          name);
    for (size_t i = first; i < count; i++) {
        const bool forced = name != NULL && i == first;
        SHOAL_ASSERT(tables[i]->abi == SHOALI_OPS_ABI && tables[i]->bytes == sizeof *tables[i]);
        if (forced || (!tables[i]->by_name && tables[i]->probe() &&
                       shoali_ops_refusal(rules, cpu, tables[i]) == NULL))
            ops->chain[used++] = tables[i];
    }
    ops->name = ops->chain[0]->name;
    index_entries(ops, used, name != NULL ? 1 : 0, rules, cpu);
    ops->digest = digest_of(ops);
    return SHOAL_OK;
}

shoal_status shoali_ops_select_from(const struct shoali_ops_table *const *tables, const char *name,
                                    struct shoali_ops *ops)
{
    const struct shoali_cpu cpu = shoali_cpu_get();
    return shoali_ops_select_for(tables, shoali_ops_rules, &cpu, name, ops);
}

shoal_status shoali_ops_select(const char *name, struct shoali_ops *ops)
{
    if (name == NULL)
        name = getenv("SHOAL_OPS");
    return shoali_ops_select_from(shoali_ops_all(), name != NULL && name[0] != '\0' ? name : NULL,
                                  ops);
}

/* ---- choice ---- */

static int32_t index_of(const struct shoali_ops *ops, const struct shoali_kernel *kernel)
{
    int32_t index = 0;
    while (index < ops->kernel_count && ops->kernels[index] != kernel)
        index++;
    SHOAL_ASSERT(index < ops->kernel_count);
    return index;
}

const struct shoali_ops_entry *shoali_ops_choose(const struct shoali_ops *ops,
                                                 const struct shoali_kernel *kernel,
                                                 const void *args,
                                                 const struct shoali_ops_table **table)
{
    const int32_t k = index_of(ops, kernel);
    const uint32_t dtypes = shoali_kernel_dtypes_of(kernel, args);
    for (int32_t t = 0; ops->chain[t] != NULL; t++) {
        const struct shoali_ops_entry *entry = ops->entries[k][t];
        if (entry == NULL || (dtypes & ~ops->dtypes[k][t]) != 0 ||
            (entry->supports != NULL && !entry->supports(args)))
            continue;
        if (table != NULL)
            *table = ops->chain[t];
        return entry;
    }
    SHOAL_ASSERT(false && "the last table takes all arguments");
    return NULL;
}

const struct shoali_ops_table *shoali_ops_table_for(const struct shoali_ops *ops,
                                                    const struct shoali_kernel *kernel,
                                                    shoal_dtype dtype)
{
    const int32_t k = index_of(ops, kernel);
    int32_t t = 0;
    while ((ops->dtypes[k][t] & shoali_dtype_bit(dtype)) == 0)
        t++;
    return ops->chain[t];
}

void shoali_ops_run(const struct shoali_ops *ops, const struct shoali_kernel *kernel,
                    const void *args)
{
    const struct shoali_kernel_context context = {0};
    bool empty;
    const shoal_status status = shoali_kernel_check(kernel, args, &empty);
    SHOAL_ASSERT(status == SHOAL_OK);
    if (!empty)
        shoali_ops_choose(ops, kernel, args, NULL)->fn(args, &context);
}

/* ---- report ---- */

const char *shoali_ops_kernel_name(const struct shoali_ops *ops, int32_t index)
{
    return ops->kernels[index]->type.name;
}

const char *shoali_ops_kernel_source(const struct shoali_ops *ops, int32_t index, shoal_dtype dtype,
                                     bool *partly)
{
    const struct shoali_ops_table *table = shoali_ops_table_for(ops, ops->kernels[index], dtype);
    *partly = shoali_ops_entry(table, ops->kernels[index])->supports != NULL;
    return table->name;
}

/* The best table that has the kernel for a type in which models are trained. */
static int32_t server_of(const struct shoali_ops *ops, int32_t kernel)
{
    int32_t t = 0;
    while ((ops->dtypes[kernel][t] & SHOALI_SHORT_FLOATS) == 0)
        t++;
    return t;
}

/* The first table that has most of what there is; one before it has a few kernels only, by intent. The
 * last one falls back to nothing. */
static int32_t main_table(const struct shoali_ops *ops)
{
    int32_t t = 0;
    while (ops->chain[t + 1] != NULL && ops->chain[t + 2] != NULL &&
           2 * ops->chain[t]->entry_count < ops->kernel_count)
        t++;
    return t;
}

void shoali_ops_describe_table(const struct shoali_ops *ops, const struct shoali_ops_table *table,
                               struct shoali_str *text)
{
    const struct shoali_cpu cpu = shoali_cpu_get();
    const struct shoali_ops_rule *refusal = shoali_ops_refusal(shoali_ops_rules, &cpu, table);
    int32_t t = 0;
    while (ops->chain[t] != NULL && ops->chain[t] != table)
        t++;
    if (ops->chain[t] != NULL)
        shoali_str_append(text, t == 0 ? "found, comes first" : "found");
    else if (!table->probe())
        shoali_str_append(text, "not on this machine");
    else if (table->by_name)
        shoali_str_append(text, "found, used when SHOAL_OPS names it");
    else if (refusal != NULL)
        shoali_str_append(text, "found, not used: %s", refusal->why);
    else
        shoali_str_append(text, "found, not used: SHOAL_OPS names another");
}

void shoali_ops_describe_fallbacks(const struct shoali_ops *ops, struct shoali_str *text)
{
    const char *separator = "";
    for (int32_t t = main_table(ops) + 1; ops->chain[t] != NULL; t++) {
        const char *comma = separator;
        for (int32_t k = 0; k < ops->kernel_count; k++) {
            if (server_of(ops, k) != t)
                continue;
            shoali_str_append(text, "%s%s", comma, ops->kernels[k]->type.name);
            comma = ", ";
        }
        if (comma != separator) {
            shoali_str_append(text, " to %s", ops->chain[t]->name);
            separator = "; ";
        }
    }
    const char *comma = separator;
    for (int32_t k = 0; k < ops->kernel_count; k++) {
        if (ops->entries[k][server_of(ops, k)]->supports == NULL)
            continue;
        shoali_str_append(text, "%s%s", comma, ops->kernels[k]->type.name);
        comma = ", ";
    }
    if (comma != separator)
        shoali_str_append(text, " for some arguments");
    else if (separator[0] == '\0')
        shoali_str_append(text, "none");
}
