/* A pair of Megatron's data files: the first byte says how long P.bin is (in steps of four bytes),
 * the rest is P.idx. What opens is read without leaving the files: every sequence, and an order of
 * samples over all of them. */
#include "fuzz.h"

#include "data/indexed/indexed.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char folder[32] = "/tmp/shoal-fuzz-XXXXXX", prefix[48];
static char links[2][64];

static void clean(void)
{
    (void)unlink(links[0]);
    (void)unlink(links[1]);
    (void)rmdir(folder);
}

/* P.idx and P.bin as links to files without names: prefixes are names. */
static const char *make_prefix(const uint8_t *data, size_t size, size_t token_bytes)
{
    static int index = -1, tokens = -1;
    if (index < 0) {
        char target[64];
        index = memfd_create("index", MFD_CLOEXEC);
        tokens = memfd_create("tokens", MFD_CLOEXEC);
        FUZZ_CHECK(index >= 0 && tokens >= 0 && mkdtemp(folder));
        for (int i = 0; i < 2; i++) {
            snprintf(links[i], sizeof links[i], "%s/p.%s", folder, i ? "bin" : "idx");
            snprintf(target, sizeof target, "/proc/self/fd/%d", i ? tokens : index);
            FUZZ_CHECK(symlink(target, links[i]) == 0);
        }
        snprintf(prefix, sizeof prefix, "%s/p", folder);
        FUZZ_CHECK(atexit(clean) == 0);
    }
    FUZZ_CHECK(ftruncate(index, 0) == 0 && ftruncate(tokens, 0) == 0);
    FUZZ_CHECK(pwrite(index, data, size, 0) == (ssize_t)size);
    FUZZ_CHECK(ftruncate(tokens, (off_t)token_bytes) == 0);
    return prefix;
}

static shoal_status put(void *user, int64_t place, int64_t offset)
{
    const struct shoali_gpt_args *args = user;
    FUZZ_CHECK(place >= 0 && place < 64 * args->sequence_count && offset >= -1);
    return SHOAL_OK;
}

static void order(const struct shoali_indexed *file)
{
    int32_t lengths[4096], document[2 * 4096];
    struct shoali_gpt_args args = {.sequence_count = file->sequence_count,
                                   .tokens = file->token_count,
                                   .seq_length = 3,
                                   .sample_count = file->token_count / 3,
                                   .keep_last_partial = true,
                                   .seed = 7};
    struct shoali_gpt_shape shape;
    struct shoali_mt19937 generator;
    if (file->sequence_count > 4096 || file->token_count < 8)
        return;
    FUZZ_CHECK(shoali_indexed_lengths(file, 0, file->sequence_count, lengths) == SHOAL_OK);
    FUZZ_CHECK(shoali_gpt_shape(&args, &shape) == SHOAL_OK && shape.epochs <= 2);
    shoali_mt19937_init(&generator, 7);
    shoali_gpt_document_index(&args, &shape, &generator, document);
    FUZZ_CHECK(shoali_gpt_sample_index(&args, &shape, lengths, document, put, &args) == SHOAL_OK);
}

static void read_all(const struct shoali_indexed *file)
{
    int64_t tokens = 0, sum = 0;
    for (int64_t q = 0; q < file->sequence_count && q < 64; q++) {
        int32_t token[64];
        int64_t got = -1;
        FUZZ_CHECK(shoali_indexed_read(file, q, 0, -1, 256, 64, token, &got) == SHOAL_OK);
        FUZZ_CHECK(got >= 0 && got <= 64);
        for (int64_t t = 0; t < got; t++)
            FUZZ_CHECK(token[t] == 0);
    }
    for (int64_t q = 0; q < file->sequence_count; q++) {
        FUZZ_CHECK(shoali_indexed_count(file, q, q + 1, &tokens) == SHOAL_OK);
        FUZZ_CHECK(tokens >= 0);
        sum += tokens;
    }
    FUZZ_CHECK(sum == file->token_count);
    FUZZ_CHECK(sum * (int64_t)file->width <= file->token_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shoali_indexed *file = NULL;
    fuzz_be_silent();
    if (size < 1)
        return 0;
    const char *path = make_prefix(data + 1, size - 1, 4 * (size_t)data[0]);
    const shoal_status status = shoali_indexed_open(path, &file);
    FUZZ_CHECK((status == SHOAL_OK) == (file != NULL));
    FUZZ_CHECK(status == SHOAL_OK || shoal_status_exit_code(status) == 2);
    if (file) {
        read_all(file);
        order(file);
    }
    shoali_indexed_close(file);
    return 0;
}
