/* Which format a path is. A folder is looked through in an order; what a file is, its content says,
 * since one name (tokenizer.model) stands for two formats. */
#include "tokenizer/formats.h"
#include "tokenizer/pipeline.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* FOLDER/NAME; NULL: no memory, also for the folder. */
static const char *inside(struct shoali_arena *arena, const char *folder, const char *name)
{
    if (!folder)
        return NULL;
    const size_t length = strlen(folder);
    return shoali_arena_printf(arena, "%s%s%s", folder,
                               length > 0 && folder[length - 1] == '/' ? "" : "/", name);
}

/* The folder of a file: "." where its name has none. */
static const char *folder_of(struct shoali_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? shoali_arena_printf(arena, "%.*s", (int)(slash - path + 1), path) : ".";
}

/* ---- what a file is ---- */

enum format { FORMAT_OBJECT, FORMAT_LIST, FORMAT_RANKS, FORMAT_PROTO };

/* "base64 digits" up to the first line end. */
static bool is_rank_line(const char *data, size_t bytes)
{
    size_t at = 0, digits = 0;
    char c;
    while (at < bytes && data[at] > ' ' && data[at] < 0x7f)
        at++;
    if (at == 0 || at == bytes || data[at++] != ' ')
        return false;
    while (at < bytes && data[at] >= '0' && data[at] <= '9') {
        at++;
        digits++;
    }
    c = at < bytes ? data[at] : '\n';
    return digits > 0 && (c == '\n' || c == '\r');
}

static enum format format_of(const char *data, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && memchr(" \t\r\n", data[at], 4))
        at++;
    /* A model begins with the tag of its first piece, which is a line end in ASCII. */
    if (at < bytes && data[at] == '{')
        return FORMAT_OBJECT;
    if (at < bytes && data[at] == '[')
        return FORMAT_LIST;
    return is_rank_line(data, bytes) ? FORMAT_RANKS : FORMAT_PROTO;
}

static shoal_status parse(const char *path, const char *data, size_t bytes, json_t **root)
{
    struct shoali_json_error error;
    const shoal_status status = shoali_json_read(data, bytes, root, &error);
    if (status == SHOAL_ECORRUPT)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s: line %d, column %d: %s", path, (int)error.line,
                          (int)error.column, error.text);
    return status;
}

/* tokenizer.json, or vocab.json with merges.txt beside it. */
static shoal_status read_object(const char *path, const char *data, size_t bytes,
                                struct shoali_arena *arena, json_t **root)
{
    shoal_status status;
    SHOAL_TRY(status, parse(path, data, bytes, root), done);
    if (json_object_get(*root, "model"))
        return SHOAL_OK;
    const char *merges = inside(arena, folder_of(arena, path), "merges.txt");
    if (!merges)
        return SHOAL_ENOMEM;
    if (!exists(merges))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s is no tokenizer.json, since it has no `model`; and as a vocabulary "
                          "it needs merges.txt beside it",
                          path);
    json_decref(*root);
    status = shoali_read_gpt2(path, merges, root);
done:
    return status;
}

static shoal_status read_any(const shoal_tokenizer_args *args, const char *path,
                             struct shoali_arena *arena, json_t **root)
{
    shoal_status status;
    char *data = NULL;
    size_t bytes;
    SHOAL_TRY(status, shoali_read_file(path, &data, &bytes), done);
    const enum format format = format_of(data, bytes);
    switch (format) {
    case FORMAT_OBJECT:
        SHOAL_TRY(status, read_object(path, data, bytes, arena, root), done);
        break;
    case FORMAT_LIST:
    case FORMAT_RANKS:
        SHOAL_TRY(status,
                  shoali_read_tiktoken(args, path, data, bytes, format == FORMAT_RANKS, root),
                  done);
        break;
    default:
        SHOAL_TRY(status, shoali_read_sentencepiece(path, data, bytes, root), done);
    }
done:
    free(data);
    return status;
}

/* ---- folders ---- */

/* The first file of a tokenizer in a folder; NULL with an error record. */
static const char *look_in(struct shoali_arena *arena, const char *folder)
{
    static const char *const names[] = {"tokenizer.json",          "vocab.json",
                                        "tokenizer.model",         "spiece.model",
                                        "sentencepiece.bpe.model", "vocab.txt"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = inside(arena, folder, names[i]);
        if (!path)
            return NULL;
        if (exists(path))
            return path;
    }
    (void)SHOAL_FAIL(SHOAL_EINVAL,
                     "%s has no tokenizer: tokenizer.json, vocab.json with merges.txt, "
                     "tokenizer.model, spiece.model or vocab.txt",
                     folder);
    return NULL;
}

/* The end of a document, as the folder's tokenizer_config.json names it: its eos_token. */
static shoal_status take_eos(struct shoali_arena *arena, const char *path, json_t *root)
{
    shoal_status status = SHOAL_OK;
    json_t *config = NULL, *entry;
    size_t i;
    const char *settings = inside(arena, folder_of(arena, path), "tokenizer_config.json");
    if (!settings)
        return SHOAL_ENOMEM;
    if (!exists(settings) || json_object_get(root, "eod"))
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_read_json_file(settings, &config), done);
    const json_t *eos = json_object_get(config, "eos_token");
    const char *text =
        json_string_value(json_is_object(eos) ? json_object_get(eos, "content") : eos);
    json_array_foreach(json_object_get(root, "added_tokens"), i, entry)
    {
        const char *content = json_string_value(json_object_get(entry, "content"));
        json_t *id = json_object_get(entry, "id");
        if (text && content && strcmp(content, text) == 0 && json_is_integer(id) &&
            json_object_set(root, "eod", id) != 0)
            status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a tokenizer");
    }
done:
    json_decref(config);
    return status;
}

static shoal_status is_lower_case(struct shoali_arena *arena, const char *path, bool *lower)
{
    shoal_status status = SHOAL_OK;
    json_t *config = NULL;
    const char *settings = inside(arena, folder_of(arena, path), "tokenizer_config.json");
    *lower = true;
    if (!settings || !exists(settings))
        return settings ? SHOAL_OK : SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_read_json_file(settings, &config), done);
    *lower = !json_is_false(json_object_get(config, "do_lower_case"));
done:
    json_decref(config);
    return status;
}

static shoal_status read_path(const shoal_tokenizer_args *args, struct shoali_arena *arena,
                              const char **file, json_t **root)
{
    shoal_status status;
    struct stat info;
    *file = args->path;
    if (stat(args->path, &info) != 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: %s", args->path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        *file = look_in(arena, args->path);
    if (!*file)
        return SHOAL_EINVAL;
    const char *slash = strrchr(*file, '/');
    if (strcmp(slash ? slash + 1 : *file, "vocab.txt") == 0) {
        bool lower;
        SHOAL_TRY(status, is_lower_case(arena, *file, &lower), done);
        return shoali_read_bert(*file, lower, root);
    }
    SHOAL_TRY(status, read_any(args, *file, arena, root), done);
    SHOAL_TRY(status, take_eos(arena, *file, *root), done);
done:
    return status;
}

/* ---- types as Megatron names them ---- */

static shoal_status needs(const char *type, const char *flag)
{
    return SHOAL_FAIL(SHOAL_EINVAL, "%s needs %s", type, flag);
}

static shoal_status read_gpt2_type(const shoal_tokenizer_args *args, const char **file,
                                   json_t **root)
{
    if (!args->vocab_file || !args->merge_file)
        return needs(args->type, "--vocab-file and --merge-file");
    *file = args->vocab_file;
    return shoali_read_gpt2(args->vocab_file, args->merge_file, root);
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(*words, word) == 0)
            return true;
    return false;
}

static shoal_status read_type(const shoal_tokenizer_args *args, struct shoali_arena *arena,
                              const char **file, json_t **root)
{
    static const char *const of_path[] = {
        "HuggingFaceTokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer",
        "Llama2Tokenizer",      "TikTokenizer",           NULL};
    static const char *const bert[] = {"BertWordPieceLowerCase", "BertWordPieceCase", NULL};
    const char *type = args->type;
    if (type && strcmp(type, "GPT2BPETokenizer") == 0 && !args->path)
        return read_gpt2_type(args, file, root);
    if (type && is_one_of(type, bert)) {
        *file = args->vocab_file;
        return args->vocab_file
                   ? shoali_read_bert(args->vocab_file,
                                      type == bert[0] || strcmp(type, bert[0]) == 0, root)
                   : needs(type, "--vocab-file");
    }
    if (type && !is_one_of(type, of_path) && strcmp(type, "GPT2BPETokenizer") != 0)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "there is no tokenizer type `%s`; known are byte, char, GPT2BPETokenizer, "
            "HuggingFaceTokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, "
            "Llama2Tokenizer, TikTokenizer, BertWordPieceLowerCase, "
            "BertWordPieceCase, NullTokenizer",
            type);
    if (!args->path)
        return needs(type ? type : "a tokenizer", "--tokenizer-model, a file or folder");
    return read_path(args, arena, file, root);
}

static shoal_status load(const shoal_tokenizer_args *args, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    struct shoali_arena arena;
    json_t *root = NULL;
    const char *file = NULL;
    if (args->type && strcmp(args->type, "NullTokenizer") == 0)
        return shoali_tokenizer_make_null(args->vocab_size, tokenizer);
    if (args->type && strcmp(args->type, "byte") == 0)
        return shoali_tokenizer_make_byte(tokenizer);
    shoali_arena_init(&arena);
    SHOAL_TRY(status, read_type(args, &arena, &file, &root), done);
    SHOAL_TRY(status, shoali_pipeline_create(file, root, tokenizer), done);
done:
    json_decref(root);
    shoali_arena_fini(&arena);
    return status;
}

shoal_status shoal_tokenizer_load_sized(const shoal_tokenizer_args *args, size_t args_size,
                                        shoal_tokenizer **tokenizer)
{
    shoal_status status;
    shoal_tokenizer_args own = {0};
    *tokenizer = NULL;
    SHOAL_TRY(status, SHOALI_SIZED_READ(shoal_tokenizer_args, pattern, args, args_size, &own),
              done);
    SHOAL_TRY(status, load(&own, tokenizer), done);
done:
    return status;
}

shoal_status shoal_tokenizer_open(const char *path, shoal_tokenizer **tokenizer)
{
    return shoal_tokenizer_load(&(shoal_tokenizer_args){.path = path}, tokenizer);
}
