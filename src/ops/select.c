/* select - which tables a rank uses, in which order: by name, CPU and accelerator. */
#include "base/caches.h"
#include "base/hash.h"
#include "ops/cpu_rules.h"
#include "ops/kernel.h"

#include <stdlib.h>
#include <string.h>

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

static bool works_on(const struct shoali_ops_table *table, const char *memory)
{
    return table->memory == NULL || (memory != NULL && strcmp(table->memory, memory) == 0);
}

/* SHOAL_OK when the table of that name can be used. */
static shoal_status check_named(const struct shoali_ops_table *table, const char *memory)
{
    if (!works_on(table, memory))
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "the kernel table '%s' works on the memory of accelerator '%s' alone; "
                          "leave SHOAL_OPS unset, or set SHOAL_ACCELERATOR=%s",
                          table->name, table->memory, table->memory);
    if (!table->probe())
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "this CPU cannot run the kernel table '%s'; leave SHOAL_OPS unset to use "
                          "the best that it can",
                          table->name);
    return SHOAL_OK;
}

/* No table for this memory serves: an error where one says why. */
static shoal_status check_reason(const struct shoali_ops_table *const *tables, const char *memory)
{
    for (size_t i = 0; tables[i] != NULL; i++) {
        const char *why =
            tables[i]->memory != NULL && works_on(tables[i], memory) && tables[i]->why_not != NULL
                ? tables[i]->why_not()
                : "";
        if (why[0] != '\0')
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                              "accelerator %s has no kernels: %s; set SHOAL_ACCELERATOR=cpu, or "
                              "SHOAL_OPS=ref for kernels of the host with copies",
                              memory, why);
    }
    return SHOAL_OK;
}

/* Appends the tables from `first` on that can be used: of the device's memory, or of the host's. */
static size_t append_tables(struct shoali_ops *ops, size_t used,
                            const struct shoali_ops_table *const *tables,
                            const struct shoali_ops_rule *rules, const struct shoali_cpu *cpu,
                            const char *memory, bool named)
{
    for (size_t i = 0; tables[i] != NULL; i++) {
        const bool forced = named && i == 0;
        SHOAL_ASSERT(tables[i]->abi == SHOALI_OPS_ABI && tables[i]->bytes == sizeof *tables[i]);
        if ((tables[i]->memory != NULL) != (memory != NULL) || !works_on(tables[i], memory))
            continue;
        if (forced || (!tables[i]->by_name && tables[i]->probe() &&
                       shoali_ops_refusal(rules, cpu, tables[i]) == NULL))
            ops->chain[used++] = tables[i];
    }
    return used;
}

shoal_status shoali_ops_select_for(const struct shoali_ops_table *const *tables,
                                   const struct shoali_ops_rule *rules,
                                   const struct shoali_cpu *cpu, const char *name,
                                   const struct shoali_accelerator *accelerator,
                                   struct shoali_ops *ops)
{
    shoal_status status = SHOAL_OK;
    const char *memory = accelerator != NULL ? accelerator->memory_name : NULL;
    size_t count = 0, first = 0, used = 0;
    *ops = (struct shoali_ops){.staged = accelerator != NULL && !accelerator->host_kernels};
    while (tables[count] != NULL)
        count++;
    SHOAL_ASSERT(count > 0 && count <= SHOALI_OPS_MAX_TABLES);
    while (name != NULL && first < count && strcmp(tables[first]->name, name) != 0)
        first++;
    if (first == count)
        return unknown_name(tables, count, name);
    if (accelerator == NULL && tables[first]->memory != NULL) { /* it is the device's choice */
        name = NULL;
        first = 0;
    }
    if (name != NULL)
        SHOAL_TRY(status, check_named(tables[first], memory), done);
    if (memory != NULL)
        used = append_tables(ops, used, tables + first, rules, cpu, memory, name != NULL);
    if (memory != NULL && used == 0)
        SHOAL_TRY(status, check_reason(tables + first, memory), done);
    ops->host_from = (int32_t)used;
    used = append_tables(ops, used, tables + first, rules, cpu, NULL, name != NULL);
    ops->name = ops->chain[0]->name;
    index_entries(ops, used, name != NULL ? 1 : 0, rules, cpu);
    ops->digest = digest_of(ops);
done:
    return status;
}

shoal_status shoali_ops_select_from(const struct shoali_ops_table *const *tables, const char *name,
                                    const struct shoali_accelerator *accelerator,
                                    struct shoali_ops *ops)
{
    const struct shoali_cpu cpu = shoali_cpu_get();
    return shoali_ops_select_for(tables, shoali_ops_rules, &cpu, name, accelerator, ops);
}

shoal_status shoali_ops_select(const char *name, const struct shoali_accelerator *accelerator,
                               struct shoali_ops *ops)
{
    shoal_status status;
    if (name == NULL)
        name = getenv("SHOAL_OPS");
    SHOAL_TRY(status, shoali_caches_check(), done);
    SHOAL_TRY(status,
              shoali_ops_select_from(shoali_ops_all(),
                                     name != NULL && name[0] != '\0' ? name : NULL, accelerator,
                                     ops),
              done);
done:
    return status;
}

void shoali_ops_host_of(const struct shoali_ops *ops, struct shoali_ops *host)
{
    const int32_t from = ops->host_from;
    *host = *ops;
    host->host_from = 0;
    host->staged = false;
    host->staged_calls = NULL;
    for (int32_t t = 0; from > 0 && t + from <= SHOALI_OPS_MAX_TABLES; t++)
        host->chain[t] = ops->chain[t + from];
    for (int32_t k = 0; from > 0 && k < ops->kernel_count; k++)
        for (int32_t t = 0; t + from < SHOALI_OPS_MAX_TABLES; t++) {
            host->entries[k][t] = ops->entries[k][t + from];
            host->dtypes[k][t] = ops->dtypes[k][t + from];
        }
    host->name = host->chain[0]->name;
    host->digest = digest_of(host);
}
