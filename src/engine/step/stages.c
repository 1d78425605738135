/* Which layers this rank runs, what crosses their ends, whom they share parameters with. */
#include "base/str.h"
#include "engine/engine.h"
#include "pipeline_parallel/partition.h"

#include <string.h>

/* Activations and gradients begin at multiples of this: what vectors and pages of devices like. */
enum { ALIGNMENT = 256 };

/* Zeroes, until the engine ends. */
static void *allocate(struct shoal_engine *engine, int64_t count, size_t item)
{
    return shoali_arena_alloc(&engine->config.arena, ((size_t)count + 1) * item);
}

static int32_t virtual_stages(const struct shoali_engine_stages *stages)
{
    return stages->count * stages->args.chunks;
}

/* ---- stages --------------------------------------------------------------------------------- */

/* A layout says itself how many chunks it has. */
static shoal_status count_chunks(const struct shoal_engine *engine, const shoal_engine_args *args,
                                 int32_t *chunks)
{
    shoal_status status;
    enum shoali_partition_method method;
    const char *partition, *text;
    int32_t parts;
    *chunks = args->virtual_stages > 0 ? args->virtual_stages : 1;
    SHOAL_TRY(status, shoali_config_partition(&engine->config, args, &partition), done);
    SHOAL_TRY(status, shoali_partition_parse(partition, &method, &text), done);
    if (method != SHOALI_PARTITION_LAYOUT || args->virtual_stages > 0)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_partition_layout_parts(text, args->model->layer_count, &parts), done);
    if (parts % engine->stages.count)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the pipeline layout \"%s\" has %d stages, which %d pipeline ranks cannot "
            "share evenly",
            text, (int)parts, (int)engine->stages.count);
    *chunks = parts / engine->stages.count;
done:
    return status;
}

shoal_status shoali_stages_init(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status = SHOAL_OK;
    struct shoali_engine_stages *stages = &engine->stages;
    const bool computes_alike = engine->place.admitted & SHOAL_AXIS_PP;
    stages->count = computes_alike ? 1 : shoal_mesh_size(engine->place.mesh, SHOAL_AXIS_PP);
    stages->args = (struct shoali_pipeline_args){.stages = stages->count, .chunks = 1};
    if (stages->count == 1)
        return SHOAL_OK;
    stages->index = shoal_mesh_coordinate(engine->place.mesh, SHOAL_AXIS_PP, engine->place.rank);
    SHOAL_TRY(status, count_chunks(engine, args, &stages->args.chunks), done);
    stages->args.group = args->micro_batch_group;
    stages->beside = shoali_config_overlap_p2p(&engine->config, args, stages->args.chunks);
    stages->args.schedule = stages->args.chunks > 1 ? SHOALI_INTERLEAVED : SHOALI_1F1B;
    if (args->pipeline_schedule)
        SHOAL_TRY(status,
                  shoali_pipeline_schedule_find(args->pipeline_schedule, &stages->args.schedule),
                  done);
done:
    return status;
}

/* ---- the cut -------------------------------------------------------------------------------- */

/* What a layer trains; a tied parameter counts where it is used, too. */
static double weigh(const struct shoal_layer *layer)
{
    double weight = 0;
    for (int32_t i = 0; i < layer->param_count; i++)
        if (!(layer->param[i]->tags & SHOAL_PARAM_FROZEN))
            weight += (double)shoal_param_count(layer->param[i]);
    return weight;
}

/* FLOPs of forward, of a micro-batch without memory. */
static shoal_status weigh_shares(struct shoal_engine *engine, struct shoali_partition_layer *layers)
{
    shoal_status status;
    struct shoali_slot *slot = NULL;
    struct shoal_tape *tape = NULL;
    shoal_boundary left = {0};
    const struct shoali_micro_load load = {.samples = engine->step.batch.micro,
                                           .training = !engine->inference,
                                           .needs_grad = !engine->inference};
    SHOAL_TRY(status, shoali_slot_create(NULL, 0, &slot), done);
    SHOAL_TRY(status, shoali_engine_create_tape(engine, slot, NULL, true, &tape), done);
    SHOAL_TRY(status, shoali_micro_load(engine, tape, &load), done);
    int64_t before = 0, forward, backward, bytes;
    for (int32_t l = 0; l < engine->module.layer_count; l++) {
        SHOAL_TRY(status, shoali_tape_forward_layers(tape, &engine->module, l, 1, &left), done);
        shoali_tape_totals(tape, &forward, &backward, &bytes);
        layers[l].weight = (double)(forward - before);
        before = forward;
    }
    shoali_tape_end(tape);
done:
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    return status;
}

/* Ranks along tp may have shares of different sizes, and cut alike all the same: by those of the
 * first, the largest ones, for which the others wait. */
static shoal_status weigh_by_flops(struct shoal_engine *engine,
                                   struct shoali_partition_layer *layers)
{
    shoal_status status;
    const struct shoali_module own = engine->module;
    const struct shoali_tensor_parallel tp = engine->place.tensor_parallel;
    if (tp.rank == 0)
        return weigh_shares(engine, layers);
    engine->place.tensor_parallel.rank = 0;
    engine->module = (struct shoali_module){0};
    SHOAL_TRY(status, shoali_engine_declare(engine, own.dtype), done);
    SHOAL_TRY(status, weigh_shares(engine, layers), done);
done:
    shoali_module_fini(&engine->module);
    engine->module = own;
    engine->place.tensor_parallel = tp;
    return status;
}

static shoal_status cut_layers(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status;
    struct shoali_engine_stages *stages = &engine->stages;
    const struct shoali_module *module = &engine->module;
    struct shoali_partition_args cut = {.stages = stages->count,
                                        .chunks = stages->args.chunks,
                                        .layer_count = module->layer_count,
                                        .first = args->first_stage_layers,
                                        .last = args->last_stage_layers,
                                        .embedding = args->account_for_embedding,
                                        .loss = args->account_for_loss};
    struct shoali_partition_layer *layers = allocate(engine, module->layer_count, sizeof *layers);
    if (!layers)
        return SHOAL_ENOMEM;
    for (int32_t l = 0; l < module->layer_count; l++)
        layers[l] = (struct shoali_partition_layer){
            module->layer[l].type->name ? module->layer[l].type->name : "",
            weigh(&module->layer[l])};
    cut.layers = layers;
    const char *method;
    SHOAL_TRY(status, shoali_config_partition(&engine->config, args, &method), done);
    SHOAL_TRY(status, shoali_partition_parse(method, &cut.method, &cut.text), done);
    if (cut.method == SHOALI_PARTITION_FLOPS)
        SHOAL_TRY(status, weigh_by_flops(engine, layers), done);
    SHOAL_TRY(status, shoali_partition_make(&cut, stages->begin), done);
done:
    return status;
}

/* ---- what crosses --------------------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Both passes see the same tensors: the second one's micro-batch begins `samples` later. */
static shoal_status describe_boundary(struct shoal_engine *engine,
                                      struct shoali_stage_boundary *boundary,
                                      const shoal_boundary *left, bool again)
{
    const int64_t samples = engine->step.batch.micro;
    if (left->count > SHOALI_CROSSINGS_MAX)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "a layer at the end of a pipeline stage leaves %d tensors; at most %d "
                          "can go to the next stage: pack them, or end the stage at another layer",
                          (int)left->count, SHOALI_CROSSINGS_MAX);
    if (!again) {
        boundary->count = left->count;
        boundary->crossing = allocate(engine, left->count, sizeof *boundary->crossing);
    }
    if (!boundary->crossing)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < left->count; i++) {
        const struct shoal_tensor *tensor = left->tensor[i];
        struct shoali_crossing *crossing = &boundary->crossing[i];
        for (int32_t d = 0; d < tensor->block.ndim && again; d++)
            crossing->per_sample[d] =
                (tensor->block.offset[d] - crossing->block.offset[d]) / samples;
        if (again)
            continue;
        *crossing = (struct shoali_crossing){.dtype = tensor->dtype,
                                             .shape = tensor->shape,
                                             .needs_grad = tensor->needs_grad,
                                             .same_as = -1,
                                             .at = boundary->bytes,
                                             .gradient_at = boundary->gradient_bytes,
                                             .block = tensor->block,
                                             .columns = tensor->columns,
                                             .sequence_part = tensor->sequence_part};
        for (int32_t k = i; k > 0; k--)
            if (left->tensor[k - 1] == tensor)
                crossing->same_as = k - 1;
        const size_t bytes =
            aligned((size_t)shoal_shape_count(&tensor->shape) * shoal_dtype_bytes(tensor->dtype));
        boundary->bytes += crossing->same_as < 0 ? bytes : 0;
        boundary->gradient_bytes += crossing->same_as < 0 && crossing->needs_grad ? bytes : 0;
    }
    return SHOAL_OK;
}

static shoal_status name_boundary(struct shoal_engine *engine, int32_t index)
{
    struct shoali_stage_boundary *boundary = &engine->stages.boundary[index];
    const char *layer = engine->module.layer[engine->stages.begin[index + 1]].name;
    boundary->forward =
        shoali_arena_printf(&engine->config.arena, "the transfer into layer %s", layer);
    boundary->back = shoali_arena_printf(&engine->config.arena,
                                         "the transfer of the gradient from layer %s", layer);
    return boundary->forward && boundary->back ? SHOAL_OK : SHOAL_ENOMEM;
}

/* The layers of a virtual stage, of a micro-batch without memory. */
static shoal_status visit_stage(struct shoal_engine *engine, struct shoal_tape *tape, int32_t index,
                                shoal_boundary *left)
{
    shoal_status status = SHOAL_OK;
    struct shoali_engine_stages *stages = &engine->stages;
    const int64_t reads = shoali_tape_batch_reads(tape);
    SHOAL_TRY(status,
              shoali_tape_forward_layers(tape, &engine->module, stages->begin[index],
                                         stages->begin[index + 1] - stages->begin[index], left),
              done);
    if (index % stages->count == stages->index)
        stages->chunk[index / stages->count].reads_batch = shoali_tape_batch_reads(tape) > reads;
done:
    return status;
}

static shoal_status visit_boundaries(struct shoal_engine *engine, struct shoal_tape *tape,
                                     bool again)
{
    shoal_status status;
    struct shoali_engine_stages *stages = &engine->stages;
    shoal_boundary left = {0};
    const struct shoali_micro_load load = {.samples = engine->step.batch.micro,
                                           .first_sample = again ? engine->step.batch.micro : 0,
                                           .training = !engine->inference,
                                           .needs_grad = !engine->inference};
    SHOAL_TRY(status, shoali_micro_load(engine, tape, &load), done);
    for (int32_t k = 0; k < virtual_stages(stages); k++) {
        SHOAL_TRY(status, visit_stage(engine, tape, k, &left), done);
        if (k == virtual_stages(stages) - 1)
            break;
        SHOAL_TRY(status, describe_boundary(engine, &stages->boundary[k], &left, again), done);
        if (!again)
            SHOAL_TRY(status, name_boundary(engine, k), done);
    }
    shoali_tape_end(tape);
done:
    return status;
}

/* The whole model says what its layers leave, before most of it is gone. */
static shoal_status find_boundaries(struct shoal_engine *engine)
{
    shoal_status status;
    struct shoali_slot *slot = NULL;
    struct shoal_tape *tape = NULL;
    SHOAL_TRY(status, shoali_slot_create(NULL, 0, &slot), done);
    SHOAL_TRY(status, shoali_engine_create_tape(engine, slot, NULL, true, &tape), done);
    SHOAL_TRY(status, visit_boundaries(engine, tape, false), done);
    SHOAL_TRY(status, visit_boundaries(engine, tape, true), done);
done:
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    return status;
}

/* ---- chunks --------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void make_chunk(struct shoali_engine_stages *stages, int32_t index)
{
    struct shoali_chunk *chunk = &stages->chunk[index];
    const int32_t own = index * stages->count + stages->index;
    chunk->first = stages->begin[own];
    chunk->count = stages->begin[own + 1] - stages->begin[own];
    chunk->in = own > 0 ? &stages->boundary[own - 1] : NULL;
    chunk->out = own < virtual_stages(stages) - 1 ? &stages->boundary[own] : NULL;
    chunk->before = (own + stages->count - 1) % stages->count;
    chunk->behind = (own + 1) % stages->count;
    if (chunk->in) {
        stages->received_bytes = larger(stages->received_bytes, chunk->in->bytes);
        stages->buffer_bytes = larger(stages->buffer_bytes, chunk->in->gradient_bytes);
    }
    if (chunk->out) {
        stages->gradient_bytes = larger(stages->gradient_bytes, chunk->out->gradient_bytes);
        stages->buffer_bytes = larger(stages->buffer_bytes, chunk->out->bytes);
    }
    for (int32_t i = 0; i < 2; i++) {
        const struct shoali_stage_boundary *end = i == 0 ? chunk->in : chunk->out;
        if (end && end->count > stages->most_crossings)
            stages->most_crossings = end->count;
    }
}

/* ---- tied parameters ------------------------------------------------------------------------ */

static bool declares(const struct shoal_layer *layer, const struct shoal_param *param)
{
    for (int32_t i = 0; i < layer->param_count; i++)
        if (layer->param[i] == param)
            return true;
    return false;
}

/* held: [stages]; returns how many hold it. */
static int32_t find_holders(const struct shoal_engine *engine, const struct shoal_param *param,
                            bool *held)
{
    const struct shoali_engine_stages *stages = &engine->stages;
    int32_t count = 0;
    for (int32_t s = 0; s < stages->count; s++)
        held[s] = false;
    for (int32_t k = 0; k < virtual_stages(stages); k++)
        for (int32_t l = stages->begin[k]; l < stages->begin[k + 1]; l++)
            held[k % stages->count] =
                held[k % stages->count] || declares(&engine->module.layer[l], param);
    for (int32_t s = 0; s < stages->count; s++)
        count += held[s];
    return count;
}

/* The communicator of those stages: that of all, one that was made before, or a new one. `sets` are
 * those of the groups that were made. */
static shoal_status find_group(struct shoal_engine *engine, const bool *held, int32_t count,
                               bool *sets, shoal_group **group)
{
    shoal_status status = SHOAL_OK;
    struct shoali_engine_stages *stages = &engine->stages;
    const size_t width = (size_t)stages->count;
    *group = stages->group;
    if (count == stages->count)
        return SHOAL_OK;
    for (int32_t i = 0; i < stages->made_count; i++)
        if (memcmp(sets + (size_t)i * width, held, width * sizeof *held) == 0) {
            *group = stages->made[i];
            return SHOAL_OK;
        }
    const bool own = held[stages->index];
    int32_t before = 0; /* of those stages */
    for (int32_t s = 0; s < stages->index; s++)
        before += held[s];
    const struct shoali_split_args split = {
        .here = SHOAL_HERE, .color = own ? 0 : -1, .key = before, .expected = own ? count : 0};
    *group = NULL;
    SHOAL_TRY(status, shoali_comm_split(stages->group, &split, group), done);
    memcpy(sets + (size_t)stages->made_count * width, held, width * sizeof *held);
    stages->made[stages->made_count++] = *group;
done:
    return status;
}

static shoal_status find_tied(struct shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    struct shoali_engine_stages *stages = &engine->stages;
    const struct shoali_module *module = &engine->module;
    int32_t most = 0;
    for (int32_t i = 0; i < module->param_count; i++)
        most += module->param[i]->uses > 1;
    bool *held = allocate(engine, stages->count, sizeof *held);
    bool *sets = allocate(engine, (int64_t)most * stages->count, sizeof *sets);
    stages->tied = allocate(engine, most, sizeof *stages->tied);
    stages->made = allocate(engine, most, sizeof *stages->made);
    stages->first_stage = allocate(engine, module->param_count, sizeof *stages->first_stage);
    if (!held || !sets || !stages->tied || !stages->made || !stages->first_stage)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < module->param_count; i++) {
        shoal_group *group = NULL;
        if (module->param[i]->uses < 2)
            continue;
        const int32_t count = find_holders(engine, module->param[i], held);
        while (!held[stages->first_stage[i]])
            stages->first_stage[i]++;
        if (count < 2)
            continue;
        SHOAL_TRY(status, find_group(engine, held, count, sets, &group), done);
        stages->tied[stages->tied_count++] =
            (struct shoali_zero_tied){i, held[stages->index] ? group : NULL};
    }
done:
    return status;
}

/* ---- creation ------------------------------------------------------------------------------- */

static shoal_status keep_layers(struct shoal_engine *engine)
{
    struct shoali_engine_stages *stages = &engine->stages;
    const int32_t chunks = stages->args.chunks;
    struct shoali_layer_run *runs = allocate(engine, chunks, sizeof *runs);
    if (!runs)
        return SHOAL_ENOMEM;
    for (int32_t c = 0; c < chunks; c++)
        runs[c] = (struct shoali_layer_run){stages->chunk[c].first, stages->chunk[c].count};
    shoali_recompute_set_runs(&engine->step.recompute, runs, chunks);
    return shoali_module_keep_layers(&engine->module, runs, chunks);
}

shoal_status shoali_stages_partition(struct shoal_engine *engine, const shoal_engine_args *args)
{
    shoal_status status = SHOAL_OK;
    struct shoali_engine_stages *stages = &engine->stages;
    stages->begin = allocate(engine, virtual_stages(stages), sizeof *stages->begin);
    stages->boundary = allocate(engine, virtual_stages(stages), sizeof *stages->boundary);
    stages->chunk = allocate(engine, stages->args.chunks, sizeof *stages->chunk);
    if (!stages->begin || !stages->boundary || !stages->chunk)
        return SHOAL_ENOMEM;
    stages->begin[1] = engine->module.layer_count; /* of the only stage */
    if (stages->count > 1) {
        SHOAL_TRY(status, cut_layers(engine, args), done);
        SHOAL_TRY(status, find_boundaries(engine), done);
        SHOAL_TRY(status, shoali_engine_make_lists(engine), done);
    }
    for (int32_t c = 0; c < stages->args.chunks; c++)
        make_chunk(stages, c);
done:
    return status;
}

shoal_status shoali_stages_join(struct shoal_engine *engine)
{
    shoal_status status;
    struct shoali_engine_stages *stages = &engine->stages;
    if (stages->count == 1)
        return SHOAL_OK;
    SHOAL_TRY(status, shoal_mesh_group(engine->place.mesh, SHOAL_AXIS_PP, &stages->group), done);
    SHOAL_TRY(status, find_tied(engine), done);
    SHOAL_TRY(status, shoali_transfers_split(engine), done);
    SHOAL_TRY(status, keep_layers(engine), done);
done:
    return status;
}

/* ---- zero ----------------------------------------------------------------------------------- */

static bool is_pass(enum shoali_instruction_kind kind, struct shoali_zero_pass *pass)
{
    switch (kind) {
    case SHOALI_DO_FORWARD:
        pass->kind = SHOALI_ZERO_FORWARD;
        return true;
    case SHOALI_DO_BACKWARD:
        pass->kind = SHOALI_ZERO_BACKWARD;
        return true;
    case SHOALI_DO_BACKWARD_INPUT:
        pass->kind = SHOALI_ZERO_BACKWARD_INPUT;
        return true;
    case SHOALI_DO_BACKWARD_WEIGHT:
        pass->kind = SHOALI_ZERO_BACKWARD_WEIGHT;
        return true;
    default:
        return false;
    }
}

shoal_status shoali_stages_describe(struct shoal_engine *engine, struct shoali_zero_args *args)
{
    struct shoali_engine_stages *stages = &engine->stages;
    const struct shoali_instructions *made = &engine->step.train_list;
    if (stages->count == 1)
        return SHOAL_OK;
    stages->pass = allocate(engine, made->count, sizeof *stages->pass);
    if (!stages->pass)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < made->count; i++) {
        struct shoali_zero_pass *pass = &stages->pass[stages->pass_count];
        const struct shoali_chunk *chunk = &stages->chunk[made->list[i].chunk];
        pass->first = chunk->first;
        pass->count = chunk->count;
        stages->pass_count += is_pass(made->list[i].kind, pass);
    }
    args->pipeline = (struct shoali_zero_pipeline){.stage = stages->index,
                                                   .stages = stages->count,
                                                   .pass = stages->pass,
                                                   .pass_count = stages->pass_count,
                                                   .tied = stages->tied,
                                                   .tied_count = stages->tied_count};
    return SHOAL_OK;
}

/* ---- memory --------------------------------------------------------------------------------- */

shoal_status shoali_stages_place(struct shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    struct shoali_engine_stages *stages = &engine->stages;
    if (stages->count == 1)
        return SHOAL_OK;
    const size_t slot = stages->received_bytes + stages->gradient_bytes;
    const int32_t train = engine->step.train_list.buffers, eval = engine->step.eval_list.buffers;
    stages->buffer_count = train > eval ? train : eval;
    stages->memory_bytes = (size_t)engine->step.micro_count * slot +
                           (size_t)stages->buffer_count * stages->buffer_bytes;
    SHOAL_TRY(status,
              shoali_device_alloc(engine->device, stages->memory_bytes, (void **)&stages->memory),
              done);
    for (int32_t i = 0; i < engine->step.micro_count; i++) {
        struct shoali_micro *micro = &engine->step.micro[i];
        micro->received = stages->memory + (size_t)i * slot;
        micro->gradient = micro->received + stages->received_bytes;
        micro->in = allocate(engine, stages->most_crossings, sizeof *micro->in);
        micro->out = allocate(engine, stages->most_crossings, sizeof *micro->out);
        if (!micro->in || !micro->out)
            return SHOAL_ENOMEM;
    }
    SHOAL_TRY(status, shoali_transfers_init(engine), done);
done:
    return status;
}

shoal_status shoali_stages_counters(const struct shoal_engine *engine,
                                    struct shoali_comm_counters *counters)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_engine_stages *stages = &engine->stages;
    SHOAL_TRY(status, shoali_comm_add_counters(stages->group, counters), done);
    for (int32_t i = 0; i < stages->made_count; i++)
        SHOAL_TRY(status, shoali_comm_add_counters(stages->made[i], counters), done);
    for (int32_t i = 0; i < SHOALI_TRANSFER_GROUPS; i++)
        SHOAL_TRY(status, shoali_comm_add_counters(stages->transfers.group[i], counters), done);
done:
    return status;
}

void shoali_stages_fini(struct shoal_engine *engine)
{
    struct shoali_engine_stages *stages = &engine->stages;
    shoali_transfers_fini(engine);
    if (stages->memory)
        shoali_device_free(engine->device, stages->memory);
    for (int32_t i = stages->made_count; i > 0; i--)
        shoal_comm_destroy(stages->made[i - 1]);
}
