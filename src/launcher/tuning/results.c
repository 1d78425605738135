#include "launcher/tuning/tuning.h"

#include "base/json.h"
#include "base/log.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

shoal_status shoali_tuning_write_text(const char *folder, const char *name, const char *text)
{
    char path[4600];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return shoali_write_file_atomic(path, text, strlen(text));
}

shoal_status shoali_tuning_write_json(const char *folder, const char *name, const json_t *value)
{
    shoal_status status;
    char *text = NULL;
    SHOAL_TRY(status, shoali_json_write(value, JSON_INDENT(2), name, &text), done);
    SHOAL_TRY(status, shoali_tuning_write_text(folder, name, text), done);
done:
    free(text);
    return status;
}

/* A row for each stage, as DeepSpeed's, and one for all of them; then every trial. */
static void summarize(const struct shoali_tuning *tuning, struct shoali_str *text)
{
    int32_t count = 0;
    shoali_str_append(text, "%-14s %15s %17s  %s\n", "tuning_space", "num_experiments",
                      "best_metric_val", "best_exp_name");
    for (int32_t stage = -1; stage <= 3; stage++) {
        const struct shoali_trial *best = NULL;
        count = 0;
        for (int32_t i = 0; i < tuning->trials; i++) {
            const struct shoali_trial *trial = &tuning->trial[i];
            if (trial->stage != stage || !trial->over)
                continue;
            count++;
            if (trial->runs && (!best || shoali_tuning_better(tuning, trial->value, best->value)))
                best = trial;
        }
        char space[32] = "as given";
        if (stage >= 0)
            snprintf(space, sizeof(space), "z%d", (int)stage);
        if (count && best)
            shoali_str_append(text, "%-14s %15d %17.6g  %s\n", space, (int)count, best->value,
                              best->name);
        else if (count)
            shoali_str_append(text, "%-14s %15d %17s  -\n", space, (int)count, "-");
    }
    count = 0;
    for (int32_t i = 0; i < tuning->trials; i++)
        count += tuning->trial[i].over;
    const struct shoali_trial *best = &tuning->trial[tuning->best];
    shoali_str_append(text, "%-14s %15d %17.6g  %s\n", "global", (int)count, best->value,
                      best->name);
    for (int32_t i = 0; i < tuning->trials; i++) {
        const struct shoali_trial *trial = &tuning->trial[i];
        if (trial->runs)
            shoali_str_append(text, "\n%s: %.6g, %.3f ms a step", trial->name, trial->value,
                              trial->latency_ms);
        else if (trial->over)
            shoali_str_append(text, "\n%s: %s", trial->name, trial->why);
    }
    shoali_str_append(text, "\n");
}

static shoal_status write_command(const struct shoali_tuning *tuning,
                                  const struct shoali_text_list *program)
{
    shoal_status status;
    struct shoali_str line = {0};
    struct shoali_text_list words = {.arena = program->arena};
    if (tuning->comm_table) {
        shoali_str_append(&line, "SHOAL_COMM_TUNING=");
        shoali_shell_quote(&line, tuning->comm_table);
        shoali_str_append(&line, " ");
    }
    shoali_text_list_add(&words, "%s", tuning->self);
    shoali_text_list_add(&words, "run");
    shoali_text_list_add_all(&words, &tuning->flags);
    shoali_text_list_add_all(&words, program);
    shoali_text_list_print(&words, &line);
    shoali_str_append(&line, "\n");
    status = line.failed || words.failed
                 ? SHOAL_ENOMEM
                 : shoali_tuning_write_text(tuning->results_dir, "cmd_optimal.txt", line.text);
    shoali_str_fini(&line);
    return status;
}

shoal_status shoali_tuning_results(struct shoali_tuning *tuning, struct shoali_arena *arena,
                                   const char *const **best_program)
{
    shoal_status status;
    const struct shoali_trial *best = &tuning->trial[tuning->best];
    struct shoali_text_list program = {.arena = arena};
    struct shoali_str text = {0};
    json_t *config = shoali_tuning_config(tuning, best, false);
    const char *path = shoali_arena_printf(arena, "%s/ds_config_optimal.json", tuning->results_dir);
    if (!config || !path) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status,
              shoali_tuning_write_json(tuning->results_dir, "ds_config_optimal.json", config),
              done);
    summarize(tuning, &text);
    if (text.failed) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, shoali_tuning_write_text(tuning->results_dir, "summary.txt", text.text),
              done);
    SHOAL_TRY(status, shoali_tuning_command(tuning, best, path, false, &program), done);
    SHOAL_TRY(status, write_command(tuning, &program), done);
    *best_program = (const char *const *)program.value;
    SHOALI_INFO("launcher", "autotuning: the best is %s; its configuration is %s", best->name,
                path);
done:
    json_decref(config);
    shoali_str_fini(&text);
    return status;
}
