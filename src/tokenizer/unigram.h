/* unigram - what the models of SentencePiece share: types of pieces, third member of each element
 * of "vocab". */
#ifndef SHOALI_TOKENIZER_UNIGRAM_H
#define SHOALI_TOKENIZER_UNIGRAM_H

#include "tokenizer/pipeline.h"

/* As the file numbers them. */
enum {
    SHOALI_PIECE_NORMAL = 1,
    SHOALI_PIECE_UNKNOWN = 2,
    SHOALI_PIECE_CONTROL = 3,
    SHOALI_PIECE_USER = 4,
    SHOALI_PIECE_UNUSED = 5,
    SHOALI_PIECE_BYTE = 6
};
/* Reads them; control pieces are marked special; the user's go to the pipeline's trie. */
SHOAL_CHECKED shoal_status shoali_sentencepiece_types(const struct shoali_spec *spec,
                                                      const struct shoali_word_model *model,
                                                      const uint8_t **type);

#endif
