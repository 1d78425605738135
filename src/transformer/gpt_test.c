/* The GPT as a declaration: parameters, names, initial values, refusals. */
#include "autograd/autograd.h"
#include "base/test_cmocka.h"
#include "transformer/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static shoal_gpt_config small(void)
{
    shoal_gpt_config config;
    shoal_gpt_config_defaults(&config);
    config.num_layers = 2;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.seq_length = 16;
    config.vocab_size = 61;
    return config;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* As in papers. */
static int64_t formula(const shoal_gpt_config *config)
{
    const int64_t c = config->hidden_size, f = config->ffn_hidden_size,
                  bias = config->add_bias_linear;
    const int64_t block = (1 + bias) * 2 * c + 4 * c * c + 2 * c * f + bias * (5 * c + f);
    return shoali_gpt_padded_vocab(config) * c * (config->untie_embeddings ? 2 : 1) +
           config->max_position_embeddings * c + config->num_layers * block + (1 + bias) * c;
}

/* The count that FLOPs use is that of the declared parameters, in every form. */
static void test_param_count(void **state)
{
    (void)state;
    for (int32_t form = 0; form < 16; form++) {
        shoal_gpt_config config = small();
        shoal_model *model;
        struct shoali_module module;
        int64_t count;
        config.untie_embeddings = form & 1;
        config.add_bias_linear = !(form & 2);
        config.make_vocab_size_divisible_by = form & 4 ? 1 : 64;
        if (form & 8) {
            config.ffn_hidden_size = 48;
            config.max_position_embeddings = 40;
        }
        ok(shoal_gpt_create(&config, &model));
        ok(shoali_module_init(&module, model, SHOAL_F32, NULL, 0));
        ok(shoal_model_param_count(model, &count));
        assert_int_equal(module.element_count, count);
        shoal_gpt_get_config(model, &config);
        assert_int_equal(count, formula(&config));
        shoali_module_fini(&module);
        shoal_model_destroy(model);
    }
    /* GPT-2's smallest, as published */
    shoal_gpt_config gpt2 = small();
    gpt2.num_layers = gpt2.num_attention_heads = 12;
    gpt2.hidden_size = 768;
    gpt2.seq_length = 1024;
    gpt2.vocab_size = 50257;
    gpt2.make_vocab_size_divisible_by = 1;
    shoal_model *model;
    int64_t count;
    double flops;
    ok(shoal_gpt_create(&gpt2, &model));
    ok(shoal_model_param_count(model, &count));
    ok(shoal_model_flops_per_token(model, &flops));
    assert_int_equal(count, 124439808);
    assert_float_equal(flops, 6.0 * 124439808 + 12.0 * 12 * 768 * 1024, 1e-3);
    shoal_model_destroy(model);
}

struct expected {
    const char *name;
    int32_t ndim;
    int64_t dim[2];
    shoal_init_kind init;
    double std;
};

/* Names, shapes and initial values are those of Hugging Face's GPT-2. */
static void test_parameters(void **state)
{
    const double std = 0.02, scaled = 0.02 / sqrt(2.0 * 2);
    const struct expected expected[] = {
        {"transformer.wte.weight", 2, {128, 32}, SHOAL_INIT_NORMAL, std},
        {"transformer.wpe.weight", 2, {16, 32}, SHOAL_INIT_NORMAL, std},
        {"transformer.h.1.ln_1.weight", 1, {32}, SHOAL_INIT_ONES, 0},
        {"transformer.h.1.ln_1.bias", 1, {32}, SHOAL_INIT_ZEROS, 0},
        {"transformer.h.1.attn.c_attn.weight", 2, {32, 96}, SHOAL_INIT_NORMAL, std},
        {"transformer.h.1.attn.c_attn.bias", 1, {96}, SHOAL_INIT_ZEROS, 0},
        {"transformer.h.1.attn.c_proj.weight", 2, {32, 32}, SHOAL_INIT_NORMAL, scaled},
        {"transformer.h.1.mlp.c_fc.weight", 2, {32, 128}, SHOAL_INIT_NORMAL, std},
        {"transformer.h.1.mlp.c_proj.weight", 2, {128, 32}, SHOAL_INIT_NORMAL, scaled},
        {"transformer.ln_f.weight", 1, {32}, SHOAL_INIT_ONES, 0},
        {"transformer.ln_f.bias", 1, {32}, SHOAL_INIT_ZEROS, 0},
    };
    shoal_gpt_config config = small();
    shoal_model *model;
    struct shoali_module module;
    (void)state;
    config.make_vocab_size_divisible_by = 128;
    ok(shoal_gpt_create(&config, &model));
    ok(shoali_module_init(&module, model, SHOAL_F32, NULL, 0));
    assert_int_equal(module.param_count, 2 + 2 * 12 + 2);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct expected *e = &expected[i];
        const struct shoal_param *param = shoali_module_find(&module, e->name);
        if (!param)
            fail_msg("no %s", e->name);
        assert_int_equal(param->shape.ndim, e->ndim);
        for (int32_t d = 0; d < e->ndim; d++)
            assert_int_equal(param->shape.dim[d], e->dim[d]);
        assert_int_equal(param->init, e->init);
        assert_true(e->init != SHOAL_INIT_NORMAL || fabs(param->init_b - e->std) < 1e-15);
        assert_int_equal(param->tags, 0);
    }
    assert_int_equal(shoali_module_find(&module, "transformer.wte.weight")->uses, 2);
    assert_ptr_equal(shoali_module_find(&module, "lm_head.weight"),
                     shoali_module_find(&module, "transformer.wte.weight"));
    shoali_module_fini(&module);
    shoal_model_destroy(model);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(const shoal_gpt_config *config, const char *sentence)
{
    shoal_model *model;
    assert_int_equal(shoal_gpt_create(config, &model), SHOAL_EINVAL);
    assert_null(model);
    if (!strstr(shoal_error_message(), sentence))
        fail_msg("\"%s\" is missing in: %s", sentence, shoal_error_message());
}

static void test_refusals(void **state)
{
    shoal_gpt_config config;
    (void)state;
#define REFUSED(member, value, sentence) \
    do {                                 \
        config = small();                \
        config.member = (value);         \
        refused(&config, sentence);      \
    } while (0)
    REFUSED(num_layers, 0, "--num-layers is 0");
    REFUSED(hidden_size, -3, "--hidden-size is -3");
    REFUSED(num_attention_heads, 0, "--num-attention-heads is 0");
    REFUSED(seq_length, 0, "--seq-length is 0");
    REFUSED(vocab_size, 0, "--vocab-size is 0");
    REFUSED(ffn_hidden_size, -1, "--ffn-hidden-size is -1");
    REFUSED(hidden_dropout, 1, "--hidden-dropout is 1");
    REFUSED(attention_dropout, -0.5, "--attention-dropout is -0.5");
    REFUSED(attention_dropout, (double)NAN, "--attention-dropout is");
    REFUSED(num_attention_heads, 5, "--hidden-size 32 is not divisible by --num-attention-heads 5");
    REFUSED(max_position_embeddings, 15, "--max-position-embeddings 15 is below --seq-length 16");
#undef REFUSED
    shoal_model_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_param_count),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
