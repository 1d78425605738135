/* Maps in files: opened where they are, else made by one process. */
#include "data/indexed/indexed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One try to have the maps in one place. */
struct attempt {
    const struct shoali_maps_request *request;
    enum shoali_place place;
    struct shoali_str folder, base; /* base: FOLDER/HASH-CLASS-SPLIT */
    struct shoali_str path[SHOALI_MAPS_MAX], temporary[SHOALI_MAPS_MAX], lock_path;
    struct shoali_cache_lock lock;
};

static void attempt_fini(struct attempt *attempt)
{
    shoali_cache_lock_release(&attempt->lock);
    shoali_str_fini(&attempt->folder);
    shoali_str_fini(&attempt->base);
    shoali_str_fini(&attempt->lock_path);
    for (int32_t i = 0; i < SHOALI_MAPS_MAX; i++) {
        shoali_str_fini(&attempt->path[i]);
        shoali_str_fini(&attempt->temporary[i]);
    }
}

static shoal_status attempt_init(struct attempt *attempt, const struct shoali_maps_request *request,
                                 enum shoali_place place)
{
    const size_t bytes = strlen(request->description);
    *attempt = (struct attempt){.request = request, .place = place, .lock.descriptor = -1};
    shoali_place_name(place, request->cache_path, request->first, &attempt->folder);
    shoali_str_append(&attempt->base, "%s/%016llx%016llx-%s-%s", shoali_str_get(&attempt->folder),
                      (unsigned long long)shoali_hash64_seeded(request->description, bytes, 0),
                      (unsigned long long)shoali_hash64_seeded(request->description, bytes, 1),
                      request->kind, request->split);
    shoali_str_append(&attempt->lock_path, "%s.lock", shoali_str_get(&attempt->base));
    bool failed = attempt->folder.failed || attempt->base.failed || attempt->lock_path.failed;
    for (int32_t i = 0; i < request->count; i++) {
        shoali_str_append(&attempt->path[i], "%s-%s.npy", shoali_str_get(&attempt->base),
                          request->names[i]);
        failed |= attempt->path[i].failed;
    }
    return failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of an index file")
                  : SHOAL_OK;
}

void shoali_maps_close(struct shoali_maps *maps)
{
    for (int32_t i = 0; i < maps->count; i++)
        shoali_npy_close(&maps->file[i]);
    maps->count = 0;
}

/* SHOAL_END: one is missing. */
static shoal_status open_files(const struct attempt *attempt, struct shoali_maps *maps)
{
    shoal_status status = SHOAL_OK;
    maps->count = 0;
    for (int32_t i = 0; i < attempt->request->count && status == SHOAL_OK; i++) {
        SHOAL_TRY(status,
                  shoali_npy_open(shoali_str_get(&attempt->path[i]), &maps->file[maps->count]),
                  done);
        maps->count += status == SHOAL_OK;
    }
done:
    if (status != SHOAL_OK)
        shoali_maps_close(maps);
    return status;
}

static shoal_status find(const struct shoali_maps_request *request, enum shoali_place place,
                         struct shoali_maps *maps)
{
    shoal_status status;
    struct attempt attempt;
    SHOAL_TRY(status, attempt_init(&attempt, request, place), done);
    SHOAL_TRY(status, open_files(&attempt, maps), done);
done:
    attempt_fini(&attempt);
    return status;
}

/* For people: what the hash in the names stands for. */
static void describe(const struct attempt *attempt)
{
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s-description.txt", shoali_str_get(&attempt->base));
    FILE *file = path.failed ? NULL : fopen(shoali_str_get(&path), "w");
    if (file) {
        (void)fputs(attempt->request->description, file);
        (void)fclose(file);
    }
    shoali_str_fini(&path);
}

static shoal_status make_files(struct attempt *attempt)
{
    shoal_status status;
    const struct shoali_maps_request *request = attempt->request;
    const char *temporary[SHOALI_MAPS_MAX] = {0};
    for (int32_t i = 0; i < request->count; i++) {
        shoali_str_append(&attempt->temporary[i], "%s", shoali_str_get(&attempt->path[i]));
        if (!attempt->lock.held)
            shoali_str_append(&attempt->temporary[i], ".%ld.%lld", (long)getpid(),
                              (long long)shoali_now_ns());
        shoali_str_append(&attempt->temporary[i], ".tmp");
        if (attempt->temporary[i].failed)
            return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of an index file");
        temporary[i] = shoali_str_get(&attempt->temporary[i]);
    }
    SHOAL_TRY(status, request->make(request->user, temporary), done);
    describe(attempt);
    for (int32_t i = 0; i < request->count; i++)
        if (shoali_fault("data_rename") ||
            rename(temporary[i], shoali_str_get(&attempt->path[i])) != 0) {
            status = shoali_place_failed(attempt->place, shoali_str_get(&attempt->folder));
            goto done;
        }
    shoali_place_sync(shoali_str_get(&attempt->folder));
done:
    for (int32_t i = 0; i < request->count && status != SHOAL_OK; i++)
        if (temporary[i])
            (void)unlink(temporary[i]);
    return status;
}

/* SHOAL_END: this place may not be written. */
static shoal_status make(const struct shoali_maps_request *request, enum shoali_place place,
                         struct shoali_maps *maps)
{
    shoal_status status;
    struct attempt attempt;
    SHOAL_TRY(status, attempt_init(&attempt, request, place), done);
    SHOAL_TRY(status, shoali_place_make(place, shoali_str_get(&attempt.folder)), done);
    if (status == SHOAL_END)
        goto done;
    attempt.lock.path = shoali_str_get(&attempt.lock_path);
    attempt.lock.what = shoali_str_get(&attempt.base);
    SHOAL_TRY(status, shoali_cache_lock_take(&attempt.lock, place, shoali_str_get(&attempt.folder)),
              done);
    if (status == SHOAL_END)
        goto done;
    /* whoever had the lock before made them */
    SHOAL_TRY(status, open_files(&attempt, maps), done);
    if (status == SHOAL_OK)
        goto done;
    SHOAL_TRY(status, make_files(&attempt), done);
    if (status == SHOAL_END)
        goto done;
    SHOAL_TRY(status, open_files(&attempt, maps), done);
    if (status == SHOAL_END)
        status = SHOAL_FAIL(SHOAL_EIO, "%s-*.npy were made but cannot be opened again",
                            shoali_str_get(&attempt.base));
done:
    attempt_fini(&attempt);
    return status;
}

shoal_status shoali_maps_open(const struct shoali_maps_request *request, struct shoali_maps *maps)
{
    shoal_status status = SHOAL_END;
    const enum shoali_place first = shoali_place_first(request->cache_path);
    const enum shoali_place last = shoali_place_last(request->cache_path);
    *maps = (struct shoali_maps){0};
    for (enum shoali_place place = first; place <= last && status == SHOAL_END; place++)
        SHOAL_TRY(status, find(request, place, maps), done);
    for (enum shoali_place place = first; place <= last && status == SHOAL_END; place++)
        SHOAL_TRY(status, make(request, place, maps), done);
done:
    return status;
}
