/* inference - generation: an engine's layers on a tape that generates. Level L9, above engine.
 *
 *   generator.c  opening: client JSON, or config.json -> model and tokenizer -> an engine for
 * inference
 *   decoder.c    passes: new tokens of some sequences through the layers, logits back
 *   sample.c     logits to a token, and the loop around it
 *   end_tokens.c which tokens end a text
 *
 * A call's tokens go through the layers in passes of at most SHOALI_PASS_ROWS rows, so memory does
 * not depend on the length of a prompt; of a pass at most SHOALI_PASS_ASKED rows have logits. The
 * cuts change no bit (autograd/kv_cache.h). The slot has the size of the largest pass, as a run in
 * meta mode says; nothing is allocated after creation.
 */
#ifndef SHOALI_INFERENCE_H
#define SHOALI_INFERENCE_H

#include "engine/engine.h"
#include "shoal/inference.h"
#include "transformer/transformer.h"

enum { SHOALI_PASS_ROWS = 256, SHOALI_PASS_ASKED = 64 };

/* Sequences that grow, and what a pass needs. */
struct shoali_decoder {
    shoal_engine *engine; /* borrowed */
    int32_t sequences;
    int64_t positions, vocab;
    int64_t pass_rows, pass_asked; /* at most, of a pass */
    int64_t *length;               /* [sequences] */
    int64_t applied_steps;         /* of the weights that the cache was made with */
    struct shoali_kv_cache *cache;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    struct shoali_observer observer;
    struct shoali_kv_segment *segment; /* [sequences] */
    int32_t *tokens, *asked;           /* of a pass; host */
    uint16_t *low;                     /* 16-bit logits on the host; NULL for fp32 */
};
SHOAL_CHECKED shoal_status shoali_decoder_init(struct shoali_decoder *decoder, shoal_engine *engine,
                                               int32_t sequences, int64_t positions);
void shoali_decoder_fini(struct shoali_decoder *decoder);
SHOAL_CHECKED shoal_status shoali_decoder_forward(struct shoali_decoder *decoder,
                                                  const shoal_generator_input *inputs,
                                                  int32_t count, bool all, float *logits);

struct shoal_generator {
    /* Of a checkpoint; NULL when the engine is the caller's: */
    shoal_model *model;
    shoal_engine *owned;
    shoal_tokenizer *tokenizer;
    int64_t step; /* of the checkpoint */
    struct shoali_decoder decoder;
    int64_t known;       /* tokens that may be drawn */
    int32_t *end_tokens; /* owned */
    int32_t end_count;
    float *logits; /* one row, for shoal_generate */
};

/* end_tokens.c: sets the generator's end tokens as the files of a model's folder say, else its
 * tokenizer; `name` (NULL: none) is a folder in it. SHOAL_ECONFIG: a file says it in no way. */
SHOAL_CHECKED shoal_status shoali_end_tokens_read(const char *folder, const char *name,
                                                  shoal_generator *generator);

#endif
