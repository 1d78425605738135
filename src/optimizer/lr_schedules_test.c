/* Schedules against golden values, the formulas' end points, and properties of random
 * configurations. */
#include "base/test_cmocka.h"
#include "optimizer/lr_schedules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void check(const struct shoali_schedule *schedule, int64_t first, const double *golden,
                  int count, double tolerance)
{
    for (int k = 0; k < count; k++) {
        double got = shoali_schedule_lr(schedule, first + k);
        if (!(fabs(got - golden[k]) <= tolerance))
            fail_msg("%s: lr(%d) is %.9g, expected %.9g", schedule->type->name, (int)first + k, got,
                     golden[k]);
    }
}

/* A schedule read from JSON the way the engine does it. */
static shoal_status from_json(const char *text, double base_lr, struct shoali_arena *arena,
                              struct shoali_schedule *schedule)
{
    struct shoali_json *document = NULL;
    struct shoali_scheduler_config config;
    shoal_status status;
    SHOAL_TRY(status, shoali_json_parse(text, strlen(text), "test.json", &document), done);
    SHOAL_TRY(status, shoali_config_defaults(&shoali_scheduler_section, &config, arena), done);
    SHOAL_TRY(
        status,
        shoali_config_read_json(&shoali_scheduler_section, document, "scheduler", &config, arena),
        done);
    SHOAL_TRY(status,
              shoali_schedule_make(&config, document, "scheduler", base_lr, arena, schedule), done);
done:
    shoali_json_close(document);
    return status;
}

static void make(const char *text, double base_lr, struct shoali_schedule *schedule)
{
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    if (from_json(text, base_lr, &arena, schedule) != SHOAL_OK)
        fail_msg("%s", shoal_error_message());
    shoali_arena_fini(&arena);
}

static void refuse(const char *text, shoal_status expected, const char *word)
{
    struct shoali_arena arena;
    struct shoali_schedule schedule;
    shoali_arena_init(&arena);
    assert_int_equal(from_json(text, 0.1, &arena, &schedule), expected);
    if (!strstr(shoal_error_message(), word))
        fail_msg("`%s` does not say `%s`", shoal_error_message(), word);
    shoali_arena_fini(&arena);
}

static void test_warmup(void **state)
{
    (void)state;
    struct shoali_schedule s;
    static const double log_golden[] = {0,      .30103, .47712, .60206, .69897, .77815,
                                        .84510, .90309, .95424, 1,      1};
    make("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 1, "
         "\"warmup_num_steps\": 10}}}",
         0.5, &s);
    check(&s, 0, log_golden, 11, 5e-6);
    make("{\"scheduler\": {\"type\": \"warmuplr\", \"params\": {\"warmup_num_steps\": 4, "
         "\"warmup_min_lr\": 0.1, \"warmup_type\": \"linear\"}}}",
         0.5, &s);
    static const double linear_golden[] = {.1, .1, .2, .3, .4, .5, .5};
    check(&s, -1, linear_golden, 7, 1e-15); /* max is the optimizer's lr */
    make("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 1}}}", 0.5,
         &s);
    static const double short_golden[] = {0, 0, .5, .5}; /* counts as 2 steps */
    check(&s, -1, short_golden, 4, 1e-15);
}

static void test_warmup_decay(void **state)
{
    (void)state;
    struct shoali_schedule s;
    make("{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": 4, "
         "\"total_num_steps\": 8, \"warmup_max_lr\": 1, \"warmup_type\": \"linear\"}}}",
         0.5, &s);
    static const double golden[] = {0, 0, .25, .5, .75, 1, .75, .5, .25, 0, 0};
    check(&s, -1, golden, 11, 1e-15);
    make("{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 2000}}}",
         0.5, &s);
    static const double top[] = {.001}; /* its own default, not the optimizer's lr */
    check(&s, 1000, top, 1, 1e-18);
    make("{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 2000, "
         "\"warmup_max_lr\": \"auto\"}}}",
         0.5, &s);
    static const double asked[] = {.5}; /* "auto": the optimizer's lr */
    check(&s, 1000, asked, 1, 1e-18);
}

static void test_warmup_cosine(void **state)
{
    (void)state;
    struct shoali_schedule s;
    static const double golden[] = {.97553, .90452, .79391, .65454, .50005, .34556,
                                    .20619, .09558, .02457, .0001,  .0001};
    make("{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": 10, "
         "\"total_num_steps\": 20, \"warmup_min_ratio\": 0.25, \"warmup_type\": \"linear\"}}}",
         1, &s);
    check(&s, 10, golden, 11, 5e-6);
    static const double rise[] = {0, .25, .325, .4};
    check(&s, -1, rise, 4, 1e-15);
    s.base_lr = 3;
    assert_true(fabs(shoali_schedule_lr(&s, 12) - 3 * .79391) < 2e-5);
}

static void test_one_cycle(void **state)
{
    (void)state;
    struct shoali_schedule s;
    static const double golden[] = {.325, .55, .775, 1,     .775,  .55,
                                    .325, .1,  .08,  .0667, .0571, .05};
    make("{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.1, "
         "\"cycle_max_lr\": 1, \"cycle_first_step_size\": 4, \"decay_step_size\": 2, "
         "\"decay_lr_rate\": 0.5, \"decay_mom_rate\": 0.1}}}",
         1, &s);
    check(&s, 0, golden, 12, 5e-5);
    double momentum = 0;
    assert_true(shoali_schedule_momentum(&s, 3, &momentum));
    assert_true(fabs(momentum - .8) < 1e-15);
    assert_true(shoali_schedule_momentum(&s, 7, &momentum));
    assert_true(fabs(momentum - .9) < 1e-15);
    assert_true(shoali_schedule_momentum(&s, 9, &momentum));
    assert_true(fabs(momentum - .9 * 1.1) < 1e-15);

    make("{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0, "
         "\"cycle_max_lr\": 1, \"cycle_first_step_size\": 8, \"cycle_first_stair_count\": 2, "
         "\"cycle_momentum\": false, \"decay_lr_rate\": 0.5}}}",
         1, &s);
    static const double stairs[] = {0, 0, 0, 0, .5, .5, .5, .5, 1, .5, .5, .5, .5, 0, 0, 0, 0, 0};
    check(&s, -1, stairs, 18, 1e-15); /* after the cycle: decay_step_size 0 keeps min */
    assert_false(shoali_schedule_momentum(&s, 3, &momentum));
}

static void test_range_test(void **state)
{
    (void)state;
    struct shoali_schedule s;
    make("{\"scheduler\": {\"type\": \"LRRangeTest\", \"params\": {\"lr_range_test_min_lr\": 0.1, "
         "\"lr_range_test_step_size\": 2, \"lr_range_test_step_rate\": 3}}}",
         1, &s);
    static const double straight[] = {.1, .25, .4, .55};
    check(&s, -1, straight, 4, 1e-15);
    s.params.range_test.lr_range_test_staircase = true;
    static const double stairs[] = {.1, .1, .4, .4, .7};
    check(&s, -1, stairs, 5, 1e-15);
}

/* lr by Megatron's num_steps n, which is i + 1. */
static void megatron(const char *params, const double *golden, int count)
{
    struct shoali_schedule s;
    char text[512];
    snprintf(text, sizeof(text), "{\"scheduler\": {\"type\": \"Megatron\", \"params\": {%s}}}",
             params);
    make(text, 1, &s);
    check(&s, -1, golden, count, 1e-14);
}

static void test_megatron(void **state)
{
    (void)state;
    static const double linear[] = {.2, .6, 1, .775, .55, .325, .1, .1};
    megatron("\"lr_warmup_iters\": 2, \"lr_warmup_init\": 0.2, \"min_lr\": 0.1, "
             "\"lr_decay_iters\": 6",
             linear, 8);
    static const double fraction[] = {0, .5, 1, .75, .5, .25, 0};
    megatron("\"lr_warmup_fraction\": 0.34, \"lr_decay_iters\": 6", fraction, 7);
    static const double cosine[] = {1, .85355339059327378, .5, .14644660940672624, 0, 0};
    megatron("\"lr_decay_style\": \"cosine\", \"lr_decay_iters\": 4", cosine, 6);
    static const double constant[] = {0, .5, 1, 1, 1};
    megatron("\"lr_decay_style\": \"constant\", \"lr_warmup_iters\": 2", constant, 5);
    static const double inverse[] = {0,  .25, .5, .75, 1, .89442719099991588, .81649658092772603,
                                     .8, .8};
    megatron("\"lr_decay_style\": \"inverse-square-root\", \"lr_warmup_iters\": 4, "
             "\"lr_decay_iters\": 8, \"min_lr\": 0.8",
             inverse, 9);
    /* the last step of the decay is its own, above min_lr, which begins behind it */
    static const double last[] = {0,
                                  .25,
                                  .5,
                                  .75,
                                  1,
                                  .89442719099991588,
                                  .81649658092772603,
                                  .75592894601845445,
                                  .70710678118654757,
                                  .1,
                                  .1};
    megatron("\"lr_decay_style\": \"inverse-square-root\", \"lr_warmup_iters\": 4, "
             "\"lr_decay_iters\": 8, \"min_lr\": 0.1",
             last, 11);
    static const double wsd[] = {1, 1, 1, .41421356237309515, 0, 0};
    megatron("\"lr_decay_style\": \"WSD\", \"lr_decay_iters\": 4, \"lr_wsd_decay_iters\": 2", wsd,
             6);
    static const double root[] = {1, 1, 1, .29289321881345248, 0, 0};
    megatron("\"lr_decay_style\": \"wsd\", \"lr_decay_iters\": 4, \"lr_wsd_decay_iters\": 2, "
             "\"lr_wsd_decay_style\": \"minus_sqrt\"",
             root, 6);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("{\"scheduler\": {\"type\": \"WarmupRL\"}}", SHOAL_ECONFIG, "WarmupLR");
    refuse("{\"scheduler\": {\"type\": \"CosineAnnealingLR\"}}", SHOAL_EUNSUPPORTED,
           "not supported yet");
    refuse("{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {}}}", SHOAL_ECONFIG,
           "total_num_steps");
    refuse("{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": \"auto\", "
           "\"cycle_max_lr\": 1}}}",
           SHOAL_ECONFIG, "cycle_min_lr: must be given, \"auto\" has no meaning here");
    refuse("{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0, "
           "\"cycle_max_lr\": null}}}",
           SHOAL_ECONFIG, "cycle_max_lr: must be given, null is no value of it");
    refuse("{\"scheduler\": {\"type\": \"Megatron\", \"params\": {}}}", SHOAL_ECONFIG,
           "lr_decay_iters");
    refuse("{\"scheduler\": {\"type\": \"Megatron\", \"params\": {\"lr_decay_iters\": 5, "
           "\"lr_warmup_iters\": 5}}}",
           SHOAL_ECONFIG, "warm-up");
    refuse("{\"scheduler\": {\"type\": \"Megatron\", \"params\": {\"lr_decay_iters\": 5, "
           "\"lr_decay_style\": \"WSD\"}}}",
           SHOAL_ECONFIG, "lr_wsd_decay_iters");
    refuse("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_step\": 5}}}",
           SHOAL_ECONFIG, "warmup_num_steps");
}

static void test_absent(void **state)
{
    (void)state;
    struct shoali_schedule s;
    double momentum;
    make("{}", 0.25, &s);
    assert_null(s.type);
    assert_true(shoali_schedule_lr(&s, -1) == 0.25 && shoali_schedule_lr(&s, 100) == 0.25);
    assert_false(shoali_schedule_momentum(&s, 1, &momentum));
}

/* ---- limits ---------------------------------------------------------------------------------- */

struct limit {
    const char *type, *params;
    const char *sentence; /* of the refusal; NULL: it is taken */
    int64_t i;
    double lr; /* of update i, with lr 0.1 of the optimizer */
};
#define RISE "\"cycle_min_lr\":1,\"cycle_max_lr\":3,\"cycle_first_step_size\":4"

static const struct limit limits[] = {
    {"WarmupLR", "\"warmup_max_lr\":0", NULL, 5000, 0},
    {"WarmupDecayLR", "", "scheduler.params.total_num_steps: must be given", 0, 0},
    {"WarmupDecayLR", "\"total_num_steps\":1,\"warmup_num_steps\":1", NULL, 2, 0},
    {"WarmupDecayLR", "\"total_num_steps\":5,\"warmup_num_steps\":4", NULL, 4, 0.001},
    {"WarmupDecayLR", "\"total_num_steps\":4,\"warmup_num_steps\":4", NULL, 4, 0},
    {"WarmupCosineLR", "\"total_num_steps\":5,\"warmup_num_steps\":4,\"cos_min_ratio\":0.25", NULL,
     4, 0.025},
    {"OneCycle", "\"cycle_min_lr\":0.2,\"cycle_max_lr\":0.1",
     "scheduler.params: OneCycle: cycle_max_lr 0.1 is below cycle_min_lr 0.2", 0, 0},
    {"OneCycle", "\"cycle_min_lr\":0.2,\"cycle_max_lr\":0.2", NULL, 7, 0.2},
    {"OneCycle", RISE, NULL, 4, 2.5},
    {"OneCycle", RISE ",\"cycle_second_step_size\":0", NULL, 4, 1},
    {"OneCycle", RISE ",\"cycle_first_stair_count\":2", NULL, 4, 2},
    {"OneCycle", RISE ",\"cycle_first_stair_count\":2,\"cycle_second_stair_count\":0", NULL, 4,
     2.5},
    {"OneCycle", RISE ",\"cycle_first_stair_count\":2,\"cycle_second_stair_count\":1", NULL, 4, 1},
    {"OneCycle", RISE ",\"decay_step_size\":0,\"decay_lr_rate\":0.5", NULL, 8, 1},
    {"OneCycle", RISE ",\"decay_step_size\":1,\"decay_lr_rate\":0.5", NULL, 9, 0.5},
    {"OneCycle", RISE ",\"decay_step_size\":2,\"decay_lr_rate\":0.5", NULL, 9, 2.0 / 3},
    {"Megatron", "", "lr_decay_iters: give the number of steps of the decay", 0, 0},
    {"Megatron", "\"lr_decay_style\":\"constant\"", NULL, 9, 0.1},
    {"Megatron", "\"lr_decay_style\":\"constant\",\"lr\":0.5", NULL, 9, 0.5},
    {"Megatron", "\"lr_decay_style\":\"constant\",\"lr\":0", NULL, 9, 0},
    {"Megatron", "\"lr_decay_style\":\"constant\",\"lr_warmup_fraction\":0.5",
     "scheduler.params: lr_decay_iters: give the number of steps of the decay", 0, 0},
    {"Megatron", "\"lr_decay_iters\":4,\"lr_warmup_iters\":1,\"lr_warmup_fraction\":0.5",
     "give lr_warmup_iters or lr_warmup_fraction, not both", 0, 0},
    {"Megatron", "\"lr_decay_iters\":4,\"lr_warmup_fraction\":0.5", NULL, 0, 0.05},
    {"Megatron", "\"lr_decay_iters\":4,\"lr_warmup_iters\":4",
     "the warm-up of 4 steps must end before lr_decay_iters 4", 0, 0},
    {"Megatron", "\"lr_decay_iters\":4,\"lr_warmup_iters\":3", NULL, 2, 0.1},
    {"Megatron", "\"lr_decay_iters\":1", NULL, 0, 0},
    {"Megatron", "\"lr_decay_iters\":4,\"min_lr\":0.2", "min_lr 0.2 is above lr 0.1", 0, 0},
    {"Megatron", "\"lr_decay_iters\":4,\"min_lr\":0.1", NULL, 2, 0.1},
    {"Megatron", "\"lr_decay_iters\":4,\"lr_decay_style\":\"WSD\",\"lr_wsd_decay_iters\":0",
     "lr_wsd_decay_iters: WSD needs 1 to lr_decay_iters 4, got 0", 0, 0},
    {"Megatron", "\"lr_decay_iters\":4,\"lr_decay_style\":\"WSD\",\"lr_wsd_decay_iters\":5",
     "lr_wsd_decay_iters: WSD needs 1 to lr_decay_iters 4, got 5", 0, 0},
    {"Megatron", "\"lr_decay_iters\":4,\"lr_decay_style\":\"WSD\",\"lr_wsd_decay_iters\":1", NULL,
     2, 0.1},
    {"Megatron", "\"lr_decay_iters\":4,\"lr_decay_style\":\"WSD\",\"lr_wsd_decay_iters\":4", NULL,
     3, 0},
};

static void test_limits(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
        const struct limit *limit = &limits[k];
        struct shoali_schedule s;
        char text[400];
        memset(&s, -1, sizeof s);
        snprintf(text, sizeof text, "{\"scheduler\":{\"type\":\"%s\",\"params\":{%s}}}",
                 limit->type, limit->params);
        if (limit->sentence) {
            refuse(text, SHOAL_ECONFIG, limit->sentence);
            continue;
        }
        make(text, 0.1, &s);
        const double got = shoali_schedule_lr(&s, limit->i);
        assert_true(shoali_schedule_lr_at(&s, limit->i, (double)(limit->i + 1)) == got);
        if (!(fabs(got - limit->lr) <= 1e-15))
            fail_msg("%s: lr(%d) is %.17g, not %.17g", text, (int)limit->i, got, limit->lr);
    }
    refuse("{\"scheduler\":{\"params\":{\"warmup_num_steps\":4}}}", SHOAL_ECONFIG,
           "scheduler.params without scheduler.type: name the schedule that they are for");
    refuse("{\"scheduler\":{\"type\":\"WarmupCosineLR\"}}", SHOAL_ECONFIG, "total_num_steps");
    refuse("{\"scheduler\":{\"type\":\"WarmupRL\"}}", SHOAL_ECONFIG,
           "test.json:1: scheduler.type: ");
}

/* A momentum of 0 is one; at the top, and behind the cycle. */
static void test_momentum_limits(void **state)
{
    struct shoali_schedule s;
    double momentum = -1;
    (void)state;
    make("{\"scheduler\":{\"type\":\"OneCycle\",\"params\":{" RISE
         ",\"cycle_min_mom\":0,\"cycle_max_mom\":0.5,\"decay_step_size\":0,"
         "\"decay_mom_rate\":1}}}",
         0.1, &s);
    assert_true(shoali_schedule_momentum(&s, 3, &momentum));
    assert_true(momentum == 0);
    assert_true(shoali_schedule_momentum(&s, 8, &momentum));
    assert_true(momentum == 0.5);
}

/* ---- properties ------------------------------------------------------------------------------ */

/* Random warm-up configurations stay within [min, max], rise in the warm-up and fall after it. */
static void test_properties(void **state)
{
    (void)state;
    const uint64_t seed = 20240607;
    print_message("seed %llu\n", (unsigned long long)seed);
    static const char *const names[] = {"WarmupDecayLR", "WarmupCosineLR", "Megatron"};
    static const char *const styles[] = {"linear", "constant", "cosine", "inverse-square-root",
                                         "WSD"};
    static const char *const wsd_styles[] = {"exponential", "linear", "cosine", "minus_sqrt"};
    for (uint64_t k = 0; k < 300; k++) {
        struct shoali_stream stream = shoali_stream_make(seed, "test", "", k);
        int64_t warmup = 2 + (int64_t)shoali_random_below(&stream, 0, 50);
        int64_t total = warmup + 1 + (int64_t)shoali_random_below(&stream, 1, 100);
        struct shoali_schedule s;
        int kind = (int)(k % 3);
        char text[400];
        if (kind == 2)
            snprintf(text, sizeof(text),
                     "{\"scheduler\": {\"type\": \"Megatron\", \"params\": {\"lr_warmup_iters\": "
                     "%lld, \"lr_decay_iters\": %lld, \"lr_wsd_decay_iters\": %lld, "
                     "\"lr_decay_style\": \"%s\", \"lr_wsd_decay_style\": \"%s\"}}}",
                     (long long)warmup, (long long)total, (long long)(total - warmup),
                     styles[k / 3 % 5], wsd_styles[k / 15 % 4]);
        else
            snprintf(text, sizeof(text),
                     "{\"scheduler\": {\"type\": \"%s\", \"params\": {\"warmup_num_steps\": %lld, "
                     "\"total_num_steps\": %lld, \"warmup_type\": \"%s\"}}}",
                     names[kind], (long long)warmup, (long long)total,
                     k / 3 % 2 ? "linear" : "log");
        make(text, 0.001, &s);
        int64_t top = kind == 2 ? warmup - 1 : warmup;
        for (int64_t i = -1; i < total + 5; i++) {
            double now = shoali_schedule_lr(&s, i), next = shoali_schedule_lr(&s, i + 1);
            assert_true(now >= 0 && now <= 0.001 * (1 + 1e-15));
            if (i + 1 < top)
                assert_true(next >= now);
            else if (i > top)
                assert_true(next <= now * (1 + 1e-14) + 1e-18);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup),        cmocka_unit_test(test_warmup_decay),
        cmocka_unit_test(test_warmup_cosine), cmocka_unit_test(test_one_cycle),
        cmocka_unit_test(test_range_test),    cmocka_unit_test(test_megatron),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_absent),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_momentum_limits),
        cmocka_unit_test(test_properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
