/* One step of an engine without memory, and what it counted. */
#include "shoal/plan.h"

#include "autograd/tape/slot.h"
#include "engine/engine.h"
#include "shoal/data.h"

#include <jansson.h>
#include <string.h>

/* Counts of 0 or more; what is beyond 64 bits stays at their end. */
static int64_t times(int64_t amount, int64_t count)
{
    int64_t product;
    return __builtin_mul_overflow(amount, count, &product) ? INT64_MAX : product;
}

static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* ---- the step ------------------------------------------------------------------------------- */

static int64_t sample_bytes(const shoal_model *model)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < model->input_count; i++)
        bytes += shoal_shape_count(&model->inputs[i].sample_shape) *
                 (int64_t)shoal_dtype_bytes(model->inputs[i].dtype);
    return bytes;
}

static shoal_status run_micro(struct shoal_engine *engine, int64_t micro, const shoal_batch *batch)
{
    shoal_status status;
    engine->step.micros_done = micro;
    SHOAL_TRY(status, shoal_engine_forward(engine, batch, NULL), done);
    SHOAL_TRY(status, shoal_engine_backward(engine), done);
done:
    return status;
}

static void add_counters(struct shoali_comm_counters *sum, const struct shoali_comm_counters *now,
                         const struct shoali_comm_counters *before, int64_t count)
{
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        sum->calls[k] = plus(sum->calls[k], times(now->calls[k] - before->calls[k], count));
        sum->elements[k] =
            plus(sum->elements[k], times(now->elements[k] - before->elements[k], count));
        sum->bytes[k] = plus(sum->bytes[k], times(now->bytes[k] - before->bytes[k], count));
    }
}

shoal_status shoali_engine_counters(struct shoal_engine *engine,
                                    struct shoali_comm_counters *counters)
{
    shoal_status status;
    struct shoali_comm_counters more;
    SHOAL_TRY(status, shoali_zero_counters(engine->zero, counters), done);
    SHOAL_TRY(status, shoali_stages_counters(engine, counters), done);
    /* a group of all ranks along an axis is the mesh's own */
    shoal_group *const others[] = {engine->place.tensor_parallel.group, engine->place.group};
    for (int32_t g = 0; g < 2; g++) {
        if (!others[g] || others[g] == engine->place.data_group ||
            others[g] == engine->stages.group || (g == 1 && others[1] == others[0]))
            continue;
        SHOAL_TRY(status, shoali_comm_settle(others[g]), done);
        shoali_comm_get_counters(others[g], &more);
        add_counters(counters, &more, &(struct shoali_comm_counters){0}, 1);
    }
done:
    return status;
}

/* The first micro-batch of a step finds nothing gathered, the last one is followed by none; those
 * between are alike, so the second stands for them. */
static shoal_status run_step(struct shoal_engine *engine, const shoal_batch *batch,
                             struct shoali_comm_counters *sent)
{
    shoal_status status;
    const int64_t count = engine->step.batch.accumulation;
    struct shoali_comm_counters begin, first, second, end;
    *sent = (struct shoali_comm_counters){0};
    SHOAL_TRY(status, shoali_engine_counters(engine, &begin), done);
    SHOAL_TRY(status, run_micro(engine, 0, batch), done);
    SHOAL_TRY(status, shoali_engine_counters(engine, &first), done);
    if (count > 2)
        SHOAL_TRY(status, run_micro(engine, 1, batch), done);
    SHOAL_TRY(status, shoali_engine_counters(engine, &second), done);
    if (count > 1)
        SHOAL_TRY(status, run_micro(engine, count - 1, batch), done);
    SHOAL_TRY(status, shoal_engine_step(engine), done);
    SHOAL_TRY(status, shoali_engine_counters(engine, &end), done);
    add_counters(sent, &end, &begin, 1);
    sent->shared_bytes = end.shared_bytes;
    if (count > 3)
        add_counters(sent, &second, &first, count - 3);
done:
    return status;
}

/* ---- the step of a pipeline's stage ---------------------------------------------------------- */

static shoal_status give_nothing(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    const struct shoal_engine *engine = user;
    (void)step;
    (void)micro;
    for (int32_t i = 0; i < engine->model->input_count; i++)
        batch->data[i] = SHOALI_META_ADDRESS;
    return SHOAL_OK;
}

/* What a step of so many micro-batches sends. */
static shoal_status run_list(struct shoal_engine *engine, int64_t micro_batches,
                             struct shoali_comm_counters *sent)
{
    shoal_status status;
    struct shoali_pipeline_args args = engine->stages.args;
    struct shoali_instructions list;
    struct shoali_comm_counters begin, end;
    args.micro_batches = (int32_t)micro_batches;
    args.training = true;
    *sent = (struct shoali_comm_counters){0};
    SHOAL_TRY(status,
              shoali_instructions_make(&args, engine->stages.index, &engine->config.arena, &list),
              done);
    SHOAL_TRY(status, shoali_engine_counters(engine, &begin), done);
    SHOAL_TRY(status,
              shoali_engine_execute(engine, &(struct shoali_execution){.instructions = &list,
                                                                       .source = give_nothing,
                                                                       .user = engine}),
              done);
    SHOAL_TRY(status, shoali_engine_counters(engine, &end), done);
    add_counters(sent, &end, &begin, 1);
    sent->shared_bytes = end.shared_bytes;
done:
    return status;
}

/* Once a stage has as many micro-batches in flight as it ever has, each further group of them sends
 * the same: the difference between two steps, one of which has a group more, stands for them. */
static shoal_status run_stage(struct shoal_engine *engine, struct shoali_comm_counters *sent)
{
    shoal_status status;
    struct shoali_pipeline_args args;
    struct shoali_comm_counters more;
    const int64_t count = engine->step.batch.accumulation;
    SHOAL_TRY(status, shoali_pipeline_complete(&engine->stages.args, &args), done);
    const int64_t group = args.chunks > 1 ? args.group : 1;
    const int64_t fewer = 2 * (group > args.stages ? group : args.stages) + count % group;
    if (count <= fewer + group)
        return run_list(engine, count, sent);
    SHOAL_TRY(status, run_list(engine, fewer, sent), done);
    SHOAL_TRY(status, run_list(engine, fewer + group, &more), done);
    const struct shoali_comm_counters base = *sent;
    add_counters(sent, &more, &base, (count - fewer) / group);
done:
    return status;
}

/* ---- what it counted ------------------------------------------------------------------------ */

static void fill_traffic(const struct shoali_comm_counters *sent, shoal_plan *plan)
{
    _Static_assert(SHOALI_COLLECTIVE_COUNT <= SHOAL_PLAN_TRAFFIC, "room for all collectives");
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        if (sent->calls[k] == 0)
            continue;
        plan->traffic[plan->traffic_count++] =
            (shoal_plan_traffic){.name = shoali_collective_name((enum shoali_collective)k),
                                 .calls = sent->calls[k],
                                 .elements = sent->elements[k],
                                 .bytes = sent->bytes[k]};
        plan->sent_elements = plus(plan->sent_elements, sent->elements[k]);
        plan->sent_bytes = plus(plan->sent_bytes, sent->bytes[k]);
    }
}

static void fill_memory(const struct shoal_engine *engine, int64_t shared_bytes, shoal_plan *plan)
{
    shoal_memory_info info;
    shoal_engine_get_memory_info(engine, &info);
    plan->weights_bytes = info.weights_bytes;
    plan->gradients_bytes = info.gradients_bytes;
    plan->master_bytes = info.master_bytes;
    plan->states_bytes = info.states_bytes - info.master_bytes;
    plan->activations_bytes =
        times(engine->step.micro_cost.slot_bytes +
                  (engine->step.recompute.cpu ? 0 : engine->step.micro_cost.kept_bytes),
              engine->step.micro_count);
    plan->buffers_bytes = info.buffers_bytes;
    plan->packed_weights_bytes = info.packed_weights_bytes;
    plan->device_workspace_bytes = info.device_workspace_bytes;
    plan->device_bytes = info.packed_weights_bytes + info.weights_bytes + info.gradients_bytes +
                         info.states_bytes + plan->activations_bytes + info.buffers_bytes +
                         info.device_workspace_bytes;
    if (info.device_peak_bytes > plan->device_bytes) {
        plan->other_bytes = info.device_peak_bytes - plan->device_bytes;
        plan->device_bytes = info.device_peak_bytes;
    }
    plan->host_state_bytes = info.offload_host_bytes;
    plan->nvme_bytes = info.offload_nvme_bytes;
    plan->pinned_bytes = info.host_peak_bytes - info.offload_pinned_bytes;
    plan->comm_bytes = info.comm_bytes;
    plan->checkpoint_bytes = info.checkpoint_bytes;
    plan->workspace_bytes = info.workspace_bytes;
    plan->host_bytes = plan->pinned_bytes + plan->comm_bytes + plan->data_bytes +
                       plan->host_state_bytes + plan->checkpoint_bytes;
    plan->host_bytes = plus(plan->host_bytes, plan->workspace_bytes);
    plan->shared_bytes = shared_bytes;
}

static void fill_work(const struct shoal_engine *engine, const struct shoali_zero_memory *zero,
                      shoal_plan *plan)
{
    const struct shoali_micro_cost *cost = &engine->step.micro_cost;
    const int64_t micro_batches = engine->step.batch.accumulation;
    const int64_t weight = (int64_t)shoal_dtype_bytes(engine->module.dtype);
    const int64_t gradient = engine->config.reduction == SHOALI_REDUCTION_EXACT ? 8 : 4;
    const int64_t master = weight < 4 ? 8 + weight : 8; /* read and written; rounded */
    const double replay =
        cost->flops_forward ? (double)cost->flops_replay / (double)cost->flops_forward : 0;
    plan->flops_forward = times(cost->flops_forward, micro_batches);
    plan->flops_backward = times(cost->flops_backward, micro_batches);
    plan->flops_replay = times(cost->flops_replay, micro_batches);
    /* backward reads what forward read and its outputs' gradients, and writes its inputs' */
    plan->kernel_bytes =
        times((int64_t)((3 + replay) * (double)cost->forward_bytes), micro_batches);
    const bool trains = engine->optimizer.type != NULL;
    const int64_t states = trains ? shoali_optimizer_element_states(&engine->optimizer) : 0;
    const int64_t measures = trains ? engine->optimizer.type->measure_count : 0;
    plan->update_bytes = zero->updated_elements * (gradient + master + 8 * states);
    plan->update_bytes += measures * zero->updated_elements * (gradient + 4 + 4 * states);
    plan->overlaps = engine->config.zero_optimization.overlap_comm;
}

static void fill(const struct shoal_engine *engine, const struct shoali_comm_counters *sent,
                 shoal_plan *plan)
{
    struct shoali_zero_memory zero;
    shoali_zero_memory(engine->zero, &zero);
    plan->rank = engine->place.rank;
    plan->world_size = engine->place.world;
    plan->stage = (int32_t)engine->config.zero_optimization.stage;
    plan->train_batch = engine->step.batch.train;
    plan->micro_batch = engine->step.batch.micro;
    plan->accumulation = engine->step.batch.accumulation;
    plan->parameters = engine->module.whole_count;
    plan->live_parameters = zero.live_elements;
    plan->updated_parameters = zero.updated_elements;
    plan->tensor_ranks = shoal_mesh_size(engine->place.mesh, SHOAL_AXIS_TP);
    plan->pipeline_stages = shoal_mesh_size(engine->place.mesh, SHOAL_AXIS_PP);
    plan->data_ranks = engine->place.data_ranks;
    plan->tensor_rank =
        shoal_mesh_coordinate(engine->place.mesh, SHOAL_AXIS_TP, engine->place.rank);
    plan->pipeline_stage =
        shoal_mesh_coordinate(engine->place.mesh, SHOAL_AXIS_PP, engine->place.rank);
    plan->data_rank = engine->place.data_rank;
    plan->in_flight = engine->step.micro_count;
    for (int32_t l = 0; l < engine->module.layer_count; l++) {
        int64_t sum = 0;
        for (int32_t i = 0; i < engine->module.layer[l].param_count; i++)
            sum += engine->module.layer[l].param[i]->count;
        plan->largest_layer = sum > plan->largest_layer ? sum : plan->largest_layer;
    }
    fill_memory(engine, sent->shared_bytes, plan);
    fill_work(engine, &zero, plan);
    fill_traffic(sent, plan);
}

/* Batches that the loader keeps ready, the one in use, and what the dataset holds itself. */
static int64_t data_bytes(const struct shoal_engine *engine, int64_t dataset_bytes)
{
    const int64_t batch = times(engine->step.batch.micro, sample_bytes(engine->model));
    return plus(dataset_bytes,
                plus(batch, shoal_loader_plan_bytes(batch, engine->step.batch.accumulation)));
}

shoal_status shoali_plan_mesh(const shoal_plan_args *args, shoal_group *group, shoal_mesh **mesh)
{
    return shoal_mesh_create(&(shoal_mesh_args){.group = group,
                                                .ranks = args->world_size,
                                                .rank = args->rank,
                                                .tensor = args->tensor,
                                                .context = args->context,
                                                .expert = args->expert,
                                                .pipeline = args->pipeline,
                                                .expert_tensor = args->expert_tensor,
                                                .order = args->order},
                             mesh);
}

static bool has_mesh(const shoal_plan_args *args)
{
    return args->tensor || args->context || args->expert || args->pipeline || args->expert_tensor ||
           args->order;
}

static shoal_status make_plan(const shoal_engine_args *given, const shoal_plan_args *args,
                              shoal_plan *plan)
{
    shoal_status status;
    struct shoal_engine *engine = NULL;
    shoal_group *group = NULL;
    shoal_mesh *mesh = NULL;
    struct shoali_comm_counters sent;
    const struct shoali_context context = *shoali_context_get();
    struct shoali_logger quiet = {.level = SHOAL_LOG_OFF};
    shoal_engine_args engine_args = *given;
    shoali_context_get()->logger = &quiet; /* the run itself will say it */
    shoali_context_get()->page = NULL;
    if (args->world_size > 1)
        SHOAL_TRY(status,
                  shoali_comm_create_meta(args->rank, args->world_size, engine_args.group, &group),
                  done);
    engine_args.group = group;
    engine_args.mesh = NULL; /* of ranks that exist */
    if (has_mesh(args)) {    /* else the configuration's */
        SHOAL_TRY(status, shoali_plan_mesh(args, group, &mesh), done);
        engine_args.mesh = mesh;
    }
    SHOAL_TRY(status,
              shoali_engine_make(&engine_args,
                                 &(struct shoali_engine_making){
                                     .meta = true, .ranks_per_machine = args->ranks_per_machine},
                                 &engine),
              done);
    for (int32_t i = 0; i < engine->model->input_count; i++)
        engine->step.batch_arrays[i] =
            SHOALI_META_ADDRESS; /* there is no batch: nothing may read it */
    SHOAL_TRY(status,
              engine->stages.count > 1
                  ? run_stage(engine, &sent)
                  : run_step(engine, &(shoal_batch){.data = engine->step.batch_arrays}, &sent),
              done);
    plan->data_bytes = args->prefetches ? data_bytes(engine, args->dataset_bytes) : 0;
    fill(engine, &sent, plan);
    status = SHOAL_OK;
done:
    shoal_engine_destroy(engine);
    shoal_mesh_destroy(mesh);
    shoal_comm_destroy(group);
    *shoali_context_get() = context;
    return status;
}

shoal_status shoal_plan_make(const shoal_engine_args *engine, const shoal_plan_args *args,
                             shoal_plan *plan)
{
    shoal_plan made = {0};
    const shoal_status status = make_plan(engine, args ? args : &(shoal_plan_args){0}, &made);
    if (plan)
        *plan = made;
    return status;
}

/* ---- time and text -------------------------------------------------------------------------- */

static double seconds(double amount, double rate)
{
    return rate > 0 ? amount / rate : 0;
}

static void find_time(const shoal_plan *plan, const shoal_plan_rates *rates, shoal_plan_time *time)
{
    const double flops =
        (double)plan->flops_forward + (double)plan->flops_backward + (double)plan->flops_replay;
    const double arithmetic = seconds(flops, rates->flops);
    const double traffic = seconds((double)plan->kernel_bytes, rates->memory_bytes);
    time->compute_s = arithmetic > traffic ? arithmetic : traffic;
    time->network_s = seconds((double)plan->sent_bytes, rates->network_bytes);
    time->update_s = seconds((double)plan->update_bytes, rates->memory_bytes);
    time->step_s = time->compute_s + time->network_s;
    if (plan->overlaps)
        time->step_s = time->compute_s > time->network_s ? time->compute_s : time->network_s;
    time->step_s += time->update_s;
}

void shoal_plan_get_time(const shoal_plan *plan, const shoal_plan_rates *rates,
                         shoal_plan_time *time)
{
    find_time(plan, rates, time);
}

struct json_member {
    const char *key;
    int64_t value;
};

/* Returns 0 or, without memory, -1. */
static int set_members(json_t *object, const struct json_member *member, size_t count)
{
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        failed |= json_object_set_new(object, member[i].key, json_integer(member[i].value));
    return failed;
}

static int set_traffic(json_t *object, const shoal_plan *plan)
{
    json_t *traffic = json_object();
    int failed = 0;
    for (int32_t i = 0; i < plan->traffic_count; i++) {
        const shoal_plan_traffic *one = &plan->traffic[i];
        const struct json_member counts[] = {
            {"calls", one->calls}, {"elements", one->elements}, {"bytes", one->bytes}};
        json_t *entry = json_object();
        failed |= set_members(entry, counts, sizeof counts / sizeof counts[0]);
        failed |= json_object_set_new(traffic, one->name, entry);
    }
    return failed | json_object_set_new(object, "traffic", traffic);
}

static shoal_status write_json(const shoal_plan *plan, char **json)
{
    const struct json_member members[] = {
        {"rank", plan->rank},
        {"world_size", plan->world_size},
        {"stage", plan->stage},
        {"train_batch_size", plan->train_batch},
        {"train_micro_batch_size_per_gpu", plan->micro_batch},
        {"gradient_accumulation_steps", plan->accumulation},
        {"parameters", plan->parameters},
        {"largest_layer_parameters", plan->largest_layer},
        {"live_parameters", plan->live_parameters},
        {"updated_parameters", plan->updated_parameters},
        {"weights_bytes", plan->weights_bytes},
        {"gradients_bytes", plan->gradients_bytes},
        {"master_bytes", plan->master_bytes},
        {"states_bytes", plan->states_bytes},
        {"packed_weights_bytes", plan->packed_weights_bytes},
        {"activations_bytes", plan->activations_bytes},
        {"buffers_bytes", plan->buffers_bytes},
        {"device_workspace_bytes", plan->device_workspace_bytes},
        {"other_bytes", plan->other_bytes},
        {"device_bytes", plan->device_bytes},
        {"pinned_bytes", plan->pinned_bytes},
        {"comm_bytes", plan->comm_bytes},
        {"data_bytes", plan->data_bytes},
        {"host_state_bytes", plan->host_state_bytes},
        {"checkpoint_bytes", plan->checkpoint_bytes},
        {"workspace_bytes", plan->workspace_bytes},
        {"host_bytes", plan->host_bytes},
        {"nvme_bytes", plan->nvme_bytes},
        {"shared_bytes", plan->shared_bytes},
        {"sent_elements", plan->sent_elements},
        {"sent_bytes", plan->sent_bytes},
        {"flops_forward", plan->flops_forward},
        {"flops_backward", plan->flops_backward},
        {"flops_replay", plan->flops_replay},
        {"kernel_bytes", plan->kernel_bytes},
        {"update_bytes", plan->update_bytes},
        {"overlaps", plan->overlaps},
        {"tensor_ranks", plan->tensor_ranks},
        {"pipeline_stages", plan->pipeline_stages},
        {"data_ranks", plan->data_ranks},
        {"tensor_rank", plan->tensor_rank},
        {"pipeline_stage", plan->pipeline_stage},
        {"data_rank", plan->data_rank},
        {"in_flight", plan->in_flight},
    };
    json_t *object = json_object();
    int failed = set_members(object, members, sizeof members / sizeof members[0]);
    failed |= set_traffic(object, plan);
    *json = NULL;
    const shoal_status status = failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the plan")
                                       : shoali_json_write(object, JSON_COMPACT, "the plan", json);
    json_decref(object);
    return status;
}

shoal_status shoal_plan_to_json(const shoal_plan *plan, char **json)
{
    return write_json(plan, json);
}
