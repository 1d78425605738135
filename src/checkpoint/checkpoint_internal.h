/* checkpoint_internal - what the parts of checkpoint/ share.
 *
 *   safetensors.c  headers of files, and how tensors are cut into files
 *   manifest.c     manifest.json: text from a plan, plan from a text
 *   find.c         which folder of DIR is meant; shoali_checkpoint_open
 *   run.c          the ranks of one save or load: agreement, pieces
 *   holders.c      who holds what
 *   pieces.c       the pieces of a chunk: from the order of a file to that of blocks
 *   writers.c      which rank writes, and reads, which chunk
 *   lane.c         a rank's way to the files: two buffers, one filled while the other is written
 *   gather.c       elements to the writers of their chunks, and to the files
 *   scatter.c      chunks from the files, and their elements to those who hold them
 *   files.c        creating, sizing, removing files and folders
 *   folder.c       the folder a save works in: turns, leftovers, what must not be replaced
 *   save.c load.c  the two collectives
 *   retain.c       which checkpoints stay when a newer one is there
 *   list.c         what a folder holds, for people
 *   weight_folder.c weight_match.c weight_write.c
 *                  weights that others have written, or will read (weight_folder.h)
 *   verify.c       whether every byte is what the manifest says
 *   show.c         what a manifest says, for people
 *   diff.c         two checkpoints, tensor by tensor
 */
#ifndef SHOALI_CHECKPOINT_INTERNAL_H
#define SHOALI_CHECKPOINT_INTERNAL_H

#include "checkpoint/checkpoint.h"
#include "io/io.h"

struct json_t;

enum {
    SHOALI_CHECKPOINT_KINDS = 16,       /* as many as shoali_checkpoint_info has room for */
    SHOALI_CHECKPOINT_KIND_BYTES = 32,  /* of a kind's name */
    SHOALI_CHECKPOINT_TAG_BYTES = 200,  /* of a tag: room for ".partial" in a file name */
    SHOALI_CHECKPOINT_CHUNK = 16 << 20, /* bytes that are hashed, and sent, at once */
    SHOALI_SAFETENSORS_ALIGN = 4096,    /* of the first data byte */
    SHOALI_CHECKPOINT_LEFT = 32         /* files that a rank has open beside the one it is at */
};

/* One file of a kind: tensors [first_tensor, first_tensor + tensor_count). */
struct shoali_checkpoint_file {
    const char *name; /* without folder */
    const char *path;
    const char *head; /* length word and padded JSON, data_start bytes; NULL when loading */
    int64_t data_start, bytes;
    int64_t flat_begin, flat_count; /* elements, in the files' order */
    int32_t first_tensor, tensor_count;
    int64_t chunk_count;
    int64_t first_chunk; /* of the kind's chunks, all its files together */
    uint64_t *chunk; /* [chunk_count] hashes; saving: of this rank's chunks, until all are known */
};
/* One kind as files; memory from the run's arena. */
struct shoali_checkpoint_plan {
    const char *name; /* of the kind */
    const char *of;   /* as the kind's; NULL: elements */
    shoal_dtype dtype;
    struct shoali_checkpoint_file *file;
    int32_t file_count;
    int64_t chunk_count; /* of all files */
    int32_t turn;        /* with fewer chunks than ranks: who has the first */
};

/* ---- weight_match.c ---- */

/* What is wrong with some tensors, for one sentence: "missing `x`, extra `y` and 3 more".
 * Zero-initialise; ends with shoali_str_fini(&wrong.text). */
struct shoali_checkpoint_wrong {
    struct shoali_str text;
    int32_t count, listed; /* listed: in the text */
    int32_t misfits;       /* of another shape; counted by who adds them */
};
void shoali_checkpoint_wrong_add(struct shoali_checkpoint_wrong *wrong, const char *what,
                                 const char *name, const char *detail);
/* After the last; borrowed. */
const char *shoali_checkpoint_wrong_text(struct shoali_checkpoint_wrong *wrong);

/* ---- safetensors.c ---- */

/* The sum of all tensors' elements; -1 when a shape is impossible or the sum too large. */
int64_t shoali_checkpoint_flat_count(const shoal_shape *shapes, int32_t count);
/* The shapes of a kind's tensors. */
const shoal_shape *shoali_checkpoint_shapes(const struct shoali_checkpoint_args *args,
                                            const struct shoali_checkpoint_kind *kind);
/* Cuts one kind into files with their heads. SHOAL_EINVAL: names that cannot be stored. */
SHOAL_CHECKED shoal_status shoali_checkpoint_plan_make(const struct shoali_checkpoint_args *args,
                                                       const struct shoali_checkpoint_kind *kind,
                                                       struct shoali_arena *arena,
                                                       struct shoali_checkpoint_plan *plan);
/* One entry of a header, in file order. */
struct shoali_safetensors_entry {
    const char *name; /* from the arena */
    shoal_dtype dtype;
    shoal_shape shape;
    int64_t begin, end; /* bytes from the first data byte */
};
/* Reads the head of an open file of which path and bytes are known, and sets data_start.
 * SHOAL_ECORRUPT, with a sentence to be prefixed by the file's name: not such a head, a dtype or
 * rank this project does not have, gaps, or not as much data as the file has. */
SHOAL_CHECKED shoal_status shoali_checkpoint_read_head(struct shoali_checkpoint_file *file,
                                                       int descriptor, struct shoali_arena *arena,
                                                       struct shoali_safetensors_entry **entries,
                                                       int32_t *count);

/* ---- weight_write.c ---- */

/* The index of a kind's files that other tools expect. */
SHOAL_CHECKED shoal_status shoali_checkpoint_write_index(const char *path, const char *const *names,
                                                         const struct shoali_checkpoint_plan *plan);

/* ---- manifest.c ---- */

/* *text is owned by the caller (free()). */
SHOAL_CHECKED shoal_status shoali_manifest_format(const struct shoali_checkpoint_args *args,
                                                  const struct shoali_checkpoint_plan *plans,
                                                  char **text);
/* Reads and verifies DIR/TAG/manifest.json; *manifest is owned (json_decref). SHOAL_ENOENT: there
 * is none; SHOAL_ECORRUPT, with the path in front: it does not verify; SHOAL_EUNSUPPORTED: it is of
 * a later version; else as shoali_path_status. */
SHOAL_CHECKED shoal_status shoali_manifest_read(const char *dir, const char *tag,
                                                struct json_t **manifest);
int64_t shoali_manifest_step(const struct json_t *manifest);
/* SHOAL_EINVAL lists the tensors that are missing, extra or of another shape; with args->not_strict
 * those of another shape alone, and a line lists the others. found[i]: the name under which the
 * files hold tensor i, its own or the one it is an alias of, borrowed from both; NULL: they do
 * not. */
SHOAL_CHECKED shoal_status shoali_manifest_match(const struct json_t *manifest,
                                                 const struct shoali_checkpoint_args *args,
                                                 const char **found);
/* Names, sizes and hashes of a kind's files; what the files' own headers say is left 0. */
SHOAL_CHECKED shoal_status shoali_manifest_plan(const struct json_t *manifest,
                                                const struct shoali_checkpoint_kind *kind,
                                                struct shoali_arena *arena,
                                                struct shoali_checkpoint_plan *plan);
/* The same of the manifest's own entry of a kind, whatever its dtype. */
SHOAL_CHECKED shoal_status shoali_manifest_files(const struct json_t *row,
                                                 struct shoali_arena *arena,
                                                 struct shoali_checkpoint_plan *plan);
/* Engine and client texts, step, kinds. */
SHOAL_CHECKED shoal_status shoali_manifest_info(const struct json_t *manifest,
                                                struct shoali_checkpoint_info *info);

/* ---- find.c ---- */

/* A tag is one folder's name that is neither `latest` nor one of this format's own temporaries. */
bool shoali_checkpoint_tag_valid(const char *tag);
/* tag NULL: the latest. *found is owned (free()), *manifest too (json_decref). says: one line when
 * `latest` was of no use. SHOAL_ENOENT: there is none, and nothing that could be one. */
SHOAL_CHECKED shoal_status shoali_checkpoint_find(const char *dir, const char *tag, bool says,
                                                  char **found, struct json_t **manifest);

/* ---- run.c ---- */

/* The flat space of a rank, and of all that have the same shards. */
struct shoali_checkpoint_view {
    int32_t rank;                      /* the first that has it */
    const struct shoali_shard **shard; /* [tensors]; NULL: the whole */
    int64_t *begin;                    /* [tensors + 1] where each begins in the flat space */
    int32_t *origin; /* [tensors] the first view with the same block of it: the block's name */
};
/* Tensors of some shapes: those of the parameters, or a kind's own. */
struct shoali_checkpoint_space {
    const shoal_shape *shapes;
    const struct shoali_shard *const *shards; /* this rank's; NULL: wholes */
    int64_t *whole_begin; /* [tensors] where each begins in the files' order; -1: in no file */
    int32_t *order;       /* [order_count] those that are in files, in their order */
    int32_t order_count;
    struct shoali_checkpoint_view *view;
    int32_t view_count;
    int32_t *view_of; /* [ranks] */
};
/* Elements of one block, on one rank. */
struct shoali_checkpoint_holding {
    int32_t tensor, origin, rank;
    int32_t range;        /* of the rank's ranges the one that has them */
    int64_t begin, count; /* of the block */
    int64_t fresh;        /* its first element that no holding before it has */
    int64_t reached;      /* the block's elements below are in this holding or one before it */
};
/* By tensor, block, begin. Holdings may overlap: a tensor that is not cut along an axis is on all
 * ranks of it, in whatever parts. */
struct shoali_checkpoint_holdings {
    struct shoali_checkpoint_holding *holding;
    int64_t count;
};
/* One of a rank's chunks on its way. */
struct shoali_checkpoint_load {
    char *memory; /* of whole pages */
    struct shoali_io_request *request;
};
/* A rank's way to the files. */
struct shoali_checkpoint_lane {
    struct shoali_io *io;
    struct shoali_io_file *open; /* NULL: none */
    /* Files that were open before it: what is on its way may be theirs, and they are flushed
     * together at the end, or when there are too many. */
    struct shoali_io_file *left[SHOALI_CHECKPOINT_LEFT];
    int32_t left_count;
    const struct shoali_checkpoint_file *file; /* what is open */
    struct shoali_checkpoint_load load[2];
    int32_t turn; /* the one to be filled next */
};
/* One save or load on one rank. Every rank touches files: each chunk has one that writes, or reads,
 * it. Folders, the manifest and the headers are rank 0's. */
struct shoali_checkpoint_run {
    const struct shoali_checkpoint_args *args;
    const char *verb; /* "save", "load" */
    int32_t rank, size;
    int64_t flat_count[SHOALI_CHECKPOINT_KINDS]; /* elements of each kind */
    struct shoali_arena arena;
    char *buffer; /* see shoali_checkpoint_run_buffer */
    char *stage;  /* of it, as large as a chunk: elements from and to other ranks, of which NULL:
                     there are none */
    char *beside; /* as large: elements of a block as they follow in the block; NULL when nothing is
                     cut */
    struct shoali_checkpoint_lane lane;
    bool own_buffer;                                                /* else the caller's */
    struct shoali_checkpoint_space *space[SHOALI_CHECKPOINT_KINDS]; /* most have the same */
    bool cut;                                                       /* some tensor is, somewhere */
    struct shoali_checkpoint_holdings holdings[SHOALI_CHECKPOINT_KINDS];
    struct shoali_checkpoint_plan plan[SHOALI_CHECKPOINT_KINDS];
    /* First failure of this rank since the last agreement. Its later work is left out, but it keeps
     * sending and receiving, or the others would hang. */
    shoal_status local;
    bool agreed; /* the failure that ends it is known to all */
};
void shoali_checkpoint_run_init(struct shoali_checkpoint_run *run,
                                const struct shoali_checkpoint_args *args, const char *verb);
void shoali_checkpoint_run_fini(struct shoali_checkpoint_run *run);
/* Room for two chunks as large as the largest of the plans, for one more where there are other
 * ranks, and one where tensors are cut; args->buffer where that is large enough. And the lane. */
SHOAL_CHECKED shoal_status shoali_checkpoint_run_buffer(struct shoali_checkpoint_run *run);
/* Checks the arguments and learns who holds what. Collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_run_begin(struct shoali_checkpoint_run *run);
/* All ranks get the status of the lowest failing rank, and its sentence. Collective; clears
 * run->local. */
SHOAL_CHECKED shoal_status shoali_checkpoint_agree(struct shoali_checkpoint_run *run,
                                                   shoal_status status);
/* Chunk `index` of a file: its bytes, and the elements among them. */
struct shoali_checkpoint_span {
    int64_t byte_begin, byte_end; /* of the file */
    int64_t begin, end;           /* elements, in the files' order */
    int64_t skip;                 /* bytes of the chunk in front of the first element */
};
struct shoali_checkpoint_span shoali_checkpoint_chunk(const struct shoali_checkpoint_file *file,
                                                      shoal_dtype dtype, int64_t index);

/* ---- writers.c ---- */

/* Numbers the chunks of all plans. */
void shoali_checkpoint_number_chunks(struct shoali_checkpoint_run *run);
/* A chunk of a kind has one writer, who is its reader when it is loaded. Chunks are dealt out in as
 * many runs of neighbours as there are ranks, so that what a rank holds of the flat space and what
 * it writes are mostly the same, and no rank has more than one chunk more than another. A function
 * of the numbers of chunks and ranks alone. Each rank's chunks have rounds: of a round every rank
 * has at most one. */
int64_t shoali_checkpoint_rounds(const struct shoali_checkpoint_run *run, int32_t kind);
/* The chunk that `rank` has in a round; -1: none. */
int64_t shoali_checkpoint_chunk_of(const struct shoali_checkpoint_run *run, int32_t kind,
                                   int64_t round, int32_t rank);
/* The file that a kind's chunk is in; *index: its number in that file. */
struct shoali_checkpoint_file *shoali_checkpoint_file_of(const struct shoali_checkpoint_run *run,
                                                         int32_t kind, int64_t chunk,
                                                         int64_t *index);

/* ---- lane.c ---- */

/* SHOAL_ENOMEM and the like; *lane is good for fini in any case. */
SHOAL_CHECKED shoal_status shoali_checkpoint_lane_init(struct shoali_checkpoint_lane *lane,
                                                       char *first, char *second);
/* Waits for what is on its way. */
void shoali_checkpoint_lane_fini(struct shoali_checkpoint_lane *lane);
/* The next memory, once the write that it was used for is over. */
SHOAL_CHECKED shoal_status shoali_checkpoint_lane_next(struct shoali_checkpoint_lane *lane,
                                                       struct shoali_checkpoint_load **load);
/* Starts writing a chunk, in another file than before if need be. */
SHOAL_CHECKED shoal_status shoali_checkpoint_lane_write(struct shoali_checkpoint_lane *lane,
                                                        struct shoali_checkpoint_load *load,
                                                        const struct shoali_checkpoint_file *file,
                                                        int64_t begin, int64_t bytes);
/* Starts reading one. */
SHOAL_CHECKED shoal_status shoali_checkpoint_lane_read(struct shoali_checkpoint_lane *lane,
                                                       struct shoali_checkpoint_load *load,
                                                       const struct shoali_checkpoint_file *file,
                                                       int64_t begin, int64_t bytes);
/* Waits for a load's request, if it has one. */
SHOAL_CHECKED shoal_status shoali_checkpoint_lane_wait(struct shoali_checkpoint_load *load);
/* Waits for all, and closes the files; `flush`: they are on the drive. */
SHOAL_CHECKED shoal_status shoali_checkpoint_lane_close(struct shoali_checkpoint_lane *lane,
                                                        bool flush);

/* ---- gather.c, scatter.c ---- */

/* Tells the kinds that want to know what this rank will read of them, and then args->expected. */
void shoali_checkpoint_expect(struct shoali_checkpoint_run *run);
/* Writes and flushes all files, and makes their hashes known to all ranks. Collective; every rank
 * leaves with the same status. */
SHOAL_CHECKED shoal_status shoali_checkpoint_gather(struct shoali_checkpoint_run *run);
/* Reads and verifies what somebody holds of all kinds. As above. */
SHOAL_CHECKED shoal_status shoali_checkpoint_scatter(struct shoali_checkpoint_run *run);

/* ---- holders.c ---- */

/* Learns what every rank holds, and that it is everything. Collective. */
SHOAL_CHECKED shoal_status shoali_checkpoint_learn_holders(struct shoali_checkpoint_run *run);
/* Elements of this rank's flat space of a kind. */
int64_t shoali_checkpoint_held_count(const struct shoali_checkpoint_args *args,
                                     const struct shoali_checkpoint_kind *kind);
/* The ranges of a kind on this rank: `ranges`, or the single one as such. */
const struct shoali_checkpoint_range *
shoali_checkpoint_ranges(const struct shoali_checkpoint_kind *kind,
                         struct shoali_checkpoint_range *single, int32_t *count);

/* ---- pieces.c ---- */

/* What one rank holds of one block, or of several whole tensors that follow each other. */
struct shoali_checkpoint_piece {
    int32_t rank, range, tensor, origin;
    const struct shoali_shard *shard; /* NULL: the whole */
    int64_t begin, count;             /* of the block */
    int64_t flat;                     /* where it begins in the rank's flat space */
    int64_t whole;                    /* where the tensor begins in the files' order */
};
/* The pieces of elements [begin, end) in the files' order, the same on every rank: each element
 * once, or, with every_holder, once for each rank that has it. Of a replicated kind the first rank
 * of each view stands for the others. */
struct shoali_checkpoint_walk {
    const struct shoali_checkpoint_space *space;
    const struct shoali_checkpoint_holdings *list;
    int64_t begin, end;
    int32_t place,
        origin;        /* the block it is on, of space->order[place]; origin -1: none of it yet */
    int64_t low, high; /* elements of that block that are in the range */
    int64_t holding;   /* the next */
    struct shoali_checkpoint_piece ahead;
    bool every_holder, more;
};
struct shoali_checkpoint_walk shoali_checkpoint_walk(const struct shoali_checkpoint_run *run,
                                                     int32_t kind, int64_t begin, int64_t end,
                                                     bool every_holder);
bool shoali_checkpoint_next(struct shoali_checkpoint_walk *walk,
                            struct shoali_checkpoint_piece *piece);

/* Where the piece begins in memory that holds elements from `first` on in the files' order; NULL:
 * its elements do not follow each other there. */
char *shoali_checkpoint_direct(const struct shoali_checkpoint_piece *piece, char *memory,
                               int64_t first, size_t item);
/* Copies the piece into such memory. */
void shoali_checkpoint_spread(const struct shoali_checkpoint_piece *piece, char *memory,
                              int64_t first, size_t item, const char *from);
/* The piece out of such memory: where it is, or a copy in `beside`. */
char *shoali_checkpoint_collect(const struct shoali_checkpoint_piece *piece, char *memory,
                                int64_t first, size_t item, char *beside);

/* ---- folder.c ---- */

struct shoali_checkpoint_folders {
    const char *dir, *final, *partial, *old, *latest, *holder;
    int lock;         /* dir, open and locked while this save is at work there; -1: not */
    bool alone;       /* the lock is held, so no other save is at work in dir */
    bool begun;       /* partial is this save's own */
    bool keep_latest; /* it names a later step */
    int64_t wait_begin_ns, warnings;
};
SHOAL_CHECKED shoal_status shoali_checkpoint_folders_init(
    struct shoali_checkpoint_run *run, struct shoali_checkpoint_folders *folders);
/* Jobs that save in one folder take turns, or one would clear away what the other is writing; the
 * system takes the lock from who dies. Waits as long as another holds it, and says so at once and
 * each minute. Collective; none of its collectives lasts. */
SHOAL_CHECKED shoal_status shoali_checkpoint_take_turn(struct shoali_checkpoint_run *run,
                                                       struct shoali_checkpoint_folders *folders);
void shoali_checkpoint_end_turn(struct shoali_checkpoint_folders *folders);
SHOAL_CHECKED shoal_status shoali_checkpoint_move(const char *from, const char *to);
/* Puts DIR/TAG back in place where a save died between its renames. */
SHOAL_CHECKED shoal_status shoali_checkpoint_recover(const char *dir, const char *tag);
/* NAME is TAG.partial or TAG.old. */
bool shoali_checkpoint_is_leftover(const char *name, char tag[SHOALI_CHECKPOINT_TAG_BYTES + 1]);
/* Whether a folder holds nothing but what a save, or a folder of weights for others, has. */
bool shoali_checkpoint_only_ours(const char *path);
/* Recovers and removes what saves that died have left; in a turn only. */
void shoali_checkpoint_sweep(const struct shoali_checkpoint_folders *folders);
/* SHOAL_EEXIST: a save of args would replace what is of a later step, or move `latest` back to its
 * own. keep_latest: a chosen and new tag does neither, as long as `latest` stays. args->tag NULL:
 * of a save to come. */
SHOAL_CHECKED shoal_status shoali_checkpoint_check_later(const struct shoali_checkpoint_args *args,
                                                         bool *keep_latest);

/* ---- retain.c ---- */

/* shoali_checkpoint_prune for who has the lock; out NULL: into the log. */
SHOAL_CHECKED shoal_status shoali_checkpoint_retain(const char *dir,
                                                    const struct shoali_checkpoint_keep *keep,
                                                    bool dry_run, struct shoali_str *out);

/* ---- files.c: DIR, TAG and FILE make a path; FILE "" is the folder, TAG and FILE "" is DIR --- */

/* From the arena; NULL when memory is exhausted. */
char *shoali_checkpoint_path(struct shoali_arena *arena, const char *dir, const char *tag,
                             const char *file);
/* SHOAL_EINVAL when the user must choose another folder, SHOAL_EIO when the system fails. */
SHOAL_CHECKED shoal_status shoali_checkpoint_make_dir(const char *path);
/* Names, also with .tmp, that other programs look for beside weights: what a save that died has
 * left may hold them. */
bool shoali_checkpoint_is_companion(const char *name);
/* Removes a folder of plain files, the manifest first: what is left when that is interrupted is no
 * checkpoint. One that does not exist is fine. */
SHOAL_CHECKED shoal_status shoali_checkpoint_remove_dir(const char *path);
SHOAL_CHECKED shoal_status shoali_checkpoint_sync_dir(const char *path);
/* Of DIR/NAME. What does not exist is no folder; what cannot be looked at is an error. */
SHOAL_CHECKED shoal_status shoali_checkpoint_is_folder(const char *dir, const char *name,
                                                       bool *folder);
/* Of a tag that names no checkpoint: "does not exist", or what is missing. Clears the error. */
const char *shoali_checkpoint_lack(const char *dir, const char *tag);
SHOAL_CHECKED shoal_status shoali_checkpoint_exists(const char *dir, const char *name, bool *found);
/* Whether DIR/TAG has a manifest that verifies; one that cannot be read is an error. */
SHOAL_CHECKED shoal_status shoali_checkpoint_verifies(const char *dir, const char *tag, bool *good);
/* ulimit -f; INT64_MAX: none. */
int64_t shoali_checkpoint_file_limit(void);
/* Creates a file with its space reserved; missing_bytes: of this and all later files. */
SHOAL_CHECKED shoal_status shoali_checkpoint_create_file(const char *path, int64_t bytes,
                                                         int64_t missing_bytes);
SHOAL_CHECKED shoal_status shoali_checkpoint_pwrite(int descriptor, const char *path,
                                                    const char *data, int64_t bytes, int64_t at);
SHOAL_CHECKED shoal_status shoali_checkpoint_pread(int descriptor, const char *path, char *data,
                                                   int64_t bytes, int64_t at);

/* Opens a file of which path and bytes are known. SHOAL_ECORRUPT when it is missing or of another
 * size. */
SHOAL_CHECKED shoal_status shoali_checkpoint_open_file(const struct shoali_checkpoint_file *file,
                                                       int *descriptor);

#endif
