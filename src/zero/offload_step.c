/* The update of sub-groups whose masters, states or weights lie outside the device.
 *
 *   begin   the gradient starts its way to the host, the states their way from the file
 *   finish  the update on the host (or on the device, of sub-groups whose states are there), then
 *           the new weights start their way to where the device finds them
 *
 * As many sub-groups are begun ahead of the one that is finished as there are stages. */
#include "zero/update.h"

/* Elements updated between two looks at reads and writes under way. */
#define POLL_COUNT ((int64_t)1 << 18)

struct walk {
    struct shoali_zero_masters *masters;
    const struct shoali_optimizer_now *now; /* control on the device; NULL: masters are rounded */
    struct shoali_optimizer_now host_now;   /* control on the host */
    int32_t measure;                        /* of the optimizer; -1: the step */
    uint32_t rows, dirty;                   /* that the walk needs; that it changes */
    int32_t count;                          /* sub-groups */
};
/* Sub-group `index`: elements [begin, end) of the part space. */
struct sub_group {
    int32_t index;
    int64_t begin, end;
    bool on_device;
    struct shoali_zero_stage *stage;
};
/* Elements that are updated, or rounded, together. */
struct piece {
    int64_t local, weight, count;
    int64_t begin; /* flat space */
    int32_t param;
    const struct shoali_optimizer *optimizer;
    double lr_multiplier, weight_decay_multiplier;
};

static struct sub_group sub_group_at(const struct walk *walk, int32_t index)
{
    struct shoali_zero_masters *masters = walk->masters;
    struct shoali_zero_outside *outside = masters->outside;
    const int64_t begin = index * outside->sub_group, end = begin + outside->sub_group;
    return (struct sub_group){
        .index = index,
        .begin = begin,
        .end = end < masters->layout->part_count ? end : masters->layout->part_count,
        .on_device = begin < outside->device_count,
        .stage = &outside->stage[index % outside->stage_count]};
}

/* ---- what a sub-group consists of ----------------------------------------------------------- */

static void cut_piece(struct piece *piece, int64_t at, int64_t end)
{
    const int64_t skip = at > piece->local ? at - piece->local : 0;
    piece->local += skip;
    piece->weight += skip;
    piece->begin += skip;
    piece->count -= skip;
    piece->count = piece->count < end - piece->local ? piece->count : end - piece->local;
}

/* The first trainable run with elements in [at, end). */
static bool next_segment(const struct shoali_zero_layout *layout, int64_t at, int64_t end,
                         struct piece *piece)
{
    int32_t low = 0;
    for (int32_t high = layout->segment_count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (layout->segment[middle].local + layout->segment[middle].count <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (at >= end || low == layout->segment_count || layout->segment[low].local >= end)
        return false;
    const struct shoali_zero_segment *segment = &layout->segment[low];
    *piece = (struct piece){.local = segment->local,
                            .weight = segment->weight,
                            .count = segment->count,
                            .begin = segment->begin,
                            .param = segment->param,
                            .optimizer = segment->optimizer,
                            .lr_multiplier = segment->lr_multiplier,
                            .weight_decay_multiplier = segment->weight_decay_multiplier};
    cut_piece(piece, at, end);
    return true;
}

/* The first run of any parameters. */
static bool next_range(const struct shoali_zero_layout *layout, int64_t at, int64_t end,
                       struct piece *piece)
{
    const int32_t low = shoali_zero_first_part(layout, at);
    if (at >= end || low == layout->bucket_count || layout->part_range[low].at >= end)
        return false;
    *piece = (struct piece){.local = layout->part_range[low].at,
                            .weight = layout->weight_range[low].at,
                            .count = layout->part_range[low].count};
    cut_piece(piece, at, end);
    return true;
}

static bool next_piece(const struct walk *walk, int64_t at, int64_t end, struct piece *piece)
{
    return walk->now ? next_segment(walk->masters->layout, at, end, piece)
                     : next_range(walk->masters->layout, at, end, piece);
}

/* ---- begin ---------------------------------------------------------------------------------- */

static shoal_status send_gradients(struct walk *walk, const struct sub_group *group)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_masters *masters = walk->masters;
    struct shoali_device_stream *stream = masters->setup->args.exec.stream;
    const int64_t limit = shoali_zero_piece(masters->gradients);
    struct piece piece;
    for (int64_t at = group->begin; next_segment(masters->layout, at, group->end, &piece);
         at = piece.local + piece.count) {
        const float *gradient;
        piece.count = piece.count < limit ? piece.count : limit;
        SHOAL_TRY(
            status,
            shoali_zero_final_gradient(masters->gradients, piece.local, piece.count, &gradient),
            done);
        SHOAL_TRY(status,
                  shoali_copy(stream, group->stage->gradient + (piece.local - group->begin),
                              gradient, (size_t)piece.count * sizeof(float), SHOALI_DEVICE_TO_HOST),
                  done);
    }
    SHOAL_TRY(status, shoali_event_record(group->stage->arrived, stream), done);
done:
    return status;
}

static int32_t chunk_of(const struct walk *walk, const struct sub_group *group)
{
    const struct shoali_zero_outside *outside = walk->masters->outside;
    return (int32_t)((group->begin - outside->device_count) / outside->sub_group);
}

static shoal_status begin(struct walk *walk, int32_t index)
{
    shoal_status status = SHOAL_OK;
    const struct sub_group group = sub_group_at(walk, index);
    struct piece first;
    if (group.stage->sending)
        SHOAL_TRY(status, shoali_event_synchronize(group.stage->sent), done);
    group.stage->sending = false;
    if (group.on_device || !next_piece(walk, group.begin, group.end, &first))
        return SHOAL_OK;
    SHOAL_TRY(
        status,
        shoali_swap_prefetch(walk->masters->outside->optimizer, chunk_of(walk, &group), walk->rows),
        done);
    if (walk->now)
        SHOAL_TRY(status, send_gradients(walk, &group), done);
done:
    return status;
}

/* ---- finish --------------------------------------------------------------------------------- */

/* New weights in the stage go to the device or to the store. */
static shoal_status send_weights(struct walk *walk, const struct sub_group *group,
                                 const struct piece *piece)
{
    shoal_status status;
    struct shoali_zero_masters *masters = walk->masters;
    const shoal_dtype dtype = shoali_zero_dtype(masters->setup);
    const void *low = shoali_zero_at(group->stage->low, piece->local - group->begin, dtype);
    if (masters->weights->store->swap)
        return shoali_swap_write(masters->weights->store->swap, 0, piece->local, piece->count, low);
    SHOAL_TRY(status,
              shoali_copy(masters->outside->upload,
                          shoali_zero_at(masters->weights->data, piece->weight, dtype), low,
                          (size_t)piece->count * shoal_dtype_bytes(dtype), SHOALI_HOST_TO_DEVICE),
              done);
    group->stage->sending = true;
done:
    return status;
}

static shoal_status round_masters(struct shoali_zero_masters *masters,
                                  const struct shoali_exec *exec, const float *master, void *low,
                                  int64_t count)
{
    return shoali_op_convert(
        exec, &(struct shoali_convert_args){.x = master,
                                            .y = low,
                                            .count = count,
                                            .dtype = SHOAL_F32,
                                            .dtype_out = shoali_zero_dtype(masters->setup)});
}

/* Lets the optimizer see a piece; `segment` says where it is. */
static shoal_status update(struct walk *walk, const struct piece *piece, bool on_host,
                           struct shoali_optimizer_segment *segment)
{
    shoal_status status;
    const struct shoali_zero_masters *masters = walk->masters;
    SHOAL_TRY(status, shoali_zero_snapshot_guard(masters->snapshot, piece->local, piece->count),
              done);
    segment->low_dtype = shoali_zero_dtype(masters->setup);
    if (segment->low_dtype == SHOAL_F32)
        segment->low = NULL;
    segment->count = piece->count;
    segment->lr_multiplier = piece->lr_multiplier;
    segment->weight_decay_multiplier = piece->weight_decay_multiplier;
    shoali_zero_tensors_point(masters->tensors, walk->measure, piece->param, piece->begin, on_host,
                              segment);
    SHOAL_TRY(status,
              shoali_zero_update_piece(piece->optimizer, on_host ? &walk->host_now : walk->now,
                                       walk->measure, segment),
              done);
done:
    return status;
}

/* One piece of a sub-group whose masters and states are at row[] from group->begin on. */
static shoal_status host_piece(struct walk *walk, const struct sub_group *group,
                               void *const row[SHOALI_SWAP_MAX_ROWS], const struct piece *piece)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_masters *masters = walk->masters;
    const int64_t inside = piece->local - group->begin;
    const shoal_dtype dtype = shoali_zero_dtype(masters->setup);
    float *master = (float *)row[0] + inside;
    void *low = shoali_zero_at(group->stage->low, inside, dtype);
    if (walk->now) {
        struct shoali_optimizer_segment segment = {
            .param = master, .grad = group->stage->gradient + inside, .low = low};
        for (int32_t s = 0; s < shoali_zero_state_rows(masters->setup) - 1; s++)
            segment.state[s] = (float *)row[1 + s] + inside;
        SHOAL_TRY(status, update(walk, piece, true, &segment), done);
        if (walk->measure >= 0)
            return SHOAL_OK;
    } else if (dtype != SHOAL_F32) {
        SHOAL_TRY(status,
                  round_masters(masters, &masters->outside->exec, master, low, piece->count), done);
    }
    if (dtype == SHOAL_F32)
        SHOAL_TRY(status,
                  shoali_copy(masters->outside->exec.stream, low, master,
                              (size_t)piece->count * sizeof(float), SHOALI_DEVICE_TO_DEVICE),
                  done);
    SHOAL_TRY(status, send_weights(walk, group, piece), done);
done:
    return status;
}

static shoal_status finish_on_host(struct walk *walk, const struct sub_group *group)
{
    shoal_status status;
    struct shoali_zero_outside *outside = walk->masters->outside;
    void *row[SHOALI_SWAP_MAX_ROWS];
    struct piece piece;
    const int32_t chunk = chunk_of(walk, group);
    if (!next_piece(walk, group->begin, group->end, &piece))
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_swap_get(outside->optimizer, chunk, walk->rows, row), done);
    if (walk->now)
        SHOAL_TRY(status, shoali_event_synchronize(group->stage->arrived), done);
    for (int64_t at = group->begin; next_piece(walk, at, group->end, &piece);
         at = piece.local + piece.count) {
        piece.count = piece.count < POLL_COUNT ? piece.count : POLL_COUNT;
        SHOAL_TRY(status, host_piece(walk, group, row, &piece), done);
        SHOAL_TRY(status, shoali_swap_poll(outside->optimizer), done);
    }
    SHOAL_TRY(status, shoali_swap_put(outside->optimizer, chunk, walk->dirty, NULL), done);
done:
    return status;
}

/* One piece of a sub-group whose masters and states are on the device; `low` is the place of the
 * new weights there. */
static shoal_status device_piece(struct walk *walk, const struct piece *piece, void *low)
{
    shoal_status status;
    struct shoali_zero_masters *masters = walk->masters;
    const struct shoali_exec *exec = &masters->setup->args.exec;
    const shoal_dtype dtype = shoali_zero_dtype(masters->setup);
    float *master = masters->master + piece->local;
    if (walk->now) {
        struct shoali_optimizer_segment segment = {.param = master, .low = low};
        for (int32_t s = 0; s < shoali_zero_state_rows(masters->setup) - 1; s++)
            segment.state[s] = masters->state[s] + piece->local;
        SHOAL_TRY(status,
                  shoali_zero_final_gradient(masters->gradients, piece->local, piece->count,
                                             &segment.grad),
                  done);
        SHOAL_TRY(status, update(walk, piece, false, &segment), done);
        if (walk->measure >= 0)
            return SHOAL_OK;
    }
    if (dtype == SHOAL_F32)
        return shoali_copy(exec->stream, low, master, (size_t)piece->count * sizeof(float),
                           SHOALI_DEVICE_TO_DEVICE);
    if (!walk->now)
        return round_masters(masters, exec, master, low, piece->count);
done:
    return status;
}

static shoal_status finish_on_device(struct walk *walk, const struct sub_group *group)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_masters *masters = walk->masters;
    struct shoali_zero_outside *outside = masters->outside;
    struct shoali_device_stream *stream = masters->setup->args.exec.stream;
    const shoal_dtype dtype = shoali_zero_dtype(masters->setup);
    const int64_t limit = shoali_zero_piece(masters->gradients);
    struct piece piece;
    for (int64_t at = group->begin; next_piece(walk, at, group->end, &piece);
         at = piece.local + piece.count) {
        piece.count = piece.count < limit ? piece.count : limit;
        char *low = masters->weights->store->swap
                        ? shoali_zero_at(outside->device_low, piece.local - group->begin, dtype)
                        : shoali_zero_at(masters->weights->data, piece.weight, dtype);
        SHOAL_TRY(status, device_piece(walk, &piece, low), done);
        if (masters->weights->store->swap && walk->measure < 0)
            SHOAL_TRY(status,
                      shoali_copy(
                          stream,
                          shoali_zero_at(group->stage->low, piece.local - group->begin, dtype), low,
                          (size_t)piece.count * shoal_dtype_bytes(dtype), SHOALI_DEVICE_TO_HOST),
                      done);
    }
    if (!masters->weights->store->swap || walk->measure >= 0)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
    for (int64_t at = group->begin; next_piece(walk, at, group->end, &piece);
         at = piece.local + piece.count)
        SHOAL_TRY(status, send_weights(walk, group, &piece), done);
done:
    return status;
}

static shoal_status finish(struct walk *walk, int32_t index)
{
    shoal_status status;
    const struct sub_group group = sub_group_at(walk, index);
    SHOAL_TRY(status,
              group.on_device ? finish_on_device(walk, &group) : finish_on_host(walk, &group),
              done);
    if (group.stage->sending)
        SHOAL_TRY(status, shoali_event_record(group.stage->sent, walk->masters->outside->upload),
                  done);
done:
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* The device's work waits for the last weights to arrive. */
static shoal_status join(struct shoali_zero_masters *masters)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_outside *outside = masters->outside;
    for (int32_t i = 0; i < outside->stage_count; i++)
        if (outside->stage[i].sending)
            SHOAL_TRY(
                status,
                shoali_stream_wait_event(masters->setup->args.exec.stream, outside->stage[i].sent),
                done);
    if (masters->weights->store->swap)
        SHOAL_TRY(status, shoali_swap_flush(masters->weights->store->swap), done);
done:
    return status;
}

static shoal_status walk_all(struct walk *walk)
{
    shoal_status status;
    struct shoali_zero_masters *masters = walk->masters;
    const int32_t ahead = masters->outside->stage_count - 1;
    /* the device still reads the weights that are written here */
    SHOAL_TRY(status, shoali_stream_synchronize(masters->setup->args.exec.stream), done);
    for (int32_t i = 0; i < walk->count + ahead; i++) {
        if (i < walk->count)
            SHOAL_TRY(status, begin(walk, i), done);
        if (i >= ahead)
            SHOAL_TRY(status, finish(walk, i - ahead), done);
    }
    SHOAL_TRY(status, join(masters), done);
done:
    return status;
}

shoal_status shoali_zero_offload_pass(struct shoali_zero_masters *masters,
                                      const struct shoali_optimizer_now *now, int32_t measure)
{
    const int64_t length = masters->outside->sub_group;
    struct walk walk = {.masters = masters,
                        .now = now,
                        .measure = measure,
                        .rows =
                            SHOALI_SWAP_ROW(now ? shoali_zero_state_rows(masters->setup) : 1) - 1,
                        .count = (int32_t)((masters->layout->part_count + length - 1) / length)};
    if (now) {
        const bool states =
            measure < 0 || masters->setup->optimizer.type->measures[measure].writes_states;
        walk.dirty = states ? walk.rows : 0;
        walk.host_now = *now;
        walk.host_now.exec = &masters->outside->exec;
        walk.host_now.control = shoali_zero_host_control(masters->clip);
    }
    return walk_all(&walk);
}
