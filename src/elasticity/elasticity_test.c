#include "elasticity/elasticity.h"

#include "base/str.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static shoal_status read_section(const char *text, struct shoali_elasticity_config *config,
                                 struct shoali_arena *arena)
{
    shoal_status status;
    struct shoali_json *document = NULL;
    SHOAL_TRY(status, shoali_config_defaults(&shoali_elasticity_section, config, arena), done);
    SHOAL_TRY(status, shoali_json_parse(text, strlen(text), "config", &document), done);
    SHOAL_TRY(status,
              shoali_config_read_json(&shoali_elasticity_section, document, "", config, arena),
              done);
done:
    shoali_json_close(document);
    return status;
}

static const char *print(const struct shoali_ints *list, struct shoali_arena *arena)
{
    const char *text = "";
    for (int32_t i = 0; i < list->count; i++)
        text =
            shoali_arena_printf(arena, "%s%s%lld", text, i ? " " : "", (long long)list->value[i]);
    return text;
}

/* Vectors of DeepSpeed's own tests, and of its rules worked out by another program. */
struct vector {
    const char *section;
    int64_t count, batch;
    const char *counts;
    int64_t micro; /* of `count` */
};
#define SECTION(rest) "{\"enabled\": true, " rest "}"
#define WIDE                                                                    \
    "\"max_train_batch_size\": 10000, \"micro_batch_sizes\": [8, 12, 16, 17], " \
    "\"min_gpus\": 32, \"max_gpus\": 1500, "
#define SMALL "\"max_train_batch_size\": 2000, \"micro_batch_sizes\": [2, 4, 6], "
#define COUNTS_9792 \
    "32 34 36 48 51 64 68 72 96 102 136 144 153 192 204 272 288 306 408 576 612 816 1224"
#define COUNTS_1680                                                                                \
    "1 2 3 4 5 6 7 8 10 12 14 15 20 21 24 28 30 35 40 42 56 60 70 84 105 120 140 168 210 280 420 " \
    "840"
static const struct vector vectors[] = {
    {SECTION(WIDE "\"version\": 0.1"), 0, 9792, COUNTS_9792, 0},
    {SECTION(WIDE "\"version\": 0.1"), 64, 9792, COUNTS_9792, 17},
    {SECTION(WIDE "\"version\": 0.1"), 51, 9792, COUNTS_9792, 16},
    {SECTION(SMALL "\"version\": 0.1"), 0, 1680, COUNTS_1680, 0},
    {SECTION(SMALL "\"version\": 0.1"), 840, 1680, COUNTS_1680, 2},
    {SECTION(SMALL "\"version\": 0.1"), 280, 1680, COUNTS_1680, 6},
    {SECTION(SMALL "\"version\": 0.2"), 7, 1680, COUNTS_1680, 6},
    /* the least common multiple of 7 and 11 is beyond the limit */
    {SECTION("\"max_train_batch_size\": 50, \"micro_batch_sizes\": [7, 11], \"version\": 0.1"), 3,
     42, "1 2 3 6", 7},
    {SECTION("\"max_train_batch_size\": 60, \"micro_batch_sizes\": [4, 5], \"version\": 0.1, "
             "\"min_gpus\": 2, \"max_gpus\": 20"),
     4, 60, "2 3 4 5 6 12 15", 5},
    /* equally many counts: the larger batch, or the smaller */
    {SECTION("\"max_train_batch_size\": 20, \"micro_batch_sizes\": [2, 3], \"version\": 0.1"), 0,
     18, "1 2 3 6 9", 0},
    {SECTION("\"max_train_batch_size\": 20, \"micro_batch_sizes\": [2, 3], \"version\": 0.1, "
             "\"prefer_larger_batch\": false"),
     0, 12, "1 2 3 4 6", 0},
    /* whole machines */
    {SECTION(SMALL "\"num_gpus_per_node\": 8"), 16, 1920,
     "8 16 24 32 40 48 64 80 96 120 160 192 240 320 480 960", 6},
    {SECTION(SMALL "\"num_gpus_per_node\": 8, \"model_parallel_size\": 2"), 4, 1920,
     "4 8 12 16 20 24 32 40 48 60 64 80 96 120 160 192 240 320 480 960", 6},
    {SECTION(WIDE "\"num_gpus_per_node\": 8"), 64, 7680,
     "32 40 48 64 80 96 120 128 160 192 240 320 480 640 960", 12},
    /* a number of machines that is not among them has a batch of its own */
    {SECTION(WIDE "\"num_gpus_per_node\": 8"), 104, 9984, "104", 16},
    {SECTION("\"max_train_batch_size\": 100, \"micro_batch_sizes\": [2, 3], \"max_gpus\": 100, "
             "\"num_gpus_per_node\": 2, \"prefer_larger_batch\": false"),
     10, 90, "10", 3},
};

static void test_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        const struct vector *one = &vectors[i];
        struct shoali_elasticity_config config;
        struct shoali_elastic_sizes sizes;
        struct shoali_arena arena;
        shoali_arena_init(&arena);
        print_message("%s for %d\n", one->section, (int)one->count);
        assert_int_equal(read_section(one->section, &config, &arena), SHOAL_OK);
        assert_int_equal(shoali_elastic_find(&config, one->count, false, &arena, &sizes), SHOAL_OK);
        assert_int_equal(sizes.batch, one->batch);
        assert_string_equal(print(&sizes.counts, &arena), one->counts);
        assert_int_equal(sizes.own_batch, sizes.counts.count == 1);
        assert_int_equal(sizes.common_micro, 0);
        if (one->count)
            assert_int_equal(shoali_elastic_micro(&config, &sizes, one->count), one->micro);
        shoali_arena_fini(&arena);
    }
}

/* One micro-batch for all: that with the most counts; and it divides the batch for each. */
static void test_exact(void **state)
{
    (void)state;
    static const struct {
        const char *section, *counts;
        int64_t micro;
    } cases[] = {
        {SECTION(SMALL "\"version\": 0.1"), COUNTS_1680, 2},
        {SECTION(WIDE "\"version\": 0.1"), "34 36 51 68 72 102 136 153 204 306 408 612 1224", 8},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shoali_elasticity_config config;
        struct shoali_elastic_sizes sizes;
        struct shoali_arena arena;
        shoali_arena_init(&arena);
        assert_int_equal(read_section(cases[i].section, &config, &arena), SHOAL_OK);
        assert_int_equal(shoali_elastic_find(&config, 0, true, &arena, &sizes), SHOAL_OK);
        assert_int_equal(sizes.common_micro, cases[i].micro);
        assert_string_equal(print(&sizes.counts, &arena), cases[i].counts);
        for (int32_t k = 0; k < sizes.counts.count; k++)
            assert_int_equal(sizes.batch % (cases[i].micro * sizes.counts.value[k]), 0);
        assert_int_equal(shoali_elastic_micro(&config, &sizes, sizes.counts.value[0]),
                         cases[i].micro);
        /* also with version 0.2, where it would else get a batch of its own */
        config.version = SHOALI_ELASTICITY_V2;
        assert_int_equal(shoali_elastic_find(&config, 11, true, &arena, &sizes), SHOAL_ECONFIG);
        assert_non_null(strstr(shoal_error_message(), "\"reduction\": \"exact\" needs"));
        shoali_arena_fini(&arena);
    }
}

static void test_largest(void **state)
{
    (void)state;
    struct shoali_elasticity_config config;
    struct shoali_elastic_sizes sizes;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    assert_int_equal(read_section(SECTION(WIDE "\"version\": 0.1"), &config, &arena), SHOAL_OK);
    assert_int_equal(shoali_elastic_find(&config, 0, false, &arena, &sizes), SHOAL_OK);
    assert_int_equal(shoali_elastic_largest(&sizes, 31), 0);
    assert_int_equal(shoali_elastic_largest(&sizes, 32), 32);
    assert_int_equal(shoali_elastic_largest(&sizes, 33), 32);
    assert_int_equal(shoali_elastic_largest(&sizes, 63), 51);
    assert_int_equal(shoali_elastic_largest(&sizes, 100000), 1224);
    shoali_arena_fini(&arena);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *section;
        int64_t count;
        const char *says;
    } cases[] = {
        {"{\"enabled\": true}", 0, "max_train_batch_size is missing"},
        {SECTION("\"max_train_batch_size\": 100"), 0, "micro_batch_sizes is missing"},
        {SECTION(SMALL "\"version\": 0.15"), 0, "version 0.15 does not exist: give 0.1 or 0.2"},
        {SECTION(SMALL "\"version\": 0.3"), 0, "version"},
        {SECTION(SMALL "\"min_gpus\": 9, \"max_gpus\": 3"), 0,
         "min_gpus 9 is more than max_gpus 3"},
        {SECTION(SMALL "\"min_gpus\": 0"), 0, "min_gpus"},
        {SECTION(SMALL "\"version\": 0.1, \"model_parallel_size\": 2"), 0, "version 0.1 does not"},
        {SECTION(SMALL "\"model_parallel_size\": 3, \"num_gpus_per_node\": 8"), 0,
         "num_gpus_per_node 8 is not a multiple of model_parallel_size 3"},
        {SECTION("\"max_train_batch_size\": 10, \"micro_batch_sizes\": []"), 0, "has 0 entries"},
        {SECTION("\"max_train_batch_size\": 10, \"micro_batch_sizes\": [2, 0]"), 0, "has 0:"},
        {SECTION("\"max_train_batch_size\": 10, \"micro_batch_sizes\": [2, 11]"), 0,
         "has 11, more than max_train_batch_size (10)"},
        {SECTION("\"max_train_batch_size\": 10, \"micro_batch_sizes\": [2], \"min_gpus\": 6"), 0,
         "no batch of at most 10 can be divided by 6 to 10000 ranks"},
        {SECTION("\"max_train_batch_size\": 12, \"micro_batch_sizes\": [2], \"version\": 0.1"), 5,
         "5 data-parallel ranks cannot divide the batch of 12: start one of these numbers: 1, 2, "
         "3, 6"},
        {SECTION("\"max_train_batch_size\": 12, \"micro_batch_sizes\": [2]"), 7,
         "7 data-parallel ranks are more than"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shoali_elasticity_config config;
        struct shoali_elastic_sizes sizes;
        struct shoali_arena arena;
        shoali_arena_init(&arena);
        shoal_status status = read_section(cases[i].section, &config, &arena);
        if (cases[i].count)
            assert_int_equal(status, SHOAL_OK);
        if (status == SHOAL_OK)
            status = shoali_elastic_find(&config, cases[i].count, false, &arena, &sizes);
        if (status != SHOAL_ECONFIG || !strstr(shoal_error_message(), cases[i].says))
            fail_msg("%s: %d, \"%s\" does not say \"%s\"", cases[i].section, (int)status,
                     shoal_error_message(), cases[i].says);
        shoali_arena_fini(&arena);
    }
}

/* Off, it is not looked at. */
static void test_off(void **state)
{
    (void)state;
    struct shoali_elasticity_config config;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    assert_int_equal(
        read_section("{\"enabled\": false, \"micro_batch_sizes\": []}", &config, &arena), SHOAL_OK);
    assert_int_equal(
        read_section("{\"enabled\": false, \"max_train_batch_size\": 0, \"version\": 0}", &config,
                     &arena),
        SHOAL_OK);
    assert_true(config.max_train_batch_size == 2000 && config.version > 0);
    assert_int_equal(
        read_section("{\"enabled\": true, \"max_train_batch_size\": 0}", &config, &arena),
        SHOAL_ECONFIG);
    shoali_arena_fini(&arena);
}

static void test_scheduler(void **state)
{
    (void)state;
    struct shoali_elasticity_config config;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    assert_int_equal(read_section(SECTION(SMALL "\"version\": 0.1"), &config, &arena), SHOAL_OK);
    unsetenv(SHOALI_ELASTIC_VARIABLE);
    assert_int_equal(shoali_elastic_check_scheduler(&config), SHOAL_OK);
    setenv(SHOALI_ELASTIC_VARIABLE, shoali_elastic_variable(&config, &arena), 1);
    assert_int_equal(shoali_elastic_check_scheduler(&config), SHOAL_OK);
    static const char *const others[][2] = {
        {"{\"max_train_batch_size\": 2001, \"micro_batch_sizes\": [2, 4, 6], \"version\": 0.1}",
         "elasticity.max_train_batch_size is not that of DEEPSPEED_ELASTICITY_CONFIG"},
        {"{\"max_train_batch_size\": 2000, \"micro_batch_sizes\": [2, 4], \"version\": 0.1}",
         "elasticity.micro_batch_sizes"},
        {"{\"max_train_batch_size\": 2000, \"micro_batch_sizes\": [2, 4, 6]}",
         "elasticity.version"},
        {"{", "DEEPSPEED_ELASTICITY_CONFIG"},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        setenv(SHOALI_ELASTIC_VARIABLE, others[i][0], 1);
        assert_int_equal(shoali_elastic_check_scheduler(&config), SHOAL_ECONFIG);
        assert_non_null(strstr(shoal_error_message(), others[i][1]));
    }
    unsetenv(SHOALI_ELASTIC_VARIABLE);
    shoali_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_exact),
        cmocka_unit_test(test_largest), cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_off),     cmocka_unit_test(test_scheduler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
