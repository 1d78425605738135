#include "comm/bootstrap/secret.h"

#include "comm/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_MIN = 16, TEXT_MAX = 4096 };

static const char how[] = "write one with `(umask 077; openssl rand -hex 32 > FILE)`";

shoal_status shoali_random(void *bytes, size_t count)
{
    unsigned char *at = bytes;
    while (count > 0) {
        ssize_t got = getrandom(at, count, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return SHOAL_FAIL(SHOAL_EIO, "the system gives no random numbers: %s", strerror(errno));
        at += got;
        count -= (size_t)got;
    }
    return SHOAL_OK;
}

shoal_status shoali_secret_draw(char text[SHOALI_SECRET_TEXT_BYTES])
{
    unsigned char bytes[(SHOALI_SECRET_TEXT_BYTES - 1) / 2];
    shoal_status status = shoali_random(bytes, sizeof(bytes));
    if (status == SHOAL_OK)
        sodium_bin2hex(text, SHOALI_SECRET_TEXT_BYTES, bytes, sizeof(bytes));
    sodium_memzero(bytes, sizeof(bytes));
    return status;
}

/* A hash of text that is used for nothing else: `purpose` is part of it. */
static void hash(const char *purpose, const char *text, size_t bytes, unsigned char *out,
                 size_t out_bytes)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, out_bytes);
    crypto_generichash_update(&state, (const unsigned char *)purpose, strlen(purpose) + 1);
    crypto_generichash_update(&state, (const unsigned char *)text, bytes);
    crypto_generichash_final(&state, out, out_bytes);
    sodium_memzero(&state, sizeof(state));
}

void shoali_credentials_wipe(struct shoali_credentials *credentials)
{
    sodium_memzero(credentials, sizeof(*credentials));
}

/* The job's name, never empty: without a word from any launcher the port alone tells jobs apart. */
static void read_job(char *job, size_t bytes)
{
    static const char *const names[][2] = {
        {"SHOAL_JOB_ID", ""},
        {"TORCHELASTIC_RUN_ID", "MASTER_PORT"},
        {"SLURM_JOB_ID", "SLURM_STEP_ID"},
        {"PMIX_NAMESPACE", ""},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *first = getenv(names[i][0]), *second = getenv(names[i][1]);
        if (!first || !*first)
            continue;
        snprintf(job, bytes, "%s=%s.%s", names[i][0], first, second ? second : "");
        return;
    }
    snprintf(job, bytes, "unnamed");
}

/* Only who may read it anyway: this user, or root. */
static shoal_status check_file(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot inspect the secret %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return SHOAL_FAIL(SHOAL_EINVAL, "the secret %s is not a plain file", path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the secret %s belongs to user %u, who could change it: use a file of "
                          "your own; %s",
                          path, (unsigned)info.st_uid, how);
    if ((info.st_mode & 077) != 0)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the secret %s may be read or written by others (mode %03o): give it to yourself alone "
            "with `chmod 600 %s`, and draw a new one if another user may have read it",
            path, (unsigned)(info.st_mode & 0777), path);
    return SHOAL_OK;
}

/* Reads the text without the white space at its end. */
static shoal_status read_text(int fd, const char *path, char text[TEXT_MAX + 1], size_t *bytes)
{
    size_t used = 0;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, check_file(fd, path), done);
    for (;;) {
        ssize_t got = read(fd, text + used, TEXT_MAX + 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = SHOAL_FAIL(SHOAL_EIO, "cannot read the secret %s: %s", path, strerror(errno));
            goto done;
        }
        if (got == 0 || used > TEXT_MAX)
            break;
        used += (size_t)got;
    }
    if (used > TEXT_MAX) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "the secret %s is longer than %d bytes: %s", path,
                            TEXT_MAX, how);
        goto done;
    }
    while (used > 0 && strchr(" \t\r\n", text[used - 1]))
        used--;
    if (used < TEXT_MIN)
        status = SHOAL_FAIL(SHOAL_EINVAL, "the secret %s has %zu characters and needs %d: %s", path,
                            used, TEXT_MIN, how);
    *bytes = used;
done:
    return status;
}

static shoal_status read_named(const char *path, char text[TEXT_MAX + 1], size_t *bytes)
{
    /* A pipe in its place must not hold us up. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot open the secret %s (SHOAL_SECRET_FILE): %s", path,
                          strerror(errno));
    shoal_status status = read_text(fd, path, text, bytes);
    close(fd);
    return status;
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    ssize_t written;
    do
        written = write(fd, text, bytes);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)bytes;
}

/* Makes the user's secret under a name of its own and then links it: nobody sees half of it, and of
 * several makers one wins. */
static shoal_status make_own(int folder)
{
    char text[SHOALI_SECRET_TEXT_BYTES], name[32];
    uint64_t random = 0;
    int fd = -1;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, shoali_secret_draw(text), done);
    SHOAL_TRY(status, shoali_random(&random, sizeof(random)), done);
    snprintf(name, sizeof(name), "secret.%016llx", (unsigned long long)random);
    fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    const bool limited = shoali_file_limit_begin();
    const bool made = fd >= 0 && fchmod(fd, 0600) == 0 && write_all(fd, text, sizeof(text) - 1);
    const int error = errno;
    shoali_file_limit_end(limited);
    errno = error;
    if (!made || (linkat(folder, name, folder, "secret", 0) != 0 && errno != EEXIST))
        status = SHOAL_FAIL(SHOAL_EIO, "cannot make a secret in %s: %s%s", shoali_folder_root(),
                            strerror(errno),
                            errno == EFBIG ? ": raise the limit of files with `ulimit -f`" : "");
    if (fd >= 0) {
        unlinkat(folder, name, 0);
        close(fd);
    }
done:
    sodium_memzero(text, sizeof(text));
    return status;
}

/* The secret of this user on this machine. */
static shoal_status read_own(char text[TEXT_MAX + 1], size_t *bytes)
{
    char path[SHOALI_FOLDER_BYTES], file[SHOALI_FOLDER_BYTES + 16];
    shoal_status status = SHOAL_OK;
    const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = -1, folder = shoali_folder_open();
    snprintf(file, sizeof(file), "%s/secret", shoali_folder_path(path));
    if (folder < 0)
        return SHOAL_FAIL(errno == EPERM ? SHOAL_EINVAL : SHOAL_EIO,
                          errno == EPERM
                              ? "%s is not a folder of this user, so ranks cannot leave a secret "
                                "there: start them with `shoal run`, or set SHOAL_SECRET_FILE (%s)"
                              : "cannot use the folder %s for a secret (%s): start the ranks with "
                                "`shoal run`, or set SHOAL_SECRET_FILE",
                          path, errno == EPERM ? how : strerror(errno));
    fd = openat(folder, "secret", flags);
    if (fd < 0 && errno == ENOENT) {
        SHOAL_TRY(status, make_own(folder), done);
        fd = openat(folder, "secret", flags);
    }
    if (fd < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "cannot open the secret %s: %s", file, strerror(errno));
        goto done;
    }
    SHOAL_TRY(status, read_text(fd, file, text, bytes), done);
done:
    if (fd >= 0)
        close(fd);
    close(folder);
    return status;
}

shoal_status shoali_credentials_find(struct shoali_credentials *credentials)
{
    const char *given = getenv("SHOAL_SECRET"), *path = getenv("SHOAL_SECRET_FILE");
    char text[TEXT_MAX + 1], job[256];
    size_t bytes = 0;
    bool this_machine = false;
    shoal_status status = SHOAL_OK;
    if (sodium_init() < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "libsodium does not start on this system");
        goto done;
    }
    if (given && *given) {
        bytes = strlen(given);
        if (bytes < TEXT_MIN || bytes > TEXT_MAX) {
            status = SHOAL_FAIL(SHOAL_EINVAL,
                                "SHOAL_SECRET has %zu characters and needs %d to %d: %s and set "
                                "SHOAL_SECRET_FILE to it",
                                bytes, TEXT_MIN, TEXT_MAX, how);
            goto done;
        }
        memcpy(text, given, bytes);
    } else if (path && *path) {
        SHOAL_TRY(status, read_named(path, text, &bytes), done);
    } else {
        SHOAL_TRY(status, read_own(text, &bytes), done);
        this_machine = true;
    }
    read_job(job, sizeof(job));
    hash("shoal: secret of a job", text, bytes, credentials->key, sizeof(credentials->key));
    hash("shoal: name of a job", job, strlen(job), credentials->job, sizeof(credentials->job));
    credentials->this_machine = this_machine;
done:
    sodium_memzero(text, sizeof(text));
    return status;
}
