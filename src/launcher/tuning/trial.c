/* One trial: the user's command with another configuration, as a process of its own. */
#include "launcher/tuning/tuning.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/plain.h"
#include "base/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS INT64_C(200000000)
/* A program that was measured and goes on is asked to end, then killed. */
#define END_NS INT64_C(20000000000)
#define KILL_NS INT64_C(10000000000)

/* ---- a process ------------------------------------------------------------------------------- */
static int open_log(const char *folder, const char *name)
{
    char path[4600];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

/* Waits until it ends, and passes on a signal that ends the search. `metrics`: a file after which
 * it has nothing left to do; NULL: none. */
static int await(struct shoali_tuning *tuning, pid_t pid, const char *metrics)
{
    sigset_t signals;
    const struct timespec time = {.tv_nsec = LOOK_NS};
    int64_t end_ns = 0;
    int how = 0;
    bool asked = false;
    struct shoali_waiting waiting = {0};
    shoali_job_signals(&signals);
    while (waitpid(pid, &how, WNOHANG) == 0) {
        const int signal = sigtimedwait(&signals, NULL, &time);
        if (signal > 0 && signal != SIGCHLD && signal != SIGUSR1) {
            tuning->asked = tuning->asked ? tuning->asked : signal;
            kill(pid, signal);
        }
        if (shoali_waiting_due(&waiting, NULL))
            SHOALI_INFO("launcher", "autotuning: the experiment has run for %.0f s",
                        shoali_waiting_seconds(&waiting));
        if (end_ns == 0 && metrics && access(metrics, F_OK) == 0)
            end_ns = shoali_deadline_ns(END_NS);
        if (end_ns == 0 || !shoali_deadline_passed(end_ns))
            continue;
        kill(pid, asked ? SIGKILL : SIGTERM);
        asked = true;
        end_ns = shoali_deadline_ns(KILL_NS);
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

static shoal_status run(struct shoali_tuning *tuning, const struct shoali_text_list *words,
                        const char *folder, const char *metrics, int *code)
{
    shoal_status status;
    struct shoali_text_list assignments = {.arena = words->arena};
    sigset_t signals, old_mask;
    pid_t pid;
    const int output = open_log(folder, "stdout.log"), errors = open_log(folder, "stderr.log");
    const struct shoali_start start = {.words = words,
                                       .assignments = &assignments,
                                       .input = -1,
                                       .output = output,
                                       .errors = errors};
    if (tuning->comm_table)
        shoali_text_list_add(&assignments, "SHOAL_COMM_TUNING=%s", tuning->comm_table);
    shoali_job_signals(&signals);
    sigprocmask(SIG_BLOCK, &signals, &old_mask);
    if (output < 0 || errors < 0) {
        status = SHOAL_FAIL(SHOAL_EIO, "autotuning: cannot write logs to %s: %s", folder,
                            strerror(errno));
        goto done;
    }
    SHOAL_TRY(status, shoali_start(&start, words->arena, &pid), done);
    *code = await(tuning, pid, metrics);
done:
    sigprocmask(SIG_SETMASK, &old_mask, NULL);
    if (output >= 0)
        close(output);
    if (errors >= 0)
        close(errors);
    return status;
}

/* ---- what it says ---------------------------------------------------------------------------- */
/* The last line that is not the launcher's, else its last. */
static void find_reason(const char *folder, char *why, size_t bytes)
{
    char path[4600], *data = NULL;
    size_t length = 0;
    bool own = false;
    snprintf(path, sizeof(path), "%s/stderr.log", folder);
    snprintf(why, bytes, "it ended before its steps were measured");
    if (shoali_read_file(path, &data, &length) < 0) {
        shoali_error_clear();
        return;
    }
    for (char *line = data; line < data + length; line += strlen(line) + 1) {
        line[strcspn(line, "\n")] = '\0';
        const bool launcher = strncmp(line, "[shoal run]", 11) == 0;
        if (!*line || (launcher && own))
            continue;
        own = own || !launcher;
        snprintf(why, bytes, "%s", line);
    }
    free(data);
}

/* The metric in the file; false: it is not there. */
static bool read_metrics(const struct shoali_tuning *tuning, const char *path,
                         struct shoali_trial *trial)
{
    /* In the order of the enumeration `metric`. */
    static const char *const names[] = {"throughput", "latency", "FLOPS_per_gpu", "forward",
                                        "step"};
    char *data = NULL;
    size_t bytes = 0;
    json_t *metrics = NULL;
    const json_t *value, *latency;
    bool found = false;
    if (shoali_read_file(path, &data, &bytes) == SHOAL_OK &&
        shoali_json_read(data, bytes, &metrics, NULL) == SHOAL_OK) {
        value = json_object_get(metrics, names[tuning->config.metric]);
        latency = json_object_get(metrics, "latency");
        found = json_is_number(value);
        trial->value = found ? json_number_value(value) : 0;
        trial->latency_ms = json_is_number(latency) ? json_number_value(latency) : 0;
    }
    shoali_error_clear();
    json_decref(metrics);
    free(data);
    return found;
}

static void say(const struct shoali_tuning *tuning, const struct shoali_trial *trial)
{
    static const char *const units[] = {"samples/s", "ms a step", "FLOP/s of a rank",
                                        "ms of forwards a step", "ms of update a step"};
    if (trial->runs)
        SHOALI_INFO("launcher", "autotuning: %s: %.6g %s", trial->name, trial->value,
                    units[tuning->config.metric]);
    else
        SHOALI_INFO("launcher", "autotuning: %s does not run: %s", trial->name, trial->why);
}

/* ---- a trial --------------------------------------------------------------------------------- */
/* "z2_gas4_tmbspg8", and the knobs as acronyms with values, those above 9000 short. */
static void name_trial(const struct shoali_tuning *tuning, struct shoali_trial *trial)
{
    char stage[16] = "z";
    if (trial->stage >= 0)
        snprintf(stage, sizeof(stage), "z%d", (int)trial->stage);
    int length = snprintf(trial->name, sizeof(trial->name), "%s_gas%lld_tmbspg%lld",
                          trial->stage >= 0 ? stage : "z", (long long)trial->accumulation,
                          (long long)trial->micro_batch);
    for (int32_t i = 0; i < tuning->knob_count && length < (int)sizeof(trial->name); i++) {
        const struct shoali_knob *knob = &tuning->knobs[i];
        char *at = trial->name + length;
        const size_t room = sizeof(trial->name) - (size_t)length;
        if (trial->knob[i] < 0)
            continue;
        const int64_t value = knob->value[trial->knob[i]];
        if (knob->is_bool)
            length += snprintf(at, room, "_%s%s", knob->acronym, value ? "T" : "F");
        else if (value > 9000)
            length += shoali_snprintf(at, room, "_%s%.1e", knob->acronym, (double)value);
        else
            length += snprintf(at, room, "_%s%lld", knob->acronym, (long long)value);
    }
}

static bool is_mapped_name(const char *flag, const char **name)
{
    *name = flag + strspn(flag, "-");
    return **name != '\0';
}

/* A value of the configuration by the path of its keys. */
static const json_t *value_at(const json_t *root, const char *path)
{
    char key[128];
    while (root && *path) {
        const size_t length = strcspn(path, ".");
        snprintf(key, sizeof(key), "%.*s", (int)length, path);
        root = json_object_get(root, key);
        path += length + (path[length] == '.');
    }
    return root;
}

static shoal_status map_arguments(const struct shoali_tuning *tuning,
                                  const struct shoali_trial *trial, struct shoali_text_list *words)
{
    const char *key, *name;
    json_t *flag, *config = shoali_tuning_config(tuning, trial, false);
    if (!config)
        return SHOAL_ENOMEM;
    json_object_foreach(tuning->config.arg_mappings, key, flag)
    {
        char *text = NULL;
        const json_t *value = value_at(config, key);
        if (!value || !json_is_string(flag) || !is_mapped_name(json_string_value(flag), &name) ||
            shoali_json_write(value, JSON_ENCODE_ANY | JSON_COMPACT, key, &text) < 0)
            continue;
        shoali_text_list_drop(words, name);
        shoali_text_list_add(words, "%s", json_string_value(flag));
        shoali_text_list_add(words, "%s", text);
        free(text);
    }
    json_decref(config);
    return words->failed ? SHOAL_ENOMEM : SHOAL_OK;
}

shoal_status shoali_tuning_command(const struct shoali_tuning *tuning,
                                   const struct shoali_trial *trial, const char *config_path,
                                   bool measured, struct shoali_text_list *words)
{
    const char *save = shoali_program_flag(tuning->args->program, "save");
    const char *load = shoali_program_flag(tuning->args->program, "load");
    /* Copies: the words may outlive the search. */
    for (int32_t i = 0; i < tuning->program.count; i++)
        shoali_text_list_add(words, "%s", shoali_text_list_at(&tuning->program, i));
    /* These say what the configuration does. */
    shoali_text_list_drop(words, "micro-batch-size");
    shoali_text_list_drop(words, "global-batch-size");
    shoali_text_list_drop(words, "deepspeed-config");
    if (measured && save) {
        shoali_text_list_drop(words, "save");
        shoali_text_list_drop(words, "save-interval");
        if (load && strcmp(load, save) == 0)
            shoali_text_list_drop(words, "load");
    }
    shoali_text_list_add(words, "--deepspeed_config");
    shoali_text_list_add(words, "%s", config_path);
    return map_arguments(tuning, trial, words);
}

static shoal_status write_files(const struct shoali_tuning *tuning,
                                const struct shoali_trial *trial, const char *folder,
                                const struct shoali_text_list *words, const json_t *config)
{
    shoal_status status;
    struct shoali_str line = {0};
    char name[128];
    json_t *experiment = json_pack("{s:s, s:i, s:i, s:O}", "name", trial->name, "exp_id",
                                   (int)(trial - tuning->trial), "num_gpus", (int)tuning->ranks,
                                   "ds_config", config);
    snprintf(name, sizeof(name), "%s.json", trial->name);
    shoali_text_list_print(words, &line);
    shoali_str_append(&line, "\n");
    SHOAL_TRY(status, shoali_tuning_write_json(folder, "ds_config.json", config), done);
    SHOAL_TRY(status, shoali_tuning_write_json(folder, "exp.json", experiment), done);
    SHOAL_TRY(status, shoali_tuning_write_json(tuning->exps_dir, name, experiment), done);
    SHOAL_TRY(status, shoali_tuning_write_text(folder, "cmd.txt", shoali_str_get(&line)), done);
done:
    json_decref(experiment);
    shoali_str_fini(&line);
    return status;
}

/* What an earlier search has measured with the same configuration. */
static bool is_known(const struct shoali_tuning *tuning, const char *folder, const json_t *config)
{
    char path[4600], *data = NULL;
    size_t bytes = 0;
    json_t *earlier = NULL;
    bool same = false;
    snprintf(path, sizeof(path), "%s/ds_config.json", folder);
    if (!tuning->config.overwrite && shoali_read_file(path, &data, &bytes) == SHOAL_OK &&
        shoali_json_read(data, bytes, &earlier, NULL) == SHOAL_OK)
        same = json_equal(earlier, config);
    shoali_error_clear();
    json_decref(earlier);
    free(data);
    return same;
}

static shoal_status start_trial(struct shoali_tuning *tuning, struct shoali_trial *trial,
                                const char *folder, const char *metrics, const json_t *config)
{
    shoal_status status;
    struct shoali_arena arena;
    struct shoali_text_list words = {.arena = &arena};
    char path[4600];
    shoali_arena_init(&arena);
    snprintf(path, sizeof(path), "%s/ds_config.json", folder);
    (void)unlink(metrics);
    shoali_text_list_add(&words, "%s", tuning->self);
    shoali_text_list_add(&words, "run");
    shoali_text_list_add_all(&words, &tuning->flags);
    struct shoali_text_list program = {.arena = &arena};
    SHOAL_TRY(status, shoali_tuning_command(tuning, trial, path, true, &program), done);
    shoali_text_list_add_all(&words, &program);
    if (words.failed) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, write_files(tuning, trial, folder, &words, config), done);
    SHOAL_TRY(status, run(tuning, &words, folder, metrics, &trial->code), done);
done:
    shoali_arena_fini(&arena);
    return status;
}

shoal_status shoali_tuning_try(struct shoali_tuning *tuning, struct shoali_trial *trial)
{
    shoal_status status = SHOAL_OK;
    char folder[4400], metrics[4600];
    name_trial(tuning, trial);
    snprintf(folder, sizeof(folder), "%s/%s", tuning->results_dir, trial->name);
    snprintf(metrics, sizeof(metrics), "%s/metrics.json", folder);
    json_t *config = shoali_tuning_config(tuning, trial, true);
    if (!config)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the configuration of %s", trial->name);
    SHOAL_TRY(status, shoali_make_dirs(folder), done);
    if (!is_known(tuning, folder, config) || !read_metrics(tuning, metrics, trial))
        SHOAL_TRY(status, start_trial(tuning, trial, folder, metrics, config), done);
    trial->over = !tuning->asked;
    trial->runs = trial->over && read_metrics(tuning, metrics, trial);
    if (trial->over && !trial->runs)
        find_reason(folder, trial->why, sizeof(trial->why));
    if (trial->over)
        say(tuning, trial);
    const int32_t index = (int32_t)(trial - tuning->trial);
    if (trial->runs &&
        (tuning->best < 0 ||
         shoali_tuning_better(tuning, trial->value, tuning->trial[tuning->best].value)))
        tuning->best = index;
done:
    json_decref(config);
    return status;
}

shoal_status shoali_tuning_helper(struct shoali_tuning *tuning, const char *name,
                                  const struct shoali_text_list *command, bool *done_well)
{
    shoal_status status;
    char folder[4400], why[400];
    int code = 0;
    snprintf(folder, sizeof(folder), "%s/%s", tuning->results_dir, name);
    SHOAL_TRY(status, shoali_make_dirs(folder), done);
    SHOAL_TRY(status, run(tuning, command, folder, NULL, &code), done);
    *done_well = code == 0 && !tuning->asked;
    if (code != 0 && !tuning->asked) {
        find_reason(folder, why, sizeof(why));
        SHOALI_WARN("launcher", "autotuning: %s: %s", name, why);
    }
done:
    return status;
}
