/* data.h - reads text and makes tokens and micro-batches.
 *
 * Terms
 *   dataset      one array of token ids, partitioned into train, validation and test parts. Text
 *                files are joined in path order with a newline between them, without a document
 *                boundary token. A file named *.jsonl is JSON lines: its records' texts are joined
 *                in the same way. Or Megatron's data files (indexed.h), named by their prefixes,
 *                alone or with weights. Then parts are ranges of sequences.
 *   token cache  the file that stores the array (cache_path). The first process that needs it
 *                makes it. Later processes only compare the text files' sizes and times. All
 *                processes of a machine share its pages, so a text of any length costs each
 *                process a few kilobytes.
 *   loader       returns sample n. The number n counts all samples from the run's start, those of
 *                all ranks together.
 *
 * Invariants
 * - A sample is a pure function of (dataset, seed, n). It does not depend on ranks, steps and
 *   batches, so every layout trains on the same data. The consumed samples are the whole position
 *   of a run (shoal_engine_consumed_samples, which checkpoints store). The batch may change.
 * - A prefetch thread prepares the next micro-batches. It never changes what a loader returns.
 * - tokens[b*T + t] is the input and targets[b*T + t] the token that follows, both [micro_batch,
 *   seq_length]. Masked samples have other arrays (shoal_sample_kind).
 *
 * Sample n of text files
 *   random      starts at a uniform offset in [0, tokens - T - 1]. Train draws from the stream
 *               "sample", validation and test from "eval". An evaluation begins with n = 0, so
 *               every evaluation sees the same samples.
 *   sequential  window n of windows over the whole part that do not overlap. Missing targets at the
 *               end are -1.
 *
 * Sample n of data files
 *   random      number n of the order that Megatron takes for sample_count samples, or of its
 *               cyclic order.
 *   sequential  number n of the order of one epoch. After the last one all targets are -1.
 *
 * A run whose batch never changes may ask for micro-batch m of step s: its sample b is
 * n = (s M + m) micro_batch + b, with M micro-batches a step.
 */
#ifndef SHOAL_DATA_H
#define SHOAL_DATA_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_tokenizer shoal_tokenizer; /* tokenizer.h */

/* ---- dataset --------------------------------------------------------------------------------- */

typedef enum shoal_split {
    SHOAL_SPLIT_TRAIN = 0,
    SHOAL_SPLIT_VALID = 1,
    SHOAL_SPLIT_TEST = 2,
    SHOAL_SPLIT_COUNT = 3
} shoal_split;

/* Immutable after creation. Loaders and threads may share it. */
typedef struct shoal_dataset shoal_dataset;

typedef struct shoal_dataset_args {
    /* Files or folders. Folders are searched recursively: files in path order, links are followed.
     * Links that lead nowhere or back, files that may not be read and files with NUL bytes are
     * skipped with a warning. Hidden entries (.NAME) are skipped. */
    const char *const *paths;
    int32_t path_count;
    /* Folder of the token cache; created if missing (Megatron --data-cache-path). NULL: a folder
     * .shoal-cache next to the first file, or in the first folder. If that is not writable:
     * $XDG_CACHE_HOME/shoal or /var/tmp/shoal-UID, which only this user can read. */
    const char *cache_path;
    const char *tokenizer; /* NULL: "byte" */
    /* Borrowed for the call. Instead of learning `tokenizer`, the dataset copies this one (to
     * continue a run). */
    const shoal_tokenizer *use_tokenizer;
    const char *split;        /* weights "train,valid[,test]"; NULL: "90,10" (Megatron --split) */
    bool mock;                /* random tokens instead of files (Megatron --mock-data) */
    int32_t mock_vocab_size;  /* 0: 256 */
    int64_t mock_token_count; /* 0: 1048576 */
    uint64_t seed;            /* of the mock tokens */
    /* Megatron's data files: `paths` may be prefixes, or weights and prefixes alternating ("0.3",
     * "P1", "0.7", "P2"). Their split is a share of the sequences; NULL: "969,30,1". */
    /* Instead of `paths`: one list for each part (Megatron --train-data-path ...). */
    const char *const *split_paths[SHOAL_SPLIT_COUNT];
    int32_t split_path_count[SHOAL_SPLIT_COUNT];
    int32_t vocab_size; /* of data files; 0: from P.tokens.json, or of `tokenizer` */
    bool eod_given;     /* eod_token ends documents; else P.tokens.json gives it */
    int32_t eod_token;
    const char *const *json_keys; /* of JSON lines: keys whose texts are read; none: "text" */
    int32_t json_key_count;
    /* For data files whose sequences are sentences: parts are ranges of documents. Masked samples
     * need it. */
    bool split_documents;
    /* JSON in files of other names than *.jsonl is text. Without it such files are SHOAL_EINVAL:
     * training would learn braces and keys. */
    bool data_text;
    bool list_files; /* shoal_dataset_describe_files lists every file */
    /* The model's size, for a run that continues. It counts where vocab_size is 0 and the data
     * files give a smaller size or none. */
    int32_t least_vocab_size;
    /* Where use_tokenizer comes from, for sentences: "--tokenizer-model FOLDER". NULL: "the given
     * tokenizer". */
    const char *tokenizer_source;
    /* Takes data files that were made with another tokenizer than the given one. Without it they
     * are SHOAL_EINVAL. */
    bool allow_other_tokenizer;
} shoal_dataset_args;

/* Opens the token cache of the files, makes it if it is missing or stale, and splits the tokens.
 * Making it takes 1, 2 or 4 bytes of disk per token and a few MB of memory. Not collective; blocks.
 * While another process makes the same cache it waits and logs that once. SHOAL_ETIMEOUT: that
 * process made no progress for 10 minutes. SHOAL_EIO: no space. SHOAL_EINVAL: the data is wrong,
 * e.g. no file, a text shorter than a sequence, invalid UTF-8 for the tokenizer "char". *dataset is
 * owned by the caller. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_dataset_create(const shoal_dataset_args *args,
                                                          shoal_dataset **dataset);
SHOAL_API void shoal_dataset_destroy(shoal_dataset *dataset); /* NULL is fine */
/* Returns the dataset's tokenizer. Borrowed until destroy; NULL for mock data. */
SHOAL_API const shoal_tokenizer *shoal_dataset_tokenizer(const shoal_dataset *dataset);
/* Returns the number of different tokens. */
SHOAL_API int32_t shoal_dataset_vocab_size(const shoal_dataset *dataset);
/* Returns how many files were read; 0 for mock data. */
SHOAL_API int32_t shoal_dataset_file_count(const shoal_dataset *dataset);
/* Returns a line that counts the text files that were read and skipped, by kind. With list_files a
 * line for each file comes before it. For data files: a line where nothing says that their tokens
 * are those of the given tokenizer. "" for one text file that was given by its name, and for mock
 * data. Borrowed until destroy. */
SHOAL_API const char *shoal_dataset_describe_files(const shoal_dataset *dataset);
/* Returns the path of the token cache. Borrowed until destroy; NULL for mock data. */
SHOAL_API const char *shoal_dataset_path(const shoal_dataset *dataset);
/* Returns the bytes of host memory that the dataset holds, its tokenizer included. */
SHOAL_API int64_t shoal_dataset_host_bytes(const shoal_dataset *dataset);
/* Sizes that a plan needs of a dataset with these arguments. shoal_dataset_peek makes no token
 * cache. Cost: for "char" without a cache one pass over the text. */
typedef struct shoal_dataset_info {
    int32_t vocab_size;
    int64_t host_bytes;
} shoal_dataset_info;
SHOAL_API SHOAL_CHECKED shoal_status shoal_dataset_peek(const shoal_dataset_args *args,
                                                        shoal_dataset_info *info);
/* Returns the number of tokens in a part; 0 for a part that does not exist. */
SHOAL_API int64_t shoal_dataset_token_count(const shoal_dataset *dataset, shoal_split split);
/* Copies tokens [first, first+count) of a part. SHOAL_EUNSUPPORTED: data files, whose order is not
 * unique. SHOAL_EINVAL: the range is outside. SHOAL_EIO: the token cache cannot be read or was
 * changed. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_dataset_read(const shoal_dataset *dataset,
                                                        shoal_split split, int64_t first,
                                                        int64_t count, int32_t *tokens);
/* Returns a hash of all tokens and of the split. It is equal on every rank and after a restart if
 * the data is the same. */
SHOAL_API uint64_t shoal_dataset_fingerprint(const shoal_dataset *dataset);
/* Computes the mean of -ln p(token) over a part, in nats per token: the loss of a model without
 * context. Its p is the frequency in the train part. If a token of the part never occurs in train,
 * p is (count+1)/(n+V) instead of count/n. SHOAL_EUNSUPPORTED: data files. SHOAL_EINVAL: an empty
 * part. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_dataset_unigram_entropy(const shoal_dataset *dataset,
                                                                   shoal_split split,
                                                                   double *nats_per_token);

/* ---- loader ---------------------------------------------------------------------------------- */

typedef struct shoal_loader shoal_loader;

/* Megatron's --dataloader-type, for data files. */
typedef enum shoal_order {
    SHOAL_ORDER_SINGLE = 0, /* in the dataset's order, once */
    SHOAL_ORDER_CYCLIC =
        1 /* epochs, each shuffled differently, without end: the order of --no-data-sharding */
} shoal_order;

/* The task that a model learns. It decides which arrays a loader fills, in this order. Each has T
 * numbers per sample unless a count is given.
 *
 *   NEXT_TOKEN      "tokens", "targets"
 *   MASKED          "tokens" with some hidden; "types"; "targets": the hidden tokens, -1 elsewhere;
 *                   "key_count": one number, tokens before the padding; "is_random": one number
 *   MASKED_PAIRS    the same arrays of two texts with types 0 and 1. is_random is 1 if the texts
 *                   changed places (Megatron's BERT with its binary head)
 *
 * Masked samples are Megatron's BERT samples. They come from data files whose sequences are
 * sentences (`shoal_dataset_args.split_documents`), with the tokens [CLS], [SEP], [MASK] and [PAD].
 * Or they come from mock tokens, where 0 to 3 stand for [PAD], [CLS], [SEP] and [MASK]. */
typedef enum shoal_sample_kind {
    SHOAL_SAMPLE_NEXT_TOKEN = 0,
    SHOAL_SAMPLE_MASKED = 1,
    SHOAL_SAMPLE_MASKED_PAIRS = 2
} shoal_sample_kind;

typedef struct shoal_loader_args {
    const shoal_dataset *dataset; /* borrowed until the loader is destroyed */
    shoal_split split;
    bool sequential;       /* windows over the whole part, not random offsets */
    int64_t seq_length;    /* T, tokens of a sample */
    int64_t micro_batch;   /* samples per micro-batch */
    int64_t micro_batches; /* M: global micro-batches per step (all data-parallel ranks together) */
    uint64_t seed;
    /* The members below are for data files. */
    /* Samples that all steps together take, also those before a resume; the order depends on it.
     * 0: one epoch. */
    int64_t sample_count;
    shoal_order order;
    double surplus;         /* share by which parts of a blend are larger; 0: 0.005 */
    bool keep_last_partial; /* pad and keep a last validation sample that is not full */
    bool no_extra_token;    /* samples share no token; their last target is -1 */
    bool eod_mask_loss;     /* targets after an end-of-document token are -1 */
    shoal_sample_kind kind;
    double mask_prob;      /* share of hidden tokens in masked samples; 0: 0.15 */
    double short_seq_prob; /* share of shorter masked samples; 0: 0.1; below 0: none */
    /* For a run that continues: what shoal_loader_order returned when its checkpoint was saved;
     * borrowed for the call. The loader keeps this order, and extends it for a larger
     * sample_count. */
    const int64_t *order_samples;
    int32_t order_count;
} shoal_loader_args;

/* Creates a loader. For data files it makes or opens the maps of the order, in the dataset's cache,
 * and blocks as shoal_dataset_create does. SHOAL_EINVAL: the part has fewer than seq_length + 1
 * tokens (sequential: fewer than 2). *loader is owned by the caller. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_create(const shoal_loader_args *args,
                                                         shoal_loader **loader);
/* Stops the prefetch thread and frees the loader. NULL is fine. */
SHOAL_API void shoal_loader_destroy(shoal_loader *loader);
/* Return the sizes that were given: tokens of a sample, samples of a micro-batch, micro-batches of
 * a step. */
SHOAL_API int64_t shoal_loader_seq_length(const shoal_loader *loader);
SHOAL_API int64_t shoal_loader_micro_batch(const shoal_loader *loader);
SHOAL_API int64_t shoal_loader_micro_batches(const shoal_loader *loader);
/* Returns the steps after which a sequential loader has returned every token once; 0 for a random
 * one (endless). */
SHOAL_API int64_t shoal_loader_step_count(const shoal_loader *loader);

/* Returns for how many samples the parts of the order of data files were made. There is one part,
 * and one more for each continuation that needed more passes over the data. *samples is borrowed
 * until destroy. The result is the number of parts; 0 for text and random tokens. */
SHOAL_API int32_t shoal_loader_order(const shoal_loader *loader, const int64_t **samples);
/* Returns the name of the index-th array of a sample and how many numbers it has per sample; NULL
 * beyond the last. */
SHOAL_API const char *shoal_loader_array(const shoal_loader *loader, int32_t index,
                                         int64_t *numbers);
/* Fills the arrays, [micro_batch, numbers] each, with samples `first` to first + micro_batch - 1.
 * In a step, micro-batch m of shoal_batch_source begins with sample shoal_engine_consumed_samples +
 * m * micro_batch, also after a resume with another batch. `first` is any number from 0 on.
 * SHOAL_EINVAL: it is negative, or beyond the last sample of the order of data files. One thread
 * per loader. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_get_samples(shoal_loader *loader, int64_t first,
                                                              int32_t *const *arrays);
/* The same for global micro-batch `micro` in [0, M) of step >= 0 of a run whose steps all have M
 * micro-batches. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_get_arrays(shoal_loader *loader, int64_t step,
                                                             int64_t micro, int32_t *const *arrays);
/* Fills tokens and targets, [micro_batch, seq_length] each, for NEXT_TOKEN. Takes a prefetched
 * micro-batch, waits if it is being prepared, and otherwise prepares it. After the end of a
 * sequential part all targets are -1 and all tokens 0. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_get(shoal_loader *loader, int64_t step,
                                                      int64_t micro, int32_t *tokens,
                                                      int32_t *targets);

/* Which micro-batches the caller will request, in this order: `count` micro-batches first, first +
 * stride, ... of step first_step, then of first_step + 1, and so on. */
typedef struct shoal_prefetch_args {
    int64_t first_step;
    int64_t first, count, stride; /* stride 0: 1 */
    int32_t depth;                /* micro-batches kept ready; 0: shoal_loader_prefetch_depth */
    /* For steps of fewer than M micro-batches. Numbers then run on from step to step: number k is
     * micro-batch k mod M of step k / M. Step first_step + s has the numbers begin + s * per_step +
     * first + i * stride. 0: every step has M. */
    int64_t per_step, begin;
    /* Added to the numbers of all samples: those that were consumed before the list begins, for
     * shoal_loader_get_samples. */
    int64_t samples_before;
} shoal_prefetch_args;
/* Returns how many micro-batches are kept ready when a step takes `count`: 2 * count, at most
 * 64. */
SHOAL_API int32_t shoal_loader_prefetch_depth(int64_t count);
/* Return bytes of host memory of the prefetcher: the present use, and the use for batches of
 * `batch_bytes` (all arrays of a micro-batch) when a step takes `count` of them. */
SHOAL_API int64_t shoal_loader_host_bytes(const shoal_loader *loader);
SHOAL_API int64_t shoal_loader_plan_bytes(int64_t batch_bytes, int64_t count);
/* Starts the prefetch thread, or restarts it with another list. SHOAL_EINVAL: the list leaves [0,
 * M). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_loader_prefetch(shoal_loader *loader,
                                                           const shoal_prefetch_args *args);

#ifdef __cplusplus
}
#endif
#endif
