/* transfers.c - the messages of a pipeline, in the order of the list and ahead of it. */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

/* ---- messages ------------------------------------------------------------------------------- */

/* A message's call site, and what it carries. Tensors of different micro-batches look alike: the
 * tag tells them apart, so that a rank which is a list of instructions ahead of another is found
 * out. */
enum { HERE_BYTES = 256, TAG_VALIDATION = 1 << 30, TAG_GRADIENT = 1 << 29 };
enum { TAG_NUMBER_SHIFT = 8, TAG_NUMBERS = 1 << 21, TAG_TENSORS = 1 << TAG_NUMBER_SHIFT };

/* An instruction that sends or receives. */
struct transfer {
    struct shoal_engine *engine;
    const struct shoali_instruction *one;
    int64_t number; /* of the micro-batch */
    bool training;
};
_Static_assert(sizeof(struct transfer) <= SHOALI_WORKER_JOB_BYTES, "a job is copied");

/* Where it goes. */
struct route {
    const struct shoali_stage_boundary *boundary;
    enum shoali_collective kind;
    int32_t peer; /* stage */
    bool gradients;
    char *memory;                 /* where boundary's tensors lie behind each other, or NULL: */
    struct shoal_tensor **tensor; /* activations lie where they were made */
};

bool shoali_crossing_travels(const struct shoali_crossing *crossing, bool gradients)
{
    return crossing->same_as < 0 && (crossing->needs_grad || !gradients);
}

char *shoali_stages_buffer(const struct shoal_engine *engine, int32_t buffer)
{
    const struct shoali_engine_stages *stages = &engine->stages;
    const size_t slots = stages->received_bytes + stages->gradient_bytes;
    return stages->memory + (size_t)engine->step.micro_count * slots +
           (size_t)buffer * stages->buffer_bytes;
}

static struct route route_of(const struct transfer *transfer)
{
    const struct shoal_engine *engine = transfer->engine;
    const struct shoali_instruction *one = transfer->one;
    const struct shoali_chunk *chunk = &engine->stages.chunk[one->chunk];
    const struct shoali_micro *micro = one->slot >= 0 ? &engine->step.micro[one->slot] : NULL;
    switch (one->kind) {
    case SHOALI_DO_RECV_ACTIVATION:
        return (struct route){chunk->in, SHOALI_RECV, chunk->before, false, micro->received, NULL};
    case SHOALI_DO_RECV_GRADIENT:
        return (struct route){chunk->out, SHOALI_RECV, chunk->behind, true, micro->gradient, NULL};
    case SHOALI_DO_SEND_GRADIENT:
        return (struct route){
            chunk->in, SHOALI_SEND, chunk->before, true, shoali_stages_buffer(engine, one->buffer),
            NULL};
    default:
        if (transfer->training)
            return (struct route){chunk->out, SHOALI_SEND, chunk->behind, false, NULL, micro->out};
        return (struct route){chunk->out,
                              SHOALI_SEND,
                              chunk->behind,
                              false,
                              shoali_stages_buffer(engine, one->buffer),
                              NULL};
    }
}

static void *place_of(const struct route *route, int32_t index)
{
    const struct shoali_crossing *crossing = &route->boundary->crossing[index];
    if (!route->memory)
        return route->tensor[index]->data;
    return route->memory + (route->gradients ? crossing->gradient_at : crossing->at);
}

static int32_t tag_of(const struct transfer *transfer, bool gradients, int32_t index)
{
    return (transfer->training ? 0 : TAG_VALIDATION) | (gradients ? TAG_GRADIENT : 0) |
           (int32_t)(transfer->number % TAG_NUMBERS) << TAG_NUMBER_SHIFT | index % TAG_TENSORS;
}

/* Neighbours have different ones; in a ring of an odd number the first stage has one of its own. */
static int32_t color_of(const struct shoali_engine_stages *stages, int32_t stage)
{
    return stages->count % 2 == 1 && stage == 0 ? 2 : stage % 2;
}

/* The tensors of a boundary, each in a message of its own, in the order of the stream. */
static shoal_status run_transfer(const struct transfer *transfer,
                                 struct shoali_device_stream *stream)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_engine_stages *stages = &transfer->engine->stages;
    const struct route route = route_of(transfer);
    const struct shoali_stage_boundary *boundary = route.boundary;
    const int32_t sender = route.kind == SHOALI_SEND ? stages->index : route.peer;
    shoal_group *group = stages->transfers.beside
                             ? stages->transfers.group[color_of(stages, sender)]
                             : stages->group;
    char here[HERE_BYTES];
    snprintf(here, sizeof here, "%s (%s)", SHOAL_HERE,
             route.gradients ? boundary->back : boundary->forward);
    for (int32_t i = 0; i < boundary->count; i++) {
        const struct shoali_crossing *crossing = &boundary->crossing[i];
        struct shoali_post post = {.kind = route.kind,
                                   .here = here,
                                   .count = shoal_shape_count(&crossing->shape),
                                   .dtype = crossing->dtype,
                                   .peer = route.peer,
                                   .tag = tag_of(transfer, route.gradients, i)};
        if (!shoali_crossing_travels(crossing, route.gradients))
            continue;
        if (route.kind == SHOALI_SEND)
            post.in = place_of(&route, i);
        else
            post.out = place_of(&route, i);
        SHOAL_TRY(status, shoali_comm_post_on(group, stream, &post), done);
    }
done:
    return status;
}

/* ---- lanes ---------------------------------------------------------------------------------- */

static bool is_send(enum shoali_instruction_kind kind)
{
    return kind == SHOALI_DO_SEND_ACTIVATION || kind == SHOALI_DO_SEND_GRADIENT;
}

static bool is_transfer(enum shoali_instruction_kind kind)
{
    return is_send(kind) || kind == SHOALI_DO_RECV_ACTIVATION || kind == SHOALI_DO_RECV_GRADIENT;
}

static struct shoali_transfer_direction *lane_of(struct shoal_engine *engine,
                                                 enum shoali_instruction_kind kind)
{
    return &engine->stages.transfers
                .lane[is_send(kind) ? SHOALI_TRANSFER_SEND : SHOALI_TRANSFER_RECEIVE];
}

/* In the lane's thread. */
static shoal_status run_job(const void *argument)
{
    shoal_status status;
    const struct transfer *transfer = argument;
    struct shoali_side_stream *side = &lane_of(transfer->engine, transfer->one->kind)->side;
    struct shoali_context *context = shoali_context_get();
    context->instruction = shoali_instruction_name(transfer->one->kind);
    context->micro = transfer->one->micro;
    SHOAL_TRY(status, shoali_side_stream_begin(side), done);
    SHOAL_TRY(status, run_transfer(transfer, side->stream), done);
    SHOAL_TRY(status, shoali_side_stream_end(side), done);
done:
    if (status < 0) /* the others would wait for this rank's later transfers */
        shoal_comm_abort(transfer->engine->stages.group, status);
    return status;
}

static shoal_status enqueue(struct shoal_engine *engine, const struct shoali_execution *execution,
                            const struct shoali_instruction *one)
{
    shoal_status status = SHOAL_OK;
    struct shoali_transfer_direction *lane = lane_of(engine, one->kind);
    const struct transfer transfer = {.engine = engine,
                                      .one = one,
                                      .number = execution->first + one->micro,
                                      .training = execution->step >= 0};
    SHOAL_TRY(status, shoali_side_stream_post(&lane->side, run_job, &transfer, sizeof transfer),
              done);
    lane->ahead++;
    lane->next = one + 1;
    if (one->buffer >= 0)
        engine->stages.transfers.sent[one->buffer] = lane->side.posted;
    else if (is_send(one->kind))
        engine->stages.transfers.left[one->slot] = lane->side.posted;
done:
    return status;
}

/* ---- in the engine's thread ------------------------------------------------------------------ */

static bool is_open(const struct shoali_transfers *transfers,
                    const struct shoali_transfer_direction *lane,
                    const struct shoali_instruction *one)
{
    return !(one->slot >= 0 && transfers->slot_busy[one->slot]) &&
           !(one->buffer >= 0 && transfers->buffer_busy[one->buffer]) &&
           lane->side.posted - lane->side.finished < SHOALI_WORKER_DEPTH;
}

/* What is to be computed, from `one` on, keeps its slot and its buffer from the transfers behind
 * it. */
static shoal_status enqueue_ahead(struct shoal_engine *engine,
                                  const struct shoali_execution *execution,
                                  const struct shoali_instruction *one)
{
    shoal_status status = SHOAL_OK;
    struct shoali_transfers *transfers = &engine->stages.transfers;
    const struct shoali_instruction *end =
        execution->instructions->list + execution->instructions->count;
    bool stops[SHOALI_TRANSFER_DIRECTIONS] = {false};
    memset(transfers->slot_busy, 0, (size_t)engine->step.micro_count * sizeof(bool));
    memset(transfers->buffer_busy, 0, (size_t)engine->stages.buffer_count * sizeof(bool));
    for (; one < end && !(stops[SHOALI_TRANSFER_SEND] && stops[SHOALI_TRANSFER_RECEIVE]); one++) {
        struct shoali_transfer_direction *lane = lane_of(engine, one->kind);
        bool *stop = &stops[lane - transfers->lane];
        if (!is_transfer(one->kind)) {
            if (one->slot >= 0)
                transfers->slot_busy[one->slot] = true;
            if (one->buffer >= 0)
                transfers->buffer_busy[one->buffer] = true;
            continue;
        }
        if (one < lane->next || *stop)
            continue;
        *stop = !is_open(transfers, lane, one);
        if (!*stop)
            SHOAL_TRY(status, enqueue(engine, execution, one), done);
    }
done:
    return status;
}

static shoal_status reach_transfer(struct shoal_engine *engine,
                                   const struct shoali_execution *execution,
                                   const struct shoali_instruction *one)
{
    shoal_status status = SHOAL_OK;
    struct shoali_transfer_direction *lane = lane_of(engine, one->kind);
    if (lane->ahead == 0)
        SHOAL_TRY(status, enqueue(engine, execution, one), done);
    lane->ahead--;
    if (is_send(one->kind))
        return SHOAL_OK;
    SHOAL_TRY(status, enqueue_ahead(engine, execution, one), done);
    SHOAL_TRY(status,
              shoali_side_stream_wait(&lane->side, lane->side.posted - (uint32_t)lane->ahead),
              done);
done:
    return status;
}

static shoal_status await_all(struct shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    struct shoali_transfer_direction *lane = engine->stages.transfers.lane;
    for (int32_t i = 0; i < SHOALI_TRANSFER_DIRECTIONS; i++)
        SHOAL_TRY(status, shoali_side_stream_wait(&lane[i].side, lane[i].side.posted), done);
done:
    return status;
}

static shoal_status reach_computation(struct shoal_engine *engine,
                                      const struct shoali_execution *execution,
                                      const struct shoali_instruction *one)
{
    shoal_status status = SHOAL_OK;
    struct shoali_transfers *transfers = &engine->stages.transfers;
    struct shoali_side_stream *sends = &transfers->lane[SHOALI_TRANSFER_SEND].side;
    if (one->buffer >= 0)
        SHOAL_TRY(status, shoali_side_stream_wait(sends, transfers->sent[one->buffer]), done);
    /* Its gradient has come, so what it left has arrived; but a lane may be behind with its
     * device. */
    if (one->slot >= 0 && one->kind != SHOALI_DO_FORWARD && one->kind != SHOALI_DO_LOAD)
        SHOAL_TRY(status, shoali_side_stream_wait(sends, transfers->left[one->slot]), done);
    if (one->kind == SHOALI_DO_REDUCE_TIED || one->kind == SHOALI_DO_STEP)
        SHOAL_TRY(status, await_all(engine), done);
    SHOAL_TRY(status, enqueue_ahead(engine, execution, one), done);
done:
    return status;
}

shoal_status shoali_transfers_reach(struct shoal_engine *engine,
                                    const struct shoali_execution *execution,
                                    const struct shoali_instruction *one)
{
    const struct transfer transfer = {.engine = engine,
                                      .one = one,
                                      .number = execution->first + one->micro,
                                      .training = execution->step >= 0};
    if (!engine->stages.transfers.beside)
        return is_transfer(one->kind) ? run_transfer(&transfer, engine->exec.stream) : SHOAL_OK;
    return (is_transfer(one->kind) ? reach_transfer : reach_computation)(engine, execution, one);
}

void shoali_transfers_begin(struct shoal_engine *engine, const struct shoali_execution *execution)
{
    for (int32_t i = 0; i < SHOALI_TRANSFER_DIRECTIONS; i++) {
        engine->stages.transfers.lane[i].next = execution->instructions->list;
        engine->stages.transfers.lane[i].ahead = 0;
    }
}

shoal_status shoali_transfers_end(struct shoal_engine *engine, shoal_status status)
{
    struct shoali_transfers *transfers = &engine->stages.transfers;
    char sentence[1024];
    bool over = true;
    for (int32_t i = 0; i < SHOALI_TRANSFER_DIRECTIONS; i++)
        over = over && transfers->lane[i].side.posted == transfers->lane[i].side.finished;
    if (!transfers->beside || over)
        return status;
    if (status >= 0)
        return await_all(engine);
    snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    shoal_comm_abort(engine->stages.group, status); /* or they would wait for what never comes */
    for (int32_t i = 0; i < SHOALI_TRANSFER_DIRECTIONS; i++)
        (void)!shoali_side_stream_wait(&transfers->lane[i].side, transfers->lane[i].side.posted);
    return SHOAL_FAIL(status, "%s", sentence);
}

/* ---- creation ------------------------------------------------------------------------------- */

/* A plan has the groups, for what they take, and no lanes. */
shoal_status shoali_transfers_split(struct shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    struct shoali_engine_stages *stages = &engine->stages;
    struct shoali_transfers *transfers = &stages->transfers;
    const struct shoali_split_args split = {
        .here = SHOAL_HERE, .key = stages->index, .expected = stages->count};
    if (!stages->beside)
        return SHOAL_OK;
    transfers->beside = !engine->meta;
    for (int32_t i = 0; i < 2 + stages->count % 2; i++) {
        SHOAL_TRY(status, shoali_comm_split(stages->group, &split, &transfers->group[i]), done);
        shoali_comm_second_thread(transfers->group[i]);
    }
done:
    return status;
}

shoal_status shoali_transfers_init(struct shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    struct shoali_transfers *transfers = &engine->stages.transfers;
    const size_t slots = (size_t)engine->step.micro_count;
    const size_t buffers = (size_t)engine->stages.buffer_count;
    if (!transfers->beside)
        return SHOAL_OK;
    transfers->slot_busy =
        shoali_calloc(slots + buffers, sizeof *transfers->slot_busy, "slots of transfers");
    transfers->sent =
        shoali_calloc(slots + buffers, sizeof *transfers->sent, "tickets of transfers");
    if (!transfers->slot_busy || !transfers->sent)
        return SHOAL_ENOMEM;
    transfers->buffer_busy = transfers->slot_busy + slots;
    transfers->left = transfers->sent + buffers;
    for (int32_t i = 0; i < SHOALI_TRANSFER_DIRECTIONS; i++)
        SHOAL_TRY(
            status,
            shoali_side_stream_init(&transfers->lane[i].side, engine->device, engine->exec.stream),
            done);
done:
    return status;
}

void shoali_transfers_fini(struct shoal_engine *engine)
{
    struct shoali_transfers *transfers = &engine->stages.transfers;
    for (int32_t l = 0; l < SHOALI_TRANSFER_DIRECTIONS; l++)
        shoali_side_stream_fini(&transfers->lane[l].side);
    for (int32_t i = SHOALI_TRANSFER_GROUPS; i > 0; i--)
        shoal_comm_destroy(transfers->group[i - 1]);
    shoali_free(transfers->slot_busy);
    shoali_free(transfers->sent);
}
