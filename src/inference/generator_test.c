/* Generation against the training forward pass: the same distribution for the next token, at every
 * position, before and after the context was full. */
#include "base/test_cmocka.h"
#include "inference/inference.h"
#include "shoal/engine.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T = 16, SAMPLES = 8, GENERATED = 45 };
/* Rounding differs between the two ways: logits of a few units, sums of 32 and 128 products. */
#define TOLERANCE 5e-6

static const char text[] =
    "she sells sea shells by the sea shore; the shells she sells are sea shells";
static char folder[64];
static double worst; /* of all comparisons */

struct trained {
    shoal_model *model;
    shoal_engine *engine;
    shoal_tokenizer *tokenizer;
    int32_t vocab;
    int32_t ids[sizeof text];
    int64_t count;
    int32_t tokens[SAMPLES * T], targets[SAMPLES * T];
};

/* ---- a checkpoint as `shoal pretrain` writes it ---------------------------------------------- */

static shoal_status next_batch(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct trained *trained = user;
    for (int64_t b = 0; b < SAMPLES; b++)
        for (int64_t t = 0; t < T; t++) {
            const int64_t at = (step * 37 + b * 11 + micro) % (trained->count - T - 1) + t;
            trained->tokens[b * T + t] = trained->ids[at];
            trained->targets[b * T + t] = trained->ids[at + 1];
        }
    batch->data[0] = trained->tokens;
    batch->data[1] = trained->targets;
    return SHOAL_OK;
}

static void make_model(struct trained *trained, const shoal_gpt_config *shape)
{
    shoal_gpt_config config = *shape;
    ok(shoal_tokenizer_create("char", text, strlen(text), &trained->tokenizer));
    ok(shoal_tokenizer_encode(trained->tokenizer, text, strlen(text), trained->ids, sizeof text,
                              &trained->count));
    trained->vocab = shoal_tokenizer_vocab_size(trained->tokenizer);
    config.num_layers = 2;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.seq_length = T;
    config.vocab_size = trained->vocab;
    ok(shoal_gpt_create(&config, &trained->model));
}

static void train_and_save(struct trained *trained, const shoal_gpt_config *shape, bool bf16)
{
    char config[512], client[4096], *model_json;
    memset(trained, 0, sizeof *trained);
    make_model(trained, shape);
    snprintf(config, sizeof config,
             "{\"train_batch_size\":%d,\"steps_per_print\":1000000,\"optimizer\":{\"type\":"
             "\"AdamW\",\"params\":{\"lr\":0.01}},\"bf16\":{\"enabled\":%s}}",
             SAMPLES, bf16 ? "true" : "false");
    const shoal_engine_args args = {.model = trained->model, .config_text = config, .threads = 1};
    ok(shoal_engine_create(&args, &trained->engine));
    for (int32_t i = 0; i < 25; i++)
        ok(shoal_engine_train_batch(trained->engine, next_batch, trained, NULL));
    ok(shoal_model_config_to_json(shoal_model_get_config(trained->model), &model_json));
    snprintf(client, sizeof client, "{\"model\":%s,\"tokenizer\":%s}", model_json,
             shoal_tokenizer_json(trained->tokenizer));
    free(model_json);
    ok(shoal_engine_save_checkpoint(trained->engine, folder, NULL, client));
}

static void release(struct trained *trained)
{
    shoal_engine_destroy(trained->engine);
    shoal_model_destroy(trained->model);
    shoal_tokenizer_destroy(trained->tokenizer);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/shoal-generate-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- what the training forward pass says ----------------------------------------------------- */

struct question {
    struct trained *trained;
    int32_t position, token;
};

static shoal_status ask(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct question *question = user;
    (void)step;
    (void)micro;
    for (int32_t t = 0; t < SAMPLES * T; t++)
        question->trained->targets[t] = t == question->position ? question->token : -1;
    batch->data[0] = question->trained->tokens;
    batch->data[1] = question->trained->targets;
    return SHOAL_OK;
}

/* -ln p(token) after `count` tokens of context, for every token. */
static void loss_of_each(struct trained *trained, const int32_t *context, int64_t count,
                         double *loss)
{
    memset(trained->tokens, 0, sizeof trained->tokens);
    memcpy(trained->tokens, context, (size_t)count * sizeof *context);
    for (int32_t v = 0; v < trained->vocab; v++) {
        struct question question = {trained, (int32_t)count - 1, v};
        ok(shoal_engine_eval_batch(trained->engine, ask, &question, 1, &loss[v]));
    }
}

static shoal_generator *open_generator(const char *accelerator)
{
    shoal_generator *generator;
    ok(shoal_generator_create(
        &(shoal_generator_args){.load = folder, .threads = 1, .accelerator = accelerator},
        &generator));
    return generator;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static float logits[512];

static void append(shoal_generator *generator, const int32_t *tokens, int64_t count)
{
    const shoal_generator_input input = {.tokens = tokens, .count = count};
    ok(shoal_generator_forward(generator, &input, 1, false, logits));
}

static void compare_logits(struct trained *trained, shoal_generator *generator, int64_t count)
{
    double loss[128], total = 0;
    assert_int_equal(shoal_generator_length(generator, 0), count);
    loss_of_each(trained, trained->ids, count, loss);
    /* training knows no difference between tokens and the rows that pad the table */
    for (int64_t v = 0; v < shoal_generator_vocab_size(generator); v++)
        total += exp((double)logits[v]);
    for (int32_t v = 0; v < trained->vocab; v++) {
        const double got = log(total) - (double)logits[v];
        worst = fmax(worst, fabs(got - loss[v]));
        if (!(fabs(got - loss[v]) < TOLERANCE))
            fail_msg("after %lld tokens: -ln p(%d) is %.9f, the forward pass has %.9f",
                     (long long)count, (int)v, got, loss[v]);
    }
}

/* One token at a time, all at once, and in pieces: the cache makes no difference. */
static void check_distributions(const shoal_gpt_config *shape, const char *accelerator)
{
    struct trained trained;
    train_and_save(&trained, shape, false);
    shoal_generator *generator = open_generator(accelerator);
    assert_int_equal(shoal_generator_step(generator), 25);
    for (int64_t n = 1; n <= T; n++) {
        append(generator, trained.ids + n - 1, 1);
        compare_logits(&trained, generator, n);
    }
    for (int64_t n = 1; n <= T; n += 5) {
        ok(shoal_generator_truncate(generator, 0, 0));
        append(generator, trained.ids, n);
        if (n > 1 && n + 3 <= T)
            append(generator, trained.ids + n, 3);
        compare_logits(&trained, generator, shoal_generator_length(generator, 0));
    }
    shoal_generator_destroy(generator);
    release(&trained);
}

static shoal_gpt_config plain_shape(void)
{
    shoal_gpt_config shape;
    shoal_gpt_config_defaults(&shape);
    return shape; /* wte padded to 128 rows; dropout 0.1, which generation must ignore */
}

static void test_distributions(void **state)
{
    (void)state;
    shoal_gpt_config shape = plain_shape();
    check_distributions(&shape, "cpu");
    check_distributions(&shape, "sim");
    shape.untie_embeddings = shape.openai_gelu = 1;
    shape.make_vocab_size_divisible_by = 1;
    shape.ffn_hidden_size = 80;
    check_distributions(&shape, "cpu");
    shape.add_bias_linear = 0;
    check_distributions(&shape, "cpu");
    printf("-ln p differs by at most %.2g\n", worst);
}

struct written {
    int32_t token[GENERATED + 64];
    int64_t count, stop_after;
};

static shoal_status take(void *user, int32_t token)
{
    struct written *written = user;
    written->token[written->count++] = token;
    return written->stop_after && written->count == written->stop_after ? SHOAL_EINTERRUPTED
                                                                        : SHOAL_OK;
}

/* Beyond T tokens the context begins again with its last half. */
static void test_greedy_over_the_end(void **state)
{
    (void)state;
    for (int32_t bf16 = 0; bf16 < 2; bf16++) {
        struct trained trained;
        struct written written = {0};
        double loss[128];
        const shoal_gpt_config shape = plain_shape();
        train_and_save(&trained, &shape, bf16);
        shoal_generator *generator = open_generator(NULL);
        const shoal_sample_args args = {
            .prompt = trained.ids, .prompt_count = 5, .num_tokens = GENERATED, .top_k = 1};
        ok(shoal_generate(generator, &args, take, &written));
        assert_int_equal(written.count, GENERATED);
        int32_t line[GENERATED + 5];
        memcpy(line, trained.ids, 5 * sizeof *line);
        memcpy(line + 5, written.token, GENERATED * sizeof *line);
        int64_t begin = 0; /* of the context */
        for (int64_t at = 5; at < 5 + GENERATED && !bf16; at++) {
            if (at - begin > T)
                begin = at - T / 2;
            loss_of_each(&trained, line + begin, at - begin, loss);
            for (int32_t v = 0; v < trained.vocab; v++)
                if (loss[v] < loss[line[at]] - TOLERANCE)
                    fail_msg("token %lld is %d, but %d is likelier: %.9f against %.9f nats",
                             (long long)at, (int)line[at], (int)v, loss[v], loss[line[at]]);
        }
        shoal_generator_destroy(generator);
        release(&trained);
    }
}

/* The same seed gives the same text, another one another; a prompt longer than the context works.
 */
static void test_seeds(void **state)
{
    (void)state;
    struct trained trained;
    const shoal_gpt_config shape = plain_shape();
    train_and_save(&trained, &shape, false);
    shoal_generator *generator = open_generator(NULL);
    shoal_sample_args args = {.prompt = trained.ids,
                              .prompt_count = trained.count,
                              .num_tokens = GENERATED,
                              .temperature = 1.0,
                              .seed = 3};
    struct written a = {0}, b = {0}, c = {0};
    ok(shoal_generate(generator, &args, take, &a));
    ok(shoal_generate(generator, &args, take, &b));
    args.seed = 4;
    ok(shoal_generate(generator, &args, take, &c));
    assert_memory_equal(a.token, b.token, sizeof a.token);
    assert_memory_not_equal(a.token, c.token, sizeof a.token);
    for (int64_t i = 0; i < GENERATED; i++)
        assert_in_range(a.token[i], 0, trained.vocab - 1);
    args.num_tokens = 0;
    c.count = 0;
    ok(shoal_generate(generator, &args, take, &c));
    assert_int_equal(c.count, 0);
    struct written stopped = {.stop_after = 3};
    args.num_tokens = GENERATED;
    assert_int_equal(shoal_generate(generator, &args, take, &stopped), SHOAL_EINTERRUPTED);
    assert_int_equal(stopped.count, 3);
    shoal_generator_destroy(generator);
    release(&trained);
}

/* ---- a model whose logits are the same after every text ---- */

enum { KINDS = 6, HIDDEN = 4, DRAWS = 10000 };

struct constant {
    shoal_model *model;
    shoal_engine *engine;
    shoal_generator *generator;
};

/* The last norm gives (1, 0, ...), which the head makes to `row`. */
static void open_constant(const float row[KINDS], struct constant *constant)
{
    static const float zeros[HIDDEN], first[HIDDEN] = {1};
    float head[KINDS * HIDDEN] = {0};
    shoal_gpt_config config = plain_shape();
    config.num_layers = config.num_attention_heads = 1;
    config.hidden_size = HIDDEN;
    config.seq_length = 8;
    config.vocab_size = KINDS;
    config.make_vocab_size_divisible_by = config.untie_embeddings = 1;
    for (int32_t v = 0; v < KINDS; v++)
        head[v * HIDDEN] = row[v];
    ok(shoal_gpt_create(&config, &constant->model));
    ok(shoal_engine_create(
        &(shoal_engine_args){.model = constant->model,
                             .config_text = "{\"train_micro_batch_size_per_gpu\":1}",
                             .threads = 1,
                             .inference = 1},
        &constant->engine));
    ok(shoal_engine_set_param(constant->engine, "transformer.ln_f.weight", zeros));
    ok(shoal_engine_set_param(constant->engine, "transformer.ln_f.bias", first));
    ok(shoal_engine_set_param(constant->engine, "lm_head.weight", head));
    ok(shoal_generator_create(&(shoal_generator_args){.engine = constant->engine, .max_length = 8},
                              &constant->generator));
}

static void close_constant(struct constant *constant)
{
    shoal_generator_destroy(constant->generator);
    shoal_engine_destroy(constant->engine);
    shoal_model_destroy(constant->model);
}

static shoal_status count_token(void *user, int32_t token)
{
    int64_t *seen = user;
    assert_in_range(token, 0, KINDS - 1);
    seen[token]++;
    return SHOAL_OK;
}

/* Frequencies of draws are the probabilities, within 5 standard deviations. */
static void test_draws(void **state)
{
    static const float row[KINDS] = {0.5f, -1.0f, 2.0f, 2.0f, 0.0f, -4.0f};
    static const int64_t top_k[] = {0, 3, 2, 6, 100};
    static const int32_t prompt[] = {0};
    struct constant constant;
    (void)state;
    open_constant(row, &constant);
    for (int32_t k = 0; k < 5; k++) {
        const double temperature = 0.7 + 0.3 * k;
        int64_t seen[KINDS] = {0};
        double weight[KINDS], total = 0;
        for (int32_t v = 0; v < KINDS; v++) {
            int64_t likelier = 0;
            for (int32_t w = 0; w < KINDS; w++)
                likelier += row[w] > row[v];
            const bool kept = top_k[k] == 0 || likelier < top_k[k];
            weight[v] = kept ? exp((double)row[v] / temperature) : 0;
            total += weight[v];
        }
        const shoal_sample_args args = {.prompt = prompt,
                                        .prompt_count = 1,
                                        .num_tokens = DRAWS,
                                        .temperature = temperature,
                                        .top_k = top_k[k],
                                        .seed = 11};
        ok(shoal_generate(constant.generator, &args, count_token, seen));
        for (int32_t v = 0; v < KINDS; v++) {
            const double p = weight[v] / total, sigma = sqrt(DRAWS * p * (1 - p));
            if (fabs((double)seen[v] - DRAWS * p) > 5 * sigma)
                fail_msg("top-k %lld, seed 11: token %d drawn %lld times, expected %.0f +- %.0f",
                         (long long)top_k[k], (int)v, (long long)seen[v], DRAWS * p, sigma);
        }
    }
    close_constant(&constant);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(shoal_status got, shoal_status expected, const char *sentence)
{
    if (got != expected || !strstr(shoal_error_message(), sentence))
        fail_msg("expected %s with \"%s\", got %s: %s", shoal_status_name(expected), sentence,
                 shoal_status_name(got), shoal_error_message());
}

/* A file of the checkpoint's folder. */
static void put_file(const char *name, const char *content)
{
    char path[160], tag[32];
    snprintf(path, sizeof path, "%s/latest", folder);
    FILE *file = fopen(path, "r");
    assert_true(file && fscanf(file, "%31s", tag) == 1);
    fclose(file);
    snprintf(path, sizeof path, "%s/%s/%s", folder, tag, name);
    file = fopen(path, "w");
    assert_true(file && fputs(content, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The generator ends its text at `expected` tokens. */
static void expect_end(const shoal_sample_args *args, int32_t end_count, int64_t expected)
{
    struct written written = {0};
    shoal_sample_args own = *args;
    shoal_generator *generator = open_generator(NULL);
    own.end_tokens = shoal_generator_end_tokens(generator, &own.end_count);
    assert_int_equal(own.end_count, end_count);
    ok(shoal_generate(generator, &own, take, &written));
    assert_int_equal(written.count, expected);
    shoal_generator_destroy(generator);
}

/* A text ends behind a token of generation_config.json, else of config.json. */
static void test_end_tokens(void **state)
{
    (void)state;
    struct trained trained;
    struct written all = {0};
    char content[128];
    int64_t first = 0;
    const shoal_gpt_config shape = plain_shape();
    train_and_save(&trained, &shape, false);
    const shoal_sample_args args = {.prompt = trained.ids,
                                    .prompt_count = 4,
                                    .num_tokens = GENERATED,
                                    .temperature = 1.0,
                                    .seed = 3};
    shoal_generator *generator = open_generator(NULL);
    ok(shoal_generate(generator, &args, take, &all));
    shoal_generator_destroy(generator);
    expect_end(&args, 0, GENERATED);
    const int32_t end = all.token[GENERATED / 2];
    while (all.token[first] != end)
        first++;
    snprintf(content, sizeof content, "{\"eos_token_id\": %d}", (int)end);
    put_file("config.json", content);
    expect_end(&args, 1, first + 1);
    put_file("generation_config.json", "{}");
    expect_end(&args, 1, first + 1);
    put_file("generation_config.json", "{\"eos_token_id\": [1000000, -1]}");
    expect_end(&args, 1, GENERATED);
    snprintf(content, sizeof content, "{\"eos_token_id\": [%d, %d]}", (int)trained.vocab, (int)end);
    put_file("generation_config.json", content);
    expect_end(&args, 2, first + 1);
    put_file("generation_config.json", "{\"eos_token_id\": \"</s>\"}");
    refused(
        shoal_generator_create(&(shoal_generator_args){.load = folder, .threads = 1}, &generator),
        SHOAL_ECONFIG, "generation_config.json: `eos_token_id` should be");
    release(&trained);
}

/* Short of memory is an error, not another way to draw. */
static void test_short_memory(void **state)
{
    (void)state;
    static const float row[KINDS] = {1, 3, 2};
    static const int32_t prompt[] = {0};
    const shoal_sample_args args = {.prompt = prompt,
                                    .prompt_count = 1,
                                    .num_tokens = 1,
                                    .temperature = 1,
                                    .top_k = 2,
                                    .seed = 11};
    struct constant constant;
    bool drew = false;
    open_constant(row, &constant);
    for (int32_t skip = 0; !drew; skip++) {
        int64_t seen[KINDS] = {0};
        char spec[32];
        snprintf(spec, sizeof spec, "alloc:%d", (int)skip);
        assert_true(shoali_fault_arm(spec));
        const shoal_status status = shoal_generate(constant.generator, &args, count_token, seen);
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, SHOAL_ENOMEM); /* at the latest when it sorts */
        assert_int_equal(seen[0] + seen[1] + seen[2], 0);
        drew = strstr(shoal_error_message(), "the logits of top-k") != NULL;
    }
    close_constant(&constant);
}

/* What has no order is no likeliest token, and a draw from it is none. */
static void test_logits_not_finite(void **state)
{
    (void)state;
    static const float rows[][KINDS] = {{NAN, 3, 2}, {1, 3, NAN}, {1, INFINITY, 2}};
    static const int32_t prompt[] = {0};
    struct constant constant;
    for (int row = 0; row < 3; row++) {
        open_constant(rows[row], &constant);
        for (int top_k = 0; top_k <= 2; top_k++) {
            int64_t seen[KINDS] = {0};
            const shoal_sample_args args = {.prompt = prompt,
                                            .prompt_count = 1,
                                            .num_tokens = 1,
                                            .temperature = 1,
                                            .top_k = top_k,
                                            .seed = 11};
            refused(shoal_generate(constant.generator, &args, count_token, seen), SHOAL_ENUMERIC,
                    "logits have NaN or infinity");
            assert_int_equal(seen[0] + seen[1] + seen[2], 0);
        }
        close_constant(&constant);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct trained trained;
    struct written written = {0};
    shoal_generator *generator = NULL;
    const shoal_gpt_config shape = plain_shape();
    shoal_generator_args open = {.load = "/nowhere", .threads = 1};
    refused(shoal_generator_create(&open, &generator), SHOAL_ENOENT, "/nowhere");
    train_and_save(&trained, &shape, false);
    open.load = folder;
    open.tag = "global_step1";
    refused(shoal_generator_create(&open, &generator), SHOAL_ENOENT, "global_step1");
    ok(shoal_engine_save_checkpoint(trained.engine, folder, "bare", NULL));
    open.tag = "bare";
    refused(shoal_generator_create(&open, &generator), SHOAL_EINVAL, "only checkpoints written by");
    ok(shoal_engine_save_checkpoint(trained.engine, folder, "odd",
                                    "{\"model\":{\"num-layers\":\"x\"},\"tokenizer\":{}}"));
    open.tag = "odd";
    refused(shoal_generator_create(&open, &generator), SHOAL_ECORRUPT, "num-layers");
    assert_null(generator);
    open.tag = "global_step25";
    ok(shoal_generator_create(&open, &generator));

    const int32_t alien = trained.vocab;
    shoal_sample_args args = {.prompt = trained.ids, .num_tokens = 1, .temperature = 1};
    refused(shoal_generate(generator, &args, take, &written), SHOAL_EINVAL, "prompt is empty");
    args.prompt_count = 3;
    args.temperature = -0.5;
    refused(shoal_generate(generator, &args, take, &written), SHOAL_EINVAL,
            "--temperature is -0.5");
    args.temperature = (double)NAN;
    refused(shoal_generate(generator, &args, take, &written), SHOAL_EINVAL, "--temperature is");
    args.temperature = 1;
    args.top_k = -1;
    refused(shoal_generate(generator, &args, take, &written), SHOAL_EINVAL, "--top-k is -1");
    args.top_k = 0;
    args.num_tokens = -1;
    refused(shoal_generate(generator, &args, take, &written), SHOAL_EINVAL, "--num-tokens is -1");
    args.num_tokens = 1;
    args.prompt = &alien;
    args.prompt_count = 1;
    refused(shoal_generate(generator, &args, take, &written), SHOAL_EINVAL, "prompt token 0 is");
    assert_int_equal(written.count, 0);
    args.prompt = trained.ids; /* and it still works */
    ok(shoal_generate(generator, &args, take, &written));
    assert_int_equal(written.count, 1);
    shoal_generator_destroy(generator);
    release(&trained);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_distributions, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_greedy_over_the_end, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_seeds, make_folder, remove_folder),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_short_memory),
        cmocka_unit_test(test_logits_not_finite),
        cmocka_unit_test_setup_teardown(test_end_tokens, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refusals, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
