/* Generation is the training forward pass, bit for bit: random models, texts, cuts, neighbours and
 * numbers of threads. */
#include "base/fault.h"
#include "base/test_cmocka.h"
#include "inference/inference.h"
#include "transformer/llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POSITIONS = 90, SEQUENCES = 4, VOCAB = 53, CASES = 144 };
#define SEED 20251122u

struct texts {
    int32_t count;
    int64_t length[SEQUENCES];
    int32_t token[SEQUENCES][POSITIONS];
};

/* A number of [0, count). */
static int64_t draw(uint64_t *state, int64_t count)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((*state >> 33) % (uint64_t)count);
}

/* ---- the model ------------------------------------------------------------------------------ */

static shoal_model *random_gpt(uint64_t *state)
{
    shoal_model *model;
    shoal_gpt_config config;
    shoal_gpt_config_defaults(&config);
    config.num_attention_heads = 1 + draw(state, 3);
    config.hidden_size = config.num_attention_heads * (3 + 5 * draw(state, 14));
    config.num_layers = 1 + draw(state, 3);
    config.ffn_hidden_size = 1 + draw(state, 200);
    config.seq_length = POSITIONS;
    config.vocab_size = VOCAB;
    config.make_vocab_size_divisible_by = draw(state, 2) ? 1 : 16;
    config.add_bias_linear = draw(state, 2) != 0;
    config.openai_gelu = draw(state, 2) != 0;
    config.untie_embeddings = draw(state, 2) != 0;
    config.init_method_std = 0.3;
    ok(shoal_gpt_create(&config, &model));
    return model;
}

/* Groups, norms, positions, windows and gates of all kinds. */
static shoal_model *random_llama(uint64_t *state)
{
    shoal_model *model;
    struct shoali_llama_config config;
    shoali_model_defaults(&shoali_model_llama, &config);
    config.num_query_groups = 1 + draw(state, 2);
    config.group_query_attention = true;
    config.num_attention_heads = config.num_query_groups * (1 + draw(state, 3));
    config.kv_channels = 2 + 2 * draw(state, 20);
    config.hidden_size = 1 + draw(state, 70);
    config.num_layers = 1 + draw(state, 3);
    config.ffn_hidden_size = 1 + draw(state, 100);
    config.seq_length = POSITIONS;
    config.vocab_size = VOCAB;
    config.normalization = draw(state, 2);
    config.position_embedding_type = draw(state, 4) ? SHOALI_POSITIONS_ROPE : draw(state, 3);
    if (config.position_embedding_type == SHOALI_POSITIONS_ROPE) {
        config.rotary_interleaved = draw(state, 2) != 0;
        config.use_rope_scaling = draw(state, 2) != 0;
        config.rope_scaling_original_max_position = 40;
    }
    config.window_size = draw(state, 2) ? 1 + draw(state, POSITIONS) : 0;
    config.window_attn_skip_freq = config.window_size ? draw(state, 3) : 0;
    config.qk_layernorm = draw(state, 2) != 0;
    config.apply_layernorm_1p = draw(state, 2) != 0;
    config.swiglu = draw(state, 2) != 0;
    config.squared_relu = !config.swiglu && draw(state, 2) != 0;
    config.disable_bias_linear = draw(state, 2) != 0;
    config.untie_embeddings = draw(state, 2) != 0;
    config.embedding_multiplier = draw(state, 2) ? 1 : 5;
    config.init_method_std = 0.3;
    ok(shoali_model_create(&shoali_model_llama, &config, &model));
    return model;
}

static shoal_model *random_model(uint64_t *state)
{
    return *state % 2 ? random_llama(state) : random_gpt(state);
}

static shoal_engine *open_engine(const shoal_model *model, const char *type, int32_t threads,
                                 const char *accelerator)
{
    shoal_engine *engine;
    char config[256];
    snprintf(config, sizeof config, "{\"train_micro_batch_size_per_gpu\":1%s}", type);
    ok(shoal_engine_create(&(shoal_engine_args){.model = model,
                                                .config_text = config,
                                                .threads = threads,
                                                .accelerator = accelerator,
                                                .seed = 7,
                                                .inference = 1},
                           &engine));
    return engine;
}

static struct texts random_texts(uint64_t *state)
{
    struct texts texts = {.count = 1 + (int32_t)draw(state, SEQUENCES)};
    for (int32_t s = 0; s < texts.count; s++) {
        texts.length[s] = 1 + draw(state, POSITIONS);
        for (int64_t t = 0; t < texts.length[s]; t++)
            texts.token[s][t] = (int32_t)draw(state, VOCAB);
    }
    return texts;
}

/* ---- the forward pass of training ----------------------------------------------------------- */

/* The model's last norm of x, and how many parameters it has. */
static shoal_tensor *last_norm(const shoal_engine *engine, const shoal_layer *head,
                               shoal_tape *tape, shoal_tensor *x, int32_t *params)
{
    const shoal_model_config *made = shoal_model_get_config(engine->model);
    shoal_norm_args args = {.gamma = shoal_layer_param(head, 0)};
    bool beta;
    if (made->row == &shoali_model_llama) {
        const struct shoali_llama_config *config = made->values;
        beta = config->normalization == SHOALI_NORM_LAYER;
        args.rms = !beta;
        args.eps = config->norm_epsilon;
        args.gamma_plus_one = config->apply_layernorm_1p;
    } else {
        shoal_gpt_config config;
        shoal_gpt_get_config(engine->model, &config);
        beta = config.add_bias_linear;
        args.eps = config.norm_epsilon;
    }
    args.beta = beta ? shoal_layer_param(head, 1) : NULL;
    *params = 1 + beta;
    return shoal_norm(tape, x, &args);
}

/* Logits [count, vocabulary] of a whole text: all layers but the last as they are, and of that what
 * comes before the loss. */
static void whole_text(shoal_engine *engine, const int32_t *tokens, int64_t count, float *logits,
                       int64_t vocab)
{
    const struct shoali_module *module = &engine->module;
    const int32_t last = module->layer_count - 1;
    int32_t table;
    const shoal_layer *head = &module->layer[last];
    const shoal_shape shape = shoal_shape_2(1, count);
    struct shoali_observer observer = *shoali_zero_observer(engine->zero);
    struct shoali_slot *slot;
    shoal_tape *tape;
    shoal_boundary boundary = {0};
    uint16_t low[POSITIONS * 64];
    ok(shoali_slot_create(engine->device, 0, &slot));
    ok(shoali_tape_create(&(struct shoali_tape_args){.exec = engine->exec,
                                                     .module = module,
                                                     .slot = slot,
                                                     .dtype = module->dtype,
                                                     .observers = &observer,
                                                     .observer_count = 1},
                          &tape));
    ok(shoali_tape_begin(tape, &(struct shoali_tape_begin){0}));
    shoal_tensor *input = shoali_tape_add_input(tape, SHOAL_I32, &shape, tokens, false);
    shoali_tape_set_batch(tape, &input, 1);
    ok(shoali_tape_forward_layers(tape, module, 0, last, &boundary));
    shoal_tensor *x = last_norm(engine, head, tape, boundary.tensor[0], &table);
    x = shoal_linear(tape, x, shoal_layer_param(head, table),
                     &(shoal_linear_args){.weight_out_in = 1});
    ok(shoali_tape_status(tape));
    assert_int_equal(shoal_shape_count(shoal_tensor_shape(x)), count * vocab);
    ok(shoal_tensor_read(x, 0, count * vocab, module->dtype == SHOAL_F32 ? (void *)logits : low));
    for (int64_t i = 0; module->dtype != SHOAL_F32 && i < count * vocab; i++)
        logits[i] =
            module->dtype == SHOAL_BF16 ? shoali_bf16_to_f32(low[i]) : shoali_f16_to_f32(low[i]);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
}

/* ---- the same in pieces --------------------------------------------------------------------- */

/* Random pieces of random texts share calls until all are read; logits of every token. */
static void generate_in_pieces(shoal_generator *generator, const struct texts *texts,
                               uint64_t *state, float *logits[SEQUENCES], int64_t vocab)
{
    float rows[POSITIONS * SEQUENCES * 64];
    for (int32_t s = 0; s < texts->count; s++)
        ok(shoal_generator_truncate(generator, s, 0));
    for (;;) {
        shoal_generator_input inputs[SEQUENCES];
        int32_t count = 0;
        bool left = false;
        const bool turned = draw(state, 2) != 0; /* sequences in any order */
        for (int32_t at = 0; at < texts->count; at++) {
            const int32_t s = turned ? texts->count - 1 - at : at;
            const int64_t done = shoal_generator_length(generator, s);
            const int64_t rest = texts->length[s] - done;
            left = left || rest > 0;
            if (rest == 0 || draw(state, 3) == 0)
                continue;
            const int64_t most = draw(state, 2) ? 1 : rest;
            inputs[count++] =
                (shoal_generator_input){s, texts->token[s] + done, 1 + draw(state, most)};
        }
        if (!left)
            return;
        if (count == 0)
            continue;
        ok(shoal_generator_forward(generator, inputs, count, true, rows));
        const float *row = rows;
        for (int32_t i = 0; i < count; i++) {
            const int64_t first = inputs[i].tokens - texts->token[inputs[i].sequence];
            memcpy(logits[inputs[i].sequence] + first * vocab, row,
                   (size_t)(inputs[i].count * vocab) * sizeof *row);
            row += inputs[i].count * vocab;
        }
    }
}

static void compare(const float *got, const float *expected, int64_t rows, int64_t vocab,
                    const char *what)
{
    for (int64_t i = 0; i < rows * vocab; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0)
            fail_msg("%s: position %lld, logit %lld: %.9g, but the whole text gives %.9g", what,
                     (long long)(i / vocab), (long long)(i % vocab), (double)got[i],
                     (double)expected[i]);
}

static void check_case(uint64_t seed, const char *type, const char *accelerator)
{
    uint64_t state = seed;
    char what[128];
    shoal_model *model = random_model(&state);
    shoal_engine *whole = open_engine(model, type, 1 + (int32_t)draw(&state, 3), accelerator);
    shoal_engine *pieces = open_engine(model, type, 1 + (int32_t)draw(&state, 3), accelerator);
    shoal_generator *generator;
    float *expected[SEQUENCES], *got[SEQUENCES];
    ok(shoal_generator_create(
        &(shoal_generator_args){.engine = pieces, .sequences = SEQUENCES, .max_length = POSITIONS},
        &generator));
    const int64_t vocab = shoal_generator_vocab_size(generator);
    snprintf(what, sizeof what, "seed %llu%s on %s", (unsigned long long)seed, type, accelerator);
    for (int32_t s = 0; s < SEQUENCES; s++) {
        expected[s] = calloc((size_t)(POSITIONS * vocab), sizeof(float));
        got[s] = calloc((size_t)(POSITIONS * vocab), sizeof(float));
    }
    for (int32_t round = 0; round < 2; round++) { /* the second over a used cache */
        const struct texts texts = random_texts(&state);
        for (int32_t s = 0; s < texts.count; s++)
            whole_text(whole, texts.token[s], texts.length[s], expected[s], vocab);
        generate_in_pieces(generator, &texts, &state, got, vocab);
        for (int32_t s = 0; s < texts.count; s++)
            compare(got[s], expected[s], texts.length[s], vocab, what);
    }
    for (int32_t s = 0; s < SEQUENCES; s++) {
        free(expected[s]);
        free(got[s]);
    }
    shoal_generator_destroy(generator);
    shoal_engine_destroy(pieces);
    shoal_engine_destroy(whole);
    shoal_model_destroy(model);
}

static void test_bits(void **state)
{
    static const char *const types[] = {"", ",\"bf16\":{\"enabled\":true}",
                                        ",\"fp16\":{\"enabled\":true}"};
    (void)state;
    for (uint64_t i = 0; i < CASES; i++)
        check_case(SEED + i, types[i / 2 % 3], i % 8 >= 6 ? "sim" : "cpu");
    printf("seeds %u to %u\n", SEED, SEED + CASES - 1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The weights in their own type, the cache, a pass: nothing else is on the device. */
static void test_memory(void **state)
{
    static const char *const types[] = {"", ",\"bf16\":{\"enabled\":true}",
                                        ",\"fp16\":{\"enabled\":true}"};
    static const int32_t tokens[POSITIONS];
    static float logits[POSITIONS * 64];
    (void)state;
    for (int32_t t = 0; t < 3; t++) {
        uint64_t seed = 3;
        shoal_memory_info memory;
        shoal_generator *generator;
        shoal_model *model = random_gpt(&seed);
        char config[160];
        shoal_engine *engine;
        snprintf(config, sizeof config, "%s,\"packed_weights\":false", types[t]);
        engine = open_engine(model, config, 1, "cpu");
        ok(shoal_generator_create(
            &(shoal_generator_args){.engine = engine, .max_length = POSITIONS}, &generator));
        ok(shoal_generator_forward(generator, &(shoal_generator_input){0, tokens, POSITIONS}, 1,
                                   true, logits));
        shoal_engine_get_memory_info(engine, &memory);
        const int64_t item = t == 0 ? 4 : 2;
        const int64_t weights = shoal_engine_param_count(engine) * item;
        /* this pass is not the largest; masters would be more than twice as much */
        const int64_t pass = (int64_t)shoali_slot_peak_bytes(generator->decoder.slot);
        double layers, hidden;
        ok(shoal_model_config_get(shoal_model_get_config(model), "num-layers", &layers));
        ok(shoal_model_config_get(shoal_model_get_config(model), "hidden-size", &hidden));
        const int64_t cache = (int64_t)layers * (POSITIONS * 2 * (int64_t)hidden * item + 63);
        const int64_t beside = cache + pass + pass / 2;
        assert_true(beside < 2 * shoal_engine_param_count(engine));
        assert_in_range(memory.weights_bytes, weights, weights + 64);
        assert_in_range(memory.device_peak_bytes, weights, weights + beside);
        shoal_generator_destroy(generator);
        shoal_engine_destroy(engine);
        shoal_model_destroy(model);
    }
}

/* ---- weights packed where they lie ----------------------------------------------------------- */

/* Of sizes that packed layouts need not fill up, those of the hidden size at least. */
static shoal_model *whole_model(uint64_t *state)
{
    shoal_model *model;
    if (draw(state, 2)) {
        struct shoali_llama_config config;
        shoali_model_defaults(&shoali_model_llama, &config);
        config.hidden_size = 32 * (1 + draw(state, 3));
        config.num_attention_heads = config.hidden_size / 16;
        config.ffn_hidden_size = 32 * (1 + draw(state, 6));
        config.num_layers = 2;
        config.seq_length = POSITIONS;
        config.vocab_size = VOCAB;
        config.untie_embeddings = draw(state, 2) != 0;
        config.swiglu = true;
        ok(shoali_model_create(&shoali_model_llama, &config, &model));
        return model;
    }
    shoal_gpt_config config;
    shoal_gpt_config_defaults(&config);
    config.hidden_size = 32 * (1 + draw(state, 3));
    config.num_attention_heads = config.hidden_size / 16;
    config.ffn_hidden_size = 32 * (1 + draw(state, 6)) + draw(state, 2);
    config.num_layers = 2;
    config.seq_length = POSITIONS;
    config.vocab_size = VOCAB;
    config.untie_embeddings = draw(state, 2) != 0;
    ok(shoal_gpt_create(&config, &model));
    return model;
}

/* How many are, and that of a shared table none is: it is looked up, too. */
static int32_t count_placed(const shoal_engine *engine)
{
    int32_t count = 0;
    for (int32_t i = 0; i < engine->module.param_count; i++) {
        const struct shoal_param *param = engine->module.param[i];
        const struct shoali_packed *packed = &param->packed[SHOALI_PACKED_FORWARD];
        count += packed->in_place;
        assert_true(!packed->in_place || packed->data == param->data);
        assert_false(packed->in_place && (param->uses > 1 || param->shape.ndim != 2));
    }
    return count;
}

/* Without memory for a copy, weights stay as they lie, and that is no error. */
static void place_weights(shoal_engine *engine)
{
    shoali_error_clear();
    assert_true(shoali_fault_arm("device_alloc"));
    ok(shoali_packed_place(&engine->module, &engine->exec));
    const bool fired = shoali_fault_left() < 0;
    assert_true(shoali_fault_arm(NULL));
    assert_string_equal(shoal_error_message(), "");
    assert_int_equal(count_placed(engine), 0);
    ok(shoali_packed_place(&engine->module, &engine->exec));
    assert_int_equal(count_placed(engine) > 0, fired);
}

/* Generates with both, in random cuts, down to one token at a time. */
static void compare_logits(shoal_engine *engine[2], uint64_t *state, bool place)
{
    static float logits[2][POSITIONS * 64];
    int32_t tokens[POSITIONS];
    shoal_generator *generator[2];
    for (int32_t t = 0; t < POSITIONS; t++)
        tokens[t] = (int32_t)draw(state, VOCAB);
    for (int32_t e = 0; e < 2; e++)
        ok(shoal_generator_create(
            &(shoal_generator_args){.engine = engine[e], .max_length = POSITIONS}, &generator[e]));
    if (place)
        place_weights(engine[1]);
    for (int64_t at = 0, count; at < POSITIONS; at += count) {
        count = draw(state, 2) ? 1 : 1 + draw(state, POSITIONS - at);
        for (int32_t e = 0; e < 2; e++)
            ok(shoal_generator_forward(
                generator[e], &(shoal_generator_input){0, tokens + at, count}, 1, true, logits[e]));
        const int64_t numbers = count * shoal_generator_vocab_size(generator[0]);
        assert_memory_equal(logits[0], logits[1], (size_t)numbers * sizeof(float));
    }
    for (int32_t e = 0; e < 2; e++)
        shoal_generator_destroy(generator[e]);
}

/* Takes weights out of the first engine, where they lie plain. */
static void copy_weights(shoal_engine *engine[2])
{
    for (int32_t i = 0; i < engine[0]->module.param_count; i++) {
        const struct shoal_param *from = engine[0]->module.param[i];
        struct shoal_param *to = engine[1]->module.param[i];
        ok(shoali_param_begin_write(to));
        memcpy(to->data, from->data, (size_t)to->count * shoal_dtype_bytes(to->dtype));
    }
}

static void test_packed_in_place(void **state)
{
    static const char *const types[] = {"", ",\"bf16\":{\"enabled\":true}",
                                        ",\"fp16\":{\"enabled\":true}"};
    (void)state;
    for (uint32_t seed = SEED; seed < SEED + 12; seed++) {
        uint64_t draws = seed;
        char config[160];
        shoal_engine *engine[2];
        shoal_model *model = whole_model(&draws);
        const int32_t type = (int32_t)(seed % 3);
        snprintf(config, sizeof config, "%s,\"packed_weights\":false", types[type]);
        for (int32_t e = 0; e < 2; e++)
            engine[e] = open_engine(model, config, 1 + (int32_t)draw(&draws, 3), "cpu");
        const size_t same = 32 * 32 * shoal_dtype_bytes(engine[1]->module.dtype);
        const bool fits =
            shoali_op_packed_b_bytes(engine[1]->exec.ops, 32, 32, engine[1]->module.dtype) == same;
        compare_logits(engine, &draws, true);
        if ((count_placed(engine[1]) > 0) != fits)
            fail_msg("seed %u: %d weights are packed where they lie, of type %s", seed,
                     (int)count_placed(engine[1]), shoal_dtype_name(engine[1]->module.dtype));
        copy_weights(engine);
        compare_logits(engine, &draws, false);
        assert_int_equal(count_placed(engine[1]), 0);
        for (int32_t e = 0; e < 2; e++)
            shoal_engine_destroy(engine[e]);
        shoal_model_destroy(model);
    }
    printf("seeds %u to %u\n", SEED, SEED + 11);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void refused(shoal_status got, const char *sentence)
{
    if (got != SHOAL_EINVAL || !strstr(shoal_error_message(), sentence))
        fail_msg("expected \"%s\", got %s: %s", sentence, shoal_status_name(got),
                 shoal_error_message());
}

static void test_refusals(void **state)
{
    (void)state;
    uint64_t seed = 1;
    shoal_model *model = random_gpt(&seed);
    shoal_engine *engine = open_engine(model, "", 1, "cpu");
    shoal_generator *generator;
    const int32_t tokens[8] = {0}, alien = 1000;
    refused(shoal_generator_create(&(shoal_generator_args){0}, &generator), "not both");
    refused(shoal_generator_create(&(shoal_generator_args){.engine = engine}, &generator),
            "needs max_length");
    ok(shoal_generator_create(
        &(shoal_generator_args){.engine = engine, .sequences = 2, .max_length = 10}, &generator));
    shoal_generator_input inputs[2] = {{0, tokens, 8}, {0, tokens, 1}};
    refused(shoal_generator_forward(generator, inputs, 2, false, NULL), "twice in one call");
    ok(shoal_generator_forward(generator, inputs, 1, false, NULL));
    refused(shoal_generator_forward(generator, inputs, 1, false, NULL),
            "has 8 tokens, and 8 more exceed its maximum of 10");
    inputs[0].count = 0;
    refused(shoal_generator_forward(generator, inputs, 1, false, NULL), "give at least one");
    inputs[0] = (shoal_generator_input){2, tokens, 1};
    refused(shoal_generator_forward(generator, inputs, 1, false, NULL), "no sequence 2");
    inputs[0] = (shoal_generator_input){1, &alien, 1};
    refused(shoal_generator_forward(generator, inputs, 1, false, NULL), "vocabulary size");
    assert_int_equal(shoal_generator_length(generator, 1), 0);
    shoal_memory_info memory;
    shoal_engine_get_memory_info(engine, &memory); /* generation alone needs no tape for batches */
    assert_int_equal(memory.activations_bytes, 0);
    refused(shoal_generator_truncate(generator, 0, 9), "cannot be truncated to 9");
    ok(shoal_generator_truncate(generator, 0, 7));
    engine->step.applied_steps++;
    inputs[0] = (shoal_generator_input){0, tokens, 1};
    refused(shoal_generator_forward(generator, inputs, 1, false, NULL), "older weights");
    shoal_generator_destroy(generator);
    shoal_engine_destroy(engine);
    shoal_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_packed_in_place),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
