/* What a rank's process gets: program path and environment (arguments.c: arguments). Made before
 * the fork. */
#include "launcher/run/run.h"

#include "base/pool.h"
#include "comm/launcher_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { OWN_VARIABLES_MAX = 28 };
static const char pod_file[] = "/dlts-runtime/env/pod.env";

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static const char *interpreter_of(const char *path)
{
    const size_t length = strlen(path);
    return length > 3 && strcmp(path + length - 3, ".py") == 0 ? "python3" : "bash";
}

static shoal_status check_program(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot start %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot start %s: it is not a file", path);
    if (access(path, X_OK) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "cannot start %s: it is not executable; programs are started directly, "
                          "so for a script write its interpreter first (%s %s)",
                          path, interpreter_of(path), path);
    return SHOAL_OK;
}

shoal_status shoali_program_find(const char *name, struct shoali_arena *arena, const char **path)
{
    *path = name;
    if (strchr(name, '/'))
        return check_program(name);
    const char *folders = getenv("PATH");
    if (!folders)
        folders = "/usr/local/bin:/usr/bin:/bin";
    for (const char *at = folders; *name;) {
        size_t length = strcspn(at, ":");
        *path = length ? shoali_arena_printf(arena, "%.*s/%s", (int)length, at, name)
                       : shoali_arena_printf(arena, "./%s", name);
        if (!*path)
            return SHOAL_ENOMEM;
        if (is_file(*path) && access(*path, X_OK) == 0)
            return SHOAL_OK;
        if (!at[length])
            break;
        at += length + 1;
    }
    if (is_file(name))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "program \"%s\" is not in PATH: to start the one in this folder write "
                          "./%s, or its interpreter first (%s %s)",
                          name, name, interpreter_of(name), name);
    return SHOAL_FAIL(SHOAL_EINVAL, "program \"%s\" is not in PATH and there is no such file",
                      name);
}

/* The variables that the launcher sets itself. */
struct own_variables {
    struct shoali_arena *arena;
    char *text[OWN_VARIABLES_MAX];
    int32_t count;
    bool failed;
};

static void set_text(struct own_variables *own, const char *name, const char *value)
{
    SHOAL_ASSERT(own->count < OWN_VARIABLES_MAX);
    char *text = shoali_arena_printf(own->arena, "%s=%s", name, value);
    own->failed = own->failed || !text;
    own->text[own->count++] = text;
}

static void set_number(struct own_variables *own, const char *name, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof(digits), "%lld", (long long)value);
    set_text(own, name, digits);
}

/* An empty variable hides all devices: a wish that slots do not undo. */
shoal_status shoali_rank_devices(struct shoali_job *job, const char **list)
{
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    const struct shoali_ints *slots = &job->slots;
    *list = NULL;
    if (slots->count == 0 || (given && !*given))
        return SHOAL_OK;
    *list = "";
    for (int32_t i = 0; i < slots->count && *list; i++)
        *list = shoali_arena_printf(&job->arena, "%s%s%lld", *list, i ? "," : "",
                                    (long long)slots->value[i]);
    return *list ? SHOAL_OK : SHOAL_ENOMEM;
}

static void set_devices(struct own_variables *own, struct shoali_job *job)
{
    const char *list;
    own->failed = own->failed || shoali_rank_devices(job, &list) < 0;
    if (!own->failed && list)
        set_text(own, "CUDA_VISIBLE_DEVICES", list);
}

/* A DLTS pod's role and number, which DeepSpeed's launcher hands to its ranks. */
static void set_pod(struct own_variables *own)
{
    char **list = shoali_pod_variables(pod_file, own->arena);
    own->failed = own->failed || !list;
    for (int32_t i = 0; list && list[i]; i++)
        own->text[own->count++] = list[i];
}

/* Whether the rank will have a variable of this name without the launcher's doing. */
static bool is_given(const struct shoali_job *job, const char *name)
{
    bool given = getenv(name) != NULL;
    const size_t length = strlen(name);
    for (int32_t i = 0; job->variables && job->variables[i] && !given; i++)
        given = strncmp(job->variables[i], name, length) == 0 && job->variables[i][length] == '=';
    return given;
}

static void set_threads(struct own_variables *own, const struct shoali_job *job, int32_t rank)
{
    if (job->cores.count) {
        int32_t first, count;
        shoali_cores_of_rank(job->cores.count, rank, job->ranks, &first, &count);
        set_number(own, "OMP_NUM_THREADS", count);
        return;
    }
    /* Without a word from the user the ranks share the cores: each taking all of them is slow. */
    if (job->ranks > 1 && !is_given(job, "OMP_NUM_THREADS") &&
        !is_given(job, "SHOAL_NUM_THREADS")) {
        int32_t share = shoali_core_count() / job->ranks;
        set_number(own, "SHOAL_NUM_THREADS", share > 0 ? share : 1);
    }
}

static bool is_set(char *const *list, size_t count, const char *entry)
{
    const size_t length = strcspn(entry, "=") + 1;
    for (size_t i = 0; i < count; i++)
        if (strncmp(list[i], entry, length) == 0)
            return true;
    return false;
}

static size_t count_texts(char *const *list)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

/* The own ones, then those that were sent, then the inherited ones; the first of a name wins. */
static char **merge(const struct own_variables *own, const struct shoali_job *job)
{
    char *const *const lists[] = {own->text, job->variables, environ};
    const size_t counts[] = {(size_t)own->count, count_texts(job->variables), count_texts(environ)};
    char **list =
        shoali_arena_alloc(own->arena, (counts[0] + counts[1] + counts[2] + 1) * sizeof(char *));
    size_t count = 0;
    for (int source = 0; source < 3 && list; source++) {
        const size_t before = count;
        for (size_t i = 0; i < counts[source]; i++)
            if (!is_set(list, before, lists[source][i]))
                list[count++] = lists[source][i];
    }
    return list;
}

/* What torch's elastic agent gives, for jobs that have an agent. */
static void set_elastic(struct own_variables *own, const struct shoali_job *job, int32_t rank)
{
    if (!is_given(job, "TORCHELASTIC_RUN_ID"))
        return;
    set_number(own, "GROUP_RANK", job->node_rank);
    set_number(own, "GROUP_WORLD_SIZE", job->nodes);
    set_number(own, "LOCAL_WORLD_SIZE", job->ranks);
    set_text(own, "ROLE_NAME", "default");
    set_number(own, "ROLE_RANK", job->first_rank + rank);
    set_number(own, "ROLE_WORLD_SIZE", job->world_ranks);
}

shoal_status shoali_rank_environment(struct shoali_job *job, int32_t rank, char ***envp)
{
    struct own_variables own = {.arena = &job->arena};
    const char *address = job->args->master_addr;
    if (!job->inherits_secret && !job->secret[0] && shoali_secret_draw(job->secret) != SHOAL_OK)
        return SHOAL_EIO;
    set_text(&own, "SHOAL_JOB_ID", job->id);
    if (!job->inherits_secret) /* a new one: not that of a job around this one */
        set_text(&own, "SHOAL_SECRET", job->secret);
    /* Empty where /proc does not tell: nothing is watched, and an outer launcher is not meant. */
    char launcher[96] = "";
    (void)shoali_launcher_name(launcher, sizeof(launcher));
    set_text(&own, SHOALI_LAUNCHER_VARIABLE, launcher);
    set_number(&own, "RANK", job->first_rank + rank);
    set_number(&own, "LOCAL_RANK", rank);
    set_number(&own, "WORLD_SIZE", job->world_ranks);
    set_number(&own, "LOCAL_SIZE", job->ranks);
    set_number(&own, "CROSS_RANK", job->node_rank);
    set_number(&own, "CROSS_SIZE", job->nodes);
    set_text(&own, "MASTER_ADDR", address ? address : "127.0.0.1");
    set_number(&own, "MASTER_PORT", job->master_port);
    if (is_given(job, "TORCHELASTIC_USE_AGENT_STORE")) /* of a torchrun around this launcher */
        set_text(&own, "TORCHELASTIC_USE_AGENT_STORE", "False");
    /* Among hosts the ranks see for themselves whether MPI has started them. */
    if (job->nodes == 1 && !is_given(job, "SHOAL_COMM"))
        set_text(&own, "SHOAL_COMM", "shm");
    set_threads(&own, job, rank);
    set_elastic(&own, job, rank);
    set_devices(&own, job);
    set_pod(&own);
    *envp = own.failed ? NULL : merge(&own, job);
    return *envp ? SHOAL_OK : SHOAL_ENOMEM;
}
