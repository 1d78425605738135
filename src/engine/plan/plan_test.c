/* A plan says what a run's own counters say afterwards: memory by kind, peaks, messages; and what
 * is published about ZeRO's memory and traffic. */
#include "base/test_count.h"
#include "engine/test_gpt.h"
#include "shoal/plan.h"

#include <math.h>

static struct gpt_seat seats[GPT_RANKS_MAX];

struct subject {
    const char *recompute; /* granularity */
    int64_t sums;          /* bytes of a gradient element */
};

static shoal_engine_args engine_args(const struct gpt_seat *seat, const char *config)
{
    const struct subject *subject = seat->run->user;
    return (shoal_engine_args){.model = seat->model,
                               .config_text = config,
                               .group = seat->group,
                               .seed = seat->run->seed,
                               .threads = seat->run->threads ? seat->run->threads : 1,
                               .accelerator = seat->run->accelerator,
                               .saves = 1,
                               .recompute_granularity = subject->recompute};
}

static bool within(int64_t planned, int64_t counted, double share)
{
    return fabs((double)planned - (double)counted) <= share * (double)counted;
}

static const shoal_plan_traffic *find_traffic(const shoal_plan *plan, const char *name)
{
    static const shoal_plan_traffic none = {0};
    for (int32_t i = 0; i < plan->traffic_count; i++)
        if (strcmp(plan->traffic[i].name, name) == 0)
            return &plan->traffic[i];
    return &none;
}

static bool compare_traffic(const struct gpt_seat *seat, const shoal_plan *plan,
                            const struct shoali_comm_counters *before)
{
    struct shoali_comm_counters now;
    int64_t elements = 0;
    if (!seat->group) {
        EXPECT(plan->traffic_count == 0 && plan->sent_bytes == 0);
        return true;
    }
    EXPECT(shoali_zero_counters(seat->engine->zero, &now) == SHOAL_OK);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        const char *name = shoali_collective_name((enum shoali_collective)k);
        const shoal_plan_traffic *planned = find_traffic(plan, name);
        EXPECT(planned->calls == now.calls[k] - before->calls[k]);
        EXPECT(planned->elements == now.elements[k] - before->elements[k]);
        EXPECT(planned->bytes == now.bytes[k] - before->bytes[k]);
        elements += planned->elements;
    }
    EXPECT(plan->sent_elements == elements && plan->shared_bytes == now.shared_bytes);
    return true;
}

static bool compare_memory(const struct gpt_seat *seat, const shoal_plan *plan)
{
    shoal_memory_info info;
    shoal_engine_get_memory_info(seat->engine, &info);
    EXPECT(plan->weights_bytes == info.weights_bytes);
    EXPECT(plan->gradients_bytes == info.gradients_bytes);
    EXPECT(plan->master_bytes == info.master_bytes);
    EXPECT(plan->master_bytes + plan->states_bytes == info.states_bytes);
    EXPECT(plan->activations_bytes == info.activations_bytes);
    EXPECT(plan->buffers_bytes == info.buffers_bytes);
    EXPECT(plan->packed_weights_bytes == info.packed_weights_bytes);
    EXPECT(plan->pinned_bytes + info.offload_pinned_bytes == info.host_peak_bytes);
    EXPECT(plan->comm_bytes == info.comm_bytes && (plan->comm_bytes > 0) == (seat->group != NULL));
    EXPECT(plan->host_state_bytes == info.offload_host_bytes);
    EXPECT(plan->nvme_bytes == info.offload_nvme_bytes);
    EXPECT(plan->checkpoint_bytes == info.checkpoint_bytes && info.checkpoint_bytes > 0);
    EXPECT(plan->workspace_bytes == info.workspace_bytes && info.workspace_bytes > 0);
    EXPECT(plan->host_bytes >=
           plan->pinned_bytes + plan->comm_bytes + plan->checkpoint_bytes + plan->workspace_bytes);
    const int64_t sum = info.weights_bytes + info.gradients_bytes + info.states_bytes +
                        info.activations_bytes + info.buffers_bytes + info.packed_weights_bytes;
    const int64_t counted = info.device_peak_bytes > sum ? info.device_peak_bytes : sum;
    EXPECT(within(plan->device_bytes, counted, 0.02));
    EXPECT(plan->parameters == shoal_engine_param_count(seat->engine));
    return true;
}

static bool plan_and_run(struct gpt_seat *seat)
{
    char text[2048];
    shoal_plan plan;
    struct shoali_comm_counters before = {0};
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(gpt_make_model(seat->run, &seat->model) == SHOAL_OK);
    const shoal_engine_args args = engine_args(seat, text);
    EXPECT(shoal_plan_make(&args,
                           &(shoal_plan_args){.rank = seat->rank, .world_size = seat->run->ranks},
                           &plan) == SHOAL_OK);
    EXPECT(shoal_engine_create(&args, &seat->engine) == SHOAL_OK);
    EXPECT(shoali_zero_counters(seat->engine->zero, &before) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) == SHOAL_OK);
    EXPECT(compare_traffic(seat, &plan, &before));
    EXPECT(compare_memory(seat, &plan));
    return true;
}

static const char *const precisions[] = {
    "\"wall_clock_breakdown\":false",
    "\"bf16\":{\"enabled\":true}",
    "\"reduction\":\"exact\"",
    "\"bf16\":{\"enabled\":true},\"reduction\":\"exact\"",
};

static void run_all(const char *accelerator, const int32_t *ranks, size_t rank_count)
{
    static const char *const recompute[] = {NULL, "full"};
    static const char *const kept[] = {"\"number_checkpoints\":1", "\"cpu_checkpointing\":true",
                                       "\"contiguous_memory_optimization\":true",
                                       "\"number_checkpoints\":2,\"cpu_checkpointing\":true"};
    char options[512];
    for (size_t n = 0; n < rank_count; n++)
        for (size_t p = 0; p < sizeof precisions / sizeof precisions[0]; p++)
            for (int32_t stage = 0; stage <= 3; stage++)
                for (int32_t r = 0; r < 2; r++) {
                    const struct subject subject = {.recompute = recompute[r]};
                    snprintf(options, sizeof options,
                             "%s,\"zero_optimization\":{\"stage\":%d,\"reduce_bucket_size\":4000,"
                             "\"stage3_param_persistence_threshold\":%d,\"overlap_comm\":%s},"
                             "\"activation_checkpointing\":{%s}",
                             precisions[p], (int)stage, r ? 40 : 0, (r + n) % 2 ? "true" : "false",
                             r ? kept[(p + (size_t)stage) % 4] : "");
                    gpt_run_ranks(
                        (struct gpt_run){.ranks = ranks[n],
                                         .accelerator = accelerator,
                                         .options = options,
                                         .micro_batches = ranks[n] * (1 + (r + stage) % 5),
                                         .samples = 1 + r,
                                         .dropout = 0.1,
                                         .run = plan_and_run,
                                         .user = (void *)(uintptr_t)&subject},
                        seats);
                }
}

static void test_cpu(void **state)
{
    static const int32_t ranks[] = {1, 2, 4, 8};
    (void)state;
    run_all("cpu", ranks, 4);
}

/* What kernels work in is a thread's, and how much depends on how threads share a product. */
static void test_threads(void **state)
{
    const struct subject subject = {0};
    (void)state;
    char options[512];
    for (int32_t threads = 2; threads <= 4; threads++)
        for (size_t p = 0; p < sizeof precisions / sizeof precisions[0]; p++) {
            snprintf(options, sizeof options,
                     "%s,\"zero_optimization\":{\"stage\":%d,\"overlap_comm\":true}", precisions[p],
                     threads == 4 ? 3 : 2);
            gpt_run_ranks((struct gpt_run){.ranks = 1 + (int32_t)p % 2,
                                           .threads = threads,
                                           .accelerator = p < 2 ? "cpu" : "sim",
                                           .options = options,
                                           .micro_batches = 4,
                                           .samples = GPT_SAMPLES_MAX,
                                           .run = plan_and_run,
                                           .user = (void *)(uintptr_t)&subject},
                          seats);
        }
}

/* Ranks of one machine share its cores. */
static void test_ranks_per_machine(void **state)
{
    shoal_model *model;
    shoal_plan given, shared, all;
    const int32_t cores = shoali_core_count();
    (void)state;
    assert_int_equal(gpt_make_model(&(struct gpt_run){.layers = 1}, &model), SHOAL_OK);
    unsetenv("SHOAL_NUM_THREADS");
    unsetenv("OMP_NUM_THREADS");
    shoal_engine_args args = {.model = model,
                              .config_text = "{\"train_micro_batch_size_per_gpu\":1,"
                                             "\"optimizer\":{\"type\":\"AdamW\"}}",
                              .threads = cores};
    shoal_plan_args plan_args = {.world_size = 1000};
    assert_int_equal(shoal_plan_make(&args, &plan_args, &given), SHOAL_OK);
    args.threads = 0;
    assert_int_equal(shoal_plan_make(&args, &plan_args, &all), SHOAL_OK);
    plan_args.ranks_per_machine = 1;
    assert_int_equal(shoal_plan_make(&args, &plan_args, &shared), SHOAL_OK);
    assert_int_equal(shared.workspace_bytes, given.workspace_bytes);
    assert_true(all.workspace_bytes > 0 && all.workspace_bytes <= shared.workspace_bytes);
    assert_true(cores == 1 || cores >= 2000 || all.workspace_bytes < shared.workspace_bytes);
    setenv("SHOAL_NUM_THREADS", "many", 1);
    assert_int_equal(shoal_plan_make(&args, &plan_args, &all), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "SHOAL_NUM_THREADS=\"many\""));
    unsetenv("SHOAL_NUM_THREADS");
    shoal_model_destroy(model);
}

static void test_sim(void **state)
{
    static const int32_t ranks[] = {1, 3};
    (void)state;
    run_all("sim", ranks, 2);
}

static void test_offload(void **state)
{
    static const char *const homes[] = {
        "\"offload_optimizer\":{\"device\":\"cpu\"}",
        "\"offload_optimizer\":{\"device\":\"cpu\",\"pin_memory\":false},"
        "\"sub_group_size\":3000,\"offload_param\":{\"device\":\"cpu\"}",
        "\"offload_optimizer\":{\"device\":\"nvme\",\"nvme_path\":\"/tmp\",\"buffer_count\":8,"
        "\"pipeline_read\":true},\"sub_group_size\":3000",
        "\"offload_optimizer\":{\"device\":\"nvme\",\"nvme_path\":\"/tmp\",\"ratio\":0.5},"
        "\"sub_group_size\":3000,\"offload_param\":{\"device\":\"nvme\","
        "\"nvme_path\":\"/tmp\",\"pin_memory\":false,\"max_in_cpu\":4000}",
    };
    char options[1024];
    const struct subject subject = {0};
    (void)state;
    for (size_t h = 0; h < sizeof homes / sizeof homes[0]; h++)
        for (int32_t stage = h % 2 ? 3 : 1; stage <= 3; stage++)
            for (int32_t run = 0; run < 3; run++) {
                snprintf(options, sizeof options,
                         "%s,\"zero_optimization\":{\"stage\":%d,%s,\"overlap_comm\":%s}",
                         precisions[(h + (size_t)run) % 4], (int)stage, homes[h],
                         run == 1 ? "true" : "false");
                gpt_run_ranks((struct gpt_run){.ranks = 1 + run,
                                               .accelerator = run == 2 ? "sim" : "cpu",
                                               .options = options,
                                               .micro_batches = 6,
                                               .run = plan_and_run,
                                               .user = (void *)(uintptr_t)&subject},
                              seats);
            }
}

/* Sums of tensors, their message, and states that are not per element. */
static void test_whole_tensors(void **state)
{
    static const char *const optimizers[] = {"{\"type\":\"Lamb\"}", "{\"type\":\"Adafactor\"}"};
    static const char *const homes[] = {
        "\"stage\":0",
        "\"stage\":2",
        "\"stage\":3,\"offload_optimizer\":{\"device\":\"cpu\"},\"sub_group_size\":3000",
        ("\"stage\":3,\"offload_optimizer\":{\"device\":\"nvme\",\"nvme_path\":\"/tmp\","
         "\"ratio\":0.5},\"sub_group_size\":3000"),
    };
    char options[512];
    const struct subject subject = {0};
    (void)state;
    for (size_t o = 0; o < 2; o++)
        for (size_t h = 0; h < sizeof homes / sizeof homes[0]; h++)
            for (int32_t run = 0; run < 3; run++) {
                snprintf(options, sizeof options, "%s,\"zero_optimization\":{%s}",
                         precisions[(h + (size_t)run) % 4], homes[h]);
                gpt_run_ranks((struct gpt_run){.ranks = 1 + run,
                                               .accelerator = run == 2 ? "sim" : "cpu",
                                               .options = options,
                                               .optimizer = optimizers[o],
                                               .micro_batches = 6,
                                               .run = plan_and_run,
                                               .user = (void *)(uintptr_t)&subject},
                              seats);
            }
}

/* ZeRO++ and MiCS make groups of neighbours, which a plan has to imagine. */
static void test_neighbours(void **state)
{
    static const char *const homes[] = {
        "\"zero_hpz_partition_size\":2,\"stage3_max_live_parameters\":0",
        "\"mics_shard_size\":2,\"reduce_bucket_size\":4000",
        ("\"zero_quantized_weights\":true,\"zero_quantized_gradients\":true,"
         "\"stage3_param_persistence_threshold\":0,\"zero_hpz_partition_size\":4"),
        "\"stage3_module_granularity_threshold\":3000,\"stage3_param_persistence_threshold\":0",
    };
    char options[1024];
    const struct subject subject = {0};
    (void)state;
    for (size_t h = 0; h < sizeof homes / sizeof homes[0]; h++)
        for (int32_t run = 0; run < 2; run++) {
            snprintf(options, sizeof options,
                     "%s,\"zero_optimization\":{\"stage\":3,%s,\"overlap_comm\":%s}",
                     precisions[h == 2 ? 1 : 2 + run], homes[h], run == 1 ? "true" : "false");
            gpt_run_ranks((struct gpt_run){.ranks = 4,
                                           .options = options,
                                           .micro_batches = 8 + 4 * run,
                                           .run = plan_and_run,
                                           .user = (void *)(uintptr_t)&subject},
                          seats);
        }
}

/* ---- published formulas --------------------------------------------------------------------- */

/* LAYER_WORK: allocations of a layer; 140, and no more in a deep model. */
enum { BUCKET = 500000000, LAYER_WORK = 200 };

static shoal_status plan_large(int32_t stage, int32_t world, int32_t bucket, const char *options,
                               const char *recompute, shoal_plan *plan)
{
    shoal_status status;
    shoal_model *model = NULL;
    shoal_gpt_config config;
    char text[1024];
    shoal_gpt_config_defaults(&config);
    config.num_layers = 96;
    config.hidden_size = 12288;
    config.num_attention_heads = 96;
    config.seq_length = 2048;
    config.vocab_size = 50257;
    SHOAL_TRY(status, shoal_gpt_create(&config, &model), done);
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\":1,\"gradient_accumulation_steps\":1%s,"
             "\"zero_optimization\":{\"stage\":%d,\"reduce_bucket_size\":%d},"
             "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":1e-4}}}",
             options, (int)stage, (int)bucket);
    const shoal_engine_args args = {
        .model = model, .config_text = text, .recompute_granularity = recompute};
    SHOAL_TRY(status, shoal_plan_make(&args, &(shoal_plan_args){.world_size = world}, plan), done);
done:
    shoal_model_destroy(model);
    return status;
}

static void assert_near(double value, double expected, const char *what)
{
    if (!(fabs(value - expected) <= 0.02 * expected))
        fail_msg("%s: %.6g, expected %.6g", what, value, expected);
}

/* Rajbhandari et al. 2020, table 1: 16P, 4P+12P/N, 2P+14P/N, 16P/N bytes with gradients of g = 2
 * bytes; ours have 4, or 8 when exact, so g = 2 is what remains without the surplus. */
static void test_formulas(void **state)
{
    static const char *const options[] = {",\"bf16\":{\"enabled\":true}",
                                          ",\"bf16\":{\"enabled\":true},\"reduction\":\"exact\""};
    static const double published[][2] = {{16, 0}, {4, 12}, {2, 14}, {0, 16}}; /* P, P/N */
    static const double sent[] = {2, 2, 2, 3};
    (void)state;
    for (int32_t world = 1; world <= 64; world *= 8)
        for (int32_t stage = 0; stage <= 3; stage++)
            for (int32_t o = 0; o < 2; o++) {
                shoal_plan plan;
                assert_int_equal(plan_large(stage, world, BUCKET, options[o], NULL, &plan),
                                 SHOAL_OK);
                const double count = (double)plan.parameters, surplus = o ? 6 : 2;
                const double part = count / world;
                assert_near((double)plan.gradients_bytes,
                            (2 + surplus) * (stage < 2 ? count : part), "gradients");
                const double sum = (double)plan.weights_bytes + (double)plan.gradients_bytes +
                                   (double)plan.master_bytes + (double)plan.states_bytes;
                assert_near(sum - surplus * (stage < 2 ? count : part),
                            published[stage][0] * count + published[stage][1] * part, "memory");
                if (world > 1)
                    assert_near((double)plan.sent_elements,
                                sent[stage] * count * (world - 1) / world, "traffic");
            }
}

/* A model of 175 billion parameters on 1024 ranks: the work of a layer each, and the numbers of its
 * papers. */
static void test_large(void **state)
{
    shoal_plan plan, kept;
    (void)state;
    count_begin();
    assert_int_equal(plan_large(3, 1024, BUCKET, ",\"bf16\":{\"enabled\":true}", "full", &plan),
                     SHOAL_OK);
    const int64_t allocations = count_end();
    printf("96 layers on 1024 ranks: %lld allocations\n", (long long)allocations);
    assert_true(allocations < LAYER_WORK * 98);
    count_begin();
    assert_int_equal(plan_large(3, 64, BUCKET, ",\"bf16\":{\"enabled\":true}", "full", &kept),
                     SHOAL_OK);
    assert_int_equal(count_end(), allocations); /* no rank but one is planned */
    assert_near((double)plan.parameters, 174.6e9, "parameters");
    /* 2 FLOPs forward and 4 backward per parameter and token, and the products of attention */
    const double attention = 96.0 * 12.0 * 12288.0 * 2048.0;
    assert_near((double)(plan.flops_forward + plan.flops_backward),
                2048 * (6 * 174.6e9 + attention), "FLOPs");
    assert_near((double)plan.flops_replay, (double)plan.flops_forward, "replayed FLOPs");
    assert_true(plan.largest_layer > 12LL * 12288 * 12288 && plan.live_parameters > 0);
    assert_int_equal(plan_large(3, 1024, BUCKET, ",\"bf16\":{\"enabled\":true}", NULL, &kept),
                     SHOAL_OK);
    assert_true(plan.activations_bytes < kept.activations_bytes / 4);
    assert_int_equal(kept.flops_replay, 0);

    assert_int_equal(plan_large(3, 2, 1, "", NULL, &plan), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "are too many messages"));
}

/* Very many small layers: their words make the step's shared record long, and nothing is looked for
 * layer by layer. */
static void test_deep(void **state)
{
    shoal_plan plan;
    shoal_model *model = NULL;
    shoal_gpt_config config;
    (void)state;
    shoal_gpt_config_defaults(&config);
    config.num_layers = 12000;
    config.hidden_size = 8;
    config.num_attention_heads = 1;
    config.seq_length = 4;
    config.vocab_size = 128;
    assert_int_equal(shoal_gpt_create(&config, &model), SHOAL_OK);
    const shoal_engine_args args = {
        .model = model,
        .config_text = "{\"train_micro_batch_size_per_gpu\":1,"
                       "\"zero_optimization\":{\"stage\":3},"
                       "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":1e-4}}}"};
    const shoal_plan_args plan_args = {.world_size = 1000};
    count_begin();
    if (shoal_plan_make(&args, &plan_args, &plan) != SHOAL_OK)
        fail_msg("%s", shoal_error_message());
    const int64_t allocations = count_end();
    shoal_model_destroy(model);
    assert_int_equal(plan.parameters, 12000 * (12 * 8 * 8 + 13 * 8) + (128 + 4 + 2) * 8);
    printf("12000 layers on 1000 ranks: %lld allocations\n", (long long)allocations);
    assert_true(allocations < LAYER_WORK * 12002);
}

/* ---- limits, suggestions, time -------------------------------------------------------------- */

struct suggestion {
    char what[256];
    shoal_plan plan;
    bool fits;
};

static shoal_status ask(const shoal_engine_args *engine, const shoal_plan_args *args,
                        const shoal_plan_limit *limit, struct suggestion *suggestion)
{
    shoal_plan_verdict verdict;
    const shoal_status status = shoal_plan_suggest(engine, args, limit, &suggestion->plan,
                                                   suggestion->what, sizeof suggestion->what);
    shoal_plan_check(&suggestion->plan, limit, &verdict);
    suggestion->fits = verdict.missing_bytes <= 0;
    return status;
}

static shoal_status suggest(int64_t limit_bytes, const char *options, int32_t world,
                            shoal_plan *plan, struct suggestion *suggestion)
{
    shoal_status status;
    shoal_model *model = NULL;
    shoal_plan_limit limit;
    char text[1024];
    const struct gpt_run run = {
        .micro_batches = 8, .samples = 4, .options = options, .dropout = 0.1};
    gpt_config_text(&run, text, sizeof text);
    SHOAL_TRY(status, gpt_make_model(&run, &model), done);
    const shoal_engine_args args = {.model = model, .config_text = text};
    const shoal_plan_args plan_args = {.world_size = world};
    shoal_plan_set_limit(limit_bytes, &limit);
    SHOAL_TRY(status, shoal_plan_make(&args, &plan_args, plan), done);
    SHOAL_TRY(status, ask(&args, &plan_args, &limit, suggestion), done);
done:
    shoal_model_destroy(model);
    return status;
}

static void test_suggestions(void **state)
{
    shoal_plan plan, again;
    struct suggestion one, other;
    static const char unpacked[] = "\"packed_weights\":false";
    (void)state;
    /* what costs nothing but time goes first */
    assert_int_equal(suggest(1, NULL, 4, &plan, &one), SHOAL_OK);
    assert_false(one.fits);
    assert_true(plan.packed_weights_bytes > 0);
    assert_int_equal(suggest(plan.device_bytes - 1, NULL, 4, &plan, &one), SHOAL_OK);
    assert_true(one.fits);
    assert_string_equal(one.what, "packed_weights false");
    assert_int_equal(one.plan.device_bytes, plan.device_bytes - plan.packed_weights_bytes);
    /* a byte less than is needed: the next stage is enough, and what it says is its own plan */
    assert_int_equal(suggest(plan.device_bytes, unpacked, 4, &plan, &one), SHOAL_OK);
    assert_int_equal(suggest(plan.device_bytes - 1, unpacked, 4, &plan, &one), SHOAL_OK);
    assert_true(one.fits);
    assert_string_equal(one.what, "zero_optimization.stage 1");
    assert_int_equal(one.plan.stage, 1);
    assert_true(one.plan.device_bytes < plan.device_bytes);
    /* less than any stage needs: recompute, or smaller micro-batches */
    assert_int_equal(suggest(plan.device_bytes / 2, NULL, 4, &again, &other), SHOAL_OK);
    assert_true(other.fits);
    assert_true(other.plan.device_bytes <= plan.device_bytes / 2);
    /* one rank has no stages */
    assert_int_equal(suggest(plan.device_bytes * 7 / 10, NULL, 1, &again, &other), SHOAL_OK);
    assert_true(other.fits);
    assert_null(strstr(other.what, "stage"));
    assert_true(other.plan.train_batch == again.train_batch);
}

/* A model whose logits are most of the memory, with a limit that only a head without them meets. */
static void test_suggested_fusion(void **state)
{
    (void)state;
    const struct gpt_run run = {.micro_batches = 1, .samples = 8, .padding = 8192};
    struct gpt_run fused_run = run;
    shoal_model *model, *lean;
    shoal_plan plan, fused;
    shoal_plan_limit limit;
    struct suggestion suggestion;
    char text[1024];
    fused_run.fused = true;
    gpt_config_text(&run, text, sizeof text);
    assert_int_equal(gpt_make_model(&run, &model), SHOAL_OK);
    assert_int_equal(gpt_make_model(&fused_run, &lean), SHOAL_OK);
    shoal_engine_args engine = {.model = lean, .config_text = text};
    shoal_plan_args args = {0};
    assert_int_equal(shoal_plan_make(&engine, &args, &fused), SHOAL_OK);
    engine.model = model;
    assert_int_equal(shoal_plan_make(&engine, &args, &plan), SHOAL_OK);
    /* 128 rows of 8192 fp32 logits become 1040 wide; activations of the layers are as they were */
    assert_true(plan.activations_bytes - fused.activations_bytes > 128 * (8192 - 2 * 1040) * 4);
    assert_int_equal(plan.weights_bytes, fused.weights_bytes);
    shoal_plan_set_limit(fused.device_bytes, &limit);
    args.lean_model = lean;
    args.lean_model_flag = "--flag";
    assert_int_equal(ask(&engine, &args, &limit, &suggestion), SHOAL_OK);
    assert_true(suggestion.fits);
    assert_string_equal(suggestion.what, "--flag");
    assert_int_equal(suggestion.plan.device_bytes, fused.device_bytes);
    args.lean_model = NULL;
    assert_int_equal(ask(&engine, &args, &limit, &suggestion), SHOAL_OK);
    assert_null(strstr(suggestion.what, "--flag"));
    shoal_model_destroy(model);
    shoal_model_destroy(lean);
}

/* A limit that only the highest stage and the lean head together meet. */
static void test_suggested_stage_and_fusion(void **state)
{
    (void)state;
    struct gpt_run run = {.micro_batches = 4,
                          .samples = 8,
                          .padding = 8192,
                          .options =
                              "\"packed_weights\":false,\"zero_optimization\":{\"stage\":3}"};
    shoal_model *model, *lean;
    shoal_plan fused;
    shoal_plan_limit limit;
    struct suggestion suggestion;
    char text[1024];
    assert_int_equal(gpt_make_model(&run, &model), SHOAL_OK);
    run.fused = true;
    assert_int_equal(gpt_make_model(&run, &lean), SHOAL_OK);
    shoal_engine_args engine = {.model = lean, .config_text = text};
    shoal_plan_args args = {.world_size = 4};
    gpt_config_text(&run, text, sizeof text);
    assert_int_equal(shoal_plan_make(&engine, &args, &fused), SHOAL_OK);
    shoal_plan_set_limit(fused.device_bytes, &limit);
    run.options = "\"packed_weights\":false";
    gpt_config_text(&run, text, sizeof text);
    engine.model = model;
    args.lean_model = lean;
    args.lean_model_flag = "--flag";
    assert_int_equal(ask(&engine, &args, &limit, &suggestion), SHOAL_OK);
    assert_true(suggestion.fits);
    assert_string_equal(suggestion.what, "zero_optimization.stage 3, --flag");
    assert_int_equal(suggestion.plan.device_bytes, fused.device_bytes);
    shoal_model_destroy(model);
    shoal_model_destroy(lean);
}

static void test_limits(void **state)
{
    shoal_plan plan = {.world_size = 4, .device_bytes = 100, .host_bytes = 20, .shared_bytes = 60};
    shoal_plan_limit limit;
    shoal_plan_verdict verdict;
    (void)state;
    shoal_plan_set_limit(90, &limit);
    shoal_plan_check(&plan, &limit, &verdict);
    assert_int_equal(verdict.missing_bytes, 10);
    assert_true(verdict.need_bytes == 100 && verdict.have_bytes == 90);
    assert_string_equal(verdict.what, "the given limit");
    limit.device_is_host = true;
    shoal_plan_check(&plan, &limit, &verdict);
    assert_int_equal(verdict.missing_bytes, 30);
    limit.data_bytes = 10; /* of private memory there are 60 */
    shoal_plan_check(&plan, &limit, &verdict);
    assert_true(verdict.need_bytes == 60 && verdict.missing_bytes == 50);
    assert_non_null(strstr(verdict.what, "ulimit -d"));
    limit.address_space_bytes = 200; /* with the shared memory of three others */
    shoal_plan_check(&plan, &limit, &verdict);
    assert_true(verdict.need_bytes == 300 && verdict.missing_bytes == 100);
    assert_non_null(strstr(verdict.what, "ulimit -v"));

    assert_int_equal(shoal_plan_get_limit("cpu", 1, &limit), SHOAL_OK);
    assert_true(limit.device_is_host && limit.device_bytes > 0);
    const int64_t alone = limit.device_bytes;
    assert_int_equal(shoal_plan_get_limit("cpu", 1000, &limit), SHOAL_OK);
    assert_true(limit.device_bytes < alone / 100);
    assert_int_equal(shoal_plan_get_limit("abacus", 1, &limit), SHOAL_ECONFIG);
}

static void test_time(void **state)
{
    const shoal_plan_rates rates = {.flops = 10, .memory_bytes = 5, .network_bytes = 2};
    shoal_plan plan = {.flops_forward = 100,
                       .flops_backward = 200,
                       .kernel_bytes = 50,
                       .update_bytes = 20,
                       .sent_bytes = 12};
    shoal_plan_time time;
    (void)state;
    shoal_plan_get_time(&plan, &rates, &time);
    assert_true(time.compute_s == 30 && time.network_s == 6 && time.update_s == 4);
    assert_true(time.step_s == 40);
    plan.overlaps = true;
    plan.kernel_bytes = 500;
    shoal_plan_get_time(&plan, &rates, &time);
    assert_true(time.compute_s == 100 && time.step_s == 104);
    shoal_plan_get_time(&plan, &(shoal_plan_rates){.flops = 10}, &time);
    assert_true(time.step_s == 30);
}

static bool plan_with_failures(struct gpt_seat *seat)
{
    static const char *const points[] = {"alloc", "host_alloc", "device_alloc"};
    char text[2048], spec[64];
    shoal_plan whole, plan;
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(gpt_make_model(seat->run, &seat->model) == SHOAL_OK);
    const shoal_engine_args args = engine_args(seat, text);
    const shoal_plan_args plan_args = {.world_size = 4, .prefetches = true};
    EXPECT(shoal_plan_make(&args, &plan_args, &whole) == SHOAL_OK);
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        shoal_status status = SHOAL_ENOMEM;
        int failed = 0;
        for (int skip = 0; status < 0; skip++) {
            snprintf(spec, sizeof spec, "%s:%d", points[p], skip);
            EXPECT(skip < 20000 && shoali_fault_arm(spec));
            status = shoal_plan_make(&args, &plan_args, &plan);
            failed += status < 0;
            EXPECT(status == SHOAL_OK || shoal_error_message()[0] != 0);
        }
        EXPECT(failed > 0 && shoali_fault_arm(NULL));
        EXPECT(plan.device_bytes == whole.device_bytes && plan.host_bytes == whole.host_bytes);
    }
    return true;
}

/* Whichever allocation of a plan fails: a sentence or the whole plan, and nobody touches what is
 * not there. */
static void test_allocations(void **state)
{
    static const char *const options[] = {
        "\"zero_optimization\":{\"stage\":3}",
        "\"bf16\":{\"enabled\":true},\"reduction\":\"exact\",\"zero_optimization\":{\"stage\":3,"
        "\"offload_optimizer\":{\"device\":\"cpu\",\"pin_memory\":true},"
        "\"offload_param\":{\"device\":\"cpu\",\"pin_memory\":true}}",
    };
    const struct subject subject = {0};
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        for (int32_t a = 0; a < 2; a++)
            gpt_run_ranks((struct gpt_run){.ranks = 1,
                                           .accelerator = a ? "sim" : "cpu",
                                           .options = options[i],
                                           .micro_batches = 4,
                                           .samples = 2,
                                           .run = plan_with_failures,
                                           .user = (void *)(uintptr_t)&subject},
                          seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_tensors),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_ranks_per_machine),
        cmocka_unit_test(test_sim),
        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_formulas),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_suggestions),
        cmocka_unit_test(test_suggested_fusion),
        cmocka_unit_test(test_suggested_stage_and_fusion),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
