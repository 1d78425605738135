/* What harnesses share. */
#include "fuzz.h"

#include "shoal/log.h"

#include <sys/mman.h>
#include <unistd.h>

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int descriptor = -1;
    static char path[64];
    if (descriptor < 0) {
        descriptor = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(descriptor >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    }
    FUZZ_CHECK(ftruncate(descriptor, 0) == 0);
    FUZZ_CHECK(pwrite(descriptor, data, size, 0) == (ssize_t)size);
    return path;
}

static void drop(void *user, shoal_log_level level, const char *subsystem, int rank,
                 const char *text)
{
    (void)user;
    (void)level;
    (void)subsystem;
    (void)rank;
    (void)text;
}

void fuzz_be_silent(void)
{
    static bool silent;
    if (silent)
        return;
    FUZZ_CHECK(shoal_log_configure("trace", drop, NULL) == SHOAL_OK);
    FUZZ_CHECK(freopen("/dev/null", "w", stdout));
    silent = true;
}
