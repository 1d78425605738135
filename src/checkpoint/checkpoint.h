/* checkpoint - one format for every layout: standard safetensors files plus a manifest that
 * commits. Level L6.
 *
 *   DIR/latest                                   text: the tag
 *   DIR/TAG/manifest.json                        written last; a directory is a checkpoint if its
 *                                                manifest verifies
 *   DIR/TAG/model-00001-of-0000K.safetensors     weights under their global names: other tools
 *                                                open them as they are
 *   DIR/TAG/model.safetensors.index.json         which file holds which tensor
 *   DIR/TAG/config.json, ...                     companions: further files, as the caller gave them
 *   DIR/TAG/master-..., exp_avg-..., ...         same names and shapes: fp32 masters and optimizer
 *                                                states
 *   DIR/TAG/exp_avg_sq_row-..., ...              same names, shapes of their own: states per row,
 *                                                per column, per tensor
 *
 * A *kind* is one set of tensors ("model", "master", "exp_avg"): all parameters in canonical
 * order, one dtype. A kind with shapes of its own has a flat space of its own; `of`
 * in the manifest says how its shapes follow from those in `tensors`. File order = flat order:
 * within a file tensors follow each other without gaps (safetensors readers reject holes); the JSON
 * header is padded with spaces so that data starts at a multiple of 4096; header bytes are a pure
 * function of (names, dtype, shapes). Files are cut at tensor boundaries, at most max_shard_bytes
 * each (a single larger tensor has its own file): a function of the model alone. Tied tensors are
 * stored once under the primary name; `aliases` says which further names stand for it. A model that
 * knows a tensor by such a name finds it on load.
 *
 * docs/CHECKPOINT-FORMAT.md specifies the files, members and hashes, and what each crash leaves: a
 * change here is a change there, and mostly a new version.
 *
 * SAVE  into DIR/TAG.partial; files are created, sized with posix_fallocate (a full disk is known
 *       before anything is written), filled, fsynced; statuses of all ranks reduced;
 *       then manifest, fsync, rename to TAG (an old TAG becomes TAG.old first and is removed at
 *       the end), fsync of DIR, `latest` by temp + rename. A failure at any point leaves older
 *       checkpoints untouched and removes TAG.partial. Every rank writes: each aligned chunk of 16
 *       MiB has one writer, which follows from the numbers of chunks and ranks alone (writers.c),
 *       opens the file itself, hashes what it writes and flushes it; folders, headers and the
 *       manifest are rank 0's. Elements that others hold reach the writer in pieces of at most a
 *       chunk in an order that all ranks share, so memory is bounded: two chunks, of which one is
 *       written while the other is filled, and a third for what travels. What several ranks hold
 *       the writer takes of itself where it can, else the lowest of them gives it. DIR is locked
 *       (flock) meanwhile, and DIR/.saving says by whom: a second job that saves there waits for
 *       its turn. Whoever has the lock removes what saves that died have left of other tags, too.
 *       Fault points: ckpt.create, ckpt.write, ckpt.fsync, ckpt.manifest, ckpt.rename.
 *
 *       Nothing of a later step is replaced, and `latest` does not go back: where TAG or `latest`
 *       is of a later step than the save, it is refused with SHOAL_EEXIST, unless it is told to
 *       override. A tag that the user chose and that does not exist is saved; `latest` stays.
 *
 * LOAD  each chunk is read and verified once, by the rank that would write it, and every rank is
 * sent
 *       the elements it holds, whatever cuts the ranks had that saved. Chunks that nobody holds
 *       anything of are not read.
 *       Without `latest`, or when it names what does not exist (a crash between two renames), the
 *       directories of DIR are scanned for the verifying manifest with the highest step, and that
 *       is said. Only what does not exist is absent: a `latest` or a manifest that is there and
 *       cannot be read, or does not verify, is an error that names the file, for what it says may
 *       be what is meant. Names and shapes must match exactly: the message lists what is missing,
 *       extra or of another shape. Any hash mismatch: SHOAL_ECORRUPT naming file and byte range.
 */
#ifndef SHOALI_CHECKPOINT_H
#define SHOALI_CHECKPOINT_H

#include "comm/comm.h"
#include "tensor/shard.h"

#include <stddef.h>

struct shoali_str;

struct shoali_checkpoint_range {
    int64_t begin, count; /* of this rank's flat space */
};
/* One set of tensors as this rank holds it. read/write move elements of its flat space (what it has
 * of all tensors, behind each other: tensor/shard.h) between it and host memory. */
struct shoali_checkpoint_kind {
    const char *name;
    shoal_dtype dtype;
    int64_t begin, count; /* held by this rank, of its flat space */
    /* Instead of the one above, when range_count > 0: several. */
    const struct shoali_checkpoint_range *ranges;
    int32_t range_count;
    const shoal_shape *shapes;                /* its own; NULL: args->shapes */
    const struct shoali_shard *const *shards; /* with shapes of its own: as args->shards */
    const char *of;  /* what there is one number for, with shapes of its own: "row", ... */
    bool replicated; /* each rank holds all of its flat space */
    void *user;
    shoal_status (*read)(void *user, int64_t first, int64_t count, void *out);
    shoal_status (*write)(void *user, int64_t first, int64_t count, const void *in);
    /* Or NULL. Save: what this rank will be asked to read, each element once, told before the
     * first is read. */
    void (*expect)(void *user, int64_t first, int64_t count);
};

/* A further name of a tied tensor. */
struct shoali_checkpoint_alias {
    const char *name, *primary; /* primary: one of args->names */
};

/* Of a folder's checkpoints: the `last` ones, and those whose step `every` divides; last 0: one. */
struct shoali_checkpoint_keep {
    int64_t last, every;
};
/* A further file of a checkpoint's folder, as it is: what other programs look for beside
 * weights. */
struct shoali_checkpoint_companion {
    const char *name;
    const void *data;
    size_t bytes;
};
/* SHOAL_EINVAL: a name that a checkpoint needs itself, or that is no file's. */
SHOAL_CHECKED shoal_status shoali_checkpoint_check_companion(const char *name);

struct shoali_checkpoint_args {
    const char *dir, *tag;     /* load: tag NULL = latest */
    shoal_group *group;        /* NULL: one rank */
    const char *const *names;  /* canonical order */
    const shoal_shape *shapes; /* of the wholes */
    int32_t tensor_count;
    /* [tensors] what of each this rank's flat space has; NULL, or one of them NULL: the whole.
     * Other ranks may have other blocks, or the same. */
    const struct shoali_shard *const *shards;
    const struct shoali_checkpoint_alias *aliases;
    int32_t alias_count;
    const struct shoali_checkpoint_kind *kinds;
    int32_t kind_count;                                   /* load: only these kinds are read */
    const struct shoali_checkpoint_companion *companions; /* save: of the writer */
    int32_t companion_count;
    const char *engine_json; /* save: object text */
    const char *client_json; /* save: object text or NULL */
    int64_t step;
    int64_t max_shard_bytes; /* 0: 5 GB */
    bool tag_chosen;         /* save: by the user; else it follows from the step */
    bool override_existing;  /* save: may replace a later step, and move `latest` back */
    void *buffer;            /* of buffer_bytes, for chunks; too small or NULL: one is allocated */
    int64_t buffer_bytes;
    /* Or NULL. Save: all that is expected of this rank has been told; it comes once, unless the
     * save failed before. */
    void (*expected)(void *user);
    void *user;
    struct shoali_checkpoint_keep keep; /* save: of DIR's checkpoints; zeros: all */
    /* Load: tensors that the files have not keep their values, and those that nobody has are not
     * read; one line lists both. Their order in the files is of no matter then. */
    bool not_strict;
};
/* Collective over the group. SHOAL_EEXIST: DIR holds a later step (see above). What it keeps no
 * more is removed when it is over; that this fails is only said. */
SHOAL_CHECKED shoal_status shoali_checkpoint_save(const struct shoali_checkpoint_args *args);

/* What a save writes, from names, shapes, kinds and max_shard_bytes. Not collective. */
struct shoali_checkpoint_size {
    int64_t bytes, largest_file_bytes; /* of all files, without the manifest */
    int64_t buffer_bytes;              /* that a save needs on each rank */
};
SHOAL_CHECKED shoal_status shoali_checkpoint_get_size(const struct shoali_checkpoint_args *args,
                                                      struct shoali_checkpoint_size *size);
/* Whether a save into args->dir could succeed, from args->step on: makes the folder, writes and
 * removes a file, removes what saves that died have left, and looks at free space and limits;
 * SHOAL_EEXIST when it holds a later step. ignores_space: too little of it is only said.
 * Collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_check(const struct shoali_checkpoint_args *args,
                                                   bool ignores_space);

/* What a manifest says besides tensors; texts owned by the caller (free()). */
struct shoali_checkpoint_info {
    char *engine_json, *client_json; /* client NULL when absent */
    char *tag;                       /* found */
    int64_t step;
    int32_t kind_count;
    char kind_name[16][32];
    shoal_dtype kind_dtype[16];
};
void shoali_checkpoint_info_fini(struct shoali_checkpoint_info *info);
/* Finds and verifies the manifest, reads no tensors. Not collective. SHOAL_ENOENT: no checkpoint
 * there. */
SHOAL_CHECKED shoal_status shoali_checkpoint_open(const char *dir, const char *tag,
                                                  struct shoali_checkpoint_info *info);
/* The same without a word about how it was found, for who opens it next. */
SHOAL_CHECKED shoal_status shoali_checkpoint_peek(const char *dir, const char *tag,
                                                  struct shoali_checkpoint_info *info);
/* Of a checkpoint whose folder DIR/TAG is given; info->tag stays NULL. */
SHOAL_CHECKED shoal_status shoali_checkpoint_peek_folder(const char *folder,
                                                         struct shoali_checkpoint_info *info);
/* Reads args->kinds from dir/tag (tag as found by open). Collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_load(const struct shoali_checkpoint_args *args);

/* Lines of text: each checkpoint of DIR by step, its size, whether its manifest verifies and its
 * files are there with their sizes; what saves that died have left. Not collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_list(const char *dir, struct shoali_str *out);

/* Reads DIR/TAG whole with so many threads (0: one per core) and compares all hashes: a line with
 * what was read, and one for each file or range of bytes that is not what the manifest says; *good:
 * there is none. SHOAL_ENOENT: there is no manifest. Not collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_verify(const char *dir, const char *tag,
                                                    int32_t threads, struct shoali_str *out,
                                                    bool *good);
/* Lines about DIR/TAG (NULL: latest) from its manifest alone: numbers of the training, model, kinds
 * with their sizes; `tensors`: names and shapes, too. Not collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_show(const char *dir, const char *tag, bool tensors,
                                                  struct shoali_str *out);
/* The tags of DIR whose folders have a manifest, damaged ones too, by name; each is given to
 * `visit`, which ends the visit by an error. Not collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_each(
    const char *dir, shoal_status (*visit)(void *user, const char *tag), void *user);

/* Removes what `keep` does not keep, in lines of text; dry_run: only says it. Those alone whose
 * names follow from their steps (global_stepN), that verify, are not what `latest` names and not of
 * a later step than that. SHOAL_EEXIST: a save is at work there. Not collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_prune(const char *dir,
                                                   const struct shoali_checkpoint_keep *keep,
                                                   bool dry_run, struct shoali_str *out);

/* Says in lines of text what differs between two checkpoints (tags NULL: latest): per kind the
 * first tensor and element, how many elements, and by how many units in the last place at most.
 * Checksums are not verified. Not collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_diff(const char *const dirs[2],
                                                  const char *const tags[2], struct shoali_str *out,
                                                  bool *equal);

#endif
