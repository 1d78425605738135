/* Where token files are kept, and that one process makes them while the others wait. */
#include "data/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 20000000            /* between two looks at the lock */
#define TELL_NS INT64_C(1000000000) /* waits that are longer are said */
#define STUCK_NS (600 * INT64_C(1000000000))
/* The clock of file times ticks in steps of up to 10 ms. A text that was written in this tick could
 * be written again without another time, so its file is not made before the next. */
#define TICK_NS 20000000
#define LARGE_BYTES (INT64_C(256) << 20) /* making such a file is announced */

enum place { PLACE_GIVEN, PLACE_BESIDE, PLACE_PRIVATE };

/* One try to have a file in one place. */
struct attempt {
    const shoal_dataset_args *args;
    struct shoali_files files;
    struct shoali_token_request request;
    struct shoali_str folder, path, lock_path, temporary;
    enum place place;
    int lock; /* -1: not held */
};

/* ---- names ---- */

static void name_folder(struct attempt *attempt)
{
    const shoal_dataset_args *args = attempt->args;
    struct shoali_str *folder = &attempt->folder;
    const char *xdg = getenv("XDG_CACHE_HOME"), *first = args->paths[0];
    const char *slash = strrchr(first, '/');
    struct stat info;
    if (attempt->place == PLACE_GIVEN)
        shoali_str_append(folder, "%s", args->cache_path);
    else if (attempt->place == PLACE_PRIVATE && xdg && xdg[0] == '/')
        shoali_str_append(folder, "%s/shoal", xdg);
    else if (attempt->place == PLACE_PRIVATE)
        shoali_str_append(folder, "/var/tmp/shoal-%ld", (long)geteuid());
    else if (stat(first, &info) == 0 && S_ISDIR(info.st_mode))
        shoali_str_append(folder, "%s/%s", first, SHOALI_TOKEN_FOLDER);
    else
        shoali_str_append(folder, "%.*s%s", slash ? (int)(slash - first + 1) : 0, first,
                          SHOALI_TOKEN_FOLDER);
}

/* The last part of the first path, for people; and what tells one data set from another. */
static void name_file(struct attempt *attempt, const char *tokenizer)
{
    const char *first = attempt->args->paths[0];
    size_t end = strlen(first), begin;
    while (end > 1 && first[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && first[begin - 1] != '/' && end - begin < 60;)
        begin--;
    shoali_str_append(&attempt->path, "%s/%.*s-%s-%016llx%s", shoali_str_get(&attempt->folder),
                      (int)(end - begin), first + begin, tokenizer,
                      (unsigned long long)attempt->request.made_of, SHOALI_TOKEN_FILE_SUFFIX);
    shoali_str_append(&attempt->lock_path, "%s.lock", shoali_str_get(&attempt->path));
}

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return shoali_hash64_seeded(text, strlen(text), seed);
}

/* "byte" has no vocabulary of its own: with one from a checkpoint its files are the same. */
static const shoal_tokenizer *own_vocabulary(const shoal_dataset_args *args)
{
    const shoal_tokenizer *used = args->use_tokenizer;
    return used && strcmp(shoal_tokenizer_name(used), "byte") != 0 ? used : NULL;
}

static const char *tokenizer_name(const shoal_dataset_args *args)
{
    if (args->use_tokenizer)
        return shoal_tokenizer_name(args->use_tokenizer);
    return args->tokenizer ? args->tokenizer : "byte";
}

static void attempt_fini(struct attempt *attempt)
{
    shoali_files_fini(&attempt->files);
    shoali_str_fini(&attempt->folder);
    shoali_str_fini(&attempt->path);
    shoali_str_fini(&attempt->lock_path);
    shoali_str_fini(&attempt->temporary);
}

/* `learns`: the file of the vocabulary that is learnt from this text. */
static shoal_status attempt_init(struct attempt *attempt, const shoal_dataset_args *args,
                                 enum place place, bool learns)
{
    shoal_status status;
    const shoal_tokenizer *own = learns ? NULL : own_vocabulary(args);
    *attempt = (struct attempt){.args = args, .place = place, .lock = -1};
    SHOAL_TRY(status, shoali_files_find(args->paths, args->path_count, &attempt->files), done);
    attempt->request = (struct shoali_token_request){
        .files = &attempt->files,
        .tokenizer = tokenizer_name(args),
        .use_tokenizer = own,
        .made_of =
            hash_text(own ? shoal_tokenizer_json(own) : tokenizer_name(args), attempt->files.given),
        .beat = -1};
    name_folder(attempt);
    name_file(attempt, tokenizer_name(args));
    attempt->request.path = shoali_str_get(&attempt->path);
    if (attempt->folder.failed || attempt->path.failed || attempt->lock_path.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a token file");
done:
    return status;
}

/* ---- opening ---- */

/* The text's own vocabulary may be the one that is asked for: a run that goes on. */
static shoal_status open_learnt(const shoal_dataset_args *args, enum place place,
                                struct shoali_token_opened *opened)
{
    shoal_status status;
    struct attempt attempt;
    const shoal_tokenizer *own = own_vocabulary(args);
    SHOAL_TRY(status, attempt_init(&attempt, args, place, true), done);
    SHOAL_TRY(status, shoali_token_file_open(&attempt.request, opened), done);
    if (status == SHOAL_OK &&
        strcmp(shoal_tokenizer_json(own), shoal_tokenizer_json(opened->tokenizer)) != 0) {
        shoali_token_opened_fini(opened);
        status = SHOAL_END;
    }
done:
    attempt_fini(&attempt);
    return status;
}

static shoal_status open_place(const shoal_dataset_args *args, enum place place,
                               struct shoali_token_opened *opened)
{
    shoal_status status;
    struct attempt attempt;
    SHOAL_TRY(status, attempt_init(&attempt, args, place, false), done);
    SHOAL_TRY(status, shoali_token_file_open(&attempt.request, opened), done);
    if (status == SHOAL_END && own_vocabulary(args))
        SHOAL_TRY(status, open_learnt(args, place, opened), done);
done:
    attempt_fini(&attempt);
    return status;
}

shoal_status shoali_token_cache_find(const shoal_dataset_args *args,
                                     struct shoali_token_opened *opened)
{
    shoal_status status = SHOAL_END;
    const enum place first = args->cache_path ? PLACE_GIVEN : PLACE_BESIDE;
    const enum place last = args->cache_path ? PLACE_GIVEN : PLACE_PRIVATE;
    *opened = (struct shoali_token_opened){0};
    for (enum place place = first; place <= last && status == SHOAL_END; place++)
        SHOAL_TRY(status, open_place(args, place, opened), done);
done:
    return status;
}

/* ---- making ---- */

static shoal_status cannot_keep(const struct attempt *attempt)
{
    if (attempt->place == PLACE_BESIDE && (errno == EACCES || errno == EPERM || errno == EROFS))
        return SHOAL_END;
    return SHOAL_FAIL(SHOAL_EIO,
                      "the tokens of the data cannot be kept in %s: %s; give --data-cache-path "
                      "another folder",
                      shoali_str_get(&attempt->folder), strerror(errno));
}

/* SHOAL_END: not here, try the next place. */
static shoal_status make_folder(const struct attempt *attempt)
{
    shoal_status status = SHOAL_OK;
    struct stat info;
    const char *folder = shoali_str_get(&attempt->folder);
    const char *xdg = getenv("XDG_CACHE_HOME");
    if (attempt->place == PLACE_GIVEN) {
        status = shoali_make_dirs(folder);
        return status < 0 ? shoali_error_prefix(SHOAL_EINVAL, "--data-cache-path") : status;
    }
    if (attempt->place == PLACE_PRIVATE && xdg && xdg[0] == '/')
        SHOAL_TRY(status, shoali_make_dirs(xdg), done);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return cannot_keep(attempt);
    const mode_t others = attempt->place == PLACE_PRIVATE ? 077 : 022;
    if (lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
        (info.st_mode & others) == 0)
        return SHOAL_OK;
    status = SHOAL_END; /* somebody else's */
    if (attempt->place == PLACE_PRIVATE)
        status = SHOAL_FAIL(SHOAL_EIO,
                            "the tokens of the data would be kept in %s, but it is no folder that "
                            "you alone can use (mode 0700): give --data-cache-path a folder",
                            folder);
done:
    return status;
}

static void sleep_ns(long ns)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* When the process that holds the lock last did something. */
static int64_t last_beat_ns(int lock)
{
    struct stat info;
    return fstat(lock, &info) == 0
               ? info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec
               : 0;
}

/* SHOAL_END: the lock file was removed meanwhile, open the new one. */
static shoal_status wait_for_lock(struct attempt *attempt)
{
    struct stat mine, there;
    const int64_t begin = shoali_now_ns();
    int64_t beat = last_beat_ns(attempt->lock), deadline = shoali_deadline_ns(STUCK_NS);
    bool told = false;
    while (flock(attempt->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return SHOAL_OK; /* no locks here: the last rename wins */
        if (!told && shoali_now_ns() - begin > TELL_NS) {
            SHOALI_INFO("data", "waiting for another process that makes %s", attempt->request.path);
            told = true;
        }
        const int64_t now = last_beat_ns(attempt->lock);
        if (now != beat)
            deadline = shoali_deadline_ns(STUCK_NS);
        beat = now;
        if (shoali_deadline_passed(deadline) || shoali_fault("data_wait"))
            return SHOAL_FAIL(SHOAL_ETIMEOUT,
                              "another process has held %s for 10 minutes without progress: end "
                              "it, or give --data-cache-path another folder",
                              shoali_str_get(&attempt->lock_path));
        sleep_ns(POLL_NS);
    }
    attempt->request.beat = attempt->lock;
    return fstat(attempt->lock, &mine) == 0 &&
                   stat(shoali_str_get(&attempt->lock_path), &there) == 0 &&
                   mine.st_ino == there.st_ino && mine.st_dev == there.st_dev
               ? SHOAL_OK
               : SHOAL_END;
}

static void unlock(struct attempt *attempt)
{
    if (attempt->lock < 0)
        return;
    if (attempt->request.beat >= 0)
        (void)unlink(shoali_str_get(&attempt->lock_path)); /* before it is let go */
    close(attempt->lock);
    attempt->lock = attempt->request.beat = -1;
}

static shoal_status take_lock(struct attempt *attempt)
{
    shoal_status status = SHOAL_END;
    while (status == SHOAL_END) {
        if (attempt->lock >= 0)
            close(attempt->lock);
        attempt->request.beat = -1;
        attempt->lock = open(shoali_str_get(&attempt->lock_path),
                             O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (attempt->lock < 0)
            return cannot_keep(attempt);
        SHOAL_TRY(status, wait_for_lock(attempt), done);
    }
done:
    return status;
}

/* Whoever had the lock before made the file, or the text has changed since we looked. */
static shoal_status look_again(struct attempt *attempt, struct shoali_token_opened *opened)
{
    shoal_status status;
    struct timespec now;
    int64_t newest = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int32_t i = 0; i < attempt->files.count; i++)
        newest =
            attempt->files.file[i].changed_ns > newest ? attempt->files.file[i].changed_ns : newest;
    const int64_t age = now.tv_sec * INT64_C(1000000000) + now.tv_nsec - newest;
    if (age >= 0 && age < TICK_NS)
        sleep_ns(TICK_NS);
    shoali_files_fini(&attempt->files);
    SHOAL_TRY(status,
              shoali_files_find(attempt->args->paths, attempt->args->path_count, &attempt->files),
              done);
    SHOAL_TRY(status, shoali_token_file_open(&attempt->request, opened), done);
done:
    return status;
}

static void sync_folder(const char *folder)
{
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor); /* a lost name costs another making, no data */
    close(descriptor);
}

static shoal_status make_file(struct attempt *attempt)
{
    shoal_status status;
    struct shoali_str *temporary = &attempt->temporary;
    shoali_str_append(temporary, "%s", attempt->request.path);
    if (attempt->request.beat < 0)
        shoali_str_append(temporary, ".%ld.%lld", (long)getpid(), (long long)shoali_now_ns());
    shoali_str_append(temporary, ".tmp");
    if (temporary->failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a token file");
    if (attempt->files.bytes > LARGE_BYTES) {
        char size[32];
        SHOALI_INFO("data", "making the tokens of %s of text, once: %s",
                    shoali_format_bytes((double)attempt->files.bytes, size), attempt->request.path);
    }
    SHOAL_TRY(status, shoali_token_build(&attempt->request, shoali_str_get(temporary)), done);
    if (shoali_fault("data_rename") ||
        rename(shoali_str_get(temporary), attempt->request.path) != 0) {
        status = cannot_keep(attempt);
        (void)unlink(shoali_str_get(temporary));
        goto done;
    }
    sync_folder(shoali_str_get(&attempt->folder));
done:
    return status;
}

/* SHOAL_END: this place may not be written. */
static shoal_status make_place(const shoal_dataset_args *args, enum place place,
                               struct shoali_token_opened *opened)
{
    shoal_status status;
    struct attempt attempt;
    SHOAL_TRY(status, attempt_init(&attempt, args, place, false), done);
    SHOAL_TRY(status, make_folder(&attempt), done);
    if (status == SHOAL_END)
        goto done;
    SHOAL_TRY(status, take_lock(&attempt), done);
    if (status == SHOAL_END)
        goto done;
    SHOAL_TRY(status, look_again(&attempt, opened), done);
    if (status == SHOAL_OK)
        goto done;
    SHOAL_TRY(status, make_file(&attempt), done);
    SHOAL_TRY(status, shoali_token_file_open(&attempt.request, opened), done);
    if (status == SHOAL_END)
        status =
            SHOAL_FAIL(SHOAL_EIO, "%s was made but cannot be opened again", attempt.request.path);
done:
    unlock(&attempt);
    attempt_fini(&attempt);
    return status;
}

shoal_status shoali_token_cache_open(const shoal_dataset_args *args,
                                     struct shoali_token_opened *opened)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_token_cache_find(args, opened), done);
    if (status == SHOAL_END && args->cache_path) {
        SHOAL_TRY(status, make_place(args, PLACE_GIVEN, opened), done);
    } else if (status == SHOAL_END) {
        SHOAL_TRY(status, make_place(args, PLACE_BESIDE, opened), done);
        if (status == SHOAL_END)
            SHOAL_TRY(status, make_place(args, PLACE_PRIVATE, opened), done);
    }
done:
    return status;
}
