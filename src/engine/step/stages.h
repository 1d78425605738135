/* stages - this rank's part of a pipeline. For the files of this folder.
 *
 *   stage        the ranks of the mesh with one coordinate along pp. A stage runs `chunks` chunks of
 *                layers; chunk c of stage s is virtual stage c * p + s (pipeline_parallel.h)
 *   boundary     what the last layer of a virtual stage leaves for the first of the next: tensors in
 *                their own types. The undivided model, run once without memory, says what crosses
 *                each boundary, so that both sides know it before the first message
 *   slot         memory of a micro-batch on a chunk: its tape, and where what is sent to it arrives
 *   buffer       what leaves a slot that is given back: a gradient, or in an evaluation an activation
 *
 *   stages.c    partition, boundaries, groups, memory: at creation
 *   execute.c   what each instruction of the list does
 *   micro.c     the layers of a chunk
 *   transfers.c the messages: in the order of the list, and ahead of it
 *
 * TRANSFERS happen in two lanes, threads of their own: sends, and receives. A lane takes its
 * transfers one after the other in the order of the list, each as soon as the one before it is over
 * and no computation that is still to be done stands between the lane and the memory: a send when
 * what it sends has been computed, a receive when its slot is free. The engine waits where the list
 * has the receive, where a computation needs a buffer that is still being sent, and at the end. All
 * transfers of a pipeline are in one order (pipeline_parallel.h, LISTS); of those that are not over
 * the first one is at the head of a lane on both ends, or one of them computes what it needs: so
 * nobody waits for ever. One lane would not do: a send would keep its neighbours' waiting that the
 * receiver is not ready for. A group belongs to one thread; so a stage sends in a group that its
 * neighbours receive in, and they send in another (color_of). With "overlap_p2p": false transfers
 * happen in the engine's thread where the list has them: a stage that computes then keeps the next
 * one waiting.
 *
 * PLACEMENT. Every rank declares the whole model: names, indices and canonical order are the same
 * everywhere, and of parameters of other stages' layers a rank holds *nothing* (tensor/shard.h). So
 * ZeRO, checkpoints, hashes and getters have no special case.
 *
 * TIED PARAMETERS are held by every stage that has a layer which declares them. They start with the
 * same values, their gradients are summed over those stages, and the same update follows; the first
 * of the stages counts them in norms and hashes.
 *
 * BATCHES. The source is asked where layers read the batch: on the first and the last virtual
 * stage, and on others whose layers ask for an input of the model (an attention mask).
 *
 * BITS. Tensors cross boundaries unchanged, gradients are added in the order of one rank, and
 * random streams are named by layers: where a model is cut changes no bit of what its layers
 * compute. What is summed over micro-batches comes in their order on each stage. Only a tied
 * parameter's gradient is added in another order, stage by stage; with "reduction": "exact" that
 * has no influence either.
 */
#ifndef SHOALI_ENGINE_STAGES_H
#define SHOALI_ENGINE_STAGES_H

#include "accelerator/side_stream.h"
#include "autograd/autograd.h"
#include "engine/step/micro.h"
#include "pipeline_parallel/pipeline_parallel.h"
#include "shoal/engine.h"
#include "zero/zero.h"

enum { SHOALI_CROSSINGS_MAX = 64 };

/* One tensor of a boundary. */
struct shoali_crossing {
    shoal_dtype dtype;
    shoal_shape shape;
    bool needs_grad;
    int32_t same_as;        /* it is an earlier tensor of the boundary once more; -1: it is not */
    size_t at, gradient_at; /* in the memory where activations arrive; where gradients do */
    struct shoali_block block;     /* where it lies, in a micro-batch that begins with sample 0 */
    struct shoali_columns columns; /* how tp divides it */
    bool sequence_part;
    int64_t per_sample[SHOALI_BLOCK_MAX_DIMS]; /* what its offsets grow by */
};
struct shoali_stage_boundary {
    struct shoali_crossing *crossing;
    int32_t count;
    size_t bytes, gradient_bytes; /* of all of them */
    const char *forward, *back;   /* names of the messages */
};
struct shoali_chunk {
    int32_t first, count;                         /* layers */
    const struct shoali_stage_boundary *in, *out; /* NULL: the batch; the loss */
    bool reads_batch;                             /* some layer asks for an input of the model */
    int32_t before, behind;                       /* stages that it receives from and sends to */
};
enum { SHOALI_TRANSFER_SEND, SHOALI_TRANSFER_RECEIVE, SHOALI_TRANSFER_DIRECTIONS };
enum { SHOALI_TRANSFER_GROUPS = 3 };
struct shoali_transfer_direction {
    struct shoali_side_stream side;        /* ready: memory is free or filled */
    int32_t ahead;                         /* posted ones that the engine has not come to */
    const struct shoali_instruction *next; /* of the list: its transfers before that are posted */
};
struct shoali_transfers {
    shoal_group *group[SHOALI_TRANSFER_GROUPS]; /* by the sender's color; NULL: none */
    bool beside;                                /* else they happen where the list has them */
    struct shoali_transfer_direction lane[SHOALI_TRANSFER_DIRECTIONS];
    uint32_t *sent, *left;         /* [buffers], [slots] ticket of what was sent from it last */
    bool *slot_busy, *buffer_busy; /* [slots], [buffers] while transfers are looked for */
};
struct shoali_engine_stages {
    int32_t count, index;             /* of stages; this one. 1: one chunk is the whole model */
    bool beside;                      /* transfers, of computations */
    struct shoali_pipeline_args args; /* schedule, stages, chunks, group */
    shoal_group *group;               /* the stages of this rank's pipeline, in order */
    int32_t *begin;                   /* [virtual stages + 1] layers */
    struct shoali_stage_boundary *boundary; /* [virtual stages - 1]; the i-th is behind stage i */
    struct shoali_chunk *chunk;             /* [chunks] of this stage */
    int32_t most_crossings;
    size_t received_bytes, gradient_bytes, buffer_bytes; /* of a slot, of a buffer */
    char *memory;                                        /* device: slots, then buffers */
    size_t memory_bytes;
    int32_t buffer_count;
    struct shoali_zero_tied *tied; /* parameters of several stages */
    int32_t tied_count;
    int32_t *first_stage; /* [params] of tied ones: that holds it */
    shoal_group **made;   /* owned: over some of the stages */
    int32_t made_count;
    struct shoali_zero_pass *pass;
    int32_t pass_count;
    struct shoali_transfers transfers;
    double reduce_ns; /* of the step's gradients, before its end */
};

#endif
