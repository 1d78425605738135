#include "comm/bootstrap/store.h"

#include "base/waiting.h"

#include <string.h>
#include <time.h>

shoal_status shoali_store_open(const struct shoali_store_args *args, struct shoali_store **store)
{
    static const struct shoali_store_kind *const kinds[] = {
        &shoali_store_threads, &shoali_store_file, &shoali_store_tcp, &shoali_store_tree};
    *store = NULL;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i]->name, args->kind) != 0)
            continue;
        shoal_status status = kinds[i]->open(args, store);
        if (status == SHOAL_OK && !args->shared)
            (*store)->timeout_ns = (int64_t)(args->timeout_s * 1e9);
        return status;
    }
    return SHOAL_FAIL(SHOAL_EINVAL, "unknown kind of store \"%s\": use threads, file, tcp or tree",
                      args->kind);
}

void shoali_store_close(struct shoali_store *store)
{
    if (store)
        store->kind->close(store);
}

static bool key_is_valid(const char *key)
{
    size_t length = strlen(key);
    if (length == 0 || length >= SHOALI_STORE_KEY_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if (key[i] <= ' ' || key[i] > '~')
            return false;
    return true;
}

shoal_status shoali_store_put(struct shoali_store *store, const char *key, const void *value,
                              size_t bytes)
{
    if (!key_is_valid(key) || bytes > SHOALI_STORE_VALUE_BYTES)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "cannot store %zu bytes as \"%s\": a key has 1 to %d "
                          "printable characters, a value at most %d bytes",
                          bytes, key, SHOALI_STORE_KEY_BYTES - 1, SHOALI_STORE_VALUE_BYTES);
    return store->kind->put(store, key, value, bytes);
}

shoal_status shoali_store_get(struct shoali_store *store, const char *key, void *value,
                              size_t *bytes)
{
    if (!key_is_valid(key))
        return SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" is no key: 1 to %d printable characters", key,
                          SHOALI_STORE_KEY_BYTES - 1);
    return store->kind->get(store, key, value, bytes);
}

/* Polls: values are awaited a few times per run, and one way serves all three kinds. */
shoal_status shoali_store_wait(struct shoali_store *store, const char *key, void *value,
                               size_t *bytes)
{
    int64_t deadline_ns = shoali_deadline_ns(store->timeout_ns);
    int64_t pause_ns = 500000;
    const size_t capacity = *bytes;
    struct shoali_waiting waiting = {0};
    for (;;) {
        *bytes = capacity;
        shoal_status status = shoali_store_get(store, key, value, bytes);
        if (status != SHOAL_IN_PROGRESS)
            return status;
        if (shoali_deadline_passed(deadline_ns))
            return SHOAL_FAIL(SHOAL_ETIMEOUT, "no rank has stored \"%s\" within %.1f s", key,
                              (double)store->timeout_ns * 1e-9);
        if (shoali_waiting_due(&waiting, NULL))
            SHOALI_WARN("comm",
                        "waiting for %.0f s for another rank to store \"%s\" where the ranks meet "
                        "(by %s): is it running, or busy before it joins?",
                        shoali_waiting_seconds(&waiting), key, store->kind->name);
        struct timespec pause = {0, (long)pause_ns};
        nanosleep(&pause, NULL);
        if (pause_ns < 10000000)
            pause_ns += pause_ns / 2;
    }
}

void shoali_store_abort(struct shoali_store *store, const char *sentence)
{
    store->kind->abort(store, sentence);
}

int shoali_store_get_trouble(const struct shoali_store *store)
{
    return store->kind->trouble ? store->kind->trouble(store) : 0;
}
