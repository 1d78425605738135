/* The configuration's comms_logger: the log of this engine's collectives. */
#include "comm/comms_log.h"
#include "engine/engine.h"

#include "parallel_state/parallel_state.h"

/* The world's group and those of the mesh that are made; what is split later has the log of what it
 * is split from. */
static void set_log(struct shoal_engine *engine, struct shoali_comms_log *log)
{
    if (!engine->place.group)
        return;
    shoali_comm_set_log(engine->place.group, log);
    for (int32_t i = 0; engine->place.mesh && i < engine->place.mesh->made_count; i++)
        if (engine->place.mesh->made[i].group)
            shoali_comm_set_log(engine->place.mesh->made[i].group, log);
}

shoal_status shoali_engine_comms_open(struct shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_comms_logger_config *config = &engine->config.comms_logger;
    const char **ops = NULL;
    if (!config->enabled || engine->meta)
        return SHOAL_OK;
    ops = shoali_calloc((size_t)config->prof_ops.count + 1, sizeof *ops, "names of collectives");
    if (!ops)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < config->prof_ops.count; i++)
        ops[i] = config->prof_ops.value[i];
    const struct shoali_comms_log_args args = {
        .all = config->prof_all, .ops = ops, .verbose = config->verbose, .debug = config->debug};
    SHOAL_TRY(status, shoali_comms_log_create(&args, &engine->comms_log), done);
    set_log(engine, engine->comms_log);
done:
    shoali_free(ops);
    return status;
}

void shoali_engine_comms_close(struct shoal_engine *engine)
{
    if (!engine->comms_log)
        return;
    set_log(engine, NULL);
    shoali_comms_log_destroy(engine->comms_log);
}

/* What all ranks have sent to other hosts, where hosts have several ranks. Collective. */
static shoal_status add_between_hosts(const struct shoal_engine *engine, struct shoali_str *out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_comm_counters counters = {0};
    int64_t sent[SHOALI_COLLECTIVE_COUNT], all = 0;
    const char *separator = ":";
    if (!engine->place.group || !shoali_comm_has_hosts(engine->place.group))
        return SHOAL_OK;
    shoali_comm_get_counters(engine->place.group, &counters);
    SHOAL_TRY(status,
              shoal_all_reduce(engine->place.group, counters.between_hosts, sent,
                               SHOALI_COLLECTIVE_COUNT, SHOAL_I64, SHOAL_SUM, NULL),
              done);
    for (int kind = 0; kind < SHOALI_COLLECTIVE_COUNT; kind++)
        all += sent[kind];
    shoali_str_append(out, "between hosts: %lld bytes sent by all ranks", (long long)all);
    for (int kind = 0; kind < SHOALI_COLLECTIVE_COUNT; kind++)
        if (sent[kind] > 0) {
            shoali_str_append(out, "%s %s %lld", separator,
                              shoali_collective_name((enum shoali_collective)kind),
                              (long long)sent[kind]);
            separator = ",";
        }
    shoali_str_append(out, "\n");
done:
    return status;
}

shoal_status shoal_engine_format_comms(shoal_engine *engine, char **text)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str out = {0};
    *text = NULL;
    if (!engine->comms_log)
        return SHOAL_OK;
    SHOAL_TRY(status,
              shoali_comms_log_summary(
                  engine->comms_log,
                  engine->config.comms_logger.show_straggler ? engine->place.group : NULL, &out),
              done);
    if (engine->config.comms_logger.show_straggler)
        SHOAL_TRY(status, add_between_hosts(engine, &out), done);
    *text = out.text;
    return SHOAL_OK;
done:
    shoali_str_fini(&out);
    return status;
}
