/* shoal tokenizer train|encode|decode|inspect */
#include "flags/flags.h"
#include "tool.h"

#include "base/arena.h"
#include "base/beginning.h"
#include "base/config_table.h"
#include "base/str.h"
#include "base/waiting.h"
#include "shoal/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "usage: shoal tokenizer encode  TOKENIZER [FILE] [flags]   text to token numbers\n"
    "       shoal tokenizer decode  TOKENIZER [FILE] [flags]   token numbers to text\n"
    "       shoal tokenizer inspect TOKENIZER [flags]          type, sizes and special tokens\n"
    "       shoal tokenizer train   FILE... --output TOKENIZER.json --vocab-size N\n\n"
    "TOKENIZER is a tokenizer.json, a vocab.json in the same folder as merges.txt, a "
    "SentencePiece\n"
    "model, tiktoken ranks, a folder with one of these files, or the word byte. Without FILE, "
    "standard\n"
    "input is read.\n\n";

struct options {
    const char *type, *vocab_file, *merge_file, *pattern, *output;
    bool lines, post_process, count, skip_special, tokens, data_text;
    int64_t vocab_size, min_frequency, threads;
    struct shoali_strings special;
};
#define OPTION(key, type, member, ...) SHOALI_OPTION(struct options, key, type, member, __VA_ARGS__)
static const struct shoali_option rows[] = {
    OPTION("tokenizer-type", STRING, type,
           .help = "Megatron's name of the tokenizer type; default: detected from the file"),
    OPTION("vocab-file", STRING, vocab_file,
           .help = "vocabulary of GPT2BPETokenizer or BertWordPiece..., instead of TOKENIZER"),
    OPTION("merge-file", STRING, merge_file, .help = "merges of GPT2BPETokenizer"),
    OPTION("pattern", STRING, pattern,
           .help =
               "pattern that splits text into words; train: gpt2, llama3 or qwen2; tiktoken ranks: "
               "gpt2, cl100k, o200k, v1, v2 or a regular expression"),
    OPTION("lines", BOOL, lines,
           .help = "encode or decode each line by itself: a line of numbers per line of text"),
    OPTION("post-process", BOOL, post_process,
           .help = "encode: add the tokens that the post-processor puts around a text"),
    OPTION("count", BOOL, count,
           .help = "encode: print the number of tokens and the speed instead of the tokens"),
    OPTION("skip-special-tokens", BOOL, skip_special, .help = "decode: leave special tokens out"),
    OPTION("tokens", BOOL, tokens, .help = "inspect: list every token with its number"),
    OPTION("output", STRING, output, .help = "train: file to write, a tokenizer.json"),
    OPTION(
        "vocab-size", INT, vocab_size, .min = 1, .max = 1 << 24, .unit = "tokens",
        .help =
            "train and NullTokenizer: size of the vocabulary, bytes and special tokens included"),
    OPTION("min-frequency", INT, min_frequency, .min = 0, .max = 1e15,
           .help = "train: occurrences that a pair needs to become a token"),
    OPTION("special-tokens", STRINGS, special, .default_text = "<|endoftext|>",
           .help =
               "train: special tokens, which no text is encoded to; they get the first numbers"),
    OPTION("data-text", BOOL, data_text,
           .help = "train: take JSON files as text, with braces and keys"),
    OPTION("threads", INT, threads, .min = 0, .max = 4096,
           .help =
               "train: threads that count words; 0: one per core; they do not change the result"),
};
static const struct shoali_section section = {.name = "tokenizer",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct options),
                                              .given_offset = SIZE_MAX};

/* ---- input and output ---- */

static shoal_status read_stream(FILE *stream, const char *name, struct shoali_str *text)
{
    char buffer[1 << 16];
    size_t count;
    errno = 0;
    while ((count = fread(buffer, 1, sizeof buffer, stream)) > 0)
        shoali_str_append_bytes(text, buffer, count);
    if (ferror(stream))
        return shoali_fail(SHOALI_HERE, SHOAL_EIO, "%s: %s", name, strerror(errno));
    if (text->failed)
        return shoali_fail(SHOALI_HERE, SHOAL_ENOMEM, "%s does not fit into memory", name);
    return SHOAL_OK;
}

static shoal_status read_file(const char *path, struct shoali_str *text)
{
    if (!path)
        return read_stream(stdin, "standard input", text);
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return shoali_fail(SHOALI_HERE, shoali_path_status(errno), "%s: %s", path, strerror(errno));
    shoal_status status = read_stream(stream, path, text);
    (void)fclose(stream);
    if (status == SHOAL_OK)
        status = shoali_beginning_lfs(path, shoali_str_get(text), text->length);
    return status;
}

static shoal_status read_input(const char *path, struct shoali_str *text)
{
    struct shoali_waiting_aloud *aloud = shoali_waiting_pipe_begin(path ? path : "-");
    const shoal_status status = read_file(path, text);
    shoali_waiting_aloud_end(aloud);
    return status;
}

static shoal_status open_tokenizer(const struct options *options, const char *path,
                                   shoal_tokenizer **tokenizer)
{
    const bool byte = path && strcmp(path, "byte") == 0;
    const shoal_tokenizer_args args = {.type = byte ? "byte" : options->type,
                                       .path = path,
                                       .vocab_file = options->vocab_file,
                                       .merge_file = options->merge_file,
                                       .vocab_size = options->vocab_size,
                                       .pattern = options->pattern};
    return shoal_tokenizer_load(&args, tokenizer);
}

/* ---- encode ---- */

struct numbers {
    int32_t *token;
    int64_t capacity, count;
};

static shoal_status encode(const shoal_tokenizer *tokenizer, bool post, const char *text,
                           size_t bytes, struct numbers *numbers)
{
    shoal_status status = shoal_tokenizer_encode(tokenizer, text, bytes, numbers->token,
                                                 numbers->capacity, &numbers->count);
    if (status >= 0 && numbers->count > numbers->capacity) {
        int32_t *more = realloc(numbers->token, (size_t)numbers->count * sizeof *more);
        if (!more)
            return shoali_fail(SHOALI_HERE, SHOAL_ENOMEM, "cannot allocate %lld tokens",
                               (long long)numbers->count);
        numbers->token = more;
        numbers->capacity = numbers->count;
        status = shoal_tokenizer_encode(tokenizer, text, bytes, numbers->token, numbers->capacity,
                                        &numbers->count);
    }
    if (status < 0 || !post)
        return status;
    struct numbers out = {0};
    SHOAL_TRY(status,
              shoal_tokenizer_post_process(tokenizer, numbers->token, numbers->count, NULL, 0,
                                           &out.capacity),
              done);
    out.token = malloc((size_t)out.capacity * sizeof *out.token + 1);
    if (!out.token)
        return shoali_fail(SHOALI_HERE, SHOAL_ENOMEM, "cannot allocate %lld tokens",
                           (long long)out.capacity);
    SHOAL_TRY(status,
              shoal_tokenizer_post_process(tokenizer, numbers->token, numbers->count, out.token,
                                           out.capacity, &out.count),
              done);
    free(numbers->token);
    *numbers = out;
done:
    return status;
}

static void print_numbers(const struct numbers *numbers)
{
    for (int64_t i = 0; i < numbers->count; i++)
        printf("%s%d", i > 0 ? " " : "", numbers->token[i]);
    putchar('\n');
}

/* Parts of the input: lines, or the whole. */
static shoal_status encode_parts(const shoal_tokenizer *tokenizer, const struct options *options,
                                 const struct shoali_str *text, int64_t *total)
{
    shoal_status status = SHOAL_OK;
    struct numbers numbers = {.capacity = (int64_t)text->length / 2 + 1024};
    numbers.token = malloc((size_t)numbers.capacity * sizeof *numbers.token);
    if (!numbers.token)
        return shoali_fail(SHOALI_HERE, SHOAL_ENOMEM, "cannot allocate %lld tokens",
                           (long long)numbers.capacity);
    const char *begin = shoali_str_get(text), *end = begin + text->length;
    for (const char *at = begin, *next; at < end || at == begin; at = next) {
        const char *line_end = options->lines ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        next = line_end ? line_end + 1 : end;
        status = encode(tokenizer, options->post_process, at,
                        (size_t)((line_end ? line_end : end) - at), &numbers);
        if (status < 0)
            break;
        *total += numbers.count;
        if (!options->count)
            print_numbers(&numbers);
        if (next == begin)
            break;
    }
    free(numbers.token);
    return status;
}

static double core_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static shoal_status run_encode(const struct options *options, const char *path, const char *file)
{
    shoal_status status;
    shoal_tokenizer *tokenizer = NULL;
    struct shoali_str text = {0};
    int64_t total = 0;
    SHOAL_TRY(status, open_tokenizer(options, path, &tokenizer), done);
    SHOAL_TRY(status, read_input(file, &text), done);
    /* of this core alone, whatever else the machine does */
    const double begin = core_seconds();
    SHOAL_TRY(status, encode_parts(tokenizer, options, &text, &total), done);
    const double seconds = core_seconds() - begin;
    if (options->count)
        printf("%lld tokens of %zu bytes (%.2f bytes each), %.1f MB/s per core\n", (long long)total,
               text.length, total > 0 ? (double)text.length / (double)total : 0.0,
               seconds > 0 ? (double)text.length * 1e-6 / seconds : 0.0);
done:
    shoali_str_fini(&text);
    shoal_tokenizer_destroy(tokenizer);
    return status;
}

/* ---- decode ---- */

/* The numbers of a line; any white space or commas between them. */
static shoal_status parse_numbers(const shoal_tokenizer *tokenizer, const struct options *options,
                                  const char *at, const char *end, struct numbers *numbers)
{
    numbers->count = 0;
    while (at < end) {
        char *stop;
        if (strchr(" \t\r\n,", *at)) {
            at++;
            continue;
        }
        errno = 0;
        const long long value = strtoll(at, &stop, 10);
        if (stop == at || errno || value < 0 || value > INT32_MAX)
            return shoali_fail(SHOALI_HERE, SHOAL_EINVAL,
                               "`%.*s` is not a token number: give numbers with spaces between "
                               "them",
                               (int)(end - at > 20 ? 20 : end - at), at);
        at = stop;
        const int32_t id = (int32_t)value;
        if (!options->skip_special || !shoal_tokenizer_is_special(tokenizer, id))
            numbers->token[numbers->count++] = id;
    }
    return SHOAL_OK;
}

static shoal_status print_text(const shoal_tokenizer *tokenizer, const struct numbers *numbers,
                               bool line)
{
    shoal_status status;
    size_t bytes = 0;
    char *text = NULL;
    SHOAL_TRY(status,
              shoal_tokenizer_decode(tokenizer, numbers->token, numbers->count, NULL, 0, &bytes),
              done);
    text = malloc(bytes + 1);
    if (!text)
        return shoali_fail(SHOALI_HERE, SHOAL_ENOMEM, "cannot allocate %zu bytes", bytes);
    SHOAL_TRY(
        status,
        shoal_tokenizer_decode(tokenizer, numbers->token, numbers->count, text, bytes, &bytes),
        done);
    (void)fwrite(text, 1, bytes, stdout);
    if (line)
        putchar('\n');
done:
    free(text);
    return status;
}

static shoal_status run_decode(const struct options *options, const char *path, const char *file)
{
    shoal_status status;
    shoal_tokenizer *tokenizer = NULL;
    struct shoali_str text = {0};
    struct numbers numbers = {0};
    SHOAL_TRY(status, open_tokenizer(options, path, &tokenizer), done);
    SHOAL_TRY(status, read_input(file, &text), done);
    numbers.token = malloc((text.length / 2 + 2) * sizeof *numbers.token);
    if (!numbers.token) {
        status = shoali_fail(SHOALI_HERE, SHOAL_ENOMEM, "cannot allocate the tokens");
        goto done;
    }
    const char *begin = shoali_str_get(&text), *end = begin + text.length;
    for (const char *at = begin, *next; at < end; at = next) {
        const char *line_end = options->lines ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        next = line_end ? line_end + 1 : end;
        SHOAL_TRY(status, parse_numbers(tokenizer, options, at, next, &numbers), done);
        SHOAL_TRY(status, print_text(tokenizer, &numbers, options->lines), done);
    }
done:
    free(numbers.token);
    shoali_str_fini(&text);
    shoal_tokenizer_destroy(tokenizer);
    return status;
}

/* ---- inspect, train ---- */

static shoal_status run_inspect(const struct options *options, const char *path, const char *file)
{
    shoal_status status;
    shoal_tokenizer *tokenizer = NULL;
    char *text = NULL;
    (void)file;
    SHOAL_TRY(status, open_tokenizer(options, path, &tokenizer), done);
    SHOAL_TRY(status, shoal_tokenizer_describe(tokenizer, &text), done);
    (void)fputs(text, stdout);
    for (int32_t id = 0; options->tokens && id < shoal_tokenizer_vocab_size(tokenizer); id++) {
        const char *token = shoal_tokenizer_token(tokenizer, id);
        if (token)
            printf("%d\t%s\n", id, token);
    }
done:
    free(text);
    shoal_tokenizer_destroy(tokenizer);
    return status;
}

static shoal_status run_train(const struct options *options, const struct shoali_strings *files)
{
    shoal_status status;
    shoal_tokenizer *tokenizer = NULL;
    const shoal_tokenizer_train_args args = {.paths = files->value,
                                             .path_count = files->count,
                                             .vocab_size = options->vocab_size,
                                             .min_frequency = options->min_frequency,
                                             .pattern = options->pattern,
                                             .special_tokens = options->special.value,
                                             .special_count = options->special.count,
                                             .threads = (int32_t)options->threads,
                                             .data_text = options->data_text};
    if (!options->output)
        return shoali_fail(SHOALI_HERE, SHOAL_EINVAL,
                           "shoal tokenizer train: --output must be given: file to write, a "
                           "tokenizer.json");
    SHOAL_TRY(status, shoal_tokenizer_train(&args, &tokenizer), done);
    const char *json = shoal_tokenizer_json(tokenizer);
    SHOAL_TRY(status, shoali_write_file_atomic(options->output, json, strlen(json)), done);
    printf("%s: %d tokens\n", options->output, shoal_tokenizer_vocab_size(tokenizer));
done:
    shoal_tokenizer_destroy(tokenizer);
    return status;
}

/* ---- the command ---- */

struct command {
    const char *name;
    shoal_status (*run)(const struct options *options, const char *path, const char *file);
    int32_t words; /* at most, TOKENIZER included */
};
static const struct command commands[] = {
    {"encode", run_encode, 2}, {"decode", run_decode, 2}, {"inspect", run_inspect, 1}};

static int finish(shoal_status status)
{
    const int code = tool_flush();
    return status < 0 ? tool_fail(status) : code;
}

static int run_command(const char *name, const struct options *options,
                       const struct shoali_strings *words)
{
    if (strcmp(name, "train") == 0)
        return finish(run_train(options, words));
    /* Flags may name the files instead of a first word. */
    const bool by_flags = options->vocab_file || (options->type && strstr(options->type, "Null"));
    const int32_t skip = by_flags ? 0 : 1;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) != 0)
            continue;
        if (words->count < skip || words->count > commands[i].words - 1 + skip) {
            fprintf(stderr, "shoal tokenizer %s: give %s%s, got %d words\n", name,
                    skip ? "TOKENIZER" : "flags",
                    commands[i].words > 1 ? " and at most one FILE" : "", words->count);
            return 2;
        }
        return finish(commands[i].run(options, skip ? words->value[0] : NULL,
                                      words->count > skip ? words->value[skip] : NULL));
    }
    fprintf(stderr,
            "shoal tokenizer: unknown command \"%s\"; the commands are encode, decode, "
            "inspect, train\n",
            name);
    return 2;
}

int tool_tokenizer(int argc, char **argv)
{
    struct options options = {0};
    struct shoali_strings words = {0};
    struct shoali_arena arena;
    const struct shoali_flags table = {.section = &section, .config = &options};
    struct shoali_help help = {0};
    const struct shoali_flag_args args = {
        .command = "shoal tokenizer", .tables = &table, .table_count = 1, .help = &help};
    int code = 2;
    if (argc < 2) {
        fprintf(stderr, "%.*s", (int)sizeof usage - 2, usage);
        return 2;
    }
    shoali_arena_init(&arena);
    shoal_status status = shoali_config_defaults(&section, &options, &arena);
    if (status >= 0)
        status = tool_wants_help(argc, argv, &help)
                     ? SHOAL_END
                     : shoali_flags_parse(&args, argc - 1, argv + 1, &arena, &words);
    if (status == SHOAL_END) {
        status = tool_print_flags(usage, &args);
        code = status < 0 ? tool_fail(status) : tool_flush();
    } else {
        code = status < 0 ? tool_fail(status) : run_command(argv[1], &options, &words);
    }
    shoali_arena_fini(&arena);
    return code;
}
