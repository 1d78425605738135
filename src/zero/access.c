/* What this rank holds, for checkpoints, fingerprints and getters. */
#include "zero/parts.h"

enum { CONVERTED = 8192 }; /* at once; 16 KiB */

/* The state that a kind is, -1: none. */
static int32_t state_of(const struct shoali_zero *zero, int32_t kind)
{
    const struct shoali_zero_setup *setup = &zero->setup;
    return setup->args.optimizer && kind <= setup->optimizer.state_count ? kind - 1 : -1;
}

/* A state that is not per element. */
static bool is_small(const struct shoali_zero *zero, int32_t kind)
{
    const int32_t state = state_of(zero, kind);
    return state >= 0 && zero->setup.optimizer.type->states[state].kind != SHOALI_STATE_ELEMENT;
}

/* Kind 0 is the fp32 master (for fp32 models the weights themselves, without training 16-bit ones
 * seen as fp32), then the states, then 16-bit
 * weights. */
int32_t shoali_zero_kind_count(const struct shoali_zero *zero)
{
    const struct shoali_zero_setup *setup = &zero->setup;
    return 1 + (setup->args.optimizer ? setup->optimizer.state_count : 0) +
           (shoali_zero_dtype(setup) != SHOAL_F32);
}

int64_t shoali_zero_kind_offset(const struct shoali_zero *zero, int32_t index, int32_t param)
{
    if (!is_small(zero, index))
        return param < zero->setup.args.module->param_count
                   ? zero->setup.args.module->param[param]->begin
                   : zero->layout.flat_count;
    return zero->tensors
        .begin[zero->setup.optimizer.type->states[state_of(zero, index)].kind][param];
}

static void get_small_kind(const struct shoali_zero *zero, int32_t state,
                           struct shoali_zero_kind *kind)
{
    const struct shoali_optimizer_state *what = &zero->setup.optimizer.type->states[state];
    *kind = (struct shoali_zero_kind){
        .name = what->name,
        .dtype = SHOAL_F32,
        .of = what->kind,
        .count = zero->tensors.begin[what->kind][zero->setup.args.module->param_count],
        .replicated = true};
}

void shoali_zero_get_kind(const struct shoali_zero *zero, int32_t index,
                          struct shoali_zero_kind *kind)
{
    const struct shoali_zero_setup *setup = &zero->setup;
    const struct shoali_zero_layout *layout = &zero->layout;
    const bool low = shoali_zero_dtype(setup) != SHOAL_F32;
    if (is_small(zero, index)) {
        get_small_kind(zero, state_of(zero, index), kind);
        return;
    }
    *kind = (struct shoali_zero_kind){.dtype = SHOAL_F32,
                                      .count = layout->flat_count,
                                      .range = layout->part_range,
                                      .range_count = layout->bucket_count,
                                      .replicated = setup->stage == 0};
    if (index == 0) {
        kind->name = low ? "master" : "model";
        kind->data = zero->masters.master;
        if (shoali_zero_master_is_weights(setup) || !shoali_zero_keeps_masters(setup))
            kind->range = layout->weight_range;
    } else if (index < shoali_zero_state_rows(setup)) {
        kind->name = setup->optimizer.type->states[index - 1].name;
        kind->data = zero->masters.state[index - 1];
    } else {
        kind->name = "model";
        kind->dtype = shoali_zero_dtype(setup);
        kind->data = zero->weights.data;
        kind->range = setup->fetches ? layout->weight_range : layout->whole_range;
        kind->replicated = setup->stage < 3;
    }
}

const struct shoali_zero_range *shoali_zero_own_ranges(const struct shoali_zero *zero,
                                                       int32_t *count)
{
    *count = zero->layout.bucket_count;
    return zero->layout.part_range;
}

const struct shoali_zero_range *shoali_zero_counted_ranges(const struct shoali_zero *zero,
                                                           int32_t *count)
{
    *count = zero->layout.counted_count;
    return zero->layout.counted;
}

/* ---- reading and writing -------------------------------------------------------------------- */

/* Where element `at` of a kind's buffer is when it is not on the device: store, row, element of the
 * row. Cuts *count to what lies in one place; false: on the device. */
struct place {
    struct shoali_swap *swap;
    int32_t row;
    int64_t first;
};
static bool find_outside(const struct shoali_zero *zero, int32_t kind, int64_t at, int64_t *count,
                         struct place *place)
{
    const int64_t device_count = zero->outside.device_count;
    if (kind >= shoali_zero_state_rows(&zero->setup)) {
        *place = (struct place){zero->store.swap, 0, at};
        return zero->store.swap != NULL;
    }
    if (!zero->setup.offloads)
        return false;
    if (at < device_count) {
        *count = *count < device_count - at ? *count : device_count - at;
        return false;
    }
    *place = (struct place){zero->outside.optimizer, kind, at - device_count};
    return true;
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
                          (long long)first, (long long)end, kind->name, (int)zero->setup.rank,
                          (int)zero->setup.world, (int)zero->setup.stage);
    const int64_t left = range->begin + range->count - first;
    *count = left < end - first ? left : end - first;
    *at = range->at + (first - range->begin);
    return SHOAL_OK;
}

bool shoali_zero_has_masters(const struct shoali_zero *zero)
{
    return shoali_zero_keeps_masters(&zero->setup);
}

bool shoali_zero_forget_errors(struct shoali_zero *zero)
{
    zero->quantized.forget = true;
    zero->quantized.error_age = 0;
    return zero->quantized.errors != NULL;
}

struct transfer {
    int32_t kind;
    struct shoali_zero_kind held;
    void *out;      /* read */
    const void *in; /* write; NULL when reading */
};

/* Elements from `at` on of 16-bit weights as fp32: read, or with `in` written. */
static shoal_status convert(struct shoali_zero *zero, const struct transfer *transfer, int64_t at,
                            int64_t count)
{
    shoal_status status = SHOAL_OK;
    uint16_t piece[CONVERTED];
    const shoal_dtype dtype = shoali_zero_dtype(&zero->setup);
    struct shoali_device_stream *stream = zero->setup.args.exec.stream;
    const float *in = transfer->in;
    float *out = transfer->out;
    for (int64_t done = 0, part; done < count; done += part) {
        part = count - done < CONVERTED ? count - done : CONVERTED;
        char *address = shoali_zero_at(zero->weights.data, at + done, dtype);
        const size_t bytes = (size_t)part * sizeof piece[0];
        for (int64_t i = 0; in && i < part; i++)
            piece[i] = dtype == SHOAL_BF16 ? shoali_f32_to_bf16(in[done + i])
                                           : shoali_f32_to_f16(in[done + i]);
        SHOAL_TRY(status,
                  in ? shoali_upload(stream, address, piece, bytes)
                     : shoali_download(stream, piece, address, bytes),
                  done);
        for (int64_t i = 0; !in && i < part; i++)
            out[done + i] =
                dtype == SHOAL_BF16 ? shoali_bf16_to_f32(piece[i]) : shoali_f16_to_f32(piece[i]);
    }
done:
    return status;
}

/* Moves the first run of elements [first, end), which lies in one place. */
static shoal_status move(struct shoali_zero *zero, const struct transfer *transfer, int64_t first,
                         int64_t end, int64_t *count)
{
    shoal_status status;
    int64_t at = 0;
    struct place place;
    const struct shoali_zero_kind *held = &transfer->held;
    SHOAL_TRY(status, locate(zero, held, first, end, &at, count), done);
    const bool outside = find_outside(zero, transfer->kind, at, count, &place);
    const size_t bytes = (size_t)*count * shoal_dtype_bytes(held->dtype);
    if (outside && transfer->in)
        return shoali_swap_write(place.swap, place.row, place.first, *count, transfer->in);
    if (outside)
        return shoali_swap_read(place.swap, place.row, place.first, *count, transfer->out);
    if (transfer->kind == 0 && !shoali_zero_keeps_masters(&zero->setup))
        return convert(zero, transfer, at, *count);
    char *address = shoali_zero_at(held->data, at, held->dtype);
    if (transfer->in)
        return shoali_upload(zero->setup.args.exec.stream, address, transfer->in, bytes);
    return shoali_download(zero->setup.args.exec.stream, transfer->out, address, bytes);
done:
    return status;
}

shoal_status shoali_zero_read(struct shoali_zero *zero, int32_t kind, int64_t first, int64_t count,
                              void *out)
{
    shoal_status status = SHOAL_OK;
    if (is_small(zero, kind)) {
        shoali_pinned_read(zero->setup.args.device, out,
                           zero->tensors.state[state_of(zero, kind)] + first,
                           (size_t)count * sizeof(float));
        return SHOAL_OK;
    }
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
    if (is_small(zero, kind)) {
        shoali_pinned_write(zero->setup.args.device,
                            zero->tensors.state[state_of(zero, kind)] + first, in,
                            (size_t)count * sizeof(float));
        return SHOAL_OK;
    }
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
    const int64_t piece = shoali_zero_piece(&zero->gradients);
    const struct shoali_zero_range *range =
        shoali_zero_find_range(zero->layout.part_range, zero->layout.bucket_count, begin);
    if (count == 0)
        return SHOAL_OK;
    SHOAL_ASSERT(range && begin + count <= range->begin + range->count);
    const int64_t local = range->at + (begin - range->begin);
    int64_t part;
    for (int64_t at = 0; at < count; at += part) {
        const float *gradient;
        part = piece < count - at ? piece : count - at;
        SHOAL_TRY(status, shoali_zero_final_gradient(&zero->gradients, local + at, part, &gradient),
                  done);
        SHOAL_TRY(status,
                  shoali_download(zero->setup.args.exec.stream, out + at, gradient,
                                  (size_t)part * sizeof(float)),
                  done);
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((double)out[i] / zero->clip.divisor);
done:
    return status;
}

void shoali_zero_memory(const struct shoali_zero *zero, struct shoali_zero_memory *memory)
{
    const struct shoali_zero_setup *setup = &zero->setup;
    const bool trains = setup->args.optimizer != NULL;
    const int64_t row = zero->outside.device_count * (int64_t)sizeof(float);
    const bool same = shoali_zero_master_is_weights(setup) || !shoali_zero_keeps_masters(setup);
    int64_t updated = 0;
    for (int32_t s = 0; trains && s < zero->layout.segment_count; s++)
        updated += zero->layout.segment[s].count;
    *memory = (struct shoali_zero_memory){
        .weights_bytes = shoali_zero_weights_bytes(&zero->weights),
        .gradients_bytes = trains ? shoali_zero_gradients_bytes(&zero->gradients) : 0,
        .states_bytes = row * (shoali_zero_state_rows(setup) - same),
        .master_bytes = same ? 0 : row,
        .live_elements = zero->weights.held_peak,
        .updated_elements = updated,
        .buffers_bytes = (trains ? shoali_zero_gradients_buffer_bytes(&zero->gradients) : 0) +
                         shoali_zero_pool_bytes(&zero->pool) + zero->quantized.message_bytes +
                         zero->quantized.error_bytes + zero->tensors.device_bytes,
    };
    if (setup->offloads)
        shoali_zero_outside_memory(&zero->outside, &zero->store, memory);
}
