/* Rules for models without splits: which parameters they divide, and what is said of wrong ones. */
#include "base/test_cmocka.h"
#include "tensor_parallel/autotp.h"

#include <jansson.h>
#include <string.h>

/* ---- a model of a few names ------------------------------------------------------------------ */

static const struct named {
    const char *name;
    shoal_shape shape;
} names[] = {{"/model.embed_tokens.weight", {2, {16, 8}}},
             {"/model.layers.0.self_attn.q_proj.weight", {2, {12, 8}}},
             {"/model.layers.0.self_attn.q_proj.bias", {1, {12}}},
             {"/model.layers.0.self_attn.o_proj.weight", {2, {8, 12}}},
             {"/model.layers.0.self_attn.o_proj.bias", {1, {8}}},
             {"/model.layers.0.mlp.gate_up_proj.weight", {2, {20, 8}}},
             {"/model.norm.weight", {1, {8}}},
             {"/transformer.h.0.attn.c_attn.weight", {2, {8, 24}}},
             {"/transformer.h.0.self_attention.query_key_value.weight", {2, {24, 8}}},
             {"/transformer.h.0.self_attention.dense.weight", {2, {8, 8}}},
             {"/transformer.h.0.mlp.dense_h_to_4h.bias", {1, {32}}},
             {"/transformer.h.0.mlp.dense_4h_to_h.weight", {2, {8, 32}}},
             {"/transformer.word_embeddings.weight", {2, {16, 8}}},
             {"/model.layers.0.block_sparse_moe.gate.weight", {2, {4, 8}}},
             {"/model.layers.0.block_sparse_moe.experts.11.w3.weight", {2, {20, 8}}},
             {"/model.layers.0.block_sparse_moe.experts.11.w2.weight", {2, {8, 20}}},
             {"/model.layers.1.self_attn.kv_a_proj_with_mqa.weight", {2, {10, 8}}},
             {"/model.layers.1.self_attn.kv_b_proj.weight", {2, {12, 6}}},
             {"/model.layers.1.mlp.gate.weight", {2, {4, 8}}},
             {"/model.layers.1.mlp.experts.3.gate_proj.weight", {2, {20, 8}}},
             {"/model.layers.1.mlp.shared_experts.down_proj.weight", {2, {8, 20}}}};
enum { NAMES = sizeof names / sizeof names[0] };
enum {
    EMBED,
    Q,
    Q_BIAS,
    O,
    O_BIAS,
    GATE_UP,
    NORM,
    C_ATTN,
    QKV,
    DENSE,
    H_TO_4H_BIAS,
    H4_TO_H,
    WORDS,
    ROUTER,
    W3,
    W2,
    KV_A,
    KV_B,
    GATE,
    EXPERT_GATE,
    SHARED_DOWN
};

static shoal_status declare(const void *config, shoal_declaration *declaration)
{
    shoal_status status = SHOAL_OK;
    (void)config;
    for (int i = 0; i < NAMES && status >= 0; i++)
        status = shoal_declare_param(
            declaration, &(shoal_param_spec){.name = names[i].name, .shape = names[i].shape});
    return status;
}

static void forward(const shoal_layer *all, shoal_tape *tape, shoal_boundary *boundary)
{
    (void)all, (void)tape, (void)boundary;
}

static const shoal_layer_type type = {.name = "all", .declare = declare, .forward = forward};
static const shoal_layer_spec layer = {&type, "all", NULL};
static const shoal_model model = {.name = "names", .layers = &layer, .layer_count = 1};

/* The module of rank 1 of 2. */
static shoal_status tagged(struct shoali_module *module, const char *preset, const char *config)
{
    shoal_status status;
    struct shoali_autotp autotp = {0};
    const struct shoali_tagger tagger = {&autotp, shoali_autotp_tag};
    const struct shoali_axis_place place = {SHOAL_AXIS_TP, 2, 1, 0};
    json_t *object = config ? json_loads(config, 0, NULL) : NULL;
    assert_true(!config || object);
    *module = (struct shoali_module){0};
    status = shoali_autotp_init(&autotp, preset, object);
    if (status >= 0)
        status = shoali_module_init_tagged(module, &model, SHOAL_F32, &place, 1, &tagger);
    shoali_autotp_fini(&autotp);
    json_decref(object);
    return status;
}

static void expect(const struct shoali_module *module, int param, int64_t first, int64_t second)
{
    const shoal_shape *shape = shoal_param_local_shape(module->param[param]);
    assert_int_equal(shape->dim[0], first);
    if (shape->ndim > 1)
        assert_int_equal(shape->dim[1], second);
}

static void test_presets(void **state)
{
    struct shoali_module module;
    (void)state;
    ok(tagged(&module, "Qwen2", NULL));
    expect(&module, EMBED, 8, 8);
    expect(&module, Q, 6, 8);
    expect(&module, Q_BIAS, 6, 0);
    expect(&module, O, 8, 6);
    expect(&module, O_BIAS, 8, 0);
    expect(&module, GATE_UP, 20, 8);
    expect(&module, NORM, 8, 0);
    expect(&module, C_ATTN, 8, 24);
    shoali_module_fini(&module);
    ok(tagged(&module, "phi3", NULL));
    expect(&module, GATE_UP, 10, 8);
    const struct shoali_columns *halves = &module.param[GATE_UP]->columns;
    assert_int_equal(halves->parts, 2);
    assert_int_equal(halves->first[1], 5);
    shoali_module_fini(&module);
    ok(tagged(&module, "gpt2", NULL));
    expect(&module, C_ATTN, 8, 12);
    assert_int_equal(module.param[C_ATTN]->columns.parts, 3);
    shoali_module_fini(&module);
}

/* Families whose models are not ours: their names alone. */
static void test_other_families(void **state)
{
    struct shoali_module module;
    (void)state;
    ok(tagged(&module, "bloom", NULL));
    expect(&module, QKV, 12, 8);
    assert_int_equal(module.param[QKV]->columns.parts, 1); /* head by head */
    expect(&module, DENSE, 8, 4);
    expect(&module, H_TO_4H_BIAS, 16, 0);
    assert_int_equal(module.param[H_TO_4H_BIAS]->columns.parts, 1);
    expect(&module, H4_TO_H, 8, 16);
    expect(&module, WORDS, 8, 8);
    expect(&module, Q, 12, 8);
    shoali_module_fini(&module);
    ok(tagged(&module, "chatglm", NULL));
    expect(&module, QKV, 12, 8);
    assert_int_equal(module.param[QKV]->columns.parts, 3);
    assert_int_equal(module.param[QKV]->columns.first[1], 4);
    assert_int_equal(module.param[H_TO_4H_BIAS]->columns.parts, 2);
    shoali_module_fini(&module);
    ok(tagged(&module, "mixtral", NULL));
    expect(&module, Q, 6, 8);
    expect(&module, ROUTER, 4, 8);
    expect(&module, W3, 10, 8);
    expect(&module, W2, 8, 10);
    shoali_module_fini(&module);
    ok(tagged(&module, "deepseek_v2", NULL));
    expect(&module, KV_A, 10, 8);
    expect(&module, KV_B, 6, 6);
    expect(&module, GATE, 4, 8);
    expect(&module, EXPERT_GATE, 10, 8);
    expect(&module, SHARED_DOWN, 8, 10);
    expect(&module, O, 8, 6);
    expect(&module, ROUTER, 4, 8);
    shoali_module_fini(&module);
}

static void test_rules(void **state)
{
    struct shoali_module module;
    (void)state;
    ok(tagged(
        &module, "llama",
        "{\"layer_specs\": [{\"patterns\": [\".*embed\", \"model.norm\"], \"partition_type\": "
        "\"skip\"}, {\"patterns\": [\".*c_attn\"], \"partition_type\": \"column\", "
        "\"partition_dim\": 1, \"shape\": [-1, [16, 4, 4]]}, {\"patterns\": [\"o_proj\"], "
        "\"partition_type\": \"column\"}]}"));
    expect(&module, EMBED, 16, 8); /* the first rule that matches */
    expect(&module, C_ATTN, 8, 12);
    assert_int_equal(module.param[C_ATTN]->columns.count[0], 8);
    expect(&module, O, 8, 6); /* a pattern matches from the beginning on */
    shoali_module_fini(&module);
    ok(tagged(&module, "llama", "{\"use_default_specs\": false}"));
    expect(&module, Q, 12, 8);
    shoali_module_fini(&module);
}

static void refuse(const char *preset, const char *config, const char *sentence)
{
    struct shoali_module module;
    const shoal_status status = tagged(&module, preset, config);
    assert_int_equal(status, SHOAL_ECONFIG);
    if (!strstr(shoal_error_message(), sentence))
        fail_msg("\"%s\" is not in: %s", sentence, shoal_error_message());
}

#define RULE(more) "{\"layer_specs\": [{\"patterns\": [\".*proj\"]" more "}]}"

static void test_mistakes(void **state)
{
    (void)state;
    refuse("lama", NULL, "give one of llama, mistral");
    refuse(NULL, "{\"layer_spec\": []}", "has the key `layer_spec`");
    refuse(NULL, RULE(""), "layer_specs[0].partition_type is \"missing\"");
    refuse(NULL, RULE(", \"partition_type\": \"col\""), "is \"col\": give column, row");
    refuse(NULL, RULE(", \"partition_type\": \"row\", \"partition_dim\": 2"), "give 0 or 1");
    refuse(NULL, RULE(", \"partition_type\": \"column\", \"shape\": [[1, 0]]"), "shape must be");
    refuse(NULL, RULE(", \"partition_type\": \"column\", \"shape\": [[4, 4]]"),
           "do not form the 2 parts");
    refuse(NULL, RULE(", \"partition_type\": \"column\", \"dim\": 1"), "has the key `dim`");
    refuse(NULL, "{\"layer_specs\": [{\"patterns\": [\"(\"], \"partition_type\": \"skip\"}]}",
           "no extended regular expression");
    refuse(NULL, RULE(", \"partition_type\": \"row\", \"model_types\": [\"llama\"]"),
           "layer_specs[0].model_types is not supported: leave it out");
    refuse("llama", "{\"strict_mode\": true}", "no rule says how ranks divide the matrix");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_other_families),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
