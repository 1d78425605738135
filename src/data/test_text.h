/* test_text - what the tests of data share: texts in the test's folder, and a dataset of all
 * of them. */
#ifndef SHOALI_TEST_TEXT_H
#define SHOALI_TEST_TEXT_H

#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "data/data.h"

static inline const char *path_of(const char *name)
{
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", folder, name);
    return path[next];
}

static inline void write_text(const char *name, const char *data, size_t bytes)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline shoal_status create(const char *tokenizer, shoal_dataset **dataset)
{
    const char *path = folder;
    return shoal_dataset_create(
        &(shoal_dataset_args){
            .paths = &path, .path_count = 1, .tokenizer = tokenizer, .split = "8,1,1"},
        dataset);
}

static inline shoal_dataset *open_folder(const char *tokenizer)
{
    shoal_dataset *dataset = NULL;
    ok(create(tokenizer, &dataset));
    return dataset;
}

#endif
