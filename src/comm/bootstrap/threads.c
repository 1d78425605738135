/* The table in memory, and the store of ranks that are threads: one table, several users. */
#include "comm/bootstrap/store.h"

#include <stdlib.h>
#include <string.h>

struct shoali_table_entry {
    struct shoali_table_entry *next;
    size_t bytes;
    void *value;
    char key[SHOALI_STORE_KEY_BYTES];
};

void shoali_table_init(struct shoali_table *table)
{
    *table = (struct shoali_table){0};
    pthread_mutex_init(&table->lock, NULL);
}

void shoali_table_fini(struct shoali_table *table)
{
    while (table->first) {
        struct shoali_table_entry *entry = table->first;
        table->first = entry->next;
        shoali_free(entry->value);
        shoali_free(entry);
    }
    pthread_mutex_destroy(&table->lock);
}

/* The link that points to the key's entry, or to NULL at the end of the list. */
static struct shoali_table_entry **find(struct shoali_table *table, const char *key)
{
    struct shoali_table_entry **link = &table->first;
    while (*link && strcmp((*link)->key, key) != 0)
        link = &(*link)->next;
    return link;
}

shoal_status shoali_table_put(struct shoali_table *table, const char *key, const void *value,
                              size_t bytes)
{
    shoal_status status = SHOAL_OK;
    void *copy = NULL;
    pthread_mutex_lock(&table->lock);
    struct shoali_table_entry **link = find(table, key);
    if (bytes == 0) {
        struct shoali_table_entry *entry = *link;
        if (entry) {
            *link = entry->next;
            shoali_free(entry->value);
            shoali_free(entry);
        }
        goto done;
    }
    copy = shoali_malloc(bytes, "a value of the store");
    if (copy && !*link) {
        *link = shoali_calloc(1, sizeof(**link), "a key of the store");
        if (*link)
            memcpy((*link)->key, key, strlen(key) + 1);
    }
    if (!copy || !*link) {
        shoali_free(copy);
        status = SHOAL_ENOMEM;
        goto done;
    }
    memcpy(copy, value, bytes);
    shoali_free((*link)->value);
    (*link)->value = copy;
    (*link)->bytes = bytes;
done:
    pthread_mutex_unlock(&table->lock);
    return status;
}

shoal_status shoali_table_get(struct shoali_table *table, const char *key, void *value,
                              size_t *bytes)
{
    shoal_status status = SHOAL_OK;
    pthread_mutex_lock(&table->lock);
    const struct shoali_table_entry *entry = *find(table, key);
    if (table->aborted) {
        status = SHOAL_FAIL(SHOAL_EPEER, "%s", table->sentence);
    } else if (!entry) {
        status = SHOAL_IN_PROGRESS;
    } else if (entry->bytes > *bytes) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" has %zu bytes, there is room for %zu", key,
                            entry->bytes, *bytes);
    } else {
        memcpy(value, entry->value, entry->bytes);
        *bytes = entry->bytes;
    }
    pthread_mutex_unlock(&table->lock);
    return status;
}

void shoali_table_abort(struct shoali_table *table, const char *sentence)
{
    pthread_mutex_lock(&table->lock);
    if (!table->aborted) {
        size_t length = strlen(sentence);
        if (length >= sizeof(table->sentence))
            length = sizeof(table->sentence) - 1;
        memcpy(table->sentence, sentence, length);
        table->sentence[length] = '\0';
        table->aborted = true;
    }
    pthread_mutex_unlock(&table->lock);
}

struct threads_store {
    struct shoali_store base;
    struct shoali_table table;
    int32_t users; /* under table.lock */
};

static shoal_status threads_open(const struct shoali_store_args *args, struct shoali_store **store)
{
    struct threads_store *threads = (struct threads_store *)args->shared;
    if (threads) {
        pthread_mutex_lock(&threads->table.lock);
        threads->users++;
        pthread_mutex_unlock(&threads->table.lock);
    } else {
        threads = shoali_calloc(1, sizeof(*threads), "a store");
        if (!threads)
            return SHOAL_ENOMEM;
        threads->base.kind = &shoali_store_threads;
        threads->users = 1;
        shoali_table_init(&threads->table);
    }
    *store = &threads->base;
    return SHOAL_OK;
}

static void threads_close(struct shoali_store *store)
{
    struct threads_store *threads = (struct threads_store *)store;
    pthread_mutex_lock(&threads->table.lock);
    int32_t left = --threads->users;
    pthread_mutex_unlock(&threads->table.lock);
    if (left > 0)
        return;
    shoali_table_fini(&threads->table);
    shoali_free(threads);
}

static shoal_status threads_put(struct shoali_store *store, const char *key, const void *value,
                                size_t bytes)
{
    return shoali_table_put(&((struct threads_store *)store)->table, key, value, bytes);
}

static shoal_status threads_get(struct shoali_store *store, const char *key, void *value,
                                size_t *bytes)
{
    return shoali_table_get(&((struct threads_store *)store)->table, key, value, bytes);
}

static void threads_abort(struct shoali_store *store, const char *sentence)
{
    shoali_table_abort(&((struct threads_store *)store)->table, sentence);
}

const struct shoali_store_kind shoali_store_threads = {
    .name = "threads",
    .open = threads_open,
    .close = threads_close,
    .put = threads_put,
    .get = threads_get,
    .abort = threads_abort,
};
