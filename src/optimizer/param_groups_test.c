/* Which parameter gets which values: patterns, the words of the configuration, and refusals. */
#include "base/fault.h"
#include "base/test_cmocka.h"
#include "optimizer/param_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct shoali_param_about params[] = {
    {"wte.weight", 2, 124318, false, false, 1}, {"h.0.ln.weight", 1, 8, false, false, 1},
    {"h.0.ln.bias", 1, 8, false, false, 1},     {"h.0.fc.weight", 2, 1000, false, false, 0.5},
    {"h.0.odd.bias", 2, 16, false, false, 1},   {"h.1.fc.weight", 2, 1000, true, false, 1},
    {"h.1.old.weight", 2, 77, false, true, 1},
};
enum { COUNT = sizeof params / sizeof params[0] };
enum { WTE, LN_WEIGHT, LN_BIAS, FC, ODD_BIAS, TAGGED };

struct made {
    struct shoali_arena arena;
    struct shoali_json *document;
    struct shoali_optimizer_config config;
    struct shoali_optimizer base;
    struct shoali_param_groups groups;
};

static shoal_status make_of(struct made *made, const char *body, int32_t count)
{
    shoal_status status;
    char text[1024];
    *made = (struct made){0};
    snprintf(text, sizeof text, "{\n\"optimizer\": {%s}\n}", body);
    shoali_arena_init(&made->arena);
    SHOAL_TRY(status, shoali_json_parse(text, strlen(text), "ds.json", &made->document), done);
    SHOAL_TRY(status,
              shoali_config_defaults(&shoali_optimizer_section, &made->config, &made->arena), done);
    SHOAL_TRY(status,
              shoali_config_read_json(&shoali_optimizer_section, made->document, "optimizer",
                                      &made->config, &made->arena),
              done);
    SHOAL_TRY(status,
              shoali_optimizer_make(&made->config, made->document, "optimizer", &made->arena,
                                    &made->base),
              done);
    SHOAL_TRY(status,
              shoali_param_groups_make(&made->config, made->document, "optimizer", &made->base,
                                       params, count, &made->arena, &made->groups),
              done);
done:
    return status;
}

static shoal_status make(struct made *made, const char *body)
{
    return make_of(made, body, COUNT);
}

static void drop(struct made *made)
{
    shoali_json_close(made->document);
    shoali_arena_fini(&made->arena);
}

#define ADAMW(more) "\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"weight_decay\": 0.1}" more

static double decay(const struct made *made, int32_t param)
{
    const struct shoali_param_rule *rule = &made->groups.rule[param];
    return rule->optimizer->weight_decay * rule->weight_decay_multiplier;
}

static void describes(const struct made *made, const char *expected)
{
    struct shoali_str text = {0};
    shoali_param_groups_describe(&made->groups, &made->config, params, COUNT, &text);
    assert_string_equal(shoali_str_get(&text), expected);
    shoali_str_fini(&text);
}

/* As in DeepSpeed: what is not named decays, whatever its shape. A tag of the model is kept. */
static void test_all_decay(void **state)
{
    struct made made;
    (void)state;
    assert_int_equal(make(&made, ADAMW("")), SHOAL_OK);
    for (int32_t p = 0; p < COUNT; p++)
        assert_true(decay(&made, p) == (p == TAGGED ? 0 : 0.1));
    assert_true(made.groups.rule[FC].lr_multiplier == 0.5);
    describes(&made, "weight decay 0.1: 5 tensors, 125,350 parameters; 1 tensor, 1,000 parameters "
                     "do not decay (tagged by the model)");
    drop(&made);
    assert_int_equal(make(&made, "\"type\": \"AdamW\""), SHOAL_OK);
    describes(&made, "weight decay: none");
    drop(&made);
}

/* Megatron's rule: one dimension, or a bias by its name. */
static void test_no_decay(void **state)
{
    struct made made;
    (void)state;
    assert_int_equal(make(&made, ADAMW(", \"no_decay\": [\"1-D\", \"wt?.*\"]")), SHOAL_OK);
    for (int32_t p = 0; p < COUNT - 1; p++)
        assert_true(decay(&made, p) == (p == FC ? 0.1 : 0));
    describes(&made, "weight decay 0.1: 1 tensor, 1,000 parameters; 5 tensors, 125,350 parameters "
                     "do not decay (1-D, wt?.*, tagged by the model)");
    drop(&made);
}

static void test_groups(void **state)
{
    struct made made;
    (void)state;
    assert_int_equal(
        make(&made, ADAMW(", \"no_decay\": [\"*.ln.bias\"], \"param_groups\": ["
                          "{\"params\": [\"h.0.*\"], \"lr\": 1e-4, \"weight_decay\": 0.01, "
                          "\"betas\": [0.8, 0.9], \"eps\": 1e-6},"
                          "{\"params\": [\"wte.weight\"], \"lr_mult\": 3, \"weight_decay\": 0}]")),
        SHOAL_OK);
    const struct shoali_param_rule *rule = made.groups.rule;
    assert_int_equal(made.groups.count, 3);
    assert_true(decay(&made, LN_WEIGHT) == 0.01 && decay(&made, LN_BIAS) == 0);
    assert_true(rule[FC].optimizer->beta[0] == 0.8 && rule[FC].optimizer->beta[1] == 0.9);
    assert_true(rule[FC].optimizer->params.adam.eps == 1e-6);
    assert_true(rule[FC].lr_multiplier == 1e-4 / 1e-3 * 0.5);
    assert_true(rule[WTE].lr_multiplier == 3 && decay(&made, WTE) == 0);
    assert_true(rule[WTE].optimizer->beta[0] == 0.9 &&
                rule[WTE].optimizer->params.adam.eps == 1e-8);
    assert_ptr_equal(rule[TAGGED].optimizer, &made.groups.group[0]);
    describes(&made, "weight decay 0.01: 3 tensors, 1,024 parameters; 3 tensors, 125,326 "
                     "parameters do not decay (*.ln.bias, tagged by the model, a weight_decay of "
                     "0)");
    drop(&made);
    assert_int_equal(make(&made, "\"type\": \"sgd\", \"params\": {\"momentum\": 0.9}, "
                                 "\"param_groups\": [{\"params\": [\"wte.*\"], \"momentum\": 0.5, "
                                 "\"nesterov\": true}]"),
                     SHOAL_OK);
    assert_true(made.groups.rule[WTE].optimizer->params.sgd.momentum == 0.5);
    assert_true(made.groups.rule[WTE].optimizer->params.sgd.nesterov);
    assert_true(made.groups.rule[FC].optimizer->params.sgd.momentum == 0.9);
    drop(&made);
    assert_int_equal(make(&made, "\"type\": \"lamb\", \"params\": {\"max_coeff\": 5}, "
                                 "\"param_groups\": [{\"params\": [\"wte.*\"], \"eps\": 1e-6, "
                                 "\"betas\": [0.8, 0.9], \"weight_decay\": 0.2}]"),
                     SHOAL_OK);
    const struct shoali_optimizer *lamb = made.groups.rule[WTE].optimizer;
    assert_true(lamb->params.lamb.eps == 1e-6 && lamb->params.lamb.max_coeff == 5);
    assert_true(lamb->beta[0] == 0.8 && lamb->beta[1] == 0.9 && lamb->weight_decay == 0.2);
    drop(&made);
}

/* Every key that a group may have, of every type: the group has the group's value, the others have
 * that of `params`. */
static void test_every_key(void **state)
{
    static const char *const types[] = {"adam", "adamw", "lamb", "sgd", "adafactor"};
    static const struct {
        const char *key, *group, *all;
        uint32_t types; /* bits */
    } cases[] = {
        {"lr", "0.25", "0.5", 31},      {"weight_decay", "0.25", "0.5", 31},
        {"eps", "0.25", "0.5", 7},      {"betas", "[0.25,0.75]", "[0.5,0.75]", 7},
        {"momentum", "0.25", "0.5", 8}, {"dampening", "0.25", "0.5", 8},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (uint32_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            struct made made;
            char body[400];
            const char *key = cases[c].key;
            if (!(cases[c].types >> t & 1))
                continue;
            snprintf(body, sizeof body,
                     "\"type\": \"%s\", \"params\": {\"%s\": %s}, \"param_groups\": [{\"params\": "
                     "[\"wte.*\"], \"%s\": %s}]",
                     types[t], key, cases[c].all, key, cases[c].group);
            if (make(&made, body) != SHOAL_OK)
                fail_msg("%s: %s", body, shoal_error_message());
            for (int32_t p = 0; p <= FC; p += FC) {
                const struct shoali_param_rule *rule = &made.groups.rule[p];
                const struct shoali_optimizer *o = rule->optimizer;
                const double got = c == 0   ? rule->lr_multiplier * (p == FC ? 1 : 0.5)
                                   : c == 1 ? o->weight_decay
                                   : c == 2 ? (t == 2 ? o->params.lamb.eps : o->params.adam.eps)
                                   : c == 5 ? o->params.sgd.dampening
                                            : o->beta[0];
                if (got != (p == WTE ? 0.25 : 0.5))
                    fail_msg("%s: %g of %s", body, got, params[p].name);
            }
            drop(&made);
        }
}

static void test_refusals(void **state)
{
    static const struct {
        const char *body, *word;
    } cases[] = {
        {ADAMW(", \"no_decay\": [\"bias\"]"), "\"*bias*\" matches 2, such as `h.0.ln.bias`"},
        {ADAMW(", \"no_decay\": [\"wte.weigth\"]"), "no parameter of this model; near is "
                                                    "`wte.weight`"},
        {ADAMW(", \"no_decay\": [\"\"]"), "a name looks like `wte.weight`"},
        {ADAMW(", \"no_decay\": \"*\""), "ds.json:2: optimizer.no_decay: must be a list"},
        {ADAMW(", \"param_groups\": {}"), "must be a list of groups"},
        {ADAMW(", \"param_groups\": [7]"), "optimizer.param_groups.0: must be a section"},
        {ADAMW(", \"param_groups\": [\n{\"lr\": 1}]"),
         "ds.json:3: optimizer.param_groups.0.params"},
        {ADAMW(", \"param_groups\": [{\"params\": [\"x*\"]}]"), "\"x*\" matches no parameter"},
        {ADAMW(", \"param_groups\": [{\"params\": [\"*\"], \"weight_dcay\": 1}]"),
         "nearest key is `weight_decay`"},
        {ADAMW(", \"param_groups\": [{\"params\": [\"*\"], \"momentum\": 1}]"),
         "momentum: is not a parameter of adamw"},
        {"\"type\": \"adafactor\", \"param_groups\": [{\"params\": [\"*\"], \"betas\": [0.9, "
         "0.99]}]",
         "betas: is not a parameter of adafactor"},
        {"\"type\": \"adafactor\", \"param_groups\": [{\"params\": [\"*\"], \"eps\": 1e-6}]",
         "eps: adafactor takes the value of optimizer.params for all groups"},
        {ADAMW(", \"param_groups\": [{\"params\": [\"*\"], \"betas\": [1, 0]}]"), "[0, 1)"},
        {ADAMW(", \"param_groups\": [{\"params\": [\"*\"]}, {\"params\": [\"wte.*\"]}]"),
         "matches `wte.weight`, which optimizer.param_groups.0 has already"},
        {"\"type\": \"sgd\", \"param_groups\": [{\"params\": [\"*\"], \"momentum\": 0.1}]",
         "above 0 in all groups or in none"},
        {"\"type\": \"sgd\", \"params\": {\"lr\": 0}, \"param_groups\": [{\"params\": [\"*\"], "
         "\"lr\": 0.1}]",
         "optimizer.params.lr above 0"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct made made;
        const shoal_status status = make(&made, cases[k].body);
        if (status != SHOAL_ECONFIG || !strstr(shoal_error_message(), cases[k].word))
            fail_msg("%s: %s: %s", cases[k].body, shoal_status_name(status), shoal_error_message());
        drop(&made);
    }
}

/* A pattern for a model without parameters. */
static void test_no_params(void **state)
{
    struct made made;
    (void)state;
    assert_int_equal(make_of(&made, ADAMW(", \"no_decay\": [\"x\"]"), 0), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(),
                           "\"x\" matches no parameter of this model; a name looks like `?`"));
    drop(&made);
}

/* Each allocation may fail, also those of a refusal. */
static void test_no_memory(void **state)
{
    int failed = 0;
    (void)state;
    for (bool again = true; again;) {
        struct made made;
        char point[32];
        snprintf(point, sizeof point, "alloc:%d", failed++);
        assert_true(shoali_fault_arm(point));
        const shoal_status status = make(&made, ADAMW(", \"no_decay\": [\"x\"]"));
        again = shoali_fault_left() < 0; /* it fired */
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, again ? SHOAL_ENOMEM : SHOAL_ECONFIG);
        drop(&made);
    }
    assert_true(failed > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_decay), cmocka_unit_test(test_no_decay),
        cmocka_unit_test(test_groups),    cmocka_unit_test(test_every_key),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_no_params),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
