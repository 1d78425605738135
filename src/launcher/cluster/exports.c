/* Which variables go to the other hosts: DeepSpeed's prefixes and our own; then DeepSpeed's file of
 * further ones (DS_ENV_FILE, .deepspeed_env) and ours (.shoal_env), each in the home folder, then
 * in the current one. */
#include "launcher/cluster/cluster.h"

#include "base/plain.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

static const char *const prefixes[] = {"MLFLOW",       "PYTHON", "MV2",    "UCX",
                                       "NCCL",         "SHOAL_", "OMP_",   "DS_",
                                       "DEEPSPEED",    "FI_",    "NEBULA", "FC_TASKROLE_NAME",
                                       "FC_TASK_INDEX"};
/* Of this launcher, or of a job around it: every job has its own. */
static const char *const never[] = {"SHOAL_SECRET", "SHOAL_SECRET_FILE", "SHOAL_JOB_ID",
                                    "SHOAL_LAUNCHER"};

static bool is_name(const char *entry, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(entry, name, length) == 0;
}

/* On the machines of one Azure service they name devices of this host alone. */
static const char *const not_in_azure[] = {"NCCL_IB_HCA", "UCX_NET_DEVICES"};

static bool is_exported(const char *entry)
{
    const size_t length = strcspn(entry, "=");
    bool wanted = false;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]) && !wanted; i++)
        wanted = strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0;
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]) && wanted; i++)
        wanted = !is_name(entry, length, never[i]);
    for (int i = 0; i < 2 && wanted && getenv("AISC_JOB_NAME"); i++)
        wanted = !is_name(entry, length, not_in_azure[i]);
    return wanted;
}

/* The last of a name wins. */
static void set(struct shoali_text_list *exports, const char *entry)
{
    const size_t length = strcspn(entry, "=");
    for (int32_t i = 0; i < exports->count; i++) {
        if (strncmp(exports->value[i], entry, length) != 0 || exports->value[i][length] != '=')
            continue;
        exports->value[i] = shoali_arena_strdup(exports->arena, entry);
        exports->failed = exports->failed || !exports->value[i];
        return;
    }
    shoali_text_list_add(exports, "%s", entry);
}

static char *strip(char *text)
{
    text += strspn(text, " \t\r");
    size_t length = strlen(text);
    while (length > 0 && shoali_ascii_space(text[length - 1]))
        text[--length] = '\0';
    return text;
}

static bool is_variable(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    static const char all[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    return *name && strchr(letters, *name) && strspn(name, all) == strlen(name);
}

static shoal_status read_line(const char *path, int line, char *text,
                              struct shoali_text_list *exports)
{
    char *name = strip(text), *equals = strchr(name, '=');
    if (!*name || *name == '#')
        return SHOAL_OK;
    if (!equals)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s:%d: \"%.40s\" sets no variable: write lines such as NAME=value", path,
                          line, name);
    *equals = '\0';
    name = strip(name);
    if (!is_variable(name))
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%s:%d: \"%.40s\" is not the name of a variable: write lines such as NAME=value", path,
            line, name);
    const char *entry = shoali_arena_printf(exports->arena, "%s=%s", name, strip(equals + 1));
    if (!entry)
        return SHOAL_ENOMEM;
    set(exports, entry);
    return SHOAL_OK;
}

static shoal_status read_file(const char *folder, const char *name,
                              struct shoali_text_list *exports)
{
    shoal_status status;
    char *data = NULL;
    size_t bytes = 0;
    const char *path =
        shoali_arena_printf(exports->arena, "%s%s%s", folder, *folder ? "/" : "", name);
    if (!path)
        return SHOAL_ENOMEM;
    status = shoali_read_text(path, &data, &bytes);
    if (status == SHOAL_ENOENT)
        return SHOAL_OK;
    if (status < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "variables for the other hosts: %s", shoal_error_message());
    char *at = data + shoali_bom_bytes(data, bytes);
    for (int line = 1; status == SHOAL_OK && at < data + bytes; line++) {
        const size_t length = strcspn(at, "\n");
        at[length] = '\0';
        status = read_line(path, line, at, exports);
        at += length + 1;
    }
    free(data);
    return status;
}

static void set_python_path(const char *program, const char *folder,
                            struct shoali_text_list *exports)
{
    const char *name = program && strrchr(program, '/') ? strrchr(program, '/') + 1 : program;
    const char *path = getenv("PYTHONPATH");
    if (!name || strncmp(name, "python", 6) != 0)
        return;
    const char *entry = shoali_arena_printf(exports->arena, "PYTHONPATH=%s%s%s", folder,
                                            path && *path ? ":" : "", path ? path : "");
    if (entry)
        set(exports, entry);
    exports->failed = exports->failed || !entry;
}

shoal_status shoali_exports_collect(const char *program, const char *folder,
                                    struct shoali_text_list *exports)
{
    shoal_status status = SHOAL_OK;
    const char *home = getenv("HOME"), *given = getenv("DS_ENV_FILE");
    const char *const names[] = {given && *given ? given : ".deepspeed_env", ".shoal_env"};
    for (char **at = environ; *at; at++)
        if (is_exported(*at))
            set(exports, *at);
    set_python_path(program, folder, exports);
    for (int i = 0; i < 2; i++) {
        if (home && *home && names[i][0] != '/')
            SHOAL_TRY(status, read_file(home, names[i], exports), done);
        SHOAL_TRY(status, read_file("", names[i], exports), done);
    }
    if (exports->failed)
        status = SHOAL_ENOMEM;
done:
    return status;
}
