/* inference.h - text from a model: from a checkpoint, or from an engine that is training.
 *
 * A generator keeps the keys and values of several sequences, so a new token costs one row through
 * the model. It runs the model's own layers with the weights where they are, in their own type.
 *
 * GENERATION IS THE TRAINING FORWARD PASS, BIT FOR BIT: every row of every op has the same bits
 * whatever its neighbours are, so logits do not depend on how a text is cut into calls, on which
 * other sequences share a call, on the number of threads, or on whether there was a cache at all.
 * (With one kernel set and one type of weights.)
 *
 * Collective over the engine's group, if that has several ranks: all give the same arguments.
 */
#ifndef SHOAL_INFERENCE_H
#define SHOAL_INFERENCE_H

#include "shoal/data.h"
#include "shoal/engine.h"
#include "shoal/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_generator shoal_generator;

typedef struct shoal_generator_args {
    /* Checkpoint folder as written by `shoal pretrain` (tag NULL: latest), one of its checkpoints by
     * its own folder, or a folder as the Hugging Face Hub has it (hub.h). */
    const char *load, *tag;
    shoal_engine *engine; /* or this engine's weights, in place; borrowed until destroy. Its layers
                             honour shoal_tape_generating */
    const char *accelerator; /* with `load`; NULL: environment, detection */
    const char *ops;
    int32_t threads;    /* with `load`; 0: all cores */
    int32_t sequences;  /* texts at once; 0: 1 */
    int64_t max_length; /* of a text, in tokens; 0: as many as the checkpoint's model has positions
                           for. With `engine` it must be given */
    const char *dtype;  /* with `load`: fp32, bf16 or fp16, in which it computes; NULL: as the
                           checkpoint's weights, or as config.json says */
    shoal_mesh *mesh;   /* with `load`: ranks that share the matrices, each of which makes the same
                           calls and gets the same tokens; NULL: one. Borrowed until destroy */
} shoal_generator_args;

/* With `load` reads model, tokenizer and weights: of any model of the table (transformer.h) that
 * generates. *generator is owned. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_generator_create(const shoal_generator_args *args,
                                                               shoal_generator **generator);
SHOAL_API void shoal_generator_destroy(shoal_generator *generator); /* NULL is fine */
/* Borrowed; NULL with `engine`, and where the folder has none. */
SHOAL_API const shoal_tokenizer *shoal_generator_tokenizer(const shoal_generator *generator);
/* What the checkpoint says of its model. Borrowed; NULL with `engine`. */
SHOAL_API const shoal_model_config *shoal_generator_config(const shoal_generator *generator);
/* Training step of the weights. */
SHOAL_API int64_t shoal_generator_step(const shoal_generator *generator);
/* Tokens that a text may have, as the tokenizer or data say: those behind are padding. */
SHOAL_API int64_t shoal_generator_known_tokens(const shoal_generator *generator);
/* Logits of a token: kinds of tokens, padded ones of the model included. */
SHOAL_API int64_t shoal_generator_vocab_size(const shoal_generator *generator);

/* New tokens of one sequence, behind those that it has. */
typedef struct shoal_generator_input {
    int32_t sequence; /* 0 ... sequences - 1; in one call at most once */
    const int32_t *tokens;
    int64_t count; /* at least 1 */
} shoal_generator_input;
/* Reads new tokens of some sequences. logits (host, fp32) receives a row of
 * shoal_generator_vocab_size for the last token of each input, or with `all` for each token of each
 * input, in order; NULL: none. SHOAL_EINVAL when a sequence would exceed max_length, and when the
 * engine's weights changed since the sequence began. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_generator_forward(shoal_generator *generator,
                                                             const shoal_generator_input *inputs,
                                                             int32_t count, bool all,
                                                             float *logits);
/* Tokens that a sequence has; cutting it to fewer (0: from the beginning) forgets the others. */
SHOAL_API int64_t shoal_generator_length(const shoal_generator *generator, int32_t sequence);
SHOAL_API SHOAL_CHECKED shoal_status shoal_generator_truncate(shoal_generator *generator,
                                                              int32_t sequence, int64_t length);

/* Receives each new token as it comes; a negative return stops the generation with that status. */
typedef shoal_status (*shoal_token_sink)(void *user, int32_t token);

typedef struct shoal_sample_args {
    const int32_t *prompt; /* at least one token */
    int64_t prompt_count, num_tokens;
    double temperature; /* 0: always the likeliest; ignored with top_k 1 */
    int64_t top_k;      /* 0: all; 1: argmax */
    uint64_t seed;
} shoal_sample_args;
/* Generates num_tokens tokens on sequence 0, from its beginning. When it is full (max_length) the
 * last half of the text is read again and generation goes on. SHOAL_EINVAL for an empty prompt or
 * values out of range. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_generate(shoal_generator *generator,
                                                       const shoal_sample_args *args,
                                                       shoal_token_sink sink, void *user);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_generator_create_sized(const shoal_generator_args *args,
                                                                  size_t args_size,
                                                                  shoal_generator **generator);
SHOAL_API SHOAL_CHECKED shoal_status shoal_generate_sized(shoal_generator *generator,
                                                          const shoal_sample_args *args,
                                                          size_t args_size, shoal_token_sink sink,
                                                          void *user);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_generator_create(const shoal_generator_args *args,
                                                               shoal_generator **generator)
{
    return shoal_generator_create_sized(args, sizeof *args, generator);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_generate(shoal_generator *generator,
                                                       const shoal_sample_args *args,
                                                       shoal_token_sink sink, void *user)
{
    return shoal_generate_sized(generator, args, sizeof *args, sink, user);
}

#ifdef __cplusplus
}
#endif
#endif
