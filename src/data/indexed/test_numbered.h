/* test_numbered - what the tests of samples share: data files whose tokens are numbered through. */
#ifndef SHOALI_TEST_NUMBERED_H
#define SHOALI_TEST_NUMBERED_H

#include "data/indexed/indexed.h"
#include "data/test_text.h"

#define SEED 1234

/* Sequence q has lengths[q] tokens, numbered through: no token is there twice. */
static inline void write_numbered(const char *name, const int32_t *lengths, int32_t count)
{
    shoal_index_writer *writer = NULL;
    int32_t next = 0;
    ok(shoal_index_writer_create(path_of(name), 60000, &writer));
    for (int32_t q = 0; q < count; q++) {
        int32_t tokens[512];
        assert_in_range(lengths[q], 0, 512);
        for (int32_t t = 0; t < lengths[q]; t++)
            tokens[t] = next++;
        ok(shoal_index_writer_add(writer, tokens, lengths[q]));
        ok(shoal_index_writer_end_document(writer));
    }
    ok(shoal_index_writer_finish(writer));
    shoal_index_writer_destroy(writer);
}

static inline void write_many(const char *name, int32_t count)
{
    int32_t *lengths = calloc((size_t)count, sizeof *lengths);
    assert_non_null(lengths);
    for (int32_t q = 0; q < count; q++)
        lengths[q] = (int32_t)((uint32_t)q * 2654435761u % 37);
    write_numbered(name, lengths, count);
    free(lengths);
}

static inline shoal_status create_split(const char *const *paths, int32_t count, const char *split,
                                        shoal_dataset **dataset)
{
    char cache[128]; /* path_of is for one thread */
    snprintf(cache, sizeof cache, "%s/cache", folder);
    return shoal_dataset_create(&(shoal_dataset_args){.paths = paths,
                                                      .path_count = count,
                                                      .split = split,
                                                      .vocab_size = 60000,
                                                      .cache_path = cache},
                                dataset);
}

static inline shoal_dataset *open_pair(const char *name, const char *split)
{
    shoal_dataset *dataset = NULL;
    const char *path = path_of(name);
    ok(create_split(&path, 1, split, &dataset));
    return dataset;
}

static inline shoal_loader *open_loader(const shoal_loader_args *args)
{
    shoal_loader *loader = NULL;
    ok(shoal_loader_create(args, &loader));
    return loader;
}

#endif
