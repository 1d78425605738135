/* append - the end of a file that grows batch by batch: a batch is there as a whole or not at all,
 * whatever the disk does. Level L1. */
#ifndef SHOALI_APPEND_H
#define SHOALI_APPEND_H

#include "base/str.h"

#define SHOALI_APPEND_LINES (-1)

struct shoali_append {
    const char *path;
    bool fresh; /* the file begins anew */
    /* So many bytes of the file are kept; SHOALI_APPEND_LINES: its whole lines, since a run that
     * died may have left a part of one. */
    int64_t whole_bytes;
    const struct shoali_str *head; /* what a file without content begins with; NULL: nothing */
    const struct shoali_str *text;
};
/* Appends, or leaves the file as it was and says why in errno. */
bool shoali_append(const struct shoali_append *batch);

#endif
