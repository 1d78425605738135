/* run_read - what a run left on disk, read back: its numbers and checkpoints. Level L1.
 *
 * Terms
 *   lines    a file of JSON objects, one a step, as jsonl_monitor writes: "step", "samples", and
 *            numbers by name
 *   scalar   the values of one name, one per step
 *   folder   that of --save, with a folder per checkpoint
 *
 * Invariants
 *   Steps increase. A step that was run again after a resume counts once, as last.
 *   A value that is null or missing is NaN.
 *   A last line without a newline that is not JSON was cut by a stop, and is ignored. Any other
 *   line that is not an object with a "step" is an error, which names file and line.
 *
 * Files
 *   run_read.c     lines
 *   run_folder.c   which files a folder has, and its checkpoints
 */
#ifndef SHOALI_RUN_READ_H
#define SHOALI_RUN_READ_H

#include "base/base.h"

#define SHOALI_LOSS_NAME "Train/Samples/train_loss"

struct json_t;

struct shoali_scalar {
    char *name;    /* arena */
    double *value; /* owned; `count` of the run */
};
struct shoali_run {
    struct shoali_arena arena;
    const char *path, *lines; /* arena: as given; the file of lines */
    int64_t count, capacity;  /* steps */
    int64_t *step, *samples;  /* owned; samples: -1 where a line has none */
    struct shoali_scalar *scalar;
    int32_t scalar_count, scalar_capacity;
};
/* Reads the lines of a file or folder. Errors: SHOAL_ENOENT, SHOAL_EINVAL, SHOAL_EIO. */
SHOAL_CHECKED shoal_status shoali_run_read(const char *path, struct shoali_run *run);
void shoali_run_fini(struct shoali_run *run);
/* By its whole name, or by what follows its last slash. SHOAL_EINVAL names the nearest. */
SHOAL_CHECKED shoal_status shoali_run_find(const struct shoali_run *run, const char *name,
                                           const struct shoali_scalar **scalar);
/* Seconds spent in steps up to each one; seconds[count]. SHOAL_EINVAL: the lines do not have
 * samples and samples_per_second. */
SHOAL_CHECKED shoal_status shoali_run_seconds(const struct shoali_run *run, double *seconds);

/* ---- folders ---- */

/* *found: the one file with a suffix that is in a folder or in a folder of it; arena. NULL: there
 * is none. SHOAL_EINVAL: there are several. hashes.jsonl and checkpoints are left out. */
SHOAL_CHECKED shoal_status shoali_run_find_file(struct shoali_arena *arena, const char *folder,
                                                const char *suffix, const char **found);
bool shoali_run_is_folder(const char *path);

struct shoali_run_checkpoint {
    char *tag;                    /* arena */
    int64_t step, bytes, seconds; /* seconds: since 1970, when its manifest was written */
};
struct shoali_run_folder {
    struct shoali_arena arena;
    struct shoali_run_checkpoint *checkpoint; /* owned; by step */
    int32_t count, capacity;
    struct json_t *manifest; /* owned; of the last one; NULL: no checkpoints */
};
/* Lists the checkpoints of a folder; a folder without any is fine, and so is a file. A manifest
 * that cannot be read is left out, as of a save that goes on. */
SHOAL_CHECKED shoal_status shoali_run_folder_read(const char *path,
                                                  struct shoali_run_folder *folder);
void shoali_run_folder_fini(struct shoali_run_folder *folder);
/* Tokens of a sample: seq-length of the manifest's model; 0: it has none. */
int64_t shoali_run_folder_seq_length(const struct shoali_run_folder *folder);

#endif
