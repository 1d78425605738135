/* ops - which function of the tables a call gets, and what is printed of that. */
#include "ops/cpu_rules.h"
#include "ops/kernel.h"

#include <stdatomic.h>
#include <string.h>

const struct shoali_ops_entry *shoali_ops_entry(const struct shoali_ops_table *table,
                                                const struct shoali_kernel *kernel)
{
    for (int32_t i = 0; i < table->entry_count; i++)
        if (table->entries[i].kernel == kernel)
            return &table->entries[i];
    return NULL;
}

static int32_t index_of(const struct shoali_ops *ops, const struct shoali_kernel *kernel)
{
    int32_t index = 0;
    while (index < ops->kernel_count && ops->kernels[index] != kernel)
        index++;
    SHOAL_ASSERT(index < ops->kernel_count);
    return index;
}

/* The first entry from table `from` of the chain on that takes the arguments. */
static const struct shoali_ops_entry *choose(const struct shoali_ops *ops,
                                             const struct shoali_kernel *kernel, const void *args,
                                             int32_t from, const struct shoali_ops_table **table)
{
    const int32_t k = index_of(ops, kernel);
    const uint32_t dtypes = shoali_kernel_dtypes_of(kernel, args);
    for (int32_t t = from; ops->chain[t] != NULL; t++) {
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

const struct shoali_ops_entry *shoali_ops_choose(const struct shoali_ops *ops,
                                                 const struct shoali_kernel *kernel,
                                                 const void *args,
                                                 const struct shoali_ops_table **table)
{
    return choose(ops, kernel, args, 0, table);
}

void shoali_ops_count_staged(const struct shoali_ops *ops, const struct shoali_kernel *kernel)
{
    if (ops->staged_calls != NULL)
        atomic_fetch_add(&ops->staged_calls[index_of(ops, kernel)], 1);
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
        choose(ops, kernel, args, ops->host_from, NULL)->fn(args, &context);
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

/* The first table that has most of what there is; one before it has a few kernels only, by intent.
 * The last one falls back to nothing. */
static int32_t main_table(const struct shoali_ops *ops)
{
    int32_t t = 0;
    while (ops->chain[t + 1] != NULL && ops->chain[t + 2] != NULL &&
           2 * ops->chain[t]->entry_count < ops->kernel_count)
        t++;
    return t;
}

static const char *why_not(const struct shoali_ops_table *table)
{
    return table->why_not != NULL ? table->why_not() : "";
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
    else if (table->memory != NULL)
        shoali_str_append(text, "for accelerator %s%s%s", table->memory,
                          why_not(table)[0] != '\0' ? ", does not work: " : "", why_not(table));
    else if (!table->probe())
        shoali_str_append(text, "not on this machine");
    else if (table->by_name)
        shoali_str_append(text, "found, used when SHOAL_OPS names it");
    else if (refusal != NULL)
        shoali_str_append(text, "found, not used: %s", refusal->why);
    else
        shoali_str_append(text, "found, not used: SHOAL_OPS names another");
    if (table->describe != NULL && table->probe()) {
        shoali_str_append(text, "; ");
        table->describe(text);
    }
}

uint64_t shoali_ops_digest(const struct shoali_ops *ops, struct shoali_str *text)
{
    uint64_t digest = ops->digest;
    if (text != NULL)
        shoali_str_append(text, "%s", ops->name);
    for (int32_t t = 0; t < ops->host_from; t++) {
        const struct shoali_ops_table *table = ops->chain[t];
        if (table->digest == NULL)
            continue;
        const uint64_t own = table->digest();
        digest = digest * 31 + own;
        if (text == NULL)
            continue;
        shoali_str_append(text, ", ");
        table->describe(text);
        shoali_str_append(text, ", choices %08x", (unsigned)(own >> 32));
    }
    return digest;
}

void shoali_ops_explain_gemm(const struct shoali_ops *ops, const void *args, int32_t threads,
                             struct shoali_str *text)
{
    const struct shoali_ops_table *table = NULL;
    shoali_ops_choose(ops, &shoali_kernel_gemm, args, &table);
    if (table != NULL && table->explain_gemm != NULL)
        table->explain_gemm(args, threads, text);
}

void shoali_ops_describe_staged(const struct shoali_ops *ops, struct shoali_str *text)
{
    for (int32_t k = 0; ops->staged && k < ops->kernel_count; k++) {
        const uint32_t types = shoali_dtype_bit(SHOAL_F32) | shoali_dtype_bit(SHOAL_BF16);
        uint32_t own = 0;
        for (int32_t t = 0; t < ops->host_from; t++)
            own |= ops->dtypes[k][t];
        if ((types & ~own) != 0)
            shoali_str_append(text, "%s%s", text->length > 0 ? ", " : "",
                              ops->kernels[k]->type.name);
    }
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
