/* Memory and messages of gradients. */
#include "zero/reduce.h"

/* Elements converted at a time where exact sums become fp32 gradients: bounds the extra memory. */
#define CHUNK ((int64_t)1 << 20)

/* Stage 1: buckets. Stage 0, where every rank needs every sum: pieces of units. */
static shoal_status make_messages(struct shoali_zero_gradients *gradients)
{
    const struct shoali_zero_layout *layout = gradients->layout;
    const int64_t wanted = gradients->setup->args.reduce_bucket_size;
    int64_t count = 0;
    for (int32_t pass = 0; pass < 2; pass++) {
        count = 0;
        for (int32_t u = 0; u < layout->unit_count; u++) {
            const struct shoali_zero_unit *unit = &layout->unit[u];
            const int64_t limit = wanted > 0 && wanted < unit->count ? wanted : unit->count;
            for (int64_t at = 0; at < unit->count; at += limit, count++)
                if (pass == 1)
                    gradients->message[count] = (struct shoali_zero_message){
                        .unit = u,
                        .begin = unit->begin + at,
                        .count = limit < unit->count - at ? limit : unit->count - at,
                        .whole = unit->whole + at};
        }
        if (count > (int64_t)1 << 30)
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "%lld parameters in messages of %lld elements are too many messages: "
                              "make reduce_bucket_size larger",
                              (long long)layout->flat_count, (long long)wanted);
        if (pass == 0)
            gradients->message =
                shoali_calloc((size_t)count + 1, sizeof *gradients->message, "messages");
        if (!gradients->message)
            return SHOAL_ENOMEM;
    }
    gradients->message_count = (int32_t)count;
    return SHOAL_OK;
}

/* Ranks of a group may have different messages of other groups: what names one counts its own. */
static void number_messages(struct shoali_zero_gradients *gradients)
{
    const struct shoali_zero_layout *layout = gradients->layout;
    for (int32_t g = 0; g < layout->args.group_count; g++)
        for (int32_t m = 0, number = 0; m < gradients->message_count; m++)
            if (layout->unit[gradients->message[m].unit].group == g)
                gradients->message[m].number = number++;
}

static shoal_status list_buckets(struct shoali_zero_gradients *gradients)
{
    const struct shoali_zero_layout *layout = gradients->layout;
    gradients->message =
        shoali_calloc((size_t)layout->bucket_count + 1, sizeof *gradients->message, "messages");
    if (!gradients->message)
        return SHOAL_ENOMEM;
    gradients->message_count = layout->bucket_count;
    for (int32_t b = 0; b < layout->bucket_count; b++)
        gradients->message[b] =
            (struct shoali_zero_message){layout->bucket[b].unit, layout->bucket[b].begin,
                                         layout->bucket[b].count, layout->bucket[b].whole, 0};
    return SHOAL_OK;
}

static shoal_status make_tables(struct shoali_zero_gradients *gradients)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_zero_layout *layout = gradients->layout;
    gradients->unit =
        shoali_calloc((size_t)layout->unit_count + 1, sizeof *gradients->unit, "gradients");
    gradients->came = shoali_calloc((size_t)layout->args.module->param_count + 1,
                                    sizeof *gradients->came, "gradients");
    if (!gradients->unit || !gradients->came)
        goto done;
    status = SHOAL_OK;
    if (gradients->setup->stage < 2)
        SHOAL_TRY(status,
                  gradients->setup->stage == 0 ? make_messages(gradients) : list_buckets(gradients),
                  done);
    number_messages(gradients);
done:
    return status;
}

static shoal_status alloc_zeroed(struct shoali_zero_gradients *gradients, int64_t count,
                                 size_t item, void **address)
{
    return shoali_device_alloc_zeroed(gradients->setup->args.exec.stream, (size_t)count * item,
                                      address);
}

shoal_status shoali_zero_gradients_init(struct shoali_zero_gradients *gradients)
{
    shoal_status status;
    const struct shoali_zero_setup *setup = gradients->setup;
    const struct shoali_zero_layout *layout = gradients->layout;
    const size_t item = shoal_dtype_bytes(shoali_zero_gradient_dtype(setup));
    const int64_t part = layout->part_count;
    gradients->reducing.unit = -1;
    SHOAL_TRY(status, make_tables(gradients), done);
    if (setup->stage < 2)
        SHOAL_TRY(
            status,
            shoali_zero_alloc_shared(setup, (size_t)layout->whole_count * item, &gradients->whole),
            done);
    if (setup->stage > 0)
        SHOAL_TRY(status, alloc_zeroed(gradients, part, item, &gradients->part), done);
    if (setup->stage >= 2 && setup->args.gas > 1 && !setup->args.exact)
        SHOAL_TRY(status, shoali_zero_gradients_make_arrival(gradients), done);
    if (setup->args.exact) {
        gradients->chunk_count = CHUNK < part ? CHUNK : part;
        SHOAL_TRY(status,
                  alloc_zeroed(gradients, gradients->chunk_count, sizeof(float),
                               (void **)&gradients->chunk),
                  done);
    }
done:
    return status;
}

void shoali_zero_gradients_fini(struct shoali_zero_gradients *gradients)
{
    if (!gradients->setup)
        return;
    void *plain[] = {gradients->part, gradients->arrival, gradients->chunk};
    shoali_zero_free_shared(gradients->setup, gradients->whole);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (plain[i])
            shoali_device_free(gradients->setup->args.device, plain[i]);
    shoali_free(gradients->unit);
    shoali_free(gradients->came);
    shoali_free(gradients->message);
}

int64_t shoali_zero_gradients_bytes(const struct shoali_zero_gradients *gradients)
{
    const int64_t item = (int64_t)shoal_dtype_bytes(shoali_zero_gradient_dtype(gradients->setup));
    const struct shoali_zero_layout *layout = gradients->layout;
    return (gradients->setup->stage < 2 ? layout->whole_count : layout->part_count) * item;
}

int64_t shoali_zero_gradients_buffer_bytes(const struct shoali_zero_gradients *gradients)
{
    const int64_t item = (int64_t)shoal_dtype_bytes(shoali_zero_gradient_dtype(gradients->setup));
    const int64_t sums = gradients->setup->stage == 1 ? gradients->layout->part_count : 0;
    return (sums + gradients->arrival_count) * item +
           gradients->chunk_count * (int64_t)sizeof(float);
}
