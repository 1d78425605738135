/* layers.c - what each layer costs: a model of one layer of each kind, run without memory. */
#include "autotuning/autotuning.h"

#include "autograd/rows/rows.h"
#include "autograd/tape/tape.h"

#include <stdlib.h>
#include <string.h>

/* One layer while it is watched. */
struct seen {
    struct shoali_layer_cost cost;
    int64_t used_before;  /* of the slot, when its forward began */
    int64_t used_between; /* when its backward began */
    struct shoali_sent sent;
};
struct watch {
    struct seen *layer;
    int32_t layer_count;
    shoal_group *tensor; /* NULL: one rank */
    bool deferring;      /* the backward that runs leaves weight gradients for later */
};

/* ---- watching ------------------------------------------------------------------------------- */

static void read_tensor_group(const struct watch *watch, struct shoali_sent *sent)
{
    struct shoali_comm_counters now;
    *sent = (struct shoali_sent){0};
    if (!watch->tensor)
        return;
    shoali_comm_get_counters(watch->tensor, &now);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        sent->bytes[k] = (double)now.bytes[k];
        sent->calls[k] = (double)now.calls[k];
    }
}

/* Since `before`. */
static void read_tensor_since(const struct watch *watch, const struct shoali_sent *before,
                              struct shoali_sent *sent)
{
    read_tensor_group(watch, sent);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        sent->bytes[k] -= before->bytes[k];
        sent->calls[k] -= before->calls[k];
    }
}

/* A product's two gradients take the same; what has no other part is of weights alone. */
static int64_t weight_share(const struct shoali_node *node, int64_t backward)
{
    if (!node->row->backward_weight || !node->param[0])
        return 0;
    return node->row->backward_input ? backward / 2 : backward;
}

/* What a message reads and writes is in its own time: here is only what its op does besides, such
 * as adding what was there before. */
static int64_t beside_message(const struct shoali_node *node, int64_t bytes)
{
    const bool moves =
        node->row->cost == shoali_cost_move || node->row->cost == shoali_cost_elementwise;
    if (!moves || !(node->row->flags & SHOALI_ROW_COLLECTIVE) || !node->in[0] || !node->out[0])
        return bytes;
    return bytes - (int64_t)node->in[0]->bytes - (int64_t)node->out[0]->bytes;
}

/* Beyond this many FLOPs to a byte an op is bound by arithmetic. */
enum { PRODUCT = 8 };

static void add_nodes(const struct shoal_tape *tape, const struct shoali_scope *scope,
                      struct shoali_layer_cost *cost)
{
    cost->flops_weight = cost->bytes = 0;
    for (int32_t n = scope->first_node; n < tape->node_count; n++) {
        const struct shoali_node *node = tape->node[n];
        int64_t forward = 0, backward = 0, bytes = 0;
        if (!node->row->cost)
            continue;
        node->row->cost(tape, node, &forward, &backward, &bytes);
        bytes = beside_message(node, bytes);
        cost->flops_weight += (double)(node->needs_backward ? weight_share(node, backward) : 0);
        cost->bytes += forward < PRODUCT * bytes ? (double)bytes : 0;
    }
}

/* What a layer keeps is known when the next one begins: by then its inputs are given back. */
static void end_kept(const struct watch *watch, const struct shoal_tape *tape, int32_t next)
{
    if (next == 0)
        return;
    struct seen *before = &watch->layer[next - 1];
    before->cost.kept_bytes =
        (int64_t)shoali_slot_used_bytes(tape->args.slot) - before->used_before;
    before->cost.boundary_bytes = shoali_tape_boundary_bytes(tape);
}

static shoal_status forward_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct watch *watch = user;
    if (!scope->layer || !tape->needs_grad)
        return SHOAL_OK;
    struct seen *layer = &watch->layer[scope->layer->index];
    end_kept(watch, tape, scope->layer->index);
    layer->used_before = (int64_t)shoali_slot_used_bytes(tape->args.slot);
    layer->cost.work_bytes = 0;
    read_tensor_group(watch, &layer->sent);
    (void)shoali_slot_take_high(tape->args.slot);
    return SHOAL_OK;
}

static shoal_status forward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct watch *watch = user;
    if (!tape->needs_grad)
        return SHOAL_OK;
    if (!scope->layer) {
        for (int32_t s = scope->parent; s >= 0 && scope->recompute;
             s = tape->scope[s]->scope.parent)
            if (tape->scope[s]->scope.layer)
                watch->layer[tape->scope[s]->scope.layer->index].cost.flops_replay +=
                    (double)scope->flops_forward;
        return SHOAL_OK;
    }
    struct seen *layer = &watch->layer[scope->layer->index];
    layer->cost.flops_forward = (double)scope->flops_forward;
    layer->cost.flops_backward = (double)scope->flops_backward;
    if (scope->recompute || (scope->parent >= 0 && tape->scope[scope->parent]->scope.recompute))
        layer->cost.flops_replay = (double)scope->flops_forward;
    add_nodes(tape, scope, &layer->cost);
    layer->cost.work_bytes = (int64_t)shoali_slot_take_high(tape->args.slot) - layer->used_before;
    read_tensor_since(watch, &layer->sent, &layer->cost.tensor_forward);
    return SHOAL_OK;
}

static shoal_status backward_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct watch *watch = user;
    if (!scope->layer)
        return SHOAL_OK;
    struct seen *layer = &watch->layer[scope->layer->index];
    if (scope->layer->index == watch->layer_count - 1)
        end_kept(watch, tape, watch->layer_count);
    layer->used_between = (int64_t)shoali_slot_used_bytes(tape->args.slot);
    read_tensor_group(watch, &layer->sent);
    (void)shoali_slot_take_high(tape->args.slot);
    return SHOAL_OK;
}

/* Other layers' memory stays as it is meanwhile. */
static void end_deferred(struct seen *layer, const struct shoal_tape *tape, int64_t high)
{
    const int64_t now = (int64_t)shoali_slot_used_bytes(tape->args.slot);
    const int64_t left = layer->cost.kept_bytes + now - layer->used_between;
    layer->cost.deferred_bytes = left > 0 ? left : 0;
    layer->cost.deferred_work_bytes =
        high - (now > layer->used_between ? now : layer->used_between);
}

static shoal_status backward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct watch *watch = user;
    if (!scope->layer)
        return SHOAL_OK;
    struct seen *layer = &watch->layer[scope->layer->index];
    const int64_t most = (int64_t)shoali_slot_take_high(tape->args.slot);
    if (watch->deferring) {
        end_deferred(layer, tape, most);
        return SHOAL_OK;
    }
    const int64_t high = most - layer->used_before;
    if (high > layer->cost.work_bytes)
        layer->cost.work_bytes = high;
    read_tensor_since(watch, &layer->sent, &layer->cost.tensor_backward);
    return SHOAL_OK;
}

/* ---- kinds ---------------------------------------------------------------------------------- */

/* A model of one layer of each kind: the first of its kind stands for all. */
struct kinds {
    shoal_layer_spec *layer;
    int32_t *of; /* [layers of the whole model] */
    int32_t count;
};

static int32_t find_kind(const struct kinds *kinds, const shoal_layer_spec *layer)
{
    for (int32_t k = 0; k < kinds->count; k++)
        if (kinds->layer[k].type == layer->type && kinds->layer[k].config == layer->config)
            return k;
    return kinds->count;
}

/* The first and the last layer are kinds of their own: they are never recomputed. */
static shoal_status find_kinds(const shoal_model *model, struct shoali_arena *arena,
                               struct kinds *kinds)
{
    const size_t count = (size_t)model->layer_count;
    kinds->layer = shoali_arena_alloc(arena, (count + 1) * sizeof *kinds->layer);
    kinds->of = shoali_arena_alloc(arena, (count + 1) * sizeof *kinds->of);
    if (!kinds->layer || !kinds->of)
        return SHOAL_ENOMEM;
    kinds->count = 0;
    for (int32_t l = 0; l < model->layer_count; l++) {
        const bool edge = l == 0 || l == model->layer_count - 1;
        const int32_t kind = edge ? kinds->count : find_kind(kinds, &model->layers[l]);
        if (kind == kinds->count)
            kinds->layer[kinds->count++] = model->layers[l];
        kinds->of[l] = kind;
    }
    return SHOAL_OK;
}

/* ---- running -------------------------------------------------------------------------------- */

/* They are added up, of inner scopes. */
static void forget_replays(struct watch *watch)
{
    for (int32_t l = 0; l < watch->layer_count; l++)
        watch->layer[l].cost.flops_replay = 0;
}

/* The second part of a pipeline's backward apart from the first, as zb-h1 has it. */
static shoal_status run_deferred(struct shoal_engine *engine)
{
    shoal_status status;
    struct shoali_micro *micro = &engine->step.micro[0];
    SHOAL_TRY(status, shoali_zero_micro_begin(engine->zero, 0), done);
    SHOAL_TRY(status, shoali_zero_add_loss(engine->zero, micro->loss->data), done);
    SHOAL_TRY(status, shoali_chunk_backward(micro, engine->stages.chunk, 1.0, NULL, true), done);
    SHOAL_TRY(status, shoali_tape_backward_weight(micro->tape), done);
    shoali_micro_end(micro);
done:
    return status;
}

/* Two micro-batches, forward and backward, the first with weight gradients at its end. */
static shoal_status run(struct shoal_engine *engine, struct watch *watch)
{
    shoal_status status;
    const shoal_batch batch = {.data = engine->step.batch_arrays};
    for (int32_t i = 0; i < engine->model->input_count; i++)
        engine->step.batch_arrays[i] = SHOALI_META_ADDRESS; /* nothing reads it */
    SHOAL_TRY(status, shoal_engine_forward(engine, &batch, NULL), done);
    watch->deferring = true;
    SHOAL_TRY(status, run_deferred(engine), done);
    watch->deferring = false;
    forget_replays(watch);
    SHOAL_TRY(status, shoal_engine_forward(engine, &batch, NULL), done);
    SHOAL_TRY(status, shoal_engine_backward(engine), done);
done:
    return status;
}

static void count_parameters(const struct shoal_engine *engine, struct watch *watch)
{
    bool *seen = calloc((size_t)engine->module.param_count + 1, sizeof *seen);
    for (int32_t l = 0; seen && l < engine->module.layer_count; l++) {
        struct shoali_layer_cost *cost = &watch->layer[l].cost;
        for (int32_t i = 0; i < engine->module.layer[l].param_count; i++) {
            const struct shoal_param *param = engine->module.layer[l].param[i];
            if (!(param->tags & SHOAL_PARAM_FROZEN))
                cost->weight += (double)shoal_param_count(param);
            if (seen[param->index])
                cost->tied_parameters += param->count;
            else
                cost->parameters += param->count;
            cost->whole_parameters +=
                seen[param->index] ? 0 : shoal_shape_count(shoal_param_shape(param));
            seen[param->index] = true;
        }
        cost->type = engine->module.layer[l].type->name;
    }
    free(seen);
}

static void fill(const struct shoal_engine *engine, const struct watch *watch,
                 const struct kinds *kinds, struct shoali_costs *costs)
{
    const bool trains = engine->optimizer.type != NULL;
    costs->inputs_bytes = watch->layer[0].used_before;
    costs->weight_bytes = (double)shoal_dtype_bytes(engine->module.dtype);
    costs->gradient_bytes = engine->config.reduction == SHOALI_REDUCTION_EXACT ? 8 : 4;
    costs->states = trains ? shoali_optimizer_element_states(&engine->optimizer) : 0;
    costs->overlaps = engine->config.zero_optimization.overlap_comm;
    /* between a layer's forward and backward lies everything behind it, twice */
    const double distance = (double)engine->config.zero_optimization.stage3_max_reuse_distance / 2;
    const double live = (double)engine->config.zero_optimization.stage3_max_live_parameters;
    costs->reused = distance < live ? distance : live;
    for (int32_t l = 0; l < costs->layer_count; l++) {
        struct shoali_layer_cost *cost = &costs->layer[l];
        *cost = watch->layer[kinds->of[l]].cost;
        cost->work_bytes -= cost->kept_bytes;
        costs->parameters += cost->whole_parameters;
    }
}

/* The engine's arguments for the model of kinds. */
static void arguments(const struct shoali_settings *settings, const struct shoali_costs_args *args,
                      const shoal_model *model, shoal_mesh *mesh, char *text,
                      shoal_engine_args *engine)
{
    *engine = settings->engine;
    engine->model = model;
    engine->config_path = NULL;
    engine->config_text = text;
    engine->group = NULL;
    engine->mesh = mesh;
    engine->saves = false;
    engine->sequence_parallel = args->sequence_parallel;
    engine->virtual_stages = 0;
    if (!args->as_given) {
        engine->recompute_granularity = args->recompute;
        engine->recompute_method = NULL;
        engine->recompute_num_layers = 0;
        engine->recompute_modules = NULL;
    }
}

static shoal_status watch_engine(const shoal_engine_args *args, struct watch *watch,
                                 const struct kinds *kinds, struct shoali_costs *costs)
{
    shoal_status status;
    struct shoal_engine *engine = NULL;
    const struct shoali_observer observer = {.user = watch,
                                             .forward_begin = forward_begin,
                                             .forward_end = forward_end,
                                             .backward_begin = backward_begin,
                                             .backward_end = backward_end};
    if (args->mesh && shoal_mesh_size(args->mesh, SHOAL_AXIS_TP) > 1)
        SHOAL_TRY(status, shoal_mesh_group(args->mesh, SHOAL_AXIS_TP, &watch->tensor), done);
    SHOAL_TRY(status,
              shoali_engine_make(
                  args, &(struct shoali_engine_making){.meta = true, .watch = &observer}, &engine),
              done);
    SHOAL_TRY(status, run(engine, watch), done);
    count_parameters(engine, watch);
    fill(engine, watch, kinds, costs);
done:
    shoal_engine_destroy(engine);
    return status;
}

shoal_status shoali_costs_make(const struct shoali_settings *settings,
                               const struct shoali_costs_args *args, struct shoali_arena *arena,
                               struct shoali_costs *costs)
{
    shoal_status status;
    struct kinds kinds;
    shoal_group *group = NULL;
    shoal_mesh *mesh = NULL;
    char *text = NULL;
    shoal_engine_args engine;
    const struct shoali_context context = *shoali_context_get();
    struct shoali_logger quiet = {.level = SHOAL_LOG_OFF};
    const shoal_model *whole = settings->engine.model;
    shoal_model model = *whole;
    shoali_context_get()->logger = &quiet; /* what there is to say, the run itself will say */
    shoali_context_get()->page = NULL;
    SHOAL_TRY(status, find_kinds(whole, arena, &kinds), done);
    model.layers = kinds.layer;
    model.layer_count = kinds.count;
    struct watch watch = {.layer_count = kinds.count};
    watch.layer = shoali_arena_alloc(arena, ((size_t)kinds.count + 1) * sizeof *watch.layer);
    *costs = (struct shoali_costs){.layer_count = whole->layer_count, .tensor = args->tensor};
    costs->layer =
        shoali_arena_alloc(arena, ((size_t)whole->layer_count + 1) * sizeof *costs->layer);
    if (!watch.layer || !costs->layer) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    memset(watch.layer, 0, (size_t)kinds.count * sizeof *watch.layer);
    if (args->tensor > 1)
        SHOAL_TRY(status, shoali_comm_create_meta(0, args->tensor, NULL, &group), done);
    SHOAL_TRY(status,
              shoal_mesh_create(&(shoal_mesh_args){.group = group, .tensor = args->tensor}, &mesh),
              done);
    SHOAL_TRY(status,
              shoali_settings_write(
                  settings, -1,
                  &(struct shoali_batch_sizes){2 * args->micro_batch, args->micro_batch, 2}, &text),
              done);
    arguments(settings, args, &model, mesh, text, &engine);
    SHOAL_TRY(status, watch_engine(&engine, &watch, &kinds, costs), done);
done:
    shoal_mesh_destroy(mesh);
    shoal_comm_destroy(group);
    free(text);
    *shoali_context_get() = context;
    return status;
}
