/* BERT through the engine: five arrays per micro-batch, a loss of two means, tied weights with a
 * bias; the same bits on any layout, memory as planned, and what a micro-batch without targets
 * does. */
#include "base/test_brief.h"
#include "engine/test_gpt.h"
#include "shoal/plan.h"

#include <math.h>

enum { ARRAYS = 5 };

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* What a run wants besides gpt_run. */
struct bert {
    bool pre_norm, single;
    const char *granularity, *module; /* recompute */
    bool nothing;                     /* no target counts */
    bool plans;
};

static const struct bert *bert_of(const struct gpt_seat *seat)
{
    return seat->run->user;
}

struct source {
    shoal_loader *loader;
    int32_t array[ARRAYS][GPT_SAMPLES_MAX * GPT_SEQ];
    int inputs; /* of the model: the first arrays */
    bool nothing;
};

static shoal_status next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct source *source = user;
    int32_t *arrays[ARRAYS];
    for (int i = 0; i < ARRAYS; i++)
        arrays[i] = source->array[i];
    for (int i = 0; i < source->inputs; i++)
        batch->data[i] = arrays[i];
    const shoal_status status = shoal_loader_get_arrays(source->loader, step, micro, arrays);
    for (int i = 0; source->nothing && i < GPT_SAMPLES_MAX * GPT_SEQ; i++)
        source->array[2][i] = source->array[4][i] = -1;
    return status;
}

static void set(shoal_model_config *config, const char *name, double value, shoal_status *status)
{
    if (*status >= 0)
        *status = shoal_model_config_set(config, name, value);
}

static shoal_status make_model(const struct gpt_seat *seat, shoal_model **model)
{
    shoal_model_config *config = NULL;
    const struct bert *bert = bert_of(seat);
    shoal_status status = shoal_model_config_create("bert", &config);
    set(config, "num-layers", 2, &status);
    set(config, "hidden-size", 32, &status);
    set(config, "num-attention-heads", 4, &status);
    set(config, "seq-length", GPT_SEQ, &status);
    set(config, "vocab-size", GPT_VOCAB, &status);
    set(config, "attention-dropout", seat->run->dropout, &status);
    set(config, "hidden-dropout", seat->run->dropout, &status);
    set(config, "bert-pre-norm", bert->pre_norm, &status);
    set(config, "bert-binary-head", !bert->single, &status);
    if (status >= 0)
        status = shoal_model_create(config, model);
    shoal_model_config_destroy(config);
    return status;
}

static bool is_planned(struct gpt_seat *seat, const shoal_plan *plan)
{
    shoal_memory_info info;
    shoal_engine_get_memory_info(seat->engine, &info);
    EXPECT(plan->weights_bytes == info.weights_bytes);
    EXPECT(plan->gradients_bytes == info.gradients_bytes);
    EXPECT(plan->master_bytes + plan->states_bytes == info.states_bytes);
    EXPECT(plan->activations_bytes == info.activations_bytes);
    EXPECT(plan->buffers_bytes == info.buffers_bytes);
    EXPECT(plan->packed_weights_bytes == info.packed_weights_bytes);
    EXPECT(plan->flops_forward > 0 && plan->flops_backward > plan->flops_forward);
    return true;
}

static bool train_bert(struct gpt_seat *seat, struct source *source)
{
    const struct gpt_run *run = seat->run;
    const struct bert *bert = bert_of(seat);
    char text[2048];
    shoal_plan plan;
    gpt_config_text(run, text, sizeof text);
    EXPECT(make_model(seat, &seat->model) == SHOAL_OK);
    source->inputs = seat->model->input_count;
    const shoal_engine_args args = {
        .model = seat->model,
        .config_text = text,
        .group = seat->group,
        .seed = run->seed,
        .threads = run->threads,
        .recompute_granularity = bert->granularity,
        .recompute_modules = bert->module ? (const char *const[]){bert->module, NULL} : NULL};
    if (bert->plans)
        EXPECT(shoal_plan_make(&args,
                               &(shoal_plan_args){.rank = seat->rank, .world_size = run->ranks},
                               &plan) == SHOAL_OK);
    EXPECT(shoal_engine_create(&args, &seat->engine) == SHOAL_OK);
    for (; seat->steps_done < run->steps; seat->steps_done++)
        EXPECT(shoal_engine_train_batch(seat->engine, next, source,
                                        &seat->info[seat->steps_done]) >= 0);
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    return !bert->plans || is_planned(seat, &plan);
}

static bool run_bert(struct gpt_seat *seat)
{
    struct source source = {.nothing = bert_of(seat)->nothing};
    shoal_dataset *dataset = NULL;
    EXPECT(shoal_dataset_create(&(shoal_dataset_args){.mock = true, .mock_vocab_size = GPT_VOCAB},
                                &dataset) == SHOAL_OK);
    EXPECT(shoal_loader_create(&(shoal_loader_args){.dataset = dataset,
                                                    .kind = bert_of(seat)->single
                                                                ? SHOAL_SAMPLE_MASKED
                                                                : SHOAL_SAMPLE_MASKED_PAIRS,
                                                    .seq_length = GPT_SEQ,
                                                    .micro_batch = seat->run->samples,
                                                    .micro_batches = seat->run->micro_batches,
                                                    .seed = 5},
                               &source.loader) == SHOAL_OK);
    const bool passed = train_bert(seat, &source);
    shoal_loader_destroy(source.loader);
    shoal_dataset_destroy(dataset);
    return passed;
}

/* An emulated GPU is slow: fewer steps, of fewer micro-batches, on one number of ranks. */
static bool is_brief(void)
{
    return test_repeats(2) == 1;
}

static struct gpt_run a_run(int32_t ranks, const struct bert *bert, const char *options)
{
    return (struct gpt_run){.ranks = ranks,
                            .samples = 2,
                            .steps = is_brief() ? 3 : 5,
                            .micro_batches = is_brief() ? 4 : 0,
                            .dropout = 0.1,
                            .options = options,
                            .run = run_bert,
                            .user = (void *)(uintptr_t)bert};
}

static void test_layouts(void **state)
{
    static const char *const granularity[] = {NULL, "full", "selective"};
    static const struct bert plain[] = {{.pre_norm = false}, {.pre_norm = true, .single = true}};
    (void)state;
    for (int form = 0; form < 2; form++) {
        gpt_run_ranks(a_run(1, &plain[form], "\"reduction\":\"exact\""), reference);
        assert_true(reference->info[reference->steps_done - 1].loss < reference->info[0].loss);
        for (int32_t ranks = is_brief() ? 2 : 1; ranks <= (is_brief() ? 2 : 4); ranks++)
            for (int32_t stage = 0; stage <= 3; stage++) {
                struct bert bert = plain[form];
                char options[256], what[96];
                bert.granularity = granularity[(ranks + stage) % 3];
                bert.module = (ranks + stage) % 3 == 2 ? (stage % 2 ? "mlp" : "attn") : NULL;
                snprintf(options, sizeof options,
                         "\"reduction\":\"exact\",\"zero_optimization\":{\"stage\":%d,"
                         "\"overlap_comm\":%s,\"reduce_bucket_size\":3000}",
                         (int)stage, ranks % 2 ? "false" : "true");
                struct gpt_run run = a_run(ranks, &bert, options);
                run.threads = 1 + stage % 2;
                gpt_run_ranks(run, seats);
                snprintf(what, sizeof what, "form %d, stage %d, recompute %s", form, (int)stage,
                         bert.granularity ? bert.granularity : "none");
                gpt_assert_same(seats, ranks, reference, what);
            }
    }
}

static void test_plans(void **state)
{
    static const char *const precisions[] = {"\"wall_clock_breakdown\":false",
                                             "\"bf16\":{\"enabled\":true}",
                                             "\"bf16\":{\"enabled\":true},\"reduction\":\"exact\""};
    (void)state;
    for (int32_t ranks = is_brief() ? 3 : 1; ranks <= 3; ranks += 2)
        for (int32_t stage = 0; stage <= 3; stage++)
            for (int p = 0; p < 3; p++) {
                const struct bert bert = {
                    .plans = true, .pre_norm = p == 1, .granularity = stage % 2 ? "full" : NULL};
                char options[256];
                snprintf(options, sizeof options, "%s,\"zero_optimization\":{\"stage\":%d}",
                         precisions[p], (int)stage);
                struct gpt_run run = a_run(ranks, &bert, options);
                run.steps = 1;
                run.micro_batches = is_brief() ? ranks : 0;
                gpt_run_ranks(run, seats);
            }
}

/* Nothing to learn: a loss of 0, and no weight moves. */
static void test_nothing(void **state)
{
    static const struct bert bert = {.nothing = true};
    (void)state;
    struct gpt_run run = a_run(1, &bert, NULL);
    run.optimizer = "{\"type\":\"AdamW\",\"params\":{\"lr\":0.01,\"weight_decay\":0}}";
    gpt_run_ranks(run, seats);
    run.steps = 0;
    gpt_run_ranks(run, reference);
    const shoal_step_info *last = &seats->info[seats->steps_done - 1];
    assert_true(last->loss == 0 && last->grad_norm == 0);
    assert_true(seats->fingerprint == reference->fingerprint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
