/* shoal preprocess: JSON lines to Megatron's data files. */
#include "tokenizer_flags.h"
#include "tool.h"

#include "base/config_table.h"
#include "base/str.h"
#include "shoal/indexed.h"
#include "shoal/preprocess.h"

#include <stdio.h>
#include <string.h>

struct options {
    struct shoali_strings input, json_keys, merge;
    const char *output_prefix;
    bool append_eod, keep_sequential_samples, split_sentences, keep_newlines;
    int64_t vocab_size, eod, workers, partitions, log_interval;
    uint64_t given[SHOALI_GIVEN_WORDS];
    struct tokenizer_flags tokenizer;
};

#define O(member) offsetof(struct options, member)

static const struct shoali_option rows[] = {
    {.key = "input",
     .type = SHOALI_STRINGS,
     .offset = O(input),
     .help = "files of JSON lines (.gz: compressed), patterns in quotes, or - for standard input"},
    {.key = "output-prefix",
     .type = SHOALI_STRING,
     .offset = O(output_prefix),
     .flags = SHOALI_OPTION_REQUIRED,
     .help = "names the result: PREFIX_KEY_document.bin, .idx and .tokens.json (with "
             "--split-sentences PREFIX_KEY_sentence...)"},
    {.key = "json-keys",
     .type = SHOALI_STRINGS,
     .offset = O(json_keys),
     .default_text = "text",
     .help = "keys of the texts; each becomes files of its own"},
    {.key = "vocab-size",
     .type = SHOALI_INT,
     .offset = O(vocab_size),
     .min = 0,
     .max = INT32_MAX,
     .help = "of NullTokenizer and TikTokenizer"},
    {.key = "append-eod",
     .type = SHOALI_BOOL,
     .offset = O(append_eod),
     .help = "end each document with a token"},
    {.key = "eod-id",
     .type = SHOALI_INT,
     .offset = O(eod),
     .default_number = -1,
     .min = 0,
     .max = INT32_MAX,
     .help = "that token, where the tokenizer has none of its own"},
    {.key = "workers",
     .type = SHOALI_INT,
     .offset = O(workers),
     .min = 0,
     .max = 1024,
     .help = "threads that encode; 0: as many as cores. The result is the same"},
    {.key = "partitions",
     .type = SHOALI_INT,
     .offset = O(partitions),
     .default_number = 1,
     .min = 1,
     .max = 1 << 20,
     .help = "accepted with --keep-sequential-samples, by which the result is the input's order"},
    {.key = "keep-sequential-samples",
     .type = SHOALI_BOOL,
     .offset = O(keep_sequential_samples),
     .help = "documents stay in the order of the input, as they always do"},
    {.key = "log-interval",
     .type = SHOALI_INT,
     .offset = O(log_interval),
     .default_number = 1000,
     .min = 1,
     .max = 1e15,
     .unit = "documents",
     .help = "between two lines of progress on standard error"},
    {.key = "merge",
     .type = SHOALI_STRINGS,
     .offset = O(merge),
     .help = "instead of --input: prefixes of data files, whose documents PREFIX.bin and .idx will "
             "hold one after the other"},
    {.key = "split-sentences",
     .type = SHOALI_BOOL,
     .offset = O(split_sentences),
     .help = "a sequence of each sentence, as BERT's samples need it, instead of each text"},
    {.key = "keep-newlines",
     .type = SHOALI_BOOL,
     .offset = O(keep_newlines),
     .help = "with --split-sentences: the space behind a sentence belongs to it"},
    {.key = "lang",
     .type = SHOALI_STRING,
     .state = SHOALI_NOEFFECT,
     .flags = SHOALI_OPTION_HIDDEN,
     .help = "Sentences are split by one rule for all languages."},
};
static const struct shoali_section section = {.name = "preprocess",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct options),
                                              .given_offset = O(given)};

static shoal_status check(const struct options *options)
{
    if (options->merge.count && options->input.count)
        return SHOAL_FAIL(SHOAL_EINVAL, "--input and --merge exclude each other: give one of both");
    if (!options->merge.count && !options->input.count)
        return SHOAL_FAIL(SHOAL_EINVAL, "--input must be given: files of JSON lines, or -");
    if (options->partitions > 1 && !options->keep_sequential_samples)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "--partitions %lld would deal the lines out in turn, which is not "
                          "supported: add --keep-sequential-samples (partitions are not needed for "
                          "speed, --workers is)",
                          (long long)options->partitions);
    return SHOAL_OK;
}

static void show_progress(void *user, int64_t documents, int64_t text_bytes, double seconds)
{
    const double time = seconds > 0 ? seconds : 1e-9;
    (void)user;
    fprintf(stderr, "Processed %lld documents (%.1f docs/s, %.1f MB/s).\n", (long long)documents,
            (double)documents / time, (double)text_bytes / time / 1048576);
}

static shoal_status preprocess(const struct options *options)
{
    shoal_status status;
    shoal_tokenizer *tokenizer = NULL;
    shoal_preprocess_info info;
    SHOAL_TRY(status, tokenizer_flags_load(&options->tokenizer, options->vocab_size, &tokenizer),
              done);
    const shoal_preprocess_args args = {.inputs = options->input.value,
                                        .input_count = options->input.count,
                                        .output_prefix = options->output_prefix,
                                        .json_keys = options->json_keys.value,
                                        .json_key_count = options->json_keys.count,
                                        .use_tokenizer = tokenizer,
                                        .tokenizer = options->tokenizer.type,
                                        .workers = (int32_t)options->workers,
                                        .append_eod = options->append_eod,
                                        .eod_given = options->eod >= 0,
                                        .eod_token = (int32_t)options->eod,
                                        .log_interval = options->log_interval,
                                        .progress = show_progress,
                                        .split_sentences = options->split_sentences,
                                        .keep_newlines = options->keep_newlines};
    SHOAL_TRY(status, shoal_preprocess(&args, &info), done);
    printf("%lld documents, %lld tokens in %.1f s (%.1f MB/s)\n", (long long)info.documents,
           (long long)info.tokens, info.seconds,
           (double)(info.text_bytes - info.resumed_bytes) /
               (info.seconds > 0 ? info.seconds : 1e-9) / 1048576);
    for (int32_t k = 0; k < options->json_keys.count; k++)
        printf("data files: %s_%s_%s.bin, .idx\n", options->output_prefix,
               options->json_keys.value[k], options->split_sentences ? "sentence" : "document");
done:
    shoal_tokenizer_destroy(tokenizer);
    return status;
}

static shoal_status merge(const struct options *options)
{
    shoal_status status;
    shoal_indexed_info info;
    SHOAL_TRY(
        status,
        shoal_indexed_merge(options->merge.value, options->merge.count, options->output_prefix),
        done);
    SHOAL_TRY(status, shoal_indexed_inspect(options->output_prefix, &info), done);
    printf("%lld documents, %lld tokens of type %s\ndata files: %s.bin, .idx\n",
           (long long)info.document_count, (long long)info.token_count, info.dtype,
           options->output_prefix);
done:
    return status;
}

int tool_preprocess(int argc, char **argv)
{
    shoal_status status;
    struct options options;
    struct shoali_arena arena;
    const struct shoali_flags tables[] = {{&section, &options},
                                          {&tokenizer_flags_section, &options.tokenizer}};
    const struct shoali_flag_args args = {
        .command = "shoal preprocess", .tables = tables, .table_count = 2};
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_config_defaults(&section, &options, &arena), done);
    SHOAL_TRY(status, shoali_config_defaults(&tokenizer_flags_section, &options.tokenizer, &arena),
              done);
    SHOAL_TRY(status, shoali_flags_parse(&args, argc, argv, &arena, NULL), done);
    if (status == SHOAL_END) {
        struct shoali_str text = {0};
        shoali_flags_help(&args, &text);
        printf("usage: shoal preprocess --input FILE... --output-prefix PREFIX [flags]\n"
               "       shoal preprocess --merge PREFIX... --output-prefix PREFIX\n\n"
               "Makes Megatron's data files of JSON lines, for shoal pretrain --data-path PREFIX. "
               "After an\ninterruption the same command goes on.\n\n%s",
               shoali_str_get(&text));
        shoali_str_fini(&text);
        goto done;
    }
    SHOAL_TRY(status, check(&options), done);
    SHOAL_TRY(status, options.merge.count ? merge(&options) : preprocess(&options), done);
done:;
    const int code = status < 0 ? tool_fail(status) : tool_flush();
    shoali_arena_fini(&arena);
    return code;
}
