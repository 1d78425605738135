/* Masked samples: what holds for each of them, layouts, parts, random tokens, and mistakes. What
 * Megatron would draw is parity.masked's. */
#include "data/indexed/test_numbered.h"
#include "data/masked.h"
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 120, T = 48, PAD = 0, CLS = 2, SEP = 3, MASK = 4, INSIDE = 110 };

static shoal_tokenizer *make_tokenizer(const char *mask)
{
    shoal_tokenizer *tokenizer = NULL;
    FILE *file = fopen(path_of("vocab.txt"), "w");
    assert_non_null(file);
    fprintf(file, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n%s\n", mask);
    for (int i = 5; i < VOCAB; i++)
        fprintf(file, "%sw%d\n", i == INSIDE ? "##" : "", i);
    assert_int_equal(fclose(file), 0);
    ok(shoal_tokenizer_load(&(shoal_tokenizer_args){.type = "BertWordPieceLowerCase",
                                                    .vocab_file = path_of("vocab.txt")},
                            &tokenizer));
    return tokenizer;
}

/* Document d has d % 7 sentences; of its tokens two are 5 + d % 100, and the third goes on a
 * word. */
static void write_documents(const char *name, int32_t count)
{
    shoal_index_writer *writer = NULL;
    int32_t tokens[40];
    ok(shoal_index_writer_create(path_of(name), VOCAB, &writer));
    for (int32_t d = 0; d < count; d++) {
        for (int i = 0; i < 40; i++)
            tokens[i] = i % 3 == 2 ? INSIDE : 5 + d % 100;
        for (int32_t s = 0; s < d % 7; s++)
            ok(shoal_index_writer_add(writer, tokens, 1 + (d * 31 + s * 7) % 39));
        ok(shoal_index_writer_end_document(writer));
    }
    ok(shoal_index_writer_finish(writer));
    shoal_index_writer_destroy(writer);
}

static shoal_status open_masked(const char *const *paths, int32_t count, const char *split,
                                const shoal_tokenizer *tokenizer, shoal_dataset **dataset)
{
    return shoal_dataset_create(&(shoal_dataset_args){.paths = paths,
                                                      .path_count = count,
                                                      .split = split,
                                                      .use_tokenizer = tokenizer,
                                                      .vocab_size = tokenizer ? 0 : VOCAB,
                                                      .split_documents = true},
                                dataset);
}

struct sample {
    int32_t tokens[T], types[T], targets[T], key_count, is_random;
};

static void get(shoal_loader *loader, int64_t number, struct sample *sample)
{
    int32_t *arrays[] = {sample->tokens, sample->types, sample->targets, &sample->key_count,
                         &sample->is_random};
    ok(shoal_loader_get_arrays(loader, number, 0, arrays));
}

static shoal_loader_args loader_args(const shoal_dataset *dataset, shoal_split split)
{
    return (shoal_loader_args){.dataset = dataset,
                               .split = split,
                               .kind = SHOAL_SAMPLE_MASKED_PAIRS,
                               .seq_length = T,
                               .micro_batch = 1,
                               .micro_batches = 1,
                               .seed = SEED,
                               .sample_count = 2000};
}

/* ---- each sample ----------------------------------------------------------------------------- */

/* The token at a place before any was hidden. */
static int32_t original(const struct sample *sample, int64_t t)
{
    return sample->targets[t] >= 0 ? sample->targets[t] : sample->tokens[t];
}

static void check_sample(const struct sample *sample, bool pairs, double mask_prob)
{
    int64_t separators = 0, hidden = 0;
    const int64_t count = sample->key_count;
    assert_in_range(count, 3, T);
    assert_int_equal(original(sample, 0), CLS);
    assert_int_equal(original(sample, count - 1), SEP);
    for (int64_t t = 0; t < T; t++) {
        const bool counts = sample->targets[t] >= 0;
        assert_int_equal(sample->types[t], t < count && separators == 1);
        if (t >= count)
            assert_true(sample->tokens[t] == PAD && !counts);
        else if (t > 0)
            assert_int_not_equal(original(sample, t), CLS);
        if (t < count && original(sample, t) == SEP) {
            assert_false(counts);
            separators++;
        }
        hidden += counts;
    }
    assert_int_equal(separators, pairs ? 2 : 1);
    assert_true((double)hidden <= fmax(1, rint(mask_prob * (double)count)));
    assert_in_range(sample->is_random, 0, pairs ? 1 : 0);
}

static void test_samples(void **state)
{
    enum { COUNT = 2000 };
    (void)state;
    shoal_tokenizer *tokenizer = make_tokenizer("[MASK]");
    write_documents("d", 500);
    const char *path = path_of("d");
    shoal_dataset *dataset = NULL;
    ok(open_masked(&path, 1, "1", tokenizer, &dataset));
    for (int pairs = 0; pairs < 2; pairs++) {
        shoal_loader_args args = loader_args(dataset, SHOAL_SPLIT_TRAIN);
        int64_t tokens = 0, hidden = 0, masked = 0, kept = 0, swapped = 0, shorter = 0;
        args.kind = pairs ? SHOAL_SAMPLE_MASKED_PAIRS : SHOAL_SAMPLE_MASKED;
        shoal_loader *loader = open_loader(&args);
        for (int64_t i = 0; i < COUNT; i++) {
            struct sample sample;
            get(loader, i, &sample);
            check_sample(&sample, pairs, 0.15);
            tokens += sample.key_count;
            swapped += sample.is_random;
            shorter += sample.key_count < T / 2;
            for (int64_t t = 0; t < T; t++) {
                hidden += sample.targets[t] >= 0;
                masked += sample.targets[t] >= 0 && sample.tokens[t] == MASK;
                kept += sample.targets[t] >= 0 && sample.tokens[t] == sample.targets[t];
            }
        }
        /* shares of draws: six standard deviations of a binomial with so many are below 3 % */
        assert_true((double)hidden > 0.12 * (double)tokens &&
                    (double)hidden < 0.16 * (double)tokens);
        assert_in_range(100 * masked / hidden, 77, 83);
        assert_in_range(100 * kept / hidden, 8, 13);
        if (pairs)
            assert_in_range(100 * swapped / COUNT, 43, 57);
        assert_true(shorter > 0);
        shoal_loader_destroy(loader);
    }
    shoal_dataset_destroy(dataset);
    shoal_tokenizer_destroy(tokenizer);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* A step of one micro-batch of eight, of four of two, and through the prefetcher: the same. */
static void test_layouts(void **state)
{
    enum { STEPS = 6, BATCH = 8 };
    static int32_t wanted[5][BATCH * T], got[5][BATCH * T];
    int32_t *all[5], *part[5];
    (void)state;
    shoal_tokenizer *tokenizer = make_tokenizer("[MASK]");
    write_documents("d", 200);
    write_documents("e", 90);
    char first[256], second[256];
    snprintf(first, sizeof first, "%s/d", folder);
    snprintf(second, sizeof second, "%s/e", folder);
    const char *paths[] = {"0.3", first, "0.7", second};
    shoal_dataset *dataset = NULL;
    ok(open_masked(paths, 4, NULL, tokenizer, &dataset));
    shoal_loader_args args = loader_args(dataset, SHOAL_SPLIT_TRAIN);
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        args.order = cyclic ? SHOAL_ORDER_CYCLIC : SHOAL_ORDER_SINGLE;
        args.micro_batch = BATCH;
        args.micro_batches = 1;
        shoal_loader *whole = open_loader(&args);
        args.micro_batch = 2;
        args.micro_batches = 4;
        shoal_loader *parts = open_loader(&args);
        ok(shoal_loader_prefetch(parts, &(shoal_prefetch_args){.first = 1, .count = 2}));
        for (int64_t step = 0; step < STEPS; step++) {
            for (int i = 0; i < 5; i++)
                all[i] = wanted[i];
            ok(shoal_loader_get_arrays(whole, step, 0, all));
            for (int64_t m = 0; m < 4; m++) {
                for (int i = 0; i < 5; i++)
                    part[i] = got[i] + m * 2 * (i < 3 ? T : 1);
                ok(shoal_loader_get_arrays(parts, step, m, part));
            }
            for (int i = 0; i < 5; i++)
                assert_memory_equal(wanted[i], got[i], BATCH * (i < 3 ? T : 1) * sizeof(int32_t));
        }
        assert_true(shoal_loader_host_bytes(parts) > 4 * 2 * (3 * T + 2) * 4);
        shoal_loader_destroy(whole);
        shoal_loader_destroy(parts);
    }
    shoal_dataset_destroy(dataset);
    shoal_tokenizer_destroy(tokenizer);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Parts are ranges of documents: none is in two. A sequential pass ends with samples of nothing. */
static void test_parts(void **state)
{
    int seen[SHOAL_SPLIT_COUNT][100] = {{0}};
    (void)state;
    shoal_tokenizer *tokenizer = make_tokenizer("[MASK]");
    write_documents("d", 100);
    const char *path = path_of("d");
    shoal_dataset *dataset = NULL;
    ok(open_masked(&path, 1, "60,30,10", tokenizer, &dataset));
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        shoal_loader_args args = loader_args(dataset, (shoal_split)p);
        struct sample sample;
        args.sequential = true;
        shoal_loader *loader = open_loader(&args);
        const int64_t steps = shoal_loader_step_count(loader);
        assert_true(steps > 5 && steps < 500);
        for (int64_t i = 0; i < steps; i++) {
            get(loader, i, &sample);
            check_sample(&sample, true, 0.15);
            const int64_t at = original(&sample, 1) == INSIDE ? 2 : 1;
            seen[p][original(&sample, at) - 5] = 1;
        }
        get(loader, steps, &sample);
        assert_true(sample.key_count == 1 && sample.is_random == -1 && sample.targets[0] == -1);
        shoal_loader_destroy(loader);
    }
    for (int d = 0; d < 100; d++)
        for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
            assert_int_equal(seen[p][d], d % 7 >= 2 && (d < 60 ? 0 : d < 90 ? 1 : 2) == p);
    shoal_dataset_destroy(dataset);
    shoal_tokenizer_destroy(tokenizer);
}

/* ---- random tokens --------------------------------------------------------------------------- */

static void test_mock(void **state)
{
    shoal_dataset *dataset = NULL;
    struct sample one, two;
    int64_t different = 0;
    (void)state;
    ok(shoal_dataset_create(
        &(shoal_dataset_args){.mock = true, .mock_vocab_size = VOCAB, .mock_token_count = 5000},
        &dataset));
    shoal_loader_args args = loader_args(dataset, SHOAL_SPLIT_TRAIN);
    shoal_loader *loader = open_loader(&args), *again = open_loader(&args);
    for (int64_t i = 0; i < 300; i++) {
        get(loader, i, &one);
        get(again, 299 - i, &two);
        different += memcmp(&one, &two, sizeof one) != 0;
        get(again, i, &two);
        assert_memory_equal(&one, &two, sizeof one);
        assert_int_equal(one.key_count, T);
        assert_int_equal(one.tokens[0], 1);
        assert_int_equal(one.tokens[T - 1], 2);
    }
    assert_true(different > 290);
    shoal_loader_destroy(loader);
    shoal_loader_destroy(again);
    shoal_dataset_destroy(dataset);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void refuses(const shoal_loader_args *args, const char *sentence)
{
    shoal_loader *loader = NULL;
    const shoal_status status = shoal_loader_create(args, &loader);
    if (status != SHOAL_EINVAL || !strstr(shoal_error_message(), sentence))
        fail_msg("\"%s\" expected, got %d: %s", sentence, (int)status, shoal_error_message());
    assert_null(loader);
}

static void test_mistakes(void **state)
{
    int32_t tokens[T], targets[T];
    shoal_dataset *dataset = NULL;
    (void)state;
    shoal_tokenizer *tokenizer = make_tokenizer("[MASK]"), *other = make_tokenizer("mask");
    write_documents("d", 40);
    write_numbered("single", (const int32_t[]){3, 4}, 2); /* one sentence each */
    char path[256], single[256], text[256];
    snprintf(path, sizeof path, "%s/d", folder);
    snprintf(single, sizeof single, "%s/single", folder);
    snprintf(text, sizeof text, "%s/text", folder);
    const char *in = path;
    ok(open_masked(&in, 1, "1", tokenizer, &dataset));
    shoal_loader_args args = loader_args(dataset, SHOAL_SPLIT_TRAIN);
    args.seq_length = 4;
    refuses(&args, "a sequence length of 4 holds no masked sample");
    args.seq_length = T;
    args.mask_prob = 1;
    refuses(&args, "--mask-prob is 1");
    args.mask_prob = 0;
    args.short_seq_prob = 1.5;
    refuses(&args, "--short-seq-prob is 1.5");
    args.short_seq_prob = 0;
    args.eod_mask_loss = true;
    refuses(&args, "--eod-mask-loss is for samples of the next token");
    args.eod_mask_loss = false;
    args.kind = (shoal_sample_kind)3;
    refuses(&args, "sample kind 3 does not exist");
    args.kind = SHOAL_SAMPLE_MASKED;
    shoal_loader *loader = open_loader(&args);
    assert_int_equal(shoal_loader_get(loader, 0, 0, tokens, targets), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "masked samples have 5 arrays"));
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);

    ok(open_masked(&in, 1, "1", NULL, &dataset));
    args.dataset = dataset;
    refuses(&args, "no .tokens.json that says which tokens are [CLS]");
    shoal_dataset_destroy(dataset);
    ok(open_masked(&in, 1, "1", other, &dataset));
    args.dataset = dataset;
    refuses(&args, "has no token [MASK]");
    shoal_dataset_destroy(dataset);
    ok(create_split(&in, 1, "1", &dataset)); /* by sequences */
    args.dataset = dataset;
    refuses(&args, "need a dataset that is split by documents");
    shoal_dataset_destroy(dataset);

    in = single;
    shoal_tokenizer *numbers = NULL;
    ok(shoali_tokenizer_copy(tokenizer, &numbers));
    ok(open_masked(&in, 1, "1", numbers, &dataset));
    args.dataset = dataset;
    args.kind = SHOAL_SAMPLE_MASKED_PAIRS;
    refuses(&args, "none of its 2 documents has 2 sentences or more");
    shoal_tokenizer_destroy(numbers);
    shoal_dataset_destroy(dataset);

    write_text("text", "some text that is longer than a sample of so many tokens", 56);
    in = text;
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &in, .path_count = 1, .split = "1"},
                            &dataset));
    args.dataset = dataset;
    refuses(&args, "shoal preprocess --split-sentences");
    shoal_dataset_destroy(dataset);
    ok(shoal_dataset_create(&(shoal_dataset_args){.mock = true, .mock_vocab_size = 4}, &dataset));
    args.dataset = dataset;
    refuses(&args, "need a vocabulary of 5 tokens");
    shoal_dataset_destroy(dataset);
    shoal_tokenizer_destroy(tokenizer);
    shoal_tokenizer_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_samples, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_layouts, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_parts, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_mock, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_mistakes, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
