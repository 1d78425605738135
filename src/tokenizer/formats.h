/* formats - files of other formats, turned into the JSON value that tokenizer.json would hold.
 *
 *   open.c                which format a path is, and its end-of-document token
 *   gpt2_files.c          vocab.json and merges.txt; vocab.txt of BERT
 *   sentencepiece_file.c  NAME.model
 *   tiktoken_file.c       lines of ranks, and Megatron's JSON list
 *
 * SentencePiece models are read by a reader of our own instead of the sentencepiece library: the
 * file is a handful of protobuf fields, and what is needed of the library beyond that, Viterbi and
 * merging, is here anyway; so a build has one dependency less, and a checkpoint keeps such a model
 * as text like all others. */
#ifndef SHOALI_TOKENIZER_FORMATS_H
#define SHOALI_TOKENIZER_FORMATS_H

#include "base/base.h"
#include "shoal/tokenizer.h"

struct json_t;

/* *root is owned (json_decref). Sentences name the file. */
SHOAL_CHECKED shoal_status shoali_read_gpt2(const char *vocab_path, const char *merges_path,
                                            struct json_t **root);
SHOAL_CHECKED shoal_status shoali_read_bert(const char *vocab_path, bool lower_case,
                                            struct json_t **root);
SHOAL_CHECKED shoal_status shoali_read_sentencepiece(const char *path, const char *data,
                                                     size_t bytes, struct json_t **root);
/* `lines`, else the JSON list, of which `data` keeps what is used. */
SHOAL_CHECKED shoal_status shoali_read_tiktoken(const shoal_tokenizer_args *args, const char *path,
                                                char *data, size_t bytes, bool lines,
                                                struct json_t **root);
/* A JSON file; SHOAL_ECONFIG with its line. */
SHOAL_CHECKED shoal_status shoali_read_json_file(const char *path, struct json_t **root);

/* {"type": TYPE} */
struct json_t *shoali_typed(const char *type);
/* An entry of added_tokens that is special. */
struct json_t *shoali_added_entry(int64_t id, const char *content);

#endif
