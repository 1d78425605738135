/* The order of a run that may be continued for longer than its order was made for.
 *
 * Megatron's order of n samples is not the beginning of its order of more: if these need more
 * passes over the data, all passes are shuffled anew. A run that goes on in it would see samples
 * twice and others never. So an order that was begun is kept up to its end. Samples behind it come
 * in an order of their own, with another seed. So do those behind the one pass of a blend without
 * weights. */
#include "data/indexed/samples.h"

enum { PARTS_MAX = 1024 }; /* that are added at once */

struct segment {
    int64_t begin, asked;           /* its first number; the samples it was made for */
    struct shoali_samples *samples; /* owned */
};

struct shoali_segments {
    struct segment *segment; /* owned */
    int32_t count;
    int64_t *asked; /* owned: of all segments */
};

static shoal_status open_one(const struct shoali_order_args *args, int32_t number, int64_t asked,
                             struct shoali_samples **samples)
{
    shoal_loader_args own = *args->loader;
    own.sample_count = asked;
    /* below 2^32, as Megatron's seeds are; shoali_samples_open refuses a larger one */
    if (number > 0 && own.seed <= UINT32_MAX)
        own.seed = (uint32_t)(own.seed + (uint64_t)number);
    return shoali_samples_open(args->data, &own, args->masked, samples);
}

static shoal_status add(struct shoali_segments *segments, const struct shoali_order_args *args,
                        int64_t asked)
{
    shoal_status status;
    struct segment *next = &segments->segment[segments->count];
    next->begin = shoali_segments_count(segments);
    next->asked = asked;
    SHOAL_TRY(status, open_one(args, segments->count, asked, &next->samples), done);
    segments->count++;
done:
    return status;
}

/* A last segment of more samples, where these begin with those that it has. */
static shoal_status widen(struct shoali_segments *segments, const struct shoali_order_args *args)
{
    shoal_status status;
    struct segment *last = &segments->segment[segments->count - 1];
    const int64_t asked = args->loader->sample_count - last->begin;
    struct shoali_samples *wider = NULL;
    if (asked == last->asked)
        return SHOAL_OK;
    SHOAL_TRY(status, open_one(args, segments->count - 1, asked, &wider), done);
    if (!shoali_samples_begin_alike(last->samples, wider))
        goto done;
    shoali_samples_close(last->samples);
    last->samples = wider;
    last->asked = asked;
    wider = NULL;
done:
    shoali_samples_close(wider);
    return status;
}

/* Goes on up to sample_count. One part alone has all samples of its passes: more need others. */
static shoal_status extend(struct shoali_segments *segments, const struct shoali_order_args *args)
{
    shoal_status status = SHOAL_OK;
    const int64_t wanted = args->loader->sample_count;
    const int32_t room = segments->count + PARTS_MAX;
    if (args->loader->order == SHOAL_ORDER_CYCLIC || wanted <= shoali_segments_count(segments))
        return SHOAL_OK;
    if (shoali_samples_blended(segments->segment[segments->count - 1].samples))
        SHOAL_TRY(status, widen(segments, args), done);
    while (wanted > shoali_segments_count(segments) && segments->count < room)
        SHOAL_TRY(status, add(segments, args, wanted - shoali_segments_count(segments)), done);
    if (wanted > shoali_segments_count(segments))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%lld samples are asked for, more than %d passes over the data: give "
                            "weights in --data-path",
                            (long long)wanted, PARTS_MAX);
done:
    return status;
}

shoal_status shoali_segments_open(const struct shoali_order_args *args,
                                  struct shoali_segments **segments)
{
    shoal_status status = SHOAL_ENOMEM;
    const shoal_loader_args *loader = args->loader;
    const int32_t before = loader->sequential ? 0 : loader->order_count;
    const size_t room = (size_t)before + 1 + PARTS_MAX;
    struct shoali_segments *made = shoali_calloc(1, sizeof *made, "the order of samples");
    *segments = NULL;
    if (!made)
        return SHOAL_ENOMEM;
    made->segment = shoali_calloc(room, sizeof *made->segment, "the order of samples");
    made->asked = shoali_calloc(room, sizeof *made->asked, "the order of samples");
    if (!made->segment || !made->asked)
        goto done;
    status = SHOAL_OK;
    for (int32_t i = 0; i < before; i++)
        SHOAL_TRY(status, add(made, args, loader->order_samples[i]), done);
    if (before == 0)
        SHOAL_TRY(status, add(made, args, loader->sample_count), done);
    SHOAL_TRY(status, extend(made, args), done);
    for (int32_t i = 0; i < made->count; i++)
        made->asked[i] = made->segment[i].asked;
    *segments = made;
    made = NULL;
done:
    shoali_segments_close(made);
    return status;
}

void shoali_segments_close(struct shoali_segments *segments)
{
    if (!segments)
        return;
    for (int32_t i = 0; i < segments->count; i++)
        shoali_samples_close(segments->segment[i].samples);
    shoali_free(segments->segment);
    shoali_free(segments->asked);
    shoali_free(segments);
}

int64_t shoali_segments_count(const struct shoali_segments *segments)
{
    if (segments->count == 0)
        return 0;
    const struct segment *last = &segments->segment[segments->count - 1];
    return last->begin + shoali_samples_count(last->samples);
}

int32_t shoali_segments_asked(const struct shoali_segments *segments, const int64_t **asked)
{
    *asked = segments->asked;
    return segments->count;
}

shoal_status shoali_segments_read(const struct shoali_segments *segments, int64_t i,
                                  int32_t *const *arrays)
{
    int32_t last = segments->count - 1;
    while (last > 0 && i < segments->segment[last].begin)
        last--;
    return shoali_samples_read(segments->segment[last].samples, i - segments->segment[last].begin,
                               arrays);
}
