/* shoal plan: what a training will need, for any number of ranks, without running it. */
#include "plan/plan.h"
#include "tool.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

/* ---- computing ------------------------------------------------------------------------------ */

shoal_plan_args plan_args_of(const struct planning *planning, int32_t world)
{
    const struct mesh_flags *mesh = &planning->options.mesh;
    return (shoal_plan_args){.world_size = world,
                             .prefetches = true,
                             .dataset_bytes = planning->dataset_bytes,
                             .lean_model = planning->setup.lean,
                             .lean_model_flag = planning->setup.lean_flag,
                             .tensor = (int32_t)mesh->tensor,
                             .context = (int32_t)mesh->context,
                             .expert = (int32_t)mesh->expert,
                             .pipeline = (int32_t)mesh->pipeline,
                             .expert_tensor = (int32_t)mesh->expert_tensor,
                             .order = mesh->pipeline_before_data ? "tp-cp-ep-pp-dp" : NULL,
                             .ranks_per_machine = (int32_t)planning->own.ranks_per_node};
}

shoal_status plan_choose_limit(const struct planning *planning, int32_t world,
                               shoal_plan_limit *limit)
{
    int64_t bytes;
    shoal_plan_rates rates;
    const struct plan_options *own = &planning->own;
    if (!own->memory_limit && own->cluster)
        return shoal_cluster_find(own->cluster, &rates, limit);
    if (!own->memory_limit)
        return shoal_plan_get_limit(NULL,
                                    own->ranks_per_node > 0 && own->ranks_per_node < world
                                        ? (int32_t)own->ranks_per_node
                                        : world,
                                    limit);
    if (!shoali_parse_bytes(own->memory_limit, &bytes))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--memory-limit \"%s\" is not a size: give bytes, or a number with a "
                          "unit such as 80GiB",
                          own->memory_limit);
    shoal_plan_set_limit(bytes, limit);
    return SHOAL_OK;
}

/* Stages differ in layers and in flight, ranks along tp at its ends: heads and rows may not divide.
 * Ranks along dp hold equal parts. */
static shoal_status plan_kinds(struct planning *planning, const shoal_plan_args *base,
                               struct column *column)
{
    shoal_status status;
    shoal_mesh *mesh = NULL;
    shoal_plan_args args = *base;
    shoal_plan_verdict verdict;
    const int32_t tensor = base->tensor > 1 ? base->tensor : 1;
    const int32_t stages = base->pipeline > 1 ? base->pipeline : 1, edges = tensor > 1 ? 2 : 1;
    SHOAL_TRY(status, mesh_flags_open(&planning->options.mesh, NULL, base->world_size, 0, &mesh),
              done);
    column->kind = shoali_calloc((size_t)(stages * edges), sizeof *column->kind, "plans");
    if (!column->kind) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (; column->kind_count < stages * edges; column->kind_count++) {
        shoal_plan *plan = &column->kind[column->kind_count];
        const int32_t edge = column->kind_count % edges, stage = column->kind_count / edges;
        const int32_t first = shoal_mesh_member(mesh, SHOAL_AXIS_TP, 0, edge * (tensor - 1));
        args.rank = shoal_mesh_member(mesh, SHOAL_AXIS_PP, first, stage);
        SHOAL_TRY(status, shoal_plan_make(&planning->setup.args, &args, plan), done);
        shoal_plan_check(plan, &column->limit, &verdict);
        if (column->kind_count == 0 || verdict.missing_bytes > column->verdict.missing_bytes) {
            column->verdict = verdict;
            column->plan = *plan;
        }
    }
done:
    shoal_mesh_destroy(mesh);
    return status;
}

/* What can be planned and not be predicted is no mistake. */
static void predict(const struct planning *planning, const shoal_plan_args *args,
                    struct column *column)
{
    const shoal_plan_rates *rates = &planning->rates;
    if (rates->flops <= 0 && rates->memory_bytes <= 0)
        return;
    if (shoal_layout_predict(&planning->setup.args, args, rates, &column->predicted) >= 0)
        return;
    column->predicted.step_s = 0;
    snprintf(column->unpredicted, sizeof column->unpredicted, "%s", shoal_error_message());
    shoali_error_clear();
}

static shoal_status plan_column(struct planning *planning, int32_t world, struct column *column)
{
    shoal_status status;
    const shoal_engine_args *engine = &planning->setup.args;
    shoal_plan_args args = plan_args_of(planning, world);
    SHOAL_TRY(status, plan_find_rates(planning, world, false), done);
    SHOAL_TRY(status, plan_draw(planning, world, column), done);
    SHOAL_TRY(status, plan_choose_limit(planning, world, &column->limit), done);
    SHOAL_TRY(status, plan_kinds(planning, &args, column), done);
    shoal_plan_get_time(&column->plan, &planning->rates, &column->time);
    predict(planning, &args, column);
    if (column->verdict.missing_bytes > 0) {
        args.rank = column->plan.rank;
        SHOAL_TRY(status,
                  shoal_plan_suggest(engine, &args, &column->limit, &column->suggestion.plan,
                                     column->suggestion.change, sizeof column->suggestion.change),
                  done);
        shoal_plan_check(&column->suggestion.plan, &column->limit, &column->suggestion.verdict);
        column->suggested = status == SHOAL_OK;
        status = SHOAL_OK;
    }
done:
    return status < 0 ? shoali_error_prefix(status, "--world-size %d", (int)world) : status;
}

static shoal_status prepare(struct planning *planning)
{
    shoal_status status = SHOAL_OK;
    const struct pretrain_options *options = &planning->options;
    const bool given = model_flags_given(&options->model, "vocab-size");
    int64_t vocab_size = options->vocab_size;
    if (vocab_size == 0 && !pretrain_has_data(options))
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: give --vocab-size, or --data-path to count its tokens",
                          planning->name);
    if (pretrain_has_data(options)) {
        struct pretrain_tokenizer own = {0};
        shoal_dataset_info info;
        if (options->hub.client)
            SHOAL_TRY(status,
                      pretrain_hub_tokenizer(options->hub.client, options->load, &own.tokenizer),
                      done);
        status = pretrain_choose_tokenizer(options, true, &own);
        const shoal_dataset_args args = pretrain_data_args(options, &own);
        if (status >= 0)
            status = shoal_dataset_peek(&args, &info);
        shoal_tokenizer_destroy(own.tokenizer);
        SHOAL_TRY(status, status, done);
        planning->dataset_bytes = info.host_bytes;
        vocab_size = given && vocab_size ? vocab_size : info.vocab_size;
    }
    SHOAL_TRY(status, pretrain_make_model(options, vocab_size, &planning->model), done);
    SHOAL_TRY(status, pretrain_setup_init(&planning->setup, options, planning->model, NULL), done);
    mesh_flags_say(&options->mesh, planning->name);
done:
    return status;
}

/* The first number of ranks; where none is given, one replica. */
static int32_t worlds_first(const struct planning *planning)
{
    const struct plan_options *own = &planning->own;
    if (shoali_config_given(&plan_section, own, "world-size"))
        return (int32_t)own->world_size.value[0];
    if (own->nodes > 0)
        return (int32_t)(own->nodes * own->ranks_per_node);
    return (int32_t)(planning->options.mesh.tensor * planning->options.mesh.pipeline);
}

static shoal_status make_plans(struct planning *planning)
{
    shoal_status status;
    const struct shoali_ints *worlds = &planning->own.world_size;
    if (worlds->count < 1 || worlds->count > PLANS_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: --world-size has %d numbers; give 1 to %d",
                          planning->name, (int)worlds->count, PLANS_MAX);
    if ((planning->own.draw || planning->own.search) && worlds->count != 1)
        return SHOAL_FAIL(
            SHOAL_EINVAL, "%s: --%s takes one number of ranks, not %d: give one to --world-size",
            planning->name, planning->own.draw ? "draw" : "search", (int)worlds->count);
    SHOAL_TRY(status, plan_check_draw(planning), done);
    SHOAL_TRY(status, plan_read_cluster(planning), done);
    SHOAL_TRY(status, prepare(planning), done);
    if (planning->own.search)
        return plan_search(planning, worlds_first(planning));
    planning->column = shoali_calloc((size_t)worlds->count, sizeof *planning->column, "plans");
    if (!planning->column) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (; planning->count < worlds->count; planning->count++)
        SHOAL_TRY(status,
                  plan_column(planning,
                              planning->count ? (int32_t)worlds->value[planning->count]
                                              : worlds_first(planning),
                              &planning->column[planning->count]),
                  done);
    SHOAL_TRY(status, plan_write_picture(planning), done);
done:
    return status;
}

static bool all_fit(const struct planning *planning)
{
    if (planning->own.search)
        return planning->layout_fits;
    for (int32_t i = 0; i < planning->count; i++)
        if (planning->column[i].verdict.missing_bytes > 0)
            return false;
    return true;
}

static const char usage[] =
    "usage: shoal plan MODEL --deepspeed_config FILE --world-size N[,N...] [flags]\n\n"
    "Predicts what a training needs on N ranks: memory by kind, communication and FLOPs, and with\n"
    "rates of the machine the time of a step. It says whether the training fits, and which change\n"
    "would make it fit. For a pipeline it shows stages and bubble, as a picture with --draw.\n"
    "Nothing is run or allocated. All flags of `shoal pretrain MODEL` are accepted.\n\n"
    "--search lists the fastest layouts that fit instead. The rates come from flags, from\n"
    "--cluster, or from a measurement of this machine.\n\n"
    "Exit codes: 0 it fits with each number of ranks; 3 it does not; 2 wrong usage or\n"
    "configuration; 1 the answer could not be written.\n\n";
/* Flags of these decide what a plan says. */
static const char *const groups[] = {"plan",        "cluster", "model", "training",
                                     "parallelism", "memory",  NULL};

int tool_plan(int argc, char **argv)
{
    struct planning planning = {0};
    shoal_status status;
    const char *model = NULL;
    int skip = 0;
    shoali_arena_init(&planning.arena);
    SHOAL_TRY(status,
              model_flags_word("shoal plan", argc, argv, &model, &skip, planning.name,
                               sizeof planning.name),
              done);
    struct pretrain_command command = {.name = planning.name,
                                       .model = model,
                                       .any_model = !skip,
                                       .usage = usage,
                                       .groups = groups,
                                       .more = &plan_section,
                                       .more_options = &planning.own};
    pretrain_choose_model(&command, argc - skip, argv + skip);
    status = pretrain_options_init(&planning.options, &command, argc - skip, argv + skip);
    if (status == SHOAL_OK) {
        status = make_plans(&planning);
        if (status == SHOAL_OK && planning.own.search)
            status = plan_show_search(&planning);
        else if (status == SHOAL_OK && planning.own.json)
            status = plan_show_json(&planning);
        else if (status == SHOAL_OK)
            plan_show(&planning);
    }
done:;
    int code = status < 0 ? tool_fail(status) : tool_flush();
    if (code == 0 && !all_fit(&planning))
        code = EXIT_DOES_NOT_FIT;
    for (int32_t i = 0; planning.column && i < planning.own.world_size.count; i++) {
        shoali_free(planning.column[i].kind);
        shoali_free(planning.column[i].stage);
        free(planning.column[i].svg);
    }
    shoali_free(planning.column);
    shoali_free(planning.layout);
    shoali_arena_fini(&planning.arena);
    pretrain_setup_fini(&planning.setup);
    shoal_model_destroy(planning.model);
    pretrain_options_fini(&planning.options);
    return code;
}
