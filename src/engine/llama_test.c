/* Decoders of the `llama` row train the same bits on any layout, as the GPT of the other tests
 * does: two models that have all its ops between them, in fp32 and bf16, on layouts that use ranks,
 * stages, buckets, overlap, offload, recompute, threads, processes and the simulated device. */
#include "engine/test_gpt.h"

enum { STEPS = 8, SETTINGS = 16 };

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];
static char folder[] = "/tmp/shoal-llama-XXXXXX";

struct setting {
    const char *option;
    double value;
};
struct kind {
    const char *name;
    shoal_status (*make)(const struct gpt_run *run, shoal_model **model);
    uint64_t fingerprint; /* of the plain run in fp32 on the reference kernels, written down */
};

static shoal_status make_model(const struct setting *more, const struct gpt_run *run,
                               shoal_model **model)
{
    const struct setting all[] = {{"num-layers", 3},
                                  {"hidden-size", 24},
                                  {"num-attention-heads", 4},
                                  {"group-query-attention", 1},
                                  {"num-query-groups", 2},
                                  {"ffn-hidden-size", 40},
                                  {"seq-length", GPT_SEQ},
                                  {"vocab-size", GPT_VOCAB},
                                  {"attention-dropout", run->dropout},
                                  {"hidden-dropout", run->dropout}};
    shoal_status status;
    shoal_model_config *config;
    SHOAL_TRY(status, shoal_model_config_create("llama", &config), done);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        SHOAL_TRY(status, shoal_model_config_set(config, all[i].option, all[i].value), done);
    for (int i = 0; i < SETTINGS && more[i].option; i++)
        SHOAL_TRY(status, shoal_model_config_set(config, more[i].option, more[i].value), done);
    SHOAL_TRY(status, shoal_model_create(config, model), done);
done:
    shoal_model_config_destroy(config);
    return status;
}

/* As Llama, Mistral and Qwen have it: heads of another size than hidden / heads, norms of heads,
 * scaled rotary positions, a window in two of three layers, a gate, one table. */
static shoal_status make_modern(const struct gpt_run *run, shoal_model **model)
{
    static const struct setting more[SETTINGS] = {{"kv-channels", 10},
                                                  {"qk-layernorm", 1},
                                                  {"add-qkv-bias", 1},
                                                  {"use-rope-scaling", 1},
                                                  {"rope-scaling-original-max-position", 8},
                                                  {"window-size", 5},
                                                  {"window-attn-skip-freq", 3},
                                                  {"untie-embeddings-and-output-weights", 0}};
    return make_model(more, run, model);
}

/* What is left: layer norms with gamma minus 1, biases everywhere, a part of each head turned in
 * neighbours, GELU gate, embeddings scaled, tables apart. */
static shoal_status make_other(const struct gpt_run *run, shoal_model **model)
{
    static const struct setting more[SETTINGS] = {{"normalization", 0 /* LayerNorm */},
                                                  {"apply-layernorm-1p", 1},
                                                  {"qk-layernorm", 1},
                                                  {"disable-bias-linear", 0},
                                                  {"rotary-percent", 0.7},
                                                  {"rotary-interleaved", 1},
                                                  {"rotary-seq-len-interpolation-factor", 2},
                                                  {"swiglu", 0},
                                                  {"geglu", 1},
                                                  {"embedding-multiplier", 3}};
    return make_model(more, run, model);
}

/* Without a gate, and positions as a table. */
static shoal_status make_plain(const struct gpt_run *run, shoal_model **model)
{
    static const struct setting more[SETTINGS] = {{"position-embedding-type", 0 /* learned */},
                                                  {"swiglu", 0},
                                                  {"squared-relu", 1},
                                                  {"cross-entropy-loss-fusion", 1},
                                                  {"add-attention-output-bias", 1}};
    return make_model(more, run, model);
}

/* Branches of one input and one norm, fused matrices sorted by group, factors, a layer without
 * rope, a bias of the output matrix. */
static shoal_status make_parallel(const struct gpt_run *run, shoal_model **model)
{
    static const struct setting more[SETTINGS] = {{"weight-names", 6 /* falcon */},
                                                  {"use-parallel-residual", 1},
                                                  {"shared-input-norm", 1},
                                                  {"normalization", 0 /* LayerNorm */},
                                                  {"disable-norm-bias", 1},
                                                  {"softmax-scale", 0.3},
                                                  {"residual-multiplier", 0.5},
                                                  {"logits-multiplier", 0.75},
                                                  {"no-rope-freq", 2},
                                                  {"add-lm-head-bias", 1}};
    return make_model(more, run, model);
}

/* Norms behind the branches and without weights, one norm over all heads, spare positions. */
static shoal_status make_behind(const struct gpt_run *run, shoal_model **model)
{
    static const struct setting more[SETTINGS] = {{"weight-names", 8 /* opt */},
                                                  {"position-embedding-type", 0 /* learned */},
                                                  {"post-layernorm", 1},
                                                  {"qk-layernorm-whole", 1},
                                                  {"swiglu", 0},
                                                  {"relu", 1},
                                                  {"add-mlp-bias", 1}};
    return make_model(more, run, model);
}

/* Norms without weights; gate and up in one matrix, queries, keys and values in another. */
static shoal_status make_bare(const struct gpt_run *run, shoal_model **model)
{
    static const struct setting more[SETTINGS] = {
        {"weight-names", 2 /* phi3 */}, {"disable-norm-weight", 1}, {"disable-bias-linear", 0}};
    return make_model(more, run, model);
}

static const struct kind kinds[] = {
    {"modern", make_modern, 0x4f402e9afc3e55e4u}, {"other", make_other, 0x9f16de38d6318f02u},
    {"plain", make_plain, 0xcd14bb7082679e0du},   {"parallel", make_parallel, 0x01c447ab6f47d5b4u},
    {"behind", make_behind, 0xa63259fa7317fe7cu}, {"bare", make_bare, 0x70b78c0fb0b3cf1du},
};

/* ---- layouts --------------------------------------------------------------------------------- */

#define STAGE(stage, more) "\"zero_optimization\":{\"stage\":" #stage more "}"
#define SMALL ",\"reduce_bucket_size\":1500,\"allgather_bucket_size\":1500,\"sub_group_size\":1500"
#define FETCH ",\"stage3_param_persistence_threshold\":0"
#define TO(what, device) \
    ",\"offload_" what "\":{\"device\":\"" device "\",\"nvme_path\":\"%s\",\"buffer_count\":4}"

static const struct layout {
    int32_t ranks, threads;
    bool processes;
    const char *accelerator, *recompute, *zero;
} layouts[] = {
    {1, 1, false, "cpu", NULL, STAGE(0, "")}, /* the plain run */
    {1, 3, false, "cpu", "full", STAGE(0, "")},
    {1, 1, false, "sim", NULL, STAGE(0, "")},
    {2, 1, false, "cpu", NULL, STAGE(0, SMALL)},
    {2, 2, true, "cpu", "full", STAGE(1, SMALL ",\"overlap_comm\":true")},
    {3, 1, false, "cpu", NULL, STAGE(2, SMALL)},
    {3, 1, false, "sim", "full", STAGE(3, SMALL FETCH)},
    {4, 1, false, "cpu", NULL, STAGE(3, SMALL FETCH ",\"overlap_comm\":true")},
    {2, 1, false, "cpu", NULL, STAGE(1, SMALL TO("optimizer", "cpu"))},
    {2, 1, false, "cpu", "full", STAGE(3, FETCH TO("optimizer", "nvme") TO("param", "cpu"))},
    {6, 1, true, "cpu", NULL, STAGE(2, "")},
};

static void train(const struct kind *kind, const struct layout *layout, const char *type,
                  const char *ops)
{
    char zero[600], options[900];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(zero, sizeof zero, layout->zero, folder, folder);
#pragma GCC diagnostic pop
    snprintf(options, sizeof options, "\"reduction\":\"exact\",\"gradient_clipping\":0.5,%s%s",
             type, zero);
    gpt_run_ranks((struct gpt_run){.make = kind->make,
                                   .ranks = layout->ranks,
                                   .threads = layout->threads,
                                   .processes = layout->processes,
                                   .accelerator = layout->accelerator,
                                   .recompute = layout->recompute,
                                   .ops = ops,
                                   .options = options,
                                   .dropout = 0.1,
                                   .steps = STEPS},
                  seats);
}

static void check_layouts(const struct kind *kind, const char *type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        char what[200];
        snprintf(what, sizeof what, "%s%s, layout %d", type, kind->name, (int)i);
        train(kind, &layouts[i], type, NULL);
        if (i == 0)
            memcpy(reference, seats, sizeof seats);
        else
            gpt_assert_same(seats, layouts[i].ranks, reference, what);
    }
    const double first = reference[0].info[0].loss, last = reference[0].info[STEPS - 1].loss;
    printf("%s%s: loss %.6f -> %.6f, fingerprint %016llx\n", type, kind->name, first, last,
           (unsigned long long)reference[0].fingerprint);
    assert_true(last < first - 0.05); /* it learns, so bits moved */
}

static void test_same_bits_on_any_layout(void **state)
{
    const struct kind *kind = *state;
    check_layouts(kind, "");
    check_layouts(kind, "\"bf16\":{\"enabled\":true},");
}

/* What is trained is written down: a change here is a change of what everybody's runs give. */
static void test_bits(void **state)
{
    const struct kind *kind = *state;
    train(kind, &layouts[0], "", "ref");
    if (seats[0].fingerprint != kind->fingerprint)
        fail_msg("%s: the reference kernels train %016llx, but %016llx is written down", kind->name,
                 (unsigned long long)seats[0].fingerprint, (unsigned long long)kind->fingerprint);
}

static int make_folder(void **state)
{
    (void)state;
    setenv("SHOAL_SIM_BYTES", "268435456", 1);
    return mkdtemp(folder) ? 0 : -1;
}

/* The runs have to leave the folder empty. */
static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

#define TEST(function, index) cmocka_unit_test_prestate(function, (void *)(uintptr_t)&kinds[index])

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bits, 0),
        TEST(test_bits, 1),
        TEST(test_bits, 2),
        TEST(test_bits, 3),
        TEST(test_bits, 4),
        TEST(test_bits, 5),
        TEST(test_same_bits_on_any_layout, 0),
        TEST(test_same_bits_on_any_layout, 1),
        TEST(test_same_bits_on_any_layout, 2),
        TEST(test_same_bits_on_any_layout, 3),
        TEST(test_same_bits_on_any_layout, 4),
        TEST(test_same_bits_on_any_layout, 5),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
