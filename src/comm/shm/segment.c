#include "comm/shm/shm.h"

#include "base/memory.h"
#include "comm/folder.h"
#include "comm/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char folder[] = SHOALI_FOLDER_MEMORY;
static const char prefix[] = "shoal-";

enum { FIRST_BYTES = 4096, POPULATE_BYTES = 1 << 20, SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

/* Of the machine and the control groups around, in bytes. */
static double available_memory(void)
{
    int64_t total, available;
    shoali_memory_read("", &total, &available);
    return (double)available;
}

static double free_in_folder(void)
{
    struct statvfs info;
    return statvfs(folder, &info) == 0 ? (double)info.f_bavail * (double)info.f_frsize : 0;
}

/* `ulimit -f` is also the limit of files in memory. */
static shoal_status beyond_limit(size_t bytes)
{
    char need[32], most[32];
    struct rlimit limit = {0};
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "cannot share %s (%zu bytes) among the ranks: files, and with them shared "
                      "memory, are limited to %s (ulimit -f): raise that limit",
                      shoali_format_bytes((double)bytes, need), bytes,
                      shoali_format_bytes((double)limit.rlim_cur, most));
}

static shoal_status too_large(size_t bytes)
{
    char need[32], shm[32], memory[32];
    return SHOAL_FAIL(SHOAL_ENOMEM,
                      "cannot share %s (%zu bytes) among the ranks: %s has %s free and the machine "
                      "%s of memory: free memory, enlarge %s (docker run --shm-size), or use "
                      "fewer ranks or smaller buffers",
                      shoali_format_bytes((double)bytes, need), bytes, folder,
                      shoali_format_bytes(free_in_folder(), shm),
                      shoali_format_bytes(available_memory(), memory), folder);
}

/* Reserves pages; 0 or an errno. */
static int reserve(int fd, size_t begin, size_t bytes)
{
    int code;
    const bool limited = shoali_file_limit_begin();
    do {
        code = posix_fallocate(fd, (off_t)begin, (off_t)bytes);
    } while (code == EINTR);
    shoali_file_limit_end(limited);
    return code;
}

/* Reserves all, or what the maker writes to before each rank reserves its own; 0 or an errno. */
static int make_size(int fd, const struct shoali_segment *segment)
{
    const bool limited = shoali_file_limit_begin();
    const int code = ftruncate(fd, (off_t)segment->bytes) != 0 ? errno : 0;
    shoali_file_limit_end(limited);
    if (code != 0)
        return code;
    return reserve(fd, 0, segment->own_bytes > 0 ? FIRST_BYTES : segment->bytes);
}

/* Without a launcher a file has a name as if this process were one, so that the next launcher finds
 * what a killed rank has left. */
static void name_job(char *job, size_t bytes)
{
    struct stat info;
    const char *given = getenv("SHOAL_JOB_ID");
    const bool has_space = stat("/proc/self/ns/pid", &info) == 0;
    if (given && *given && !strchr(given, '/'))
        snprintf(job, bytes, "%.60s", given);
    else
        snprintf(job, bytes, "%d.%lx.0", (int)getpid(), has_space ? (unsigned long)info.st_ino : 0);
}

/* A new file in `directory` under a name that nobody can guess; 0 or an errno. */
static int make_named(struct shoali_segment *segment, int directory)
{
    char job[64], path[SHOALI_FOLDER_BYTES];
    uint64_t random = 0;
    name_job(job, sizeof(job));
    for (int attempt = 0; attempt < 16; attempt++) {
        if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
            random = (uint64_t)shoali_now_ns();
        snprintf(segment->name, sizeof(segment->name), "%s/%s%s-%016llx", shoali_folder_path(path),
                 prefix, job, (unsigned long long)random);
        segment->fd = openat(directory, strrchr(segment->name, '/') + 1,
                             O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
        if (segment->fd >= 0 || errno != EEXIST)
            break;
    }
    return segment->fd < 0 ? errno : 0;
}

/* A new file in this user's folder with the pages reserved; 0 or an errno. */
static int make_file(struct shoali_segment *segment)
{
    if (access(folder, W_OK | X_OK) != 0)
        return errno;
    if (free_in_folder() < (double)segment->bytes)
        return ENOSPC;
    const int directory = shoali_folder_open();
    if (directory < 0)
        return errno;
    int code = make_named(segment, directory);
    close(directory);
    if (code == 0)
        code = make_size(segment->fd, segment);
    if (code != 0 && segment->fd >= 0) {
        unlink(segment->name);
        close(segment->fd);
        segment->fd = -1;
    }
    return code;
}

/* Its size is sealed and its owner alone may open it, through /proc. */
static int make_memfd(struct shoali_segment *segment)
{
    segment->fd = memfd_create("shoal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int code = segment->fd < 0 ? errno : make_size(segment->fd, segment);
    if (code == 0 && (fchmod(segment->fd, 0600) != 0 ||
                      fcntl(segment->fd, F_ADD_SEALS, SIZE_SEALS | F_SEAL_SEAL) != 0))
        code = errno;
    snprintf(segment->name, sizeof(segment->name), "/proc/%d/fd/%d", (int)getpid(), segment->fd);
    if (code != 0 && segment->fd >= 0) {
        close(segment->fd);
        segment->fd = -1;
    }
    return code;
}

static shoal_status fail_of_map(const struct shoali_segment *segment, int code)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_AS, &limit);
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot map %zu bytes of %s: %s%s", segment->bytes,
                      segment->name, strerror(code),
                      code == ENOMEM && limit.rlim_cur != RLIM_INFINITY
                          ? "; the address space is limited (ulimit -v): raise that limit"
                          : "");
}

static shoal_status map(struct shoali_segment *segment, int fd)
{
    void *base = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return fail_of_map(segment, errno);
    madvise(base, segment->bytes, MADV_HUGEPAGE); /* a wish: most systems refuse it for files */
    segment->base = base;
    return SHOAL_OK;
}

/* Maps the pages of a large part at once: a third of what the faults of its first use would take.
 * Kernels before 5.14 refuse. */
static void populate(struct shoali_segment *segment)
{
#ifdef MADV_POPULATE_WRITE
    if (segment->own_bytes >= POPULATE_BYTES)
        madvise((char *)segment->base + segment->own_begin, segment->own_bytes,
                MADV_POPULATE_WRITE);
#else
    (void)segment;
#endif
}

static shoal_status reserve_own(int fd, struct shoali_segment *segment)
{
    const int code = reserve(fd, segment->own_begin, segment->own_bytes);
    if (code != 0)
        return code == EFBIG ? beyond_limit(segment->bytes) : too_large(segment->bytes);
    populate(segment);
    return SHOAL_OK;
}

shoal_status shoali_shm_reserve(void *user, struct shoali_segment *segment)
{
    (void)user;
    return reserve_own(segment->fd, segment);
}

bool shoali_shm_works(void)
{
    if (shoali_folder_is_memory())
        return true;
    const int fd = memfd_create("shoal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return false;
    close(fd);
    return access("/proc/self/fd", X_OK) == 0;
}

/* Both ways have failed, with these codes. */
static shoal_status fail_of_both(size_t bytes, int file_code, int memfd_code)
{
    const bool descriptors = memfd_code == EMFILE || memfd_code == ENFILE;
    if (memfd_code == EFBIG)
        return beyond_limit(bytes);
    if (memfd_code == ENOSPC || memfd_code == ENOMEM || (file_code == ENOSPC && !descriptors))
        return too_large(bytes);
    return SHOAL_FAIL(SHOAL_EIO, "cannot make shared memory in %s (%s) or without a name (%s)%s",
                      folder, strerror(file_code), strerror(memfd_code),
                      shoali_descriptor_advice(memfd_code));
}

shoal_status shoali_shm_create(void *user, size_t bytes, struct shoali_segment *segment)
{
    (void)user;
    shoal_status status = SHOAL_OK;
    const double available = available_memory();
    int file_code = 0, code = 0;
    segment->bytes = bytes;
    segment->fd = -1;
    if (bytes > INT64_MAX || (double)bytes > available || shoali_fault("comm.segment"))
        return too_large(bytes);
    file_code = make_file(segment);
    if (file_code != 0)
        code = make_memfd(segment);
    if (code != 0)
        return fail_of_both(bytes, file_code, code);
    SHOAL_TRY(status, map(segment, segment->fd), done);
done:
    if (status != SHOAL_OK)
        shoali_shm_seal(segment);
    return status;
}

/* "/proc/PID/fd/NUMBER" and nothing else. */
static bool is_memfd_name(const char *name)
{
    char again[sizeof(((struct shoali_segment *)0)->name)];
    int pid = 0, number = -1;
    if (sscanf(name, "/proc/%d/fd/%d", &pid, &number) != 2 || pid <= 0 || number < 0)
        return false;
    snprintf(again, sizeof(again), "/proc/%d/fd/%d", pid, number);
    return strcmp(name, again) == 0;
}

/* Opens a segment by a name that another rank gave: a file of ours in this user's folder, or the
 * descriptor of a process of this user. Anything else is EPERM: a path is never just followed. */
static int open_named(const char *name)
{
    char path[SHOALI_FOLDER_BYTES];
    const int flags = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    const size_t length = strlen(shoali_folder_path(path));
    if (is_memfd_name(name))
        return open(name, flags);
    errno = EPERM;
    if (strncmp(name, path, length) != 0 || name[length] != '/' ||
        strncmp(name + length + 1, prefix, sizeof(prefix) - 1) != 0 ||
        strchr(name + length + 1, '/'))
        return -1;
    const int directory = shoali_folder_open();
    if (directory < 0)
        return -1;
    int fd = openat(directory, name + length + 1, flags | O_NOFOLLOW);
    const int saved = errno;
    close(directory);
    errno = saved;
    return fd;
}

/* What is wrong with a file as a segment, NULL: nothing. Its size stays: it is sealed, or none but
 * this user can change it; and where the maker has promised all pages, they are there. */
static const char *find_flaw(int fd, const struct shoali_segment *segment)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return "it is no file in memory";
    if (info.st_uid != geteuid())
        return "it belongs to another user";
    if ((info.st_mode & 077) != 0)
        return "other users may open it";
    if (info.st_size < 0 || (size_t)info.st_size != segment->bytes)
        return "its size is wrong";
    if (segment->own_bytes == 0 && (size_t)info.st_blocks * 512 < segment->bytes)
        return "its memory is not reserved";
    if (is_memfd_name(segment->name) && (fcntl(fd, F_GET_SEALS) & SIZE_SEALS) != SIZE_SEALS)
        return "its size may change";
    return NULL;
}

shoal_status shoali_shm_attach(void *user, struct shoali_segment *segment)
{
    (void)user;
    shoal_status status = SHOAL_OK;
    const char *flaw = NULL;
    segment->fd = -1;
    int fd = open_named(segment->name);
    if (fd < 0) {
        const char *advice = shoali_descriptor_advice(errno);
        return SHOAL_FAIL(SHOAL_EIO, "cannot open the shared memory %s: %s%s", segment->name,
                          strerror(errno),
                          *advice ? advice
                                  : ": backend shm needs all ranks on one machine, with one "
                                    "/dev/shm and one user");
    }
    flaw = find_flaw(fd, segment);
    if (flaw) {
        status = SHOAL_FAIL(SHOAL_EIO,
                            "does not map %s, which should be shared memory of this "
                            "job: %s",
                            segment->name, flaw);
        goto done;
    }
    SHOAL_TRY(status, map(segment, fd), done);
    if (segment->own_bytes > 0)
        SHOAL_TRY(status, reserve_own(fd, segment), done);
done:
    close(fd);
    return status;
}

void shoali_shm_seal(struct shoali_segment *segment)
{
    if (segment->fd < 0)
        return;
    if (strncmp(segment->name, folder, sizeof(folder) - 1) == 0)
        unlink(segment->name);
    close(segment->fd);
    segment->fd = -1;
}

void shoali_shm_detach(void *user, struct shoali_segment *segment)
{
    (void)user;
    shoali_shm_seal(segment);
    if (segment->base)
        munmap(segment->base, segment->bytes);
    segment->base = NULL;
}
