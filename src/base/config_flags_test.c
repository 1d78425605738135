#include "base/config_table.h"

#include "base/str.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model {
    int64_t layers;
    double dropout;
    bool bias, fast;
    int32_t norm;
    const char *hostfile;
    struct shoali_strings data;
    struct shoali_ints split;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct run {
    int64_t steps;
    uint64_t given[SHOALI_GIVEN_WORDS];
};

static shoal_status check_model(void *config)
{
    const struct model *model = config;
    return model->layers == 13 ? SHOAL_FAIL(SHOAL_ECONFIG, "--num-layers 13 brings bad luck")
                               : SHOAL_OK;
}

static const char *const norms[] = {"layernorm", "rmsnorm", NULL};
static const struct shoali_option model_rows[] = {
    {.key = "num-layers",
     .type = SHOALI_INT,
     .offset = offsetof(struct model, layers),
     .default_number = 12,
     .min = 1,
     .max = 1000,
     .help = "Number of transformer layers."},
    {.key = "dropout",
     .type = SHOALI_FLOAT,
     .offset = offsetof(struct model, dropout),
     .default_number = 0.1,
     .help = "Probability that an activation is set to zero, everywhere in the model where the "
             "published recipe has it: after attention, after the feed-forward block."},
    {.key = "bias",
     .type = SHOALI_BOOL,
     .offset = offsetof(struct model, bias),
     .default_number = 1,
     .flags = SHOALI_OPTION_NO_PREFIX,
     .help = "Linear layers have a bias."},
    {.key = "fast", .type = SHOALI_BOOL, .offset = offsetof(struct model, fast), .help = "Hurry."},
    {.key = "normalization",
     .type = SHOALI_ENUM,
     .offset = offsetof(struct model, norm),
     .choices = norms,
     .help = "Kind of norm."},
    {.key = "hostfile",
     .type = SHOALI_STRING,
     .offset = offsetof(struct model, hostfile),
     .alias = "H",
     .help = "Hosts | slots."},
    {.key = "data-path",
     .group = "data",
     .type = SHOALI_STRINGS,
     .offset = offsetof(struct model, data),
     .help = "Prefixes."},
    {.key = "split",
     .group = "data",
     .type = SHOALI_INTS,
     .offset = offsetof(struct model, split),
     .default_text = "969,30,1",
     .help = "Weights."},
    {.key = "fp8", .type = SHOALI_BOOL, .state = SHOALI_PENDING, .help = "Eight bits."},
    {.key = "experts",
     .type = SHOALI_INT,
     .default_number = 1,
     .state = SHOALI_ELSEWHERE,
     .help = "it is of y"},
    {.key = "DDP-impl", .type = SHOALI_STRING, .state = SHOALI_DEAD, .help = "drop it"},
    {.key = "layers", .type = SHOALI_STRING, .state = SHOALI_REPLACED, .becomes = "--num-layers $"},
    {.key = "quick", .type = SHOALI_BOOL, .state = SHOALI_REPLACED, .becomes = "--fast --no-bias"},
    {.key = "activation",
     .type = SHOALI_STRING,
     .state = SHOALI_REPLACED,
     .becomes = "--$",
     .when = "fast"},
    {.key = "activation",
     .type = SHOALI_STRING,
     .state = SHOALI_PENDING,
     .see = "docs/X.md",
     .help = "only fast."},
    {.key = "far-*", .type = SHOALI_BOOL, .state = SHOALI_PENDING, .see = "y", .help = "no."},
    {.key = "secret", .type = SHOALI_BOOL, .state = SHOALI_NOEFFECT, .flags = SHOALI_OPTION_HIDDEN},
};
static const struct shoali_option run_rows[] = {
    {.key = "train-iters",
     .type = SHOALI_INT,
     .offset = offsetof(struct run, steps),
     .flags = SHOALI_OPTION_REQUIRED,
     .env = "SHOAL_TEST_ITERS",
     .help = "Steps."},
};
static const struct shoali_section model_section = {
    .name = "model",
    .help = "Model",
    .rows = SHOALI_ROWS(model_rows),
    .struct_bytes = sizeof(struct model),
    .given_offset = offsetof(struct model, given),
    .validate = check_model,
};
static const struct shoali_section run_section = {
    .name = "run",
    .rows = SHOALI_ROWS(run_rows),
    .struct_bytes = sizeof(struct run),
    .given_offset = offsetof(struct run, given),
};

struct fixture {
    struct shoali_arena arena;
    struct model model;
    struct run run;
    struct shoali_flags tables[2];
    struct shoali_flag_args args;
    struct shoali_strings rest;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){
        .tables = {{&model_section, &fixture.model}, {&run_section, &fixture.run}},
        .args = {.command = "shoal x", .tables = fixture.tables, .table_count = 2},
    };
    shoali_arena_init(&fixture.arena);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    shoali_arena_fini(&fixture->arena);
    return 0;
}

/* Parses words separated by spaces; `rest` tells whether free words are allowed. */
static shoal_status parse(struct fixture *fixture, const char *line, bool rest)
{
    char *argv[64] = {"shoal"};
    int argc = 1;
    char *copy = shoali_arena_strdup(&fixture->arena, line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    shoal_status status;
    SHOAL_TRY(status, shoali_config_defaults(&model_section, &fixture->model, &fixture->arena),
              done);
    SHOAL_TRY(status, shoali_config_defaults(&run_section, &fixture->run, &fixture->arena), done);
    SHOAL_TRY(status,
              shoali_flags_parse(&fixture->args, argc, argv, &fixture->arena,
                                 rest ? &fixture->rest : NULL),
              done);
done:
    return status;
}

static void test_flags_of_two_tables(void **state)
{
    struct fixture *fixture = *state;
    const struct model *model = &fixture->model;
    assert_int_equal(parse(fixture,
                           "--num-layers 4 --train-iters=1e3 --no-bias --fast --dropout -0.5 "
                           "--normalization RMSNorm -H hosts --data-path 0.3 a 0.7 b --split 1,2",
                           false),
                     SHOAL_OK);
    assert_int_equal(model->layers, 4);
    assert_int_equal(fixture->run.steps, 1000);
    assert_true(!model->bias && model->fast && model->dropout == -0.5 && model->norm == 1);
    assert_string_equal(model->hostfile, "hosts");
    assert_int_equal(model->data.count, 4);
    assert_string_equal(model->data.value[3], "b");
    assert_true(model->split.count == 2 && model->split.value[1] == 2);
    assert_true(shoali_config_given(&model_section, model, "bias"));
    assert_true(shoali_config_given(&model_section, model, "hostfile"));
}

static void test_last_wins_and_defaults_stay(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(parse(fixture, "--train-iters 1 --train-iters 2 --no-bias --bias", false),
                     SHOAL_OK);
    assert_int_equal(fixture->run.steps, 2);
    assert_true(fixture->model.bias && fixture->model.layers == 12);
    assert_int_equal(fixture->model.split.count, 3);
    assert_false(shoali_config_given(&model_section, &fixture->model, "num-layers"));
    assert_int_equal(parse(fixture, "--train-iters 1 --data-path=one --fast", false), SHOAL_OK);
    assert_int_equal(fixture->model.data.count, 1);
    assert_string_equal(fixture->model.data.value[0], "one");
}

static void test_spellings(void **state)
{
    struct fixture *fixture = *state;
    struct model *model = &fixture->model;
    assert_int_equal(parse(fixture, "--train_iters=1 --num_layers 5 --no_bias", false), SHOAL_OK);
    assert_true(model->layers == 5 && !model->bias);
    assert_true(shoali_config_given(&model_section, model, "num-layers"));
    assert_int_equal(parse(fixture, "--train-iters 1 --layers 6 --quick", false), SHOAL_OK);
    assert_true(model->layers == 6 && !model->bias && model->fast);
    assert_int_equal(parse(fixture, "--train-iters 1 --activation fast --layers=7", false),
                     SHOAL_OK);
    assert_true(model->layers == 7 && model->fast);
}

static void test_free_words(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(parse(fixture, "a --train-iters 1 -1 - b -- --c", true), SHOAL_OK);
    assert_int_equal(fixture->rest.count, 5);
    assert_string_equal(fixture->rest.value[1], "-1");
    assert_string_equal(fixture->rest.value[4], "--c");
    fixture->args.stop_at_word = true;
    assert_int_equal(parse(fixture, "--train-iters 1 prog --num-layers x -H", true), SHOAL_OK);
    assert_int_equal(fixture->rest.count, 4);
    assert_string_equal(fixture->rest.value[0], "prog");
    assert_int_equal(fixture->model.layers, 12);
}

static void test_help_is_asked_for(void **state)
{
    assert_int_equal(parse(*state, "--fast --help --nonsense", false), SHOAL_END);
    assert_int_equal(parse(*state, "-h", false), SHOAL_END);
    assert_int_equal(parse(*state, "--help-all", false), SHOAL_END);
    assert_int_equal(parse(*state, "--help-all=x", false), SHOAL_ECONFIG);
    assert_int_equal(parse(*state, "--nonsense --help", false), SHOAL_ECONFIG);
}

static void test_wrong_flags(void **state)
{
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"--num-layer 4", "shoal x: unknown flag --num-layer; nearest flag is --num-layers"},
        {"--num_layer 4", "shoal x: unknown flag --num_layer; nearest flag is --num-layers"},
        {"--activation slow", "shoal x: --activation is not supported, see docs/X.md: only fast."},
        {"--far-", "shoal x: --far- is not supported, see y: no."},
        {"--far_away", "shoal x: --far_away is not supported, see y: no."},
        {"--far", "shoal x: unknown flag --far; nearest flag is --fast"},
        {"--layers x", "--layers stands for \"--num-layers $\": shoal x: --num-layers: must "
                       "be an integer, got \"x\""},
        {"--num 4", "shoal x: unknown flag --num; see shoal x --help-all"},
        {"-q", "shoal x: unknown flag -q; see shoal x --help-all"},
        {"--no-fast", "shoal x: unknown flag --no-fast; see shoal x --help-all"},
        {"--no-dropout", "shoal x: unknown flag --no-dropout; nearest flag is --dropout"},
        {"--num-layers", "shoal x: --num-layers needs a value: give an integer"},
        {"--num-layers --fast", "shoal x: --num-layers needs a value: give an integer"},
        {"--data-path --fast", "shoal x: --data-path needs a value: give one or more words"},
        {"--hostfile=", "shoal x: --hostfile is empty: give a value, or leave the flag out"},
        {"--num-layers 1.5", "shoal x: --num-layers: must be an integer, got \"1.5\""},
        {"--num-layers=1001", "shoal x: --num-layers: must be from 1 to 1000, got 1001"},
        {"--dropout=", "shoal x: --dropout: must be a number, got \"\""},
        {"--normalization x",
         "shoal x: --normalization: must be \"layernorm\" or \"rmsnorm\", got \"x\""},
        {"--split 1,,2", "shoal x: --split: element 2: must be an integer, got \"\""},
        {"--fast=true", "shoal x: --fast takes no value: give it alone, without \"=true\""},
        {"-H a --hostfile b", "shoal x: --hostfile and -H mean the same; give only one of them"},
        {"word", "shoal x: unexpected word \"word\": flags begin with --"},
        {"--fp8", "shoal x: --fp8 is known but not supported yet; remove it"},
        {"--experts 4", "shoal x: --experts does not belong here; it is of y"},
        {"--DDP-impl local", "shoal x: --DDP-impl is deprecated; drop it"},
        {"--fast", "shoal x: --train-iters must be given: Steps."},
        {"--train-iters 1 --num-layers 13", "shoal x: --num-layers 13 brings bad luck"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        shoal_status status = parse(*state, cases[i].line, false);
        if (status >= 0 || strcmp(shoal_error_message(), cases[i].message) != 0)
            fail_msg("%s: %s: %s", cases[i].line, shoal_status_name(status), shoal_error_message());
    }
}

static void test_environment(void **state)
{
    struct fixture *fixture = *state;
    fixture->args.table_count = 2;
    setenv("SHOAL_TEST_ITERS", "50", 1);
    assert_int_equal(parse(fixture, "--train-iters 7", false), SHOAL_OK);
    assert_int_equal(fixture->run.steps, 7);
    assert_int_equal(parse(fixture, "", false), SHOAL_OK);
    assert_int_equal(fixture->run.steps, 50);
    unsetenv("SHOAL_TEST_ITERS");
}

static void test_help_text(void **state)
{
    struct fixture *fixture = *state;
    struct shoali_str out = {0};
    assert_int_equal(shoali_flags_help(&fixture->args, &out), SHOAL_OK);
    const char *text = shoali_str_get(&out);
    assert_memory_equal(text,
                        "Model:\n  --num-layers N                  Number of transformer layers. "
                        "(from 1 to 1000; default 12)\n",
                        100);
    assert_non_null(strstr(text, "  --[no-]bias                     Linear"));
    assert_non_null(strstr(text, "  --hostfile, -H TEXT             Hosts | slots.\n"));
    assert_non_null(strstr(text, "(layernorm|rmsnorm; default layernorm)"));
    assert_non_null(strstr(text, "\nrun:\n  --train-iters N                 Steps. (required; "
                                 "variable SHOAL_TEST_ITERS)\n"));
    assert_null(strstr(text, "secret"));
    assert_null(strstr(text, "fp8"));
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    shoali_str_fini(&out);
}

/* Parses the line, which asks for help, and returns the help: owned. */
static char *help_of(struct fixture *fixture, const char *line)
{
    struct shoali_help help = {0};
    struct shoali_str out = {0};
    fixture->args.help = &help;
    assert_int_equal(parse(fixture, line, false), SHOAL_END);
    assert_int_equal(shoali_flags_help(&fixture->args, &out), SHOAL_OK);
    fixture->args.help = NULL;
    return out.text;
}

static void test_help_of_one_group(void **state)
{
    struct fixture *fixture = *state;
    char *text = help_of(fixture, "--fast --help data --nonsense");
    assert_string_equal(text, "data:\n"
                              "  --data-path TEXT ...            Prefixes.\n"
                              "  --split N,N,...                 Weights. (default 969,30,1)\n");
    char *same = help_of(fixture, "--help=data");
    assert_string_equal(same, text);
    free(text);
    free(same);

    struct shoali_help help = {0};
    struct shoali_str out = {0};
    fixture->args.help = &help;
    assert_int_equal(parse(fixture, "--help dat", false), SHOAL_END);
    assert_int_equal(shoali_flags_help(&fixture->args, &out), SHOAL_ECONFIG);
    assert_string_equal(shoal_error_message(),
                        "shoal x: --help dat: there is no such group of flags; "
                        "groups are: Model, data, run");
    shoali_str_fini(&out);
}

enum { MANY = 30 };
static void test_short_help(void **state)
{
    struct fixture *fixture = *state;
    struct shoali_option rows[MANY];
    char keys[MANY][8];
    for (int i = 0; i < MANY; i++) {
        snprintf(keys[i], sizeof keys[i], "f%02d", i);
        rows[i] = (struct shoali_option){.key = keys[i], .type = SHOALI_BOOL, .help = "Flag."};
        rows[i].group = i % 2 ? "odd" : "even";
    }
    rows[5].flags = rows[8].flags = rows[12].flags = SHOALI_OPTION_COMMON;
    rows[12].group = "rest";
    const struct shoali_section many = {
        .name = "many", .rows = rows, .row_count = MANY, .given_offset = SIZE_MAX};
    struct shoali_flags tables[] = {{&many, NULL}, {&run_section, &fixture->run}};
    const char *const groups[] = {"odd", "even", "run", NULL};
    fixture->args.tables = tables;
    fixture->args.groups = groups;
    struct shoali_str out = {0};
    struct shoali_help help = {0};
    fixture->args.help = &help;
    assert_int_equal(shoali_flags_help(&fixture->args, &out), SHOAL_OK);
    assert_string_equal(
        shoali_str_get(&out),
        "odd:\n  --f05                           Flag.\n\n"
        "even:\n  --f08                           Flag.\n\n"
        "run:\n  --train-iters N                 Steps. (required; variable SHOAL_TEST_ITERS)\n\n"
        "This is the short help: 3 of 31 flags. --help-all shows all of them, --help GROUP one "
        "group.\nGroups: odd, even, run, rest\n");
    shoali_str_fini(&out);
    help.all = true;
    assert_int_equal(shoali_flags_help(&fixture->args, &out), SHOAL_OK);
    const char *text = shoali_str_get(&out), *odd = strstr(text, "odd:\n  --f01"),
               *even = strstr(text, "\n\neven:\n"), *rest = strstr(text, "\n\nrest:\n  --f12");
    assert_true(odd == text && even > odd && rest > even);
    for (int i = 0; i < MANY; i++)
        assert_non_null(strstr(text, keys[i]));
    assert_null(strstr(text, "short help"));
    shoali_str_fini(&out);
}

static void test_markdown(void **state)
{
    (void)state;
    struct shoali_str out = {0};
    static const struct shoali_option outer_rows[] = {
        {.key = "model", .type = SHOALI_SECTION, .section = &model_section, .help = "The model."},
    };
    static const struct shoali_section outer = {
        .name = "config", .rows = SHOALI_ROWS(outer_rows), .given_offset = SIZE_MAX};
    shoali_config_markdown(&outer, "", &out);
    const char *text = shoali_str_get(&out);
    assert_memory_equal(text, "## `config`\n\n| key | type |", 27);
    assert_non_null(
        strstr(text, "| `model` | section |  |  | The model. |\n\n## `model`\n\nModel\n"));
    assert_non_null(strstr(text, "| `num-layers` | integer | `12` | from 1 to 1000 | Number"));
    assert_non_null(strstr(text, "| name | `layernorm` | `layernorm` or `rmsnorm` | Kind"));
    assert_non_null(strstr(text, "Hosts \\| slots."));
    assert_non_null(strstr(text, "Not supported yet. Eight bits."));
    assert_null(strstr(text, "secret"));
    shoali_str_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flags_of_two_tables, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_spellings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_last_wins_and_defaults_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_free_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_help_is_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_flags, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_environment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_help_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_help_of_one_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_short_help, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_markdown, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
