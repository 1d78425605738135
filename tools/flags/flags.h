/* flags - flags that several subcommands have, and the help text of all.
 *
 *   mesh.h, .c       which ranks divide what: Megatron's flags, and two of ours
 *   model.h, .c      the options of a model
 *   tokenizer.h, .c  which tokenizer
 *   print.c          the help text of a subcommand
 *
 * Terms. A *table* of flags is a struct shoali_section (base/config_table.h).
 *
 * Invariant. A flag that several subcommands have is described once, in a table of this room.
 */
#ifndef SHOAL_FLAGS_H
#define SHOAL_FLAGS_H

#include "shoal/status.h"

/* Prints `usage` and the flags that args->help asks for; of one group, its flags alone. Returns
 * SHOAL_END; SHOAL_ECONFIG: there is no such group. */
struct shoali_flag_args;
SHOAL_CHECKED shoal_status tool_print_flags(const char *usage, const struct shoali_flag_args *args);

#endif
