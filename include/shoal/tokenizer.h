/* tokenizer.h - converts text to tokens and back.
 *
 * Formats
 *   byte, char      need no file
 *   tokenizer.json  of the Hugging Face Hub: BPE, WordPiece, Unigram, WordLevel
 *   vocab.json and merges.txt of GPT-2
 *   NAME.model      SentencePiece: unigram and bpe
 *   ranks           of tiktoken: "base64 rank" lines, or the JSON list of Megatron's TikTokenizer
 *
 * Ids are those of the original packages: `tokenizers`, `sentencepiece`, `tiktoken`.
 */
#ifndef SHOAL_TOKENIZER_H
#define SHOAL_TOKENIZER_H

#include "shoal/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Immutable after creation. Several threads may use it.
 *
 *   "byte"  one token per byte, 256 tokens; any data
 *   "char"  one token per UTF-8 code point of the text, numbered in code point order */
typedef struct shoal_tokenizer shoal_tokenizer;

/* Makes the tokenizer `name`, "byte" or "char". "char" learns its vocabulary from the text.
 * *tokenizer is owned by the caller. SHOAL_EINVAL: another name (the text lists both), or text that
 * is not UTF-8 (the text gives the offset). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_create(const char *name, const char *text,
                                                            size_t bytes,
                                                            shoal_tokenizer **tokenizer);

/* The files of a tokenizer, in Megatron's terms. */
typedef struct shoal_tokenizer_args {
    /* GPT2BPETokenizer, HuggingFaceTokenizer, SentencePieceTokenizer (also
     * GPTSentencePieceTokenizer and Llama2Tokenizer), TikTokenizer, NullTokenizer,
     * ByteLevelTokenizer. NULL: detected from the file `path`. */
    const char *type;
    const char *path;                    /* file or folder of the tokenizer; --tokenizer-model */
    const char *vocab_file, *merge_file; /* GPT2BPETokenizer */
    int64_t vocab_size;                  /* NullTokenizer; TikTokenizer: 0: all */
    /* TikTokenizer: gpt2, cl100k, o200k, v1, v2 or a regular expression. NULL: v2 for the JSON
     * list, cl100k for lines. */
    const char *pattern;
} shoal_tokenizer_args;
/* Reads a tokenizer. *tokenizer is owned by the caller. SHOAL_EINVAL, SHOAL_ENOENT, SHOAL_ECONFIG:
 * the text gives file, place and what to do. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_load(const shoal_tokenizer_args *args,
                                                          shoal_tokenizer **tokenizer);
/* Reads the tokenizer at `path`: tokenizer.json, NAME.model, NAME.tiktoken, vocab.json (with
 * merges.txt in the same folder), or a folder with one of them. *tokenizer is owned by the
 * caller. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_open(const char *path,
                                                          shoal_tokenizer **tokenizer);
/* Makes a tokenizer from the text of shoal_tokenizer_json (a checkpoint, a tokenizer.json).
 * *tokenizer is owned by the caller. SHOAL_ECONFIG: the text is wrong. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_from_json(const char *json, size_t bytes,
                                                               shoal_tokenizer **tokenizer);
SHOAL_API void shoal_tokenizer_destroy(shoal_tokenizer *tokenizer); /* NULL is fine */
/* Returns "byte", "char", "null", or the type of the model: "BPE", "Unigram", ... Borrowed until
 * destroy. */
SHOAL_API const char *shoal_tokenizer_name(const shoal_tokenizer *tokenizer);
/* Returns the largest id plus one. */
SHOAL_API int32_t shoal_tokenizer_vocab_size(const shoal_tokenizer *tokenizer);
/* Returns the token that ends a document; -1: none. */
SHOAL_API int32_t shoal_tokenizer_eod(const shoal_tokenizer *tokenizer);
/* Returns the id of a token's string, as in the file; -1: none. */
SHOAL_API int32_t shoal_tokenizer_id(const shoal_tokenizer *tokenizer, const char *token);
/* Returns the string of an id, as in the file; NULL: none. Borrowed until destroy. */
SHOAL_API const char *shoal_tokenizer_token(const shoal_tokenizer *tokenizer, int32_t id);
/* Returns whether a token is special: it stands for no text. */
SHOAL_API bool shoal_tokenizer_is_special(const shoal_tokenizer *tokenizer, int32_t id);
/* Describes the stages of the tokenizer, one per line. *text is owned by the caller: free(). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_describe(const shoal_tokenizer *tokenizer,
                                                              char **text);
/* Says whether the ids of two tokenizers mean the same. */
typedef enum shoal_tokenizer_likeness {
    SHOAL_TOKENIZER_SAME,     /* every id means the same */
    SHOAL_TOKENIZER_EXTENDED, /* so do those that both have; one has more added tokens */
    SHOAL_TOKENIZER_UNKNOWN,  /* one is a NullTokenizer, whose ids are numbers */
    SHOAL_TOKENIZER_OTHER
} shoal_tokenizer_likeness;
/* Compares the strings of the ids. If both have a model of one kind, compares also the ids of a
 * text that has all strings: merges may differ while the strings are the same. `why` gets a clause
 * about the first difference, "" if there is none. Cost: encodes the vocabulary twice. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_compare(const shoal_tokenizer *a,
                                                             const shoal_tokenizer *b,
                                                             shoal_tokenizer_likeness *likeness,
                                                             char *why, size_t why_bytes);
/* Returns one JSON object that describes the whole tokenizer. Borrowed until destroy. */
SHOAL_API const char *shoal_tokenizer_json(const shoal_tokenizer *tokenizer);
/* Encodes text, without the tokens that a post-processor adds. *count is the number of tokens. If
 * it is above `capacity`, SHOAL_OK is returned but `tokens` is incomplete: call again with room.
 * For "byte" and "char" `bytes` tokens always suffice. SHOAL_EINVAL names the text that has no
 * token, and its offset. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_encode(const shoal_tokenizer *tokenizer,
                                                            const char *text, size_t bytes,
                                                            int32_t *tokens, int64_t capacity,
                                                            int64_t *count);
/* Applies the post-processor to the ids of one text: [CLS] ... [SEP], <s> ... `count` and
 * `capacity` as in shoal_tokenizer_encode. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_post_process(const shoal_tokenizer *tokenizer,
                                                                  const int32_t *ids,
                                                                  int64_t id_count, int32_t *tokens,
                                                                  int64_t capacity, int64_t *count);
/* Decodes ids to text, not NUL-terminated. *bytes is the length. If it is above `capacity`,
 * SHOAL_OK is returned but `text` is incomplete. For "byte" and "char" 4 bytes per token always
 * suffice. SHOAL_EINVAL: an id is outside the vocabulary. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_decode(const shoal_tokenizer *tokenizer,
                                                            const int32_t *tokens, int64_t count,
                                                            char *text, size_t capacity,
                                                            size_t *bytes);

/* ---- training -------------------------------------------------------------------------------- */

typedef struct shoal_tokenizer_train_args {
    const char *const *paths; /* text files */
    int32_t path_count;
    int64_t vocab_size;    /* tokens of the result, with the 256 bytes and special tokens */
    int64_t min_frequency; /* count a pair needs to become a token; 0: once */
    const char *pattern;   /* gpt2 (also NULL), llama3, qwen2 */
    const char *const *special_tokens;
    int32_t special_count;
    int32_t threads; /* 0: one per core */
    bool data_text;  /* files of JSON are taken as text; else they are SHOAL_EINVAL */
} shoal_tokenizer_train_args;
/* Learns a byte-level BPE tokenizer (a tokenizer.json). The result depends only on the files' bytes
 * and on these arguments, except `threads`. *tokenizer is owned by the caller. SHOAL_EINVAL: an
 * impossible vocabulary. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_tokenizer_train(const shoal_tokenizer_train_args *args,
                                                           shoal_tokenizer **tokenizer);

#ifdef __cplusplus
}
#endif
#endif
