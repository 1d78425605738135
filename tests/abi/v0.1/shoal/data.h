/* data.h - text to tokens to micro-batches.
 *
 * A dataset is text files turned into one array of token ids, cut into train, validation and test
 * parts. Files are joined in path order with a newline between them; there is no document boundary
 * token. A file named *.jsonl is JSON lines: the texts of its records are joined in the same way.
 *
 * Or it is Megatron's data files (indexed.h), named by their prefixes, alone or with weights: then
 * parts are ranges of sequences, and samples come in Megatron's order, see loader.
 *
 * The array is a file, not memory: the first process that needs it makes it (the token cache, see
 * cache_path), later ones open it in the time that it takes to look at the text files' sizes and
 * times. All processes of a machine read the same pages of the system's cache, so a text of any
 * length costs each of them a few kilobytes. A loader answers one question: what is micro-batch m
 * of step s? The answer is a pure function of (dataset, seed, s, m): it knows nothing of ranks, so
 * any layout that asks for the same global micro-batches trains on the same data, and there is no
 * position to save: a checkpoint's step is enough.
 *
 *   random      sample g of step s (g = m * micro_batch + b) starts at a uniform offset in
 *               [0, n - T - 1]; train draws from the stream "sample", validation and test from
 * "eval", where s is the number of the evaluation batch, so every evaluation sees the same set
 *   sequential  non-overlapping windows over the whole part; missing targets at the end are -1
 *
 * of data files, sample k = s M micro_batch + m micro_batch + b (M micro-batches in a step) is
 *
 *   random      number k of the order that Megatron would take for sample_count samples, or of its
 *               cyclic order
 *   sequential  number k of the order of one epoch; behind the last all targets are -1
 *
 * tokens[b*T + t] is the input and targets[b*T + t] the following token, both [micro_batch,
 * seq_length]. Those are the arrays of samples of the next token; masked samples, BERT's, have others
 * (shoal_sample_kind).
 *
 * A loader may run a prefetch thread that prepares the micro-batches this caller will ask for next;
 * it never changes what shoal_loader_get returns.
 *
 * Errors are sentences for the user: no data, unreadable path, text too short for the sequence
 * length, invalid UTF-8 for the tokenizer "char", no space for the token cache.
 */
#ifndef SHOAL_DATA_H
#define SHOAL_DATA_H

#include "shoal/status.h"
#include "shoal/tokenizer.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dataset --------------------------------------------------------------------------------- */

typedef enum shoal_split {
    SHOAL_SPLIT_TRAIN = 0,
    SHOAL_SPLIT_VALID = 1,
    SHOAL_SPLIT_TEST = 2,
    SHOAL_SPLIT_COUNT = 3
} shoal_split;

/* Immutable after creation; may be shared by loaders and threads. */
typedef struct shoal_dataset shoal_dataset;

typedef struct shoal_dataset_args {
    const char *const *paths; /* files or folders; folders are searched recursively: regular files
                                 in path order, links not followed; those that may not be read and
                                 those with NUL bytes are skipped with a warning */
    int32_t path_count;
    /* Folder of the token cache, made when it is not there (Megatron --data-cache-path). NULL: a
     * folder .shoal-cache beside the first file, or in the first folder; where that may not be
     * written $XDG_CACHE_HOME/shoal or /var/tmp/shoal-UID, which only this user can read. */
    const char *cache_path;
    const char *tokenizer;                /* NULL: "byte" */
    const shoal_tokenizer *use_tokenizer; /* borrowed for the call; given: `tokenizer` is not learnt
                                             anew but copied from this one (continuing a run) */
    const char *split;        /* weights "train,valid[,test]"; NULL: "90,10" (Megatron --split) */
    bool mock;                /* random tokens instead of files (Megatron --mock-data) */
    int32_t mock_vocab_size;  /* 0: 256 */
    int64_t mock_token_count; /* 0: 1048576 */
    uint64_t seed;            /* of the mock tokens */
    /* Data files of Megatron's: `paths` may be prefixes, or weights and prefixes in turn ("0.3",
     * "P1", "0.7", "P2"). Their split is a share of the sequences; NULL: "969,30,1". */
    const char *const *split_paths[SHOAL_SPLIT_COUNT]; /* instead of `paths`: one list for each part
                                                          (Megatron --train-data-path ...) */
    int32_t split_path_count[SHOAL_SPLIT_COUNT];
    int32_t vocab_size; /* of data files; 0: as P.tokens.json says, or that of `tokenizer` */
    bool eod_given;     /* eod_token ends documents; else as P.tokens.json says */
    int32_t eod_token;
    const char *const *json_keys; /* of JSON lines: the keys whose texts are taken; none: "text" */
    int32_t json_key_count;
    bool split_documents; /* of data files whose sequences are sentences: parts are ranges of
                             documents. Masked samples need it */
} shoal_dataset_args;

/* Opens the token cache of the files, makes it first when there is none that is theirs (1, 2 or 4
 * bytes of disk per token, a few MB of memory), and splits. Not collective; blocking: when another
 * process makes the same cache it waits, says so once, and fails with SHOAL_ETIMEOUT when that one
 * makes no progress for 10 minutes. SHOAL_EIO: no space; SHOAL_EINVAL: the user's data. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_dataset_create(const shoal_dataset_args *args,
                                                             shoal_dataset **dataset);
SHOAL_API void shoal_dataset_destroy(shoal_dataset *dataset); /* NULL is fine */
/* Borrowed until destroy; NULL for mock data. */
SHOAL_API const shoal_tokenizer *shoal_dataset_tokenizer(const shoal_dataset *dataset);
/* Kinds of tokens. */
SHOAL_API int32_t shoal_dataset_vocab_size(const shoal_dataset *dataset);
/* Files that were read; 0 for mock data. */
SHOAL_API int32_t shoal_dataset_file_count(const shoal_dataset *dataset);
/* The token cache's file: borrowed until destroy; NULL for mock data. */
SHOAL_API const char *shoal_dataset_path(const shoal_dataset *dataset);
/* Host memory that the dataset holds, its tokenizer included. */
SHOAL_API int64_t shoal_dataset_host_bytes(const shoal_dataset *dataset);
/* What a plan needs to know of data: as a dataset of these arguments would say it, without making a
 * token cache. Costs one pass over the text for "char" where there is no cache yet. */
typedef struct shoal_dataset_info {
    int32_t vocab_size;
    int64_t host_bytes;
} shoal_dataset_info;
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_dataset_peek(const shoal_dataset_args *args,
                                                           shoal_dataset_info *info);
/* Tokens in a part; 0 for a part that does not exist. */
SHOAL_API int64_t shoal_dataset_token_count(const shoal_dataset *dataset, shoal_split split);
/* Copies tokens [first, first+count) of a part. SHOAL_EUNSUPPORTED for data files, which have no
 * one order; SHOAL_EINVAL when outside; SHOAL_EIO when the token cache cannot be read or was
 * changed. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_dataset_read(const shoal_dataset *dataset,
                                                        shoal_split split, int64_t first,
                                                        int64_t count, int32_t *tokens);
/* Hash of all tokens and the cuts: equal on every rank and after a restart when the data is the
 * same. */
SHOAL_API uint64_t shoal_dataset_fingerprint(const shoal_dataset *dataset);
/* Mean of -ln p(token) over a part, in nats per token, p the frequencies in the train part: the
 * loss of a model that knows no context. SHOAL_EUNSUPPORTED for data files. When a token of the part never occurs in train, p is
 * (count+1)/(n+V) instead of count/n. SHOAL_EINVAL for an empty part. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_dataset_unigram_entropy(const shoal_dataset *dataset,
                                                                   shoal_split split,
                                                                   double *nats_per_token);

/* ---- loader ---------------------------------------------------------------------------------- */

typedef struct shoal_loader shoal_loader;

/* Megatron's --dataloader-type, for data files. */
typedef enum shoal_order {
    SHOAL_ORDER_SINGLE = 0, /* as the dataset has them, once */
    SHOAL_ORDER_CYCLIC = 1 /* epochs, each shuffled anew: --no-data-sharding's order, without end */
} shoal_order;

/* What is to be learnt of the tokens, and with that which arrays a loader fills, in this order; T
 * numbers of a sample in each where no other count is given.
 *
 *   NEXT_TOKEN      "tokens", "targets"
 *   MASKED          "tokens" with some hidden; "types"; "targets", the hidden tokens, -1 elsewhere;
 *                   "key_count", one: tokens before the padding; "is_random", one
 *   MASKED_PAIRS    the same, of two texts whose types are 0 and 1 and that may have changed places:
 *                   then is_random is 1 (Megatron's BERT with its binary head)
 *
 * Masked samples are those of Megatron's BERT: of data files whose sequences are sentences
 * (shoal_dataset_args.split_documents), with the tokens [CLS], [SEP], [MASK] and [PAD]; or of
 * mock tokens, of which 0 to 3 stand for [PAD], [CLS], [SEP] and [MASK]. */
typedef enum shoal_sample_kind {
    SHOAL_SAMPLE_NEXT_TOKEN = 0,
    SHOAL_SAMPLE_MASKED = 1,
    SHOAL_SAMPLE_MASKED_PAIRS = 2
} shoal_sample_kind;

typedef struct shoal_loader_args {
    const shoal_dataset *dataset; /* borrowed until the loader is destroyed */
    shoal_split split;
    bool sequential;       /* windows over the whole part instead of random ones */
    int64_t seq_length;    /* T */
    int64_t micro_batch;   /* samples per micro-batch */
    int64_t micro_batches; /* M: global micro-batches per step (all data-parallel ranks together) */
    uint64_t seed;
    /* The rest is for data files. */
    int64_t sample_count; /* samples that all steps together will take: the order depends on it; 0:
                             one epoch */
    shoal_order order;
    double surplus;         /* share by which parts of a blend are larger; 0: 0.005 */
    bool keep_last_partial; /* a last validation sample that is not full counts, padded */
    bool no_extra_token;    /* samples do not share a token, and their last target is -1 */
    bool eod_mask_loss;     /* targets behind an end-of-document token are -1 */
    shoal_sample_kind kind;
    double mask_prob;      /* of masked samples: share of hidden tokens; 0: 0.15 */
    double short_seq_prob; /* ... that are of fewer tokens; 0: 0.1; below 0: none */
} shoal_loader_args;

/* *loader is owned by the caller. Of data files it makes or opens the maps of the order, in the
 * dataset's cache; blocking like shoal_dataset_create. SHOAL_EINVAL when the part has fewer than
 * seq_length + 1 tokens (sequential: fewer than 2). */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_loader_create(const shoal_loader_args *args,
                                                            shoal_loader **loader);
/* Stops the prefetch thread and frees. NULL is fine. */
SHOAL_API void shoal_loader_destroy(shoal_loader *loader);
/* As given at creation: tokens of a sample, samples of a micro-batch, micro-batches of a step. */
SHOAL_API int64_t shoal_loader_seq_length(const shoal_loader *loader);
SHOAL_API int64_t shoal_loader_micro_batch(const shoal_loader *loader);
SHOAL_API int64_t shoal_loader_micro_batches(const shoal_loader *loader);
/* Steps after which a sequential loader has shown everything once; 0 for a random one (endless). */
SHOAL_API int64_t shoal_loader_step_count(const shoal_loader *loader);

/* Name of the index-th array of its samples, and its numbers per sample; NULL behind the last. */
SHOAL_API const char *shoal_loader_array(const shoal_loader *loader, int32_t index,
                                         int64_t *numbers);
/* Fills the arrays, [micro_batch, numbers] each, of global micro-batch `micro` in [0, M) of step >=
 * 0. One thread per loader. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_get_arrays(shoal_loader *loader, int64_t step,
                                                             int64_t micro, int32_t *const *arrays);
/* The same, of samples of the next token: fills tokens and targets, [micro_batch, seq_length] each. Takes a prepared one when the prefetcher has it, waits for it when it is being
 * prepared, and makes it itself otherwise. Past the end of a sequential part all targets are -1
 * (and tokens 0). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_get(shoal_loader *loader, int64_t step,
                                                      int64_t micro, int32_t *tokens,
                                                      int32_t *targets);

/* What the caller will ask for: at step first_step, first_step + 1, ... the micro-batches
 * first, first + stride, ... (count of them), in this order. */
typedef struct shoal_prefetch_args {
    int64_t first_step;
    int64_t first, count, stride; /* stride 0: 1 */
    int32_t depth;                /* micro-batches kept ready; 0: shoal_loader_prefetch_depth */
    /* For steps that have fewer than M micro-batches: numbers run on from step to step, and number k
     * is asked for as micro-batch k mod M of step k / M. The list's step first_step + s has the
     * numbers begin + s * per_step + first + i * stride. 0: steps have M. */
    int64_t per_step, begin;
} shoal_prefetch_args;
/* How many micro-batches are kept ready when a step takes `count` of them: 2 * count, at most 64.
 */
SHOAL_API int32_t shoal_loader_prefetch_depth(int64_t count);
/* Host memory of the prefetcher, now; and what it will be for batches of `batch_bytes` (all arrays
 * of a micro-batch) when a step takes `count` of them. */
SHOAL_API int64_t shoal_loader_host_bytes(const shoal_loader *loader);
SHOAL_API int64_t shoal_loader_plan_bytes(int64_t batch_bytes, int64_t count);
/* Starts (or restarts with another list) the prefetch thread. SHOAL_EINVAL when the list leaves [0,
 * M). */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_loader_prefetch(shoal_loader *loader,
                                                              const shoal_prefetch_args *args);

/* ---- structs that grow ----------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_dataset_create_sized(const shoal_dataset_args *args,
                                                                size_t args_size,
                                                                shoal_dataset **dataset);
SHOAL_API SHOAL_CHECKED shoal_status shoal_dataset_peek_sized(const shoal_dataset_args *args,
                                                              size_t args_size,
                                                              shoal_dataset_info *info,
                                                              size_t info_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_create_sized(const shoal_loader_args *args,
                                                               size_t args_size,
                                                               shoal_loader **loader);
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_prefetch_sized(shoal_loader *loader,
                                                                 const shoal_prefetch_args *args,
                                                                 size_t args_size);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_dataset_create(const shoal_dataset_args *args,
                                                             shoal_dataset **dataset)
{
    return shoal_dataset_create_sized(args, sizeof *args, dataset);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_dataset_peek(const shoal_dataset_args *args,
                                                           shoal_dataset_info *info)
{
    return shoal_dataset_peek_sized(args, sizeof *args, info, sizeof *info);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_loader_create(const shoal_loader_args *args,
                                                            shoal_loader **loader)
{
    return shoal_loader_create_sized(args, sizeof *args, loader);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_loader_prefetch(shoal_loader *loader,
                                                              const shoal_prefetch_args *args)
{
    return shoal_loader_prefetch_sized(loader, args, sizeof *args);
}

#ifdef __cplusplus
}
#endif
#endif
