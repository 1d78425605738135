/* shoal plan: what a training will need, for any number of ranks, without running it. */
#include "pretrain.h"
#include "tool.h"

#include "base/json.h"
#include "base/str.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS_MAX = 64, COLUMNS = 6, CELL = 13, EXIT_DOES_NOT_FIT = 3 };

struct plan_options {
    struct shoali_ints world_size;
    const char *memory_limit;
    int64_t ranks_per_node;
    double peak_tflops, memory_bandwidth, network_bandwidth;
    bool json;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
#define O(member) offsetof(struct plan_options, member)
static const struct shoali_option rows[] = {
    {.key = "world-size",
     .type = SHOALI_INTS,
     .offset = O(world_size),
     .default_text = "1",
     .min = 1,
     .max = 1 << 20,
     .unit = "ranks",
     .help = "numbers of ranks to plan for: N[,N...]"},
    {.key = "memory-limit",
     .type = SHOALI_STRING,
     .offset = O(memory_limit),
     .unit = "bytes",
     .help = "device memory of a rank, such as 80GiB; default: this machine's, shared by "
             "--ranks-per-node"},
    {.key = "ranks-per-node",
     .type = SHOALI_INT,
     .offset = O(ranks_per_node),
     .alias = "num_gpus_per_node",
     .min = 0,
     .max = 1 << 20,
     .help = "ranks that share this machine's memory; 0: all"},
    {.key = "peak-tflops",
     .type = SHOALI_FLOAT,
     .offset = O(peak_tflops),
     .min = 0,
     .max = 1e9,
     .help = "arithmetic of a rank, in 10^12 operations per second: gives the time of a step"},
    {.key = "memory-bandwidth",
     .type = SHOALI_FLOAT,
     .offset = O(memory_bandwidth),
     .min = 0,
     .max = 1e9,
     .unit = "GB/s",
     .help = "of a rank's device memory"},
    {.key = "network-bandwidth",
     .type = SHOALI_FLOAT,
     .offset = O(network_bandwidth),
     .min = 0,
     .max = 1e9,
     .unit = "GB/s",
     .help = "what a rank can send"},
    {.key = "json",
     .type = SHOALI_BOOL,
     .offset = O(json),
     .help = "one line of JSON with exact numbers"},
};
static const struct shoali_section section = {.name = "plan",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct plan_options),
                                              .given_offset = O(given)};

/* One number of ranks. */
struct column {
    shoal_plan plan;
    shoal_plan_limit limit;
    shoal_plan_verdict verdict;
    bool suggested;
    struct {
        char change[256];
        shoal_plan plan;
        shoal_plan_verdict verdict;
    } suggestion;
    shoal_plan_time time;
};
struct planning {
    char name[96]; /* "shoal plan gpt" */
    struct pretrain_options options;
    struct plan_options own;
    int64_t dataset_bytes;
    shoal_model *model;
    struct pretrain_setup setup;
    struct column *column;
    int32_t count;
};

/* ---- computing ------------------------------------------------------------------------------ */

/* What a rank may use: --memory-limit, else this machine's share. */
static shoal_status choose_limit(const struct plan_options *own, int32_t world,
                                 shoal_plan_limit *limit)
{
    int64_t bytes;
    if (!own->memory_limit)
        return shoal_plan_get_limit(NULL,
                                    own->ranks_per_node > 0 && own->ranks_per_node < world
                                        ? (int32_t)own->ranks_per_node
                                        : world,
                                    limit);
    if (!shoali_parse_bytes(own->memory_limit, &bytes))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--memory-limit \"%s\" is no amount of memory: give bytes, or a number "
                          "with a unit such as 80GiB",
                          own->memory_limit);
    shoal_plan_set_limit(bytes, limit);
    return SHOAL_OK;
}

static shoal_status plan_column(struct planning *planning, int32_t world, struct column *column)
{
    shoal_status status;
    const struct plan_options *own = &planning->own;
    const shoal_engine_args *engine = &planning->setup.args;
    const shoal_plan_args args = {.world_size = world,
                                  .prefetches = true,
                                  .dataset_bytes = planning->dataset_bytes,
                                  .lean_model = planning->setup.lean,
                                  .lean_model_flag = planning->setup.lean_flag};
    const shoal_plan_rates rates = {.flops = own->peak_tflops * 1e12,
                                    .memory_bytes = own->memory_bandwidth * 1e9,
                                    .network_bytes = own->network_bandwidth * 1e9};
    SHOAL_TRY(status, shoal_plan_make(engine, &args, &column->plan), done);
    SHOAL_TRY(status, choose_limit(own, world, &column->limit), done);
    shoal_plan_judge(&column->plan, &column->limit, &column->verdict);
    shoal_plan_get_time(&column->plan, &rates, &column->time);
    if (column->verdict.missing_bytes > 0) {
        SHOAL_TRY(status,
                  shoal_plan_suggest(engine, &args, &column->limit, &column->suggestion.plan,
                                     column->suggestion.change, sizeof column->suggestion.change),
                  done);
        shoal_plan_judge(&column->suggestion.plan, &column->limit, &column->suggestion.verdict);
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
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: --vocab-size must be given, or the --data-path whose tokens are "
                          "counted",
                          planning->name);
    if (pretrain_has_data(options)) {
        shoal_tokenizer *tokenizer = NULL;
        shoal_dataset_info info;
        SHOAL_TRY(status, pretrain_load_tokenizer(options, &tokenizer), done);
        const shoal_dataset_args args = pretrain_data_args(options, tokenizer);
        status = shoal_dataset_peek(&args, &info);
        shoal_tokenizer_destroy(tokenizer);
        SHOAL_TRY(status, status, done);
        planning->dataset_bytes = info.host_bytes;
        vocab_size = given && vocab_size ? vocab_size : info.vocab_size;
    }
    SHOAL_TRY(status, pretrain_make_model(options, vocab_size, &planning->model), done);
    SHOAL_TRY(status, pretrain_setup_init(&planning->setup, options, planning->model, NULL), done);
done:
    return status;
}

static shoal_status make_plans(struct planning *planning)
{
    shoal_status status;
    const struct shoali_ints *worlds = &planning->own.world_size;
    if (worlds->count < 1 || worlds->count > PLANS_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s: --world-size has %d numbers; give 1 to %d",
                          planning->name, (int)worlds->count, PLANS_MAX);
    SHOAL_TRY(status, prepare(planning), done);
    planning->column = shoali_calloc((size_t)worlds->count, sizeof *planning->column, "plans");
    if (!planning->column) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (; planning->count < worlds->count; planning->count++)
        SHOAL_TRY(status,
                  plan_column(planning, (int32_t)worlds->value[planning->count],
                              &planning->column[planning->count]),
                  done);
done:
    return status;
}

/* ---- text ----------------------------------------------------------------------------------- */

struct text_row {
    const char *name;
    size_t offset; /* of an int64_t in shoal_plan */
    bool always;   /* shown when all are 0 too */
};
#define P(member) offsetof(shoal_plan, member)
static const struct text_row device_rows[] = {
    {"weights", P(weights_bytes), true},
    {"gradients", P(gradients_bytes), true},
    {"master weights", P(master_bytes), false},
    {"optimizer states", P(states_bytes), true},
    {"packed weights", P(packed_weights_bytes), false},
    {"activations", P(activations_bytes), true},
    {"zero buffers", P(buffers_bytes), false},
    {"other", P(other_bytes), false},
    {"device, in all", P(device_bytes), true},
};
static const struct text_row host_rows[] = {
    {"pinned", P(pinned_bytes), false},
    {"communication", P(comm_bytes), false},
    {"data", P(data_bytes), false},
    {"offloaded states", P(host_state_bytes), false},
    {"checkpoints", P(checkpoint_bytes), false},
    {"host, in all", P(host_bytes), true},
    {"NVMe", P(nvme_bytes), false},
};

static int64_t value_of(const struct column *column, size_t offset)
{
    int64_t value;
    memcpy(&value, (const char *)&column->plan + offset, sizeof value);
    return value;
}

static void show_bytes(const struct column *column, int32_t count, const struct text_row *row,
                       size_t row_count)
{
    char text[32];
    for (size_t r = 0; r < row_count; r++) {
        bool any = row[r].always;
        for (int32_t i = 0; i < count; i++)
            any = any || value_of(&column[i], row[r].offset) != 0;
        if (!any)
            continue;
        printf("  %-20s", row[r].name);
        for (int32_t i = 0; i < count; i++)
            printf("%*s", CELL,
                   shoali_format_bytes((double)value_of(&column[i], row[r].offset), text));
        printf("\n");
    }
}

static void show_number(const struct column *column, int32_t count, const char *name,
                        double (*get)(const struct column *column))
{
    printf("  %-20s", name);
    for (int32_t i = 0; i < count; i++)
        printf("%*.4g", CELL, get(&column[i]));
    printf("\n");
}

static double get_live(const struct column *column)
{
    return (double)column->plan.live_parameters;
}
static double get_forward(const struct column *column)
{
    return (double)column->plan.flops_forward;
}
static double get_backward(const struct column *column)
{
    return (double)column->plan.flops_backward;
}
static double get_replay(const struct column *column)
{
    return (double)column->plan.flops_replay;
}
static double get_compute(const struct column *column)
{
    return column->time.compute_s;
}
static double get_network(const struct column *column)
{
    return column->time.network_s;
}
static double get_update(const struct column *column)
{
    return column->time.update_s;
}
static double get_step(const struct column *column)
{
    return column->time.step_s;
}

static const shoal_plan_traffic *find_traffic(const shoal_plan *plan, const char *name)
{
    for (int32_t i = 0; i < plan->traffic_count; i++)
        if (strcmp(plan->traffic[i].name, name) == 0)
            return &plan->traffic[i];
    return NULL;
}

/* Elements, bytes and messages of one kind of collective. */
static void show_collective(const struct column *column, int32_t count, const char *name)
{
    char text[32];
    printf("  %-20s", name);
    for (int32_t i = 0; i < count; i++) {
        const shoal_plan_traffic *found = find_traffic(&column[i].plan, name);
        printf("%*.4g", CELL, found ? (double)found->elements : 0.0);
    }
    printf("\n  %-20s", "");
    for (int32_t i = 0; i < count; i++) {
        const shoal_plan_traffic *found = find_traffic(&column[i].plan, name);
        printf("%*s", CELL, shoali_format_bytes(found ? (double)found->bytes : 0.0, text));
    }
    printf("\n");
}

static void show_traffic(const struct column *column, int32_t count)
{
    const char *shown[PLANS_MAX * SHOAL_PLAN_TRAFFIC];
    int32_t shown_count = 0;
    for (int32_t i = 0; i < count; i++)
        for (int32_t t = 0; t < column[i].plan.traffic_count; t++) {
            const char *name = column[i].plan.traffic[t].name;
            bool seen = false;
            for (int32_t s = 0; s < shown_count; s++)
                seen = seen || strcmp(shown[s], name) == 0;
            if (seen)
                continue;
            if (shown_count == 0)
                printf("sent by a rank in a step: elements, bytes\n");
            shown[shown_count++] = name;
            show_collective(column, count, name);
        }
}

static void show_columns(const struct plan_options *own, const struct column *column, int32_t count)
{
    printf("%-22s", "ranks");
    for (int32_t i = 0; i < count; i++)
        printf("%*d", CELL, (int)column[i].plan.world_size);
    printf("\nmemory of a rank\n");
    show_bytes(column, count, device_rows, sizeof device_rows / sizeof device_rows[0]);
    show_bytes(column, count, host_rows, sizeof host_rows / sizeof host_rows[0]);
    if (column->plan.stage == 3)
        show_number(column, count, "live parameters", get_live);
    show_traffic(column, count);
    printf("FLOPs of a rank in a step\n");
    show_number(column, count, "forward", get_forward);
    show_number(column, count, "backward", get_backward);
    if (column->plan.flops_replay > 0)
        show_number(column, count, "recompute", get_replay);
    if (own->peak_tflops > 0 || own->memory_bandwidth > 0 || own->network_bandwidth > 0) {
        printf("seconds of a step, at least\n");
        show_number(column, count, "compute", get_compute);
        show_number(column, count, "network", get_network);
        show_number(column, count, "update", get_update);
        show_number(column, count,
                    column->plan.overlaps ? "step (overlapping)" : "step (one by one)", get_step);
    }
}

static void show_verdict(const struct column *column)
{
    char need[32], have[32], difference[32];
    const char *name = column->plan.world_size > 1 ? "ranks" : "rank";
    shoali_format_bytes((double)column->verdict.need_bytes, need);
    shoali_format_bytes((double)column->verdict.have_bytes, have);
    shoali_format_bytes((double)llabs(column->verdict.missing_bytes), difference);
    if (column->verdict.missing_bytes <= 0) {
        printf("%d %s: fits; needs %s, and %s is %s: %s left\n", (int)column->plan.world_size, name,
               need, column->verdict.what, have, difference);
        return;
    }
    printf("%d %s: does not fit; needs %s, and %s is %s: %s too much\n",
           (int)column->plan.world_size, name, need, column->verdict.what, have, difference);
    if (!column->suggested)
        return;
    printf("  %s %s, which needs %s\n",
           column->suggestion.verdict.missing_bytes <= 0 ? "it fits with"
                                                         : "nothing makes it fit; the least is",
           column->suggestion.change,
           shoali_format_bytes((double)column->suggestion.verdict.need_bytes, need));
}

static void show_plans(const struct planning *planning)
{
    const shoal_plan *plan = &planning->column->plan;
    char all[32], largest[32], what[160];
    printf("model: %s, %s parameters, %s in the largest layer\n",
           shoal_model_config_describe(planning->options.model.config, what, sizeof what),
           shoali_format_count((double)plan->parameters, all),
           shoali_format_count((double)plan->largest_layer, largest));
    printf("ZeRO stage %d; planned for rank 0: no other needs more\n", (int)plan->stage);
    for (int32_t i = 0; i < planning->count; i++) {
        plan = &planning->column[i].plan;
        printf("%d rank%s: train_batch_size %lld, gradient_accumulation_steps %lld, micro-batch "
               "%lld\n",
               (int)plan->world_size, plan->world_size > 1 ? "s" : "", (long long)plan->train_batch,
               (long long)plan->accumulation, (long long)plan->micro_batch);
    }
    for (int32_t i = 0; i < planning->count; i += COLUMNS) {
        const int32_t left = planning->count - i;
        printf("\n");
        show_columns(&planning->own, planning->column + i, left < COLUMNS ? left : COLUMNS);
    }
    printf("\n");
    for (int32_t i = 0; i < planning->count; i++)
        show_verdict(&planning->column[i]);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static shoal_status column_json(const struct column *column, json_t *list)
{
    shoal_status status;
    int failed = 0;
    char *text = NULL;
    json_t *object = NULL;
    SHOAL_TRY(status, shoal_plan_to_json(&column->plan, &text), done);
    SHOAL_TRY(status, shoali_json_read(text, strlen(text), &object, NULL), done);
    failed |= json_object_set_new(object, "need_bytes", json_integer(column->verdict.need_bytes));
    failed |= json_object_set_new(object, "have_bytes", json_integer(column->verdict.have_bytes));
    failed |= json_object_set_new(object, "fits", json_boolean(column->verdict.missing_bytes <= 0));
    if (column->suggested) {
        failed |= json_object_set_new(object, "suggestion", json_string(column->suggestion.change));
        failed |= json_object_set_new(object, "suggestion_fits",
                                      json_boolean(column->suggestion.verdict.missing_bytes <= 0));
    }
    failed |= json_object_set_new(object, "compute_s", json_real(column->time.compute_s));
    failed |= json_object_set_new(object, "network_s", json_real(column->time.network_s));
    failed |= json_object_set_new(object, "update_s", json_real(column->time.update_s));
    failed |= json_object_set_new(object, "step_s", json_real(column->time.step_s));
    failed |= json_array_append_new(list, object);
    if (failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the plans");
done:
    free(text);
    return status;
}

static shoal_status show_json(const struct planning *planning)
{
    shoal_status status = SHOAL_OK;
    char *text = NULL;
    json_t *root = json_object(), *list = json_array();
    const int failed = json_object_set_new(root, "plans", list);
    for (int32_t i = 0; i < planning->count; i++)
        SHOAL_TRY(status, column_json(&planning->column[i], list), done);
    SHOAL_TRY(status, shoali_json_write(failed ? NULL : root, JSON_COMPACT, "the plans", &text),
              done);
    printf("%s\n", text);
done:
    json_decref(root);
    free(text);
    return status;
}

static bool all_fit(const struct planning *planning)
{
    for (int32_t i = 0; i < planning->count; i++)
        if (planning->column[i].verdict.missing_bytes > 0)
            return false;
    return true;
}

int tool_plan(int argc, char **argv)
{
    struct planning planning = {0};
    shoal_status status;
    const char *model = NULL;
    int skip = 0;
    SHOAL_TRY(status,
              model_flags_word("shoal plan", argc, argv, &model, &skip, planning.name,
                               sizeof planning.name),
              done);
    const struct pretrain_command command = {
        .name = planning.name,
        .model = model,
        .any_model = !skip,
        .usage =
            "usage: shoal plan MODEL --deepspeed_config FILE --world-size N[,N...] [flags of "
            "`shoal pretrain MODEL`]\n\n"
            "Says what a training will need on N ranks: memory by kind, messages, FLOPs, with\n"
            "rates the time of a step; whether it fits, and what would make it fit. Nothing is\n"
            "run or allocated.\n\n"
            "Exit codes: 0 it fits, with each number of ranks; 3 it does not; 2 wrong usage or\n"
            "configuration; 1 the answer could not be written.\n\n",
        .more = &section,
        .more_options = &planning.own};
    status = pretrain_options_init(&planning.options, &command, argc - skip, argv + skip);
    if (status == SHOAL_OK) {
        status = make_plans(&planning);
        if (status == SHOAL_OK && planning.own.json)
            status = show_json(&planning);
        else if (status == SHOAL_OK)
            show_plans(&planning);
    }
done:;
    int code = status < 0 ? tool_fail(status) : tool_flush();
    if (code == 0 && !all_fit(&planning))
        code = EXIT_DOES_NOT_FIT;
    shoali_free(planning.column);
    pretrain_setup_fini(&planning.setup);
    shoal_model_destroy(planning.model);
    pretrain_options_fini(&planning.options);
    return code;
}
