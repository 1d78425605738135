/* hashes_internal - files of hashes as they are read.
 *
 *   hashes.c       fingerprints, lines, writing
 *   hashes_read.c  which steps a file holds, and the lines of one
 *   hashes_diff.c  two files step by step
 */
#ifndef SHOALI_HASHES_INTERNAL_H
#define SHOALI_HASHES_INTERNAL_H

#include "monitor/hashes.h"

#include <jansson.h>
#include <stdio.h>

struct shoali_hashes_place {
    int64_t step;
    long at;                /* of its first line in the file */
    int64_t line;           /* its number, from 1 */
    int32_t lines, weights; /* weights: lines of the last kind, one per tensor */
};
struct shoali_hashes_file {
    const char *path; /* borrowed */
    FILE *file;
    int64_t line; /* the number of the last one that was read */
    json_t *facts;
    struct shoali_hashes_place *place; /* by step; a step that was run again counts once, as last */
    int32_t place_count, place_capacity;
};
/* SHOAL_EINVAL: there is no such file, or it is something else; SHOAL_ECORRUPT: a line cannot be
 * read. */
SHOAL_CHECKED shoal_status shoali_hashes_open(const char *path, struct shoali_hashes_file *file);
void shoali_hashes_close(struct shoali_hashes_file *file);
/* *lines: array of objects, owned (json_decref). */
SHOAL_CHECKED shoal_status shoali_hashes_read(struct shoali_hashes_file *file,
                                              const struct shoali_hashes_place *place,
                                              json_t **lines);

#endif
