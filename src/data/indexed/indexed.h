/* indexed - Megatron's data files, and the order in which its GPT takes samples from them.
 *
 * WORDS  A *sequence* is a list of tokens, a *document* one or more of them (one, unless sentences
 * were split). A *prefix* P names the pair P.bin, P.idx. A *map* is an array of integers that says
 * in which order samples are taken. A *part* is the sequences of one file that belong to a split.
 *
 * FILES  P.bin is the tokens, one after the other. P.idx, little-endian:
 *
 *   0         9 bytes "MMIDIDX\0\0"
 *   9         u64 version, 1
 *   17        u8 type of a token: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
 *   18        u64 number of sequences S
 *   26        u64 number of document boundaries D, one more than documents
 *   34        i32[S] lengths in tokens
 *   34 + 4S   i64[S] offsets in P.bin, in bytes
 *   34 + 12S  i64[D] boundaries: the first sequence of each document; first 0, last S
 *
 * A file is checked as a whole when it is opened: type, counts against both files' sizes, offsets
 * that lie in P.bin and do not go back, boundaries that do not go back. What is read later is
 * checked again, because files change. Nothing is mapped: token_source.h says why.
 *
 * ORDER  With T tokens in a part, samples of s tokens (and the one that follows), n of them asked
 * for, an epoch is one pass over the part. E epochs are taken, the least with E T >= n s + 1. Three
 * maps are made with one MT19937 generator of the seed:
 *
 *   document index   E copies of the part's sequence numbers, shuffled; with a separate last epoch
 *                    E - 1 copies shuffled, then one more by itself
 *   sample index     where each sample begins in the tokens of that order (place in the document
 *                    index, offset); samples overlap in one token
 *   shuffle index    a permutation of the samples, the last epoch's by themselves where separate
 *
 * The last epoch is separate when less than 80 % of it is needed: else what is not needed would be
 * missing at random from all epochs. Sample i is number shuffle[i] of the sample index.
 *
 * BLEND  Several parts with weights w: output i goes to the part with the largest
 * w_k max(i, 1) - taken_k, the lowest of equals. Each part is asked for 0.5 % more than its share,
 * because the shares are reached only nearly at every i.
 *
 * SENTENCES  Where samples are masked (masked.h) sequences are sentences, parts ranges of
 * documents, and there is one map: runs of sentences of one document, each up to where it has the
 * tokens of a sample and at least two sentences are left, or to the document's end. One generator
 * of the seed says which samples are to be shorter: of 1 / short_seq_prob (rounded) one, of 2 to
 * all tokens. Epochs follow each other until there are enough samples; all of them are shuffled, by
 * the 64-bit generator of seed + 1.
 *
 * CACHE  Maps are NumPy files (HASH-GPTDataset-train-sample_index.npy and so on) in the places of
 * cache_place.h, made by one process while the others wait, and read in pieces: they take no
 * memory. HASH covers everything that they depend on, sizes and times of the data files included,
 * so a file that was written anew gets new maps.
 *
 *   mt19937.c      NumPy's legacy generator and shuffle; torch's permutation; C++'s of 64 bits
 *   npy.c          one-dimensional and two-column integer arrays as NumPy files
 *   index_file.c   opening, checking, reading; inspection
 *   index_write.c  writing, merging
 *   sample_order.c the three maps
 *   masked_index.c the map of masked samples
 *   blend.c        the choice of parts
 *   map_cache.c    maps in files, made once
 *   samples.h      the samples of a split, for the loader: opened (samples_open.c), read (samples.c),
 *                  both of masked ones (samples_masked.c)
 *   segments.c     orders of a run that is continued, one behind the other
 *   paths.c        from the user's paths, weights and split to parts
 *   vocabulary.c   the vocabulary: what the files say, and what is given
 */
#ifndef SHOALI_INDEXED_H
#define SHOALI_INDEXED_H

#include "data/cache_place.h"
#include "data/data.h"
#include "shoal/indexed.h"

#define SHOALI_INDEX_HEADER_BYTES 34

/* ---- mt19937.c ---- */

struct shoali_mt19937 {
    uint32_t state[624];
    int32_t next; /* index of the next word */
};
/* numpy.random.RandomState(seed) */
void shoali_mt19937_init(struct shoali_mt19937 *generator, uint32_t seed);
uint32_t shoali_mt19937_next(struct shoali_mt19937 *generator);
/* RandomState.randint(0, most + 1) */
uint64_t shoali_mt19937_draw(struct shoali_mt19937 *generator, uint64_t most);
/* RandomState.random: in [0, 1) */
double shoali_mt19937_real(struct shoali_mt19937 *generator);
/* RandomState.shuffle */
void shoali_mt19937_shuffle_i32(struct shoali_mt19937 *generator, int32_t *value, int64_t count);
void shoali_mt19937_shuffle_i64(struct shoali_mt19937 *generator, int64_t *value, int64_t count);
/* torch.randperm(count) of a generator with this seed; count <= SHOALI_PERMUTE_MAX. */
#define SHOALI_PERMUTE_MAX (UINT32_MAX / 20 - 1)
void shoali_mt19937_permute(struct shoali_mt19937 *generator, int32_t *value, int64_t count);

/* std::mt19937_64 */
struct shoali_mt19937_64 {
    uint64_t state[312];
    int32_t next;
};
void shoali_mt19937_64_init(struct shoali_mt19937_64 *generator, uint64_t seed);
uint64_t shoali_mt19937_64_next(struct shoali_mt19937_64 *generator);

/* ---- npy.c ---- */

/* Integers in a file of numpy.save: `columns` of them (1: a vector; at most 3) in each row. */
struct shoali_npy {
    int descriptor;
    char kind; /* 'i' or 'u' */
    size_t width;
    int32_t columns;
    int64_t rows;
    int64_t begin;    /* of the numbers in the file */
    const char *path; /* owned */
    /* writing */
    char *buffer; /* owned; NULL: reading */
    size_t filled;
    int64_t written; /* bytes of numbers */
};
/* Creates the file for exactly `rows` rows. SHOAL_EIO. */
SHOAL_CHECKED shoal_status shoali_npy_create(const char *path, char kind, size_t width,
                                             int64_t rows, int32_t columns,
                                             struct shoali_npy *file);
/* Numbers of the file's width. */
SHOAL_CHECKED shoal_status shoali_npy_put(struct shoali_npy *file, const void *numbers,
                                          int64_t count);
/* Flushes to the disk, read-only. The file stays open for nothing. */
SHOAL_CHECKED shoal_status shoali_npy_finish(struct shoali_npy *file);
/* SHOAL_END: absent, not to be trusted, or none that shoali_npy_create wrote. */
SHOAL_CHECKED shoal_status shoali_npy_open(const char *path, struct shoali_npy *file);
/* Rows [first, first + count), as 64-bit numbers. SHOAL_EIO. */
SHOAL_CHECKED shoal_status shoali_npy_read(const struct shoali_npy *file, int64_t first,
                                           int64_t count, int64_t *numbers);
void shoali_npy_close(struct shoali_npy *file);

/* ---- index_file.c ---- */

struct shoali_indexed {
    char *prefix;                     /* owned */
    int index, tokens;                /* descriptors of P.idx and P.bin */
    int32_t type;                     /* code of the header */
    size_t width;                     /* bytes of a token */
    int64_t sequence_count;           /* S */
    int64_t boundary_count;           /* D */
    int64_t token_count;              /* sum of the lengths */
    int32_t shortest, longest;        /* sequence */
    int64_t index_bytes, token_bytes; /* of the files */
    uint64_t state; /* sizes, times and inodes of both: shoali_files_state's idea */
    uint64_t hash;  /* xxh3 of P.idx */
};
/* "uint16" and so on of a type code; NULL: there is none. */
const char *shoali_index_type_name(int32_t type);
size_t shoali_index_type_bytes(int32_t type);
/* Opens and checks. SHOAL_ENOENT; SHOAL_EINVAL: damaged, or of a kind that holds no tokens. */
SHOAL_CHECKED shoal_status shoali_indexed_open(const char *prefix, struct shoali_indexed **file);
void shoali_indexed_close(struct shoali_indexed *file); /* NULL is fine */
/* Lengths of sequences [first, first + count). */
SHOAL_CHECKED shoal_status shoali_indexed_lengths(const struct shoali_indexed *file, int64_t first,
                                                  int64_t count, int32_t *lengths);
SHOAL_CHECKED shoal_status shoali_indexed_boundaries(const struct shoali_indexed *file,
                                                     int64_t first, int64_t count,
                                                     int64_t *boundaries);
/* Tokens in sequences [first, end). */
SHOAL_CHECKED shoal_status shoali_indexed_count(const struct shoali_indexed *file, int64_t first,
                                                int64_t end, int64_t *tokens);
/* Tokens [offset, offset + count) of a sequence, count < 0: to its end; at most `room` of them.
 * *got says how many. SHOAL_EINVAL: a token outside the vocabulary. SHOAL_EIO: files that are not
 * what they were when they were opened. */
SHOAL_CHECKED shoal_status shoali_indexed_read(const struct shoali_indexed *file, int64_t sequence,
                                               int64_t offset, int64_t count, int32_t vocab_size,
                                               int64_t room, int32_t *tokens, int64_t *got);

/* ---- index_write.c ---- */

/* Type code for a vocabulary: u16 below 65500, else i32. */
int32_t shoali_index_type_for(int64_t vocab_size);
/* What a writer has, to go on from there after an end that it did not choose. */
struct shoali_index_mark {
    int64_t token_bytes, sequence_count, document_count;
};
/* Goes on from a mark: the files of before are cut to it. SHOAL_END: they are not there. */
SHOAL_CHECKED shoal_status shoali_index_writer_resume(const char *prefix, int32_t type,
                                                      const struct shoali_index_mark *mark,
                                                      shoal_index_writer **writer);
SHOAL_CHECKED shoal_status shoali_index_writer_create(const char *prefix, int32_t type,
                                                      shoal_index_writer **writer);
/* Tokens as they lie in the file, of whole documents: `ends` counts each one's sequences. */
struct shoali_index_block {
    const void *tokens;
    size_t token_bytes;
    const int32_t *lengths;
    int64_t sequence_count;
    const int32_t *sequences; /* of each document */
    int64_t document_count;
};
SHOAL_CHECKED shoal_status shoali_index_writer_put(shoal_index_writer *writer,
                                                   const struct shoali_index_block *block);
/* Everything that was put so far is on the disk; *mark says how much that is. */
SHOAL_CHECKED shoal_status shoali_index_writer_sync(shoal_index_writer *writer,
                                                    struct shoali_index_mark *mark);
/* Whether destroying it leaves unfinished files for a later resume, or removes them. */
void shoali_index_writer_leave(shoal_index_writer *writer, bool leaves);
/* Packs ids into tokens of a type. */
void shoali_index_pack(int32_t type, const int32_t *ids, int64_t count, void *to);

/* ---- sample_order.c ---- */

/* What the order of one part depends on. */
struct shoali_gpt_args {
    int64_t sequence_count; /* in the part */
    int64_t first;          /* number of the part's first sequence in its file */
    int64_t tokens;         /* T */
    int64_t sample_count;   /* n; <= 0: one epoch, all that it has */
    int64_t seq_length;     /* s */
    uint32_t seed;
    bool keep_last_partial; /* a last sample that is not full counts too, padded */
    bool no_extra_token;    /* samples do not have the token that follows */
};
struct shoali_gpt_shape {
    int64_t epochs;  /* E */
    bool separate;   /* the last epoch is shuffled by itself */
    int64_t samples; /* in the sample index */
    int64_t leading; /* of these, the first that are shuffled by themselves */
};
/* SHOAL_EINVAL: too few tokens, or more than the maps can number. */
SHOAL_CHECKED shoal_status shoali_gpt_shape(const struct shoali_gpt_args *args,
                                            struct shoali_gpt_shape *shape);
/* E * sequence_count numbers. */
void shoali_gpt_document_index(const struct shoali_gpt_args *args,
                               const struct shoali_gpt_shape *shape,
                               struct shoali_mt19937 *generator, int32_t *document);
/* Gives shape->samples + 1 pairs to `put`. lengths: of the part's sequences. */
typedef shoal_status (*shoali_gpt_put)(void *user, int64_t place, int64_t offset);
SHOAL_CHECKED shoal_status shoali_gpt_sample_index(const struct shoali_gpt_args *args,
                                                   const struct shoali_gpt_shape *shape,
                                                   const int32_t *lengths, const int32_t *document,
                                                   shoali_gpt_put put, void *user);
/* The bytes of the shuffle index: uint32, or int64 from 2^32 - 2 samples on. *numbers is owned. */
size_t shoali_gpt_shuffle_width(int64_t samples);
SHOAL_CHECKED shoal_status shoali_gpt_shuffle_index(const struct shoali_gpt_shape *shape,
                                                    struct shoali_mt19937 *generator,
                                                    void **numbers);

/* ---- masked_index.c ---- */

#define SHOALI_SENTENCE_TOKENS 512 /* documents of several sentences, one longer, are left out */

/* What the samples of masked tokens (masked.h) of one part depend on. */
struct shoali_masked_args {
    const int32_t *lengths;    /* of the sentences from number boundaries[0] on */
    const int64_t *boundaries; /* first sentences of the documents, and the last one's end */
    int64_t document_count;
    int64_t sample_count; /* at least so many, in whole epochs; <= 0: one epoch */
    int64_t most_tokens;  /* of a sample, without [CLS] and [SEP] */
    double short_seq_prob;
    int32_t least_sentences; /* of a sample: 2 where it is a pair */
    uint32_t seed;
};
/* Rows of three: first sentence, end, tokens that it should have at most. *rows is owned.
 * SHOAL_EINVAL: no document has so many sentences. */
SHOAL_CHECKED shoal_status shoali_masked_index(const struct shoali_masked_args *args,
                                               uint32_t **rows, int64_t *count);

/* ---- blend.c ---- */

#define SHOALI_BLEND_PARTS_MAX 32766
/* Sum 1, as NumPy computes it. SHOAL_EINVAL: one is not positive. */
SHOAL_CHECKED shoal_status shoali_blend_normalize(double *weight, int32_t count);
/* Samples that a part is asked for, of a blend of `size`. */
int64_t shoali_blend_share(int64_t size, double weight, double surplus);
/* The choice for outputs 0, 1, ...: part and running number. */
struct shoali_blend {
    int32_t count;
    double *weight;  /* owned */
    int64_t *taken;  /* owned: so far */
    int64_t *room;   /* owned, exhaustive: what each part has */
    bool exhaustive; /* parts that are used up are left out */
    int64_t output;
};
/* `room` given: exhaustive, weights are the parts' shares of all samples. */
SHOAL_CHECKED shoal_status shoali_blend_init(struct shoali_blend *blend, const double *weight,
                                             const int64_t *room, int32_t count);
void shoali_blend_fini(struct shoali_blend *blend);
int32_t shoali_blend_next(struct shoali_blend *blend, int64_t *number);

/* ---- map_cache.c ---- */

/* One set of maps: HASH-CLASS-SPLIT-NAME.npy for each name, and the text that was hashed. */
#define SHOALI_MAPS_MAX 3
struct shoali_maps_request {
    const char *cache_path;   /* NULL: beside `first`, or private */
    const char *first;        /* a path of the data */
    const char *kind;         /* "GPTDataset" */
    const char *split;        /* "train" */
    const char *description;  /* everything that the maps depend on */
    const char *const *names; /* "document_index", ... */
    int32_t count;
    /* Makes them: writes file i to path[i]. */
    shoal_status (*make)(void *user, const char *const *path);
    void *user;
};
struct shoali_maps {
    struct shoali_npy file[SHOALI_MAPS_MAX];
    int32_t count;
};
SHOAL_CHECKED shoal_status shoali_maps_open(const struct shoali_maps_request *request,
                                            struct shoali_maps *maps);
void shoali_maps_close(struct shoali_maps *maps);

/* ---- paths.c ---- */

struct shoali_part {
    const struct shoali_indexed *file;    /* borrowed from the data's list */
    double weight;                        /* as given */
    int64_t first, end;                   /* sequences */
    int64_t first_document, end_document; /* where parts are cut by documents */
    int64_t tokens;
};
struct shoali_indexed_split {
    struct shoali_part *part; /* owned */
    int32_t count;            /* 0: there is no such split */
    bool weighted;
};
struct shoali_indexed_data {
    struct shoali_indexed **file; /* owned, each prefix once */
    int32_t file_count;
    struct shoali_indexed_split split[SHOAL_SPLIT_COUNT];
    char *split_text;           /* owned: what entered the hash */
    char *cache_path;           /* owned; NULL: not given */
    shoal_tokenizer *tokenizer; /* owned: of the files' description or the arguments; may be NULL */
    int32_t vocab_size;
    int32_t eod;       /* the token that ends documents; -1 unknown */
    bool by_documents; /* parts are ranges of documents */
    uint64_t hash;     /* of everything that says what the tokens are */
    char *report;      /* owned: a line about files that say no tokenizer; NULL: none */
};
/* Whether the paths name Megatron's files: 1, 0. SHOAL_EINVAL: some do and some do not. */
SHOAL_CHECKED shoal_status shoali_indexed_recognize(const shoal_dataset_args *args, bool *indexed);
SHOAL_CHECKED shoal_status shoali_indexed_data_open(const shoal_dataset_args *args,
                                                    struct shoali_indexed_data **data);
/* Prefixes, of which the first counts; NULL: none. */
struct shoali_indexed_records {
    const char *first;   /* with a .tokens.json */
    const char *without; /* without one */
};
/* Sets tokenizer, vocabulary size and end of documents of data whose files are known. */
SHOAL_CHECKED shoal_status shoali_indexed_find_vocabulary(struct shoali_indexed_data *data,
                                                          const shoal_dataset_args *args);
void shoali_indexed_data_close(struct shoali_indexed_data *data); /* NULL is fine */
/* Host memory that it holds. */
int64_t shoali_indexed_data_bytes(const struct shoali_indexed_data *data);
/* A list of --data-path: weights before prefixes, or prefixes alone. */
struct shoali_blend_list {
    const char **prefix; /* owned; the texts are borrowed */
    double *weight;      /* owned; NULL: none */
    int32_t count;
};

/* ---- samples.c ---- */

struct shoali_samples;
/* Makes or opens the maps of a split. `masked`: borrowed until close; NULL: of the next token. */
SHOAL_CHECKED shoal_status shoali_samples_open(const struct shoali_indexed_data *data,
                                               const struct shoal_loader_args *args,
                                               const struct shoali_masked *masked,
                                               struct shoali_samples **samples);
void shoali_samples_close(struct shoali_samples *samples); /* NULL is fine */
int64_t shoali_samples_count(const struct shoali_samples *samples);
/* Sample of place i in the order, into a loader's arrays. May be called by several threads. */
SHOAL_CHECKED shoal_status shoali_samples_read(const struct shoali_samples *samples, int64_t i,
                                               int32_t *const *arrays);
bool shoali_samples_blended(const struct shoali_samples *samples); /* of several parts */
/* Whether the samples of the first are those that the second begins with: of the same split, data
 * and seed. */
bool shoali_samples_begin_alike(const struct shoali_samples *first,
                                const struct shoali_samples *second);

/* ---- segments.c ---- */

struct shoali_segments;
struct shoali_order_args {
    const struct shoali_indexed_data *data;
    const struct shoal_loader_args *loader;
    const struct shoali_masked *masked;
};
/* The orders of a run, one behind the other: those of loader->order_samples, and more where these
 * are not enough for loader->sample_count. */
SHOAL_CHECKED shoal_status shoali_segments_open(const struct shoali_order_args *args,
                                                struct shoali_segments **segments);
void shoali_segments_close(struct shoali_segments *segments); /* NULL is fine */
int64_t shoali_segments_count(const struct shoali_segments *segments);
/* What each was made for; borrowed. */
int32_t shoali_segments_asked(const struct shoali_segments *segments, const int64_t **asked);
/* As shoali_samples_read. */
SHOAL_CHECKED shoal_status shoali_segments_read(const struct shoali_segments *segments, int64_t i,
                                                int32_t *const *arrays);

#endif
