/* A safetensors file: the input's first eight bytes say how many data bytes there are to be, the
 * rest is the JSON header. Then the same bytes as a whole file. */
#include "fuzz.h"

#include "checkpoint/checkpoint_internal.h"

#include <string.h>

enum { WORD = 8 };

static int64_t word_at(const uint8_t *data)
{
    uint64_t word = 0;
    for (int i = 0; i < WORD; i++)
        word |= (uint64_t)data[i] << (8 * i);
    return (int64_t)word;
}

/* Entries fill the data without gaps, in order, each as large as its shape says. */
static void check_entries(const struct shoali_safetensors_entry *entry, int32_t count,
                          int64_t data_bytes)
{
    int64_t at = 0;
    for (int32_t i = 0; i < count; i++) {
        FUZZ_CHECK(entry[i].name && entry[i].begin == at && entry[i].end >= at);
        FUZZ_CHECK(shoal_shape_count(&entry[i].shape) *
                       (int64_t)shoal_dtype_bytes(entry[i].dtype) ==
                   entry[i].end - entry[i].begin);
        at = entry[i].end;
    }
    FUZZ_CHECK(at == data_bytes);
}

/* `data` as the beginning of a file of so many bytes. */
static void read_head(const uint8_t *data, size_t size, int64_t bytes)
{
    struct shoali_arena arena;
    struct shoali_safetensors_entry *entries = NULL;
    int32_t count = 0;
    struct shoali_checkpoint_file head = {.name = "x", .path = "x", .bytes = bytes};
    FILE *file = fopen(fuzz_file(data, size), "rb");
    FUZZ_CHECK(file);
    shoali_arena_init(&arena);
    if (shoali_checkpoint_read_head(&head, fileno(file), &arena, &entries, &count) == SHOAL_OK)
        check_entries(entries, count, head.bytes - head.data_start);
    fclose(file);
    shoali_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < WORD)
        return 0;
    const int64_t data_bytes = word_at(data);
    uint8_t *file = malloc(size);
    FUZZ_CHECK(file);
    memcpy(file, data, size);
    for (int i = 0; i < WORD; i++)
        file[i] = (uint8_t)((uint64_t)(size - WORD) >> (8 * i));
    if (data_bytes >= 0 && data_bytes <= INT64_MAX - (int64_t)size)
        read_head(file, size, (int64_t)size + data_bytes);
    free(file);
    /* the length word claims anything */
    read_head(data, size, (int64_t)size);
    return 0;
}
