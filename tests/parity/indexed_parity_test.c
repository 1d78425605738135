/* Megatron's order of samples and its files, against what tests/golden/make_indexed_golden.py
 * computed with NumPy: maps, blends, permutations, splits, headers of NumPy files; a pair of files
 * is read, and written again byte for byte. */
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "data/indexed/indexed.h"

#include <math.h>
#include <unistd.h>

#define LINE_BYTES 65536

static uint32_t crc32_more(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= from[i];
        for (int k = 0; k < 8; k++)
            crc = (crc >> 1) ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

static int64_t next_int(char **at)
{
    char *end;
    const int64_t value = strtoll(*at, &end, 10);
    assert_true(end > *at);
    *at = end;
    return value;
}

static double next_real(char **at)
{
    char *end;
    const double value = strtod(*at, &end);
    assert_true(end > *at);
    *at = end;
    return value;
}

static void expect(char **at, int64_t got, const char *line)
{
    const int64_t wanted = next_int(at);
    if (wanted != got)
        fail_msg("%lld instead of %lld in: %.200s", (long long)got, (long long)wanted, line);
}

static void skip_colon(char **at)
{
    *at += strspn(*at, " ");
    assert_int_equal(**at, ':');
    ++*at;
}

struct pairs {
    uint32_t crc;
    int64_t count;
};

static shoal_status put(void *user, int64_t place, int64_t offset)
{
    struct pairs *pairs = user;
    const int32_t pair[2] = {(int32_t)place, (int32_t)offset};
    pairs->crc = crc32_more(pairs->crc, pair, sizeof pair);
    pairs->count++;
    return SHOAL_OK;
}

static void check_gpt(char *at, const char *line)
{
    struct shoali_gpt_args args = {.sample_count = next_int(&at)};
    struct shoali_gpt_shape shape;
    struct shoali_mt19937 generator;
    struct pairs pairs = {0};
    args.seq_length = next_int(&at);
    args.seed = (uint32_t)next_int(&at);
    args.keep_last_partial = next_int(&at);
    args.no_extra_token = next_int(&at);
    args.first = next_int(&at);
    args.sequence_count = next_int(&at);
    int32_t *lengths = calloc((size_t)args.sequence_count, sizeof *lengths);
    assert_non_null(lengths);
    for (int64_t i = 0; i < args.sequence_count; i++)
        args.tokens += lengths[i] = (int32_t)next_int(&at);
    skip_colon(&at);
    ok(shoali_gpt_shape(&args, &shape));
    expect(&at, shape.epochs, line);
    expect(&at, shape.separate, line);
    expect(&at, shape.samples, line);
    expect(&at, shape.leading, line);
    const size_t places = (size_t)(shape.epochs * args.sequence_count);
    int32_t *document = calloc(places, sizeof *document);
    void *shuffle = NULL;
    assert_non_null(document);
    shoali_mt19937_init(&generator, args.seed);
    shoali_gpt_document_index(&args, &shape, &generator, document);
    expect(&at, crc32_more(0, document, places * sizeof *document), line);
    ok(shoali_gpt_sample_index(&args, &shape, lengths, document, put, &pairs));
    assert_int_equal(pairs.count, shape.samples + 1);
    expect(&at, pairs.crc, line);
    ok(shoali_gpt_shuffle_index(&shape, &generator, &shuffle));
    assert_int_equal(shoali_gpt_shuffle_width(shape.samples), 4);
    expect(&at, crc32_more(0, shuffle, (size_t)shape.samples * 4), line);
    shoali_free(shuffle);
    free(document);
    free(lengths);
}

static void check_choices(struct shoali_blend *blend, int64_t size, char *at, const char *line)
{
    uint32_t dataset_crc = 0, number_crc = 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t number;
        const int16_t dataset = (int16_t)shoali_blend_next(blend, &number);
        dataset_crc = crc32_more(dataset_crc, &dataset, sizeof dataset);
        number_crc = crc32_more(number_crc, &number, sizeof number);
    }
    skip_colon(&at);
    expect(&at, dataset_crc, line);
    expect(&at, number_crc, line);
    shoali_blend_fini(blend);
}

static void check_blend(char *at, const char *line)
{
    struct shoali_blend blend;
    double weight[512];
    const int64_t size = next_int(&at);
    const int32_t count = (int32_t)next_int(&at);
    assert_in_range(count, 1, 512);
    for (int32_t i = 0; i < count; i++)
        weight[i] = next_real(&at);
    ok(shoali_blend_normalize(weight, count));
    ok(shoali_blend_init(&blend, weight, NULL, count));
    check_choices(&blend, size, at, line);
}

static void check_exhaust(char *at, const char *line)
{
    struct shoali_blend blend;
    int64_t room[64], size = 0;
    const int32_t count = (int32_t)next_int(&at);
    assert_in_range(count, 1, 64);
    for (int32_t i = 0; i < count; i++)
        size += room[i] = next_int(&at);
    ok(shoali_blend_init(&blend, NULL, room, count));
    check_choices(&blend, size, at, line);
}

static void check_permute(char *at, const char *line)
{
    struct shoali_mt19937 generator;
    int32_t order[8192];
    shoali_mt19937_init(&generator, (uint32_t)next_int(&at));
    const int64_t count = next_int(&at);
    assert_in_range(count, 1, 8192);
    shoali_mt19937_permute(&generator, order, count);
    skip_colon(&at);
    expect(&at, crc32_more(0, order, (size_t)count * sizeof *order), line);
}

/* Of sequences of one token. */
static void write_sequences(const char *prefix, int64_t count)
{
    shoal_index_writer *writer = NULL;
    const int32_t token = 7;
    ok(shoal_index_writer_create(prefix, 100, &writer));
    for (int64_t q = 0; q < count; q++)
        ok(shoal_index_writer_add(writer, &token, 1));
    ok(shoal_index_writer_end_document(writer));
    ok(shoal_index_writer_finish(writer));
    shoal_index_writer_destroy(writer);
}

static void check_split(char *at, const char *line)
{
    struct shoali_indexed_data *data = NULL;
    char text[64], prefix[128], path[160];
    const char *const paths[] = {prefix};
    at += strspn(at, " ");
    const size_t length = strcspn(at, " ");
    snprintf(text, sizeof text, "%.*s", (int)length, at);
    at += length;
    const int64_t count = next_int(&at);
    skip_colon(&at);
    snprintf(prefix, sizeof prefix, "%s/of_%lld", folder, (long long)count);
    snprintf(path, sizeof path, "%s.idx", prefix);
    if (access(path, F_OK) != 0)
        write_sequences(prefix, count);
    ok(shoali_indexed_data_open(
        &(shoal_dataset_args){.paths = paths, .path_count = 1, .split = text, .vocab_size = 100},
        &data));
    int64_t last = 0;
    expect(&at, last, line);
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        const struct shoali_part *part = data->split[p].part;
        assert_true(!part || part->first == last);
        last = part ? part->end : last;
        expect(&at, last, line);
    }
    shoali_indexed_data_close(data);
}

/* The header alone: a file of the promised rows would be large. */
static void check_npy(char *at, const char *line)
{
    struct shoali_npy file;
    char path[128];
    at += strspn(at, " ");
    const char kind = *at++;
    const size_t width = (size_t)next_int(&at);
    const int64_t rows = next_int(&at);
    const int32_t columns = (int32_t)next_int(&at);
    skip_colon(&at);
    at += strspn(at, " ");
    snprintf(path, sizeof path, "%s/header.npy", folder);
    ok(shoali_npy_create(path, kind, width, rows, columns, &file));
    for (int64_t i = 0; i < file.begin; i++, at += 2) {
        unsigned wanted;
        assert_int_equal(sscanf(at, "%2x", &wanted), 1);
        if ((unsigned char)file.buffer[i] != wanted)
            fail_msg("byte %lld of the header: %.200s", (long long)i, line);
    }
    assert_int_equal(*at, '\n');
    shoali_npy_close(&file);
}

static void test_orders(void **state)
{
    static const struct {
        const char *name;
        void (*check)(char *, const char *);
    } kinds[] = {{"gpt", check_gpt},         {"blend", check_blend}, {"exhaust", check_exhaust},
                 {"permute", check_permute}, {"split", check_split}, {"npy", check_npy}};
    int found[6] = {0};
    char *line = malloc(LINE_BYTES);
    FILE *file = fopen(GOLDEN_FOLDER "/indexed_order.txt", "r");
    (void)state;
    assert_non_null(file);
    assert_non_null(line);
    while (fgets(line, LINE_BYTES, file)) {
        const size_t length = strcspn(line, " ");
        for (int k = 0; k < 6; k++)
            if (strlen(kinds[k].name) == length && memcmp(kinds[k].name, line, length) == 0) {
                kinds[k].check(line + length, line);
                found[k]++;
            }
    }
    for (int k = 0; k < 6; k++)
        assert_true(found[k] > 3);
    fclose(file);
    free(line);
}

static void assert_same_file(const char *wanted_path, const char *got_path)
{
    char *wanted = NULL, *got = NULL;
    size_t wanted_bytes, got_bytes;
    ok(shoali_read_file(wanted_path, &wanted, &wanted_bytes));
    ok(shoali_read_file(got_path, &got, &got_bytes));
    assert_int_equal(wanted_bytes, got_bytes);
    assert_memory_equal(wanted, got, wanted_bytes);
    free(wanted);
    free(got);
}

static void assert_same_pair(const char *name, const char *prefix)
{
    char wanted[512], got[512];
    static const char *const suffix[] = {"bin", "idx"};
    for (int i = 0; i < 2; i++) {
        snprintf(wanted, sizeof wanted, GOLDEN_FOLDER "/%s.%s", name, suffix[i]);
        snprintf(got, sizeof got, "%s.%s", prefix, suffix[i]);
        assert_same_file(wanted, got);
    }
}

/* Documents of 2, 0 and 3 sequences; sequence q has 3 q tokens, token t of it is 100 q + t. */
static void write_sample(const char *prefix, int64_t vocab_size)
{
    shoal_index_writer *writer = NULL;
    ok(shoal_index_writer_create(prefix, vocab_size, &writer));
    for (int32_t q = 1; q <= 5; q++) {
        int32_t tokens[15];
        for (int32_t t = 0; t < 3 * q; t++)
            tokens[t] = 100 * q + t;
        ok(shoal_index_writer_add(writer, tokens, 3 * q));
        if (q == 2)
            ok(shoal_index_writer_end_document(writer));
        if (q == 2 || q == 5)
            ok(shoal_index_writer_end_document(writer));
    }
    ok(shoal_index_writer_finish(writer));
    shoal_index_writer_destroy(writer);
}

static void test_files(void **state)
{
    static const struct {
        const char *name, *dtype;
        int64_t vocab_size;
    } kinds[] = {{"indexed_sample", "uint16", 65499}, {"indexed_wide", "int32", 65500}};
    (void)state;
    for (int k = 0; k < 2; k++) {
        char path[512], prefix[128];
        shoal_indexed_info info;
        struct shoali_indexed *file = NULL;
        int32_t tokens[15];
        int64_t got;
        snprintf(path, sizeof path, GOLDEN_FOLDER "/%s", kinds[k].name);
        ok(shoal_indexed_inspect(path, &info));
        assert_string_equal(info.dtype, kinds[k].dtype);
        assert_int_equal(info.sequence_count, 5);
        assert_int_equal(info.document_count, 3);
        assert_int_equal(info.token_count, 45);
        assert_int_equal(info.shortest, 3);
        assert_int_equal(info.longest, 15);
        ok(shoali_indexed_open(path, &file));
        ok(shoali_indexed_read(file, 3, 2, -1, 1000, 15, tokens, &got));
        assert_int_equal(got, 10);
        for (int32_t t = 0; t < 10; t++)
            assert_int_equal(tokens[t], 402 + t);
        shoali_indexed_close(file);
        snprintf(prefix, sizeof prefix, "%s/%s", folder, kinds[k].name);
        write_sample(prefix, kinds[k].vocab_size);
        assert_same_pair(kinds[k].name, prefix);
    }
}

/* Merged, its documents follow each other; and merging halves gives the whole. */
static void test_merge(void **state)
{
    char path[512], merged[128], twice[128], lists[256];
    const char *three[] = {path, path, path}, *parts[] = {path, merged};
    struct shoali_indexed *file = NULL;
    int64_t boundaries[10];
    (void)state;
    snprintf(path, sizeof path, GOLDEN_FOLDER "/indexed_sample");
    snprintf(merged, sizeof merged, "%s/merged", folder);
    snprintf(twice, sizeof twice, "%s/twice", folder);
    ok(shoal_indexed_merge(three, 2, merged));
    ok(shoali_indexed_open(merged, &file));
    assert_int_equal(file->sequence_count, 10);
    assert_int_equal(file->boundary_count, 7);
    ok(shoali_indexed_boundaries(file, 0, 7, boundaries));
    static const int64_t wanted[] = {0, 2, 2, 5, 7, 7, 10};
    assert_memory_equal(boundaries, wanted, sizeof wanted);
    shoali_indexed_close(file);
    ok(shoal_indexed_merge(parts, 2, twice));
    ok(shoal_indexed_merge(three, 3, merged));
    snprintf(path, sizeof path, "%s.idx", merged);
    snprintf(lists, sizeof lists, "%s.idx", twice);
    assert_same_file(path, lists);
    snprintf(path, sizeof path, "%s.bin", merged);
    snprintf(lists, sizeof lists, "%s.bin", twice);
    assert_same_file(path, lists);
    snprintf(path, sizeof path, GOLDEN_FOLDER "/indexed_wide");
    parts[1] = GOLDEN_FOLDER "/indexed_sample";
    assert_int_equal(shoal_indexed_merge(parts, 2, merged), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "one type"));
    /* of what failed nothing is left, and what was there before still is */
    ok(shoali_indexed_open(merged, &file));
    shoali_indexed_close(file);
    snprintf(path, sizeof path, "%s.bin.tmp", merged);
    assert_null(fopen(path, "r"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_merge),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
