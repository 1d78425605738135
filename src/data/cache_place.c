/* Folders of cached files, their lock, and which files are trusted. */
#include "data/cache_place.h"

#include "base/started.h"
#include "base/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 20000000            /* between two looks at the lock */
#define TELL_NS INT64_C(1000000000) /* waits that are longer are said */
#define STUCK_NS (600 * INT64_C(1000000000))

/* ---- folders ---- */

void shoali_place_name(enum shoali_place place, const char *given, const char *first,
                       struct shoali_str *folder)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *slash = strrchr(first, '/');
    struct stat info;
    if (place == SHOALI_PLACE_GIVEN)
        shoali_str_append(folder, "%s", given);
    else if (place == SHOALI_PLACE_PRIVATE && xdg && xdg[0] == '/')
        shoali_str_append(folder, "%s/shoal", xdg);
    else if (place == SHOALI_PLACE_PRIVATE)
        shoali_str_append(folder, "/var/tmp/shoal-%ld", (long)geteuid());
    else if (stat(first, &info) == 0 && S_ISDIR(info.st_mode))
        shoali_str_append(folder, "%s/%s", first, SHOALI_CACHE_FOLDER);
    else
        shoali_str_append(folder, "%.*s%s", slash ? (int)(slash - first + 1) : 0, first,
                          SHOALI_CACHE_FOLDER);
}

shoal_status shoali_place_failed(enum shoali_place place, const char *folder)
{
    if (place == SHOALI_PLACE_BESIDE && (errno == EACCES || errno == EPERM || errno == EROFS))
        return SHOAL_END;
    return SHOAL_FAIL(
        SHOAL_EIO, "cannot keep the token cache in %s: %s; give --data-cache-path another folder",
        folder, strerror(errno));
}

shoal_status shoali_place_make(enum shoali_place place, const char *folder)
{
    shoal_status status = SHOAL_OK;
    struct stat info;
    const char *xdg = getenv("XDG_CACHE_HOME");
    if (place == SHOALI_PLACE_GIVEN) {
        status = shoali_make_dirs(folder);
        return status < 0 ? shoali_error_prefix(SHOAL_EINVAL, "--data-cache-path") : status;
    }
    if (place == SHOALI_PLACE_PRIVATE && xdg && xdg[0] == '/')
        SHOAL_TRY(status, shoali_make_dirs(xdg), done);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return shoali_place_failed(place, folder);
    const mode_t others = place == SHOALI_PLACE_PRIVATE ? 077 : 022;
    if (lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
        (info.st_mode & others) == 0)
        return SHOAL_OK;
    status = SHOAL_END; /* somebody else's */
    if (place == SHOALI_PLACE_PRIVATE)
        status = SHOAL_FAIL(SHOAL_EIO,
                            "the token cache would be in %s, but other users can access that "
                            "folder (mode 0700 is needed): give --data-cache-path another folder",
                            folder);
done:
    return status;
}

bool shoali_place_trusts(int descriptor, int64_t *bytes)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & 022) != 0 ||
        (info.st_uid != geteuid() && info.st_uid != 0))
        return false;
    *bytes = info.st_size;
    return true;
}

void shoali_place_sync(const char *folder)
{
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor); /* a lost name costs another making, no data */
    close(descriptor);
}

/* ---- the lock ---- */

/* When the process that holds the lock last did something. */
static int64_t last_beat_ns(int descriptor)
{
    struct stat info;
    return fstat(descriptor, &info) == 0
               ? info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec
               : 0;
}

/* SHOAL_END: the lock file was removed meanwhile, open the new one. */
static shoal_status wait_for_lock(struct shoali_cache_lock *lock)
{
    struct stat mine, there;
    const int64_t begin = shoali_now_ns();
    int64_t beat = last_beat_ns(lock->descriptor), deadline = shoali_deadline_ns(STUCK_NS);
    bool warned = false;
    struct shoali_waiting waiting = {0};
    while (flock(lock->descriptor, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return SHOAL_OK; /* no locks here: the last rename wins */
        if (!warned && shoali_now_ns() - begin > TELL_NS) {
            SHOALI_INFO("data", "waiting for another process that makes %s", lock->what);
            warned = true;
        }
        /* Where the first rank of a host makes it, the second one waits as all others do. */
        if (shoali_waiting_due(&waiting, NULL) && shoali_started_get().local_rank <= 1)
            SHOALI_WARN("data",
                        "waiting for %.0f s for another process that makes %s (it holds %s)",
                        shoali_waiting_seconds(&waiting), lock->what, lock->path);
        const int64_t now = last_beat_ns(lock->descriptor);
        if (now != beat)
            deadline = shoali_deadline_ns(STUCK_NS);
        beat = now;
        if (shoali_deadline_passed(deadline) || shoali_fault("data_wait"))
            return SHOAL_FAIL(SHOAL_ETIMEOUT,
                              "another process has held %s for 10 minutes without progress: end "
                              "it, or give --data-cache-path another folder",
                              lock->path);
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    lock->held = true;
    return fstat(lock->descriptor, &mine) == 0 && stat(lock->path, &there) == 0 &&
                   mine.st_ino == there.st_ino && mine.st_dev == there.st_dev
               ? SHOAL_OK
               : SHOAL_END;
}

shoal_status shoali_cache_lock_take(struct shoali_cache_lock *lock, enum shoali_place place,
                                    const char *folder)
{
    shoal_status status = SHOAL_END;
    while (status == SHOAL_END) {
        if (lock->descriptor >= 0)
            close(lock->descriptor);
        lock->held = false;
        lock->descriptor = open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (lock->descriptor < 0)
            return shoali_place_failed(place, folder);
        SHOAL_TRY(status, wait_for_lock(lock), done);
    }
done:
    return status;
}

void shoali_cache_lock_release(struct shoali_cache_lock *lock)
{
    if (lock->descriptor < 0)
        return;
    if (lock->held)
        (void)unlink(lock->path); /* before it is let go */
    close(lock->descriptor);
    lock->descriptor = -1;
    lock->held = false;
}
