/* A thread that prepares the micro-batches on the caller's list, and a bounded ring between the
 * two.
 *
 * The list is endless: entry q is number q mod count of step q / count. Slot q mod depth holds
 * entry q. The consumer takes entries in increasing q; skipping ahead drops the entries between,
 * asking for an earlier one is answered "make it yourself".
 * Invariant under the mutex: head <= filled <= head + depth, entries [head, filled) are ready. An
 * entry that could not be made is ready too: it carries its status and sentence, because the
 * last error is that of one thread.
 */
#include "base/thread.h"
#include "base/waiting.h"
#include "data/data.h"

#include <pthread.h>
#include <string.h>

struct slot {
    int32_t *array[SHOALI_ARRAYS_MAX];
    shoal_status status;
    char message[512];
};

struct shoali_prefetch {
    struct shoali_loader_order loader;
    struct shoali_prefetch_list list;
    struct shoali_context context;
    int32_t *memory;
    struct slot *slot;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool started, stop;
    int64_t head, filled;
};

/* The first sample of entry q; -1 when its number does not fit 64 bits. */
static int64_t entry_sample(const struct shoali_prefetch_list *list, int64_t q)
{
    int64_t sample;
    if (shoali_mul(q / list->count, list->per_step, &sample) &&
        shoali_add(sample, list->first + q % list->count * list->stride, &sample) &&
        shoali_add(sample, list->begin, &sample))
        return sample;
    return -1;
}

static void make_entry(struct shoali_prefetch *prefetch, int64_t q)
{
    struct slot *slot = &prefetch->slot[q % prefetch->list.depth];
    const int64_t first = entry_sample(&prefetch->list, q);
    if (shoali_fault("data_prefetch"))
        slot->status =
            SHOAL_FAIL(SHOAL_EIO, "the samples from %lld on could not be read", (long long)first);
    else
        slot->status = shoali_loader_make(&prefetch->loader, first, slot->array);
    slot->message[0] = '\0';
    if (slot->status < 0)
        strncat(slot->message, shoal_error_message(), sizeof(slot->message) - 1);
}

static void *work(void *arg)
{
    struct shoali_prefetch *prefetch = arg;
    *shoali_context_get() = prefetch->context;
    pthread_mutex_lock(&prefetch->mutex);
    while (!prefetch->stop) {
        if (prefetch->filled - prefetch->head >= prefetch->list.depth) {
            pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
            continue;
        }
        int64_t q = prefetch->filled;
        pthread_mutex_unlock(&prefetch->mutex);
        make_entry(prefetch, q);
        pthread_mutex_lock(&prefetch->mutex);
        /* the consumer may have skipped past q meanwhile: then filled has moved */
        if (prefetch->filled == q)
            prefetch->filled = q + 1;
        pthread_cond_broadcast(&prefetch->changed);
    }
    pthread_mutex_unlock(&prefetch->mutex);
    return NULL;
}

static shoal_status allocate(struct shoali_prefetch *prefetch)
{
    const struct shoali_loader_order *loader = &prefetch->loader;
    const int64_t depth = prefetch->list.depth;
    int64_t total;
    if (!shoali_mul(depth, shoali_loader_numbers(loader), &total))
        return SHOAL_FAIL(SHOAL_EINVAL, "prefetch: a depth of %lld is too large", (long long)depth);
    prefetch->slot = shoali_calloc((size_t)depth, sizeof(*prefetch->slot), "prefetch slots");
    prefetch->memory =
        shoali_calloc((size_t)total, sizeof(*prefetch->memory), "prefetched micro-batches");
    if (!prefetch->slot || !prefetch->memory)
        return SHOAL_ENOMEM;
    int32_t *at = prefetch->memory;
    for (int64_t k = 0; k < depth; k++)
        for (int32_t i = 0; i < loader->array_count; i++) {
            prefetch->slot[k].array[i] = at;
            at += loader->args.micro_batch * loader->numbers[i];
        }
    return SHOAL_OK;
}

static shoal_status start(struct shoali_prefetch *prefetch)
{
    const int error = shoali_thread_start(&prefetch->thread, work, prefetch);
    if (error)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot start the data prefetch thread: %s",
                          strerror(error));
    prefetch->started = true;
    return SHOAL_OK;
}

shoal_status shoali_prefetch_create(const struct shoali_loader_order *loader,
                                    const struct shoali_prefetch_list *list,
                                    struct shoali_prefetch **prefetch)
{
    shoal_status status;
    struct shoali_prefetch *made = shoali_calloc(1, sizeof(*made), "a prefetcher");
    if (!made)
        return SHOAL_ENOMEM;
    made->loader = *loader;
    made->list = *list;
    made->context = *shoali_context_get();
    made->context.scope = ""; /* borrowed from the creator's stack of scopes */
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changed, NULL);
    SHOAL_TRY(status, allocate(made), done);
    SHOAL_TRY(status, start(made), done);
    *prefetch = made;
    made = NULL;
done:
    shoali_prefetch_destroy(made);
    return status;
}

void shoali_prefetch_destroy(struct shoali_prefetch *prefetch)
{
    if (!prefetch)
        return;
    if (prefetch->started) {
        pthread_mutex_lock(&prefetch->mutex);
        prefetch->stop = true;
        pthread_cond_broadcast(&prefetch->changed);
        pthread_mutex_unlock(&prefetch->mutex);
        pthread_join(prefetch->thread, NULL);
    }
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->mutex);
    shoali_free(prefetch->memory);
    shoali_free(prefetch->slot);
    shoali_free(prefetch);
}

int64_t shoali_prefetch_bytes(int64_t batch_bytes, int32_t depth)
{
    int64_t bytes;
    return shoali_add(batch_bytes, (int64_t)sizeof(struct slot), &bytes) &&
                   shoali_mul(bytes, depth, &bytes) &&
                   shoali_add(bytes, (int64_t)sizeof(struct shoali_prefetch), &bytes)
               ? bytes
               : INT64_MAX;
}

/* Index of the micro-batch of these samples on the list; -1 when it is not there. */
static int64_t find_entry(const struct shoali_prefetch_list *list, int64_t first)
{
    if (first < list->begin)
        return -1;
    const int64_t step = (first - list->begin) / list->per_step;
    const int64_t beyond = (first - list->begin) % list->per_step - list->first;
    if (beyond < 0 || beyond % list->stride != 0 || beyond / list->stride >= list->count)
        return -1;
    return step * list->count + beyond / list->stride;
}

shoal_status shoali_prefetch_get(struct shoali_prefetch *prefetch, int64_t first,
                                 int32_t *const *arrays)
{
    const struct shoali_loader_order *loader = &prefetch->loader;
    int64_t q = find_entry(&prefetch->list, first);
    struct shoali_waiting waiting = {0};
    pthread_mutex_lock(&prefetch->mutex);
    if (q < prefetch->head) {
        pthread_mutex_unlock(&prefetch->mutex);
        return SHOAL_END;
    }
    prefetch->head = q;
    if (prefetch->filled < q)
        prefetch->filled = q;
    pthread_cond_broadcast(&prefetch->changed);
    while (prefetch->filled <= q) {
        shoali_waiting_sleep(&prefetch->changed, &prefetch->mutex);
        if (prefetch->filled <= q && shoali_waiting_due(&waiting, __FILE__))
            SHOALI_WARN("data",
                        "waiting for %.0f s for the next samples: the disk of the data is slow",
                        shoali_waiting_seconds(&waiting));
    }
    shoali_waiting_end(&waiting, __FILE__);
    pthread_mutex_unlock(&prefetch->mutex);

    /* slot q is not reused before head passes it */
    const struct slot *slot = &prefetch->slot[q % prefetch->list.depth];
    shoal_status status = slot->status;
    if (status < 0) {
        status = SHOAL_FAIL(status, "%s", slot->message);
    } else {
        for (int32_t i = 0; i < loader->array_count; i++)
            memcpy(arrays[i], slot->array[i],
                   (size_t)(loader->args.micro_batch * loader->numbers[i]) * sizeof(int32_t));
    }
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->head = q + 1;
    pthread_cond_broadcast(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->mutex);
    return status;
}
