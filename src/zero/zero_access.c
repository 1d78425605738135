/* What this rank holds, for checkpoints, fingerprints and getters. */
#include "zero/zero_internal.h"

/* Kind 0 is the fp32 master (for fp32 models the weights themselves), then the states, then 16-bit
 * weights. */
int32_t shoali_zero_kind_count(const struct shoali_zero *zero)
{
    return 1 + (zero->args.optimizer ? zero->optimizer.state_count : 0) +
           (zero->args.module->dtype != SHOAL_F32);
}

void shoali_zero_get_kind(const struct shoali_zero *zero, int32_t index,
                          struct shoali_zero_kind *kind)
{
    const bool low = zero->args.module->dtype != SHOAL_F32;
    const int32_t states = zero->args.optimizer ? zero->optimizer.state_count : 0;
    *kind = (struct shoali_zero_kind){.dtype = SHOAL_F32,
                                      .range = zero->part_range,
                                      .range_count = zero->bucket_count,
                                      .replicated = zero->stage == 0,
                                      .copies = zero->replicas,
                                      .copy = zero->replica};
    if (index == 0) {
        kind->name = low ? "master" : "model";
        kind->data = zero->master;
        kind->range = shoali_zero_master_is_weights(zero) ? zero->weight_range : zero->part_range;
    } else if (index <= states) {
        kind->name = zero->optimizer.type->states[index - 1].name;
        kind->data = zero->state[index - 1];
    } else {
        kind->name = "model";
        kind->dtype = zero->args.module->dtype;
        kind->data = zero->weights;
        kind->range = zero->fetches ? zero->weight_range : zero->whole_range;
        kind->replicated = zero->stage < 3;
    }
}

int64_t shoali_zero_param_offset(const struct shoali_zero *zero, int32_t param)
{
    return zero->offset[param];
}

const struct shoali_zero_range *shoali_zero_own_ranges(const struct shoali_zero *zero,
                                                       int32_t *count)
{
    *count = zero->bucket_count;
    return zero->part_range;
}

int64_t shoali_zero_flat_count(const struct shoali_zero *zero)
{
    return zero->flat_count;
}

/* The longest run of [first, end) that lies in one piece, and where in the kind's buffer. */
static shoal_status locate(const struct shoali_zero *zero, const struct shoali_zero_kind *kind,
                           int64_t first, int64_t end, int64_t *at, int64_t *count)
{
    const struct shoali_zero_range *range =
        shoali_zero_find_range(kind->range, kind->range_count, first);
    if (!range)
        return SHOAL_FAIL(SHOAL_EINTERNAL,
                          "elements [%lld, %lld) of %s are not held by rank %d of %d (stage %d)",
                          (long long)first, (long long)end, kind->name, (int)zero->rank,
                          (int)zero->world, (int)zero->stage);
    const int64_t left = range->begin + range->count - first;
    *count = left < end - first ? left : end - first;
    *at = range->at + (first - range->begin);
    return SHOAL_OK;
}

struct transfer {
    int32_t kind;
    struct shoali_zero_kind held;
    void *out;      /* read */
    const void *in; /* write; NULL when reading */
};

/* Moves the first run of elements [first, end), which lies in one place. */
static shoal_status move(struct shoali_zero *zero, const struct transfer *transfer, int64_t first,
                         int64_t end, int64_t *count)
{
    shoal_status status;
    int64_t at = 0;
    struct shoali_zero_place place;
    const struct shoali_zero_kind *held = &transfer->held;
    SHOAL_TRY(status, locate(zero, held, first, end, &at, count), done);
    const bool outside = shoali_zero_offload_find(zero, transfer->kind, at, count, &place);
    const size_t bytes = (size_t)*count * shoal_dtype_bytes(held->dtype);
    if (outside && transfer->in)
        return shoali_swap_write(place.swap, place.row, place.first, *count, transfer->in);
    if (outside)
        return shoali_swap_read(place.swap, place.row, place.first, *count, transfer->out);
    char *address = shoali_zero_at(held->data, at, held->dtype);
    if (transfer->in)
        return shoali_upload(zero->args.exec.stream, address, transfer->in, bytes);
    return shoali_download(zero->args.exec.stream, transfer->out, address, bytes);
done:
    return status;
}

shoal_status shoali_zero_read(struct shoali_zero *zero, int32_t kind, int64_t first, int64_t count,
                              void *out)
{
    shoal_status status = SHOAL_OK;
    struct transfer transfer = {.kind = kind};
    shoali_zero_get_kind(zero, kind, &transfer.held);
    int64_t run = 0;
    for (int64_t at = first; at < first + count; at += run) {
        transfer.out = shoali_zero_at(out, at - first, transfer.held.dtype);
        SHOAL_TRY(status, move(zero, &transfer, at, first + count, &run), done);
    }
done:
    return status;
}

shoal_status shoali_zero_write(struct shoali_zero *zero, int32_t kind, int64_t first, int64_t count,
                               const void *in)
{
    shoal_status status = SHOAL_OK;
    struct transfer transfer = {.kind = kind};
    shoali_zero_get_kind(zero, kind, &transfer.held);
    const size_t item = shoal_dtype_bytes(transfer.held.dtype);
    int64_t run = 0;
    for (int64_t at = first; at < first + count; at += run) {
        transfer.in = (const char *)in + (size_t)(at - first) * item;
        SHOAL_TRY(status, move(zero, &transfer, at, first + count, &run), done);
    }
done:
    return status;
}

shoal_status shoali_zero_read_gradient(struct shoali_zero *zero, int64_t begin, int64_t count,
                                       float *out)
{
    shoal_status status = SHOAL_OK;
    const int64_t piece = shoali_zero_piece(zero);
    const struct shoali_zero_range *range =
        shoali_zero_find_range(zero->part_range, zero->bucket_count, begin);
    if (count == 0)
        return SHOAL_OK;
    SHOAL_ASSERT(range && begin + count <= range->begin + range->count);
    const int64_t local = range->at + (begin - range->begin);
    int64_t part;
    for (int64_t at = 0; at < count; at += part) {
        const float *gradient;
        part = piece < count - at ? piece : count - at;
        SHOAL_TRY(status, shoali_zero_final_gradient(zero, local + at, part, &gradient), done);
        SHOAL_TRY(status,
                  shoali_download(zero->args.exec.stream, out + at, gradient,
                                  (size_t)part * sizeof(float)),
                  done);
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((double)out[i] / zero->divisor);
done:
    return status;
}

void shoali_zero_memory(const struct shoali_zero *zero, struct shoali_zero_memory *memory)
{
    const bool trains = zero->args.optimizer != NULL;
    const int64_t gradient = (int64_t)shoal_dtype_bytes(shoali_zero_gradient_dtype(zero));
    const int64_t weight = (int64_t)shoal_dtype_bytes(zero->args.module->dtype);
    int64_t weights = zero->fetches ? zero->part_count : zero->whole_count;
    if (zero->args.offload.param != SHOALI_ZERO_DEVICE)
        weights = 0;
    int64_t updated = 0;
    for (int32_t s = 0; trains && s < zero->segment_count; s++)
        updated += zero->segment[s].count;
    for (int32_t u = 0; u < zero->unit_count; u++)
        weights += zero->unit[u].persistent ? zero->unit[u].padded : 0;
    weights += zero->nearby ? zero->whole_count / zero->nearby : 0;
    *memory = (struct shoali_zero_memory){
        .weights_bytes = weights * weight,
        .gradients_bytes =
            trains ? (zero->stage < 2 ? zero->whole_count : zero->part_count) * gradient : 0,
        .states_bytes = shoali_zero_device_count(zero) * 4 *
                        (shoali_zero_state_rows(zero) - shoali_zero_master_is_weights(zero)),
        .master_bytes =
            shoali_zero_master_is_weights(zero) ? 0 : shoali_zero_device_count(zero) * 4,
        .live_elements = zero->live_peak,
        .updated_elements = updated,
        .buffers_bytes = (zero->stage == 1 && trains ? zero->part_count * gradient : 0) +
                         zero->arrival_count * gradient + shoali_zero_pool_bytes(zero) +
                         zero->chunk_count * (int64_t)sizeof(float) + zero->message_bytes +
                         zero->error_bytes,
    };
    if (zero->outside.active)
        shoali_zero_offload_memory(zero, memory);
}
