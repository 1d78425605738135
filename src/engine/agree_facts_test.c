/* Each fact that ranks compare when they make an engine (engine/state/agree.c, zero/facts.c): rank
 * 1 changes one bit of it, and all ranks name it. Most of them follow from what was compared
 * before, so that only a change from outside makes them differ. */
#include "engine/state/state.h"
#include "engine/test_gpt.h"
#include "zero/parts.h"

enum { FACTS_MAX = 96 };

/* Two ranks, that hold the same or are two stages. */
enum { CONFIGURED, DERIVED, MADE, ZERO };
struct fact {
    int when;
    void *place; /* whose lowest bit is changed */
    const char *name;
};

static struct gpt_seat seats[GPT_RANKS_MAX];

static void add(struct fact **to, int when, const void *place, const char *name)
{
    *(*to)++ = (struct fact){when, (void *)(uintptr_t)place, name};
}

/* What the program gave, with texts of this rank's own. */
struct given {
    char granularity[8], method[8], module[8], schedule[8], partition[8];
    const char *modules[2];
    shoal_engine_args args;
};

static void give(struct given *given, const shoal_model *model)
{
    memset(given, 0, sizeof *given);
    given->granularity[0] = given->method[0] = given->module[0] = 'a';
    given->schedule[0] = given->partition[0] = 'a';
    given->modules[0] = given->module;
    given->args = (shoal_engine_args){.model = model,
                                      .seed = 7,
                                      .recompute_granularity = given->granularity,
                                      .recompute_method = given->method,
                                      .recompute_modules = given->modules,
                                      .pipeline_schedule = given->schedule,
                                      .partition_method = given->partition};
}

static void add_given(const struct given *given, struct fact **to)
{
    const shoal_engine_args *args = &given->args;
    const shoal_model *model = args->model;
    add(to, CONFIGURED, &args->seed, "seed of the run (rank 0: ");
    add(to, CONFIGURED, &args->inference, "inference (rank 0: ");
    add(to, CONFIGURED, &args->saves, "saves (rank 0: ");
    add(to, CONFIGURED, &args->override_existing_checkpoint, "override_existing_checkpoint (");
    add(to, CONFIGURED, &args->blank_weights, "blank_weights (rank 0: ");
    add(to, CONFIGURED, given->granularity, "recompute_granularity (rank 0: ");
    add(to, CONFIGURED, given->method, "recompute_method (rank 0: ");
    add(to, CONFIGURED, &args->recompute_num_layers, "recompute_num_layers (rank 0: ");
    add(to, CONFIGURED, given->module, "recompute_modules (rank 0: ");
    add(to, CONFIGURED, &args->sequence_parallel, "sequence_parallel (rank 0: ");
    add(to, CONFIGURED, &args->no_async_tensor_parallel, "no_async_tensor_parallel (rank 0: ");
    add(to, CONFIGURED, given->schedule, "pipeline_schedule (rank 0: ");
    add(to, CONFIGURED, &args->virtual_stages, "virtual_stages (rank 0: ");
    add(to, CONFIGURED, &args->micro_batch_group, "micro_batch_group (rank 0: ");
    add(to, CONFIGURED, given->partition, "partition_method (rank 0: ");
    add(to, CONFIGURED, &args->first_stage_layers, "first_stage_layers (rank 0: ");
    add(to, CONFIGURED, &args->last_stage_layers, "last_stage_layers (rank 0: ");
    add(to, CONFIGURED, &args->account_for_embedding, "account_for_embedding (rank 0: ");
    add(to, CONFIGURED, &args->account_for_loss, "account_for_loss (rank 0: ");
    add(to, CONFIGURED, &args->no_overlap_p2p, "no_overlap_p2p (rank 0: ");
    add(to, CONFIGURED, &model->inputs[1].dtype, "inputs of the model (rank 0: ");
    add(to, CONFIGURED, model->inputs[1].sample_shape.dim, "inputs of the model (rank 0: ");
}

static void add_parameters(const struct shoal_engine *engine, struct fact **to)
{
    const struct shoal_param *param = engine->module.param[1];
    const struct shoali_param_rule *rule = &engine->param_groups.rule[1];
    static const char name[] = "parameters (rank 0: ", group[] = "parameter groups (rank 0: ";
    add(to, DERIVED, shoal_param_shape(param), name);
    add(to, DERIVED, shoal_param_shape(param)->dim, name);
    add(to, DERIVED, &param->init, name);
    add(to, DERIVED, &param->init_a, name);
    add(to, DERIVED, &param->init_b, name);
    add(to, DERIVED, &param->lr_mult, name);
    add(to, DERIVED, &param->tags, name);
    add(to, DERIVED, &param->uses, name);
    add(to, DERIVED, &param->cut_by, name);
    if (engine->stages.count == 1) /* stages have other shares */
        add(to, DERIVED, &param->alike_count, name);
    add(to, DERIVED, &engine->module.whole_count, name);
    add(to, DERIVED, &rule->lr_multiplier, group);
    add(to, DERIVED, &rule->weight_decay_multiplier, group);
    add(to, DERIVED, &engine->param_groups.count, group);
}

static void add_instructions(const struct shoali_instructions *list, const char *name,
                             struct fact **to)
{
    const struct shoali_instruction *one = &list->list[list->count - 1];
    add(to, MADE, &one->kind, name);
    add(to, MADE, &one->micro, name);
    add(to, MADE, &one->chunk, name);
    add(to, MADE, &one->slot, name);
    add(to, MADE, &one->buffer, name);
}

static void add_memory(const struct shoal_engine *engine, struct fact **to)
{
    const struct shoali_micro_cost *cost = &engine->step.micro_cost;
    add(to, MADE, &engine->step.micro_count, "micro-batches in flight (rank 0: ");
    add(to, MADE, &engine->zero->jobs.order, "order of gathers and sums (rank 0: ");
    add(to, MADE, &cost->slot_bytes, "bytes of a micro-batch's activations (rank 0: ");
    add(to, MADE, &cost->kept_bytes, "bytes of kept activations (rank 0: ");
    add(to, MADE, &cost->flops_forward, "FLOPs of a forward pass (rank 0: ");
    add(to, MADE, &cost->flops_backward, "FLOPs of a backward pass (rank 0: ");
    add(to, MADE, &cost->flops_replay, "FLOPs of recomputation (rank 0: ");
    add(to, MADE, &engine->stages.memory_bytes, "bytes of transfers (rank 0: ");
}

static void add_partitions(const struct shoali_zero_layout *layout, struct fact **to)
{
    static const char unit[] = "units of parameters (rank 0: ", bucket[] = "buckets (rank 0: ";
    SHOAL_ASSERT(layout->unit_count > 2 && layout->bucket_count > 2);
    add(to, ZERO, &layout->unit[1].first_param, unit);
    add(to, ZERO, &layout->unit[1].param_count, unit);
    add(to, ZERO, &layout->unit[1].alike_count, unit);
    add(to, ZERO, &layout->unit[1].group, unit);
    add(to, ZERO, &layout->bucket[1].unit, bucket);
    add(to, ZERO, &layout->bucket[1].count, bucket);
    add(to, ZERO, &layout->bucket[1].part, bucket);
    add(to, ZERO, &layout->group[0].count, bucket);
    add(to, ZERO, &layout->whole_count, "elements of weights and gradients (rank 0: ");
    add(to, ZERO, &layout->part_count, "elements of a rank's part (rank 0: ");
}

static void add_stages(const struct shoali_engine_stages *stages, struct fact **to)
{
    const struct shoali_crossing *crossing = &stages->boundary[0].crossing[0];
    static const char name[] = "tensors between pipeline stages (rank 0: 1 boundaries (digest ";
    add(to, DERIVED, &stages->begin[1], "first layers of the pipeline stages (rank 0: ");
    add(to, MADE, &crossing->dtype, name);
    add(to, MADE, &crossing->needs_grad, name);
    add(to, MADE, &crossing->same_as, name);
    add(to, MADE, &crossing->shape.ndim, name);
    add(to, MADE, crossing->shape.dim, name);
    add(to, MADE, &stages->tied[0].param, "tied parameters (rank 0: 1 (digest ");
}

static shoal_status agree(struct shoal_engine *engine, const struct given *given, int when)
{
    if (when == CONFIGURED) /* a user's mistake */
        return shoali_engine_agree_configured(engine, &given->args, SHOAL_OK);
    return when == DERIVED ? shoali_engine_agree_derived(engine, SHOAL_OK)
           : when == MADE  ? shoali_engine_agree_made(engine)
                           : shoali_zero_agree(engine->zero, SHOAL_OK);
}

static bool change_each(struct gpt_seat *seat)
{
    struct fact fact[FACTS_MAX], *end = fact;
    struct given given;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    struct shoal_engine *engine = seat->engine;
    give(&given, seat->model);
    add_given(&given, &end);
    add(&end, DERIVED, &engine->step.batch.train, "batch (rank 0: ");
    add(&end, DERIVED, &engine->step.batch.micro, "batch (rank 0: ");
    add(&end, DERIVED, &engine->step.batch.accumulation, "batch (rank 0: ");
    add_parameters(engine, &end);
    if (engine->stages.count > 1) {
        add_stages(&engine->stages, &end);
    } else {
        add_instructions(&engine->step.train_list, "instructions of a step (rank 0: ", &end);
        add_instructions(&engine->step.eval_list, "instructions of an evaluation (rank 0: ", &end);
        add_memory(engine, &end);
        add_partitions(&engine->zero->layout, &end);
    }
    for (const struct fact *one = fact; one < end; one++) {
        unsigned char *bit = one->place;
        *bit ^= seat->rank == 1;
        const shoal_status status = agree(engine, &given, one->when);
        const shoal_status expected = one->when == CONFIGURED ? SHOAL_ECONFIG : SHOAL_EMISMATCH;
        if (status != expected || !strstr(shoal_error_message(), one->name))
            fprintf(stderr, "fact %d, %s\n", (int)(one - fact), one->name);
        EXPECT(status == expected && strstr(shoal_error_message(), one->name));
        *bit ^= seat->rank == 1;
        EXPECT(agree(engine, &given, one->when) == SHOAL_OK);
    }
    return gpt_train(seat);
}

static void test_each_fact(void **state)
{
    static const char *const options[] = {"\"zero_optimization\":{\"stage\":2,"
                                          "\"reduce_bucket_size\":500}",
                                          "\"pipeline\":{\"stages\":2}"};
    (void)state;
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++)
        gpt_run_ranks(
            (struct gpt_run){.ranks = 2, .steps = 1, .options = options[o], .run = change_each},
            seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_fact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
