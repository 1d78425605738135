/* tables - the list of what was built, best first. The build writes the order: see CMakeLists.txt.
 */
#include "ops/table.h"

#define TABLE(name) extern const struct shoali_ops_table shoali_ops_##name;
SHOALI_OPS_TABLES
#undef TABLE

#define TABLE(name) &shoali_ops_##name,
static const struct shoali_ops_table *const built[] = {SHOALI_OPS_TABLES NULL};

const struct shoali_ops_table *const *shoali_ops_all(void)
{
    return built;
}
