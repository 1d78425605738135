/* The configuration's comms_logger: the log of this engine's collectives. */
#include "comm/comms_log.h"
#include "engine/engine.h"

#include "parallel_state/parallel_state.h"

/* The world's group and those of the mesh that are made; what is split later has the log of what it
 * is split from. */
static void set_log(struct shoal_engine *engine, struct shoali_comms_log *log)
{
    if (!engine->group)
        return;
    shoali_comm_set_log(engine->group, log);
    for (int32_t i = 0; engine->mesh && i < engine->mesh->made_count; i++)
        if (engine->mesh->made[i].group)
            shoali_comm_set_log(engine->mesh->made[i].group, log);
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
                  engine->config.comms_logger.show_straggler ? engine->group : NULL, &out),
              done);
    *text = out.text;
    return SHOAL_OK;
done:
    shoali_str_fini(&out);
    return status;
}
