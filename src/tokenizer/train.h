/* train - byte-level BPE from text.
 *
 *   train_words.c  text -> how often each word occurs: lines over threads, sums of integers
 *   train_merges.c words -> merges: the most frequent pair becomes a token, again and again; of
 *                  pairs of one count the one of the lower ids
 *   train.c        the tokenizer.json
 *
 * Pairs are found and counted as the trainer of `tokenizers` does it, so that vocabulary and merges
 * of the same lines are the same. */
#ifndef SHOALI_TOKENIZER_TRAIN_H
#define SHOALI_TOKENIZER_TRAIN_H

#include "tokenizer/splitters.h"
#include "tokenizer/vocab.h"

struct shoali_word_count {
    const char *text; /* of the arena; NULL: free */
    uint32_t bytes, hash;
    int64_t count;
};
/* Open addressing. */
struct shoali_word_counts {
    struct shoali_word_count *slot;
    uint32_t mask;
    int64_t used;
    struct shoali_arena arena;
};
void shoali_word_counts_fini(struct shoali_word_counts *counts);
/* Counts the words of text line by line, on the threads of the pool (NULL: this one). Bytes that
 * are no UTF-8 are passed over. Adds to `counts`, which is zero at first. */
SHOAL_CHECKED shoal_status shoali_count_words(struct shoali_pool *pool,
                                              const struct shoali_classes *classes,
                                              shoali_split_fn split, const char *text, size_t bytes,
                                              struct shoali_word_counts *counts);

struct shoali_merge {
    int32_t left, right, id;
};
struct shoali_trained {
    struct shoali_vocab vocab; /* byte-level characters; special tokens first, then the bytes */
    int32_t size;              /* tokens so far */
    struct shoali_merge *merge;
    int64_t merge_count;
    struct shoali_arena *arena;
};
/* Learns merges until there are `vocab_size` tokens or no pair is frequent enough; the vocabulary
 * holds special tokens and the 256 bytes, `byte_id` says under which ids. */
SHOAL_CHECKED shoal_status shoali_learn_merges(const struct shoali_word_counts *counts,
                                               const int32_t byte_id[256], int64_t vocab_size,
                                               int64_t min_frequency,
                                               struct shoali_trained *trained);

#endif
