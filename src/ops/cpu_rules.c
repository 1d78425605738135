/* choice - the rules, and to whom they apply. */
#include "ops/cpu_rules.h"

#include "ops/kernel.h"

#include <string.h>

#define INTEL "GenuineIntel"

/* vdpbf16ps makes two products per lane where fma makes one. Intel's CPUs begin one every two
 * cycles, and two fma each cycle: 145 against 281 GFLOP/s on Sapphire Rapids, so bf16 is widened
 * there, and tiles are used where they are. Zen 4 and Zen 5 begin as many as fma.
 * Of ARM's BFDOT, which has as many products, there is no rule: a CPU that has it uses it. Where
 * its rate is published (Neoverse N2) it is that of FMLA. */
const struct shoali_ops_rule shoali_ops_rules[] = {
    {INTEL, 6, 0, 0, "cpu-avx512_bf16", NULL, 0,
     "vdpbf16ps has half the rate of fp32 here; bf16 is widened instead"},
    {0},
};

/* Whether a rule speaks of this CPU and of this table. */
static bool rule_holds(const struct shoali_ops_rule *rule, const struct shoali_cpu *cpu,
                       const struct shoali_ops_table *table)
{
    const bool all_models = rule->first == 0 && rule->last == 0;
    return strcmp(rule->table, table->name) == 0 && strcmp(rule->vendor, cpu->vendor) == 0 &&
           (rule->family == 0 || rule->family == cpu->family) &&
           (all_models || (cpu->model >= rule->first && cpu->model <= rule->last));
}

const struct shoali_ops_rule *shoali_ops_refusal(const struct shoali_ops_rule *rules,
                                                 const struct shoali_cpu *cpu,
                                                 const struct shoali_ops_table *table)
{
    for (; rules->vendor != NULL; rules++)
        if (rules->kernel == NULL && rules->dtypes == 0 && rule_holds(rules, cpu, table))
            return rules;
    return NULL;
}

uint32_t shoali_ops_refused_dtypes(const struct shoali_ops_rule *rules,
                                   const struct shoali_cpu *cpu,
                                   const struct shoali_ops_table *table,
                                   const struct shoali_kernel *kernel)
{
    uint32_t refused = 0;
    for (; rules->vendor != NULL; rules++)
        if ((rules->kernel == NULL || rules->kernel == kernel) && rule_holds(rules, cpu, table))
            refused |= rules->dtypes != 0 ? rules->dtypes : SHOALI_ALL_DTYPES;
    return refused;
}
