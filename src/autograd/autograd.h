/* autograd - the tape: records ops in forward and visits them in reverse order in backward. Level
 * L5.
 *
 * TERMS
 *   row    op definition: const description of a kind of op {infer, forward, backward_input,
 *          backward_weight, cost, saves}. It lives in the folder that owns the op; there is no
 *          central list.
 *   node   one recorded op: row, attributes, inputs, parameters, outputs. Its forward can run again
 *          at any time with the same bits, because random numbers come from coordinates.
 *   slot   memory of one tape: one device block and an offset allocator (first fit, deterministic).
 *          In meta mode it has no memory, so its peak is the plan, and a run needs exactly that.
 *   sink   gradient buffer of a parameter. grad_ready fires exactly once per tape and parameter.
 *   scope  a marked range of nodes with a path ("transformer.h.0/attn"); a layer is an outermost
 *          scope.
 *   meta mode  exec.stream == NULL: shapes and the allocator only, no kernels, no memory.
 *
 * FOLDERS
 *   tape/  recording, liveness, slots, replay, backward (tape.h)
 *   rows/  ops, one file per family (rows.h); the tape knows none of them (scripts/check-tape)
 *
 * INVARIANTS
 *   - A parameter's address is resolved when a kernel is launched, never when a node is recorded.
 *   - Writing a parameter (shoali_param_begin_write) while a live tape reads it is an error.
 *   - A tensor is freed when no later backward needs it and its scope ended without listing it, or
 *     its tape is done. In backward a saved tensor is freed after its last reader, a gradient of an
 *     activation after its producer.
 *   - Contributions to one tensor's gradient are added in reverse tape order, each complete and
 *     rounded to the activation dtype. The bits depend neither on recompute nor on fusion.
 *   - Recompute (a flag of an observer): at its end a scope drops all but its outputs. Before its
 *     last node's backward it replays, in order, the nodes whose results are read, and all
 *     collectives; never side effects. Flags inside a recomputed scope are cleared. Layers may be
 *     recomputed as a group, which keeps only the inputs of its first layer.
 *   - A collective overlaps with the kernels recorded after it, until something needs its result or
 *     its scope ends. Its buffers are held meanwhile; bits and plan do not depend on its timing.
 *   - Several tapes may be alive at once, each with its own slot, in any order.
 *   - Backward takes outputs with seeds, and inputs with places for their gradients. For a loss the
 *     seed is the loss scale.
 */
#ifndef SHOALI_AUTOGRAD_H
#define SHOALI_AUTOGRAD_H

#include "autograd/kv_cache.h"
#include "autograd/tensor_parallel.h"
#include "comm/comm.h"
#include "shoal/autograd.h"
#include "tensor/shard.h"

/* ---- parameters ----------------------------------------------------------------------------- */

/* Where a gradient goes. Set by zero (or a test) before backward; handed to the kernel as its
 * epilogue. */
struct shoali_sink {
    void *destination; /* device; F32, I64 (exact), F64 (F64 models) */
    shoal_dtype dtype;
    /* false: the first contribution, of whichever tape, overwrites and sets it; all others add. */
    bool accumulate;
    /* exact mode: */
    int32_t unit_log2; /* fixed-point unit 2^-unit_log2 */
    double limit;      /* |contribution| >= limit is out of range */
    uint32_t *flag;    /* device, OR-ed with 1 when out of range or NaN */
};

/* A weight in the layout that a product reads, once for y = x w and once for dx = dy w^T: made on
 * the first need after the parameter was written. */
enum shoali_packed_use { SHOALI_PACKED_FORWARD, SHOALI_PACKED_BACKWARD, SHOALI_PACKED_USES };
struct shoali_packed {
    void *data;      /* device; NULL: products read the parameter itself */
    int64_t version; /* of the parameter it was made from; -1: none */
    int64_t n, k;    /* of the product's B; n 0: no product yet */
    int32_t trans_b;
    int32_t uses;  /* products that a run in meta mode would have made */
    int64_t rows;  /* of the largest of them */
    size_t bytes;  /* 0: there is no such layout */
    bool in_place; /* data is the parameter's own memory, where nothing else is */
};

struct shoal_param {
    const char *name;  /* global, unique */
    int32_t index;     /* canonical order = declaration order */
    shoal_shape shape; /* of what this rank holds */
    int64_t count;
    int64_t alike_count; /* what the first rank along tp holds: by it all ranks along tp decide */
    int64_t begin;       /* its first element in the flat space of what this rank holds of all */
    int64_t whole_begin; /* the same where all are whole */
    const struct shoali_shard *shard; /* which elements of the whole those are; NULL: all */
    shoal_axes cut_by;  /* axes of several ranks that cut it; with SHOAL_AXIS_EXPERT: of the expert
                          generator, because one of its splits is of ep */
    int32_t tensor_dim; /* that tp cuts, if cut_by says so; columns: how */
    struct shoali_columns columns;
    /* Each rank along tp makes a part of its gradient, of its heads or positions. Ops say so when
     * they are recorded, the first time without memory, before any gradient is summed. */
    bool sum_over_tensor, not_sum_over_tensor;
    shoal_init_kind init;
    double init_a, init_b, lr_mult;
    unsigned tags;
    int32_t uses;         /* layers that declared it (tied: > 1) */
    int32_t uses_here;    /* those of them that this rank runs; 0: it holds nothing of it */
    shoal_dtype dtype;    /* storage type of `data` */
    void *data;           /* device address of the compute copy, NULL while not fetched */
    int64_t version;      /* +1 at every write */
    int32_t reader_tapes; /* live tapes with nodes that read it */
    int32_t reads;        /* nodes that a run in meta mode would have read it in */
    struct shoali_sink sink;
    struct shoali_packed packed[SHOALI_PACKED_USES];
    void *owner; /* zero's bookkeeping, borrowed */
    /* A backward wrote a gradient since the engine cleared it at the step's begin (zeros for unused
     * parameters do not count); after the step's reduction: on any rank. */
    bool has_gradient;
    bool named_unused; /* the engine warned about it */
};
/* SHOAL_EINTERNAL naming the parameter when a live tape reads it; else version+1. */
SHOAL_CHECKED shoal_status shoali_param_begin_write(struct shoal_param *param);
/* SHOAL_EINVAL: exact_splits.tensor is more than the units of this part. */
SHOAL_CHECKED shoal_status shoali_param_refuse_exact_splits(const struct shoal_param *param,
                                                            int32_t part);

/* A model's parameters and layers after declaration; metadata only. */
struct shoal_layer {
    const struct shoal_layer_type *type;
    const char *name;
    const void *config;
    struct shoal_param **param; /* in declaration order */
    int32_t param_count;
    int32_t index;
    bool here; /* this rank runs it; see shoali_module_keep_layers */
};
/* Another name of a parameter: that of a second, tied use. */
struct shoali_alias {
    const char *name;
    int32_t param;
};
struct shoali_module {
    const shoal_model *model; /* borrowed */
    struct shoali_arena arena;
    struct shoal_layer *layer;
    int32_t layer_count;
    struct shoal_param **param; /* unique, canonical order */
    int32_t param_count;
    int64_t element_count; /* of all unique parameters, held by this rank */
    int64_t whole_count;   /* of their wholes */
    shoal_dtype dtype;     /* compute dtype of parameters and activations */
    int32_t *by_name;      /* hash table of indices into `param`, -1 free */
    int32_t param_capacity, by_name_capacity;
    struct shoali_alias *alias; /* in declaration order; their names are no parameter's name */
    int32_t alias_count, alias_capacity;
};
/* Where this rank is along an axis. An axis that is not named has one rank. A parameter with a
 * split of ep looks for its axes with SHOAL_AXIS_EXPERT, the others without. */
struct shoali_axis_place {
    shoal_axes axis;
    int32_t ways, index;
    int32_t splits; /* tp: logical splits of exact sums, a multiple of ways; 0, 1: none */
};
/* Runs all declares. SHOAL_EINVAL: duplicate name, tied_to unknown or of another shape, a split
 * that does not fit its shape. */
SHOAL_CHECKED shoal_status shoali_module_init(struct shoali_module *module,
                                              const shoal_model *model, shoal_dtype dtype,
                                              const struct shoali_axis_place *places,
                                              int32_t place_count);
/* The same; `tag` (its user, a global name) may give splits to a parameter that was declared
 * without. */
struct shoali_tagger {
    void *user;
    shoal_status (*tag)(void *user, const char *name, shoal_param_spec *spec);
};
SHOAL_CHECKED shoal_status shoali_module_init_tagged(struct shoali_module *module,
                                                     const shoal_model *model, shoal_dtype dtype,
                                                     const struct shoali_axis_place *places,
                                                     int32_t place_count,
                                                     const struct shoali_tagger *tagger);
void shoali_module_fini(struct shoali_module *module);
/* This rank runs only layers [first[i], first[i] + count[i]) of `run_count` runs. It holds nothing
 * of parameters that none of these layers declares. They keep index and name but take no part of
 * the flat space. The axis pp then partitions all parameters of the module, also those that this
 * rank has whole. */
struct shoali_layer_run {
    int32_t first, count;
};
SHOAL_CHECKED shoal_status shoali_module_keep_layers(struct shoali_module *module,
                                                     const struct shoali_layer_run *runs,
                                                     int32_t run_count);
/* Elements of the flat space that follow each other in the whole of one parameter. */
struct shoali_piece {
    const struct shoal_param *param;
    int64_t first; /* its element of the whole */
    int64_t count;
};
/* What element `at` of the flat space begins, as far as `end`. at < end <= element_count. */
struct shoali_piece shoali_module_piece(const struct shoali_module *module, int64_t at,
                                        int64_t end);
/* By name or by alias; NULL: none. */
struct shoal_param *shoali_module_find(const struct shoali_module *module, const char *name);

/* ---- packed weights ------------------------------------------------------------------------- */

/* Runs in meta mode count the products of each weight; this forgets them. */
void shoali_packed_forget(struct shoali_module *module);
/* Which weights get packed buffers: those read at least `least_uses` times between two writes, if
 * a run is repeated `repeats` times, by products of at most `most_rows` rows. */
struct shoali_packed_rule {
    int64_t repeats, least_uses, most_rows;
};
/* One block of device memory for all of them; *memory is NULL and *bytes 0 when there are none. The
 * caller frees the block after the module's last tape. */
SHOAL_CHECKED shoal_status shoali_packed_create(struct shoali_module *module,
                                                struct shoali_device *device,
                                                const struct shoali_packed_rule *rule,
                                                void **memory, size_t *bytes);

/* Packs weights in place, for callers that only run forward: weights that only products of one kind
 * read. Packing takes memory for a copy of the largest weight and frees it afterwards; without that
 * memory the weights stay as they are. Other readers, such as a checkpoint, find no weight there. A
 * run in meta mode must have counted the readers before. A write of such a weight undoes its
 * packing. Synchronises. */
SHOAL_CHECKED shoal_status shoali_packed_place(struct shoali_module *module,
                                               const struct shoali_exec *exec);

/* ---- slots: memory of a tape ---------------------------------------------------------------- */

struct shoali_slot; /* offset allocator over one device block; opaque */
/* capacity_bytes 0: meta only (or grows on demand: each growth is counted and logged). `device`
 * NULL: meta. */
SHOAL_CHECKED shoal_status shoali_slot_create(struct shoali_device *device, size_t capacity_bytes,
                                              struct shoali_slot **slot);
void shoali_slot_destroy(struct shoali_slot *slot);
/* The same over one block of pinned host memory. */
SHOAL_CHECKED shoal_status shoali_slot_create_pinned(struct shoali_device *device,
                                                     size_t capacity_bytes,
                                                     struct shoali_slot **slot);
/* 0 for NULL. */
size_t shoali_slot_peak_bytes(const struct shoali_slot *slot);
int64_t shoali_slot_growth_count(const struct shoali_slot *slot); /* 0 when the plan held */

/* ---- observers ------------------------------------------------------------------------------ */

struct shoali_scope {
    const char *name, *path; /* path joins the names by "/" */
    int32_t index, parent;   /* parent -1, or a group: a layer's scope */
    int32_t first_node, node_count;
    const struct shoal_layer *layer; /* of the outermost scope; NULL for inner ones */
    int32_t group_layers; /* > 0: these layers are recomputed as one; its path names no stream */
    bool recompute;       /* set by an observer in forward_begin */
    int64_t flops_forward, flops_backward, saved_bytes;
};
/* Called in the order of registration at begins and in reverse order at ends; a failing observer
 * poisons the tape. Any member NULL. grad_ready: this tape has added its last contribution
 * to the parameter's gradient. With defer_weight that may be after the ends of all scopes; for a
 * parameter that no op used it is at the begin of the scope of the first layer that declares it. */
struct shoali_observer {
    void *user;
    shoal_status (*forward_begin)(void *user, struct shoal_tape *tape, struct shoali_scope *scope);
    shoal_status (*forward_end)(void *user, struct shoal_tape *tape, struct shoali_scope *scope);
    shoal_status (*backward_begin)(void *user, struct shoal_tape *tape, struct shoali_scope *scope);
    shoal_status (*backward_end)(void *user, struct shoal_tape *tape, struct shoali_scope *scope);
    shoal_status (*grad_ready)(void *user, struct shoal_tape *tape, struct shoal_param *param);
    /* How many layers from this one on are recomputed as one; up to 1: each by itself. Asked
     * before a layer that is in no group. */
    int32_t (*group)(void *user, const struct shoal_layer *layer);
    /* Around the replay of a layer of a group: between them its parameters are read. */
    shoal_status (*replay_begin)(void *user, struct shoal_tape *tape, struct shoali_scope *scope);
    shoal_status (*replay_end)(void *user, struct shoal_tape *tape, struct shoali_scope *scope);
};

/* ---- the tape ------------------------------------------------------------------------------- */

/* Where the inputs of recomputed scopes wait when nothing but their replay will read them. */
struct shoali_keep {
    enum {
        SHOALI_KEEP_SLOT,  /* where they are */
        SHOALI_KEEP_BLOCK, /* in the block of `slot` */
        SHOALI_KEEP_HOST   /* in pinned host memory (shoali_slot_create_pinned); the copies overlap
                              with the next scope, and with the backward of the scope after it */
    } where;
    struct shoali_slot *slot; /* borrowed; in meta mode a meta slot */
};

struct shoali_tape_args {
    struct shoali_exec exec;            /* stream NULL: meta mode */
    const struct shoali_module *module; /* for grad_ready of unused parameters; NULL in op tests */
    struct shoali_slot *slot;           /* borrowed until destroy */
    struct shoali_keep keep;
    shoal_dtype dtype; /* activations */
    uint64_t seed;
    const struct shoali_observer *observers; /* borrowed */
    int32_t observer_count;
    struct shoali_tensor_parallel tensor_parallel; /* zeros: one rank */
};
SHOAL_CHECKED shoal_status shoali_tape_create(const struct shoali_tape_args *args,
                                              struct shoal_tape **tape);
void shoali_tape_destroy(struct shoal_tape *tape);

/* Starts a recording: frees what a former one left, sets the coordinates. needs_grad false:
 * nothing is saved (evaluation). */
struct shoali_tape_begin {
    int64_t step;         /* of random streams */
    int64_t first_sample; /* global index of row 0 of the batch */
    int64_t samples; /* rows of the batch; 0: of its first array, or of the first input added */
    bool training, needs_grad;
    const struct shoali_generation *generation; /* NULL: samples as they are; else kv_cache.h */
};
SHOAL_CHECKED shoal_status shoali_tape_begin(struct shoal_tape *tape,
                                             const struct shoali_tape_begin *begin);
/* Adds an input tensor: host data is copied to the device (F32 converted to `dtype` when it is a
 * 16-bit type); NULL data in meta mode, or zeros. With needs_grad its gradient can be asked from
 * backward. */
struct shoal_tensor *shoali_tape_add_input(struct shoal_tape *tape, shoal_dtype dtype,
                                           const shoal_shape *shape, const void *host_data,
                                           bool needs_grad);
/* A tensor whose memory the caller owns (device address), e.g. what a pipeline peer sent. */
struct shoal_tensor *shoali_tape_add_device_input(struct shoal_tape *tape, shoal_dtype dtype,
                                                  const shoal_shape *shape, void *data,
                                                  bool needs_grad);
/* Batch arrays seen by shoal_tape_input. */
void shoali_tape_set_batch(struct shoal_tape *tape, struct shoal_tensor *const *inputs,
                           int32_t count);
/* How often this recording has asked for one of them so far. */
int64_t shoali_tape_batch_reads(const struct shoal_tape *tape);
/* What is between two layers. The list is never changed, only replaced, so a copy of the struct
 * stays what it was. */
struct shoal_boundary {
    int32_t count;
    struct shoal_tensor **tensor; /* in the tape's arena */
};
/* Runs layers [first, first+count) as scopes. */
SHOAL_CHECKED shoal_status shoali_tape_forward_layers(struct shoal_tape *tape,
                                                      const struct shoali_module *module,
                                                      int32_t first, int32_t count,
                                                      shoal_boundary *boundary);
/* Between two layers: bytes of what the first has left for the second. */
int64_t shoali_tape_boundary_bytes(const struct shoal_tape *tape);
/* The poison, or SHOAL_OK. */
SHOAL_CHECKED shoal_status shoali_tape_status(const struct shoal_tape *tape);
/* Poisons; keeps the first error. Returns NULL so that ops can `return shoali_tape_poison(...)`. */
struct shoal_tensor *shoali_tape_poison(struct shoal_tape *tape, shoal_status status);

struct shoali_backward {
    struct shoal_tensor *const *outputs; /* tensors whose gradient is given */
    const void *const
        *seeds; /* device, dtype and shape of the output; NULL entry: scalar seed_value */
    int32_t output_count;
    double seed_value;                  /* loss scale */
    struct shoal_tensor *const *inputs; /* needs_grad inputs whose gradients are wanted */
    void *const *input_grads;           /* device, written (zeros when nothing reached them) */
    int32_t input_count;
    bool defer_weight; /* only backward_input now; shoali_tape_backward_weight later */
};
SHOAL_CHECKED shoal_status shoali_tape_backward(struct shoal_tape *tape,
                                                const struct shoali_backward *backward);
SHOAL_CHECKED shoal_status shoali_tape_backward_weight(struct shoal_tape *tape);
/* SHOAL_EINVAL when an id looked up by an embedding of this recording was outside its table. One
 * host synchronisation, and only when ids were used that the host has not seen
 * (shoali_tape_add_input's are checked when the op is recorded). */
SHOAL_CHECKED shoal_status shoali_tape_check_ids(struct shoal_tape *tape);
/* Frees everything, releases the readers of parameters; the tape can begin again. */
void shoali_tape_end(struct shoal_tape *tape);
/* What happened, for plans, the profiler and `diff`. */
int32_t shoali_tape_scope_count(const struct shoal_tape *tape);
/* How many layers of this recording declare the parameter: begins of backward scopes that one
 * grad_ready answers. */
int32_t shoali_tape_declared(struct shoal_tape *tape, struct shoal_param *param);
const struct shoali_scope *shoali_tape_scope(const struct shoal_tape *tape, int32_t index);
void shoali_tape_totals(const struct shoal_tape *tape, int64_t *flops_forward,
                        int64_t *flops_backward, int64_t *bytes);

/* ---- for those who write op rows ------------------------------------------------------------ */

#define SHOALI_NODE_MAX_INPUTS 4
#define SHOALI_NODE_MAX_PARAMS 6
/* Output 0 is the result, the others are hidden (mean, rstd, lse). */
#define SHOALI_NODE_MAX_OUTPUTS 4
struct shoali_node;
struct shoali_record_args;
struct shoali_op_row {
    uint32_t abi;
    size_t bytes;
    const char *name;
    /* Checks inputs, describes the outputs (shoali_node_output). Errors: which op, got and expected
     * shapes. */
    shoal_status (*infer)(struct shoal_tape *tape, struct shoali_node *node);
    shoal_status (*forward)(struct shoal_tape *tape, struct shoali_node *node);
    shoal_status (*backward_input)(struct shoal_tape *tape,
                                   struct shoali_node *node); /* optional */
    shoal_status (*backward_weight)(struct shoal_tape *tape,
                                    struct shoali_node *node); /* optional; deferrable */
    void (*cost)(const struct shoal_tape *tape, const struct shoali_node *node,
                 int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes);
    uint32_t saves_inputs, saves_outputs; /* bit i: backward reads input i / output i */
    unsigned flags;                       /* SHOALI_ROW_* */
    /* Split rows, instead of forward (of backward_input): post starts a collective
     * (shoali_node_post), finish, optional, runs when it is over. In between other kernels run;
     * the tape finishes the node before the first reader of its result, at the end of its scope
     * and before backward. Post has no workspace in flight. A row with backward_post has no
     * backward_weight. */
    shoal_status (*forward_post)(struct shoal_tape *tape, struct shoali_node *node);
    shoal_status (*forward_finish)(struct shoal_tape *tape, struct shoali_node *node);
    shoal_status (*backward_post)(struct shoal_tape *tape, struct shoali_node *node);
    shoal_status (*backward_finish)(struct shoal_tape *tape, struct shoali_node *node);
    /* Optional, first of all: replaces inputs that the row cannot take as they are. */
    shoal_status (*prepare)(struct shoal_tape *tape, struct shoali_record_args *record);
};
#define SHOALI_OP_ROW_ABI 3u
/* forward and backward are called in meta mode too, so that their temporaries are part of the
 * plan; they put each kernel, copy and collective into this: `call` outside meta mode, else
 * SHOAL_OK. */
#define SHOALI_LAUNCH(tape, call) (shoali_tape_is_meta(tape) ? SHOAL_OK : (call))
#define SHOALI_ROW_HOST_SYNC 1u
#define SHOALI_ROW_SIDE_EFFECT 2u /* not replayed */
#define SHOALI_ROW_COLLECTIVE 4u
#define SHOALI_ROW_VIEW 8u    /* output 0 shares input 0's memory */
#define SHOALI_ROW_HELPER 16u /* a part of another op: counts for no random stream */
/* Its backward_post comes before the backward_weight of the node recorded next, if that node reads
 * its result first. */
#define SHOALI_ROW_HURRIED 32u
#define SHOALI_ROW_COLUMNS 64u       /* takes inputs whose last dim is cut (tensor_parallel.h) */
#define SHOALI_ROW_SEQUENCE 128u     /* ... whose sequence is */
#define SHOALI_ROW_NOTES_PARAMS 256u /* infer calls shoali_tensor_note_param itself */

struct shoali_record_args {
    const struct shoali_op_row *row;
    struct shoal_tensor
        *inputs[SHOALI_NODE_MAX_INPUTS]; /* trailing NULLs allowed; NULL in between = absent */
    struct shoal_param *params[SHOALI_NODE_MAX_PARAMS];
    const void *attr;
    size_t attr_bytes; /* copied */
};
/* Prepares, records, infers, allocates, runs. Returns output 0, NULL when poisoned. */
struct shoal_tensor *shoali_tape_record(struct shoal_tape *tape,
                                        const struct shoali_record_args *record);

void *shoali_node_attr(const struct shoali_node *node);
struct shoal_tensor *shoali_node_in(const struct shoali_node *node, int32_t index);
struct shoal_tensor *shoali_node_out(const struct shoali_node *node, int32_t index);
/* In infer: describes output `index`; bound_count < 0: static size. */
SHOAL_CHECKED shoal_status shoali_node_output(struct shoal_tape *tape, struct shoali_node *node,
                                              int32_t index, shoal_dtype dtype,
                                              const shoal_shape *shape, int64_t bound_count);
const struct shoali_exec *shoali_tape_exec(const struct shoal_tape *tape);
bool shoali_tape_is_meta(const struct shoal_tape *tape);
/* The node's random stream (dropout); an element's index in it is its index in the whole that the
 * output is a block of. */
struct shoali_stream shoali_node_random(const struct shoal_tape *tape,
                                        const struct shoali_node *node);
/* In forward_post and backward_post: starts the node's one collective, unless in meta mode. */
SHOAL_CHECKED shoal_status shoali_node_post(struct shoal_tape *tape, struct shoali_node *node,
                                            shoal_group *group, const struct shoali_post *post);
/* Memory of the slot from then on until the post is over, behind its finish. */
SHOAL_CHECKED shoal_status shoali_node_scratch(struct shoal_tape *tape, struct shoali_node *node,
                                               size_t bytes, void **memory);
/* In backward: gradient of output 0 (NULL: none reached it - the row is then not called). */
const void *shoali_node_grad(struct shoal_tape *tape, const struct shoali_node *node,
                             int32_t output);
/* Where to write input i's gradient. *to NULL: not needed. With can_accumulate false and a prior
 * contribution a temporary is given and added at end. Call end after the kernel. */
SHOAL_CHECKED shoal_status shoali_grad_begin(struct shoal_tape *tape, struct shoali_node *node,
                                             int32_t input, bool can_accumulate, void **to,
                                             bool *accumulate);
SHOAL_CHECKED shoal_status shoali_grad_end(struct shoal_tape *tape, struct shoali_node *node,
                                           int32_t input);
/* Same for parameter i: fp32 (F64) destination; for I64 sinks a temporary converted at end. *to
 * NULL: frozen. Fires grad_ready after the last use. */
SHOAL_CHECKED shoal_status shoali_param_grad_begin(struct shoal_tape *tape,
                                                   struct shoali_node *node, int32_t param,
                                                   void **to, bool *accumulate);
SHOAL_CHECKED shoal_status shoali_param_grad_end(struct shoal_tape *tape, struct shoali_node *node,
                                                 int32_t param);
/* Between begin and end, with an I64 sink: converts what is in `to` as a contribution of its own.
 * The next contribution overwrites `to`. */
SHOAL_CHECKED shoal_status shoali_param_grad_next(struct shoal_tape *tape, struct shoali_node *node,
                                                  int32_t param);
/* Instead of begin, for a product that is a contribution: sets where the product leaves its sums,
 * in the destination or, as integers, in the I64 sink, so that nothing is converted. *wanted false:
 * frozen. For elements [first, first + count) of the parameter. Parts follow each other from 0 to
 * the end, and each ends before the next one. The end of the last part ends the contribution. */
SHOAL_CHECKED shoal_status shoali_param_grad_product(struct shoal_tape *tape,
                                                     struct shoali_node *node, int32_t param,
                                                     int64_t first, int64_t count,
                                                     struct shoali_gemm_args *product,
                                                     bool *wanted);
SHOAL_CHECKED shoal_status shoali_param_grad_part_end(struct shoal_tape *tape,
                                                      struct shoali_node *node, int32_t param,
                                                      int64_t first, int64_t count);
/* "Input i's gradient is output 0's": hands the buffer over where it can, else copies or adds.
 * After it the row must not change the memory of shoali_node_grad. */
SHOAL_CHECKED shoal_status shoali_grad_pass(struct shoal_tape *tape, struct shoali_node *node,
                                            int32_t input);
/* Temporary device memory inside one forward or backward call of a node (part of the slot's plan).
 */
SHOAL_CHECKED shoal_status shoali_tape_workspace(struct shoal_tape *tape, size_t bytes,
                                                 void **memory);
void shoali_tape_workspace_free(struct shoal_tape *tape, void *memory);

#endif
