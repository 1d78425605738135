/* Plans as text and as JSON. */
#include "plan/plan.h"
#include "tool.h"

#include "base/json.h"
#include "base/str.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 6, CELL = 13 };

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
    {"workspace of kernels", P(device_workspace_bytes), false},
    {"other", P(other_bytes), false},
    {"device, in all", P(device_bytes), true},
};
static const struct text_row host_rows[] = {
    {"pinned", P(pinned_bytes), false},
    {"communication", P(comm_bytes), false},
    {"data", P(data_bytes), false},
    {"offloaded states", P(host_state_bytes), false},
    {"checkpoints", P(checkpoint_bytes), false},
    {"kernels", P(workspace_bytes), false},
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

/* One line for each kind of ranks. */
static void show_kinds(const struct column *column)
{
    char memory[32], live[32], sent[32];
    if (column->kind_count < 2)
        return;
    printf("\n%d ranks: tp %d, pp %d, dp %d\n", (int)column->plan.world_size,
           (int)column->plan.tensor_ranks, (int)column->plan.pipeline_stages,
           (int)column->plan.data_ranks);
    printf("  %5s %5s %7s %12s %12s %9s %12s %12s\n", "stage", "tp", "rank", "device",
           "activations", "in flight", "sent", "FLOPs");
    for (int32_t i = 0; i < column->kind_count; i++) {
        const shoal_plan *kind = &column->kind[i];
        const double flops =
            (double)kind->flops_forward + (double)kind->flops_backward + (double)kind->flops_replay;
        printf("  %5d %5d %7d %12s %12s %9d %12s %12.4g%s\n", (int)kind->pipeline_stage,
               (int)kind->tensor_rank, (int)kind->rank,
               shoali_format_bytes((double)kind->device_bytes, memory),
               shoali_format_bytes((double)kind->activations_bytes, live), (int)kind->in_flight,
               shoali_format_bytes((double)kind->sent_bytes, sent), flops,
               kind->rank == column->plan.rank ? "  the worst" : "");
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
                                                         : "no setting makes it fit; the "
                                                           "smallest is",
           column->suggestion.change,
           shoali_format_bytes((double)column->suggestion.verdict.need_bytes, need));
}

/* The step by single messages, in one sentence. */
static void show_prediction(const struct planning *planning, const struct column *column)
{
    const shoal_layout *layout = &column->predicted;
    const int32_t ranks = column->plan.world_size;
    double flops = 0;
    if (column->unpredicted[0])
        printf("%d rank%s: no step is predicted: %s\n", (int)ranks, ranks > 1 ? "s" : "",
               column->unpredicted);
    if (layout->step_s <= 0)
        return;
    if (shoal_model_flops_per_token(planning->model, &flops) < 0)
        shoali_error_clear();
    printf("%d rank%s: predicted step %.4g s: computation %.4g, bubble %.4g, messages %.4g (and "
           "%.4g overlapped with computation), update %.4g; %.4g tokens/s",
           (int)ranks, ranks > 1 ? "s" : "", layout->step_s, layout->compute_s,
           layout->bubble * (layout->step_s - layout->update_s) / (1 + layout->bubble),
           layout->exposed_s, layout->hidden_s, layout->update_s, layout->tokens_per_second);
    if (flops > 0)
        printf(", %.4g TFLOP/s of a rank", flops * layout->tokens_per_second / ranks * 1e-12);
    printf("%s\n", column->plan.host_state_bytes > 0 ? " (without the copies of offload)" : "");
}

void plan_show(const struct planning *planning)
{
    const shoal_plan *plan = &planning->column->plan;
    char all[32], largest[32], what[160];
    printf("model: %s, %s parameters, %s in the largest layer\n",
           shoal_model_config_describe(planning->options.model.config, what, sizeof what),
           shoali_format_count((double)plan->parameters, all),
           shoali_format_count((double)plan->largest_layer, largest));
    if (planning->column->kind_count > 1)
        printf("ZeRO stage %d; planned for the rank that needs most, of each kind of ranks\n",
               (int)plan->stage);
    else
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
    for (int32_t i = 0; i < planning->count; i++) {
        show_kinds(&planning->column[i]);
        plan_show_pipeline(planning, &planning->column[i]);
    }
    printf("\n");
    for (int32_t i = 0; i < planning->count; i++)
        show_prediction(planning, &planning->column[i]);
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
    if (column->predicted.step_s > 0)
        failed |= json_object_set_new(
            object, "predicted",
            json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "step_s", column->predicted.step_s,
                      "compute_s", column->predicted.compute_s, "bubble", column->predicted.bubble,
                      "exposed_s", column->predicted.exposed_s, "hidden_s",
                      column->predicted.hidden_s, "update_s", column->predicted.update_s,
                      "tokens_per_second", column->predicted.tokens_per_second));
    failed |= plan_pipeline_json(column, object);
    failed |= json_array_append_new(list, object);
    if (failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the plans");
done:
    free(text);
    return status;
}

shoal_status plan_show_json(const struct planning *planning)
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
