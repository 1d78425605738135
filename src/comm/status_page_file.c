#include "comm/status_page_file.h"

#include "comm/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 128 };
static const char prefix[] = "shoal-";

static bool variable_is(const char *name, int64_t value)
{
    int64_t number = 0;
    const char *text = getenv(name);
    return text && shoali_parse_i64(text, &number) && number == value;
}

/* The launcher's id; without one a name as if this process were a launcher. The second is also for
 * what a rank of a job starts as a job of its own. */
static void name_job(int32_t rank, int32_t world, char job[SHOALI_JOB_NAME_BYTES])
{
    const char *given = getenv("SHOAL_JOB_ID");
    if (given && *given && !strchr(given, '/') && variable_is("RANK", rank) &&
        variable_is("WORLD_SIZE", world))
        snprintf(job, SHOALI_JOB_NAME_BYTES, "%.60s", given);
    else
        snprintf(job, SHOALI_JOB_NAME_BYTES, "%d.%lx.0", (int)getpid(), shoali_process_namespace());
}

static void name_file(const char *job, int32_t rank, bool copy, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s%.60s-%s.%d", prefix, job, copy ? "copy" : "board", (int)rank);
}

static struct shoali_status_page *map(int folder, const char *name, int flags)
{
    struct stat info;
    void *base = MAP_FAILED;
    const bool writes = (flags & O_ACCMODE) == O_RDWR;
    const int fd = openat(folder, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
    if (good && writes && info.st_size == 0)
        good = posix_fallocate(fd, 0, sizeof(struct shoali_status_page)) == 0;
    else if (good)
        good = info.st_size == (off_t)sizeof(struct shoali_status_page);
    if (good)
        base = mmap(NULL, sizeof(struct shoali_status_page),
                    writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return base == MAP_FAILED ? NULL : base;
}

/* ---- the folder ----------------------------------------------------------------------------- */

static bool parse_name(const char *name, char job[SHOALI_JOB_NAME_BYTES], int32_t *rank, bool *copy)
{
    int64_t number;
    const char *dot = strrchr(name, '.');
    const char *dash = dot ? memrchr(name, '-', (size_t)(dot - name)) : NULL;
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 || !dash || dash < name + sizeof(prefix) - 1)
        return false;
    const size_t length = (size_t)(dash - name) - (sizeof(prefix) - 1);
    *copy = strncmp(dash, "-copy.", 6) == 0;
    if ((!*copy && strncmp(dash, "-board.", 7) != 0) || length >= SHOALI_JOB_NAME_BYTES ||
        !shoali_parse_i64(dot + 1, &number) || number < 0 || number >= SHOALI_STATUS_PAGE_RANKS_MAX)
        return false;
    memcpy(job, name + sizeof(prefix) - 1, length);
    job[length] = '\0';
    *rank = (int32_t)number;
    return true;
}

void shoali_status_pages_walk(shoali_status_page_found *found, void *user)
{
    char job[SHOALI_JOB_NAME_BYTES];
    struct dirent *entry;
    int32_t rank;
    bool copy, goes_on = true;
    const int descriptor = shoali_folder_open();
    DIR *folder = descriptor < 0 ? NULL : fdopendir(descriptor);
    if (!folder) {
        if (descriptor >= 0)
            close(descriptor);
        return;
    }
    while (goes_on && (entry = readdir(folder)))
        if (parse_name(entry->d_name, job, &rank, &copy))
            goes_on = found(user, job, rank, copy);
    closedir(folder);
}

/* Those of processes that had no launcher and were killed. */
static bool remove_stale(void *user, const char *job, int32_t rank, bool copy)
{
    char name[NAME_BYTES];
    int pid = 0, end = 0;
    unsigned long space = 0;
    if (sscanf(job, "%d.%lx.0%n", &pid, &space, &end) < 2 || end == 0 || job[end] || pid <= 0 ||
        space != shoali_process_namespace() || kill(pid, 0) == 0 || errno != ESRCH)
        return true;
    name_file(job, rank, copy, name);
    unlinkat(*(const int *)user, name, 0);
    return true;
}

/* ---- a rank's own --------------------------------------------------------------------------- */

struct shoali_status_page *shoali_status_page_open(int32_t rank, int32_t world)
{
    char job[SHOALI_JOB_NAME_BYTES], name[NAME_BYTES];
    int64_t node = 0;
    const char *text = getenv("CROSS_RANK");
    int folder = shoali_folder_open();
    if (folder < 0)
        return NULL;
    shoali_status_pages_walk(remove_stale, &folder);
    name_job(rank, world, job);
    name_file(job, rank, false, name);
    unlinkat(folder, name, 0); /* of an earlier process of the job with this number */
    struct shoali_status_page *page = map(folder, name, O_RDWR | O_CREAT | O_EXCL);
    if (!page)
        unlinkat(folder, name, 0);
    close(folder);
    if (!page)
        return NULL;
    if (text && shoali_parse_i64(text, &node))
        atomic_store(&page->node, node);
    shoali_status_page_begin(page, rank, world);
    shoali_context_get()->page = page;
    return page;
}

void shoali_status_page_close(struct shoali_status_page *page, bool keep)
{
    char job[SHOALI_JOB_NAME_BYTES], name[NAME_BYTES];
    if (!page)
        return;
    const int folder = keep ? -1 : shoali_folder_open();
    if (folder >= 0) {
        const int32_t rank = (int32_t)atomic_load(&page->rank);
        name_job(rank, (int32_t)atomic_load(&page->world), job);
        name_file(job, rank, false, name);
        unlinkat(folder, name, 0);
        close(folder);
    }
    if (shoali_context_get()->page == page)
        shoali_context_get()->page = NULL;
    munmap(page, sizeof(*page));
}

void shoali_status_page_unlink(const char *job, int32_t rank)
{
    char name[NAME_BYTES];
    const int folder = shoali_folder_open();
    if (folder < 0)
        return;
    name_file(job, rank, false, name);
    unlinkat(folder, name, 0);
    close(folder);
}

/* ---- others' -------------------------------------------------------------------------------- */

static struct shoali_status_page *attach(const char *job, int32_t rank, bool copy, int flags)
{
    char name[NAME_BYTES];
    const int folder = shoali_folder_open();
    if (folder < 0)
        return NULL;
    name_file(job, rank, copy, name);
    struct shoali_status_page *page = map(folder, name, flags);
    close(folder);
    return page;
}

struct shoali_status_page *shoali_status_page_attach(const char *job, int32_t rank, bool copy)
{
    return attach(job, rank, copy, O_RDONLY);
}

struct shoali_status_page *shoali_status_page_make_copy(const char *job, int32_t rank)
{
    return attach(job, rank, true, O_RDWR | O_CREAT);
}

void shoali_status_page_detach(struct shoali_status_page *page)
{
    if (page)
        munmap(page, sizeof(*page));
}
