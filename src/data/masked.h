/* masked - samples as BERT learns from them: tokens that are hidden, and two texts that may have
 * changed places (Devlin et al. 2018; sentence order: Lan et al. 2019).
 *
 * A sample is made of sentences and a seed, with the draws of Megatron's BERTMaskedWordPieceDataset
 * in its order, from NumPy's RandomState(seed) (real: in [0, 1); below(n): in [0, n)):
 *
 *   pair      of n sentences the first p are text A, the rest B; p = 1, with three and more
 *             1 + below(n - 1). real < 1/2: A and B change places, which is `is_random`.
 *             Without pairs all of it is A, and nothing is drawn.
 *   cut       while A and B have more tokens than the target, the longer one (of equals B) loses its
 *             first token if real < 1/2, else its last
 *   tokens    [CLS] A [SEP] B [SEP]; types 0 up to the first [SEP], then 1
 *   words     a token "##..." belongs to the word before it, be there a [SEP] between
 *   how many  min(mask_prob * target, max(1, mask_prob * tokens, rounded to even))
 *   order     all words, shuffled
 *   run       at each word as long as there are to be more: of it and the next ones 1, 2 or 3 (with
 *             probabilities 6/11, 3/11, 2/11: one real), fewer where that would be too many, none
 *             where one word is, or where a token of them is hidden already
 *   hide      each token of the run: real < 0.8 becomes [MASK]; else real >= 1/2 becomes token
 *             below(vocabulary), and in the rest of cases stays
 *
 * Targets are the hidden tokens, -1 elsewhere; behind the last token [PAD], of type 0.
 */
#ifndef SHOALI_MASKED_H
#define SHOALI_MASKED_H

#include "base/base.h"
#include "shoal/data.h"

#define SHOALI_MASKED_NGRAM 3
/* [CLS] and two [SEP]. */
#define SHOALI_MASKED_EXTRA 3

struct shoali_masked {
    int64_t seq_length;
    double mask_prob;
    bool pairs;
    int32_t cls, sep, mask, pad, vocab_size;
    uint8_t *inside; /* owned: a bit of each token that goes on a word; NULL: none does */
    double below[SHOALI_MASKED_NGRAM]; /* a real below the n-th: n + 1 words */
};
/* `tokenizer` NULL: random tokens, of which the first four stand for [PAD], [CLS], [SEP], [MASK].
 * seq_length, mask_prob, pairs and vocab_size are the caller's. SHOAL_EINVAL: the tokenizer has no
 * such token. */
SHOAL_CHECKED shoal_status shoali_masked_init(struct shoali_masked *masked,
                                              const shoal_tokenizer *tokenizer);
void shoali_masked_fini(struct shoali_masked *masked);

/* What a sample is made of. */
struct shoali_masked_text {
    int32_t *tokens;    /* of all sentences; its order is the callee's to change */
    const int64_t *end; /* of each sentence in `tokens` */
    int64_t sentence_count;
    int64_t target; /* tokens of A and B at most: 2 to seq_length - 3 */
    uint32_t seed;
};
/* Where it goes: seq_length numbers each, and two. */
struct shoali_masked_sample {
    int32_t *tokens, *types, *targets, *key_count, *is_random;
};
SHOAL_CHECKED shoal_status shoali_masked_make(const struct shoali_masked *masked,
                                              const struct shoali_masked_text *text,
                                              const struct shoali_masked_sample *sample);
/* masked_mock.c: sample `number` of a data set of random tokens. */
struct shoal_loader_args;
SHOAL_CHECKED shoal_status shoali_masked_mock(const struct shoali_masked *masked,
                                              const struct shoal_loader_args *args, int64_t number,
                                              const struct shoali_masked_sample *sample);
/* A sample of nothing: no target counts. */
void shoali_masked_empty(const struct shoali_masked *masked,
                         const struct shoali_masked_sample *sample);

#endif
