/* Masters and states: memory and initial values. */
#include "zero/update.h"

/* Elements that a rank draws before they are exchanged. */
#define SHARE_MAX ((int64_t)1 << 22)
/* Elements that are drawn at once where there are no masters; 64 KiB. */
#define PIECE 16384

shoal_status shoali_zero_masters_init(struct shoali_zero_masters *masters)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = masters->setup;
    const size_t bytes = (size_t)masters->outside->device_count * sizeof(float);
    struct shoali_device_stream *stream = setup->args.exec.stream;
    if (shoali_zero_master_is_weights(setup))
        masters->master = masters->weights->data;
    else if (shoali_zero_keeps_masters(setup))
        SHOAL_TRY(status, shoali_device_alloc_zeroed(stream, bytes, (void **)&masters->master),
                  done);
    for (int32_t s = 0; s < shoali_zero_state_rows(setup) - 1; s++)
        SHOAL_TRY(status, shoali_device_alloc_zeroed(stream, bytes, (void **)&masters->state[s]),
                  done);
done:
    return status;
}

void shoali_zero_masters_fini(struct shoali_zero_masters *masters)
{
    if (!masters->setup)
        return;
    struct shoali_device *device = masters->setup->args.device;
    if (masters->master && !shoali_zero_master_is_weights(masters->setup))
        shoali_device_free(device, masters->master);
    for (int32_t s = 0; s < SHOALI_OPTIMIZER_MAX_STATES; s++)
        if (masters->state[s])
            shoali_device_free(device, masters->state[s]);
}

/* ---- initial values ------------------------------------------------------------------------- */

/* Elements [begin, end) of the part space, to their place on the device, or from `base` on. */
struct fill {
    struct shoali_zero_masters *masters;
    const struct shoali_exec *exec;
    int64_t begin, end;
    float *base;
    float *piece; /* device, PIECE elements; NULL: there are masters */
};

static bool is_constant(const struct fill *fill, const struct shoal_param *param)
{
    return fill->masters->setup->args.zeros || param->init == SHOAL_INIT_ZEROS ||
           param->init == SHOAL_INIT_ONES;
}

/* A value is a function of (seed, parameter name, element of the whole), so every layout starts
 * from the same bits. */
static shoal_status fill_piece(const struct fill *fill, const struct shoali_piece *piece, float *to)
{
    const struct shoal_param *param = piece->param;
    const bool ones = param->init == SHOAL_INIT_ONES && !fill->masters->setup->args.zeros;
    if (is_constant(fill, param))
        return shoali_op_set(
            fill->exec, &(struct shoali_set_args){
                            .y = to, .count = piece->count, .value = ones, .dtype = SHOAL_F32});
    return shoali_op_random_fill(
        fill->exec,
        &(struct shoali_random_fill_args){
            .y = to,
            .count = piece->count,
            .first_element = piece->first,
            .a = param->init_a,
            .b = param->init_b,
            .uniform = param->init == SHOAL_INIT_UNIFORM,
            .random = shoali_stream_make(fill->masters->setup->args.seed, "init", param->name, 0),
            .dtype = SHOAL_F32});
}

/* Without masters values are drawn as fp32 all the same, and rounded once. */
static shoal_status fill_place(const struct fill *fill, const struct shoali_piece *piece, void *to)
{
    shoal_status status = SHOAL_OK;
    const shoal_dtype dtype = shoali_zero_source_dtype(fill->masters->setup);
    if (!fill->piece)
        return fill_piece(fill, piece, to);
    for (int64_t at = 0; at < piece->count; at += PIECE) {
        struct shoali_piece part = *piece;
        part.first += at;
        part.count = piece->count - at < PIECE ? piece->count - at : PIECE;
        const struct shoali_convert_args args = {.x = fill->piece,
                                                 .y = shoali_zero_at(to, at, dtype),
                                                 .count = part.count,
                                                 .dtype = SHOAL_F32,
                                                 .dtype_out = dtype};
        SHOAL_TRY(status, fill_piece(fill, &part, fill->piece), done);
        SHOAL_TRY(status, shoali_op_convert(fill->exec, &args), done);
    }
done:
    return status;
}

/* The own elements only: from stage 1 on no rank ever draws the whole model. */
static shoal_status fill_bucket(const struct fill *fill, int32_t bucket)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = fill->masters->layout;
    const struct shoali_module *module = layout->args.module;
    const struct shoali_zero_range *part = &layout->part_range[bucket];
    const int64_t low = fill->begin > part->at ? fill->begin - part->at : 0;
    const int64_t high = fill->end < part->at + part->count ? fill->end - part->at : part->count;
    for (int64_t at = low; at < high;) {
        struct shoali_piece piece =
            shoali_module_piece(module, part->begin + at, part->begin + high);
        const int64_t left = piece.param->begin + piece.param->count - (part->begin + at);
        if (is_constant(fill, piece.param)) /* wherever it is in the whole */
            piece.count = left < high - at ? left : high - at;
        void *place = fill->base ? fill->base + (part->at + at - fill->begin)
                                 : shoali_zero_source(fill->masters, part->at + at,
                                                      layout->weight_range[bucket].at + at);
        SHOAL_TRY(status, fill_place(fill, &piece, place), done);
        at += piece.count;
    }
done:
    return status;
}

static shoal_status run_fill(const struct fill *fill)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_layout *layout = fill->masters->layout;
    for (int32_t b = shoali_zero_first_part(layout, fill->begin);
         b < layout->bucket_count && layout->part_range[b].at < fill->end; b++)
        if (layout->part_range[b].count > 0)
            SHOAL_TRY(status, fill_bucket(fill, b), done);
done:
    return status;
}

static shoal_status fill_device(struct shoali_zero_masters *masters, int64_t begin, int64_t end)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = masters->setup;
    struct fill fill = {masters, &setup->args.exec, begin, end, NULL, NULL};
    if (!shoali_zero_keeps_masters(setup))
        SHOAL_TRY(
            status,
            shoali_device_alloc(setup->args.device, PIECE * sizeof(float), (void **)&fill.piece),
            done);
    SHOAL_TRY(status, run_fill(&fill), done);
    if (fill.piece) /* what is launched may still read it */
        SHOAL_TRY(status, shoali_stream_synchronize(setup->args.exec.stream), done);
done:
    if (fill.piece)
        shoali_device_free(setup->args.device, fill.piece);
    return status;
}

/* Stage 0: every rank of a unit's group needs every value, draws its share, and gets the others'.
 * In pieces, because a device that ranks cannot reach stages them; what is left over is drawn by
 * all.
 */
static shoal_status fill_together(struct shoali_zero_masters *masters, int32_t index)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_unit *unit = &masters->layout->unit[index];
    const struct shoali_zero_channel *here = &masters->weights->jobs->here[unit->group];
    const int64_t ranks = here->cut->size, end = unit->local + unit->part;
    int64_t share = 0;
    for (int64_t at = unit->local; at < end; at += share * ranks) {
        share = (end - at) / ranks < SHARE_MAX ? (end - at) / ranks : SHARE_MAX;
        if (share == 0 || !here->group)
            return fill_device(masters, at, end);
        const int64_t own = at + here->cut->rank * share;
        SHOAL_TRY(status, fill_device(masters, own, own + share), done);
        SHOAL_TRY(status,
                  shoali_comm_post_on(
                      here->group, here->exec.stream,
                      &(struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                            .here = SHOAL_HERE,
                                            .in = shoali_zero_source(masters, own, own),
                                            .out = shoali_zero_source(masters, at, at),
                                            .count = share,
                                            .dtype = shoali_zero_source_dtype(masters->setup)}),
                  done);
    }
done:
    return status;
}

static shoal_status fill_outside(struct shoali_zero_masters *masters)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_outside *outside = masters->outside;
    const int64_t count = masters->layout->part_count;
    int32_t chunk = 0;
    for (int64_t at = outside->device_count; at < count; at += outside->sub_group, chunk++) {
        void *row[SHOALI_SWAP_MAX_ROWS];
        const int64_t left = count - at;
        struct fill fill = {masters, &outside->exec,
                            at,      at + (left < outside->sub_group ? left : outside->sub_group),
                            NULL,    NULL};
        SHOAL_TRY(status, shoali_swap_get(outside->optimizer, chunk, SHOALI_SWAP_ROW(0), row),
                  done);
        fill.base = row[0];
        SHOAL_TRY(status, run_fill(&fill), done);
        SHOAL_TRY(status, shoali_swap_put(outside->optimizer, chunk, SHOALI_SWAP_ROW(0), NULL),
                  done);
    }
done:
    return status;
}

shoal_status shoali_zero_masters_initialise(struct shoali_zero_masters *masters)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = masters->setup;
    const bool together = setup->stage == 0 && setup->most_ranks > 1;
    for (int32_t u = 0; u < masters->layout->unit_count && together; u++)
        SHOAL_TRY(status, fill_together(masters, u), done);
    if (!together)
        SHOAL_TRY(status, fill_device(masters, 0, masters->outside->device_count), done);
    if (setup->offloads)
        SHOAL_TRY(status, fill_outside(masters), done);
done:
    return status;
}
