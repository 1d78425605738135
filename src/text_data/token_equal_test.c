/* Token files hold exactly the tokens that the text has in memory, in memory of their own size. */
#include "data/test_text.h"
#include "text_data/token_file.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED 20240607

struct memory {
    struct shoali_str text;
    int32_t *tokens;
    int64_t count;
};

/* What the file holds, by definition: whole files, joined, encoded at once. */
static void in_memory(const char *const *names, size_t count, const shoal_tokenizer *tokenizer,
                      struct memory *memory)
{
    *memory = (struct memory){0};
    for (size_t i = 0; i < count; i++) {
        char *data;
        size_t bytes;
        ok(shoali_read_file(path_of(names[i]), &data, &bytes));
        if (bytes > 0 && memory->text.length > 0)
            shoali_str_append(&memory->text, "\n");
        shoali_str_append_bytes(&memory->text, data, bytes);
        free(data);
    }
    memory->tokens = malloc((memory->text.length + 1) * sizeof(int32_t));
    ok(shoal_tokenizer_encode(tokenizer, memory->text.text, memory->text.length, memory->tokens,
                              (int64_t)memory->text.length, &memory->count));
}

static void memory_fini(struct memory *memory)
{
    shoali_str_fini(&memory->text);
    free(memory->tokens);
}

static double entropy_of(const struct memory *memory, const int64_t *cut, int split, int32_t vocab)
{
    int64_t *train = calloc(2 * (size_t)vocab, sizeof(*train)), *part = train + vocab, extra = 0;
    for (int64_t i = cut[0]; i < cut[1]; i++)
        train[memory->tokens[i]]++;
    for (int64_t i = cut[split]; i < cut[split + 1]; i++)
        part[memory->tokens[i]]++;
    for (int32_t v = 0; v < vocab; v++)
        extra |= train[v] == 0 && part[v] > 0;
    double sum = 0, all = (double)cut[1] + (double)extra * (double)vocab;
    for (int32_t v = 0; v < vocab; v++)
        if (part[v] > 0)
            sum -= (double)part[v] * shoali_ln((double)(train[v] + extra) / all);
    free(train);
    return sum / (double)(cut[split + 1] - cut[split]);
}

static void compare(const shoal_dataset *dataset, const struct memory *memory)
{
    const int32_t vocab = shoal_dataset_vocab_size(dataset);
    const int64_t n = memory->count;
    const int64_t cut[4] = {0, (int64_t)rint(8. / 10 * (double)n),
                            (int64_t)rint(9. / 10 * (double)n), n};
    const size_t width = vocab <= 256 ? 1 : vocab <= 65536 ? 2 : 4;
    unsigned char *packed = malloc((size_t)n * width + 1);
    int32_t *tokens = malloc(((size_t)n + 1) * sizeof(*tokens));
    double nats;
    for (int p = 0; p < 3; p++) {
        const int64_t count = cut[p + 1] - cut[p];
        assert_int_equal(shoal_dataset_token_count(dataset, (shoal_split)p), count);
        ok(shoal_dataset_read(dataset, (shoal_split)p, 0, count, tokens));
        assert_memory_equal(tokens, memory->tokens + cut[p], (size_t)count * sizeof(*tokens));
        if (count == 0 || cut[1] == 0)
            continue;
        ok(shoal_dataset_unigram_entropy(dataset, (shoal_split)p, &nats));
        assert_true(nats ==
                    entropy_of(memory, cut, p, vocab)); /* the same sums in the same order */
    }
    for (int64_t i = 0; i < n; i++) /* little-endian, as the machines of the tests are */
        memcpy(packed + (size_t)i * width, &memory->tokens[i], width);
    const uint64_t hashes[] = {shoali_hash64(packed, (size_t)n * width), (uint64_t)vocab,
                               (uint64_t)cut[1], (uint64_t)cut[2]};
    assert_true(shoal_dataset_fingerprint(dataset) == shoali_hash64(hashes, sizeof(hashes)));
    free(packed);
    free(tokens);
}

/* Text of `bytes` or a little more: ASCII, long code points, or bytes that are no UTF-8. */
static void random_text(struct shoali_stream *stream, uint64_t *draw, int kind, size_t bytes,
                        struct shoali_str *text)
{
    while (text->length < bytes) {
        char out[4];
        uint32_t code_point = 1 + (uint32_t)shoali_random_below(stream, (*draw)++, 126);
        if (kind >= 1 && shoali_random_below(stream, (*draw)++, 3) == 0)
            code_point = 0x80 + (uint32_t)shoali_random_below(stream, (*draw)++, 700) * 1021;
        if (code_point >= 0xd800 && code_point < 0xe000)
            code_point = 0x1f41f;
        shoali_str_append_bytes(text, out, (size_t)shoali_utf8_encode(code_point, out));
        if (kind == 2 && shoali_random_below(stream, (*draw)++, 50) == 0)
            shoali_str_append_bytes(text, "\xc3\xff\x80", 3);
    }
}

static void test_equal_to_memory(void **state)
{
    static const char *const names[] = {"a", "b", "sub/c", "sub/d", "z"};
    static const char *const tokenizers[] = {"byte", "char"};
    struct shoali_stream stream = shoali_stream_make(SEED, "test", "", 0);
    uint64_t draw = 0;
    (void)state;
    print_message("seed %d\n", SEED);
    assert_int_equal(mkdir(path_of("sub"), 0700), 0);
    for (int round = 0; round < 40; round++) {
        const int kind = round % 3;
        const size_t files = 1 + (size_t)shoali_random_below(&stream, draw++, 5);
        for (size_t i = 0; i < 5; i++) {
            struct shoali_str text = {0};
            size_t bytes = (size_t)shoali_random_below(&stream, draw++, 300);
            if (round == 7 && i == 0) /* pieces of files, of encoding, rows of the histogram */
                bytes = 2 * SHOALI_TEXT_BYTES + 12345;
            (void)remove(path_of(names[i]));
            if (i >= files)
                continue;
            random_text(&stream, &draw, kind, bytes % 5 ? bytes : 0, &text);
            shoali_str_append(&text, i == 0 ? "end" : "");
            write_text(names[i], shoali_str_get(&text), text.length);
            shoali_str_fini(&text);
        }
        for (int t = 0; t < (kind == 2 ? 1 : 2); t++)
            for (int again = 0; again < 2; again++) {
                struct memory memory;
                shoal_dataset *dataset = open_folder(tokenizers[t]);
                in_memory(names, files, shoal_dataset_tokenizer(dataset), &memory);
                compare(dataset, &memory);
                memory_fini(&memory);
                shoal_dataset_destroy(dataset);
            }
    }
}

/* 200 MB of text take a few MB, made or read. */
static void test_memory(void **state)
{
    int code;
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    FILE *file = fopen(path_of("a"), "w");
    for (int i = 0; i < 4000000; i++)
        assert_true(fprintf(file, "a line of text number %26d\n", i) > 0);
    assert_int_equal(fclose(file), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct rusage before, after;
        shoal_dataset *dataset = NULL;
        double nats;
        int32_t token;
        getrusage(RUSAGE_SELF, &before);
        bool fine = create("char", &dataset) == SHOAL_OK;
        for (int i = 0; i < 10000 && fine; i++)
            fine = shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, i * INT64_C(15000), 1, &token) ==
                   SHOAL_OK;
        fine = fine && shoal_dataset_unigram_entropy(dataset, SHOAL_SPLIT_VALID, &nats) == SHOAL_OK;
        getrusage(RUSAGE_SELF, &after);
        _exit(fine && after.ru_maxrss - before.ru_maxrss < 16 << 10 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_equal_to_memory, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_memory, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
