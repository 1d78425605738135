/* What a rank's process gets: program path, arguments, environment. Made before the fork. */
#include "launcher/launcher.h"

#include "base/pool.h"
#include "comm/launcher_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { OWN_VARIABLES_MAX = 16 };

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
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
                          "so for a script write its interpreter first (python3 %s)",
                          path, path);
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
                          "./%s, or its interpreter first (python3 %s)",
                          name, name, name);
    return SHOAL_FAIL(SHOAL_EINVAL, "program \"%s\" is not in PATH and there is no such file",
                      name);
}

shoal_status shoali_rank_arguments(struct shoali_job *job, int32_t rank, char ***argv)
{
    const char *const *program = job->args->program;
    size_t count = 0;
    while (program[count])
        count++;
    char **list = shoali_arena_alloc(&job->arena, (count + 2) * sizeof(char *));
    if (!list)
        return SHOAL_ENOMEM;
    /* exec takes char *const[] but does not write to the strings. */
    memcpy(list, program, count * sizeof(char *));
    if (!job->args->no_local_rank) {
        list[count] = shoali_arena_printf(&job->arena, "--local_rank=%d", rank);
        if (!list[count])
            return SHOAL_ENOMEM;
    }
    *argv = list;
    return SHOAL_OK;
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

/* The devices that include/exclude leave: "1,3". */
static void set_devices(struct own_variables *own, const struct shoali_ints *slots)
{
    const char *list = "";
    for (int32_t i = 0; i < slots->count && list; i++)
        list = shoali_arena_printf(own->arena, "%s%s%lld", list, i ? "," : "",
                                   (long long)slots->value[i]);
    own->failed = own->failed || !list;
    if (list && slots->count)
        set_text(own, "CUDA_VISIBLE_DEVICES", list);
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
    if (job->ranks > 1 && !getenv("OMP_NUM_THREADS") && !getenv("SHOAL_NUM_THREADS")) {
        int32_t share = shoali_core_count() / job->ranks;
        set_number(own, "SHOAL_NUM_THREADS", share > 0 ? share : 1);
    }
}

static bool is_own(const struct own_variables *own, const char *entry)
{
    for (int32_t i = 0; i < own->count; i++) {
        size_t length = strcspn(own->text[i], "=") + 1;
        if (strncmp(own->text[i], entry, length) == 0)
            return true;
    }
    return false;
}

shoal_status shoali_rank_environment(struct shoali_job *job, int32_t rank, char ***envp)
{
    struct own_variables own = {.arena = &job->arena};
    const char *address = job->args->master_addr;
    if (!job->secret[0] && shoali_secret_draw(job->secret) != SHOAL_OK)
        return SHOAL_EIO;
    set_text(&own, "SHOAL_JOB_ID", job->id);
    set_text(&own, "SHOAL_SECRET", job->secret); /* a new one: not that of a job around this one */
    /* Empty where /proc does not tell: nothing is watched, and an outer launcher is not meant. */
    char launcher[96] = "";
    (void)shoali_launcher_name(launcher, sizeof(launcher));
    set_text(&own, SHOALI_LAUNCHER_VARIABLE, launcher);
    set_number(&own, "RANK", rank);
    set_number(&own, "LOCAL_RANK", rank);
    set_number(&own, "WORLD_SIZE", job->ranks);
    set_number(&own, "LOCAL_SIZE", job->ranks);
    set_number(&own, "CROSS_RANK", 0);
    set_number(&own, "CROSS_SIZE", 1);
    set_text(&own, "MASTER_ADDR", address ? address : "127.0.0.1");
    set_number(&own, "MASTER_PORT", job->master_port);
    if (!getenv("SHOAL_COMM"))
        set_text(&own, "SHOAL_COMM", "shm");
    set_threads(&own, job, rank);
    set_devices(&own, &job->slots);

    size_t inherited = 0;
    while (environ[inherited])
        inherited++;
    char **list =
        shoali_arena_alloc(&job->arena, (inherited + (size_t)own.count + 1) * sizeof(char *));
    if (!list || own.failed)
        return SHOAL_ENOMEM;
    size_t count = (size_t)own.count;
    memcpy(list, own.text, count * sizeof(char *));
    for (size_t i = 0; i < inherited; i++)
        if (!is_own(&own, environ[i]))
            list[count++] = environ[i];
    *envp = list;
    return SHOAL_OK;
}
