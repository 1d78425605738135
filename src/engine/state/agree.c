/* What ranks must have alike, and when an engine that is being made compares it (comm/facts.h):
 *
 *   configured  by everyone, before the mesh makes groups: keys, arguments, mesh, model
 *   derived     by everyone, before a group or memory comes of it: batch, parameters, pipeline
 *   buckets     by the ranks that hold the same parameters, before their memory (zero/facts.c)
 *   made        along each axis at the end: boundaries, instructions, order of collectives, slots
 *
 * A value that tp or pp divides is compared by the ranks that have the same of it. */
#include "comm/facts.h"
#include "engine/engine.h"
#include "shoal/report.h"

#include <stdio.h>
#include <string.h>

/* ---- tables of numbers ---------------------------------------------------------------------- */

static void put(struct shoali_str *table, int64_t value)
{
    shoali_str_append_bytes(table, (const char *)&value, sizeof value);
}

static void put_real(struct shoali_str *table, double value)
{
    shoali_str_append_bytes(table, (const char *)&value, sizeof value);
}

static void put_text(struct shoali_str *table, const char *text)
{
    shoali_str_append_bytes(table, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void put_shape(struct shoali_str *table, const shoal_shape *shape)
{
    put(table, shape->ndim);
    for (int32_t d = 0; d < shape->ndim; d++)
        put(table, shape->dim[d]);
}

/* ---- configured ----------------------------------------------------------------------------- */

static void add_key(void *facts, const char *path, const char *value)
{
    shoali_facts_add(facts, path, "%s", value);
}

static void add_number(struct shoali_facts *facts, const char *name, int64_t value)
{
    shoali_facts_add(facts, name, "%lld", (long long)value);
}

static void add_text(struct shoali_facts *facts, const char *name, const char *value)
{
    shoali_facts_add(facts, name, "%s", value ? value : "");
}

static void add_str(struct shoali_facts *facts, const char *name, const struct shoali_str *value)
{
    facts->text.failed |= value->failed;
    add_text(facts, name, shoali_str_get(value));
}

static void add_args(const shoal_engine_args *args, struct shoali_facts *facts)
{
    add_number(facts, "inference", args->inference);
    add_number(facts, "saves", args->saves);
    add_number(facts, "override_existing_checkpoint", args->override_existing_checkpoint);
    add_number(facts, "blank_weights", args->blank_weights);
    add_text(facts, "recompute_granularity", args->recompute_granularity);
    add_text(facts, "recompute_method", args->recompute_method);
    add_number(facts, "recompute_num_layers", args->recompute_num_layers);
    struct shoali_str modules = {0};
    for (int32_t i = 0; args->recompute_modules && args->recompute_modules[i]; i++)
        shoali_str_append(&modules, "%s%s", i > 0 ? " " : "", args->recompute_modules[i]);
    add_str(facts, "recompute_modules", &modules);
    shoali_str_fini(&modules);
    add_number(facts, "sequence_parallel", args->sequence_parallel);
    add_number(facts, "no_async_tensor_parallel", args->no_async_tensor_parallel);
    add_text(facts, "pipeline_schedule", args->pipeline_schedule);
    add_number(facts, "virtual_stages", args->virtual_stages);
    add_number(facts, "micro_batch_group", args->micro_batch_group);
    add_text(facts, "partition_method", args->partition_method);
    add_number(facts, "first_stage_layers", args->first_stage_layers);
    add_number(facts, "last_stage_layers", args->last_stage_layers);
    add_number(facts, "account_for_embedding", args->account_for_embedding);
    add_number(facts, "account_for_loss", args->account_for_loss);
    add_number(facts, "no_overlap_p2p", args->no_overlap_p2p);
}

static void add_model(const shoal_model *model, struct shoali_facts *facts)
{
    struct shoali_str table = {0};
    add_text(facts, "model", model->name);
    for (int32_t i = 0; i < model->layer_count; i++) {
        put_text(&table, model->layers[i].type ? model->layers[i].type->name : NULL);
        put_text(&table, model->layers[i].name);
    }
    shoali_facts_add_bytes(facts, "layers", &table, "%d layers", (int)model->layer_count);
    table.length = 0;
    for (int32_t i = 0; i < model->input_count; i++) {
        put_text(&table, model->inputs[i].name);
        put(&table, model->inputs[i].dtype);
        put_shape(&table, &model->inputs[i].sample_shape);
    }
    shoali_facts_add_bytes(facts, "inputs of the model", &table, "%d arrays",
                           (int)model->input_count);
    shoali_str_fini(&table);
}

static shoal_status agree(struct shoal_engine *engine, const struct shoali_facts *facts,
                          shoal_group *group, shoal_status own)
{
    const shoal_status status = shoali_facts_agree(facts, group, engine->place.rank, own);
    engine->failure_agreed = own < 0 || status == SHOAL_EMISMATCH || status == SHOAL_EPEER;
    return status;
}

shoal_status shoali_engine_agree_configured(struct shoal_engine *engine,
                                            const shoal_engine_args *args, shoal_status own)
{
    struct shoali_facts facts = {0};
    char mesh[256];
    engine->place.rank = engine->place.group ? shoal_comm_rank(engine->place.group) : 0;
    if (own >= 0) {
        shoali_facts_add(&facts, "version of Shoal", "%s", shoal_version());
        own = shoali_config_visit(&shoali_ds_section, &engine->config, "", 0, add_key, &facts);
        add_number(&facts, "seed of the run",
                   (int64_t)(args->seed ? args->seed : (uint64_t)engine->config.seed));
        add_text(&facts, "mesh",
                 args->mesh ? shoal_mesh_describe(args->mesh, mesh, sizeof mesh) : NULL);
        add_args(args, &facts);
        add_model(args->model, &facts);
    }
    shoal_status status = agree(engine, &facts, engine->place.group, own);
    if (own >= 0 && status == SHOAL_EMISMATCH) { /* a user's mistake, on all ranks alike */
        char sentence[1024];
        snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s", sentence);
    }
    shoali_facts_fini(&facts);
    return status;
}

/* ---- derived -------------------------------------------------------------------------------- */

static void add_params(const struct shoali_module *module, struct shoali_facts *facts)
{
    struct shoali_str table = {0};
    for (int32_t i = 0; i < module->param_count; i++) {
        const struct shoal_param *param = module->param[i];
        put_text(&table, param->name);
        put_shape(&table, shoal_param_shape(param));
        put(&table, param->init);
        put_real(&table, param->init_a);
        put_real(&table, param->init_b);
        put_real(&table, param->lr_mult);
        put(&table, param->tags);
        put(&table, param->uses);
        put(&table, param->cut_by);
        if (!(param->cut_by & ~SHOAL_AXIS_TP)) /* else ranks of another axis have other shares */
            put(&table, param->alike_count);
    }
    shoali_facts_add_bytes(facts, "parameters", &table, "%d of %lld elements in %s",
                           (int)module->param_count, (long long)module->whole_count,
                           shoal_dtype_name(module->dtype));
    shoali_str_fini(&table);
}

static void add_rules(const struct shoal_engine *engine, struct shoali_facts *facts)
{
    struct shoali_str table = {0};
    const struct shoali_param_rule *rule = engine->param_groups.rule;
    for (int32_t i = 0; rule && i < engine->module.param_count; i++) {
        put(&table, rule[i].optimizer ? rule[i].optimizer - engine->param_groups.group : -1);
        put_real(&table, rule[i].lr_multiplier);
        put_real(&table, rule[i].weight_decay_multiplier);
    }
    shoali_facts_add_bytes(facts, "parameter groups", &table, "%d",
                           (int)engine->param_groups.count);
    shoali_str_fini(&table);
}

static void add_cut(const struct shoali_engine_stages *stages, struct shoali_facts *facts)
{
    struct shoali_str text = {0};
    const int32_t count = stages->count * stages->args.chunks;
    for (int32_t k = 1; stages->begin && k < count; k++)
        shoali_str_append(&text, "%s%d", k > 1 ? " " : "", (int)stages->begin[k]);
    add_str(facts, "first layers of the pipeline stages", &text);
    shoali_str_fini(&text);
}

shoal_status shoali_engine_agree_derived(struct shoal_engine *engine, shoal_status own)
{
    struct shoali_facts facts = {0};
    if (own >= 0) {
        shoali_facts_add(&facts, "batch", "%lld samples, %lld of a micro-batch, %lld accumulated",
                         (long long)engine->step.batch.train, (long long)engine->step.batch.micro,
                         (long long)engine->step.batch.accumulation);
        add_params(&engine->module, &facts);
        add_rules(engine, &facts);
        add_cut(&engine->stages, &facts);
    }
    const shoal_status status = agree(engine, &facts, engine->place.group, own);
    shoali_facts_fini(&facts);
    return status;
}

/* ---- made ----------------------------------------------------------------------------------- */

/* What crosses from stage to stage, as this rank of tp has it. */
static void add_boundaries(const struct shoali_engine_stages *stages, struct shoali_facts *facts)
{
    struct shoali_str table = {0};
    const int32_t count = stages->count * stages->args.chunks - 1;
    for (int32_t k = 0; k < count; k++)
        for (int32_t i = 0; i < stages->boundary[k].count; i++) {
            const struct shoali_crossing *crossing = &stages->boundary[k].crossing[i];
            put(&table, k);
            put(&table, crossing->dtype);
            put(&table, crossing->needs_grad);
            put(&table, crossing->same_as);
            put_shape(&table, &crossing->shape);
        }
    shoali_facts_add_bytes(facts, "tensors between pipeline stages", &table, "%d boundaries",
                           (int)count);
    table.length = 0;
    for (int32_t i = 0; i < stages->tied_count; i++)
        put(&table, stages->tied[i].param);
    shoali_facts_add_bytes(facts, "tied parameters", &table, "%d", (int)stages->tied_count);
    shoali_str_fini(&table);
}

static void add_list(const struct shoali_instructions *list, const char *name,
                     struct shoali_facts *facts)
{
    struct shoali_str table = {0};
    for (int32_t i = 0; i < list->count; i++) {
        const struct shoali_instruction *one = &list->list[i];
        const int64_t words[] = {one->kind, one->micro, one->chunk, one->slot, one->buffer};
        shoali_str_append_bytes(&table, (const char *)words, sizeof words);
    }
    shoali_facts_add_bytes(facts, name, &table, "%d", (int)list->count);
    shoali_str_fini(&table);
}

/* The ranks of this stage: along dp and tp. */
static shoal_status agree_in_stage(struct shoal_engine *engine)
{
    shoal_status status;
    struct shoali_facts facts = {0};
    shoal_group *group = engine->place.data_group;
    if (engine->place.tensor_parallel.ranks > 1)
        SHOAL_TRY(status,
                  shoal_mesh_group(engine->place.mesh, SHOAL_AXIS_DP | SHOAL_AXIS_TP, &group),
                  done);
    add_list(&engine->step.train_list, "instructions of a step", &facts);
    add_list(&engine->step.eval_list, "instructions of an evaluation", &facts);
    add_number(&facts, "micro-batches in flight", engine->step.micro_count);
    shoali_facts_add(&facts, "order of gathers and sums", "%016llx",
                     (unsigned long long)shoali_zero_order(engine->zero));
    status = agree(engine, &facts, group, SHOAL_OK);
done:
    shoali_facts_fini(&facts);
    return status;
}

/* Ranks along dp have the same share of everything. */
static shoal_status agree_on_memory(struct shoal_engine *engine)
{
    struct shoali_facts facts = {0};
    const struct shoali_micro_cost *cost = &engine->step.micro_cost;
    add_number(&facts, "bytes of a micro-batch's activations", cost->slot_bytes);
    add_number(&facts, "bytes of kept activations", cost->kept_bytes);
    add_number(&facts, "FLOPs of a forward pass", cost->flops_forward);
    add_number(&facts, "FLOPs of a backward pass", cost->flops_backward);
    add_number(&facts, "FLOPs of recomputation", cost->flops_replay);
    add_number(&facts, "bytes of transfers", (int64_t)engine->stages.memory_bytes);
    const shoal_status status = agree(engine, &facts, engine->place.data_group, SHOAL_OK);
    shoali_facts_fini(&facts);
    return status;
}

shoal_status shoali_engine_agree_made(struct shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    struct shoali_facts facts = {0};
    if (engine->stages.count > 1) {
        add_boundaries(&engine->stages, &facts);
        SHOAL_TRY(status, agree(engine, &facts, engine->stages.group, SHOAL_OK), done);
    }
    SHOAL_TRY(status, agree_in_stage(engine), done);
    SHOAL_TRY(status, agree_on_memory(engine), done);
done:
    shoali_facts_fini(&facts);
    return status;
}
