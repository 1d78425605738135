/* inference.h - generates text from a checkpoint, or from an engine that is training.
 *
 * A generator keeps the keys and values of several sequences, so a new token costs one row through
 * the model. It runs the model's own layers. Weights stay in place, in their own type.
 *
 * Invariants
 * - Logits have the bits of the training forward pass, with one kernel set and one type of weights.
 *   Each row of each op has the same bits whatever its neighbours are. So logits depend neither on
 *   how a text is distributed over calls, nor on other sequences of a call, nor on threads or the
 *   cache.
 * - Collective over the engine's group if it has several ranks. All ranks pass the same arguments.
 */
#ifndef SHOAL_INFERENCE_H
#define SHOAL_INFERENCE_H

#include "shoal/data.h"
#include "shoal/engine.h"
#include "shoal/tokenizer.h"
#include "shoal/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_generator shoal_generator;

typedef struct shoal_generator_args {
    /* A folder of checkpoints of `shoal pretrain` (tag NULL: latest), the folder of one checkpoint,
     * or a folder in the layout of the Hugging Face Hub (hub.h). */
    const char *load, *tag;
    /* Or the weights of this engine, in place. Borrowed until destroy. Its layers support
     * shoal_tape_generating. */
    shoal_engine *engine;
    const char *accelerator; /* with `load`; NULL: environment, detection */
    const char *ops;
    int32_t threads;   /* with `load`; 0: all cores */
    int32_t sequences; /* number of sequences; 0: 1 */
    /* Tokens of a text. 0: as many as the checkpoint's model has positions. Required with
     * `engine`. */
    int64_t max_length;
    /* With `load`: the type of computation, fp32, bf16 or fp16. NULL: the type of the checkpoint's
     * weights, or of config.json. */
    const char *dtype;
    /* With `load`: ranks that partition the matrices (tensor parallel). All of them make the same
     * calls and get the same tokens. NULL: one rank. Borrowed until destroy. */
    shoal_mesh *mesh;
    /* With `load`: keys of config.json that are not known are ignored, with a warning. */
    bool allow_unknown_keys;
    /* With `load`, a checkpoint of DeepSpeed or a folder of weights: the folder of the model's
     * config.json and tokenizer. NULL: `load`. */
    const char *model_config;
} shoal_generator_args;

/* Creates a generator. With `load` reads model, tokenizer and weights of any model of the table
 * (transformer.h) that generates. *generator is owned by the caller. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_generator_create(const shoal_generator_args *args,
                                                            shoal_generator **generator);
SHOAL_API void shoal_generator_destroy(shoal_generator *generator); /* NULL is fine */
/* Returns the tokenizer. Borrowed until destroy. NULL with `engine`, and if the folder has none. */
SHOAL_API const shoal_tokenizer *shoal_generator_tokenizer(const shoal_generator *generator);
/* Returns the checkpoint's model configuration. Borrowed until destroy. NULL with `engine`. */
SHOAL_API const shoal_model_config *shoal_generator_config(const shoal_generator *generator);
/* Returns the tokens that end a text: eos_token_id of the folder's generation_config.json, else of
 * its config.json, else the tokenizer's end of a document. Borrowed. *count 0: none; also with
 * `engine`. */
SHOAL_API const int32_t *shoal_generator_end_tokens(const shoal_generator *generator,
                                                    int32_t *count);
/* Returns the training step of the weights. */
SHOAL_API int64_t shoal_generator_step(const shoal_generator *generator);
/* Returns how many tokens a text may have, by the tokenizer or the data. Higher tokens are
 * padding. */
SHOAL_API int64_t shoal_generator_known_tokens(const shoal_generator *generator);
/* Returns the number of logits per token, padding of the vocabulary included. */
SHOAL_API int64_t shoal_generator_vocab_size(const shoal_generator *generator);

/* New tokens that are appended to one sequence. */
typedef struct shoal_generator_input {
    int32_t sequence; /* 0 ... sequences - 1; at most once in a call */
    const int32_t *tokens;
    int64_t count; /* at least 1 */
} shoal_generator_input;
/* Appends new tokens to some sequences. logits (host, fp32; NULL: none) receives a row of
 * shoal_generator_vocab_size for the last token of each input. With `all` it receives a row for
 * each token of each input, in order. SHOAL_EINVAL: a sequence would exceed max_length, or the
 * engine's weights changed after the sequence began. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_generator_forward(shoal_generator *generator,
                                                             const shoal_generator_input *inputs,
                                                             int32_t count, bool all,
                                                             float *logits);
/* Return, or shorten to `length`, the number of tokens of a sequence. 0: start again. */
SHOAL_API int64_t shoal_generator_length(const shoal_generator *generator, int32_t sequence);
SHOAL_API SHOAL_CHECKED shoal_status shoal_generator_truncate(shoal_generator *generator,
                                                              int32_t sequence, int64_t length);

/* Receives each new token when it is generated. A negative return ends the generation with that
 * status. */
typedef shoal_status (*shoal_token_sink)(void *user, int32_t token);

typedef struct shoal_sample_args {
    const int32_t *prompt; /* at least one token */
    int64_t prompt_count, num_tokens;
    double temperature; /* 0: always the likeliest token; ignored with top_k 1 */
    int64_t top_k;      /* 0: all; 1: argmax */
    uint64_t seed;
    const int32_t *end_tokens; /* after one of them, which is handed out, the text ends */
    int32_t end_count;         /* 0: it has num_tokens tokens */
} shoal_sample_args;
/* Generates num_tokens tokens in sequence 0, from its beginning; fewer when a token ends the text.
 * When the sequence is full (max_length), the last half of the text is read again and generation
 * continues. SHOAL_EINVAL: an empty prompt, or values out of range. SHOAL_ENUMERIC: a logit is NaN
 * or infinite, so that no token can be drawn. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_generate(shoal_generator *generator,
                                                    const shoal_sample_args *args,
                                                    shoal_token_sink sink, void *user);

#ifdef __cplusplus
}
#endif
#endif
