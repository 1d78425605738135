/* One array of tokens, cut into train, validation and test. */
#include "data/data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOCK_TOKENS (INT64_C(1) << 20)
#define MOCK_VOCAB 256
#define ENCODE_CHUNK_BYTES ((size_t)1 << 16)

struct shoal_dataset {
    shoal_tokenizer *tokenizer; /* NULL: mock */
    int32_t vocab_size, file_count;
    size_t width;           /* bytes per token: 1, 2 or 4 */
    void *tokens;           /* owned, unless `text` holds them */
    struct shoali_str text; /* tokenizer byte: the text is the tokens */
    int64_t count;
    int64_t cut[SHOAL_SPLIT_COUNT + 1]; /* part p is [cut[p], cut[p+1]) */
    uint64_t fingerprint;
};

static const char *const split_names[SHOAL_SPLIT_COUNT] = {"train", "validation", "test"};

/* ---- tokens in 1, 2 or 4 bytes ---- */

static size_t width_of(int32_t vocab_size)
{
    return vocab_size <= 256 ? 1 : vocab_size <= 65536 ? 2 : 4;
}

static void store(const shoal_dataset *dataset, int64_t first, const int32_t *from, int64_t count)
{
    uint8_t *to1 = dataset->tokens;
    uint16_t *to2 = dataset->tokens;
    int32_t *to4 = dataset->tokens;
    for (int64_t i = 0; i < count; i++) {
        if (dataset->width == 1)
            to1[first + i] = (uint8_t)from[i];
        else if (dataset->width == 2)
            to2[first + i] = (uint16_t)from[i];
        else
            to4[first + i] = from[i];
    }
}

static void load(const shoal_dataset *dataset, int64_t first, int64_t count, int32_t *to)
{
    const uint8_t *from1 = dataset->tokens;
    const uint16_t *from2 = dataset->tokens;
    const int32_t *from4 = dataset->tokens;
    for (int64_t i = 0; i < count; i++) {
        if (dataset->width == 1)
            to[i] = from1[first + i];
        else if (dataset->width == 2)
            to[i] = from2[first + i];
        else
            to[i] = from4[first + i];
    }
}

/* ---- split ---- */

static shoal_status bad_split(const char *spec)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "split `%s`: give two or three weights such as 90,10 or 969,30,1: train, "
                      "validation, test; one weight is all train",
                      spec);
}

static shoal_status parse_split(const char *spec, double weight[SHOAL_SPLIT_COUNT])
{
    char copy[128];
    double sum = 0;
    int parts = 0;
    if (strlen(spec) >= sizeof(copy))
        return bad_split(spec);
    strcpy(copy, spec);
    for (char *word = copy; word;) {
        char *comma = strchr(word, ',');
        if (comma)
            *comma++ = '\0';
        if (parts == SHOAL_SPLIT_COUNT || !shoali_parse_f64(word, &weight[parts]) ||
            !(weight[parts] >= 0) || !isfinite(weight[parts]))
            return bad_split(spec);
        sum += weight[parts++];
        word = comma;
    }
    return sum > 0 && isfinite(sum) ? SHOAL_OK : bad_split(spec);
}

static shoal_status cut_parts(shoal_dataset *dataset, const char *spec)
{
    double weight[SHOAL_SPLIT_COUNT] = {0}, sum = 0, before = 0;
    shoal_status status = parse_split(spec ? spec : "90,10", weight);
    if (status < 0)
        return status;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        sum += weight[p];
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        before += weight[p];
        dataset->cut[p + 1] = (int64_t)rint(before / sum * (double)dataset->count);
    }
    dataset->cut[SHOAL_SPLIT_COUNT] = dataset->count;
    return SHOAL_OK;
}

/* ---- text ---- */

/* Repeats the failing encoding per file, so that the sentence names the file and the offset in it.
 */
static shoal_status blame_file(const shoal_dataset *dataset, const struct shoali_text *text)
{
    for (int32_t i = 0; i < text->file_count; i++) {
        size_t begin = text->file[i].offset;
        size_t end = i + 1 < text->file_count ? text->file[i + 1].offset - 1 : text->content.length;
        int64_t count;
        shoal_status status = shoal_tokenizer_encode(dataset->tokenizer, text->content.text + begin,
                                                     end - begin, NULL, 0, &count);
        if (status < 0)
            return shoali_error_prefix(status, "%s", text->file[i].path);
    }
    return SHOAL_FAIL(
        SHOAL_EINVAL,
        "files are joined by a newline, which the given tokenizer does not have; give one "
        "file");
}

/* Encodes piece by piece, so that the wide form of the tokens is never held as a whole. */
static shoal_status encode_text(shoal_dataset *dataset, const struct shoali_text *text)
{
    shoal_status status = SHOAL_OK;
    const char *content = text->content.text;
    size_t bytes = text->content.length;
    int32_t *piece = shoali_malloc(ENCODE_CHUNK_BYTES * sizeof(*piece), "tokens");
    dataset->tokens = shoali_malloc(bytes * dataset->width, "the tokens of the data");
    if (!piece || !dataset->tokens) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (size_t at = 0, end; at < bytes; at = end) {
        end = bytes - at > ENCODE_CHUNK_BYTES ? at + ENCODE_CHUNK_BYTES : bytes;
        while (end < bytes && end > at + 4 && ((unsigned char)content[end] & 0xc0) == 0x80)
            end--;
        int64_t count;
        status = shoal_tokenizer_encode(dataset->tokenizer, content + at, end - at, piece,
                                        (int64_t)ENCODE_CHUNK_BYTES, &count);
        if (status < 0) {
            status = blame_file(dataset, text);
            goto done;
        }
        store(dataset, dataset->count, piece, count);
        dataset->count += count;
    }
done:
    shoali_free(piece);
    return status;
}

static shoal_status make_tokenizer(shoal_dataset *dataset, const shoal_dataset_args *args,
                                   const struct shoali_text *text)
{
    const char *name = args->tokenizer ? args->tokenizer : "byte";
    if (args->use_tokenizer)
        return shoali_tokenizer_copy(args->use_tokenizer, &dataset->tokenizer);
    if (strcmp(name, "char") == 0) {
        size_t valid = shoali_utf8_check(text->content.text, text->content.length), within;
        const char *path = shoali_text_locate(text, valid, &within);
        if (valid < text->content.length)
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "%s is not UTF-8 at byte %zu (0x%02x); the tokenizer `char` needs UTF-8, "
                "`byte` takes any data",
                path, within, (unsigned char)text->content.text[valid]);
    }
    return shoal_tokenizer_create(name, text->content.text, text->content.length,
                                  &dataset->tokenizer);
}

static shoal_status read_text(shoal_dataset *dataset, const shoal_dataset_args *args)
{
    shoal_status status;
    struct shoali_text text = {0};
    SHOAL_TRY(status, shoali_text_read(args->paths, args->path_count, &text), done);
    SHOAL_TRY(status, make_tokenizer(dataset, args, &text), done);
    dataset->file_count = text.file_count;
    dataset->vocab_size = shoal_tokenizer_vocab_size(dataset->tokenizer);
    dataset->width = width_of(dataset->vocab_size);
    if (strcmp(shoal_tokenizer_name(dataset->tokenizer), "byte") == 0) {
        dataset->text = text.content;
        memset(&text.content, 0, sizeof(text.content));
        dataset->tokens = dataset->text.text;
        dataset->count = (int64_t)dataset->text.length;
    } else {
        SHOAL_TRY(status, encode_text(dataset, &text), done);
    }
done:
    shoali_text_fini(&text);
    return status;
}

static shoal_status make_mock(shoal_dataset *dataset, const shoal_dataset_args *args)
{
    dataset->vocab_size = args->mock_vocab_size ? args->mock_vocab_size : MOCK_VOCAB;
    dataset->count = args->mock_token_count ? args->mock_token_count : MOCK_TOKENS;
    if (dataset->vocab_size < 1 || dataset->count < 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "mock data: %d kinds of %lld tokens; both must be positive",
                          dataset->vocab_size, (long long)dataset->count);
    dataset->width = width_of(dataset->vocab_size);
    dataset->tokens = shoali_calloc((size_t)dataset->count, dataset->width, "mock tokens");
    if (!dataset->tokens)
        return SHOAL_ENOMEM;
    struct shoali_stream stream = shoali_stream_make(args->seed, "mock", "", 0);
    for (int64_t i = 0; i < dataset->count; i++) {
        int32_t token =
            (int32_t)shoali_random_below(&stream, (uint64_t)i, (uint64_t)dataset->vocab_size);
        store(dataset, i, &token, 1);
    }
    return SHOAL_OK;
}

/* ---- public ---- */

shoal_status shoal_dataset_create(const shoal_dataset_args *args, shoal_dataset **dataset)
{
    shoal_status status;
    *dataset = NULL;
    shoal_dataset *made = shoali_calloc(1, sizeof(*made), "a dataset");
    if (!made)
        return SHOAL_ENOMEM;
    if (args->mock)
        SHOAL_TRY(status, make_mock(made, args), done);
    else
        SHOAL_TRY(status, read_text(made, args), done);
    SHOAL_TRY(status, cut_parts(made, args->split), done);
    uint64_t hashes[] = {shoali_hash64(made->tokens, (size_t)made->count * made->width),
                         (uint64_t)made->vocab_size, (uint64_t)made->cut[1],
                         (uint64_t)made->cut[2]};
    made->fingerprint = shoali_hash64(hashes, sizeof(hashes));
    *dataset = made;
    made = NULL;
done:
    shoal_dataset_destroy(made);
    return status;
}

void shoal_dataset_destroy(shoal_dataset *dataset)
{
    if (!dataset)
        return;
    if (dataset->text.text)
        shoali_str_fini(&dataset->text);
    else
        shoali_free(dataset->tokens);
    shoal_tokenizer_destroy(dataset->tokenizer);
    shoali_free(dataset);
}

const shoal_tokenizer *shoal_dataset_tokenizer(const shoal_dataset *dataset)
{
    return dataset->tokenizer;
}

int32_t shoal_dataset_vocab_size(const shoal_dataset *dataset)
{
    return dataset->vocab_size;
}

int32_t shoal_dataset_file_count(const shoal_dataset *dataset)
{
    return dataset->file_count;
}

int64_t shoal_dataset_token_count(const shoal_dataset *dataset, shoal_split split)
{
    if ((int)split < 0 || split >= SHOAL_SPLIT_COUNT)
        return 0;
    return dataset->cut[split + 1] - dataset->cut[split];
}

shoal_status shoal_dataset_read(const shoal_dataset *dataset, shoal_split split, int64_t first,
                                int64_t count, int32_t *tokens)
{
    int64_t total = shoal_dataset_token_count(dataset, split);
    if (first < 0 || count < 0 || first > total || count > total - first)
        return SHOAL_FAIL(SHOAL_EINVAL, "tokens [%lld, %lld + %lld) are outside the part of %lld",
                          (long long)first, (long long)first, (long long)count, (long long)total);
    load(dataset, dataset->cut[split] + first, count, tokens);
    return SHOAL_OK;
}

uint64_t shoal_dataset_fingerprint(const shoal_dataset *dataset)
{
    return dataset->fingerprint;
}

static void count_tokens(const shoal_dataset *dataset, shoal_split split, int64_t *counts)
{
    int32_t token;
    for (int64_t i = dataset->cut[split]; i < dataset->cut[split + 1]; i++) {
        load(dataset, i, 1, &token);
        counts[token]++;
    }
}

shoal_status shoal_dataset_unigram_entropy(const shoal_dataset *dataset, shoal_split split,
                                           double *nats_per_token)
{
    int64_t n = shoal_dataset_token_count(dataset, split);
    int64_t train = shoal_dataset_token_count(dataset, SHOAL_SPLIT_TRAIN);
    size_t vocab = (size_t)dataset->vocab_size;
    if (n == 0 || train == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "unigram entropy: the %s part has no tokens",
                          n == 0 ? split_names[(unsigned)split % SHOAL_SPLIT_COUNT] : "train");
    int64_t *counts = shoali_calloc(2 * vocab, sizeof(*counts), "token counts");
    if (!counts)
        return SHOAL_ENOMEM;
    count_tokens(dataset, SHOAL_SPLIT_TRAIN, counts);
    count_tokens(dataset, split, counts + vocab);
    int64_t extra = 0;
    for (size_t v = 0; v < vocab; v++)
        if (counts[v] == 0 && counts[vocab + v] > 0)
            extra = 1;
    double sum = 0, all = (double)train + (double)extra * (double)vocab;
    for (size_t v = 0; v < vocab; v++)
        if (counts[vocab + v] > 0)
            sum -= (double)counts[vocab + v] * shoali_ln((double)(counts[v] + extra) / all);
    *nats_per_token = sum / (double)n;
    shoali_free(counts);
    return SHOAL_OK;
}
