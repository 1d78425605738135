/* shoal preprocess: JSON lines to Megatron's data files. */
#include "flags/flags.h"
#include "flags/tokenizer.h"
#include "tool.h"

#include "base/config_table.h"
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

#define OPTION(key, type, member, ...) SHOALI_OPTION(struct options, key, type, member, __VA_ARGS__)

static const struct shoali_option rows[] = {
    OPTION("input", STRINGS, input,
           .help =
               "files of JSON lines (.gz: compressed), quoted patterns of names, or - for standard "
               "input"),
    OPTION("output-prefix", STRING, output_prefix, .flags = SHOALI_OPTION_REQUIRED,
           .help =
               "prefix of the output files PREFIX_KEY_document.bin, .idx and .tokens.json; with "
               "--split-sentences PREFIX_KEY_sentence..."),
    OPTION("json-keys", STRINGS, json_keys, .default_text = "text",
           .help = "JSON keys of the texts; each key gets its own output files"),
    OPTION("vocab-size", INT, vocab_size, .min = 1, .max = INT32_MAX,
           .help = "size of the vocabulary of NullTokenizer and TikTokenizer"),
    OPTION("append-eod", BOOL, append_eod,
           .help = "end each document with the end-of-document token"),
    OPTION("eod-id", INT, eod, .default_number = -1, .min = 0, .max = INT32_MAX,
           .help = "end-of-document token, for tokenizers that have none"),
    OPTION("workers", INT, workers, .min = 0, .max = 1024,
           .help = "threads that encode; 0: one per core; they do not change the output"),
    OPTION("partitions", INT, partitions, .default_number = 1, .min = 1, .max = 1 << 20,
           .help = "accepted for compatibility; more than 1 needs --keep-sequential-samples"),
    OPTION("keep-sequential-samples", BOOL, keep_sequential_samples,
           .help = "keep documents in the order of the input; always on"),
    OPTION("log-interval", INT, log_interval, .default_number = 1000, .min = 1, .max = 1e15,
           .unit = "documents", .help = "documents between progress lines on standard error"),
    OPTION("merge", STRINGS, merge,
           .help =
               "prefixes of data files to concatenate into PREFIX.bin and PREFIX.idx, instead of "
               "--input"),
    OPTION("split-sentences", BOOL, split_sentences,
           .help = "make each sentence a sequence, as BERT's samples need, instead of each text"),
    OPTION("keep-newlines", BOOL, keep_newlines,
           .help = "keep the white space after a sentence in that sentence; for --split-sentences"),
    {.key = "lang",
     .type = SHOALI_STRING,
     .state = SHOALI_NOEFFECT,
     .flags = SHOALI_OPTION_HIDDEN,
     .help = "Sentences are split by one rule for all languages."},
};
static const struct shoali_section section = {.name = "preprocess",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct options),
                                              .given_offset = offsetof(struct options, given)};

static shoal_status check(const struct options *options)
{
    if (options->merge.count && options->input.count)
        return SHOAL_FAIL(SHOAL_EINVAL, "--input and --merge exclude each other: give one of them");
    if (!options->merge.count && !options->input.count)
        return SHOAL_FAIL(SHOAL_EINVAL, "--input must be given: files of JSON lines, or -");
    if (options->partitions > 1 && !options->keep_sequential_samples)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "--partitions %lld without --keep-sequential-samples would reorder "
                          "documents, which is not supported: add it (for speed use --workers)",
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

static const char usage[] =
    "usage: shoal preprocess --input FILE... --output-prefix PREFIX [flags]\n"
    "       shoal preprocess --merge PREFIX... --output-prefix PREFIX\n\n"
    "Makes Megatron's data files from JSON lines, for `shoal pretrain --data-path PREFIX`. After "
    "an\n"
    "interruption, the same command continues.\n\n";

int tool_preprocess(int argc, char **argv)
{
    shoal_status status;
    struct options options;
    struct shoali_arena arena;
    const struct shoali_flags tables[] = {{&section, &options},
                                          {&tokenizer_flags_section, &options.tokenizer}};
    struct shoali_help help = {0};
    const struct shoali_flag_args args = {
        .command = "shoal preprocess", .tables = tables, .table_count = 2, .help = &help};
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_config_defaults(&section, &options, &arena), done);
    SHOAL_TRY(status, shoali_config_defaults(&tokenizer_flags_section, &options.tokenizer, &arena),
              done);
    SHOAL_TRY(status, shoali_flags_parse(&args, argc, argv, &arena, NULL), done);
    if (status == SHOAL_END) {
        status = tool_print_flags(usage, &args);
        goto done;
    }
    SHOAL_TRY(status, check(&options), done);
    SHOAL_TRY(status, options.merge.count ? merge(&options) : preprocess(&options), done);
done:;
    const int code = status < 0 ? tool_fail(status) : tool_flush();
    shoali_arena_fini(&arena);
    return code;
}
