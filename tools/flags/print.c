/* The help text of a subcommand, for all that have tables of flags. */
#include "flags/flags.h"

#include "base/config_table.h"
#include "base/str.h"

#include <stdio.h>

shoal_status tool_print_flags(const char *usage, const struct shoali_flag_args *args)
{
    struct shoali_str text = {0};
    shoal_status status = shoali_flags_help(args, &text);
    if (status == SHOAL_OK) {
        const bool one_group = args->help && args->help->group;
        printf("%s%s", one_group ? "" : usage, shoali_str_get(&text));
        status = SHOAL_END;
    }
    shoali_str_fini(&text);
    return status;
}
