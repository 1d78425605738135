/* step_device.c - training steps by the clock of a device whose memory is not the host's.
 *
 * The engine queues a step and waits once, for the decision whether weights change. So the host's
 * times of forward and backward are those of queueing, and no figures. Two events on the engine's
 * stream say how long steps take there. */
#include "benchmark/step.h"
#include "engine/engine.h"

static shoal_status ignore(void *user, const shoali_bench_result *result)
{
    (void)user;
    (void)result;
    return SHOAL_OK;
}

shoal_status shoali_step_device_open(struct shoali_step *step)
{
    shoal_status status = SHOAL_OK;
    struct shoali_device *device = step->engine->device;
    shoali_bench_run run = step->run;
    const bool is_first = shoal_engine_rank(step->engine) == 0;
    if (shoali_device_accelerator(device)->host_accessible)
        return SHOAL_OK;
    if (!is_first) {
        run.sink = ignore;
        run.on_device = NULL;
    }
    SHOAL_TRY(status, shoali_bench_init_on(&step->on, "step", &run, device), done);
    SHOAL_TRY(status, shoali_bench_say_device(&step->on), done);
    SHOAL_TRY(status, shoal_barrier(step->group), done);
    SHOAL_TRY(status, shoali_ceilings_create(&step->on, shoal_engine_dtype(step->engine)), done);
done:
    return status;
}

void shoali_step_device_close(struct shoali_step *step)
{
    shoali_bench_fini(&step->on);
    step->on = (struct shoali_bench){.pool = NULL};
}

shoal_status shoali_step_device_begin(struct shoali_step *step)
{
    return step->on.device ? shoali_event_record(step->on.begin, step->engine->exec.stream)
                           : SHOAL_OK;
}

shoal_status shoali_step_device_end(struct shoali_step *step, int32_t steps, double *seconds)
{
    shoal_status status = SHOAL_OK;
    int64_t ns;
    if (!step->on.device)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_event_record(step->on.end, step->engine->exec.stream), done);
    SHOAL_TRY(status, shoali_event_elapsed(step->on.begin, step->on.end, &ns), done);
    shoali_samples_add(&step->host, *seconds * 1e3 / steps);
    *seconds = (double)(ns > 0 ? ns : 1) * 1e-9;
done:
    return status;
}

shoal_status shoali_step_peak(struct shoali_step *step, double *gflops)
{
    shoal_status status = SHOAL_OK;
    double gbs;
    if (!step->on.device) {
        *gflops = shoali_limit_fma(step->pool, shoal_engine_dtype(step->engine));
        return SHOAL_OK;
    }
    SHOAL_TRY(status, shoali_ceilings_sample(&step->on, &gbs, gflops), done);
    shoali_samples_add(&step->copy, gbs);
done:
    return status;
}
