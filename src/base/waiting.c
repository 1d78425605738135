#include "base/waiting.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/plain.h"
#include "base/thread.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)
#define FIRST_NS (5 * SECOND_NS)
#define SECOND_LINE_NS (30 * SECOND_NS)
#define MINUTE_NS (60 * SECOND_NS)
enum { PLACES = 32, WHAT_BYTES = 400 };

/* ---- places where long waits are usual ------------------------------------------------------ */
static struct {
    pthread_mutex_t lock;
    struct {
        uint64_t key;
        int64_t longest_ns;
    } place[PLACES];
    uint32_t next;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t key_of(const char *place)
{
    return shoali_hash64(place, strlen(place)) | 1;
}

static int64_t usual_ns(const char *place)
{
    int64_t longest_ns = 0;
    const uint64_t key = place ? key_of(place) : 0;
    pthread_mutex_lock(&known.lock);
    for (int32_t i = 0; i < PLACES && place; i++)
        if (known.place[i].key == key)
            longest_ns = known.place[i].longest_ns;
    pthread_mutex_unlock(&known.lock);
    return longest_ns;
}

void shoali_waiting_end(const struct shoali_waiting *waiting, const char *place)
{
    if (!waiting->warned || !place)
        return;
    const uint64_t key = key_of(place);
    const int64_t waited_ns = shoali_now_ns() - waiting->since_ns;
    int32_t at = 0;
    pthread_mutex_lock(&known.lock);
    while (at < PLACES && known.place[at].key != key)
        at++;
    if (at == PLACES) {
        at = (int32_t)(known.next++ % PLACES);
        known.place[at].key = key;
        known.place[at].longest_ns = 0;
    }
    if (waited_ns > known.place[at].longest_ns)
        known.place[at].longest_ns = waited_ns;
    pthread_mutex_unlock(&known.lock);
}

/* ---- lines ---------------------------------------------------------------------------------- */

bool shoali_waiting_due(struct shoali_waiting *waiting, const char *place)
{
    const int64_t now_ns = shoali_now_ns();
    if (waiting->since_ns == 0)
        waiting->since_ns = now_ns;
    const int64_t waited_ns = now_ns - waiting->since_ns;
    if (waited_ns < (waiting->due_ns ? waiting->due_ns : FIRST_NS))
        return false;
    if (!waiting->warned && waited_ns < 2 * usual_ns(place)) {
        waiting->due_ns = 2 * usual_ns(place);
        return false;
    }
    waiting->warned = true;
    waiting->due_ns =
        waited_ns < SECOND_LINE_NS ? SECOND_LINE_NS : (waited_ns / MINUTE_NS + 1) * MINUTE_NS;
    return true;
}

double shoali_waiting_seconds(const struct shoali_waiting *waiting)
{
    return (double)(shoali_now_ns() - waiting->since_ns) * 1e-9;
}

void shoali_waiting_sleep(pthread_cond_t *changed, pthread_mutex_t *mutex)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    (void)pthread_cond_timedwait(changed, mutex, &until);
}

/* ---- calls that do not come back ------------------------------------------------------------ */
struct shoali_waiting_aloud {
    shoal_log_level level;
    char subsystem[16], what[WHAT_BYTES];
    int rank;
    bool over; /* under the lock, as is the signal of `changed` */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
};

static void *speak(void *arg)
{
    struct shoali_waiting_aloud *aloud = arg;
    struct shoali_waiting waiting = {0};
    shoali_context_get()->rank = aloud->rank;
    pthread_mutex_lock(&aloud->lock);
    while (!aloud->over) {
        if (shoali_waiting_due(&waiting, NULL))
            shoali_log(aloud->level, aloud->subsystem, "%s: %.0f s so far", aloud->what,
                       shoali_waiting_seconds(&waiting));
        shoali_waiting_sleep(&aloud->changed, &aloud->lock);
    }
    pthread_mutex_unlock(&aloud->lock);
    return NULL;
}

static void release(struct shoali_waiting_aloud *aloud)
{
    pthread_cond_destroy(&aloud->changed);
    pthread_mutex_destroy(&aloud->lock);
    shoali_free(aloud);
}

struct shoali_waiting_aloud *shoali_waiting_aloud_begin(shoal_log_level level,
                                                        const char *subsystem, const char *what)
{
    if (!shoali_log_enabled(level, subsystem))
        return NULL;
    struct shoali_waiting_aloud *aloud = shoali_calloc(1, sizeof *aloud, "a line about a wait");
    if (!aloud) {
        shoali_error_clear();
        return NULL;
    }
    snprintf(aloud->subsystem, sizeof aloud->subsystem, "%s", subsystem);
    snprintf(aloud->what, sizeof aloud->what, "%s", what);
    aloud->level = level;
    aloud->rank = shoali_context_get()->rank;
    pthread_mutex_init(&aloud->lock, NULL);
    pthread_cond_init(&aloud->changed, NULL);
    if (shoali_thread_start(&aloud->thread, speak, aloud) == 0)
        return aloud;
    release(aloud);
    return NULL;
}

struct shoali_waiting_aloud *shoali_waiting_files_begin(const char *what, const char *path)
{
    char text[WHAT_BYTES];
    snprintf(text, sizeof text, "%s %s", what, path);
    return shoali_waiting_aloud_begin(SHOAL_LOG_INFO, "files", text);
}

struct shoali_waiting_aloud *shoali_waiting_pipe_begin(const char *path)
{
    struct stat info;
    char what[WHAT_BYTES];
    const bool standard = strcmp(path, "-") == 0;
    if ((standard ? fstat(STDIN_FILENO, &info) : stat(path, &info)) != 0 || S_ISREG(info.st_mode) ||
        S_ISDIR(info.st_mode) || (standard && isatty(STDIN_FILENO)))
        return NULL;
    snprintf(what, sizeof what, "waiting for another process to write %s, which is no plain file",
             standard ? "standard input" : path);
    return shoali_waiting_aloud_begin(SHOAL_LOG_WARNING, "base", what);
}

void shoali_waiting_aloud_end(struct shoali_waiting_aloud *aloud)
{
    if (!aloud)
        return;
    pthread_mutex_lock(&aloud->lock);
    aloud->over = true;
    pthread_cond_signal(&aloud->changed);
    pthread_mutex_unlock(&aloud->lock);
    pthread_join(aloud->thread, NULL);
    release(aloud);
}
