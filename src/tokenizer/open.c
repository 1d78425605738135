/* Which format a path is. A folder is looked through in an order; what a file is, its content says,
 * since one name (tokenizer.model) stands for two formats. */
#include "base/beginning.h"
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

/* tokenizer.json, or vocab.json with merges.txt next to it. */
static shoal_status read_object(const char *path, const char *data, size_t bytes,
                                struct shoali_arena *arena, enum shoali_vocabulary *vocabulary,
                                json_t **root)
{
    shoal_status status;
    SHOAL_TRY(status, parse(path, data, bytes, root), done);
    *vocabulary = SHOALI_VOCABULARY_JSON;
    if (json_object_get(*root, "model"))
        return SHOAL_OK;
    const char *merges = inside(arena, folder_of(arena, path), "merges.txt");
    if (!merges)
        return SHOAL_ENOMEM;
    if (!exists(merges))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s is not a tokenizer.json, because it has no `model`; a vocabulary "
                          "needs merges.txt in the same folder",
                          path);
    json_decref(*root);
    *vocabulary = SHOALI_VOCABULARY_BYTE_LEVEL;
    status = shoali_read_gpt2(path, merges, root);
done:
    return status;
}

static shoal_status read_any(const shoal_tokenizer_args *args, const char *path,
                             struct shoali_arena *arena, enum shoali_vocabulary *vocabulary,
                             json_t **root)
{
    shoal_status status;
    char *data = NULL, *text;
    size_t bytes;
    SHOAL_TRY(status, shoali_read_file(path, &data, &bytes), done);
    SHOAL_TRY(status, shoali_beginning_wide(path, data, bytes), done);
    text = data + shoali_bom_bytes(data, bytes);
    bytes -= (size_t)(text - data);
    const enum format format = format_of(text, bytes);
    switch (format) {
    case FORMAT_OBJECT:
        SHOAL_TRY(status, read_object(path, text, bytes, arena, vocabulary, root), done);
        break;
    case FORMAT_LIST:
    case FORMAT_RANKS:
        *vocabulary = SHOALI_VOCABULARY_RANKS;
        SHOAL_TRY(status,
                  shoali_read_tiktoken(args, path, text, bytes, format == FORMAT_RANKS, root),
                  done);
        break;
    default:
        *vocabulary = SHOALI_VOCABULARY_PIECES;
        SHOAL_TRY(status, shoali_read_sentencepiece(path, text, bytes, root), done);
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

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static shoal_status read_word_pieces(struct shoali_sidecars *sidecars, const char *file,
                                     json_t **root)
{
    shoal_status status;
    struct shoali_bert_args args = {
        .vocab_path = file, .lower_case = true, .chinese = true, .strip_accents = -1};
    SHOAL_TRY(status, shoali_sidecars_begin(sidecars, SHOALI_VOCABULARY_WORDPIECE, name_of(file)),
              done);
    SHOAL_TRY(status, shoali_sidecars_named(sidecars, SHOALI_UNK, &args.unk), done);
    SHOAL_TRY(status, shoali_sidecars_named(sidecars, SHOALI_CLS, &args.cls), done);
    SHOAL_TRY(status, shoali_sidecars_named(sidecars, SHOALI_SEP, &args.sep), done);
    SHOAL_TRY(status, shoali_read_bert(&args, root), done);
    SHOAL_TRY(status, shoali_sidecars_apply(sidecars, SHOALI_VOCABULARY_WORDPIECE, *root), done);
done:
    return status;
}

/* What transformers makes of the folder. A SentencePiece model that is named as a file, without
 * files of transformers next to it, is read as SentencePiece does. */
static bool is_of_hub(const shoal_tokenizer_args *args, const struct shoali_sidecars *sidecars,
                      enum shoali_vocabulary vocabulary, const char *file)
{
    if (sidecars->config || sidecars->map || sidecars->added)
        return true;
    return vocabulary == SHOALI_VOCABULARY_PIECES &&
           (file != args->path || (args->type && strcmp(args->type, "HuggingFaceTokenizer") == 0));
}

static shoal_status read_with_sidecars(const shoal_tokenizer_args *args,
                                       struct shoali_sidecars *sidecars, const char *file,
                                       json_t **root)
{
    shoal_status status;
    enum shoali_vocabulary vocabulary;
    if (strcmp(name_of(file), "vocab.txt") == 0)
        return read_word_pieces(sidecars, file, root);
    SHOAL_TRY(status, read_any(args, file, sidecars->arena, &vocabulary, root), done);
    if (!is_of_hub(args, sidecars, vocabulary, file) && !sidecars->class_name)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_sidecars_begin(sidecars, vocabulary, name_of(file)), done);
    SHOAL_TRY(status, shoali_sidecars_apply(sidecars, vocabulary, *root), done);
done:
    return status;
}

static shoal_status read_path(const shoal_tokenizer_args *args, struct shoali_arena *arena,
                              const char **file, json_t **root)
{
    shoal_status status;
    struct stat info;
    struct shoali_sidecars sidecars = {0};
    *file = args->path;
    if (stat(args->path, &info) != 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: %s", args->path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        *file = look_in(arena, args->path);
    if (!*file)
        return SHOAL_EINVAL;
    const char *folder = folder_of(arena, *file);
    if (!folder)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_sidecars_open(arena, folder, &sidecars), done);
    SHOAL_TRY(status, read_with_sidecars(args, &sidecars, *file, root), done);
done:
    shoali_sidecars_close(&sidecars);
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
                   ? shoali_read_bert(
                         &(struct shoali_bert_args){.vocab_path = args->vocab_file,
                                                    .lower_case = strcmp(type, bert[0]) == 0,
                                                    .chinese = true,
                                                    .strip_accents = -1},
                         root)
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

shoal_status shoal_tokenizer_load(const shoal_tokenizer_args *args, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    shoal_tokenizer_args own = {0};
    *tokenizer = NULL;
    if (args)
        own = *args;
    SHOAL_TRY(status, load(&own, tokenizer), done);
done:
    return status;
}

shoal_status shoal_tokenizer_open(const char *path, shoal_tokenizer **tokenizer)
{
    return shoal_tokenizer_load(&(shoal_tokenizer_args){.path = path}, tokenizer);
}
