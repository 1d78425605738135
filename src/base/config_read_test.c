#include "base/config_table.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/test_cmocka.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    .bare_key = "stage",
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
    {.key = "rate",
     .type = SHOALI_FLOAT,
     .offset = offsetof(struct config, lr),
     .max = 10,
     .state = SHOALI_RENAMED,
     .instead = "lr",
     .help = "It means lr."},
    {.key = "sparse", .type = SHOALI_BOOL, .state = SHOALI_IDLE, .help = "Rows are sent whole."},
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
    const char *text = "{\"train_batch_size\": 8, \"lr\": \"auto\", \"betas\": \"auto\",\n"
                       "\"type\": \"auto\", \"zero_optimization\": null, \"flag\": \"auto\",\n"
                       "\"tags\": \"auto\", \"seed\": null, \"name\": null, \"extra\": null,\n"
                       "\"dump_state\": null}";
    assert_int_equal(read_text(fixture, text), SHOAL_OK);
    assert_true(config->lr == 1e-3 && config->betas.count == 2 && config->kind == 1);
    assert_false(shoali_config_given(&section, config, "lr"));
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
        {"\"seed\": \"7x\"", "f.json:2: seed: must be an integer, got \"7x\"", SHOAL_ECONFIG},
        {"\"extra\": 3", "f.json:2: extra: must be a section { ... } or a list, got 3",
         SHOAL_ECONFIG},
        {"\"extra\": \"auto\"",
         "f.json:2: extra: must be a section { ... } or a list, got \"auto\"", SHOAL_ECONFIG},
        {"\"seed\": 101", "f.json:2: seed: must be from 0 to 100, got 101", SHOAL_ECONFIG},
        {"\"lr\": true", "f.json:2: lr: must be a number, got true", SHOAL_ECONFIG},
        {"\"lr\": 10.5", "f.json:2: lr: must be from 0 to 10, got 10.5", SHOAL_ECONFIG},
        {"\"flag\": 2", "f.json:2: flag: must be true or false, got 2", SHOAL_ECONFIG},
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
         "f.json:2: overlap_comm: unknown key; the keys of this section are lr, flag, "
         "train_batch_size, seed, name, type, "
         "betas, sizes, paths, zero_optimization, extra",
         SHOAL_ECONFIG},
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
    /* A required number has no default that these words could ask for. */
    assert_int_equal(read_text(*state, "{\"train_batch_size\": \"auto\"}"), SHOAL_ECONFIG);
    assert_string_equal(shoal_error_message(),
                        "f.json:1: train_batch_size: must be given, \"auto\" has no meaning here: "
                        "Samples per step.");
    assert_int_equal(read_text(*state, "{\"train_batch_size\": null}"), SHOAL_ECONFIG);
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
        {"\"amp\": {\"enabled\": true}", "f.json:2: amp is deprecated; use bf16", SHOAL_ECONFIG},
        {"\"amp\": {\"opt_level\": 1}", "f.json:2: amp is deprecated; use bf16", SHOAL_ECONFIG},
        {"\"amp\": true", "f.json:2: amp is deprecated; use bf16", SHOAL_ECONFIG},
        {"\"rate\": 1, \"lr\": 2",
         "f.json:2: rate: is an old name of `lr`, which has another value; remove rate",
         SHOAL_ECONFIG},
        {"\"sparse\": 7", "f.json:2: sparse: must be true or false, got 7", SHOAL_ECONFIG},
        {"\"flag\": \"on\"", "f.json:2: flag: must be true or false, got \"on\"", SHOAL_ECONFIG},
        {"\"zero_optimization\": 1", "f.json:2: zero_optimization: must be a section, { ... }",
         SHOAL_ECONFIG},
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

static void count_off(void *user, shoal_log_level level, const char *subsystem, int rank,
                      const char *text)
{
    (void)level;
    (void)subsystem;
    (void)rank;
    *(int *)user += strcmp(text, "amp is ignored, because it is off; use bf16") == 0;
}

/* A dead key that is off fails no run: older files of DeepSpeed's examples have such keys. */
static void test_dead_keys_may_be_off(void **state)
{
    static const char *const values[] = {"{\"enabled\": false, \"opt_level\": 1}", "{}", "false",
                                         "null"};
    int lines = 0;
    assert_int_equal(shoal_log_configure("info", count_off, &lines), SHOAL_OK);
    for (int i = 0; i < 4; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"train_batch_size\": 1, \"amp\": %s}", values[i]);
        assert_int_equal(read_text(*state, text), SHOAL_OK);
        assert_int_equal(lines, i + 1);
    }
    assert_int_equal(shoal_log_configure("info", NULL, NULL), SHOAL_OK);
}

static void test_no_effect_is_logged(void **state)
{
    static const char *const values[] = {"true", "3", "\"some_words\"", "[1]"};
    int lines = 0;
    assert_int_equal(shoal_log_configure("info", count_line, &lines), SHOAL_OK);
    for (int i = 0; i < 4; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"train_batch_size\": 1, \"dump_state\": %s}", values[i]);
        assert_int_equal(read_text(*state, text), SHOAL_OK);
        assert_int_equal(lines, i + 1);
    }
    shoali_context_get()->logger = NULL;
    struct fixture *fixture = *state;
    assert_true(fixture->config.lr == 1e-3);
}

struct said {
    const char *line;
    int found, count;
};

static void hear(void *user, shoal_log_level level, const char *subsystem, int rank,
                 const char *text)
{
    struct said *said = user;
    (void)level;
    (void)subsystem;
    (void)rank;
    said->count++;
    said->found += strcmp(text, said->line) == 0;
}

/* Old names, numbers for booleans, keys that are off: taken, each with one line. */
static void test_what_is_taken_with_a_line(void **state)
{
    static const char *const cases[][2] = {
        {"\"rate\": 2", "rate is an old name: It means lr."},
        {"\"rate\": 2, \"lr\": 2", "rate is an old name: It means lr."},
        {"\"sparse\": true", "sparse has no effect: Rows are sent whole."},
        {"\"lr\": 2, \"flag\": 0", "flag is no boolean: it is taken as false"},
        {"\"lr\": \"2\"", "lr is text: its number is taken"},
        {"\"lr\": 2, \"flag\": \"False\"", "flag is no boolean: it is taken as false"},
        {"\"zero_optimization\": true",
         "zero_optimization is no section: it is taken as {\"stage\": 1}"},
        {"\"lr\": false", "lr is false: it is taken as 0"},
        {"\"extra\": false", "extra is false: it is left out"},
        {"\"zero_optimization\": {\"stage\": 1, \"bucket_size\": false}",
         "zero_optimization.bucket_size is false: it is left out"},
        {"\"moving\": {\"enabled\": \"auto\"}",
         "moving is ignored: no such key is known, and it is off"},
    };
    struct fixture *fixture = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct said said = {.line = cases[i][1]};
        char text[128];
        snprintf(text, sizeof text, "{\"train_batch_size\": 1, \"_why\": \"\", %s}", cases[i][0]);
        assert_int_equal(shoal_log_configure("info", hear, &said), SHOAL_OK);
        assert_int_equal(read_text(fixture, text), SHOAL_OK);
        assert_int_equal(shoal_log_configure(NULL, NULL, NULL), SHOAL_OK);
        if (said.count != 1 || said.found != 1)
            fail_msg("%s: %d lines, %d as expected", text, said.count, said.found);
        const bool lr = strstr(cases[i][0], "\"rate\"") || strstr(cases[i][0], "\"lr\"");
        const double rate = strstr(cases[i][0], "\"lr\": false") ? 0 : lr ? 2 : 1e-3;
        assert_true(fixture->config.lr == rate);
        assert_int_equal(shoali_config_given(&section, &fixture->config, "lr"), lr);
        assert_int_equal(fixture->config.flag, !strstr(cases[i][0], "flag"));
        assert_int_equal(fixture->config.zero.stage,
                         strstr(cases[i][0], "zero_optimization") != NULL);
    }
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
    int skip = 0;
    for (bool fired = true; fired; skip++) {
        char spec[32];
        snprintf(spec, sizeof(spec), "alloc:%d", skip);
        assert_true(shoali_fault_arm(spec));
        const shoal_status status = read_text(fixture, text);
        fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
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
        cmocka_unit_test_setup_teardown(test_dead_keys_may_be_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_effect_is_logged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_taken_with_a_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_environment_replaces_defaults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nested_path, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_allocation_may_fail, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
