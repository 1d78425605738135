/* The communication thread: collectives that run beside the computation.
 *
 * A job is one unit's or bucket's collectives. Jobs run in the order of posting, which is the same
 * on every rank because it follows the layer list. With overlap they run on a thread that has its
 * own stream of the device and its own group, so that neither waits for the other's; two events per
 * job order the streams: `ready` (what the computing stream did before the post) and `done`.
 * Without overlap a job runs when it is posted, on the computing stream. */
#include "zero/zero_internal.h"

#include <stdio.h>

static int32_t slot_of(uint32_t ticket)
{
    return (int32_t)(ticket % SHOALI_WORKER_DEPTH);
}

static shoal_status run_job(const void *argument)
{
    shoal_status status;
    const struct shoali_zero_job *job = argument;
    struct shoali_zero_comm *comm = &job->zero->comm;
    struct shoali_device_stream *stream = comm->channel.exec.stream;
    SHOAL_TRY(status, shoali_stream_wait_event(stream, comm->ready[slot_of(job->ticket)]), done);
    SHOAL_TRY(status, job->run(&comm->channel, job), done);
    SHOAL_TRY(status, shoali_event_record(comm->done[slot_of(job->ticket)], stream), done);
done:
    if (status < 0) /* the others would wait for this rank's later jobs */
        shoal_comm_abort(comm->channel.group, status);
    return status;
}

shoal_status shoali_zero_post(struct shoali_zero *zero, struct shoali_zero_job *job,
                              uint32_t *ticket)
{
    shoal_status status;
    struct shoali_zero_comm *comm = &zero->comm;
    job->zero = zero;
    *ticket = 0;
    if (!comm->worker)
        return job->run(&comm->channel, job);
    job->ticket = comm->posted + 1;
    if (job->ticket > SHOALI_WORKER_DEPTH) /* until the job that used these events is over */
        SHOAL_TRY(status,
                  shoali_worker_wait(comm->worker, job->ticket - (uint32_t)SHOALI_WORKER_DEPTH),
                  done);
    SHOAL_TRY(status,
              shoali_event_record(comm->ready[slot_of(job->ticket)], zero->args.exec.stream), done);
    SHOAL_TRY(status, shoali_worker_post(comm->worker, run_job, job, sizeof *job, ticket), done);
    comm->posted = *ticket;
done:
    return status;
}

/* When a later job has taken over the events, waiting for that one is enough and more. */
shoal_status shoali_zero_await(struct shoali_zero *zero, uint32_t ticket)
{
    shoal_status status;
    struct shoali_zero_comm *comm = &zero->comm;
    if (ticket == 0)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_worker_wait(comm->worker, ticket), done);
    SHOAL_TRY(status, shoali_stream_wait_event(zero->args.exec.stream, comm->done[slot_of(ticket)]),
              done);
done:
    return status;
}

shoal_status shoali_zero_await_all(struct shoali_zero *zero)
{
    return shoali_zero_await(zero, zero->comm.posted);
}

static shoal_status split(struct shoali_zero *zero, int32_t color, int32_t expected,
                          shoal_group **group)
{
    shoal_status status;
    const struct shoali_split_args args = {
        .here = SHOAL_HERE, .color = color, .key = zero->rank, .expected = expected};
    SHOAL_TRY(status, shoali_comm_split(zero->args.group, &args, group), done);
    if (zero->args.overlap)
        shoali_comm_second_thread(*group);
done:
    return status;
}

/* The jobs' groups: their own, because a group belongs to one thread. */
static shoal_status make_groups(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_channel *channel = &zero->comm.channel;
    const bool sharded = zero->replicas > 1 && zero->stage > 0;
    channel->group = zero->args.group;
    if (zero->world == 1)
        return SHOAL_OK;
    if (zero->args.overlap || sharded) {
        channel->group = NULL;
        SHOAL_TRY(status,
                  split(zero, sharded ? zero->replica : 0, sharded ? zero->parts : zero->world,
                        &channel->group),
                  done);
    }
    if (sharded)
        SHOAL_TRY(status, split(zero, zero->seat, zero->replicas, &channel->replicas), done);
    if (zero->nearby)
        SHOAL_TRY(status, split(zero, zero->rank / zero->nearby, zero->nearby, &channel->nearby),
                  done);
done:
    return status;
}

shoal_status shoali_zero_comm_init(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_comm *comm = &zero->comm;
    struct shoali_device *device = zero->args.device;
    comm->channel.exec = zero->args.exec;
    SHOAL_TRY(status, make_groups(zero), done);
    if (!zero->args.overlap || zero->world == 1)
        goto done;
    comm->channel.exec.stream = NULL;
    SHOAL_TRY(status, shoali_stream_create(device, &comm->channel.exec.stream), done);
    for (int32_t i = 0; i < SHOALI_WORKER_DEPTH; i++) {
        SHOAL_TRY(status, shoali_event_create(device, &comm->ready[i]), done);
        SHOAL_TRY(status, shoali_event_create(device, &comm->done[i]), done);
    }
    SHOAL_TRY(status, shoali_worker_create(&comm->worker), done);
done:
    return status;
}

void shoali_zero_comm_stop(struct shoali_zero *zero)
{
    shoali_worker_destroy(zero->comm.worker);
    zero->comm.worker = NULL;
}

void shoali_zero_comm_fini(struct shoali_zero *zero)
{
    struct shoali_zero_comm *comm = &zero->comm;
    shoali_zero_comm_stop(zero);
    for (int32_t i = 0; i < SHOALI_WORKER_DEPTH; i++) {
        shoali_event_destroy(comm->ready[i]);
        shoali_event_destroy(comm->done[i]);
    }
    if (comm->channel.exec.stream != zero->args.exec.stream)
        shoali_stream_destroy(comm->channel.exec.stream);
    shoal_comm_destroy(comm->channel.nearby);
    shoal_comm_destroy(comm->channel.replicas);
    if (comm->channel.group != zero->args.group)
        shoal_comm_destroy(comm->channel.group);
}

shoal_status shoali_zero_tell(const struct shoali_zero *zero, shoal_status status)
{
    if (status < 0 && zero->world > 1)
        shoal_comm_abort(zero->args.group, status);
    return status;
}

const char *shoali_zero_here(const struct shoali_zero_unit *unit, const char *here,
                             char text[SHOALI_ZERO_HERE_BYTES])
{
    if (!unit->name)
        return here;
    snprintf(text, SHOALI_ZERO_HERE_BYTES, "%s (layer %s)", here, unit->name);
    return text;
}

static void add_counters(const shoal_group *group, struct shoali_comm_counters *sum)
{
    struct shoali_comm_counters more;
    if (!group)
        return;
    shoali_comm_get_counters(group, &more);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        sum->calls[k] += more.calls[k];
        sum->elements[k] += more.elements[k];
        sum->bytes[k] += more.bytes[k];
    }
    sum->shared_bytes += more.shared_bytes;
    sum->wait_ns += more.wait_ns;
}

shoal_status shoali_zero_counters(struct shoali_zero *zero, struct shoali_comm_counters *counters)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_channel *channel = &zero->comm.channel;
    *counters = (struct shoali_comm_counters){0};
    SHOAL_TRY(status, shoali_zero_await_all(zero), done); /* so that nobody counts now */
    if (zero->world > 1)
        add_counters(zero->args.group, counters);
    if (channel->group != zero->args.group)
        add_counters(channel->group, counters);
    add_counters(channel->nearby, counters);
    add_counters(channel->replicas, counters);
done:
    return status;
}
