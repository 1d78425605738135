/* Megatron's order of samples: the published vectors, what holds for every order, layouts. */
#include "data/indexed/test_numbered.h"

/* ---- vectors ---- */

struct pairs {
    int64_t pair[2 * 16];
    int count;
};

static shoal_status put(void *user, int64_t place, int64_t offset)
{
    struct pairs *pairs = user;
    pairs->pair[pairs->count++] = place;
    pairs->pair[pairs->count++] = offset;
    return SHOAL_OK;
}

/* Five sequences, samples of four tokens, seed 1234: for 4, 7 and 11 samples. */
static void test_vectors(void **state)
{
    static const int32_t lengths[] = {3, 5, 2, 4, 6};
    static const struct {
        int64_t n, epochs, separate;
        int32_t document[15];
        int64_t pair[30];
        int32_t shuffle[14];
    } cases[] = {{4, 1, 0, {4, 0, 1, 2, 3}, {0, 0, 0, 4, 1, 2, 2, 3, 4, 0}, {2, 1, 3, 0}},
                 {7,
                  2,
                  0,
                  {2, 2, 4, 1, 0, 3, 4, 0, 1, 3},
                  {0, 0, 2, 0, 2, 4, 3, 2, 4, 1, 5, 2, 6, 2, 7, 0, 8, 1, 9, 0},
                  {7, 3, 5, 1, 4, 8, 0, 2, 6}},
                 {11,
                  3,
                  1,
                  {2, 2, 4, 1, 0, 3, 4, 0, 1, 3, 0, 4, 3, 2, 1},
                  {0, 0, 2, 0, 2, 4,  3, 2,  4, 1,  5, 2,  6, 2,  7,
                   0, 8, 1, 9, 0, 10, 0, 11, 1, 11, 5, 12, 3, 14, 1},
                  {7, 3, 5, 1, 4, 8, 0, 2, 6, 13, 10, 12, 9, 11}}};
    (void)state;
    for (int c = 0; c < 3; c++) {
        const struct shoali_gpt_args args = {.sequence_count = 5,
                                             .tokens = 20,
                                             .sample_count = cases[c].n,
                                             .seq_length = 4,
                                             .seed = 1234};
        struct shoali_gpt_shape shape;
        struct shoali_mt19937 generator;
        struct pairs pairs = {0};
        int32_t document[15];
        void *shuffle = NULL;
        ok(shoali_gpt_shape(&args, &shape));
        assert_int_equal(shape.epochs, cases[c].epochs);
        assert_int_equal(shape.separate, cases[c].separate);
        shoali_mt19937_init(&generator, 1234);
        shoali_gpt_document_index(&args, &shape, &generator, document);
        assert_memory_equal(document, cases[c].document,
                            (size_t)(5 * shape.epochs) * sizeof *document);
        ok(shoali_gpt_sample_index(&args, &shape, lengths, document, put, &pairs));
        assert_int_equal(pairs.count, 2 * (shape.samples + 1));
        assert_memory_equal(pairs.pair, cases[c].pair, (size_t)pairs.count * sizeof(int64_t));
        ok(shoali_gpt_shuffle_index(&shape, &generator, &shuffle));
        assert_memory_equal(shuffle, cases[c].shuffle, (size_t)shape.samples * sizeof(int32_t));
        shoali_free(shuffle);
    }
}

static void test_blend_vectors(void **state)
{
    static const double three[] = {.3, .5, .2}, two[] = {.7, .3};
    static const int32_t wanted3[] = {1, 0, 2, 1, 0, 1, 2, 1, 0, 1, 0, 1};
    static const int32_t wanted2[] = {0, 1, 0, 0, 1, 0, 0, 1, 0, 0};
    static const int32_t torch[] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    static const int32_t numpy[] = {2, 8, 4, 9, 1, 6, 7, 3, 0, 5};
    struct shoali_mt19937 generator;
    struct shoali_blend blend;
    int32_t order[10];
    int64_t number;
    (void)state;
    ok(shoali_blend_init(&blend, three, NULL, 3));
    for (int i = 0; i < 12; i++)
        assert_int_equal(shoali_blend_next(&blend, &number), wanted3[i]);
    shoali_blend_fini(&blend);
    ok(shoali_blend_init(&blend, two, NULL, 2));
    for (int i = 0; i < 10; i++)
        assert_int_equal(shoali_blend_next(&blend, &number), wanted2[i]);
    shoali_blend_fini(&blend);
    shoali_mt19937_init(&generator, 0); /* torch.manual_seed(0); torch.randperm(10) */
    shoali_mt19937_permute(&generator, order, 10);
    assert_memory_equal(order, torch, sizeof torch);
    shoali_mt19937_init(&generator, 0); /* numpy.random.RandomState(0).permutation(10) */
    for (int32_t i = 0; i < 10; i++)
        order[i] = i;
    shoali_mt19937_shuffle_i32(&generator, order, 10);
    assert_memory_equal(order, numpy, sizeof numpy);
    assert_int_equal(shoali_blend_share(1000, 1.0 / 3, 0.005), 336);
    assert_int_equal(shoali_blend_share(1000, 1.0 / 3, 0), 334);
}

/* ---- what holds for every order ---- */

/* In an epoch each token is in one sample, but for the one that two share, and those at the end
 * that fill no sample. Targets follow the tokens within a sequence. */
static void test_epoch(void **state)
{
    enum { COUNT = 300, T = 13 };
    static int seen[COUNT * 40];
    int32_t tokens[T], targets[T];
    (void)state;
    write_many("numbered", COUNT);
    shoal_dataset *dataset = open_pair("numbered", "1");
    const int64_t total = shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN);
    shoal_loader *loader = open_loader(&(shoal_loader_args){.dataset = dataset,
                                                            .sequential = true,
                                                            .seq_length = T,
                                                            .micro_batch = 1,
                                                            .micro_batches = 1,
                                                            .seed = SEED});
    const int64_t samples = (total - 1) / T;
    assert_int_equal(shoal_loader_step_count(loader), samples);
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < samples; i++) {
        ok(shoal_loader_get(loader, i, 0, tokens, targets));
        for (int t = 0; t < T; t++) {
            assert_in_range(tokens[t], 0, total - 1);
            seen[tokens[t]]++;
            if (t + 1 < T)
                assert_int_equal(targets[t], tokens[t + 1]);
        }
    }
    int64_t once = 0;
    for (int64_t i = 0; i < total; i++) {
        assert_true(seen[i] <= 1);
        once += seen[i];
    }
    assert_int_equal(once, samples * T);
    ok(shoal_loader_get(loader, samples, 0, tokens, targets)); /* behind the end */
    for (int t = 0; t < T; t++)
        assert_int_equal(targets[t], -1);
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
}

/* Any cut of a step into micro-batches and ranks sees the same samples; so does the prefetcher. */
static void test_layouts(void **state)
{
    enum { T = 7, BATCH = 24, STEPS = 5, ALL = STEPS * BATCH * T };
    static int32_t wanted[ALL], next[ALL], got[ALL], got_next[ALL];
    static const int64_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 24};
    (void)state;
    write_many("numbered", 300);
    shoal_dataset *dataset = open_pair("numbered", "9,1");
    for (int order = 0; order < 2; order++)
        for (int s = 0; s < 8; s++)
            for (int64_t ranks = 1; ranks <= BATCH / sizes[s]; ranks++) {
                const int64_t micros = BATCH / sizes[s], per_rank = micros / ranks;
                if (micros % ranks)
                    continue;
                const shoal_loader_args args = {.dataset = dataset,
                                                .seq_length = T,
                                                .micro_batch = sizes[s],
                                                .micro_batches = micros,
                                                .seed = SEED,
                                                .sample_count = STEPS * BATCH,
                                                .order = (shoal_order)order};
                const bool first = s == 0 && ranks == 1;
                for (int64_t rank = ranks - 1; rank >= 0; rank--) {
                    shoal_loader *loader = open_loader(&args);
                    if (ranks > 1)
                        ok(shoal_loader_prefetch(
                            loader,
                            &(shoal_prefetch_args){.first = rank * per_rank, .count = per_rank}));
                    for (int64_t i = 0; i < STEPS * per_rank; i++) {
                        const int64_t step = i / per_rank, m = rank * per_rank + i % per_rank;
                        const int64_t at = (step * BATCH + m * sizes[s]) * T;
                        ok(shoal_loader_get(loader, step, m, (first ? wanted : got) + at,
                                            (first ? next : got_next) + at));
                    }
                    shoal_loader_destroy(loader);
                }
                if (first)
                    continue;
                assert_memory_equal(got, wanted, sizeof wanted);
                assert_memory_equal(got_next, next, sizeof next);
            }
    shoal_dataset_destroy(dataset);
}

/* First tokens of samples [0, count): which sample it is, when tokens are there once. */
static void first_tokens(const shoal_loader_args *args, int64_t count, int32_t *first)
{
    int32_t tokens[64], targets[64];
    shoal_loader *loader = open_loader(args);
    assert_true(args->seq_length <= 64);
    for (int64_t i = 0; i < count; i++) {
        ok(shoal_loader_get(loader, i, 0, tokens, targets));
        first[i] = tokens[0];
    }
    shoal_loader_destroy(loader);
}

/* Each epoch of "cyclic" has each sample once, and another order. */
static void test_cyclic(void **state)
{
    enum { T = 11, EPOCHS = 3 };
    static int32_t first[4000];
    static int seen[20000];
    (void)state;
    write_many("numbered", 200);
    shoal_dataset *dataset = open_pair("numbered", "1");
    const shoal_loader_args args = {.dataset = dataset,
                                    .seq_length = T,
                                    .micro_batch = 1,
                                    .micro_batches = 1,
                                    .seed = SEED,
                                    .order = SHOAL_ORDER_CYCLIC};
    const int64_t samples = (shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN) - 1) / T;
    assert_in_range(samples, 100, 1300);
    first_tokens(&args, EPOCHS * samples, first);
    memset(seen, 0, sizeof seen);
    for (int e = 0; e < EPOCHS; e++)
        for (int64_t i = 0; i < samples; i++)
            assert_int_equal(seen[first[e * samples + i]]++, e);
    assert_memory_not_equal(first, first + samples, (size_t)samples * sizeof *first);
    shoal_dataset_destroy(dataset);
}

/* A run that is made longer keeps the order that it began with, and goes on with whole passes. */
static void test_longer(void **state)
{
    enum { T = 11 };
    static int32_t before[2000], after[4000];
    static int seen[20000];
    const int64_t *made;
    (void)state;
    write_many("numbered", 200);
    shoal_dataset *dataset = open_pair("numbered", "1");
    const int64_t epoch = (shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN) - 1) / T;
    assert_in_range(epoch, 100, 600);
    shoal_loader_args args = {.dataset = dataset,
                              .seq_length = T,
                              .micro_batch = 1,
                              .micro_batches = 1,
                              .seed = SEED,
                              .sample_count = epoch / 2};
    first_tokens(&args, epoch, before);
    const int64_t begun[] = {epoch / 2, 0};
    args.order_samples = begun;
    args.order_count = 1;
    const int64_t wanted[] = {epoch / 4, epoch - 1, epoch + 1, 2 * epoch};
    for (int w = 0; w < 4; w++) {
        args.sample_count = wanted[w];
        shoal_loader *loader = open_loader(&args);
        const int32_t parts = shoal_loader_order(loader, &made);
        assert_int_equal(parts, w < 2 ? 1 : 2);
        assert_int_equal(made[0], epoch / 2);
        assert_true(parts == 1 || made[1] == wanted[w] - epoch);
        shoal_loader_destroy(loader);
        first_tokens(&args, w < 2 ? epoch : 2 * epoch, after);
        assert_memory_equal(after, before, (size_t)epoch * sizeof *before);
    }
    memset(seen, 0, sizeof seen);
    for (int64_t i = epoch; i < 2 * epoch; i++)
        assert_int_equal(seen[after[i]]++, 0);
    assert_memory_not_equal(after, after + epoch, (size_t)epoch * sizeof *after);
    shoal_status status = SHOAL_ENOMEM;
    for (int skip = 0; status < 0; skip++) { /* each allocation fails once */
        shoal_loader *made_again = NULL;
        char spec[32];
        snprintf(spec, sizeof spec, "alloc:%d", skip);
        assert_true(skip < 1000 && shoali_fault_arm(spec));
        status = shoal_loader_create(&args, &made_again);
        const bool fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        shoal_loader_destroy(made_again);
    }
    args.order_samples = (const int64_t[]){-1};
    shoal_loader *loader = NULL;
    assert_int_equal(shoal_loader_create(&args, &loader), SHOAL_EINVAL);
    shoal_dataset_destroy(dataset);
}

/* ... also of a blend, whose parts have samples left. */
static void test_longer_blend(void **state)
{
    enum { T = 5, N = 40, MORE = 400 };
    static int32_t before[N], after[MORE], whole[MORE];
    const int64_t *made;
    (void)state;
    write_many("left", 300);
    write_many("right", 200);
    for (int weighted = 0; weighted < 2; weighted++) {
        const char *words[] = {"3", "left", "1", "right"};
        char text[2][128];
        snprintf(text[0], sizeof text[0], "%s/left", folder);
        snprintf(text[1], sizeof text[1], "%s/right", folder);
        words[1] = text[0];
        words[3] = text[1];
        shoal_dataset *dataset = NULL;
        ok(create_split(weighted ? words : (const char *[]){text[0], text[1]}, weighted ? 4 : 2,
                        "1", &dataset));
        shoal_loader_args args = {.dataset = dataset,
                                  .seq_length = T,
                                  .micro_batch = 1,
                                  .micro_batches = 1,
                                  .seed = SEED,
                                  .sample_count = N};
        first_tokens(&args, N, before);
        args.sample_count = MORE;
        first_tokens(&args, MORE, whole);
        args.order_samples = (const int64_t[]){N};
        args.order_count = 1;
        first_tokens(&args, MORE, after);
        assert_memory_equal(after, before, sizeof before);
        assert_memory_equal(after, whole, sizeof whole);
        args.sample_count = 4000; /* more than there are: other passes, in a part of their own */
        shoal_loader *loader = open_loader(&args);
        assert_int_equal(shoal_loader_order(loader, &made), weighted ? 2 : 3);
        int32_t tokens[T], targets[T];
        ok(shoal_loader_get(loader, 3999, 0, tokens, targets));
        shoal_loader_destroy(loader);
        shoal_dataset_destroy(dataset);
    }
}

/* A blend takes its parts' samples in the parts' own orders, as many as their weights say; a blend
 * of blends of one file is that file. */
static void test_blend(void **state)
{
    enum { T = 5, N = 400 };
    static int32_t first[N], one[2][2 * N];
    static const char *const names[] = {"left", "right"};
    static const char *const words[] = {"3", "/left", "1", "/right"};
    const char *paths[4];
    char text[4][128];
    (void)state;
    write_many("left", 300);
    write_many("right", 200);
    for (int i = 0; i < 4; i++) {
        snprintf(text[i], sizeof text[i], "%s%s", i % 2 ? folder : "", words[i]);
        paths[i] = text[i];
    }
    shoal_dataset *dataset = NULL;
    ok(create_split(paths, 4, "1", &dataset));
    shoal_loader_args args = {.dataset = dataset,
                              .seq_length = T,
                              .micro_batch = 1,
                              .micro_batches = 1,
                              .seed = SEED,
                              .sample_count = N};
    first_tokens(&args, N, first);
    shoal_dataset_destroy(dataset);
    for (int k = 0; k < 2; k++) {
        dataset = open_pair(names[k], "1");
        args.dataset = dataset;
        args.sample_count = shoali_blend_share(N, k ? .25 : .75, .005);
        first_tokens(&args, args.sample_count, one[k]);
        shoal_dataset_destroy(dataset);
    }
    int64_t taken[2] = {0};
    struct shoali_blend blend;
    ok(shoali_blend_init(&blend, (const double[]){.75, .25}, NULL, 2));
    for (int i = 0; i < N; i++) {
        int64_t number;
        const int32_t part = shoali_blend_next(&blend, &number);
        assert_int_equal(first[i], one[part][number]);
        taken[part]++;
    }
    shoali_blend_fini(&blend);
    assert_int_equal(taken[0], 300);
    assert_int_equal(taken[1], 100);
}

/* Without weights and sizes every sample of every part comes once. */
static void test_everything(void **state)
{
    enum { T = 9 };
    static int seen[8000];
    const char *paths[3];
    char text[3][128];
    (void)state;
    write_many("left", 300);
    write_many("right", 300);
    for (int i = 0; i < 3; i++) {
        snprintf(text[i], sizeof text[i], "%s/%s", folder, i % 2 ? "right" : "left");
        paths[i] = text[i];
    }
    shoal_dataset *dataset = NULL;
    ok(create_split(paths, 3, "1", &dataset));
    assert_int_equal(shoal_dataset_file_count(dataset), 2);
    const int64_t all = shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN);
    shoal_loader *loader = open_loader(&(shoal_loader_args){.dataset = dataset,
                                                            .sequential = true,
                                                            .seq_length = T,
                                                            .micro_batch = 2,
                                                            .micro_batches = 1,
                                                            .seed = SEED});
    const int64_t samples = 3 * ((all / 3 - 1) / T);
    assert_int_equal(shoal_loader_step_count(loader), (samples + 1) / 2);
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < (samples + 1) / 2; i++) {
        int32_t two[2][T], two_targets[2][T];
        ok(shoal_loader_get(loader, i, 0, two[0], two_targets[0]));
        for (int b = 0; b < 2; b++)
            if (two_targets[b][0] >= 0)
                seen[two[b][0]]++;
    }
    int64_t sum = 0;
    for (int i = 0; i < 8000; i++) {
        assert_true(seen[i] == 0 || seen[i] == 3); /* the two files hold the same numbers */
        sum += seen[i];
    }
    assert_int_equal(sum, samples);
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
}

/* Targets where the token before ends a document are not learnt. */
static void test_eod(void **state)
{
    static const int32_t lengths[] = {4, 4, 4, 4};
    int32_t tokens[5], targets[5];
    const char *path = NULL;
    shoal_dataset *dataset = NULL;
    int64_t masked = 0;
    (void)state;
    write_numbered("four", lengths, 4);
    path = path_of("four");
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &path,
                                                  .path_count = 1,
                                                  .split = "1",
                                                  .vocab_size = 16,
                                                  .eod_given = true,
                                                  .eod_token = 7},
                            &dataset));
    shoal_loader_args args = {.dataset = dataset,
                              .sequential = true,
                              .seq_length = 5,
                              .micro_batch = 1,
                              .micro_batches = 1,
                              .seed = SEED,
                              .eod_mask_loss = true};
    shoal_loader *loader = open_loader(&args);
    for (int64_t i = 0; i < 3; i++) {
        ok(shoal_loader_get(loader, i, 0, tokens, targets));
        for (int t = 0; t < 5; t++) {
            assert_int_equal(targets[t] < 0, tokens[t] == 7);
            masked += targets[t] < 0;
        }
    }
    assert_int_equal(masked, 1);
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
    dataset = open_pair("four", "1");
    args.dataset = dataset;
    assert_int_equal(shoal_loader_create(&args, &loader), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "--eod-id"));
    shoal_dataset_destroy(dataset);
}

/* A last validation sample that is not full: token 0 and no target behind the end. */
static void test_last_partial(void **state)
{
    static const int32_t lengths[] = {6, 6};
    int32_t tokens[8], targets[8], padded = 0;
    (void)state;
    write_numbered("six", lengths, 2);
    shoal_dataset *dataset = open_pair("six", "0,1");
    shoal_loader_args args = {.dataset = dataset,
                              .split = SHOAL_SPLIT_VALID,
                              .sequential = true,
                              .seq_length = 8,
                              .micro_batch = 1,
                              .micro_batches = 1,
                              .seed = SEED,
                              .keep_last_partial = true};
    shoal_loader *loader = open_loader(&args);
    assert_int_equal(shoal_loader_step_count(loader), 2);
    for (int64_t i = 0; i < 2; i++) {
        ok(shoal_loader_get(loader, i, 0, tokens, targets));
        for (int t = 0; t < 8; t++)
            padded += targets[t] < 0;
    }
    assert_int_equal(padded, 16 - 11);
    shoal_loader_destroy(loader);
    shoal_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_blend_vectors),
        cmocka_unit_test_setup_teardown(test_epoch, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_layouts, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cyclic, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_longer, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_longer_blend, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_blend, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_everything, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_eod, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_last_partial, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
