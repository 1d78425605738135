#include "base/config_table.h"

#include "base/fault.h"
#include "base/log.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct zero {
    int64_t stage, bucket;
    bool overlap;
    uint64_t given[SHOALI_GIVEN_WORDS];
};

struct config {
    double lr;
    bool flag;
    int64_t batch, seed;
    const char *name;
    int32_t kind;
    struct shoali_floats betas;
    struct shoali_ints sizes;
    struct shoali_strings paths;
    struct zero zero;
    json_t *free_form;
    uint64_t given[SHOALI_GIVEN_WORDS];
};

static shoal_status check_zero(void *config)
{
    const struct zero *zero = config;
    if (zero->stage == 0 && zero->overlap)
        return SHOAL_FAIL(SHOAL_ECONFIG, "overlap_comm needs stage 1 or more");
    return SHOAL_OK;
}

static const struct shoali_option zero_rows[] = {
    {.key = "stage", .type = SHOALI_INT, .offset = offsetof(struct zero, stage), .max = 3},
    {.key = "bucket_size",
     .type = SHOALI_INT,
     .offset = offsetof(struct zero, bucket),
     .default_number = 5e8,
     .min = 1,
     .max = (double)INFINITY,
     .unit = "elements",
     .env = "SHOAL_TEST_BUCKET"},
    {.key = "overlap_comm", .type = SHOALI_BOOL, .offset = offsetof(struct zero, overlap)},
    {.key = "zenflow", .type = SHOALI_SECTION, .state = SHOALI_PENDING},
    {.key = "sub_group_size", .type = SHOALI_INT, .default_number = 7, .state = SHOALI_PENDING},
};
static const struct shoali_section zero_section = {
    .name = "zero_optimization",
    .rows = SHOALI_ROWS(zero_rows),
    .struct_bytes = sizeof(struct zero),
    .given_offset = offsetof(struct zero, given),
    .validate = check_zero,
};

static const char *const kinds[] = {"adam", "lamb", NULL};
static const struct shoali_option rows[] = {
    {.key = "lr",
     .type = SHOALI_FLOAT,
     .offset = offsetof(struct config, lr),
     .default_number = 1e-3,
     .max = 10,
     .alias = "learning_rate"},
    {.key = "flag",
     .type = SHOALI_BOOL,
     .offset = offsetof(struct config, flag),
     .default_number = 1},
    {.key = "train_batch_size",
     .type = SHOALI_INT,
     .offset = offsetof(struct config, batch),
     .flags = SHOALI_OPTION_REQUIRED,
     .help = "Samples per step."},
    {.key = "seed",
     .type = SHOALI_INT,
     .offset = offsetof(struct config, seed),
     .default_number = -1,
     .min = 0,
     .max = 100},
    {.key = "name",
     .type = SHOALI_STRING,
     .offset = offsetof(struct config, name),
     .default_text = "run"},
    {.key = "type",
     .type = SHOALI_ENUM,
     .offset = offsetof(struct config, kind),
     .default_number = 1,
     .choices = kinds},
    {.key = "betas",
     .type = SHOALI_FLOATS,
     .offset = offsetof(struct config, betas),
     .default_text = "0.9, 0.999",
     .max = 1},
    {.key = "sizes", .type = SHOALI_INTS, .offset = offsetof(struct config, sizes)},
    {.key = "paths",
     .type = SHOALI_STRINGS,
     .offset = offsetof(struct config, paths),
     .default_text = "a b"},
    {.key = "zero_optimization",
     .type = SHOALI_SECTION,
     .offset = offsetof(struct config, zero),
     .section = &zero_section},
    {.key = "extra", .type = SHOALI_JSON, .offset = offsetof(struct config, free_form)},
    {.key = "amp", .type = SHOALI_SECTION, .state = SHOALI_DEAD, .help = "use bf16"},
    {.key = "dump_state",
     .type = SHOALI_BOOL,
     .state = SHOALI_NOEFFECT,
     .help = "no state to dump"},
    {.key = "tags", .type = SHOALI_STRINGS, .default_text = "x y", .state = SHOALI_PENDING},
};
static const struct shoali_section section = {
    .name = "config",
    .rows = SHOALI_ROWS(rows),
    .struct_bytes = sizeof(struct config),
    .given_offset = offsetof(struct config, given),
};

struct fixture {
    struct shoali_arena arena;
    struct shoali_json *document;
    struct config config;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    shoali_arena_init(&fixture.arena);
    memset(&fixture.config, 0xff, sizeof(fixture.config));
    *state = &fixture;
    return shoali_config_defaults(&section, &fixture.config, &fixture.arena);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    shoali_json_close(fixture->document);
    shoali_arena_fini(&fixture->arena);
    return 0;
}

/* Reads a text into fresh defaults. */
static shoal_status read_text(struct fixture *fixture, const char *text)
{
    shoali_json_close(fixture->document);
    fixture->document = NULL;
    shoal_status status;
    SHOAL_TRY(status, shoali_json_parse(text, strlen(text), "f.json", &fixture->document), done);
    SHOAL_TRY(status, shoali_config_defaults(&section, &fixture->config, &fixture->arena), done);
    SHOAL_TRY(
        status,
        shoali_config_read_json(&section, fixture->document, "", &fixture->config, &fixture->arena),
        done);
done:
    return status;
}

static void test_defaults(void **state)
{
    struct fixture *fixture = *state;
    const struct config *config = &fixture->config;
    assert_true(config->lr == 1e-3 && config->flag && config->seed == -1 && config->kind == 1);
    assert_string_equal(config->name, "run");
    assert_int_equal(config->betas.count, 2);
    assert_true(config->betas.value[0] == 0.9 && config->betas.value[1] == 0.999);
    assert_int_equal(config->sizes.count, 0);
    assert_int_equal(config->paths.count, 2);
    assert_string_equal(config->paths.value[1], "b");
    assert_int_equal(config->zero.bucket, 500000000);
    assert_null(config->free_form);
    assert_false(shoali_config_given(&section, config, "lr"));
}

static void test_every_type_is_read(void **state)
{
    struct fixture *fixture = *state;
    const struct config *config = &fixture->config;
    const char *text =
        "{\"learning_rate\": 2, \"flag\": false, \"train_batch_size\": 1e9,\n"
        "\"name\": \"n\", \"type\": \"ADAM\", \"betas\": [0.5, 1], \"sizes\": [3, 2.0],\n"
        "\"paths\": [\"x\"], \"zero_optimization\": {\"stage\": 2},\n"
        "\"extra\": {\"any\": [1]}, \"tags\": [\"x\", \"y\"]}";
    assert_int_equal(read_text(fixture, text), SHOAL_OK);
    assert_true(config->lr == 2.0 && !config->flag && config->batch == 1000000000);
    assert_string_equal(config->name, "n");
    assert_int_equal(config->kind, 0);
    assert_true(config->betas.count == 2 && config->betas.value[1] == 1.0);
    assert_true(config->sizes.count == 2 && config->sizes.value[1] == 2);
    assert_true(config->paths.count == 1 && strcmp(config->paths.value[0], "x") == 0);
    assert_true(config->zero.stage == 2 && config->zero.bucket == 500000000);
    assert_true(json_is_array(json_object_get(config->free_form, "any")));
    assert_true(shoali_config_given(&section, config, "lr"));
    assert_true(shoali_config_given(&section, config, "learning_rate"));
    assert_true(shoali_config_given(&section, config, "zero_optimization"));
    assert_true(shoali_config_given(&zero_section, &config->zero, "stage"));
    assert_false(shoali_config_given(&zero_section, &config->zero, "bucket_size"));
    assert_false(shoali_config_given(&section, config, "seed"));
    assert_false(shoali_config_given(&section, config, "nothing"));
}

static void test_auto_and_null_leave_defaults(void **state)
{
    struct fixture *fixture = *state;
    const struct config *config = &fixture->config;
    const char *text = "{\"train_batch_size\": \"auto\", \"lr\": \"auto\", \"betas\": \"auto\",\n"
                       "\"type\": \"auto\", \"zero_optimization\": null, \"flag\": \"auto\",\n"
                       "\"tags\": \"auto\", \"seed\": null, \"name\": null, \"extra\": null,\n"
                       "\"dump_state\": null}";
    assert_int_equal(read_text(fixture, text), SHOAL_OK);
    assert_true(config->lr == 1e-3 && config->betas.count == 2 && config->kind == 1);
    assert_false(shoali_config_given(&section, config, "lr"));
    assert_false(shoali_config_given(&section, config, "train_batch_size"));
    assert_false(shoali_config_given(&section, config, "zero_optimization"));
    assert_int_equal(config->seed, -1);
    assert_string_equal(config->name, "run");
    assert_null(config->free_form);
    assert_false(shoali_config_given(&section, config, "seed"));
    assert_int_equal(
        read_text(fixture, "{\"train_batch_size\": 1, \"zero_optimization\": \"auto\"}"), SHOAL_OK);
    assert_false(shoali_config_given(&section, config, "zero_optimization"));
}

struct wrong {
    const char *text, *message;
    shoal_status status;
};

static void expect_wrong(struct fixture *fixture, const struct wrong *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[512];
        snprintf(text, sizeof(text), "{\"train_batch_size\": 8,\n%s}", cases[i].text);
        shoal_status status = read_text(fixture, text);
        if (status != cases[i].status || strcmp(shoal_error_message(), cases[i].message) != 0)
            fail_msg("%s: %s: %s", cases[i].text, shoal_status_name(status), shoal_error_message());
    }
}

static void test_wrong_values(void **state)
{
    static const struct wrong cases[] = {
        {"\"seed\": 1.5", "f.json:2: seed: must be an integer, got 1.5", SHOAL_ECONFIG},
        {"\"seed\": 1e30", "f.json:2: seed: must be an integer, got 1e30", SHOAL_ECONFIG},
        {"\"seed\": \"7\"", "f.json:2: seed: must be an integer, got \"7\"", SHOAL_ECONFIG},
        {"\"extra\": 3", "f.json:2: extra: must be a section { ... } or a list, got 3",
         SHOAL_ECONFIG},
        {"\"extra\": \"auto\"",
         "f.json:2: extra: must be a section { ... } or a list, got \"auto\"", SHOAL_ECONFIG},
        {"\"seed\": 101", "f.json:2: seed: must be from 0 to 100, got 101", SHOAL_ECONFIG},
        {"\"lr\": true", "f.json:2: lr: must be a number, got true", SHOAL_ECONFIG},
        {"\"lr\": 10.5", "f.json:2: lr: must be from 0 to 10, got 10.5", SHOAL_ECONFIG},
        {"\"flag\": 1", "f.json:2: flag: must be true or false, got 1", SHOAL_ECONFIG},
        {"\"name\": [\"x\"]", "f.json:2: name: must be a string, got [\"x\"]", SHOAL_ECONFIG},
        {"\"type\": \"sgd\"", "f.json:2: type: must be \"adam\" or \"lamb\", got \"sgd\"",
         SHOAL_ECONFIG},
        {"\"betas\": [0.5, 2]", "f.json:2: betas: element 2: must be from 0 to 1, got 2",
         SHOAL_ECONFIG},
        {"\"betas\": 0.5", "f.json:2: betas: must be a list of numbers, got 0.5", SHOAL_ECONFIG},
        {"\"sizes\": [1.5]", "f.json:2: sizes: element 1: must be an integer, got 1.5",
         SHOAL_ECONFIG},
        {"\"zero_optimization\": 3", "f.json:2: zero_optimization: must be a section, { ... }",
         SHOAL_ECONFIG},
        {"\"zero_optimization\": {\n\"bucket_size\": 0}",
         "f.json:3: zero_optimization.bucket_size: must be at least 1 elements, got 0",
         SHOAL_ECONFIG},
    };
    expect_wrong(*state, cases, sizeof(cases) / sizeof(cases[0]));
}

static void test_wrong_keys(void **state)
{
    static const struct wrong cases[] = {
        {"\n\"sede\": 1", "f.json:3: sede: unknown key; nearest key is `seed`", SHOAL_ECONFIG},
        {"\"zero_optimization\": {\n\n \"stag\": 1}",
         "f.json:4: zero_optimization.stag: unknown key; nearest key is `stage`", SHOAL_ECONFIG},
        {"\"overlap_comm\": 1",
         "f.json:2: overlap_comm: unknown key; no key of this section is near", SHOAL_ECONFIG},
        {"\"lr\": 1,\n\"learning_rate\": 1",
         "f.json:2: lr: means the same as `learning_rate`, which is given too; remove one of the "
         "two",
         SHOAL_ECONFIG},
        {"\"lr\": 1,\n\n\"lr\": 1",
         "f.json:4: lr: given twice, first on line 2; remove one of the "
         "two",
         SHOAL_ECONFIG},
        {"\"zero_optimization\": {\"stage\": 0, \"overlap_comm\": true}",
         "f.json:2: zero_optimization: overlap_comm needs stage 1 or more", SHOAL_ECONFIG},
    };
    expect_wrong(*state, cases, sizeof(cases) / sizeof(cases[0]));
    assert_int_equal(read_text(*state, "{\"seed\": 1}"), SHOAL_ECONFIG);
    assert_string_equal(shoal_error_message(),
                        "f.json:1: train_batch_size: must be given: Samples per step.");
}

static void test_states(void **state)
{
    static const struct wrong cases[] = {
        {"\"zero_optimization\": {\"zenflow\": {\"topk\": 1}}",
         "f.json:2: zero_optimization.zenflow is known but not supported yet; remove it",
         SHOAL_EUNSUPPORTED},
        {"\"zero_optimization\": {\"sub_group_size\": 8}",
         "f.json:2: zero_optimization.sub_group_size is known but not supported yet; remove it",
         SHOAL_EUNSUPPORTED},
        {"\"tags\": [\"x\"]", "f.json:2: tags is known but not supported yet; remove it",
         SHOAL_EUNSUPPORTED},
        {"\"amp\": {\"enabled\": false}", "f.json:2: amp is no longer used; use bf16",
         SHOAL_ECONFIG},
        {"\"dump_state\": 3", "f.json:2: dump_state: must be true or false, got 3", SHOAL_ECONFIG},
    };
    struct fixture *fixture = *state;
    expect_wrong(fixture, cases, sizeof(cases) / sizeof(cases[0]));
    assert_int_equal(read_text(fixture,
                               "{\"train_batch_size\": 1, \"zero_optimization\": "
                               "{\"sub_group_size\": 7, \"zenflow\": {\"enabled\": false}}}"),
                     SHOAL_OK);
    assert_int_equal(fixture->config.zero.stage, 0);
}

static void count_line(void *user, shoal_log_level level, const char *subsystem, int rank,
                       const char *text)
{
    (void)level;
    (void)subsystem;
    (void)rank;
    *(int *)user += strcmp(text, "dump_state has no effect: no state to dump") == 0;
}

static void test_no_effect_is_logged(void **state)
{
    int lines = 0;
    assert_int_equal(shoal_log_configure("info", count_line, &lines), SHOAL_OK);
    assert_int_equal(read_text(*state, "{\"train_batch_size\": 1, \"dump_state\": true}"),
                     SHOAL_OK);
    shoali_context_get()->logger = NULL;
    assert_int_equal(lines, 1);
    struct fixture *fixture = *state;
    assert_true(fixture->config.lr == 1e-3);
}

static void test_environment_replaces_defaults(void **state)
{
    struct fixture *fixture = *state;
    setenv("SHOAL_TEST_BUCKET", "5_000", 1);
    assert_int_equal(read_text(fixture, "{\"train_batch_size\": 1}"), SHOAL_OK);
    assert_int_equal(fixture->config.zero.bucket, 5000);
    assert_false(shoali_config_given(&zero_section, &fixture->config.zero, "bucket_size"));
    const char *given = "{\"train_batch_size\": 1, \"zero_optimization\": {\"bucket_size\": 9}}";
    assert_int_equal(read_text(fixture, given), SHOAL_OK);
    assert_int_equal(fixture->config.zero.bucket, 9);
    setenv("SHOAL_TEST_BUCKET", "0", 1);
    assert_int_equal(read_text(fixture, given), SHOAL_OK);
    assert_int_equal(read_text(fixture, "{\"train_batch_size\": 1}"), SHOAL_ECONFIG);
    assert_string_equal(shoal_error_message(), "variable SHOAL_TEST_BUCKET (for `bucket_size`): "
                                               "must be at least 1 elements, got 0");
    unsetenv("SHOAL_TEST_BUCKET");
}

static void test_nested_path(void **state)
{
    struct fixture *fixture = *state;
    const char *text = "{\"optimizer\": {\n\"params\": {\n\"stage\": 2}}, \"n\": 3}";
    struct zero zero;
    assert_int_equal(shoali_config_defaults(&zero_section, &zero, &fixture->arena), SHOAL_OK);
    assert_int_equal(shoali_json_parse(text, strlen(text), "f.json", &fixture->document), SHOAL_OK);
    assert_int_equal(shoali_config_read_json(&zero_section, fixture->document, "optimizer.params",
                                             &zero, &fixture->arena),
                     SHOAL_OK);
    assert_int_equal(zero.stage, 2);
    assert_int_equal(shoali_config_read_json(&zero_section, fixture->document, "no.such", &zero,
                                             &fixture->arena),
                     SHOAL_OK);
    assert_int_equal(zero.stage, 2);
    assert_int_equal(
        shoali_config_read_json(&zero_section, fixture->document, "n", &zero, &fixture->arena),
        SHOAL_ECONFIG);
    assert_string_equal(shoal_error_message(), "f.json:3: n: must be a section, { ... }");
}

static void test_every_allocation_may_fail(void **state)
{
    struct fixture *fixture = *state;
    const char *text =
        "{\"train_batch_size\": 1, \"name\": \"n\", \"betas\": [1], \"paths\": [\"x\"]}";
    shoal_status status = SHOAL_ENOMEM;
    int skip = 0;
    for (; status != SHOAL_OK && skip < 100; skip++) {
        char spec[32];
        snprintf(spec, sizeof(spec), "alloc:%d", skip);
        assert_true(shoali_fault_arm(spec));
        status = read_text(fixture, text);
        assert_true(shoali_fault_arm(NULL));
        assert_true(status == SHOAL_OK || status == SHOAL_ENOMEM);
    }
    assert_in_range(skip, 10, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_type_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_auto_and_null_leave_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_states, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_effect_is_logged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_environment_replaces_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nested_path, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_allocation_may_fail, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
