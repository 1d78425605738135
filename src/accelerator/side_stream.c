#include "accelerator/side_stream.h"

#include "base/status_page.h"

static int32_t event_of(uint32_t ticket)
{
    return (int32_t)(ticket % SHOALI_WORKER_DEPTH);
}

shoal_status shoali_side_stream_init(struct shoali_side_stream *side, struct shoali_device *device,
                                     struct shoali_device_stream *main_stream)
{
    shoal_status status;
    *side = (struct shoali_side_stream){.main_stream = main_stream};
    SHOAL_TRY(status, shoali_stream_create(device, &side->stream), done);
    for (int32_t i = 0; i < SHOALI_WORKER_DEPTH; i++) {
        SHOAL_TRY(status, shoali_event_create(device, &side->ready[i]), done);
        SHOAL_TRY(status, shoali_event_create(device, &side->done[i]), done);
    }
    SHOAL_TRY(status, shoali_worker_create(&side->worker), done);
done:
    return status;
}

void shoali_side_stream_stop(struct shoali_side_stream *side)
{
    shoali_worker_destroy(side->worker);
    side->worker = NULL;
}

void shoali_side_stream_fini(struct shoali_side_stream *side)
{
    shoali_side_stream_stop(side);
    for (int32_t i = 0; i < SHOALI_WORKER_DEPTH; i++) {
        shoali_event_destroy(side->ready[i]);
        shoali_event_destroy(side->done[i]);
    }
    shoali_stream_destroy(side->stream);
}

shoal_status shoali_side_stream_post(struct shoali_side_stream *side, shoali_worker_fn fn,
                                     const void *job, size_t bytes)
{
    shoal_status status;
    const uint32_t ticket = side->posted + 1;
    if (ticket - side->finished > SHOALI_WORKER_DEPTH)
        SHOAL_TRY(status, shoali_side_stream_wait(side, ticket - SHOALI_WORKER_DEPTH), done);
    SHOAL_TRY(status, shoali_event_record(side->ready[event_of(ticket)], side->main_stream), done);
    SHOAL_TRY(status, shoali_worker_post(side->worker, fn, job, bytes, NULL), done);
    side->posted = ticket;
done:
    return status;
}

/* Jobs exchange data with other ranks, so the status page shows this as a wait for them. */
shoal_status shoali_side_stream_wait(struct shoali_side_stream *side, uint32_t ticket)
{
    struct shoali_status_page *page = shoali_status_page_get();
    if (ticket == 0)
        return SHOAL_OK;
    shoali_status_page_wait_begin(page, 0);
    const shoal_status status = shoali_worker_wait(side->worker, ticket);
    shoali_status_page_wait_end(page);
    if (status < 0)
        return status;
    if ((int32_t)(ticket - side->finished) > 0)
        side->finished = ticket;
    if (side->posted - ticket >= SHOALI_WORKER_DEPTH)
        return SHOAL_OK; /* the post that reused the event has waited for it */
    return shoali_stream_wait_event(side->main_stream, side->done[event_of(ticket)]);
}

shoal_status shoali_side_stream_begin(struct shoali_side_stream *side)
{
    side->begun++;
    return shoali_stream_wait_event(side->stream, side->ready[event_of(side->begun)]);
}

shoal_status shoali_side_stream_end(struct shoali_side_stream *side)
{
    return shoali_event_record(side->done[event_of(side->begun)], side->stream);
}
