/* Whether a run fits its machine is known before it begins. */
#include "pretrain/pretrain.h"

#include "base/process.h"
#include "base/started.h"
#include "base/str.h"

#include <stdlib.h>

/* Ranks that share this machine's memory. */
static int32_t local_ranks(int32_t world)
{
    const int64_t ranks = shoali_started_get().local_size;
    return ranks > 0 && ranks < world ? (int32_t)ranks : world;
}

/* "it would fit with ..." of this rank's alternatives. */
static void suggest(const shoal_engine_args *engine, const shoal_plan_args *args,
                    const shoal_plan_limit *limit, char *text, size_t bytes)
{
    char size[32], change[256];
    shoal_plan plan;
    shoal_plan_verdict verdict;
    if (shoal_plan_suggest(engine, args, limit, &plan, change, sizeof change) != SHOAL_OK) {
        snprintf(text, bytes, "no other setting is known to help");
        return;
    }
    shoal_plan_check(&plan, limit, &verdict);
    snprintf(text, bytes, "%s %s, which needs %s",
             verdict.missing_bytes <= 0 ? "it fits with"
                                        : "no setting makes it fit; the "
                                          "smallest is",
             change, shoali_format_bytes((double)verdict.need_bytes, size));
}

static shoal_status refuse(const struct pretrain *run, const shoal_plan_args *args,
                           const shoal_plan_limit *limit)
{
    char needed[32], had[32], way[400];
    shoal_plan_verdict verdict;
    shoal_plan_check(&run->plan, limit, &verdict);
    if (verdict.missing_bytes <= 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "the plan of another rank does not fit its machine");
    shoali_format_bytes((double)verdict.need_bytes, needed);
    shoali_format_bytes((double)verdict.have_bytes, had);
    suggest(&run->setup.args, args, limit, way, sizeof way);
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "the plan does not fit: this rank needs %s, and %s is %s: %s; to start "
                      "anyway, give --ignore-plan",
                      needed, verdict.what, had, way);
}

shoal_status pretrain_check_plan(struct pretrain *run)
{
    shoal_status status;
    shoal_plan_limit limit;
    shoal_plan_verdict verdict;
    const int32_t world = run->group ? shoal_comm_size(run->group) : 1;
    shoal_plan_args args = {.rank = run->group ? shoal_comm_rank(run->group) : 0,
                            .world_size = world,
                            .prefetches = true,
                            .dataset_bytes = pretrain_data_bytes(run),
                            .lean_model = run->setup.lean,
                            .lean_model_flag = run->setup.lean_flag};
    mesh_flags_fill_plan(&run->options.mesh, &args);
    SHOAL_TRY(status, shoal_plan_make(&run->setup.args, &args, &run->plan), done);
    SHOAL_TRY(status, shoal_plan_get_limit(NULL, local_ranks(world), &limit), done);
    shoal_plan_check(&run->plan, &limit, &verdict);
    int64_t missing = verdict.missing_bytes;
    /* also the moment after which a rank may allocate: all have seen what is free */
    if (world > 1)
        SHOAL_TRY(status,
                  shoal_all_reduce(run->group, &missing, &missing, 1, SHOAL_I64, SHOAL_MAX, NULL),
                  done);
    if (missing > 0 && !run->options.ignore_plan)
        status = refuse(run, &args, &limit);
done:
    return status;
}

shoal_status pretrain_tell_plan(const struct pretrain *run, shoal_status status)
{
    char device[32], host[32];
    const shoal_plan *plan = &run->plan;
    if (plan->device_bytes == 0)
        return status;
    return shoali_error_prefix(status,
                               "the plan counts %s of the device's memory and %s of the host's",
                               shoali_format_bytes((double)plan->device_bytes, device),
                               shoali_format_bytes((double)plan->host_bytes, host));
}

void pretrain_show_memory(struct pretrain *run)
{
    char line[160], planned[32], used[32], resident[32];
    shoal_memory_info info;
    if (!run->progress)
        return;
    shoal_engine_get_memory_info(run->engine, &info);
    const shoal_plan *plan = &run->plan;
    const int64_t data =
        pretrain_data_bytes(run) + shoal_loader_host_bytes(run->train) + run->batch_bytes;
    const int64_t counted = info.device_peak_bytes + info.host_peak_bytes + data + info.comm_bytes +
                            info.checkpoint_bytes + info.workspace_bytes + info.offload_host_bytes -
                            info.offload_pinned_bytes;
    snprintf(line, sizeof line, "memory: planned %s, used %s, peak RSS %s",
             shoali_format_bytes((double)(plan->device_bytes + plan->host_bytes), planned),
             shoali_format_bytes((double)counted, used),
             shoali_format_bytes((double)shoali_process_peak_bytes(), resident));
    shoal_progress_message(run->progress, line);
}
