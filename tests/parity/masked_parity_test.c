/* Maps and samples of masked tokens, against what tests/golden/make_masked_golden.py computed with
 * NumPy's generator: all the way from data files to what a loader fills. */
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "data/indexed/indexed.h"
#include "shoal/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096, VOCAB = 200, CORPORA = 9, SEQUENCE = 512 };

static uint32_t crc32(const void *data, size_t bytes)
{
    const unsigned char *from = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= from[i];
        for (int k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

/* ---- the data -------------------------------------------------------------------------------- */

static const char *path_of(const char *name, int number)
{
    static char path[2][256];
    static int next;
    next = !next;
    snprintf(path[next], sizeof path[next], "%s/%s%d", folder, name, number);
    return path[next];
}

static int32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (int32_t)((*state >> 8) % n);
}

static void write_corpus(int number)
{
    shoal_index_writer *writer = NULL;
    uint32_t state = (uint32_t)number + 1;
    int32_t tokens[600];
    ok(shoal_index_writer_create(path_of("corpus", number), VOCAB, &writer));
    for (int d = 0; d < 3 + number * 7; d++) {
        for (int s = draw(&state, 9); s > 0; s--) {
            const bool is_long = draw(&state, 40) == 0;
            const int32_t length =
                is_long ? 600 : 1 + draw(&state, 1 + (uint32_t)(number % 4) * 12);
            for (int32_t t = 0; t < length; t++)
                tokens[t] = 5 + draw(&state, VOCAB - 5);
            ok(shoal_index_writer_add(writer, tokens, length));
        }
        ok(shoal_index_writer_end_document(writer));
    }
    ok(shoal_index_writer_finish(writer));
    shoal_index_writer_destroy(writer);
}

static shoal_tokenizer *make_tokenizer(void)
{
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    shoal_tokenizer *tokenizer = NULL;
    const char *path = path_of("vocab", 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < VOCAB; i++)
        if (i < 5)
            fprintf(file, "%s\n", special[i]);
        else
            fprintf(file, "%sw%d\n", i % 3 == 0 ? "##" : "", i);
    assert_int_equal(fclose(file), 0);
    ok(shoal_tokenizer_load(
        &(shoal_tokenizer_args){.type = "BertWordPieceLowerCase", .vocab_file = path}, &tokenizer));
    assert_int_equal(shoal_tokenizer_vocab_size(tokenizer), VOCAB);
    return tokenizer;
}

struct data {
    shoal_tokenizer *tokenizer;
    shoal_dataset *dataset[CORPORA];
};

static shoal_dataset *open_corpus(struct data *data, int number)
{
    assert_in_range(number, 0, CORPORA - 1);
    if (!data->dataset[number]) {
        write_corpus(number);
        const char *path = path_of("corpus", number);
        ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &path,
                                                      .path_count = 1,
                                                      .use_tokenizer = data->tokenizer,
                                                      .split = "1",
                                                      .split_documents = true},
                                &data->dataset[number]));
    }
    return data->dataset[number];
}

/* ---- cases ----------------------------------------------------------------------------------- */

struct map_case {
    int corpus;
    int64_t tokens, samples;
    double short_seq_prob;
    int least, used;
    uint32_t seed;
};

static struct map_case read_case(const char *line)
{
    struct map_case c;
    long long tokens, samples;
    assert_int_equal(sscanf(line, "%d %lld %lf %lld %d %u%n", &c.corpus, &tokens, &c.short_seq_prob,
                            &samples, &c.least, &c.seed, &c.used),
                     6);
    c.tokens = tokens;
    c.samples = samples;
    return c;
}

static void check_twister(struct data *data, const char *line)
{
    unsigned long long seed, wanted;
    int count;
    uint64_t word = 0;
    struct shoali_mt19937_64 twister;
    (void)data;
    assert_int_equal(sscanf(line, "%llu %d : %llu", &seed, &count, &wanted), 3);
    shoali_mt19937_64_init(&twister, seed);
    while (count-- > 0)
        word = shoali_mt19937_64_next(&twister);
    assert_true(word == wanted);
}

static void check_map(struct data *data, const char *line)
{
    const struct map_case c = read_case(line);
    struct shoali_indexed *file = NULL;
    long long wanted;
    unsigned crc;
    uint32_t *rows = NULL;
    int64_t count;
    assert_int_equal(sscanf(line + c.used, " : %lld %u", &wanted, &crc), 2);
    open_corpus(data, c.corpus);
    ok(shoali_indexed_open(path_of("corpus", c.corpus), &file));
    int32_t *lengths = calloc((size_t)file->sequence_count, sizeof *lengths);
    int64_t *boundaries = calloc((size_t)file->boundary_count, sizeof *boundaries);
    if (!lengths || !boundaries)
        abort();
    ok(shoali_indexed_lengths(file, 0, file->sequence_count, lengths));
    ok(shoali_indexed_boundaries(file, 0, file->boundary_count, boundaries));
    ok(shoali_masked_index(&(struct shoali_masked_args){.lengths = lengths,
                                                        .boundaries = boundaries,
                                                        .document_count = file->boundary_count - 1,
                                                        .sample_count = c.samples,
                                                        .most_tokens = c.tokens - 3,
                                                        .short_seq_prob = c.short_seq_prob,
                                                        .least_sentences = c.least,
                                                        .seed = c.seed},
                           &rows, &count));
    assert_int_equal(count, wanted);
    if (crc32(rows, (size_t)count * 12) != crc)
        fail_msg("map %s", line);
    shoali_free(rows);
    free(lengths);
    free(boundaries);
    shoali_indexed_close(file);
}

/* An array as the script writes it: "1,2,3", or "crc123". */
static void check_array(const char **at, const int32_t *got, int64_t count, const char *line)
{
    *at += strspn(*at, " ");
    if (strncmp(*at, "crc", 3) == 0) {
        char *end;
        if (crc32(got, (size_t)count * 4) != strtoul(*at + 3, &end, 10))
            fail_msg("another array: %s", line);
        *at = end;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        char *end;
        if (strtol(*at, &end, 10) != got[i])
            fail_msg("%d at %lld: %s", got[i], (long long)i, line);
        *at = end + (*end == ',');
    }
}

static void check_sample(struct data *data, const char *line)
{
    static int32_t array[5][SEQUENCE];
    static const char *const names[] = {"tokens", "types", "targets", "key_count", "is_random"};
    const struct map_case c = read_case(line);
    shoal_loader *loader = NULL;
    double mask_prob;
    int used;
    long long number;
    int32_t *arrays[5];
    assert_int_equal(sscanf(line + c.used, " %lf %lld :%n", &mask_prob, &number, &used), 2);
    ok(shoal_loader_create(
        &(shoal_loader_args){.dataset = open_corpus(data, c.corpus),
                             .kind = c.least == 2 ? SHOAL_SAMPLE_MASKED_PAIRS : SHOAL_SAMPLE_MASKED,
                             .seq_length = c.tokens,
                             .micro_batch = 1,
                             .micro_batches = 1,
                             .seed = c.seed,
                             .sample_count = c.samples,
                             .mask_prob = mask_prob,
                             .short_seq_prob = c.short_seq_prob > 0 ? c.short_seq_prob : -1},
        &loader));
    for (int i = 0; i < 5; i++) {
        int64_t numbers = 0;
        assert_string_equal(shoal_loader_array(loader, i, &numbers), names[i]);
        assert_int_equal(numbers, i < 3 ? c.tokens : 1);
        arrays[i] = array[i];
    }
    ok(shoal_loader_get_arrays(loader, number, 0, arrays));
    const char *at = line + c.used + used;
    for (int i = 0; i < 5; i++)
        check_array(&at, array[i], i < 3 ? c.tokens : 1, line);
    shoal_loader_destroy(loader);
}

static void test_golden(void **state)
{
    static const struct {
        const char *name;
        void (*check)(struct data *data, const char *line);
    } kinds[] = {{"twister ", check_twister}, {"map ", check_map}, {"sample ", check_sample}};
    int found[3] = {0};
    char line[LINE_BYTES];
    struct data data = {.tokenizer = make_tokenizer()};
    FILE *file = fopen(GOLDEN_FOLDER "/masked_samples.txt", "r");
    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        for (int k = 0; k < 3; k++)
            if (strncmp(line, kinds[k].name, strlen(kinds[k].name)) == 0) {
                kinds[k].check(&data, line + strlen(kinds[k].name));
                found[k]++;
            }
    assert_true(found[0] == 4 && found[1] > 40 && found[2] == 5 * found[1]);
    fclose(file);
    for (int i = 0; i < CORPORA; i++)
        shoal_dataset_destroy(data.dataset[i]);
    shoal_tokenizer_destroy(data.tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
