/* tokenizer.h - text to token numbers and back.
 *
 * What the program reads:
 *   byte, char     need no file
 *   tokenizer.json as the Hugging Face Hub has it: BPE, WordPiece, Unigram, WordLevel
 *   vocab.json and merges.txt of GPT-2
 *   NAME.model     SentencePiece: unigram and bpe
 *   ranks          of tiktoken: "base64 rank" lines, or the JSON list of Megatron's TikTokenizer
 *
 * Ids are those of the packages that the files are from: `tokenizers`, `sentencepiece`, `tiktoken`.
 */
#ifndef SHOAL_TOKENIZER_H
#define SHOAL_TOKENIZER_H

#include "shoal/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Immutable after creation; may be used by several threads.
 *   "byte"  one token per byte, 256 of them; any data
 *   "char"  one token per UTF-8 code point that occurs in the text, numbered in code point order */
typedef struct shoal_tokenizer shoal_tokenizer;

/* Makes the tokenizer `name` ("byte" or "char"; others SHOAL_EINVAL naming these). "char" learns
 * its vocabulary from the text; SHOAL_EINVAL with the offset when it is not UTF-8. *tokenizer is
 * owned. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_create(const char *name, const char *text,
                                                            size_t bytes,
                                                            shoal_tokenizer **tokenizer);

/* Which files, in Megatron's words. */
typedef struct shoal_tokenizer_args {
    /* GPT2BPETokenizer, HuggingFaceTokenizer, SentencePieceTokenizer (also GPTSentencePieceTokenizer
     * and Llama2Tokenizer), TikTokenizer, NullTokenizer, ByteLevelTokenizer; NULL: what the file
     * `path` turns out to be */
    const char *type;
    const char *path; /* file, or folder with tokenizer files; --tokenizer-model */
    const char *vocab_file, *merge_file; /* GPT2BPETokenizer */
    int64_t vocab_size;                  /* NullTokenizer; TikTokenizer: 0 all */
    /* TikTokenizer: gpt2, cl100k, o200k, v1, v2 or a regular expression; NULL: v2 for the JSON list,
     * cl100k for lines */
    const char *pattern;
} shoal_tokenizer_args;
/* Reads a tokenizer. SHOAL_EINVAL, SHOAL_ENOENT, SHOAL_ECONFIG: a sentence with file, place and what
 * to do. *tokenizer is owned. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_tokenizer_load(const shoal_tokenizer_args *args,
                                                             shoal_tokenizer **tokenizer);
/* Reads what `path` is: tokenizer.json, NAME.model, NAME.tiktoken, vocab.json (with merges.txt
 * beside it), or a folder that has one of them. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_open(const char *path,
                                                          shoal_tokenizer **tokenizer);
/* Makes it again from shoal_tokenizer_json's text (a checkpoint, a tokenizer.json). SHOAL_ECONFIG. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_from_json(const char *json, size_t bytes,
                                                               shoal_tokenizer **tokenizer);
SHOAL_API void shoal_tokenizer_destroy(shoal_tokenizer *tokenizer); /* NULL is fine */
/* "byte", "char", "null", or the type of the model: "BPE", "Unigram", ... Borrowed until destroy. */
SHOAL_API const char *shoal_tokenizer_name(const shoal_tokenizer *tokenizer);
/* The largest id, and one. */
SHOAL_API int32_t shoal_tokenizer_vocab_size(const shoal_tokenizer *tokenizer);
/* The token that ends a document; -1 none. */
SHOAL_API int32_t shoal_tokenizer_eod(const shoal_tokenizer *tokenizer);
/* The id of a token's string, as the file has it; -1 none. */
SHOAL_API int32_t shoal_tokenizer_id(const shoal_tokenizer *tokenizer, const char *token);
/* The string of an id, as the file has it: borrowed until destroy, NULL where the id has none. */
SHOAL_API const char *shoal_tokenizer_token(const shoal_tokenizer *tokenizer, int32_t id);
/* Whether a token stands for no text ("special"). */
SHOAL_API bool shoal_tokenizer_is_special(const shoal_tokenizer *tokenizer, int32_t id);
/* What its stages are, one per line, for people. *text is owned (free()). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_describe(const shoal_tokenizer *tokenizer,
                                                              char **text);
/* One JSON object that describes it entirely. Borrowed until destroy. */
SHOAL_API const char *shoal_tokenizer_json(const shoal_tokenizer *tokenizer);
/* Text to ids, without those that a post-processor adds. *count is the number of tokens; with more
 * than `capacity` of them SHOAL_OK is returned but `tokens` is incomplete (call again with room).
 * byte, char: `bytes` tokens always suffice. SHOAL_EINVAL names what has no token and its offset. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_encode(const shoal_tokenizer *tokenizer,
                                                            const char *text, size_t bytes,
                                                            int32_t *tokens, int64_t capacity,
                                                            int64_t *count);
/* What the post-processor makes of the ids of one text: [CLS] ... [SEP], <s> ... Counts as above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_post_process(const shoal_tokenizer *tokenizer,
                                                                  const int32_t *ids,
                                                                  int64_t id_count, int32_t *tokens,
                                                                  int64_t capacity, int64_t *count);
/* Ids to text, not NUL-terminated. *bytes is the length; with more than `capacity` SHOAL_OK is
 * returned but `text` is incomplete; byte, char: 4 bytes per token always suffice. SHOAL_EINVAL for
 * an id outside the vocabulary. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_decode(const shoal_tokenizer *tokenizer,
                                                            const int32_t *tokens, int64_t count,
                                                            char *text, size_t capacity,
                                                            size_t *bytes);

/* ---- training -------------------------------------------------------------------------------- */

typedef struct shoal_tokenizer_train_args {
    const char *const *paths; /* text files */
    int32_t path_count;
    int64_t vocab_size;    /* tokens of the result, the 256 bytes and special tokens included */
    int64_t min_frequency; /* a pair must occur so often to become a token; 0: once */
    const char *pattern;   /* gpt2 (also NULL), llama3, qwen2 */
    const char *const *special_tokens;
    int32_t special_count;
    int32_t threads; /* 0: one per core */
} shoal_tokenizer_train_args;
/* Learns a byte-level BPE: a tokenizer.json. The result is a function of the files' bytes and these
 * arguments, threads excepted. SHOAL_EINVAL: a vocabulary that cannot be. */
SHOAL_CHECKED SHOAL_INLINE shoal_status
shoal_tokenizer_train(const shoal_tokenizer_train_args *args, shoal_tokenizer **tokenizer);

/* ---- structs that grow ----------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_load_sized(const shoal_tokenizer_args *args,
                                                                size_t args_size,
                                                                shoal_tokenizer **tokenizer);
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_train_sized(
    const shoal_tokenizer_train_args *args, size_t args_size, shoal_tokenizer **tokenizer);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_tokenizer_load(const shoal_tokenizer_args *args,
                                                             shoal_tokenizer **tokenizer)
{
    return shoal_tokenizer_load_sized(args, sizeof *args, tokenizer);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status
shoal_tokenizer_train(const shoal_tokenizer_train_args *args, shoal_tokenizer **tokenizer)
{
    return shoal_tokenizer_train_sized(args, sizeof *args, tokenizer);
}

#ifdef __cplusplus
}
#endif
#endif
