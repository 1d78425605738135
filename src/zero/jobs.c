/* Posting, waiting, and the groups. */
#include "zero/jobs.h"

#include "base/hash.h"
#include "zero/hpz.h"

#include <stdio.h>

static shoal_status run_job(const void *argument)
{
    shoal_status status;
    const struct shoali_zero_job *job = argument;
    struct shoali_zero_jobs *jobs = job->jobs;
    const struct shoali_zero_channel *channel = &jobs->away[job->group];
    SHOAL_TRY(status, shoali_side_stream_begin(&jobs->side), done);
    SHOAL_TRY(status, job->run(channel, job), done);
    SHOAL_TRY(status, shoali_side_stream_end(&jobs->side), done);
done:
    if (status < 0) /* the others would wait for this rank's later jobs */
        shoal_comm_abort(channel->group ? channel->group : jobs->away[0].group, status);
    return status;
}

void shoali_zero_jobs_note(struct shoali_zero_jobs *jobs, int32_t kind, int32_t unit)
{
    const int32_t one[] = {kind, unit};
    jobs->order = shoali_hash64_seeded(one, sizeof one, jobs->order);
}

shoal_status shoali_zero_post(struct shoali_zero_jobs *jobs, struct shoali_zero_job *job,
                              uint32_t *ticket)
{
    shoal_status status;
    job->jobs = jobs;
    *ticket = 0;
    if (!jobs->side.worker)
        return job->run(&jobs->away[job->group], job);
    SHOAL_TRY(status, shoali_side_stream_post(&jobs->side, run_job, job, sizeof *job), done);
    *ticket = jobs->side.posted;
done:
    return status;
}

shoal_status shoali_zero_await(struct shoali_zero_jobs *jobs, uint32_t ticket)
{
    return shoali_side_stream_wait(&jobs->side, ticket);
}

shoal_status shoali_zero_await_all(struct shoali_zero_jobs *jobs)
{
    return shoali_zero_await(jobs, jobs->side.posted);
}

/* `number`: of this rank in the group of `expected`. */
static shoal_status split(const struct shoali_zero_jobs *jobs, shoal_group *base, int32_t color,
                          int32_t number, int32_t expected, shoal_group **group)
{
    shoal_status status;
    const struct shoali_split_args args = {
        .here = SHOAL_HERE, .color = color, .key = number, .expected = expected};
    SHOAL_TRY(status, shoali_comm_split(base, &args, group), done);
    if (jobs->setup->args.overlap)
        shoali_comm_second_thread(*group);
done:
    return status;
}

/* For wire.c and quantized.c. */
static shoal_status make_hops(const struct shoali_zero_jobs *jobs, struct shoali_zero_channel *away)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_setup *setup = jobs->setup;
    const bool gathers = setup->args.hierarchical_gather && setup->args.shard_size > 0;
    if (setup->stage != 3 || !(setup->args.quantized_gradients || gathers))
        return SHOAL_OK;
    const int32_t near = shoali_comm_ranks_per_host(away->group);
    const int32_t rank = shoal_comm_rank(away->group), size = shoal_comm_size(away->group);
    if (near < 2)
        return SHOAL_OK;
    SHOAL_TRY(status, split(jobs, away->group, rank / near, rank % near, near, &away->within),
              done);
    SHOAL_TRY(status,
              split(jobs, away->group, rank % near, rank / near, size / near, &away->across), done);
    away->gathers_by_hosts = gathers;
done:
    return status;
}

/* The jobs' communicators: their own, because one belongs to one thread. */
static shoal_status make_channel(struct shoali_zero_jobs *jobs, shoal_group *base,
                                 struct shoali_zero_channel *away)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_group *cut = away->cut;
    const bool sharded = cut->replicas > 1 && jobs->setup->stage > 0;
    const int32_t nearby = shoali_zero_hpz_size(jobs->setup, cut->size);
    away->group = base;
    if (!base)
        return SHOAL_OK;
    if (jobs->setup->args.overlap || sharded) {
        away->group = NULL;
        SHOAL_TRY(status,
                  sharded ? split(jobs, base, cut->replica, cut->seat, cut->parts, &away->group)
                          : split(jobs, base, 0, cut->rank, cut->size, &away->group),
                  done);
    }
    if (sharded)
        SHOAL_TRY(status,
                  split(jobs, base, cut->seat, cut->replica, cut->replicas, &away->replicas), done);
    if (nearby)
        SHOAL_TRY(status,
                  split(jobs, base, cut->rank / nearby, cut->rank % nearby, nearby, &away->nearby),
                  done);
    SHOAL_TRY(status, make_hops(jobs, away), done);
done:
    return status;
}

static shoal_group *base_of(const struct shoali_zero_args *args, int32_t group)
{
    shoal_group *base = group == 0 ? args->group : args->cuts[group - 1];
    return base && shoal_comm_size(base) > 1 ? base : NULL;
}

static shoal_status make_channels(struct shoali_zero_jobs *jobs)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_zero_args *args = &jobs->setup->args;
    const size_t groups = (size_t)jobs->layout->args.group_count;
    jobs->here = shoali_calloc(groups, sizeof *jobs->here, "groups of zero");
    jobs->away = shoali_calloc(groups, sizeof *jobs->away, "groups of zero");
    if (!jobs->here || !jobs->away)
        goto done;
    for (size_t g = 0; g < groups; g++) {
        jobs->here[g] = jobs->away[g] = (struct shoali_zero_channel){
            .cut = &jobs->layout->group[g], .group = base_of(args, (int32_t)g), .exec = args->exec};
        jobs->away[g].group = NULL;
        if (jobs->side.worker)
            jobs->away[g].exec.stream = jobs->side.stream;
        SHOAL_TRY(status, make_channel(jobs, jobs->here[g].group, &jobs->away[g]), done);
    }
    status = SHOAL_OK;
done:
    return status;
}

shoal_status shoali_zero_jobs_init(struct shoali_zero_jobs *jobs,
                                   const struct shoali_zero_setup *setup,
                                   const struct shoali_zero_layout *layout)
{
    shoal_status status = SHOAL_OK;
    *jobs = (struct shoali_zero_jobs){.setup = setup, .layout = layout};
    if (setup->args.overlap && setup->most_ranks > 1)
        SHOAL_TRY(status,
                  shoali_side_stream_init(&jobs->side, setup->args.device, setup->args.exec.stream),
                  done);
    SHOAL_TRY(status, make_channels(jobs), done);
done:
    return status;
}

void shoali_zero_jobs_fini(struct shoali_zero_jobs *jobs)
{
    if (!jobs->setup)
        return;
    shoali_side_stream_fini(&jobs->side);
    for (int32_t g = jobs->layout->args.group_count; jobs->here && jobs->away && g > 0; g--) {
        const struct shoali_zero_channel *away = &jobs->away[g - 1];
        shoal_comm_destroy(away->across);
        shoal_comm_destroy(away->within);
        shoal_comm_destroy(away->nearby);
        shoal_comm_destroy(away->replicas);
        if (away->group != jobs->here[g - 1].group)
            shoal_comm_destroy(away->group);
    }
    shoali_free(jobs->here);
    shoali_free(jobs->away);
}

const char *shoali_zero_here(const struct shoali_zero_unit *unit, const char *here,
                             char text[SHOALI_ZERO_HERE_BYTES])
{
    if (!unit->name)
        return here;
    snprintf(text, SHOALI_ZERO_HERE_BYTES, "%s (layer %s)", here, unit->name);
    return text;
}

shoal_status shoali_zero_jobs_counters(struct shoali_zero_jobs *jobs,
                                       struct shoali_comm_counters *counters)
{
    shoal_status status = SHOAL_OK;
    *counters = (struct shoali_comm_counters){0};
    SHOAL_TRY(status, shoali_zero_await_all(jobs), done); /* so that nobody counts now */
    for (int32_t g = 0; g < jobs->layout->args.group_count; g++) {
        const struct shoali_zero_channel *here = &jobs->here[g], *away = &jobs->away[g];
        SHOAL_TRY(status, shoali_comm_add_counters(here->group, counters), done);
        if (away->group != here->group)
            SHOAL_TRY(status, shoali_comm_add_counters(away->group, counters), done);
        SHOAL_TRY(status, shoali_comm_add_counters(away->within, counters), done);
        SHOAL_TRY(status, shoali_comm_add_counters(away->across, counters), done);
        SHOAL_TRY(status, shoali_comm_add_counters(away->nearby, counters), done);
        SHOAL_TRY(status, shoali_comm_add_counters(away->replicas, counters), done);
    }
done:
    return status;
}
