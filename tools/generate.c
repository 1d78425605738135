/* shoal generate: text from a checkpoint, or from a folder of weights that others have written. */
#include "flags/flags.h"
#include "tool.h"

#include "base/str.h"
#include "flags/mesh.h"
#include "shoal/inference.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generate_options {
    const char *load, *load_tag, *model_config, *prompt, *print_logits;
    struct shoali_ints prompt_tokens;
    bool print_tokens, ignore_eos, no_bos, allow_unknown_config_keys;
    int32_t dtype;
    int64_t num_tokens, top_k, seed, threads, local_rank;
    double temperature;
    struct mesh_flags mesh;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct generate_options, key, type, member, __VA_ARGS__)
static const char *const dtypes[] = {"auto", "fp32", "bf16", "fp16", NULL};
static const struct shoali_option rows[] = {
    OPTION("load", STRING, load, .flags = SHOALI_OPTION_REQUIRED,
           .help = "folder of checkpoints of `shoal pretrain`, a Hugging Face folder (config.json, "
                   "model.safetensors), or a checkpoint of DeepSpeed"),
    OPTION("load-tag", STRING, load_tag,
           .help = "name of the checkpoint in --load; default: the latest"),
    OPTION("model-config", STRING, model_config,
           .help = "folder with config.json and tokenizer of the model, where --load is a "
                   "checkpoint of DeepSpeed or a folder of weights without them"),
    OPTION("allow-unknown-config-keys", BOOL, allow_unknown_config_keys,
           .help = "ignore keys of config.json that are not known, with a warning; without it they "
                   "are errors, because they may change what the model computes"),
    OPTION("prompt", STRING, prompt, .default_text = "\n",
           .help = "text to continue; -: read it from standard input"),
    OPTION("prompt-tokens", INTS, prompt_tokens,
           .help = "tokens to continue, as numbers such as 1,5,9; replaces --prompt"),
    OPTION("no-bos", BOOL, no_bos,
           .help = "leave out the tokens that the tokenizer puts in front of a text, such as <s>"),
    OPTION("print-tokens", BOOL, print_tokens,
           .help = "print token numbers, in the form of --prompt-tokens, instead of text"),
    OPTION("print-logits", STRING, print_logits,
           .help =
               "file for the logits (.npy, float32): a row for each token that the model read, a "
               "column for each token of the vocabulary"),
    OPTION("num-tokens", INT, num_tokens, .default_number = 300, .min = 0, .max = 1e9,
           .help = "number of tokens to generate; fewer when a token ends the text"),
    OPTION("ignore-eos", BOOL, ignore_eos,
           .help =
               "continue after a token that ends a text (eos_token_id of generation_config.json or "
               "config.json, else the tokenizer's)"),
    OPTION("temperature", FLOAT, temperature, .default_number = 1.0, .min = 0, .max = 1e6,
           .help =
               "sampling temperature; below 1: favour likely tokens; 0: always take the likeliest "
               "token"),
    OPTION("top-k", INT, top_k, .min = 0, .max = 1e9,
           .help =
               "number of likeliest tokens to sample from; 0: all; 1: always take the likeliest "
               "token"),
    OPTION("seed", INT, seed, .default_number = 1234, .min = 0, .max = 1e15,
           .help = "seed of the sampling"),
    OPTION(
        "dtype", ENUM, dtype, .choices = dtypes,
        .help =
            "data type to compute in; auto: as the checkpoint's weights, or as config.json says"),
    OPTION("threads", INT, threads, .min = 0, .max = 4096,
           .help = "number of threads; 0: one per core"),
    OPTION("local_rank", INT, local_rank, .default_number = -1, .flags = SHOALI_OPTION_HIDDEN,
           .help = "given by launchers; ignored"),
};
static const struct shoali_section section = {.name = "generate",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct generate_options),
                                              .given_offset =
                                                  offsetof(struct generate_options, given)};

static const char usage[] =
    "usage: [shoal run --num_gpus N] shoal generate --load DIR [flags]\n\n"
    "Writes a continuation of a prompt. Ranks of `shoal run` share the matrices\n"
    "(--tensor-model-parallel-size N).\n\n";

static shoal_status parse(struct generate_options *options, int argc, char **argv,
                          struct shoali_arena *arena)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_config_defaults(&section, options, arena), done);
    SHOAL_TRY(status, shoali_config_defaults(&mesh_tensor_section, &options->mesh, arena), done);
    const struct shoali_flags tables[] = {{&section, options},
                                          {&mesh_tensor_section, &options->mesh}};
    struct shoali_help help = {0};
    const struct shoali_flag_args args = {
        .command = "shoal generate", .tables = tables, .table_count = 2, .help = &help};
    status = shoali_flags_parse(&args, argc, argv, arena, NULL);
    if (status == SHOAL_END)
        status = tool_print_flags(usage, &args);
done:
    return status;
}

static shoal_status read_prompt(const struct generate_options *options, struct shoali_str *prompt)
{
    char piece[4096];
    size_t bytes;
    if (options->prompt_tokens.count && shoali_config_given(&section, options, "prompt"))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--prompt and --prompt-tokens exclude each other: give one of them");
    if (options->prompt_tokens.count)
        return SHOAL_OK;
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

/* What is written so far. What a token adds to a text depends on the one before it: a first token
 * has no space. */
struct printing {
    const shoal_tokenizer *tokenizer; /* NULL: numbers are written */
    int32_t last;                     /* -1: none */
    int32_t *token;                   /* prompt and what came, owned */
    int64_t count, prompt_count;
    const int32_t *end_tokens; /* numbers, but no text */
    int32_t end_count;
    bool silent; /* another rank writes the same */
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

static shoal_status print_text(struct printing *printing, int32_t token)
{
    shoal_status status;
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
done:
    free(text);
    return status;
}

static shoal_status print_token(void *user, int32_t token)
{
    shoal_status status = SHOAL_OK;
    struct printing *printing = user;
    bool ends = false;
    for (int32_t i = 0; i < printing->end_count; i++)
        ends = ends || printing->end_tokens[i] == token;
    if (printing->tokenizer && !printing->silent && !ends)
        SHOAL_TRY(status, print_text(printing, token), done);
    else if (!printing->tokenizer && !printing->silent &&
             (printf(",%d", (int)token) < 0 || fflush(stdout) == EOF))
        status = SHOAL_FAIL(SHOAL_EIO, "cannot write to standard output");
    printing->last = token;
    printing->token[printing->count++] = token;
done:
    return status;
}

enum { FRONT_MAX = 8 };

/* Room for the prompt and for what follows it. */
static shoal_status make_room(struct printing *printing, int64_t prompt_count, int64_t num_tokens)
{
    printing->token = calloc((size_t)(prompt_count + num_tokens + 1), sizeof *printing->token);
    printing->prompt_count = prompt_count;
    return printing->token ? SHOAL_OK
                           : SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %lld tokens",
                                        (long long)(prompt_count + num_tokens));
}

/* What a tokenizer's post-processor puts in front of a text, such as <s>. It may put tokens behind
 * one too, which are left out: the text goes on. A text of one token shows both. */
static shoal_status find_front(const shoal_tokenizer *tokenizer, int32_t front[FRONT_MAX],
                               int64_t *count)
{
    shoal_status status;
    static const int32_t probes[] = {0, 1}; /* one of them is not what stands in front */
    int32_t both[2][2 * FRONT_MAX];
    int64_t counts[2];
    *count = 0;
    for (int i = 0; i < 2; i++)
        SHOAL_TRY(status,
                  shoal_tokenizer_post_process(tokenizer, &probes[i], 1, both[i], 2 * FRONT_MAX,
                                               &counts[i]),
                  done);
    if (counts[0] != counts[1] || counts[0] > FRONT_MAX)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "the tokenizer puts more than %d tokens around a text: give --no-bos",
                          FRONT_MAX - 1);
    while (*count < counts[0] && both[0][*count] == both[1][*count]) {
        front[*count] = both[0][*count];
        ++*count;
    }
done:
    return status;
}

static shoal_status encode(const struct generate_options *options, const shoal_tokenizer *tokenizer,
                           const struct shoali_str *prompt, struct printing *printing)
{
    shoal_status status;
    int64_t count, before = 0;
    int32_t front[FRONT_MAX];
    const char *text = shoali_str_get(prompt);
    if (!options->no_bos)
        SHOAL_TRY(status, find_front(tokenizer, front, &before), done);
    SHOAL_TRY(status, shoal_tokenizer_encode(tokenizer, text, prompt->length, NULL, 0, &count),
              done);
    SHOAL_TRY(status, make_room(printing, before + count, options->num_tokens), done);
    memcpy(printing->token, front, (size_t)before * sizeof *front);
    SHOAL_TRY(status,
              shoal_tokenizer_encode(tokenizer, text, prompt->length, printing->token + before,
                                     count, &count),
              done);
done:
    return status;
}

static shoal_status take_numbers(const struct generate_options *options, struct printing *printing)
{
    shoal_status status;
    const struct shoali_ints *given = &options->prompt_tokens;
    SHOAL_TRY(status, make_room(printing, given->count, options->num_tokens), done);
    for (int32_t i = 0; i < given->count; i++) {
        if (given->value[i] < 0 || given->value[i] > INT32_MAX)
            return SHOAL_FAIL(SHOAL_EINVAL, "--prompt-tokens: %lld is not a token number",
                              (long long)given->value[i]);
        printing->token[i] = (int32_t)given->value[i];
    }
done:
    return status;
}

/* The prompt as tokens. */
static shoal_status take_prompt(const struct generate_options *options,
                                const shoal_tokenizer *tokenizer, const struct shoali_str *prompt,
                                struct printing *printing)
{
    shoal_status status;
    if (!tokenizer && !options->prompt_tokens.count)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s has no tokenizer: give the prompt as numbers, --prompt-tokens 1,5,9",
                          options->load);
    SHOAL_TRY(status,
              options->prompt_tokens.count ? take_numbers(options, printing)
                                           : encode(options, tokenizer, prompt, printing),
              done);
    printing->count = printing->prompt_count;
    printing->tokenizer = options->print_tokens ? NULL : tokenizer;
    if (printing->count > 0)
        printing->last = printing->token[printing->count - 1];
done:
    return status;
}

static shoal_status print_prompt(const struct generate_options *options,
                                 const struct shoali_str *prompt, const struct printing *printing)
{
    shoal_status status = SHOAL_OK;
    char *text = NULL;
    size_t bytes = prompt->length;
    const char *shown = shoali_str_get(prompt);
    if (printing->silent)
        return SHOAL_OK;
    if (printing->tokenizer && options->prompt_tokens.count) {
        SHOAL_TRY(status,
                  decode(printing->tokenizer, printing->token, printing->count, &text, &bytes),
                  done);
        shown = text;
    }
    bool written = true;
    for (int64_t i = 0; !printing->tokenizer && i < printing->count; i++)
        written = printf("%s%d", i ? "," : "", (int)printing->token[i]) > 0 && written;
    if (printing->tokenizer)
        written = fwrite(shown, 1, bytes, stdout) == bytes;
    if (!written)
        status = SHOAL_FAIL(SHOAL_EIO, "cannot write to standard output");
done:
    free(text);
    return status;
}

/* ---- logits --------------------------------------------------------------------------------- */

/* A file of NumPy, format 1.0: the header's length is a multiple of 64. */
static bool write_head(FILE *file, int64_t lines, int64_t columns)
{
    char head[128];
    const int prefix = 10;
    memset(head, ' ', sizeof head);
    const int used = snprintf(head + prefix, sizeof head - (size_t)prefix,
                              "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                              (long long)lines, (long long)columns);
    head[prefix + used] = ' ';
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)(sizeof head - (size_t)prefix);
    head[9] = 0;
    head[sizeof head - 1] = '\n';
    return fwrite(head, 1, sizeof head, file) == sizeof head;
}

/* The bits of a row depend on the text in front of it alone, so the text is read once more. */
static shoal_status write_rows(shoal_generator *generator, const int32_t *tokens, int64_t count,
                               FILE *file, bool *written)
{
    enum { AT_ONCE = 64 };
    shoal_status status;
    const int64_t columns = shoal_generator_vocab_size(generator);
    const size_t known = (size_t)shoal_generator_known_tokens(generator);
    float *logits = malloc((size_t)(AT_ONCE * columns) * sizeof *logits);
    if (!logits)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate logits");
    SHOAL_TRY(status, shoal_generator_truncate(generator, 0, 0), done);
    *written = write_head(file, count, (int64_t)known);
    for (int64_t at = 0; at < count && *written; at += AT_ONCE) {
        const int64_t part = count - at < AT_ONCE ? count - at : AT_ONCE;
        const shoal_generator_input input = {.tokens = tokens + at, .count = part};
        SHOAL_TRY(status, shoal_generator_forward(generator, &input, 1, true, logits), done);
        for (int64_t i = 0; i < part; i++)
            *written =
                fwrite(logits + i * columns, sizeof *logits, known, file) == known && *written;
    }
done:
    free(logits);
    return status;
}

static shoal_status print_logits(const struct generate_options *options, shoal_generator *generator,
                                 const struct printing *printing)
{
    const char *path = printing->silent ? "/dev/null" : options->print_logits;
    const int64_t fed =
        printing->count > printing->prompt_count ? printing->count - 1 : printing->count;
    bool written = true;
    FILE *file = fopen(path, "wb");
    if (!file)
        return SHOAL_FAIL(SHOAL_EINVAL, "--print-logits %s: cannot write: %s", path,
                          strerror(errno));
    shoal_status status = write_rows(generator, printing->token, fed, file, &written);
    errno = 0;
    written = fclose(file) == 0 && written;
    if (status == SHOAL_OK && !written)
        status = SHOAL_FAIL(SHOAL_EIO, "--print-logits %s: cannot write: %s", path,
                            strerror(errno ? errno : EIO));
    if (status < 0 && !printing->silent)
        (void)remove(path);
    return status;
}

static shoal_status generate(const struct generate_options *options, shoal_generator *generator,
                             const struct shoali_str *prompt, struct printing *printing)
{
    shoal_status status;
    SHOAL_TRY(status, take_prompt(options, shoal_generator_tokenizer(generator), prompt, printing),
              done);
    SHOAL_TRY(status, print_prompt(options, prompt, printing), done);
    if (!options->ignore_eos)
        printing->end_tokens = shoal_generator_end_tokens(generator, &printing->end_count);
    SHOAL_TRY(status,
              shoal_generate(generator,
                             &(shoal_sample_args){.prompt = printing->token,
                                                  .prompt_count = printing->prompt_count,
                                                  .num_tokens = options->num_tokens,
                                                  .temperature = options->temperature,
                                                  .top_k = options->top_k,
                                                  .seed = (uint64_t)options->seed,
                                                  .end_tokens = printing->end_tokens,
                                                  .end_count = printing->end_count},
                             print_token, printing),
              done);
    if (!printing->silent)
        putchar('\n');
    if (options->print_logits)
        SHOAL_TRY(status, print_logits(options, generator, printing), done);
done:
    return status;
}

/* Keys and values are kept of as many tokens as the text can have: a model may read far longer
 * ones. A token is of at least a byte, but for what tokenizers put in front or unfold. */
static int64_t longest_text(const struct generate_options *options, const struct shoali_str *prompt)
{
    const int64_t count = options->prompt_tokens.count ? (int64_t)options->prompt_tokens.count
                                                       : 4 * (int64_t)prompt->length + 16;
    return count + options->num_tokens;
}

/* Ranks that share the matrices; one rank is none of them. */
static shoal_status open_ranks(const struct generate_options *options, shoal_group **group,
                               shoal_mesh **mesh)
{
    shoal_status status = SHOAL_OK;
    const int64_t tensor = options->mesh.tensor;
    if (tensor == 1)
        return SHOAL_OK;
    SHOAL_TRY(status, shoal_comm_init(&(shoal_comm_args){0}, group), done);
    const int32_t ranks = shoal_comm_size(*group);
    if (ranks != tensor)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--tensor-model-parallel-size %lld: there %s %d rank%s; start one per "
                          "shard: shoal run --num_gpus %lld shoal generate ...",
                          (long long)tensor, ranks == 1 ? "is" : "are", (int)ranks,
                          ranks == 1 ? "" : "s", (long long)tensor);
    SHOAL_TRY(status, mesh_flags_open(&options->mesh, *group, 1, 0, mesh), done);
done:
    return status;
}

/* Rank 0 has the standard input. */
static shoal_status share_prompt(const struct generate_options *options, shoal_group *group,
                                 struct shoali_str *prompt)
{
    shoal_status status = SHOAL_OK;
    char *text = NULL;
    const bool first = !group || shoal_comm_rank(group) == 0;
    if (first)
        SHOAL_TRY(status, read_prompt(options, prompt), done);
    if (!group)
        return SHOAL_OK;
    int64_t bytes = (int64_t)prompt->length;
    SHOAL_TRY(status, shoal_broadcast(group, &bytes, 1, SHOAL_I64, 0, NULL), done);
    text = calloc((size_t)bytes + 1, 1);
    if (!text)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the prompt");
    if (first)
        memcpy(text, shoali_str_get(prompt), (size_t)bytes);
    SHOAL_TRY(status, shoal_broadcast(group, text, bytes, SHOAL_U8, 0, NULL), done);
    if (!first)
        shoali_str_append_bytes(prompt, text, (size_t)bytes);
done:
    free(text);
    return status;
}

int tool_generate(int argc, char **argv)
{
    shoal_status status;
    shoal_group *group = NULL;
    shoal_mesh *mesh = NULL;
    struct generate_options options;
    struct shoali_arena arena;
    struct shoali_str prompt = {0};
    struct printing printing = {.last = -1};
    shoal_generator *generator = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, parse(&options, argc, argv, &arena), done);
    if (status == SHOAL_END)
        goto done;
    SHOAL_TRY(status, open_ranks(&options, &group, &mesh), done);
    printing.silent = group && shoal_comm_rank(group) > 0;
    SHOAL_TRY(status, share_prompt(&options, group, &prompt), done);
    SHOAL_TRY(status,
              shoal_generator_create(
                  &(shoal_generator_args){.load = options.load,
                                          .tag = options.load_tag,
                                          .model_config = options.model_config,
                                          .allow_unknown_keys = options.allow_unknown_config_keys,
                                          .threads = (int32_t)options.threads,
                                          .max_length = longest_text(&options, &prompt),
                                          .dtype = options.dtype ? dtypes[options.dtype] : NULL,
                                          .mesh = mesh},
                  &generator),
              done);
    SHOAL_TRY(status, generate(&options, generator, &prompt, &printing), done);
done:;
    const int code =
        status < 0 && !ferror(stdout) ? tool_fail_of_ranks(status, mesh) : tool_flush();
    if (status < 0 && group)
        shoal_comm_abort(group, status);
    shoal_generator_destroy(generator);
    shoal_mesh_destroy(mesh);
    shoal_comm_destroy(group);
    free(printing.token);
    shoali_str_fini(&prompt);
    shoali_arena_fini(&arena);
    return code;
}
