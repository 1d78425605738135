/* `"autotuning": {"enabled": true}`: this run is an experiment. It measures its steps
 * start_profile_step to end_profile_step, counted from 1 in this run, leaves what they took in
 * metric_path, and asks all ranks to stop. DeepSpeed: engine.py, which ends the process. */
#include "engine/engine.h"

#include "base/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static shoal_status write_metrics(const struct shoal_engine *engine)
{
    shoal_status status;
    const struct shoali_autotuning_config *config = &engine->config.autotuning;
    const struct shoali_micro_cost *cost = &engine->step.micro_cost;
    const double steps = (double)engine->step.profile.counted;
    const double latency = engine->step.profile.ms / steps;
    const double flops = (double)(cost->flops_forward + cost->flops_backward) *
                         (double)engine->step.batch.accumulation;
    const char *path = config->metric_path && *config->metric_path ? config->metric_path
                                                                   : "autotuning_metric.json";
    char *text = NULL;
    /* DeepSpeed's names; times in milliseconds, of a step. */
    json_t *metrics = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "latency", latency, "throughput",
        (double)engine->step.batch.train / latency * 1e3, "FLOPS_per_gpu", flops / latency * 1e3,
        "forward", engine->step.profile.forward_ms / steps, "backward",
        engine->step.profile.backward_ms / steps, "step", engine->step.profile.update_ms / steps,
        "train_batch_size", (json_int_t)engine->step.batch.train, "train_micro_batch_size_per_gpu",
        (json_int_t)engine->step.batch.micro);
    SHOAL_TRY(status, shoali_json_write(metrics, JSON_INDENT(1), "the metrics", &text), done);
    status = shoali_write_file_atomic(path, text, strlen(text));
    if (status < 0)
        status = shoali_error_prefix(status, "autotuning.metric_path");
    else
        SHOALI_INFO("engine",
                    "autotuning.enabled: steps %lld to %lld took %.3f ms each, which is written to "
                    "%s; this run is an experiment and stops now",
                    (long long)config->start_profile_step, (long long)config->end_profile_step,
                    latency, path);
done:
    free(text);
    json_decref(metrics);
    return status;
}

shoal_status shoali_engine_profile_step(struct shoal_engine *engine)
{
    const struct shoali_autotuning_config *config = &engine->config.autotuning;
    const shoal_step_info *info = &engine->step.info;
    if (!config->enabled || engine->meta || engine->step.profile.steps > config->end_profile_step)
        return SHOAL_OK;
    if (++engine->step.profile.steps >= config->start_profile_step &&
        engine->step.profile.steps <= config->end_profile_step) {
        engine->step.profile.counted++;
        engine->step.profile.ms += info->step_ms;
        engine->step.profile.forward_ms += info->forward_ms;
        engine->step.profile.backward_ms += info->backward_ms + info->reduce_ms;
        engine->step.profile.update_ms += info->update_ms;
    }
    if (engine->step.profile.steps != config->end_profile_step)
        return SHOAL_OK;
    shoal_engine_request_stop(engine);
    return engine->place.rank == 0 ? write_metrics(engine) : SHOAL_OK;
}
