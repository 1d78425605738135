/* shoal generate: text from a checkpoint. */
#include "tool.h"

#include "base/config_table.h"
#include "base/str.h"
#include "shoal/inference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate_options {
    const char *load, *load_tag, *prompt;
    int64_t num_tokens, top_k, seed, threads;
    double temperature;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
#define O(member) offsetof(struct generate_options, member)
static const struct shoali_option rows[] = {
    {.key = "load",
     .type = SHOALI_STRING,
     .offset = O(load),
     .flags = SHOALI_OPTION_REQUIRED,
     .help = "folder with checkpoints of `shoal pretrain`"},
    {.key = "load-tag",
     .type = SHOALI_STRING,
     .offset = O(load_tag),
     .help = "the checkpoint of that folder; default: the latest"},
    {.key = "prompt",
     .type = SHOALI_STRING,
     .offset = O(prompt),
     .default_text = "\n",
     .help = "text to continue; - reads standard input"},
    {.key = "num-tokens",
     .type = SHOALI_INT,
     .offset = O(num_tokens),
     .default_number = 300,
     .min = 0,
     .max = 1e9,
     .help = "tokens to write"},
    {.key = "temperature",
     .type = SHOALI_FLOAT,
     .offset = O(temperature),
     .default_number = 1.0,
     .min = 0,
     .max = 1e6,
     .help = "below 1: likelier tokens gain; 0: always the likeliest"},
    {.key = "top-k",
     .type = SHOALI_INT,
     .offset = O(top_k),
     .min = 0,
     .max = 1e9,
     .help = "draw among the k likeliest tokens; 0: all, 1: always the likeliest"},
    {.key = "seed",
     .type = SHOALI_INT,
     .offset = O(seed),
     .default_number = 1234,
     .min = 0,
     .max = 1e15,
     .help = "of the draws"},
    {.key = "threads",
     .type = SHOALI_INT,
     .offset = O(threads),
     .min = 0,
     .max = 4096,
     .help = "0: all cores"},
};
static const struct shoali_section section = {.name = "generate",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct generate_options),
                                              .given_offset = O(given)};

static shoal_status parse(struct generate_options *options, int argc, char **argv,
                          struct shoali_arena *arena)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_config_defaults(&section, options, arena), done);
    const struct shoali_flags table = {&section, options};
    const struct shoali_flag_args args = {
        .command = "shoal generate", .tables = &table, .table_count = 1};
    status = shoali_flags_parse(&args, argc, argv, arena, NULL);
    if (status == SHOAL_END) {
        struct shoali_str text = {0};
        shoali_flags_help(&args, &text);
        printf(
            "usage: shoal generate --load DIR [flags]\n\nWrites a continuation of a prompt.\n\n%s",
            shoali_str_get(&text));
        shoali_str_fini(&text);
    }
done:
    return status;
}

static shoal_status read_prompt(const struct generate_options *options, struct shoali_str *prompt)
{
    char piece[4096];
    size_t bytes;
    if (strcmp(options->prompt, "-") != 0) {
        shoali_str_append(prompt, "%s", options->prompt);
        return SHOAL_OK;
    }
    while ((bytes = fread(piece, 1, sizeof piece, stdin)) > 0)
        shoali_str_append_bytes(prompt, piece, bytes);
    if (ferror(stdin))
        return SHOAL_FAIL(SHOAL_EIO, "cannot read the prompt from standard input");
    return SHOAL_OK;
}

/* Text so far. What a token adds depends on the one before it: a first token has no space. */
struct printing {
    const shoal_tokenizer *tokenizer;
    int32_t last; /* -1: none */
};

/* The text of some tokens; *text is owned. */
static shoal_status decode(const shoal_tokenizer *tokenizer, const int32_t *tokens, int64_t count,
                           char **text, size_t *bytes)
{
    shoal_status status;
    *text = NULL;
    SHOAL_TRY(status, shoal_tokenizer_decode(tokenizer, tokens, count, NULL, 0, bytes), done);
    *text = malloc(*bytes + 1);
    if (!*text)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of %lld tokens",
                          (long long)count);
    SHOAL_TRY(status, shoal_tokenizer_decode(tokenizer, tokens, count, *text, *bytes, bytes), done);
done:
    return status;
}

static shoal_status print_token(void *user, int32_t token)
{
    shoal_status status;
    struct printing *printing = user;
    const int32_t tokens[] = {printing->last, token};
    const int begin = printing->last < 0;
    char *text = NULL;
    size_t bytes, before = 0;
    if (!begin)
        SHOAL_TRY(status, shoal_tokenizer_decode(printing->tokenizer, tokens, 1, NULL, 0, &before),
                  done);
    SHOAL_TRY(status, decode(printing->tokenizer, tokens + begin, 2 - begin, &text, &bytes), done);
    before = before < bytes ? before : bytes;
    if (fwrite(text + before, 1, bytes - before, stdout) != bytes - before || fflush(stdout) == EOF)
        status = SHOAL_FAIL(SHOAL_EIO, "cannot write to standard output");
    printing->last = token;
done:
    free(text);
    return status;
}

/* *tokens is owned. */
static shoal_status encode(const shoal_tokenizer *tokenizer, const struct shoali_str *prompt,
                           int32_t **tokens, int64_t *count)
{
    shoal_status status;
    const char *text = shoali_str_get(prompt);
    *tokens = NULL;
    SHOAL_TRY(status, shoal_tokenizer_encode(tokenizer, text, prompt->length, NULL, 0, count),
              done);
    *tokens = malloc((size_t)(*count + 1) * sizeof **tokens);
    if (!*tokens)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the prompt");
    SHOAL_TRY(status,
              shoal_tokenizer_encode(tokenizer, text, prompt->length, *tokens, *count, count),
              done);
done:
    return status;
}

static shoal_status generate(const struct generate_options *options, shoal_generator *generator,
                             const struct shoali_str *prompt)
{
    shoal_status status;
    struct printing printing = {.tokenizer = shoal_generator_tokenizer(generator), .last = -1};
    int32_t *tokens = NULL;
    int64_t count;
    SHOAL_TRY(status, encode(printing.tokenizer, prompt, &tokens, &count), done);
    if (count > 0)
        printing.last = tokens[count - 1];
    if (fwrite(shoali_str_get(prompt), 1, prompt->length, stdout) != prompt->length) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot write to standard output");
        goto done;
    }
    SHOAL_TRY(status,
              shoal_generate(generator,
                             &(shoal_sample_args){.prompt = tokens,
                                                  .prompt_count = count,
                                                  .num_tokens = options->num_tokens,
                                                  .temperature = options->temperature,
                                                  .top_k = options->top_k,
                                                  .seed = (uint64_t)options->seed},
                             print_token, &printing),
              done);
    putchar('\n');
done:
    free(tokens);
    return status;
}

int tool_generate(int argc, char **argv)
{
    shoal_status status;
    struct generate_options options;
    struct shoali_arena arena;
    struct shoali_str prompt = {0};
    shoal_generator *generator = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, parse(&options, argc, argv, &arena), done);
    if (status == SHOAL_END)
        goto done;
    SHOAL_TRY(status, read_prompt(&options, &prompt), done);
    SHOAL_TRY(status,
              shoal_generator_create(&(shoal_generator_args){.load = options.load,
                                                             .tag = options.load_tag,
                                                             .threads = (int32_t)options.threads},
                                     &generator),
              done);
    SHOAL_TRY(status, generate(&options, generator, &prompt), done);
done:;
    const int code = status < 0 && !ferror(stdout) ? tool_fail(status) : tool_flush();
    shoal_generator_destroy(generator);
    shoali_str_fini(&prompt);
    shoali_arena_fini(&arena);
    return code;
}
