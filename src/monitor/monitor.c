/* CSV and JSON-lines sinks, and the configuration sections of all monitors. */
#include "monitor/monitor.h"
#include "monitor/append.h"
#include "monitor/tensorboard.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define DEFAULT_JOB_NAME "DeepSpeedJobName"

/* ---- configuration ---- */

#define AT(member) offsetof(struct shoali_file_monitor_config, member)
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_file_monitor_config, key, type, member, __VA_ARGS__)
#define ROW_OUTPUT_PATH                                                                   \
    {                                                                                     \
        .key = "output_path", .type = SHOALI_STRING, .offset = AT(output_path),           \
        .default_text = "", .help = "Folder for the files; created if it does not exist." \
    }
#define ROW_JOB_NAME                                                                          \
    {                                                                                         \
        .key = "job_name", .type = SHOALI_STRING, .offset = AT(job_name),                     \
        .default_text = DEFAULT_JOB_NAME, .help = "Name of the run, part of the files' path." \
    }

static const struct shoali_option file_rows[] = {
    OPTION("enabled", BOOL, enabled, .help = "Write it."),
    ROW_OUTPUT_PATH,
    ROW_JOB_NAME,
};
#define FILE_SECTION(section, text, table)                                                  \
    {                                                                                       \
        .name = section, .help = text, .rows = table,                                       \
        .row_count = sizeof(table) / sizeof((table)[0]),                                    \
        .struct_bytes = sizeof(struct shoali_file_monitor_config), .given_offset = SIZE_MAX \
    }
const struct shoali_section shoali_csv_monitor_section =
    FILE_SECTION("csv_monitor", "One CSV file per value.", file_rows);
const struct shoali_section shoali_jsonl_monitor_section =
    FILE_SECTION("jsonl_monitor", "One file with a JSON object per step.", file_rows);
const struct shoali_section shoali_tensorboard_section = FILE_SECTION(
    "tensorboard", "One file of TensorBoard's events for each start of a run.", file_rows);
#undef AT
#undef OPTION

#define TEXT_ROW(structure, name, text, sentence)                                        \
    {                                                                                    \
        .key = #name, .type = SHOALI_STRING, .offset = offsetof(struct structure, name), \
        .default_text = text, .help = sentence                                           \
    }
static const struct shoali_option wandb_rows[] = {
    {.key = "enabled",
     .type = SHOALI_BOOL,
     .offset = offsetof(struct shoali_wandb_config, enabled),
     .state = SHOALI_IDLE,
     .help = "Nothing is sent to Weights & Biases; use tensorboard, csv_monitor or jsonl_monitor."},
    TEXT_ROW(shoali_wandb_config, group, NULL, "Group of the run."),
    TEXT_ROW(shoali_wandb_config, team, NULL, "Team of the run."),
    TEXT_ROW(shoali_wandb_config, project, "deepspeed", "Project of the run."),
};
const struct shoali_section shoali_wandb_section = {
    .name = "wandb",
    .help = "Weights & Biases.",
    .rows = wandb_rows,
    .row_count = sizeof(wandb_rows) / sizeof(wandb_rows[0]),
    .struct_bytes = sizeof(struct shoali_wandb_config),
    .given_offset = SIZE_MAX,
};

static const struct shoali_option comet_rows[] = {
    {.key = "enabled",
     .type = SHOALI_BOOL,
     .offset = offsetof(struct shoali_comet_config, enabled),
     .state = SHOALI_IDLE,
     .help = "Nothing is sent to Comet; use tensorboard, csv_monitor or jsonl_monitor."},
    {.key = "samples_log_interval",
     .type = SHOALI_INT,
     .offset = offsetof(struct shoali_comet_config, samples_log_interval),
     .default_number = 100,
     .min = 1,
     .max = 1e15,
     .unit = "samples",
     .help = "Samples between two points of a value."},
    {.key = "online",
     .type = SHOALI_BOOL,
     .offset = offsetof(struct shoali_comet_config, online),
     .help = "Send while the run goes on."},
    TEXT_ROW(shoali_comet_config, project, NULL, "Project of the run."),
    TEXT_ROW(shoali_comet_config, workspace, NULL, "Workspace of the run."),
    TEXT_ROW(shoali_comet_config, api_key, NULL, "Key of the account."),
    TEXT_ROW(shoali_comet_config, experiment_name, NULL, "Name of the run."),
    TEXT_ROW(shoali_comet_config, experiment_key, NULL, "Key of the run."),
    TEXT_ROW(shoali_comet_config, mode, NULL, "How a run with this key is continued."),
};
const struct shoali_section shoali_comet_section = {
    .name = "comet",
    .help = "Comet.",
    .rows = comet_rows,
    .row_count = sizeof(comet_rows) / sizeof(comet_rows[0]),
    .struct_bytes = sizeof(struct shoali_comet_config),
    .given_offset = SIZE_MAX,
};

/* ---- sinks ---- */

struct shoal_monitor {
    char *csv_folder;                 /* arena; NULL: disabled */
    char *jsonl_path;                 /* arena; NULL: disabled */
    struct shoali_event_file *events; /* of TensorBoard; NULL: disabled */
    bool goes_on, said;
    struct shoali_arena arena;
};

/* PATH/JOB; without one of them the other. */
static char *job_path(struct shoali_arena *arena, const char *path, const char *job,
                      const char *suffix)
{
    if (!*job)
        return shoali_arena_printf(arena, "%s%s", path && *path ? path : ".", suffix);
    if (!path || !*path)
        return shoali_arena_printf(arena, "%s%s", job, suffix);
    const char *slash = path[strlen(path) - 1] == '/' ? "" : "/";
    return shoali_arena_printf(arena, "%s%s%s%s", path, slash, job, suffix);
}

static const char *job_name(const char *name)
{
    return name ? name : DEFAULT_JOB_NAME;
}

/* A folder that cannot be made is a mistake of the configuration. */
static shoal_status make_folder(const char *section, const char *folder)
{
    return shoali_make_dirs(folder) < 0
               ? shoali_error_prefix(SHOAL_EINVAL, "%s.output_path", section)
               : SHOAL_OK;
}

/* Makes the folder that holds `path`. */
static shoal_status make_parent(struct shoali_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return SHOAL_OK;
    char *folder = shoali_arena_printf(arena, "%.*s", (int)(slash - path), path);
    return folder ? make_folder("jsonl_monitor", folder) : SHOAL_ENOMEM;
}

static shoal_status open_monitor(const shoal_monitor_args *args, shoal_monitor **monitor)
{
    shoal_status status = SHOAL_OK;
    shoal_monitor *made = shoali_calloc(1, sizeof(*made), "a monitor");
    if (!made)
        return SHOAL_ENOMEM;
    shoali_arena_init(&made->arena);
    made->goes_on = args->goes_on;
    if (args->csv_enabled) {
        made->csv_folder =
            job_path(&made->arena, args->csv_output_path, job_name(args->csv_job_name), "");
        if (!made->csv_folder) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        SHOAL_TRY(status, make_folder("csv_monitor", made->csv_folder), done);
    }
    if (args->jsonl_enabled) {
        made->jsonl_path = job_path(&made->arena, args->jsonl_output_path,
                                    job_name(args->jsonl_job_name), ".jsonl");
        if (!made->jsonl_path) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        SHOAL_TRY(status, make_parent(&made->arena, made->jsonl_path), done);
    }
    if (args->tensorboard_enabled) {
        const char *folder = job_path(&made->arena, args->tensorboard_output_path,
                                      job_name(args->tensorboard_job_name), "");
        if (!folder) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        SHOAL_TRY(status, make_folder("tensorboard", folder), done);
        SHOAL_TRY(status, shoali_event_file_create(folder, &made->events), done);
    }
    *monitor = made;
    made = NULL;
done:
    shoal_monitor_destroy(made);
    return status;
}

shoal_status shoal_monitor_create(const shoal_monitor_args *args, shoal_monitor **monitor)
{
    shoal_status status;
    shoal_monitor_args own = {0};
    *monitor = NULL;
    if (args)
        own = *args;
    SHOAL_TRY(status, open_monitor(&own, monitor), done);
done:
    return status;
}

void shoal_monitor_destroy(shoal_monitor *monitor)
{
    if (!monitor)
        return;
    shoali_event_file_destroy(monitor->events);
    shoali_arena_fini(&monitor->arena);
    shoali_free(monitor);
}

bool shoal_monitor_enabled(const shoal_monitor *monitor)
{
    return monitor && (monitor->csv_folder || monitor->jsonl_path || monitor->events);
}

/* Appends lines to a file, below the header where the file is empty. header NULL: none. */
static shoal_status append_lines(const char *path, const struct shoali_str *header,
                                 const struct shoali_str *text)
{
    if (text->failed || (header && header->failed))
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of %s", path);
    const struct shoali_append batch = {
        .path = path, .whole_bytes = SHOALI_APPEND_LINES, .head = header, .text = text};
    if (!shoali_append(&batch))
        return SHOAL_FAIL(SHOAL_EIO, "cannot write the monitor file %s: %s", path, strerror(errno));
    return SHOAL_OK;
}

static shoal_status write_csv(shoal_monitor *monitor, int64_t samples, const shoal_event *event)
{
    shoal_status status;
    struct shoali_str path = {0}, header = {0}, line = {0};
    const char *slash = strrchr(event->name, '/');
    shoali_str_append(&path, "%s/%s.csv", monitor->csv_folder, event->name);
    if (path.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the path of the event %s", event->name);
        goto done;
    }
    for (char *c = path.text + strlen(monitor->csv_folder) + 1; *c; c++)
        if (*c == '/' || *c == ' ')
            *c = '_';
    shoali_str_append(&header, "step,%s\n", slash ? slash + 1 : event->name);
    shoali_str_append(&line, "%lld,", (long long)samples);
    shoali_append_number(&line, event->value);
    shoali_str_append_bytes(&line, "\n", 1);
    SHOAL_TRY(status, append_lines(path.text, &header, &line), done);
done:
    shoali_str_fini(&path);
    shoali_str_fini(&header);
    shoali_str_fini(&line);
    return status;
}

void shoali_append_json_string(struct shoali_str *out, const char *text)
{
    shoali_str_append_bytes(out, "\"", 1);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            shoali_str_append(out, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            shoali_str_append(out, "\\u%04x", (unsigned)*c);
        else
            shoali_str_append_bytes(out, c, 1);
    }
    shoali_str_append_bytes(out, "\"", 1);
}

static shoal_status write_jsonl(shoal_monitor *monitor, int64_t step, int64_t samples,
                                const shoal_event *events, int32_t count)
{
    shoal_status status;
    struct shoali_str line = {0};
    shoali_str_append(&line, "{\"step\":%lld,\"samples\":%lld", (long long)step,
                      (long long)samples);
    for (int32_t i = 0; i < count; i++) {
        shoali_str_append_bytes(&line, ",", 1);
        shoali_append_json_string(&line, events[i].name);
        shoali_str_append_bytes(&line, ":", 1);
        if (isfinite(events[i].value))
            shoali_append_number(&line, events[i].value);
        else
            shoali_str_append(&line, "null");
    }
    shoali_str_append(&line, "}\n");
    SHOAL_TRY(status, append_lines(monitor->jsonl_path, NULL, &line), done);
done:
    shoali_str_fini(&line);
    return status;
}

/* What a write to one sink comes to: with goes_on, SHOAL_EIO costs one line, and is forgotten. */
static shoal_status finish(shoal_monitor *monitor, shoal_status status)
{
    if (status != SHOAL_EIO || !monitor->goes_on)
        return status;
    if (!monitor->said)
        SHOALI_WARN("monitor", "%s; training goes on without these numbers", shoal_error_message());
    monitor->said = true;
    shoali_error_clear();
    return SHOAL_OK;
}

shoal_status shoal_monitor_write(shoal_monitor *monitor, int64_t step, int64_t samples,
                                 const shoal_event *events, int32_t count)
{
    shoal_status status = SHOAL_OK;
    if (!monitor || count < 1)
        return SHOAL_OK;
    for (int32_t i = 0; monitor->csv_folder && i < count; i++)
        SHOAL_TRY(status, finish(monitor, write_csv(monitor, samples, &events[i])), done);
    if (monitor->jsonl_path)
        SHOAL_TRY(status, finish(monitor, write_jsonl(monitor, step, samples, events, count)),
                  done);
    if (monitor->events)
        SHOAL_TRY(status,
                  finish(monitor, shoali_event_file_write(monitor->events, samples, events, count)),
                  done);
done:
    return status;
}

shoal_status shoal_monitor_write_text(shoal_monitor *monitor, int64_t samples, const char *name,
                                      const char *text)
{
    if (!monitor || !monitor->events)
        return SHOAL_OK;
    return finish(monitor, shoali_event_file_write_text(monitor->events, samples, name, text));
}
