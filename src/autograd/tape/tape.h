/* tape - what the files of autograd share: nodes, tensors with their liveness, scopes, parameter
 * uses.
 *
 * LIVENESS. Memory belongs to a root tensor; a view shares its root's. root->refs counts the
 * reasons to keep it:
 *   open    the forward code may still name the tensor: its scope has not ended, or it was listed
 *           as an output
 *   saves   one per node whose backward reads it and has not run
 *   holds   one per input that a node of a recomputed scope reads from outside of that scope
 * At 0 the memory returns to the slot. A recomputed scope gives the memory of its inner tensors
 * back while refs > 0; replay brings it back.
 *
 * TIME. `event` is the order of everything that happened: node recorded, scope begun, scope ended.
 * Backward walks it in reverse, so it needs no other rule for nested and empty scopes.
 *
 * PENDING. A node whose collective is on its way holds its inputs and outputs (in backward its
 * output's gradient, because its part is not over); tensors name it in `from` and `grad_from`.
 *
 * Nodes, tensors and scopes lie in the tape's arena, reset at begin: after the first step nothing
 * is allocated.
 */
#ifndef SHOALI_AUTOGRAD_TAPE_H
#define SHOALI_AUTOGRAD_TAPE_H

#include "autograd/autograd.h"
#include "autograd/tape/slot.h"

#define SHOALI_TAPE_MAX_WORKSPACES 8
#define SHOALI_TAPE_MAX_NESTING 16
/* Below the 16 requests that a group may have outstanding: others use it too. */
#define SHOALI_TAPE_MAX_PENDING 8

/* Where the memory of a recomputed scope's input is (keep.c). */
enum shoali_stay {
    SHOALI_STAY_HERE, /* in the slot, or nowhere */
    SHOALI_STAY_BLOCK,
    SHOALI_STAY_LEAVING,
    SHOALI_STAY_AWAY,
    SHOALI_STAY_COMING
};

enum shoali_grad_state {
    SHOALI_GRAD_NONE,
    SHOALI_GRAD_SET,     /* `grad` holds the sum so far */
    SHOALI_GRAD_PROMISED /* the running node's output gradient becomes this one at its end */
};

struct shoali_tape_tensor {
    struct shoal_tensor tensor; /* first: handles are converted both ways */
    struct shoali_tape_tensor *root;
    size_t bytes;             /* allocated, of `bound` elements */
    int32_t segment;          /* of the slot; roots only */
    int32_t scope;            /* that owns it by now; -1: the tape */
    int32_t saves, reads;     /* backward readers to come; replayed readers to come */
    int32_t refs, root_reads; /* roots: sums over all tensors of this memory */
    int32_t holds;            /* roots: those of the refs that are of dropped scopes */
    enum shoali_stay stay;    /* roots */
    int32_t kept_segment;     /* of the keeping slot; SHOALI_NO_SEGMENT: none */
    bool open, external, kept;
    bool
        wide_grad; /* its one reader gives the gradient in the wide type: a share of an exact sum */
    bool ids_known; /* I32: the host knows the range of the values */
    int32_t id_min, id_max;
    void *grad;
    int32_t grad_segment; /* SHOALI_NO_SEGMENT while external */
    enum shoali_grad_state grad_state;
    struct shoali_node *from;      /* roots: the pending node that writes it; NULL none */
    struct shoali_node *grad_from; /* the pending node that writes `grad` */
};

struct shoali_node {
    const struct shoali_op_row *row;
    void *attr;
    struct shoali_tape_tensor *in[SHOALI_NODE_MAX_INPUTS], *out[SHOALI_NODE_MAX_OUTPUTS];
    struct shoal_param *param[SHOALI_NODE_MAX_PARAMS];
    int32_t use[SHOALI_NODE_MAX_PARAMS];  /* index in tape->use; -1 none */
    uint32_t saves_inputs, saves_outputs; /* the row's; infer may clear bits */
    int32_t index, scope, ordinal;
    unsigned params_done; /* bit i: the contribution of parameter i was made */
    int32_t pass_input;   /* takes the output's gradient at the end; -1 none */
    bool needs_backward, weight_deferred, replayed;
    bool pending, pending_backward, hurried; /* hurried: its backward has begun already */
    int32_t scratch;                         /* of the slot; SHOALI_NO_SEGMENT: none */
    struct shoali_comm_pending *collective;  /* split rows; in the arena */
};

/* One parameter on one tape. */
struct shoali_param_use {
    struct shoal_param *param;
    int32_t pending;     /* uses whose gradient has not been made */
    int32_t declared;    /* layers that declare it */
    int32_t first_scope; /* of the first of them; -1 none */
    bool ready;
};

struct shoali_tape_scope {
    struct shoali_scope scope; /* first */
    int32_t first_tensor;
    int32_t last_scope; /* the scopes inside are [index+1, last_scope) */
    int32_t ordinals;   /* nodes recorded directly in it */
    size_t used_bytes;  /* of the slot at its begin */
    bool dropped;       /* inner tensors gave their memory back */
};

/* Pinned memory through which host arrays travel. */
struct shoali_input_staging {
    void *memory;
    size_t capacity, used;
    struct shoali_event *event;
    bool pending;
};

/* Copies of kept tensors to and from the host. */
struct shoali_keeper {
    struct shoali_device_stream *stream;
    struct shoali_event *computed, *copied;
    int32_t leaving; /* tensors on their way out */
};

struct shoal_tape {
    struct shoali_tape_args args;
    struct shoali_keeper keeper;
    shoal_status status;
    struct shoali_arena arena;
    struct shoali_node **node;
    struct shoali_tape_tensor **tensor;
    struct shoali_tape_scope **scope;
    int32_t *event; /* node index >= 0; SCOPE_BEGIN / SCOPE_END of a scope < 0 */
    struct shoali_param_use *use;
    int32_t *use_table; /* hash of param address -> index in use, -1 free */
    int32_t node_count, tensor_count, scope_count, event_count, use_count;
    int32_t node_capacity, tensor_capacity, scope_capacity, event_capacity, use_capacity,
        use_table_capacity;
    struct shoali_node *pending[SHOALI_TAPE_MAX_PENDING]; /* begun, in order */
    int32_t pending_count;
    struct shoali_comm_side side; /* of the pending nodes' collectives */
    int32_t open_scope;           /* innermost, -1 none */
    int32_t root_ordinals;        /* nodes outside of all scopes */
    struct shoal_tensor **batch;  /* in the arena */
    int32_t batch_count;
    int64_t batch_reads;
    int64_t batch_rows; /* dim 0 of the first input: samples of this tape */
    int64_t step, first_sample;
    const struct shoali_generation *generation; /* NULL: not generating */
    bool training, needs_grad, ran_layers, backward_done, defer_weight, weights_done;
    bool ids_unchecked;
    void *bad_id; /* device I64, 0 = none; NULL until used */
    int64_t flops_forward, flops_backward, cost_bytes;
    struct shoali_input_staging staging;
    struct {
        void *memory;
        int32_t segment;
    } workspace[SHOALI_TAPE_MAX_WORKSPACES];
    void *grad_temp[SHOALI_NODE_MAX_INPUTS]; /* of the running node; NULL none */
    void *param_temp[SHOALI_NODE_MAX_PARAMS];
};

/* Events of scopes are negative and tell begin from end by the lowest bit. */
#define SHOALI_SCOPE_BEGIN(scope) (-1 - 2 * (scope))
#define SHOALI_SCOPE_END(scope) (-2 - 2 * (scope))

static inline bool shoali_is_tensor_parallel(const struct shoal_tape *tape)
{
    return tape->args.tensor_parallel.ranks > 1;
}
static inline struct shoali_tape_tensor *shoali_tape_tensor_of(struct shoal_tensor *tensor)
{
    return (struct shoali_tape_tensor *)(void *)tensor;
}

/* ---- tape.c ---- */
/* Grows a list so that `needed` entries fit; keeps its content. */
SHOAL_CHECKED shoal_status shoali_grow(void *list_address, int32_t *capacity, size_t entry_bytes,
                                       int32_t needed, const char *what);
SHOAL_CHECKED shoal_status shoali_tape_event(struct shoal_tape *tape, int32_t event);
/* A new tensor of the tape, without memory. SHOAL_EINVAL when there can be no such tensor. */
SHOAL_CHECKED shoal_status shoali_tape_new_tensor(struct shoal_tape *tape, shoal_dtype dtype,
                                                  const shoal_shape *shape, int64_t bound,
                                                  struct shoali_tape_tensor **tensor);
struct shoali_param_use *shoali_tape_find_use(struct shoal_tape *tape, struct shoal_param *param);
/* Finds or makes the entry; -1 when out of memory. */
int32_t shoali_tape_add_use(struct shoal_tape *tape, struct shoal_param *param);
/* Zeroes device memory, unless in meta mode. */
SHOAL_CHECKED shoal_status shoali_tape_zero(struct shoal_tape *tape, void *memory, size_t bytes);
/* The device counter of ids out of range, made at first use. NULL in meta mode. */
SHOAL_CHECKED shoal_status shoali_tape_bad_id(struct shoal_tape *tape, int64_t **bad_id);

/* ---- inputs.c ---- */
void shoali_input_staging_fini(struct shoali_input_staging *staging, struct shoali_device *device);
/* Waits until the former recording's copies have left the staging memory. */
SHOAL_CHECKED shoal_status shoali_input_staging_begin(struct shoal_tape *tape);

/* ---- coordinates.c ---- */
/* The block of an output, before the row's infer says more (rows.h). */
SHOAL_CHECKED shoal_status shoali_block_default(const struct shoal_tape *tape,
                                                const struct shoali_node *node,
                                                struct shoal_tensor *out);
/* The block of an input: dim 0 holds samples from the tape's first on, the others are whole. */
struct shoali_block shoali_block_of_input(const struct shoal_tape *tape,
                                          const struct shoal_tensor *input);

/* ---- liveness.c ---- */
/* Gives a root memory. */
SHOAL_CHECKED shoal_status shoali_tensor_place(struct shoal_tape *tape,
                                               struct shoali_tape_tensor *root);
void shoali_tensor_free(struct shoal_tape *tape, struct shoali_tape_tensor *root);
void shoali_tensor_unref(struct shoal_tape *tape, struct shoali_tape_tensor *tensor);
void shoali_tensor_close(struct shoal_tape *tape, struct shoali_tape_tensor *tensor);
void shoali_node_save(struct shoali_node *node);
/* Gives back what the node saved for its backward. */
void shoali_node_unsave(struct shoal_tape *tape, struct shoali_node *node);
/* Recompute: frees the inner tensors of a scope; holds what its nodes read from outside. */
void shoali_scope_drop(struct shoal_tape *tape, struct shoali_tape_scope *scope);
/* The same for a scope inside of a recomputed one, whose replay brings it back, too. */
void shoali_scope_drop_early(struct shoal_tape *tape, const struct shoali_tape_scope *scope);
SHOAL_CHECKED shoal_status shoali_scope_replay(struct shoal_tape *tape,
                                               struct shoali_tape_scope *scope);

/* ---- record.c ---- */
/* SHOAL_EINVAL when a parameter of the node is not there (stage 3 has not gathered it), because
 * its layer did not declare it. */
SHOAL_CHECKED shoal_status shoali_node_check_params(const struct shoal_tape *tape,
                                                    const struct shoali_node *node);
/* Runs a node's forward; for views, points the output at the input's memory. */
SHOAL_CHECKED shoal_status shoali_node_forward(struct shoal_tape *tape, struct shoali_node *node);

/* ---- workspace.c ---- */
void shoali_tape_free_workspaces(struct shoal_tape *tape);

/* ---- keep.c ---- */
/* At the end of an outermost scope. */
SHOAL_CHECKED shoal_status shoali_keep_inputs(struct shoal_tape *tape);
SHOAL_CHECKED shoal_status shoali_keep_begin_backward(struct shoal_tape *tape);
/* Before a scope's replay: what it reads is there; what the next one reads is on its way. */
SHOAL_CHECKED shoal_status shoali_keep_bring_back(struct shoal_tape *tape,
                                                  const struct shoali_tape_scope *scope);
void shoali_tensor_forget_kept(struct shoal_tape *tape, struct shoali_tape_tensor *root);
void shoali_keeper_end(struct shoal_tape *tape);
void shoali_keeper_fini(struct shoal_tape *tape);

/* ---- pending.c ---- */
/* Begins a split node; finishes it at once when its gradient has to be added to another. */
SHOAL_CHECKED shoal_status shoali_pending_begin(struct shoal_tape *tape, struct shoali_node *node,
                                                bool backward);
SHOAL_CHECKED shoal_status shoali_pending_finish(struct shoal_tape *tape, struct shoali_node *node);
/* Those recorded at or after a node: of a scope that ends, or, from 0, all. */
SHOAL_CHECKED shoal_status shoali_pending_finish_from(struct shoal_tape *tape, int32_t first_node);
/* Those whose results the node reads; those that write gradients that its backward reads or adds
 * to. */
SHOAL_CHECKED shoal_status shoali_pending_finish_inputs(struct shoal_tape *tape,
                                                        const struct shoali_node *node);
SHOAL_CHECKED shoal_status shoali_pending_finish_grads(struct shoal_tape *tape,
                                                       const struct shoali_node *node);
SHOAL_CHECKED shoal_status shoali_pending_poll(struct shoal_tape *tape);
/* Waits for all and forgets them: what they wrote is of no use any more. */
void shoali_pending_abandon(struct shoal_tape *tape);
/* struct shoal_tensor's arrive. */
SHOAL_CHECKED shoal_status shoali_tensor_arrive(const struct shoal_tensor *tensor);

/* ---- backward.c ---- */
/* Ends a node's part in backward. */
SHOAL_CHECKED shoal_status shoali_node_finish_backward(struct shoal_tape *tape,
                                                       struct shoali_node *node);

/* ---- scope.c ---- */
const char *shoali_tape_path(const struct shoal_tape *tape, int32_t scope); /* "" outside */

/* ---- grad.c ---- */
SHOAL_CHECKED shoal_status shoali_grad_place(struct shoal_tape *tape,
                                             struct shoali_tape_tensor *tensor);
void shoali_grad_free(struct shoal_tape *tape, struct shoali_tape_tensor *tensor);
/* Like shoali_grad_begin, but the gradient takes input's own memory when nothing else needs it: *to
 * is then the input's data, which the kernel reads and overwrites element by element. */
SHOAL_CHECKED shoal_status shoali_grad_begin_over(struct shoal_tape *tape, struct shoali_node *node,
                                                  int32_t input, void **to, bool *accumulate);
/* y (+)= x for `count` elements. */
SHOAL_CHECKED shoal_status shoali_grad_add(struct shoal_tape *tape, const void *x, void *y,
                                           int64_t count, shoal_dtype dtype, bool accumulate);
/* Ends the node's part in backward: hands a passed gradient on, frees the output's. */
void shoali_node_finish_grads(struct shoal_tape *tape, struct shoali_node *node);

/* ---- param_grad.c ---- */
static inline bool shoali_param_wants_grad(const struct shoal_param *param)
{
    return param != NULL && (param->tags & SHOAL_PARAM_FROZEN) == 0;
}
/* Counts parameter uses that the row did not contribute to (no gradient reached the node). */
SHOAL_CHECKED shoal_status shoali_node_finish_params(struct shoal_tape *tape,
                                                     struct shoali_node *node);
/* Parameters that no node used: zeros and grad_ready. Those that a layer declared first, at the
 * begin of its backward; at the end of backward what is left (ops recorded without layers). */
SHOAL_CHECKED shoal_status shoali_scope_finish_unused(struct shoal_tape *tape,
                                                      const struct shoali_scope *scope);
SHOAL_CHECKED shoal_status shoali_tape_finish_unused(struct shoal_tape *tape);

#endif
