/* Creation, and what the tape's scopes set in motion. */
#include "zero/mics.h"
#include "zero/parts.h"

/* ---- the calls of a step -------------------------------------------------------------------- */

double shoali_zero_seed(struct shoali_zero *zero, double loss_scale)
{
    if (zero->wire.scaled)
        zero->wire.scaled(zero->wire.user, loss_scale);
    return zero->setup.args.exact ? loss_scale : loss_scale / (double)zero->setup.args.gas;
}

shoal_status shoali_zero_add_loss(struct shoali_zero *zero, const float *loss)
{
    return shoali_zero_clip_add_loss(&zero->clip, loss);
}

shoal_status shoali_zero_micro_begin(struct shoali_zero *zero, int64_t index)
{
    shoal_status status = SHOAL_OK;
    zero->weights.micro = index;
    if (index == 0)
        SHOAL_TRY(status, shoali_zero_clip_begin(&zero->clip), done);
    SHOAL_TRY(status, shoali_zero_gradients_micro(&zero->gradients, index), done);
done:
    return status;
}

shoal_status shoali_zero_reduce(struct shoali_zero *zero, double loss_scale, uint32_t asks,
                                struct shoali_zero_verdict *verdict)
{
    shoal_status status;
    if (!zero->summed)
        SHOAL_TRY(status, shoali_zero_gradients_sum(&zero->gradients, &zero->factor), done);
    zero->summed = false;
    SHOAL_TRY(status, shoali_zero_clip_decide(&zero->clip, loss_scale, zero->factor, asks, verdict),
              done);
    if (zero->wire.stepped)
        zero->wire.stepped(zero->wire.user, verdict->overflow);
done:
    return shoali_zero_share_failure(&zero->setup, status);
}

shoal_status shoali_zero_reduce_tied(struct shoali_zero *zero)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_zero_gradients_sum(&zero->gradients, &zero->factor), done);
    SHOAL_TRY(status, shoali_zero_gradients_sum_tied(&zero->gradients), done);
    zero->summed = true;
done:
    return shoali_zero_share_failure(&zero->setup, status);
}

shoal_status shoali_zero_step(struct shoali_zero *zero, const struct shoali_zero_now *now)
{
    return shoali_zero_share_failure(&zero->setup, shoali_zero_masters_step(&zero->masters, now));
}

shoal_status shoali_zero_masters_changed(struct shoali_zero *zero)
{
    return shoali_zero_share_failure(&zero->setup, shoali_zero_masters_step(&zero->masters, NULL));
}

shoal_status shoali_zero_idle_forward(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const int32_t layers = zero->setup.args.module->layer_count;
    for (int32_t i = 0; i < layers && zero->setup.fetches; i++) {
        if (!zero->setup.args.module->layer[i].here)
            continue;
        shoali_zero_clip_note_scope(&zero->clip, i);
        SHOAL_TRY(status, shoali_zero_weights_enter(&zero->weights, i), done);
        shoali_zero_weights_leave(&zero->weights, i);
    }
done:
    return shoali_zero_share_failure(&zero->setup, status);
}

shoal_status shoali_zero_counters(struct shoali_zero *zero, struct shoali_comm_counters *counters)
{
    return shoali_zero_jobs_counters(&zero->jobs, counters);
}

/* ---- the observer --------------------------------------------------------------------------- */

static shoal_status forward_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct shoali_zero *zero = user;
    (void)tape;
    if (!scope->layer)
        return SHOAL_OK;
    shoali_zero_clip_note_scope(&zero->clip, scope->layer->index);
    return shoali_zero_share_failure(
        &zero->setup, shoali_zero_weights_enter(&zero->weights, scope->layer->index));
}

static shoal_status forward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct shoali_zero *zero = user;
    (void)tape;
    if (scope->layer)
        shoali_zero_weights_leave(&zero->weights, scope->layer->index);
    return SHOAL_OK;
}

static shoal_status backward_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero *zero = user;
    (void)tape;
    if (!scope->layer)
        return SHOAL_OK;
    const int32_t layer = scope->layer->index;
    const int32_t position = shoali_zero_backward_position(&zero->weights, layer);
    if (zero->setup.stage >= 2 || zero->setup.fetches)
        shoali_zero_clip_note_scope(&zero->clip, position);
    if (zero->setup.fetches)
        SHOAL_TRY(status, shoali_zero_weights_enter(&zero->weights, position), done);
    SHOAL_TRY(status, shoali_zero_gradients_begin(&zero->gradients, layer), done);
done:
    return shoali_zero_share_failure(&zero->setup, status);
}

static shoal_status backward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct shoali_zero *zero = user;
    (void)tape;
    if (scope->layer)
        shoali_zero_weights_leave(
            &zero->weights, shoali_zero_backward_position(&zero->weights, scope->layer->index));
    return SHOAL_OK;
}

static shoal_status replay_begin(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct shoali_zero *zero = user;
    (void)tape;
    return shoali_zero_share_failure(
        &zero->setup, shoali_zero_weights_replay(&zero->weights, scope->layer->index));
}

static shoal_status replay_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct shoali_zero *zero = user;
    (void)tape;
    shoali_zero_weights_replayed(&zero->weights, scope->layer->index);
    return SHOAL_OK;
}

static shoal_status grad_ready(void *user, struct shoal_tape *tape, struct shoal_param *param)
{
    struct shoali_zero *zero = user;
    return shoali_zero_share_failure(
        &zero->setup, shoali_zero_gradients_ready(&zero->gradients, param->index,
                                                  shoali_tape_declared(tape, param)));
}

static void watch(struct shoali_zero *zero)
{
    zero->observer = (struct shoali_observer){.user = zero};
    if (zero->setup.fetches) {
        zero->observer.forward_begin = forward_begin;
        zero->observer.forward_end = forward_end;
        zero->observer.backward_end = backward_end;
        zero->observer.replay_begin = replay_begin;
        zero->observer.replay_end = replay_end;
    }
    if (zero->setup.args.optimizer) {
        zero->observer.backward_begin = backward_begin;
        zero->observer.grad_ready = grad_ready;
    }
}

const struct shoali_observer *shoali_zero_observer(struct shoali_zero *zero)
{
    return &zero->observer;
}

/* ---- the pool, before the first step -------------------------------------------------------- */

/* How often a layer declares a parameter among its first `count` ones. */
static int32_t count_declared(const struct shoal_layer *layer, const struct shoal_param *param,
                              int32_t count)
{
    int32_t declared = 0;
    for (int32_t i = 0; i < count; i++)
        declared += layer->param[i] == param;
    return declared;
}

/* Of layer `index` of a backward: the parameters that none of the layers before it declares have
 * come now, from all that do. */
static shoal_status plan_ready(struct shoali_zero *zero, const struct shoali_zero_pass *pass,
                               int32_t index)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = zero->setup.args.module;
    const struct shoal_layer *layer = &module->layer[index];
    for (int32_t i = 0; i < layer->param_count; i++) {
        const struct shoal_param *param = layer->param[i];
        int32_t earlier = count_declared(layer, param, i);
        int32_t declared = count_declared(layer, param, layer->param_count);
        for (int32_t l = pass->first; l < pass->first + pass->count && param->uses > 1; l++) {
            const struct shoal_layer *other = &module->layer[l];
            const int32_t more = l == index ? 0 : count_declared(other, param, other->param_count);
            declared += more;
            earlier += l < index ? more : 0;
        }
        if (earlier == 0 && !(param->tags & SHOAL_PARAM_FROZEN))
            SHOAL_TRY(status, shoali_zero_gradients_ready(&zero->gradients, param->index, declared),
                      done);
    }
done:
    return status;
}

/* What a scope of a pass sets in motion. */
static shoal_status plan_layer(struct shoali_zero *zero, const struct shoali_zero_pass *pass,
                               int32_t layer)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_weights *weights = &zero->weights;
    const bool forward = pass->kind == SHOALI_ZERO_FORWARD;
    const bool scope = zero->setup.fetches && pass->kind != SHOALI_ZERO_BACKWARD_WEIGHT;
    const bool sums = zero->setup.stage >= 2 && !forward;
    const int32_t position = forward ? layer : shoali_zero_backward_position(weights, layer);
    if (scope)
        SHOAL_TRY(status, shoali_zero_weights_enter(weights, position), done);
    if (sums && pass->kind != SHOALI_ZERO_BACKWARD_WEIGHT)
        SHOAL_TRY(status, shoali_zero_gradients_begin(&zero->gradients, layer), done);
    if (sums && pass->kind != SHOALI_ZERO_BACKWARD_INPUT)
        SHOAL_TRY(status, plan_ready(zero, pass, layer), done);
    if (scope)
        shoali_zero_weights_leave(weights, position);
done:
    return status;
}

/* Walks the scopes of a pass without sending. */
static shoal_status plan_pass(struct shoali_zero *zero, const struct shoali_zero_pass *pass)
{
    shoal_status status = SHOAL_OK;
    const int32_t end = pass->first + pass->count;
    for (int32_t l = pass->first; l < end && pass->kind == SHOALI_ZERO_FORWARD; l++)
        SHOAL_TRY(status, plan_layer(zero, pass, l), done);
    if (pass->kind == SHOALI_ZERO_FORWARD)
        return SHOAL_OK;
    if (pass->kind != SHOALI_ZERO_BACKWARD_WEIGHT) /* as micro_begin does */
        SHOAL_TRY(status, shoali_zero_gradients_micro(&zero->gradients, zero->weights.micro), done);
    for (int32_t l = end - 1; l >= pass->first; l--)
        SHOAL_TRY(status, plan_layer(zero, pass, l), done);
    zero->weights.micro += pass->kind != SHOALI_ZERO_BACKWARD_WEIGHT;
done:
    return status;
}

/* Two micro-batches are as good as many, where one comes after the other. */
static shoal_status plan_step(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_args *args = &zero->setup.args;
    const int32_t layers = args->module->layer_count;
    const struct shoali_zero_pass each[] = {{SHOALI_ZERO_FORWARD, 0, layers},
                                            {SHOALI_ZERO_BACKWARD, 0, layers}};
    const int32_t times = args->gas > 1 && !args->pipeline.pass ? 2 : 1;
    const struct shoali_zero_pass *pass = args->pipeline.pass ? args->pipeline.pass : each;
    const int32_t count = args->pipeline.pass ? args->pipeline.pass_count : 2;
    for (int32_t t = 0; t < times; t++)
        for (int32_t i = 0; i < count; i++)
            SHOAL_TRY(status, plan_pass(zero, &pass[i]), done);
done:
    return status;
}

/* Of layers that this rank runs, each once. */
static shoal_status plan_evaluation(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = zero->setup.args.module;
    for (int32_t l = 0; l < module->layer_count; l++)
        if (module->layer[l].here)
            SHOAL_TRY(status,
                      plan_pass(zero, &(struct shoali_zero_pass){SHOALI_ZERO_FORWARD, l, 1}), done);
done:
    return status;
}

void shoali_zero_set_accumulation(struct shoali_zero *zero, int64_t gas)
{
    /* each micro-batch has as many passes as any other */
    zero->setup.passes = zero->setup.passes / zero->setup.args.gas * gas;
    zero->setup.args.gas = gas;
    zero->setup.mean_of = gas * zero->setup.data_ranks;
}

/* A step, then an evaluation: the buffers of both exist before the first step. */
static shoal_status make_pool(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    struct shoali_zero_weights *weights = &zero->weights;
    const struct shoali_zero_args *args = &zero->setup.args;
    if (zero->setup.stage < 2 && !zero->setup.fetches)
        return SHOAL_OK;
    weights->planning = zero->gradients.planning = true;
    weights->micro = 0;
    if (args->optimizer)
        SHOAL_TRY(status, plan_step(zero), done);
    for (int32_t p = 0; p < 2; p++)
        SHOAL_TRY(status, plan_evaluation(zero), done);
    shoali_zero_weights_release(weights);
    if (args->optimizer)
        SHOAL_TRY(status, shoali_zero_gradients_settle(&zero->gradients), done);
done:
    weights->planning = zero->gradients.planning = false;
    weights->micro = 0;
    return status;
}

/* ---- creation ------------------------------------------------------------------------------- */

static struct shoali_zero_group make_group(const struct shoali_zero_setup *setup,
                                           const shoal_group *group)
{
    struct shoali_zero_group cut = {.size = group ? shoal_comm_size(group) : 1,
                                    .rank = group ? shoal_comm_rank(group) : 0};
    cut.parts = shoali_zero_mics_parts(setup, cut.size);
    cut.seat = cut.rank % cut.parts;
    cut.replicas = cut.size / cut.parts;
    cut.replica = cut.rank / cut.parts;
    return cut;
}

/* The smaller of the two sizes that are given. */
static int64_t message_size(const struct shoali_zero_setup *setup)
{
    const int64_t reduce = setup->args.reduce_bucket_size;
    const int64_t gather = setup->args.allgather_bucket_size;
    if (setup->stage == 0 && !setup->fetches)
        return 0;
    return reduce > 0 && (gather == 0 || reduce < gather) ? reduce : gather;
}

static shoal_status lay_out(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_zero_setup *setup = &zero->setup;
    const struct shoali_zero_args *args = &setup->args;
    struct shoali_zero_group *group =
        shoali_calloc((size_t)args->cut_count + 1, sizeof *group, "groups of zero");
    bool *alone = shoali_calloc((size_t)args->module->param_count + 1, sizeof *alone, "tied ones");
    if (!group || !alone)
        goto done;
    for (int32_t i = 0; i < args->pipeline.tied_count; i++)
        alone[args->pipeline.tied[i].param] = true;
    group[0] = make_group(setup, args->group);
    for (int32_t g = 1; g <= args->cut_count; g++)
        group[g] = make_group(setup, args->cuts[g - 1]);
    SHOAL_TRY(
        status,
        shoali_zero_layout_init(&zero->layout,
                                &(struct shoali_zero_layout_args){
                                    .module = args->module,
                                    .group = group,
                                    .group_count = args->cut_count + 1,
                                    .group_of = args->cut_of,
                                    .alone = alone,
                                    .elsewhere = args->counted_elsewhere,
                                    .per_layer = setup->stage >= 2 || setup->fetches,
                                    .parts_only = setup->fetches,
                                    .trains = args->optimizer != NULL,
                                    .optimizer = args->optimizer,
                                    .rule = args->rule,
                                    .granularity = setup->stage == 3 ? args->fetch.granularity : 0,
                                    .message_size = message_size(setup)}),
        done);
done:
    shoali_free(group);
    shoali_free(alone);
    return status;
}

/* Who stands on whom. */
static void connect(struct shoali_zero *zero)
{
    zero->pool = (struct shoali_zero_pool){.setup = &zero->setup};
    zero->weights = (struct shoali_zero_weights){.setup = &zero->setup,
                                                 .layout = &zero->layout,
                                                 .jobs = &zero->jobs,
                                                 .pool = &zero->pool,
                                                 .wire = &zero->wire,
                                                 .store = &zero->store};
    zero->clip = (struct shoali_zero_clip){.setup = &zero->setup,
                                           .layout = &zero->layout,
                                           .gradients = &zero->gradients,
                                           .divisor = 1.0};
    zero->gradients = (struct shoali_zero_gradients){.setup = &zero->setup,
                                                     .layout = &zero->layout,
                                                     .jobs = &zero->jobs,
                                                     .pool = &zero->pool,
                                                     .wire = &zero->wire};
    zero->masters = (struct shoali_zero_masters){.setup = &zero->setup,
                                                 .layout = &zero->layout,
                                                 .gradients = &zero->gradients,
                                                 .clip = &zero->clip,
                                                 .weights = &zero->weights,
                                                 .outside = &zero->outside,
                                                 .tensors = &zero->tensors};
    zero->tensors = (struct shoali_zero_tensors){.setup = &zero->setup,
                                                 .layout = &zero->layout,
                                                 .jobs = &zero->jobs,
                                                 .outside = &zero->outside};
}

static shoal_status make_training(struct shoali_zero *zero)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_zero_clip_init(&zero->clip), done);
    zero->gradients.flag = zero->clip.param_flag;
    SHOAL_TRY(status, shoali_zero_gradients_init(&zero->gradients), done);
done:
    return status;
}

/* All of creation that is collective. */
static shoal_status place(struct shoali_zero *zero)
{
    shoal_status status;
    const struct shoali_zero_args *args = &zero->setup.args;
    connect(zero);
    SHOAL_TRY(status, shoali_zero_jobs_init(&zero->jobs, &zero->setup, &zero->layout), done);
    zero->wire = shoali_zero_wire_plain(args->all_reduce);
    SHOAL_TRY(
        status,
        shoali_zero_quantized_init(&zero->quantized, &zero->setup, &zero->layout, &zero->wire),
        done);
    SHOAL_TRY(status, shoali_zero_weights_init(&zero->weights), done);
    SHOAL_TRY(status, shoali_zero_masters_init(&zero->masters), done);
    if (args->optimizer)
        SHOAL_TRY(status, make_training(zero), done);
    SHOAL_TRY(status, shoali_zero_tensors_init(&zero->tensors), done);
    SHOAL_TRY(status, shoali_zero_outside_init(&zero->outside), done);
    if (args->offload.param != SHOALI_ZERO_DEVICE)
        SHOAL_TRY(
            status,
            shoali_zero_param_store_init(&zero->store, zero->outside.host, zero->outside.meta),
            done);
    watch(zero);
    SHOAL_TRY(status, make_pool(zero), done);
    SHOAL_TRY(status, shoali_zero_masters_initialise(&zero->masters), done);
    SHOAL_TRY(status, shoali_zero_masters_step(&zero->masters, NULL), done);
done:
    return status;
}

/* What each rank does for itself. */
static shoal_status divide(struct shoali_zero *zero)
{
    shoal_status status;
    SHOAL_TRY(status, lay_out(zero), done);
    SHOAL_TRY(status, shoali_zero_outside_plan(&zero->outside, &zero->setup, &zero->layout), done);
    SHOAL_TRY(status, shoali_zero_param_store_plan(&zero->store, &zero->setup, &zero->layout),
              done);
done:
    return status;
}

shoal_status shoali_zero_create(const struct shoali_zero_args *args, struct shoali_zero **zero_out)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_zero *zero = shoali_calloc(1, sizeof *zero, "zero");
    if (!zero)
        return status;
    SHOAL_TRY(status, shoali_zero_setup_init(&zero->setup, args), done);
    SHOAL_TRY(status, shoali_zero_agree(zero, divide(zero)), done);
    SHOAL_TRY(status, shoali_zero_share_failure(&zero->setup, place(zero)), done);
    zero->setup.args.cuts = NULL;
    zero->setup.args.cut_of = NULL;
    zero->setup.args.counted_elsewhere = NULL;
    zero->setup.args.pipeline.pass = NULL;
done:
    if (status < 0) {
        shoali_zero_destroy(zero);
        zero = NULL;
    }
    *zero_out = zero;
    return status;
}

/* Shared memory goes on all ranks in one order: that which was made last first. */
void shoali_zero_destroy(struct shoali_zero *zero)
{
    if (!zero)
        return;
    shoali_side_stream_stop(&zero->jobs.side);
    shoali_zero_outside_stop(&zero->outside);
    shoali_zero_pool_fini(&zero->pool);
    shoali_zero_param_store_fini(&zero->store);
    shoali_zero_outside_fini(&zero->outside);
    shoali_zero_gradients_fini(&zero->gradients);
    shoali_zero_clip_fini(&zero->clip);
    shoali_zero_tensors_fini(&zero->tensors);
    shoali_zero_snapshot_fini(zero->masters.snapshot);
    shoali_zero_masters_fini(&zero->masters);
    shoali_zero_weights_fini(&zero->weights);
    shoali_zero_quantized_fini(&zero->quantized);
    shoali_zero_jobs_fini(&zero->jobs);
    shoali_zero_layout_fini(&zero->layout);
    shoali_free(zero);
}
