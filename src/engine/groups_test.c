/* Weight decay and parameter groups as a user meets them: the values are AdamW's in fp64, and the
 * bits do not depend on the layout. */
#include "engine/test_gpt.h"

#include <math.h>

enum { STEPS = 4, ELEMENTS_MAX = 4096 };
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

#define ADAMW(more) "{\"type\":\"AdamW\",\"params\":{\"lr\":0.01,\"weight_decay\":0.1}" more "}"
static const char groups[] =
    ADAMW(",\"no_decay\":[\"1-D\"],\"param_groups\":["
          "{\"params\":[\"transformer.h.0.*\"],\"lr\":0.002,\"weight_decay\":0.3,\"eps\":1e-5},"
          "{\"params\":[\"transformer.wte.weight\"],\"betas\":[0.8,0.9],\"lr_mult\":0.5},"
          /* next to others of the same rate and decay */
          "{\"params\":[\"transformer.ln_f.weight\"],\"eps\":1e-3}]");

/* ---- values --------------------------------------------------------------------------------- */

struct values {
    double lr, weight_decay, beta1, beta2, eps;
};

static struct values all_alike(const char *name)
{
    (void)name;
    return (struct values){0.01, 0.1, 0.9, 0.999, 1e-8};
}

/* What `groups` says, read by a person. */
static struct values by_group(const char *name)
{
    struct values values = all_alike(name);
    if (strncmp(name, "transformer.h.0.", 16) == 0)
        values = (struct values){0.002, 0.3, 0.9, 0.999, 1e-5};
    if (strstr(name, "wte"))
        values = (struct values){0.005, 0.1, 0.8, 0.9, 1e-8};
    if (strstr(name, "ln_f.weight"))
        values.eps = 1e-3;
    if (strstr(name, "bias") || strstr(name, "ln_"))
        values.weight_decay = 0;
    return values;
}

/* One parameter in fp64. */
struct track {
    double weight[ELEMENTS_MAX], m[ELEMENTS_MAX], v[ELEMENTS_MAX];
};
static struct track tracks[32];

static void step_track(struct track *track, const float *gradient, const struct values *is,
                       int64_t t)
{
    const double beta1 = (float)is->beta1, beta2 = (float)is->beta2; /* as kernels get them */
    const double c1 = 1 - pow(is->beta1, (double)t), c2 = 1 - pow(is->beta2, (double)t);
    for (int64_t i = 0; i < ELEMENTS_MAX; i++) {
        const double g = gradient[i];
        track->m[i] = beta1 * track->m[i] + (1 - beta1) * g;
        track->v[i] = beta2 * track->v[i] + (1 - beta2) * g * g;
        track->weight[i] -= is->lr * is->weight_decay * track->weight[i];
        track->weight[i] -= is->lr / c1 * track->m[i] / (sqrt(track->v[i] / c2) + is->eps);
    }
}

/* A step of fp32 rounds the weight (2^-24 of it, a few times) and an update of about lr, whose
 * moments and root have some 2^-20. */
static bool near_track(struct gpt_seat *seat, const struct track *track, const float *weight,
                       const char *name, const struct values *is)
{
    for (int64_t i = 0; i < ELEMENTS_MAX; i++) {
        const double tolerance = STEPS * (0x1p-22 * fabs(track->weight[i]) + 0x1p-20 * is->lr);
        if (fabs((double)weight[i] - track->weight[i]) > tolerance)
            printf("%s[%lld]: %.9g, expected %.9g\n", name, (long long)i, (double)weight[i],
                   track->weight[i]);
        EXPECT(fabs((double)weight[i] - track->weight[i]) <= tolerance);
    }
    return true;
}

static bool follow(struct gpt_seat *seat)
{
    static float values[ELEMENTS_MAX];
    struct values (*const values_of)(const char *name) = seat->run->user;
    const char *name;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    memset(tracks, 0, sizeof tracks);
    for (int64_t t = 0; t <= STEPS; t++) {
        shoal_step_info info;
        if (t > 0)
            EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &info) >= 0);
        for (int32_t p = 0; (name = shoal_engine_param_name(seat->engine, p)); p++) {
            const struct values is = values_of(name);
            memset(values, 0, sizeof values);
            if (t > 0) {
                EXPECT(shoal_engine_get_gradient(seat->engine, name, values) == SHOAL_OK);
                step_track(&tracks[p], values, &is, t);
            }
            EXPECT(shoal_engine_get_param(seat->engine, name, values) == SHOAL_OK);
            for (int64_t i = 0; t == 0 && i < ELEMENTS_MAX; i++)
                tracks[p].weight[i] = values[i];
            EXPECT(near_track(seat, &tracks[p], values, name, &is));
        }
    }
    return true;
}

static void test_values(void **state)
{
    (void)state;
    struct gpt_run run = {.optimizer = ADAMW(""),
                          .options = "\"gradient_clipping\":0",
                          .layers = 2,
                          .steps = STEPS,
                          .run = follow,
                          .user = (void *)all_alike};
    gpt_run_ranks(run, seats);
    run.optimizer = groups;
    run.user = (void *)by_group;
    gpt_run_ranks(run, seats);
}

/* ---- layouts -------------------------------------------------------------------------------- */

#define SMALL "\"reduce_bucket_size\":1700,\"allgather_bucket_size\":5000,\"sub_group_size\":1000"
static const char *const layouts[] = {
    "\"stage\":0",
    "\"stage\":1,\"reduce_bucket_size\":1300",
    "\"stage\":2",
    "\"stage\":3,\"stage3_param_persistence_threshold\":0," SMALL,
    "\"stage\":2,\"offload_optimizer\":{\"device\":\"cpu\"}," SMALL,
    "\"stage\":3,\"offload_optimizer\":{\"device\":\"cpu\",\"ratio\":0.5},"
    "\"offload_param\":{\"device\":\"cpu\"}," SMALL,
};

static bool train_and_describe(struct gpt_seat *seat)
{
    char text[256];
    EXPECT(gpt_train(seat));
    shoal_engine_describe_weight_decay(seat->engine, text, sizeof text);
    EXPECT(strcmp(text, "weight decay 0.1: 6 tensors, 13,792 parameters; 0.3: 4 tensors, 12,288 "
                        "parameters; 18 tensors, 896 parameters do not decay (1-D)") == 0);
    return true;
}

static void test_layouts(void **state)
{
    static const char *const precisions[] = {"", ",\"bf16\":{\"enabled\":true}"};
    char options[1024];
    (void)state;
    for (size_t k = 0; k < 2; k++)
        for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++)
            for (int32_t ranks = 1; ranks <= 4; ranks++) {
                snprintf(options, sizeof options,
                         "\"reduction\":\"exact\",\"zero_optimization\":{%s}%s", layouts[l],
                         precisions[k]);
                struct gpt_run run = {.optimizer = groups,
                                      .options = options,
                                      .ranks = ranks,
                                      .steps = STEPS,
                                      .run = train_and_describe};
                const bool first = l == 0 && ranks == 1;
                gpt_run_ranks(run, first ? reference : seats);
                if (!first)
                    gpt_assert_same(seats, ranks, reference, layouts[l]);
            }
}

/* ---- what is the same, and what is not ------------------------------------------------------ */

static uint64_t fingerprint_with(const char *optimizer)
{
    gpt_run_ranks((struct gpt_run){.optimizer = optimizer, .steps = STEPS}, seats);
    return seats[0].fingerprint;
}

static void test_equal_words(void **state)
{
    (void)state;
    const uint64_t all = fingerprint_with(ADAMW("")),
                   matrices = fingerprint_with(ADAMW(",\"no_decay\":[\"1-D\"]")),
                   none = fingerprint_with(ADAMW(",\"no_decay\":[\"*\"]"));
    assert_true(all != matrices && matrices != none && all != none);
    assert_true(matrices == fingerprint_with(ADAMW(",\"no_decay\":[\"*.bias\",\"*.ln_?.*\"]")));
    assert_true(none == fingerprint_with("{\"type\":\"AdamW\",\"params\":{\"lr\":0.01}}"));
    assert_true(all == fingerprint_with(ADAMW(",\"param_groups\":[{\"params\":[\"*.h.*\"]}]")));
    assert_true(none == fingerprint_with(ADAMW(",\"param_groups\":[{\"params\":[\"*\"],"
                                               "\"weight_decay\":0}]")));
}

/* States are kept per parameter: a checkpoint may be continued with other groups. */
static bool change_groups(struct gpt_seat *seat)
{
    const char *folder = seat->run->user;
    char text[2048];
    struct gpt_run other = *seat->run;
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, "a", NULL) == SHOAL_OK);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    other.optimizer = groups;
    gpt_config_text(&other, text, sizeof text);
    EXPECT(gpt_open(seat, text) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, "a", 0, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &seat->info[STEPS]) >= 0);
    EXPECT(shoal_engine_global_steps(seat->engine) == STEPS + 1);
    return true;
}

static void test_resume(void **state)
{
    (void)state;
    char folder[] = "/tmp/shoal_groups_XXXXXX", command[128];
    assert_non_null(mkdtemp(folder));
    gpt_run_ranks((struct gpt_run){.optimizer = ADAMW(""),
                                   .steps = STEPS,
                                   .ranks = 2,
                                   .run = change_groups,
                                   .user = folder},
                  seats);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_equal_words),
        cmocka_unit_test(test_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
