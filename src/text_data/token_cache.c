/* Where token files are kept, and that one process makes them while the others wait. */
#include "text_data/token_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The clock of file times ticks in steps of up to 10 ms. A text that was written in this tick could
 * be written again without another time, so its file is not made before the next. */
#define TICK_NS 20000000
#define LARGE_BYTES (INT64_C(256) << 20) /* making such a file is announced */

/* One try to have a file in one place. */
struct attempt {
    const shoal_dataset_args *args;
    struct shoali_files *files; /* borrowed */
    struct shoali_token_request request;
    struct shoali_str folder, path, lock_path, temporary;
    enum shoali_place place;
    struct shoali_cache_lock lock;
};

/* ---- names ---- */

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
    shoali_str_fini(&attempt->folder);
    shoali_str_fini(&attempt->path);
    shoali_str_fini(&attempt->lock_path);
    shoali_str_fini(&attempt->temporary);
}

/* `learns`: the file of the vocabulary that is learnt from this text. */
static shoal_status attempt_init(struct attempt *attempt, const shoal_dataset_args *args,
                                 struct shoali_files *files, enum shoali_place place, bool learns)
{
    const shoal_tokenizer *own = learns ? NULL : own_vocabulary(args);
    *attempt =
        (struct attempt){.args = args, .files = files, .place = place, .lock.descriptor = -1};
    attempt->request = (struct shoali_token_request){
        .files = files,
        .tokenizer = tokenizer_name(args),
        .use_tokenizer = own,
        .made_of = hash_text(own ? shoal_tokenizer_json(own) : tokenizer_name(args), files->given),
        .beat = -1};
    shoali_place_name(place, args->cache_path, args->paths[0], &attempt->folder);
    name_file(attempt, tokenizer_name(args));
    attempt->request.path = shoali_str_get(&attempt->path);
    if (attempt->folder.failed || attempt->path.failed || attempt->lock_path.failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a token file");
    return SHOAL_OK;
}

/* ---- opening ---- */

/* The text's own vocabulary may be the one that is asked for: a run that goes on. */
static shoal_status open_learnt(const shoal_dataset_args *args, struct shoali_files *files,
                                enum shoali_place place, struct shoali_token_opened *opened)
{
    shoal_status status;
    struct attempt attempt;
    const shoal_tokenizer *own = own_vocabulary(args);
    SHOAL_TRY(status, attempt_init(&attempt, args, files, place, true), done);
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

static shoal_status open_place(const shoal_dataset_args *args, struct shoali_files *files,
                               enum shoali_place place, struct shoali_token_opened *opened)
{
    shoal_status status;
    struct attempt attempt;
    SHOAL_TRY(status, attempt_init(&attempt, args, files, place, false), done);
    SHOAL_TRY(status, shoali_token_file_open(&attempt.request, opened), done);
    if (status == SHOAL_END && own_vocabulary(args))
        SHOAL_TRY(status, open_learnt(args, files, place, opened), done);
done:
    attempt_fini(&attempt);
    return status;
}

static shoal_status find(const shoal_dataset_args *args, struct shoali_files *files,
                         struct shoali_token_opened *opened)
{
    shoal_status status = SHOAL_END;
    const enum shoali_place first = shoali_place_first(args->cache_path);
    const enum shoali_place last = shoali_place_last(args->cache_path);
    *opened = (struct shoali_token_opened){0};
    for (enum shoali_place place = first; place <= last && status == SHOAL_END; place++)
        SHOAL_TRY(status, open_place(args, files, place, opened), done);
done:
    return status;
}

shoal_status shoali_token_cache_find(const shoal_dataset_args *args,
                                     struct shoali_token_opened *opened)
{
    shoal_status status;
    struct shoali_files files = {0};
    *opened = (struct shoali_token_opened){0};
    SHOAL_TRY(status, shoali_files_find(args, &files), done);
    SHOAL_TRY(status, find(args, &files, opened), done);
done:
    shoali_files_fini(&files);
    return status;
}

/* ---- making ---- */

static shoal_status cannot_keep(const struct attempt *attempt)
{
    return shoali_place_failed(attempt->place, shoali_str_get(&attempt->folder));
}

static shoal_status take_lock(struct attempt *attempt)
{
    attempt->lock.path = shoali_str_get(&attempt->lock_path);
    attempt->lock.what = attempt->request.path;
    const shoal_status status =
        shoali_cache_lock_take(&attempt->lock, attempt->place, shoali_str_get(&attempt->folder));
    attempt->request.beat = attempt->lock.held ? attempt->lock.descriptor : -1;
    return status;
}

/* Whoever had the lock before made the file, or the text has changed since we looked. */
static shoal_status look_again(struct attempt *attempt, struct shoali_token_opened *opened)
{
    shoal_status status;
    struct timespec now;
    int64_t newest = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int32_t i = 0; i < attempt->files->count; i++)
        newest = attempt->files->file[i].changed_ns > newest ? attempt->files->file[i].changed_ns
                                                             : newest;
    const int64_t age = now.tv_sec * INT64_C(1000000000) + now.tv_nsec - newest;
    if (age >= 0 && age < TICK_NS)
        (void)nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    shoali_files_fini(attempt->files);
    SHOAL_TRY(status, shoali_files_find(attempt->args, attempt->files), done);
    SHOAL_TRY(status, shoali_token_file_open(&attempt->request, opened), done);
done:
    return status;
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
    if (attempt->files->bytes > LARGE_BYTES) {
        char size[32];
        SHOALI_INFO("data", "making the tokens of %s of text, once: %s",
                    shoali_format_bytes((double)attempt->files->bytes, size),
                    attempt->request.path);
    }
    SHOAL_TRY(status, shoali_token_build(&attempt->request, shoali_str_get(temporary)), done);
    if (shoali_fault("data_rename") ||
        rename(shoali_str_get(temporary), attempt->request.path) != 0) {
        status = cannot_keep(attempt);
        (void)unlink(shoali_str_get(temporary));
        goto done;
    }
    shoali_place_sync(shoali_str_get(&attempt->folder));
done:
    return status;
}

/* SHOAL_END: this place may not be written. */
static shoal_status make_place(const shoal_dataset_args *args, struct shoali_files *files,
                               enum shoali_place place, struct shoali_token_opened *opened)
{
    shoal_status status;
    struct attempt attempt;
    SHOAL_TRY(status, attempt_init(&attempt, args, files, place, false), done);
    SHOAL_TRY(status, shoali_place_make(place, shoali_str_get(&attempt.folder)), done);
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
    shoali_cache_lock_release(&attempt.lock);
    attempt_fini(&attempt);
    return status;
}

static shoal_status make(const shoal_dataset_args *args, struct shoali_files *files,
                         struct shoali_token_opened *opened)
{
    shoal_status status;
    if (args->cache_path)
        return make_place(args, files, SHOALI_PLACE_GIVEN, opened);
    SHOAL_TRY(status, make_place(args, files, SHOALI_PLACE_BESIDE, opened), done);
    if (status == SHOAL_END)
        SHOAL_TRY(status, make_place(args, files, SHOALI_PLACE_PRIVATE, opened), done);
done:
    return status;
}

shoal_status shoali_token_cache_open(const shoal_dataset_args *args,
                                     struct shoali_token_opened *opened)
{
    shoal_status status;
    struct shoali_files files = {0};
    *opened = (struct shoali_token_opened){0};
    SHOAL_TRY(status, shoali_files_find(args, &files), done);
    if (shoali_context_get()->rank <= 0) /* N ranks would say the same N times */
        shoali_files_warn(&files);
    SHOAL_TRY(status, find(args, &files, opened), done);
    if (status == SHOAL_END)
        SHOAL_TRY(status, make(args, &files, opened), done);
    if (status == SHOAL_OK)
        SHOAL_TRY(status,
                  shoali_files_report(&files, opened->verdict, args->list_files, &opened->report),
                  done);
done:
    if (status < 0)
        shoali_token_opened_fini(opened);
    shoali_files_fini(&files);
    return status;
}
