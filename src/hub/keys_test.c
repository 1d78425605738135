/* Every key that a family knows does something: with an unusual value the model is another one, or
 * the key is written back as it was, or it is refused. A key that is marked as known and forgotten
 * fails here. */
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "hub/hub.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const unusual[] = {
    "true",
    "false",
    "0",
    "1",
    "7",
    "0.3125",
    "-3",
    "\"unusual\"",
    "\"\"",
    "\"gelu\"",
    "[1, 2]",
    "[]",
    "{}",
    "{\"unusual\": 1}",
    "null",
    "1e30",
    "123456789",
    "\"silu\"",
    "\"absolute\"",
    "[\"sliding_attention\", \"sliding_attention\"]",
    "[\"full_attention\", \"full_attention\"]",
    "{\"type\": \"linear\", \"factor\": 2.5}",
    "{\"rope_type\": \"dynamic\", \"factor\": 2.5}",
    "{\"rope_type\": \"default\"}",
};

/* The class follows from the weights that are written, their type from --dtype. */
static bool is_made_anew(const char *key)
{
    static const char *const keys[] = {"architectures", "torch_dtype", "dtype"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* What a family's config.json has at least; gpt2 has two names for sizes. */
static json_t *make_base(const struct shoali_hub_family *family)
{
    json_t *root = json_pack("{s:s}", "model_type", family->type);
    for (int32_t i = 0; i < family->key_count; i++)
        if (family->keys[i].use == SHOALI_HUB_NEEDED)
            assert_int_equal(
                json_object_set_new(root, family->keys[i].key,
                                    json_integer(strstr(family->keys[i].key, "layer")  ? 2
                                                 : strstr(family->keys[i].key, "head") ? 4
                                                                                       : 64)),
                0);
        else if (strcmp(family->keys[i].key, "rotary_dim") == 0) /* without it, more than a head */
            assert_int_equal(json_object_set_new(root, "rotary_dim", json_integer(8)), 0);
    return root;
}

struct outcome {
    char *model; /* owned: all options as JSON; NULL: refused */
    json_t *written;
};

static void outcome_fini(struct outcome *outcome)
{
    free(outcome->model);
    json_decref(outcome->written);
}

static struct outcome pass_through(const json_t *root)
{
    struct outcome outcome = {0};
    char path[96], *written = NULL;
    shoal_model_config *config = NULL;
    shoal_model *model = NULL;
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    shoal_status status = shoal_hub_read_config(folder, &config, NULL);
    if (status == SHOAL_OK)
        status = shoal_model_create(config, &model);
    if (status == SHOAL_OK) {
        const shoal_hub_write_args args = {.config = shoal_model_get_config(model),
                                           .source = folder};
        ok(shoal_model_config_to_json(shoal_model_get_config(model), &outcome.model));
        ok(shoal_hub_write_config(&args, &written));
        outcome.written = json_loads(written, 0, NULL);
        assert_non_null(outcome.written);
    } else {
        assert_int_equal(shoal_status_exit_code(status), 2);
    }
    free(written);
    shoal_model_destroy(model);
    shoal_model_config_destroy(config);
    return outcome;
}

/* Numbers are the same as integers and as reals. */
static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* null, false and empty values may be left out: they say what holds without the key. */
static bool says_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && !*json_string_value(value)) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

/* A list or an object in other words: reading what was written gives the same model. */
static bool says_the_same(const json_t *written, const char *model)
{
    struct outcome again = pass_through(written);
    const bool equal = again.model && strcmp(again.model, model) == 0;
    outcome_fini(&again);
    return equal;
}

static void try_value(const struct shoali_hub_family *family, const char *key, const char *text,
                      const char *base_model)
{
    json_t *root = make_base(family);
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    assert_int_equal(json_object_set(root, key, value), 0);
    struct outcome outcome = pass_through(root);
    const json_t *back = outcome.written ? json_object_get(outcome.written, key) : NULL;
    const bool other = outcome.model && strcmp(outcome.model, base_model) != 0;
    if (outcome.model && !is_made_anew(key) && !says_nothing(value) &&
        !(back && same(back, value)) && !other) {
        /* what is only another word for what holds anyway */
        static const char *const synonyms[] = {
            "hidden_act",      "hidden_activation",       "activation_function",
            "layer_types",     "position_embedding_type", "rope_scaling",
            "rope_parameters", "scale_attn_weights"};
        bool synonym = false;
        for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
            synonym |= strcmp(synonyms[i], key) == 0;
        if (!synonym)
            fail_msg("%s: `%s` = %s is taken, changes nothing, and is not written back",
                     family->type, key, text);
    }
    if (outcome.model && other && !says_the_same(outcome.written, outcome.model))
        fail_msg("%s: `%s` = %s: what is written is another model", family->type, key, text);
    outcome_fini(&outcome);
    json_decref(value);
    json_decref(root);
}

/* Of keys of all families, which nearly all are only passed on, one value of each JSON type. */
static bool is_enough(const char *text)
{
    static const char *const one_each[] = {"true",        "7",      "0.3125",
                                           "\"unusual\"", "[1, 2]", "{\"unusual\": 1}"};
    for (size_t i = 0; i < sizeof one_each / sizeof one_each[0]; i++)
        if (strcmp(one_each[i], text) == 0)
            return true;
    return false;
}

static void try_key(const struct shoali_hub_family *family, const char *key, bool common,
                    const char *base_model)
{
    if (!key || strcmp(key, "model_type") == 0 || strcmp(key, "shoal") == 0)
        return;
    for (size_t i = 0; i < sizeof unusual / sizeof unusual[0]; i++)
        if (!common || is_enough(unusual[i]))
            try_value(family, key, unusual[i], base_model);
}

static void test_keys(void **state)
{
    (void)state;
    for (int32_t f = 0; shoali_hub_families[f]; f++) {
        const struct shoali_hub_family *family = shoali_hub_families[f];
        json_t *root = make_base(family);
        struct outcome base = pass_through(root);
        if (!base.model)
            fail_msg("%s: %s", family->type, shoal_error_message());
        for (int32_t i = 0; i < family->key_count; i++) {
            try_key(family, family->keys[i].key, false, base.model);
            try_key(family, family->keys[i].alias, false, base.model);
        }
        for (int32_t i = 0; i < shoali_hub_common_count; i++) {
            if (shoali_hub_common[i].use == SHOALI_HUB_NOTE) { /* all are treated alike */
                try_value(family, shoali_hub_common[i].key, "7", base.model);
                continue;
            }
            try_key(family, shoali_hub_common[i].key, true, base.model);
            try_key(family, shoali_hub_common[i].alias, true, base.model);
        }
        outcome_fini(&base);
        json_decref(root);
    }
}

/* An option that is added to a model later, and that a family does not mention, is never lost: with
 * another value than its default the model is not of this family. */
static void try_option(const struct shoali_hub_family *family, shoal_model_config *config,
                       const shoal_model_option *option)
{
    char *text = NULL;
    const double value = option->default_value == 0 ? 1 : 0;
    if (shoali_hub_mentions(family, option->name) ||
        shoal_model_config_set(config, option->name, value) != SHOAL_OK)
        return;
    const shoal_status status =
        shoal_hub_write_config(&(shoal_hub_write_args){.config = config, .source = folder}, &text);
    json_t *written = text ? json_loads(text, 0, NULL) : NULL;
    const char *type = json_string_value(json_object_get(written, "model_type"));
    if (status == SHOAL_OK && strcmp(type, family->type) == 0)
        fail_msg("%s: --%s %g is lost", family->type, option->name, value);
    ok(shoal_model_config_set(config, option->name, option->default_value));
    json_decref(written);
    free(text);
}

static void test_options(void **state)
{
    (void)state;
    for (int32_t f = 0; shoali_hub_families[f]; f++) {
        json_t *root = make_base(shoali_hub_families[f]);
        struct outcome base = pass_through(root); /* leaves the folder with this config.json */
        shoal_model_config *config = NULL;
        const shoal_model_option *option;
        ok(shoal_model_config_from_json(base.model, &config));
        for (int32_t i = 0; (option = shoal_model_config_option(config, i)) != NULL; i++)
            try_option(shoali_hub_families[f], config, option);
        shoal_model_config_destroy(config);
        outcome_fini(&base);
        json_decref(root);
    }
}

/* ---- what a scaling says ---- */

static const char *const scalings[] = {
    "{\"type\": \"dynamic\", \"factor\": 4.0}",
    "{\"rope_type\": \"dynamic\", \"factor\": 4.0}",
    "{\"rope_type\": \"linear\", \"factor\": 4.0}",
    ("{\"rope_type\": \"llama3\", \"factor\": 32.0, \"low_freq_factor\": 1.0, "
     "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}"),
};

/* Saved twice: the second source is what the first save wrote. */
static void test_scalings_are_kept(void **state)
{
    static const char *const places[] = {"rope_scaling", "rope_parameters"};
    (void)state;
    for (size_t s = 0; s < sizeof scalings / sizeof scalings[0]; s++)
        for (size_t p = 0; p < 2; p++) {
            json_t *root = make_base(&shoali_hub_llama),
                   *scaling = json_loads(scalings[s], 0, NULL);
            assert_int_equal(json_object_set(root, places[p], scaling), 0);
            struct outcome first = pass_through(root), second = pass_through(first.written);
            const json_t *type = json_object_get(scaling, "rope_type");
            const json_t *back = json_object_get(second.written, "rope_scaling");
            assert_true(json_equal(json_object_get(back, "rope_type"),
                                   type ? type : json_object_get(scaling, "type")));
            assert_true(same(json_object_get(back, "factor"), json_object_get(scaling, "factor")));
            assert_string_equal(first.model, second.model);
            outcome_fini(&first);
            outcome_fini(&second);
            json_decref(scaling);
            json_decref(root);
        }
}

struct mistake {
    const char *member, *sentence;
};

/* Nothing of a scaling is passed over. */
static void test_scaling_refusals(void **state)
{
    static const struct mistake mistakes[] = {
        {"{\"rope_type\": \"default\", \"factor\": 2}", "`rope_scaling.factor` is 2"},
        {"{\"rope_type\": \"linear\"}", "such a type needs a number factor"},
        {"{\"rope_type\": \"dynamic\"}", "such a type needs a number factor"},
        {"{\"rope_type\": \"linear\", \"factor\": 0}", "it must be a number of at least 1"},
        {"{\"rope_type\": \"dynamic\", \"factor\": 0}", "it must be a number of at least 1"},
        {"{\"rope_type\": \"dynamic\", \"factor\": 2, \"alpha\": 3}", "`rope_scaling.alpha` is 3"},
        {"{\"rope_type\": \"dynamic\", \"type\": \"linear\", \"factor\": 2}",
         "rope_type has another value"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        json_t *root = make_base(&shoali_hub_llama);
        json_t *scaling = json_loads(mistakes[i].member, 0, NULL);
        assert_int_equal(json_object_set_new(root, "rope_scaling", scaling), 0);
        struct outcome outcome = pass_through(root);
        assert_null(outcome.model);
        if (!strstr(shoal_error_message(), mistakes[i].sentence))
            fail_msg("%s: %s", mistakes[i].member, shoal_error_message());
        json_decref(root);
    }
}

/* 0 of a size is no wish for the default. */
static void test_zero_is_no_default(void **state)
{
    static const char *const keys[] = {"n_inner", "n_positions", "vocab_size", "n_layer"};
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *root = make_base(&shoali_hub_gpt2);
        assert_int_equal(json_object_set_new(root, keys[i], json_integer(0)), 0);
        assert_null(pass_through(root).model);
        assert_non_null(strstr(shoal_error_message(), "it must be 1 or more"));
        json_decref(root);
    }
}

/* Another name with another value, and the second dropout of GPT-2. */
static void test_contradictions(void **state)
{
    static const struct mistake mistakes[] = {
        {"num_hidden_layers", "`n_layer`, which means the same, has another value"},
        {"embd_pdrop", "only the value of `resid_pdrop` is computed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        json_t *root = make_base(&shoali_hub_gpt2);
        assert_int_equal(json_object_set_new(root, mistakes[i].member, json_integer(1)), 0);
        assert_null(pass_through(root).model);
        assert_non_null(strstr(shoal_error_message(), mistakes[i].sentence));
        json_decref(root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_scalings_are_kept),
        cmocka_unit_test(test_scaling_refusals),
        cmocka_unit_test(test_zero_is_no_default),
        cmocka_unit_test(test_contradictions),
    };
    ok(shoal_log_configure("error", NULL, NULL)); /* thousands of lines name keys */
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
