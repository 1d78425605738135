/* flight.c - collectives on device addresses that the host does not wait for at once. */
#include "comm/group.h"

static void land(struct shoali_comm_flight *flight)
{
    struct shoali_device *device = shoali_stream_device(flight->stream);
    shoali_device_staging_give(device, flight->host_in);
    shoali_device_staging_give(device, flight->host_out);
    *flight = (struct shoali_comm_flight){0};
}

/* The stream's earlier work and a copy to pinned memory; then the post no longer needs `in`. */
static shoal_status load(shoal_group *group, struct shoali_comm_flight *flight,
                         struct shoali_post *post)
{
    struct shoali_device *device = shoali_stream_device(flight->stream);
    const size_t in_bytes = shoali_post_in_bytes(post, group->size);
    const size_t out_bytes = shoali_post_out_bytes(post, group->size);
    shoal_status status;
    SHOAL_TRY(status,
              shoali_device_staging_take(device, in_bytes > 0 ? in_bytes : 1, &flight->host_in),
              done);
    SHOAL_TRY(status,
              shoali_device_staging_take(device, out_bytes > 0 ? out_bytes : 1, &flight->host_out),
              done);
    if (in_bytes > 0)
        SHOAL_TRY(
            status,
            shoali_copy(flight->stream, flight->host_in, post->in, in_bytes, SHOALI_DEVICE_TO_HOST),
            done);
    SHOAL_TRY(status, shoali_stream_synchronize(flight->stream), done);
    flight->out = post->out;
    flight->out_bytes = out_bytes;
    post->in = flight->host_in;
    post->out = flight->host_out;
done:
    return status;
}

shoal_status shoali_comm_take_off(shoal_group *group, struct shoali_device_stream *stream,
                                  const struct shoali_post *post, struct shoali_comm_flight *flight)
{
    const struct shoali_accelerator *accelerator =
        shoali_device_accelerator(shoali_stream_device(stream));
    struct shoali_post own = *post;
    shoal_status status = SHOAL_OK;
    *flight = (struct shoali_comm_flight){.stream = stream};
    if (!accelerator->host_accessible && !group->backend->device_memory)
        SHOAL_TRY(status, load(group, flight, &own), done);
    SHOAL_TRY(status, shoali_comm_post(group, &own, &flight->request), done);
done:
    if (status < 0)
        land(flight);
    return status;
}

shoal_status shoali_comm_fly(struct shoali_comm_flight *flight)
{
    const shoal_status status = shoal_request_test(&flight->request);
    return status == SHOAL_IN_PROGRESS ? SHOAL_OK : status;
}

shoal_status shoali_comm_land(struct shoali_comm_flight *flight)
{
    shoal_status status = SHOAL_OK;
    if (flight->stream == NULL)
        return SHOAL_OK;
    SHOAL_TRY(status, shoal_request_wait(&flight->request), done);
    if (flight->out_bytes == 0)
        goto done;
    SHOAL_TRY(status,
              shoali_copy(flight->stream, flight->out, flight->host_out, flight->out_bytes,
                          SHOALI_HOST_TO_DEVICE),
              done);
    SHOAL_TRY(status, shoali_stream_synchronize(flight->stream), done);
done:
    land(flight);
    return status;
}
