/* cpu_rules - which kernels a CPU is not good at, although it has the instructions.
 *
 * A table's probe says what a CPU can run, a rule what it had better not. A rule names CPUs by who
 * made them and which ones they are, and a table, all of it or one kernel for some types; that part
 * falls to the tables behind it. So the choice is a function of the processor's identity: the same
 * bits in every run, and nothing is timed. Rules do not hold for a table that was asked for by
 * name.
 */
#ifndef SHOALI_OPS_CPU_RULES_H
#define SHOALI_OPS_CPU_RULES_H

#include "base/cpu.h"
#include "ops/table.h"

struct shoali_ops_rule {
    const char *vendor;  /* NULL ends a list */
    int32_t family;      /* 0: all of the vendor's */
    int32_t first, last; /* models; 0, 0: all of the family */
    const char *table;
    const struct shoali_kernel *kernel; /* NULL: all of the table */
    uint32_t dtypes;                    /* bits; 0: all */
    const char *why;
};
/* The rules that hold for everybody; measured, see docs/RATIONALE.md. */
extern const struct shoali_ops_rule shoali_ops_rules[];

/* The rule of a list that refuses a table as a whole on this CPU; NULL: none. */
const struct shoali_ops_rule *shoali_ops_refusal(const struct shoali_ops_rule *rules,
                                                 const struct shoali_cpu *cpu,
                                                 const struct shoali_ops_table *table);
/* The types for which rules of a list take a kernel from a table on this CPU. */
uint32_t shoali_ops_refused_dtypes(const struct shoali_ops_rule *rules,
                                   const struct shoali_cpu *cpu,
                                   const struct shoali_ops_table *table,
                                   const struct shoali_kernel *kernel);

/* shoali_ops_select_from, for any CPU and any rules. */
SHOAL_CHECKED shoal_status shoali_ops_select_for(const struct shoali_ops_table *const *tables,
                                                 const struct shoali_ops_rule *rules,
                                                 const struct shoali_cpu *cpu, const char *name,
                                                 const struct shoali_accelerator *accelerator,
                                                 struct shoali_ops *ops);

#endif
