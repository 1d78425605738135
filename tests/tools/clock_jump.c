/* clock_jump - a library to preload: the time of day is as many seconds ahead as the file
 * CLOCK_JUMP says, as after a hand or a time server has set the clock. Without the file, and for
 * clocks that nobody can set, nothing changes. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t ahead_s(void)
{
    const char *path = getenv("CLOCK_JUMP");
    char text[32] = "";
    const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0 || read(file, text, sizeof text - 1) < 0)
        text[0] = '\0';
    if (file >= 0)
        close(file);
    return (time_t)strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead_s();
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;
    (void)zone;
    const int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
