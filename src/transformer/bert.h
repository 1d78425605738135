/* bert - BERT's configuration, and its layers. */
#ifndef SHOALI_BERT_H
#define SHOALI_BERT_H

#include "transformer/transformer.h"

struct shoali_bert_config {
    int64_t num_layers, hidden_size, num_attention_heads;
    int64_t seq_length, max_position_embeddings; /* 0: seq_length */
    int64_t ffn_hidden_size;                     /* 0: 4 * hidden_size */
    int64_t vocab_size, make_vocab_size_divisible_by;
    double attention_dropout, hidden_dropout;
    double init_method_std, norm_epsilon;
    bool openai_gelu;
    bool binary_head; /* which of two texts came first is learnt, too */
    bool pre_norm;
};

/* Inputs of the model, in the order of a loader's masked samples. */
enum {
    SHOALI_BERT_TOKENS,
    SHOALI_BERT_TYPES,
    SHOALI_BERT_TARGETS,
    SHOALI_BERT_KEY_COUNT,
    SHOALI_BERT_IS_RANDOM,
    SHOALI_BERT_INPUTS
};

/* In order of use. Config of each: shoali_bert_config, complete. */
extern const shoal_layer_type shoali_bert_embedding, shoali_bert_block, shoali_bert_head;
int64_t shoali_bert_padded_vocab(const struct shoali_bert_config *config);

#endif
