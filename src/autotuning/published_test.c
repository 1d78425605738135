/* Predicted steps beside published ones: the inputs are those of the papers, and `--cluster a100`
 * or v100.
 *
 * SOURCES. [N] Narayanan et al. 2021, "Efficient large-scale language model training on GPU
 * clusters using Megatron-LM" (arXiv 2104.04473v5); what its table 1 leaves open (micro-batches,
 * chunks, which rows sum gradients beside the backward pass) is in Megatron-LM's
 * examples/sc21/run_table_1.sh. [K] Korthikanti et al. 2022, "Reducing activation recomputation in
 * large transformer models" (arXiv 2205.05198). [R] Rajbhandari et al. 2020, "ZeRO: memory
 * optimizations toward training trillion parameter models" (arXiv 1910.02054v3). Both clusters are
 * the papers': DGX A100 with 8 links of 200 Gbit/s ([N] section 5, [K] section 6), DGX-2 with 800
 * Gbit/s ([R] section 10.1).
 *
 * EFFICIENCY. How fast products are is one number of cluster.c, 0.72 of the data sheet for A100,
 * chosen among 0.70,
 * 0.72 and 0.74 as what fits all these tables best: on the whole they are a fit of one number, what
 * is predicted is how rows differ by size, layout and ranks (8 to 3072). One layer on one machine,
 * without pipeline and network ([K] table 4), comes out 4 to 8 % too slow with it (test_one_layer):
 * what a step loses between its kernels is in it.
 *
 * SCORES. The programs of the papers wrote attention's scores to memory and read them again, with a
 * kernel for scale, mask and softmax ([N] section 4.2), and dropout by itself; attention here never
 * has them in memory, so a plan has no term for them, and this test adds it. A layer's scores are b
 * a s^2 / t numbers of 2 bytes; they pass through memory
 *   6.5 times forward   written by the product, softmax 2, dropout 2.5 (a byte for the mask), read by the next
 *   9.5 times backward  written by the product, read for the values' gradient, dropout 2.5, softmax
 * 3, read
 *                       for the gradients of queries and of keys
 * and 6.5 times when they are computed again. A pipeline adds that to each micro-batch and to the
 * bubble.
 *
 * TRANSFERS between stages are beside the computations, as accelerators' libraries have them.
 *
 * BOUNDS. Each step of Megatron's is within 13 % and each of its tables within 7.5 % on average.
 * ZeRO-3's are between two predictions (test_zero_3). [R]'s programs are older, and their batch is
 * not known: 25 %.
 */
#include "autotuning/test_model.h"

#define GPT(layers, hidden, heads, vocabulary) layers, hidden, heads, vocabulary

struct published {
    const char *name;
    int64_t layers, hidden, heads, vocabulary, sequence;
    int32_t tensor, pipeline, ranks;
    int64_t batch;
    double figure; /* TFLOP/s of a rank, or seconds */
};

struct assumed {
    const char *recompute;
    int64_t micro;
    int32_t chunks, stage;
    bool sequence_parallel, scores_again, beside; /* beside: dp's messages */
};

/* Of all micro-batches on the busiest rank, and of the bubble. */
static double scores_s(const struct published *row, const struct assumed *how,
                       const shoal_plan_rates *rates)
{
    const double data = row->ranks / row->tensor / row->pipeline;
    const double micro_batches = (double)row->batch / data / (double)how->micro;
    const double bubble = (row->pipeline - 1.0) / how->chunks;
    const double passes = how->recompute || how->scores_again ? 6.5 + 9.5 + 6.5 : 6.5 + 9.5;
    const double bytes = 2.0 * (double)(how->micro * row->heads / row->tensor) *
                         (double)row->sequence * (double)row->sequence;
    return (double)row->layers / row->pipeline * passes * bytes / rates->memory_bytes *
           (micro_batches + bubble);
}

static void predict(const struct published *row, const struct assumed *how,
                    const shoal_plan_rates *rates, shoal_layout *layout)
{
    char text[512], more[256];
    shoal_model *model =
        test_gpt(row->layers, row->hidden, row->heads, row->sequence, row->vocabulary);
    snprintf(more, sizeof more,
             ", \"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": %d, "
             "\"overlap_comm\": %s}, \"pipeline\": {\"overlap_p2p\": true}",
             (int)how->stage, how->beside ? "true" : "false");
    const shoal_engine_args engine = {
        .model = model,
        .config_text = test_config(text, sizeof text, row->batch, how->micro, more),
        .recompute_granularity = how->recompute,
        .sequence_parallel = how->sequence_parallel,
        .virtual_stages = how->chunks > 1 ? how->chunks : 0};
    const shoal_status status = shoal_layout_predict(&engine,
                                                     &(shoal_plan_args){.world_size = row->ranks,
                                                                        .tensor = row->tensor,
                                                                        .pipeline = row->pipeline},
                                                     rates, layout);
    shoal_model_destroy(model);
    if (status < 0)
        fail_msg("%s: %s", row->name, shoal_error_message());
}

/* With scores in memory. */
static double seconds_of(const struct published *row, const struct assumed *how,
                         const shoal_plan_rates *rates)
{
    shoal_layout layout;
    predict(row, how, rates, &layout);
    return layout.step_s + scores_s(row, how, rates);
}

static double off_by(const struct published *row, double predicted, const char *unit, double *sum)
{
    const double off = predicted / row->figure - 1;
    printf("| %s | %d | %d x %d | %.2f %s | %.2f | %+.1f %% |\n", row->name, (int)row->ranks,
           (int)row->tensor, (int)row->pipeline, row->figure, unit, predicted, 100 * off);
    *sum += fabs(off);
    return off;
}

static void check(const struct published *row, double off, double bound)
{
    if (!(fabs(off) <= bound))
        fail_msg("%s on %d ranks is %+.1f %% off", row->name, (int)row->ranks, 100 * off);
}

/* 96 B s l h^2 (1 + s / 6h + V / 16 l h): with the forward that is made again ([N], equation 3). */
static double counted_flops(const struct published *row)
{
    const double s = (double)row->sequence, l = (double)row->layers, h = (double)row->hidden;
    return 96 * (double)row->batch * s * l * h * h *
           (1 + s / (6 * h) + (double)row->vocabulary / (16 * l * h));
}

static double tflops(const struct published *row, double seconds)
{
    return counted_flops(row) / row->ranks / seconds * 1e-12;
}

static void find_cluster(const char *name, shoal_plan_rates *rates)
{
    shoal_plan_limit limit;
    assert_int_equal(shoal_cluster_find(name, rates, &limit), SHOAL_OK);
}

/* [K] table 4: ms of a layer of 22B, forward and backward, 4 samples on 8 ranks. A layer is the
 * difference of two models. */
static void test_one_layer(void **state)
{
    static const struct {
        const char *name;
        double ms;
        struct assumed how;
    } rows[] = {
        {"baseline", 19.6, {.micro = 4, .chunks = 1}},
        {"sequence parallel", 19.0, {.micro = 4, .chunks = 1, .sequence_parallel = true}},
        {"recomputed", 27.2, {.micro = 4, .chunks = 1, .recompute = "full"}},
        {"scores again, sequence parallel",
         20.3,
         {.micro = 4, .chunks = 1, .sequence_parallel = true, .scores_again = true}},
    };
    shoal_plan_rates rates;
    double sum = 0;
    (void)state;
    find_cluster("a100", &rates);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const double more =
            seconds_of(&(struct published){"", GPT(6, 6144, 64, 51200), 2048, 8, 1, 8, 4, 0},
                       &rows[i].how, &rates);
        const double less =
            seconds_of(&(struct published){"", GPT(4, 6144, 64, 51200), 2048, 8, 1, 8, 4, 0},
                       &rows[i].how, &rates);
        struct published row = {rows[i].name, GPT(1, 6144, 64, 51200), 2048, 8, 1, 8, 4, 0};
        row.figure = rows[i].ms;
        check(&row, off_by(&row, (more - less) / 2 * 1e3, "ms", &sum), 0.1);
    }
}

/* [N] table 1: TFLOP/s of each A100. */
static void test_narayanan(void **state)
{
    static const struct {
        struct published row;
        struct assumed how;
    } rows[] = {
        {{"1.7B", GPT(24, 2304, 24, 51200), 2048, 1, 1, 32, 512, 137},
         {.micro = 16, .chunks = 1, .beside = true}},
        {{"3.6B", GPT(30, 3072, 32, 51200), 2048, 2, 1, 64, 512, 138},
         {.micro = 16, .chunks = 1, .beside = true}},
        {{"7.5B", GPT(36, 4096, 32, 51200), 2048, 4, 1, 128, 512, 142},
         {.micro = 16, .chunks = 1, .beside = true}},
        {{"18.4B", GPT(40, 6144, 48, 51200), 2048, 8, 1, 256, 1024, 135},
         {.micro = 8, .chunks = 1, .beside = true}},
        {{"39.1B", GPT(48, 8192, 64, 51200), 2048, 8, 2, 512, 1536, 138},
         {.micro = 4, .chunks = 1}},
        {{"76.1B", GPT(60, 10240, 80, 51200), 2048, 8, 4, 1024, 1792, 140},
         {.micro = 2, .chunks = 3}},
        {{"145.6B", GPT(80, 12288, 96, 51200), 2048, 8, 8, 1536, 2304, 148},
         {.micro = 2, .chunks = 2}},
        {{"310.1B", GPT(96, 16384, 128, 51200), 2048, 8, 16, 1920, 2160, 155},
         {.micro = 1, .chunks = 2}},
        {{"529.6B", GPT(105, 20480, 128, 51200), 2048, 8, 35, 2520, 2520, 163},
         {.micro = 1, .chunks = 3}},
        {{"1008B", GPT(128, 25600, 160, 51200), 2048, 8, 64, 3072, 3072, 163},
         {.micro = 1, .chunks = 1}},
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    shoal_plan_rates rates;
    double sum = 0;
    (void)state;
    find_cluster("a100", &rates);
    for (size_t i = 0; i < ROWS; i++) {
        const struct published *row = &rows[i].row;
        struct assumed how = rows[i].how;
        how.recompute = "full";
        check(row, off_by(row, tflops(row, seconds_of(row, &how, &rates)), "TFLOP/s", &sum), 0.13);
    }
    printf("on average %.1f %% off\n", 100 * sum / ROWS);
    assert_true(sum / ROWS < 0.075);
}

/* [N] table 2, the rows with model parallelism: micro-batches of 1; model-parallel sizes are 8 x 12
 * and 8 x 35. Chunks are not said: 2 of four layers, and 3 as in table 1. */
static void test_narayanan_fixed_batch(void **state)
{
    static const struct published rows[] = {
        {"174.6B", GPT(96, 12288, 96, 51200), 2048, 8, 12, 384, 1536, 153},
        {"174.6B", GPT(96, 12288, 96, 51200), 2048, 8, 12, 768, 1536, 149},
        {"174.6B", GPT(96, 12288, 96, 51200), 2048, 8, 12, 1536, 1536, 141},
        {"529.6B", GPT(105, 20480, 128, 51200), 2048, 8, 35, 560, 2240, 171},
        {"529.6B", GPT(105, 20480, 128, 51200), 2048, 8, 35, 1120, 2240, 167},
        {"529.6B", GPT(105, 20480, 128, 51200), 2048, 8, 35, 2240, 2240, 159},
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    shoal_plan_rates rates;
    double sum = 0;
    (void)state;
    find_cluster("a100", &rates);
    for (size_t i = 0; i < ROWS; i++) {
        const struct assumed how = {
            .recompute = "full", .micro = 1, .chunks = rows[i].pipeline == 12 ? 2 : 3};
        check(
            &rows[i],
            off_by(&rows[i], tflops(&rows[i], seconds_of(&rows[i], &how, &rates)), "TFLOP/s", &sum),
            0.13);
    }
    printf("on average %.1f %% off\n", 100 * sum / ROWS);
    assert_true(sum / ROWS < 0.075);
}

/* [N] table 2, ZeRO-3 without model parallelism: dp alone, gathers and sums of all weights in each
 * micro-batch. What is published cannot be the eight links of a machine, with which all messages
 * would hide; it is a ring through all ranks that has one of them, and sums of 2 bytes, where those
 * here are of 4. How much of it DeepSpeed hid in 2021 is not said: each row lies between everything
 * that can be hidden and nothing. Half of it is within 15 %, which is a number found here, unlike
 * those of the other tables. */
static void test_zero_3(void **state)
{
    static const struct {
        struct published row;
        int64_t micro;
    } rows[] = {
        {{"174.6B", GPT(96, 12288, 96, 51200), 2048, 1, 1, 384, 1536, 144}, 4},
        {{"174.6B", GPT(96, 12288, 96, 51200), 2048, 1, 1, 768, 1536, 88}, 2},
        {{"174.6B", GPT(96, 12288, 96, 51200), 2048, 1, 1, 1536, 1536, 44}, 1},
        {{"529.6B", GPT(105, 20480, 128, 51200), 2048, 1, 1, 640, 2560, 138}, 4},
        {{"529.6B", GPT(105, 20480, 128, 51200), 2048, 1, 1, 1120, 2240, 98}, 2},
        {{"529.6B", GPT(105, 20480, 128, 51200), 2048, 1, 1, 2240, 2240, 48}, 1},
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    static const double gathers = 2 + 2, sums_here = 4, sums_there = 2; /* bytes of an element */
    shoal_plan_rates rates;
    double sum = 0;
    (void)state;
    find_cluster("a100", &rates);
    rates.collective_algorithm = "ring";
    for (size_t i = 0; i < ROWS; i++) {
        shoal_layout layout;
        const struct published *row = &rows[i].row;
        const struct assumed how = {
            .recompute = "full", .micro = rows[i].micro, .chunks = 1, .stage = 3, .beside = true};
        const double seconds = counted_flops(row) / row->ranks / row->figure * 1e-12;
        predict(row, &how, &rates, &layout);
        const double compute = layout.compute_s + scores_s(row, &how, &rates);
        const double sent =
            (layout.exposed_s + layout.hidden_s) * (gathers + sums_there) / (gathers + sums_here);
        const double all = (compute > sent ? compute : sent) + layout.update_s;
        const double none = compute + sent + layout.update_s;
        if (!(seconds > all && seconds < none))
            fail_msg("%s on %d ranks: %.1f s is not between %.1f and %.1f", row->name,
                     (int)row->ranks, seconds, all, none);
        check(row, off_by(row, tflops(row, (all + none) / 2), "TFLOP/s", &sum), 0.15);
    }
    printf("on average %.1f %% off\n", 100 * sum / ROWS);
}

/* [K] table 5, on the same machine: seconds of a step. Micro-batches and chunks as in its table 3
 * and section 6. */
static const struct published korthikanti[][2] = {
    {{"22B", GPT(48, 6144, 64, 51200), 2048, 8, 1, 8, 4, 1.42},
     {"22B", GPT(48, 6144, 64, 51200), 2048, 8, 1, 8, 4, 1.10}},
    {{"175B", GPT(96, 12288, 96, 51200), 2048, 8, 8, 64, 64, 18.13},
     {"175B", GPT(96, 12288, 96, 51200), 2048, 8, 8, 64, 64, 13.75}},
    {{"530B", GPT(105, 20480, 128, 51200), 2048, 8, 35, 280, 280, 49.05},
     {"530B", GPT(105, 20480, 128, 51200), 2048, 8, 35, 280, 280, 37.83}},
    {{"1T", GPT(128, 25600, 160, 51200), 2048, 8, 64, 512, 512, 94.42},
     {"1T", GPT(128, 25600, 160, 51200), 2048, 8, 64, 512, 512, 71.49}},
};

static void test_korthikanti(void **state)
{
    static const int64_t micro[] = {4, 1, 1, 1};
    static const int32_t chunks[] = {1, 3, 3, 1};
    enum { ROWS = sizeof korthikanti / sizeof korthikanti[0] };
    shoal_plan_rates rates;
    double sum = 0;
    (void)state;
    find_cluster("a100", &rates);
    for (int32_t selective = 0; selective < 2; selective++)
        for (size_t i = 0; i < ROWS; i++) {
            const struct assumed how = {.recompute = selective ? NULL : "full",
                                        .sequence_parallel = selective,
                                        .scores_again = selective,
                                        .micro = micro[i],
                                        .chunks = chunks[i]};
            const struct published *row = &korthikanti[i][selective];
            check(row,
                  off_by(row, seconds_of(row, &how, &rates),
                         selective ? "s, sequence parallel" : "s, all recomputed", &sum),
                  0.13);
        }
    printf("on average %.1f %% off\n", 100 * sum / (2 * ROWS));
    assert_true(sum / (2 * ROWS) < 0.075);
}

/* [R] section 10.2: 15 PFLOP/s of 400 ranks on average over models of 8B to 100B, ZeRO-2 with tp
 * 16; of its table 4 the largest of them: 125 layers of 8192. Its samples per group of 16, 32, are
 * in its table 5, which could not be looked up: taken from memory. */
static void test_zero(void **state)
{
    static const struct published row = {"100B", GPT(125, 8192, 64, 50257), 1024, 16, 1, 400, 800,
                                         37.5};
    static const struct assumed how = {.recompute = "full", .micro = 32, .chunks = 1, .stage = 2};
    shoal_plan_rates rates;
    double sum = 0;
    (void)state;
    find_cluster("v100", &rates);
    rates.ranks_per_node = 16;
    rates.links_per_node = 8;
    check(&row, off_by(&row, tflops(&row, seconds_of(&row, &how, &rates)), "TFLOP/s", &sum), 0.25);
}

/* More ranks of the same layout: never slower as a whole, never more than in proportion. */
static void test_to_16384_ranks(void **state)
{
    static const struct assumed how = {.micro = 1, .chunks = 1, .stage = 1};
    shoal_plan_rates rates;
    double before = INFINITY;
    (void)state;
    find_cluster("h100", &rates);
    for (int32_t ranks = 64; ranks <= 16384; ranks *= 4) {
        const struct published row = {"175B", GPT(96, 12288, 96, 51200), 2048, 8, 8, ranks, 16384,
                                      1};
        const double now = seconds_of(&row, &how, &rates);
        printf("175B on %5d ranks: %.2f s\n", (int)ranks, now);
        assert_true(now < before && (isinf(before) || now > before / 4));
        before = now;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_layer),
        cmocka_unit_test(test_narayanan),
        cmocka_unit_test(test_narayanan_fixed_batch),
        cmocka_unit_test(test_zero_3),
        cmocka_unit_test(test_korthikanti),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_to_16384_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
