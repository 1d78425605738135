/* sized - structs of programs that were compiled with other headers (docs/COMPATIBILITY.md).
 *
 * A struct that grows comes with its size as the program knows it. Members are only ever added
 * behind the last, so the size says which of them there are:
 *
 *   smaller than ours   an older program: what it does not have keeps its default
 *   larger              a newer one: fine as long as it leaves what we do not know at 0
 *
 * What the library fills is cut to the program's size, and what a newer program has beyond ours is
 * set to 0. Elements of arrays, and structs within structs, do not grow; those that will need more
 * have members `reserved`, which must be 0 until they mean something.
 */
#ifndef SHOALI_SIZED_H
#define SHOALI_SIZED_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

struct shoali_sized {
    const char *type;   /* "shoal_engine_args" */
    size_t first_bytes; /* of its first version: no program has a smaller one */
    size_t bytes;       /* of ours */
};
/* `last` is the last member of the struct's first version. */
#define SHOALI_SIZED(struct_type, last)                                                      \
    &(const struct shoali_sized)                                                             \
    {                                                                                        \
        .type = #struct_type,                                                                \
        .first_bytes = offsetof(struct_type, last) + sizeof(((const struct_type *)0)->last), \
        .bytes = sizeof(struct_type)                                                         \
    }

#define SHOALI_SIZED_READ(struct_type, last, theirs, theirs_bytes, ours) \
    shoali_sized_read(SHOALI_SIZED(struct_type, last), theirs, theirs_bytes, ours)

/* Copies a program's struct over *ours, which holds the defaults. NULL leaves them all. SHOAL_EINVAL
 * when the size is none, or members that we do not know are set. */
SHOAL_CHECKED shoal_status shoali_sized_read(const struct shoali_sized *type, const void *theirs,
                                             size_t theirs_bytes, void *ours);
/* Copies what both know and sets the rest of `to` to 0: for what the library fills, and for what it
 * once filled and is given back. */
void shoali_sized_copy(void *to, size_t to_bytes, const void *from, size_t from_bytes);

/* SHOAL_EINVAL unless all bytes of a `reserved` are 0. `what`: "shoal_model.reserved". */
SHOAL_CHECKED shoal_status shoali_check_reserved(const char *what, const void *reserved,
                                                 size_t bytes);

#endif
