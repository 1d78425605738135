/* Folders of the Hugging Face Hub against transformers: logits of a text, and 200 greedy tokens, as
 * tests/golden/make_hub_golden.py stored them. Both sides compute in fp32 from the same weights.
 *
 * Tolerances. Sums of at most 101 products, through 2 layers of 6 stages: rounding errors grow like
 * sqrt(12 * 101) 2^-24 = 2e-6 of the largest logit; 1e-5 leaves a factor of 5. In bf16 weights and
 * activations have 8 bits: 2^-8 = 4e-3 per stage, sqrt(12) times that is 1.4e-2; 0.1 leaves a
 * factor for norms that divide by small numbers. The greedy tokens were chosen to be ahead by
 * 2e-3. */
#include "base/base.h"
#include "base/test_cmocka.h"
#include "shoal/hub.h"
#include "shoal/inference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VOCAB = 97, ROWS = 24, PROMPT = 9, GREEDY = 200 };

static void path_of(const char *name, const char *file, char path[512])
{
    snprintf(path, 512, "%s/hub/%s%s%s", GOLDEN_FOLDER, name, *file ? "/" : "", file);
}

static void read_tokens(const char *name, int32_t tokens[PROMPT + GREEDY])
{
    char path[512];
    path_of(name, "tokens.txt", path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 0; i < PROMPT + GREEDY; i++)
        assert_int_equal(fscanf(file, i ? ",%d" : "%d", &tokens[i]), 1);
    fclose(file);
}

static void read_logits(const char *name, float logits[ROWS * VOCAB])
{
    char path[512];
    path_of(name, "logits.f32", path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(logits, sizeof(float), ROWS * VOCAB, file), ROWS * VOCAB);
    fclose(file);
}

static shoal_generator *open_folder(const char *folder, const char *dtype)
{
    shoal_generator *generator = NULL;
    ok(shoal_generator_create(&(shoal_generator_args){.load = folder, .threads = 1, .dtype = dtype},
                              &generator));
    assert_int_equal(shoal_generator_vocab_size(generator), VOCAB);
    assert_null(shoal_generator_tokenizer(generator));
    return generator;
}

/* The largest difference, as a part of the largest logit. */
static double distance(shoal_generator *generator, const int32_t *tokens, const float *want)
{
    static float got[ROWS * VOCAB];
    double error = 0, largest = 0;
    const shoal_generator_input input = {.tokens = tokens, .count = ROWS};
    ok(shoal_generator_forward(generator, &input, 1, true, got));
    for (int i = 0; i < ROWS * VOCAB; i++) {
        error = fmax(error, fabs((double)got[i] - (double)want[i]));
        largest = fmax(largest, fabs((double)want[i]));
        assert_false(isnan(got[i]));
    }
    return error / largest;
}

struct text {
    int32_t token[GREEDY];
    int count;
};

static shoal_status take(void *user, int32_t token)
{
    struct text *text = user;
    text->token[text->count++] = token;
    return SHOAL_OK;
}

static void compare(const char *name)
{
    char folder[512];
    int32_t tokens[PROMPT + GREEDY];
    static float logits[ROWS * VOCAB];
    struct text text = {.count = 0};
    path_of(name, "", folder);
    read_tokens(name, tokens);
    read_logits(name, logits);
    shoal_generator *generator = open_folder(folder, "fp32");
    const double error = distance(generator, tokens, logits);
    if (error > 1e-5)
        fail_msg("%s: logits are off by %.2e of the largest", name, error);
    ok(shoal_generate(
        generator,
        &(shoal_sample_args){
            .prompt = tokens, .prompt_count = PROMPT, .num_tokens = GREEDY, .top_k = 1},
        take, &text));
    assert_int_equal(text.count, GREEDY);
    for (int i = 0; i < GREEDY; i++)
        if (text.token[i] != tokens[PROMPT + i])
            fail_msg("%s: token %d is %d, not %d", name, i, (int)text.token[i],
                     (int)tokens[PROMPT + i]);
    shoal_generator_destroy(generator);
    generator = open_folder(folder, "bf16");
    const double low = distance(generator, tokens, logits);
    if (low > 0.1 || low <= error)
        fail_msg("%s: in bf16 logits are off by %.2e of the largest", name, low);
    shoal_generator_destroy(generator);
}

/* The same bits from the folder that a conversion made; the same folder from that one. */
static void convert(const char *name)
{
    char folder[512], first[64] = "/tmp/shoal-hub-XXXXXX", out[96], again[96], words[256];
    int32_t tokens[PROMPT + GREEDY];
    static float logits[ROWS * VOCAB];
    const shoal_generator_input input = {.tokens = tokens, .count = ROWS};
    path_of(name, "", folder);
    read_tokens(name, tokens);
    assert_non_null(mkdtemp(first));
    snprintf(out, sizeof out, "%s/out", first);
    snprintf(again, sizeof again, "%s/again", first);
    ok(shoal_convert(&(shoal_convert_args){.in = folder, .out = out, .dtype = "fp32"}));
    ok(shoal_convert(
        &(shoal_convert_args){.in = out, .out = again, .dtype = "fp32", .max_shard_bytes = 4000}));
    shoal_generator *generator = open_folder(folder, "fp32");
    ok(shoal_generator_forward(generator, &input, 1, true, logits));
    shoal_generator_destroy(generator);
    generator = open_folder(again, NULL);
    assert_true(distance(generator, tokens, logits) == 0);
    shoal_generator_destroy(generator);
    snprintf(words, sizeof words, "cmp %s/config.json %s/config.json && rm -r %s", out, again,
             first);
    assert_int_equal(system(words), 0);
}

static const char *const names[] = {"gpt2",  "gpt2_untied", "llama", "mistral",
                                    "qwen2", "qwen3",       "gemma", "internlm2"};

static void test_folders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        compare(names[i]);
}

static void test_converted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        convert(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
