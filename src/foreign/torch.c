/* Files of torch.save. Since PyTorch 1.6 an archive without compression: PREFIX/data.pkl, a member
 * PREFIX/data/KEY for each storage, PREFIX/byteorder. Before: five pickles behind each other (a
 * magic number, a version, facts about the machine, the objects, the keys of the storages), then
 * for each key the number of its elements and these. */
#include "foreign/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

static void take_results(struct shoali_tensor_file *file, const struct shoali_pickle *pickle)
{
    file->root = pickle->root;
    file->global = (const struct shoali_value **)pickle->global;
    file->global_count = pickle->global_count;
}

/* ---- archives ---- */

static shoal_status check_byte_order(struct shoali_tensor_file *file, const struct shoali_zip *zip,
                                     const char *prefix, int prefix_bytes)
{
    shoal_status status = SHOAL_OK;
    char text[8] = {0};
    int64_t at;
    const char *name = shoali_arena_printf(&file->arena, "%.*s/byteorder", prefix_bytes, prefix);
    if (!name)
        return SHOAL_ENOMEM;
    const struct shoali_zip_entry *entry = shoali_zip_find(zip, name);
    if (!entry)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_zip_locate(zip, entry, &at), done);
    if (entry->bytes < (int64_t)sizeof text)
        SHOAL_TRY(status, shoali_input_read(&file->input, at, entry->bytes, text), done);
    if (strncmp(text, "little", 6) != 0)
        status = shoali_input_fail(
            &file->input, at,
            "its numbers are big-endian: save it again on a little-endian machine");
done:
    return status;
}

static shoal_status place_storage(struct shoali_tensor_file *file, const struct shoali_zip *zip,
                                  const char *prefix, int prefix_bytes,
                                  struct shoali_storage *storage)
{
    shoal_status status = SHOAL_OK;
    const int64_t bytes = storage->count * (int64_t)shoali_element_bytes(storage->type);
    const char *name =
        shoali_arena_printf(&file->arena, "%.*s/data/%s", prefix_bytes, prefix, storage->key);
    if (!name)
        return SHOAL_ENOMEM;
    const struct shoali_zip_entry *entry = shoali_zip_find(zip, name);
    if (!entry)
        return shoali_input_fail(
            &file->input, -1, "its pickle names the member `%s`, which the archive does not have",
            name);
    SHOAL_TRY(status, shoali_zip_locate(zip, entry, &storage->at), done);
    if (entry->bytes != bytes)
        status = shoali_input_fail(&file->input, storage->at,
                                   "the member `%s` has %lld bytes, its pickle says %lld", name,
                                   (long long)entry->bytes, (long long)bytes);
done:
    return status;
}

static shoal_status open_archive(struct shoali_tensor_file *file, const struct shoali_zip *zip,
                                 const struct shoali_zip_entry *entry)
{
    shoal_status status;
    const char *end = strrchr(entry->name, '/');
    const int prefix_bytes = (int)(end - entry->name);
    int64_t at;
    struct shoali_pickle pickle = {.input = &file->input, .arena = &file->arena};
    file->kind = "torch.save archive";
    SHOAL_TRY(status, check_byte_order(file, zip, entry->name, prefix_bytes), done);
    SHOAL_TRY(status, shoali_zip_locate(zip, entry, &at), done);
    pickle.begin = at;
    pickle.end = at + entry->bytes;
    SHOAL_TRY(status, shoali_pickle_read(&pickle), done);
    take_results(file, &pickle);
    for (struct shoali_storage *storage = pickle.storage; storage; storage = storage->next)
        SHOAL_TRY(status, place_storage(file, zip, entry->name, prefix_bytes, storage), done);
done:
    return status;
}

static shoal_status open_zip(struct shoali_tensor_file *file)
{
    shoal_status status;
    struct shoali_zip zip;
    const struct shoali_zip_entry *pickle = NULL;
    bool arrays = false;
    SHOAL_TRY(status, shoali_zip_open(&file->input, &file->arena, &zip), done);
    for (int32_t i = 0; i < zip.count; i++) {
        const char *name = zip.entry[i].name;
        const char *slash = strchr(name, '/');
        if (slash && strcmp(slash, "/data.pkl") == 0 && !pickle)
            pickle = &zip.entry[i];
        arrays = arrays || shoali_npz_has(&zip.entry[i]);
    }
    if (pickle) {
        SHOAL_TRY(status, open_archive(file, &zip, pickle), done);
        SHOAL_TRY(status, shoali_pickle_list_tensors(file), done);
    } else if (arrays) {
        SHOAL_TRY(status, shoali_npz_open(file, &zip), done);
    } else {
        status =
            shoali_input_fail(&file->input, -1, "an archive of neither torch.save nor numpy.savez");
    }
done:
    return status;
}

static bool is_zip(const unsigned char *head, int64_t bytes)
{
    return bytes >= 4 && memcmp(head, "PK\3\4", 4) == 0;
}

const struct shoali_tensor_format shoali_format_zip = {
    .name = "torch.save",
    .probe = is_zip,
    .open = open_zip,
};

/* ---- the older form ---- */

static int by_key(const void *a, const void *b)
{
    const struct shoali_storage *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

struct storages {
    struct shoali_storage **sorted; /* by key */
    int64_t count;
};

static shoal_status sort_storages(struct shoali_pickle *pickle, struct storages *storages)
{
    for (const struct shoali_storage *s = pickle->storage; s; s = s->next)
        storages->count++;
    storages->sorted = shoali_pickle_alloc(pickle, (storages->count + 1) *
                                                       (int64_t)sizeof(struct shoali_storage *));
    if (!storages->sorted)
        return SHOAL_ENOMEM;
    int64_t i = 0;
    for (struct shoali_storage *s = pickle->storage; s; s = s->next)
        storages->sorted[i++] = s;
    qsort(storages->sorted, (size_t)storages->count, sizeof *storages->sorted, by_key);
    return SHOAL_OK;
}

/* The first storage of that key; count: there is none. */
static int64_t first_of(const struct storages *storages, const char *key)
{
    int64_t low = 0, high = storages->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (strcmp(storages->sorted[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < storages->count && strcmp(storages->sorted[low]->key, key) == 0 ? low
                                                                                 : storages->count;
}

/* The elements of one key lie at *at, which goes behind them. */
static shoal_status place_key(struct shoali_tensor_file *file, const struct storages *storages,
                              const char *key, int64_t *at)
{
    shoal_status status;
    int64_t count, bytes;
    int64_t i = key ? first_of(storages, key) : storages->count;
    if (i == storages->count)
        return shoali_input_fail(&file->input, *at,
                                 "the file has a storage `%s` that its pickle does not know",
                                 key ? key : "");
    struct shoali_storage *first = storages->sorted[i];
    if (first->at >= 0)
        return shoali_input_fail(&file->input, *at, "the file has the storage `%s` twice", key);
    SHOAL_TRY(status, shoali_input_read(&file->input, *at, sizeof count, &count), done);
    const int64_t item = (int64_t)shoali_element_bytes(first->type);
    if (count < 0 || !shoali_mul(count, item, &bytes) ||
        bytes > file->input.bytes - *at - (int64_t)sizeof count)
        return shoali_input_fail(&file->input, *at,
                                 "the storage `%s` should have %lld elements, which do not fit "
                                 "into the file: it is truncated or damaged",
                                 key, (long long)count);
    for (; i < storages->count && strcmp(storages->sorted[i]->key, key) == 0; i++) {
        struct shoali_storage *storage = storages->sorted[i];
        const int64_t own = (int64_t)shoali_element_bytes(storage->type);
        if ((storage->view_offset + storage->count) * own > bytes)
            return shoali_input_fail(
                &file->input, *at, "the storage `%s` has %lld bytes, its pickle says %lld", key,
                (long long)bytes, (long long)((storage->view_offset + storage->count) * own));
        storage->at = *at + (int64_t)sizeof count + storage->view_offset * own;
    }
    *at += (int64_t)sizeof count + bytes;
done:
    return status;
}

/* The keys, and the storages behind them. */
static shoal_status read_storages(struct shoali_tensor_file *file, struct shoali_pickle *pickle)
{
    shoal_status status;
    struct storages storages = {0};
    SHOAL_TRY(status, sort_storages(pickle, &storages), done);
    pickle->begin = pickle->stop;
    SHOAL_TRY(status, shoali_pickle_read(pickle), done);
    int64_t at = pickle->stop;
    for (int64_t i = 0; i < shoali_value_count(pickle->root); i++)
        SHOAL_TRY(
            status,
            place_key(file, &storages, shoali_value_text(shoali_value_at(pickle->root, i)), &at),
            done);
done:
    return status;
}

static shoal_status read_facts(struct shoali_tensor_file *file, struct shoali_pickle *pickle)
{
    shoal_status status;
    int64_t version = 0, little = 1;
    pickle->begin = pickle->stop;
    SHOAL_TRY(status, shoali_pickle_read(pickle), done);
    if (!shoali_value_int(pickle->root, &version) || version != 1001)
        return shoali_input_fail(&file->input, pickle->begin,
                                 "version %lld of torch.save's older form: only 1001 is supported",
                                 (long long)version);
    pickle->begin = pickle->stop;
    SHOAL_TRY(status, shoali_pickle_read(pickle), done);
    (void)shoali_value_int(shoali_value_get(pickle->root, "little_endian"), &little);
    if (!little)
        status = shoali_input_fail(
            &file->input, pickle->begin,
            "its numbers are big-endian: save it again on a little-endian machine");
    pickle->begin = pickle->stop;
done:
    return status;
}

static shoal_status open_stream(struct shoali_tensor_file *file)
{
    shoal_status status;
    struct shoali_pickle pickle = {
        .input = &file->input, .arena = &file->arena, .end = file->input.bytes};
    file->kind = "pickle";
    SHOAL_TRY(status, shoali_pickle_read(&pickle), done);
    const struct shoali_value *root = pickle.root;
    if (root->kind == SHOALI_VALUE_LONG && root->as.text.bytes == sizeof magic &&
        memcmp(root->as.text.data, magic, sizeof magic) == 0) {
        file->kind = "torch.save before 1.6";
        SHOAL_TRY(status, read_facts(file, &pickle), done);
        SHOAL_TRY(status, shoali_pickle_read(&pickle), done);
        take_results(file, &pickle);
        SHOAL_TRY(status, read_storages(file, &pickle), done);
    } else {
        take_results(file, &pickle);
    }
    SHOAL_TRY(status, shoali_pickle_list_tensors(file), done);
done:
    return status;
}

static bool is_pickle(const unsigned char *head, int64_t bytes)
{
    return bytes >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

const struct shoali_tensor_format shoali_format_pickle = {
    .name = "pickles of protocols 2 to 5",
    .probe = is_pickle,
    .open = open_stream,
};
