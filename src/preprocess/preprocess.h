/* preprocess - JSON lines to data files, by several threads. Level L7, above text_data. An outer
 * part: SHOAL_WITH_PREPROCESS.
 *
 * The input is one stream of lines, whatever files it comes from. A thread takes the next piece of
 * whole lines (a mutex makes that one at a time, which costs little beside encoding), reads its
 * records, encodes them and packs the tokens; the calling thread takes finished pieces in the order
 * in which they were read and appends them to the files. So the result is the concatenation of what
 * each record gives, and depends on neither threads nor pieces.
 *
 *   input.c       files, patterns and standard input as a stream of pieces
 *   sentences.c   where sentences end
 *   piece.c       from a piece of text to tokens
 *   workers.c     threads and the ring of pieces between them and the caller
 *   journal.c     how far the files are complete: PREFIX.preprocess
 *   preprocess.c  all of it
 *
 * A journal is written after the files have been flushed to the disk. It names a place in the input
 * and the sizes of the files at that place; a later call cuts them back to these and goes on there.
 */
#ifndef SHOALI_PREPROCESS_H
#define SHOALI_PREPROCESS_H

#include "data/indexed/indexed.h"
#include "shoal/preprocess.h"
#include "text_data/gzip.h"
#include "text_data/jsonl.h"
#include "text_data/text_data.h"

/* ---- input.c ---- */

/* A place between two lines; of a compressed file in its text. */
struct shoali_line_input_place {
    int32_t file;   /* index of the file; the number of files: the end */
    int64_t offset; /* bytes before it in that file */
    int64_t line;   /* lines before it in that file */
};
struct shoali_line_input {
    char **path; /* owned */
    int32_t count;
    uint64_t state; /* of names, sizes, times; 0: standard input is among them */
    bool is_stream; /* standard input is among them: nothing can be read twice */
    struct shoali_line_input_place place;
    int64_t bytes;            /* read so far, over all files */
    int descriptor;           /* of the open file; -1 none */
    struct shoali_gzip *gzip; /* owned: what reads it where it is compressed */
    char *rest;               /* owned: what was read behind the last whole line */
    size_t rest_bytes, rest_capacity;
    bool ended; /* of the open file */
};
SHOAL_CHECKED shoal_status shoali_line_input_open(const char *const *words, int32_t count,
                                                  struct shoali_line_input *input);
/* Goes to a place (the beginning: zeroes). */
SHOAL_CHECKED shoal_status shoali_line_input_seek(struct shoali_line_input *input,
                                                  const struct shoali_line_input_place *place,
                                                  int64_t bytes);
/* Whole lines of one file. */
struct shoali_text_piece {
    char *text; /* owned */
    size_t bytes, capacity;
    struct shoali_line_input_place begin, end;
    int64_t input_bytes; /* that had been read at its end */
};
/* SHOAL_END: there are no more. */
SHOAL_CHECKED shoal_status shoali_line_input_next(struct shoali_line_input *input,
                                                  struct shoali_text_piece *piece);
void shoali_line_input_close(struct shoali_line_input *input);

/* ---- sentences.c ---- */

/* A text, sentence by sentence. A sentence ends
 *   behind . ! ? and their like and what closes quotes and brackets there, where space follows and
 *   what goes on is no small letter; behind those of Chinese and Japanese also without space;
 *   at an empty line.
 * A period does not end one
 *   behind an initial ("J."), short parts with periods between ("e.g.", "U.S."), and the
 * abbreviations of
 *   a list, some of them only before numbers ("No. 5");
 *   where nothing but numbers is before it ("1. The first").
 * The rule is the same for all languages. */
struct shoali_sentences {
    const char *text; /* UTF-8 */
    size_t bytes, at;
    bool keep_space; /* what is between two sentences belongs to the first: nothing is lost */
};
/* Its next sentence is text[*begin, *end). false: there is none. */
bool shoali_sentence_next(struct shoali_sentences *sentences, size_t *begin, size_t *end);

/* ---- piece.c ---- */

/* What is to be done with texts. */
struct shoali_piece_task {
    const char *const *keys;
    int32_t key_count;
    const shoal_tokenizer *tokenizer; /* NULL: code points are collected instead */
    int32_t type;                     /* of packed tokens */
    int32_t eod;                      /* -1: none is appended */
    bool split, keep_space;           /* a sequence is a sentence, not a text */
};
/* Packed tokens of one key. */
struct shoali_piece_out {
    char *tokens;
    size_t bytes, capacity;
    int32_t *lengths; /* of sequences */
    int64_t sequence_count, sequence_room;
    int32_t *sequences; /* of documents */
    int64_t document_count, document_room;
};
struct shoali_piece {
    struct shoali_text_piece text;
    struct shoali_piece_out *out; /* owned: of each key */
    int64_t token_count;
    shoal_status status;
    char message[512];
};
/* What a thread needs to work. */
struct shoali_piece_tools {
    struct shoali_jsonl jsonl;
    int32_t *ids; /* owned */
    int64_t room;
    uint8_t *seen; /* owned: a bit per code point; NULL: not asked for */
};
/* Leaves what went wrong in piece->status and message, with the file and the line. */
void shoali_piece_make(const struct shoali_piece_task *task, const struct shoali_line_input *input,
                       struct shoali_piece_tools *tools, struct shoali_piece *piece);
void shoali_piece_fini(struct shoali_piece *piece, int32_t key_count);
void shoali_piece_tools_fini(struct shoali_piece_tools *tools);

/* ---- workers.c ---- */

/* Reads all that is left of the input, and calls `take` with each piece in order, on the calling
 * thread. The first failure, in the order of the input, ends it. `seen`: where code points go. */
struct shoali_workers_args {
    struct shoali_line_input *input;
    const struct shoali_piece_task *task;
    int32_t workers;
    uint8_t *seen;
    shoal_status (*take)(void *user, const struct shoali_piece *piece);
    void *user;
};
SHOAL_CHECKED shoal_status shoali_workers_run(const struct shoali_workers_args *args);

/* ---- journal.c ---- */

struct shoali_journal {
    uint64_t made_of; /* hash of inputs and arguments */
    struct shoali_line_input_place place;
    int64_t bytes, documents, tokens;
    int32_t key_count;
    struct shoali_index_mark *mark; /* of each key; the caller's */
};
/* Fills the journal. SHOAL_END: there is none, or one of something else. */
SHOAL_CHECKED shoal_status shoali_journal_read(const char *path, struct shoali_journal *journal);
SHOAL_CHECKED shoal_status shoali_journal_write(const char *path,
                                                const struct shoali_journal *journal);

#endif
