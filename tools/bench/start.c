/* shoal bench start: from starting a program to the begin and to the end of its first step. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/str.h"
#include "shoal/launcher.h"
#include "shoal/log.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { SAMPLES_MAX = 1000, WORDS = 512, TEXTS = 512 };

/* What is measured, in the order of the times in a sample. */
enum { BEGIN, END, VERSION, TIMES };

/* The child's command line; texts need somewhere to stand. */
struct command {
    const char *word[WORDS];
    int32_t count;
    char text[TEXTS][64];
    int32_t texts;
};

static void add(struct command *command, const char *word)
{
    SHOAL_ASSERT(command->count < WORDS - 1);
    command->word[command->count++] = word;
}

static char *next_text(struct command *command)
{
    SHOAL_ASSERT(command->texts < TEXTS);
    return command->text[command->texts++];
}

static void add_number(struct command *command, const char *flag, double value)
{
    char *text = next_text(command);
    snprintf(text, sizeof command->text[0], "%.17g", value);
    add(command, flag);
    add(command, text);
}

/* The flags of the model that were given. */
static shoal_status add_model(struct command *command, const struct model_flags *flags)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < flags->section.row_count; i++) {
        const struct shoali_option *row = &flags->section.rows[i];
        double value;
        if (!model_flags_given(flags, row->key))
            continue;
        char *flag = next_text(command);
        snprintf(flag, sizeof command->text[0], "--%s", row->key);
        if (row->type == SHOALI_BOOL) {
            add(command, flag);
            continue;
        }
        SHOAL_TRY(status, shoal_model_config_get(flags->config, row->key, &value), done);
        add_number(command, flag, value);
    }
done:
    return status;
}

static shoal_status make_command(const struct bench_options *options, int64_t micro_batch,
                                 const char *self, const char *file, struct command *command)
{
    static const char *const dtypes[] = {"fp32", "bf16", "fp16", "fp32", "fp16"};
    shoal_status status;
    *command =
        (struct command){.word = {self, "bench", "step", "--first-step-file", file, "--model",
                                  options->model, "--dtype", dtypes[options->dtype]},
                         .count = 9};
    SHOAL_TRY(status, add_model(command, &options->model_flags), done);
    add_number(command, "--micro-batch", (double)micro_batch);
    if (options->threads)
        add_number(command, "--threads", (double)options->threads);
    if (options->deepspeed_config) {
        add(command, "--deepspeed_config");
        add(command, options->deepspeed_config);
    }
done:
    return status;
}

/* "124.5M parameters on 2 ranks" */
static shoal_status describe(const struct bench_options *options, char *text, size_t bytes)
{
    shoal_status status;
    int64_t count = 0;
    shoal_model *model = NULL;
    SHOAL_TRY(status, shoal_model_create(options->model_flags.config, &model), done);
    SHOAL_TRY(status, shoal_model_param_count(model, &count), done);
    snprintf(text, bytes, "%.1fM parameters on %d rank%s", (double)count * 1e-6,
             (int)options->num_gpus, options->num_gpus > 1 ? "s" : "");
done:
    shoal_model_destroy(model);
    return status;
}

/* Milliseconds to the begin and to the end of the first step. */
static shoal_status sample_start(const struct command *command, int32_t ranks, const char *file,
                                 double ms[2])
{
    char *text = NULL, *rest;
    size_t bytes;
    int exit_code = 0;
    int64_t when;
    shoal_status status;
    const int64_t begin = shoali_now_ns();
    SHOAL_TRY(status,
              shoal_launch(&(shoal_launch_args){.program = command->word,
                                                .ranks = ranks,
                                                .master_port = SHOAL_ANY_PORT,
                                                .no_local_rank = 1},
                           &exit_code),
              done);
    if (exit_code) {
        status = SHOAL_FAIL(exit_code == 2 ? SHOAL_EINVAL : SHOAL_EPEER,
                            "bench start: a rank exited with code %d", exit_code);
        goto done;
    }
    SHOAL_TRY(status, shoali_read_file(file, &text, &bytes), done);
    rest = text;
    for (int32_t i = BEGIN; i <= END; i++) {
        const char *line = strsep(&rest, "\n");
        if (!line || !shoali_parse_i64(line, &when)) {
            status =
                SHOAL_FAIL(SHOAL_ECORRUPT, "bench start: \"%s\" does not hold two times", file);
            goto done;
        }
        ms[i] = (double)(when - begin) * 1e-6;
    }
done:
    free(text);
    return status;
}

/* Starting this program for nothing: the least that any start takes. */
static shoal_status sample_version(const char *self, double *ms)
{
    posix_spawn_file_actions_t actions;
    char *const words[] = {(char *)(uintptr_t)self, (char[]){"--version"}, NULL};
    pid_t child;
    int outcome = 0;
    const int64_t begin = shoali_now_ns();
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const int error = posix_spawn(&child, self, &actions, NULL, words, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (error)
        return SHOAL_FAIL(SHOAL_EIO, "bench start: \"%s\" does not start: %s", self,
                          strerror(error));
    while (waitpid(child, &outcome, 0) < 0 && errno == EINTR)
        ;
    *ms = (double)(shoali_now_ns() - begin) * 1e-6;
    if (outcome)
        return SHOAL_FAIL(SHOAL_EPEER, "bench start: \"%s --version\" failed", self);
    return SHOAL_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts; the middle one. */
static double median(double *values, int32_t count)
{
    qsort(values, (size_t)count, sizeof values[0], compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* times[] is sorted afterwards. */
static shoal_status emit(const struct bench_options *options, const char *name, double *times,
                         int32_t count, double version)
{
    const shoali_bench_value value = {"--version alone", "ms", version};
    const double middle = median(times, count);
    const shoali_bench_run run = bench_run(options);
    return run.sink(run.user, &(shoali_bench_result){.bench = "start",
                                                     .name = name,
                                                     .unit = "ms",
                                                     .median = middle,
                                                     .min = times[0],
                                                     .max = times[count - 1],
                                                     .repeats = count,
                                                     .limit_name = "--version alone",
                                                     .limit = version,
                                                     .ratio = version / middle,
                                                     .values = &value,
                                                     .value_count = 1});
}

static shoal_status measure(const struct bench_options *options, const struct command *command,
                            const char *self, const char *file, const char *what)
{
    static const char *const moment[] = {"begin", "end"};
    const int32_t repeats = options->repeats ? (int32_t)options->repeats : 5;
    const double seconds = options->seconds > 0 ? options->seconds : 30;
    double times[TIMES][SAMPLES_MAX], start[2];
    const int64_t begin = shoali_now_ns();
    int32_t count = 0;
    shoal_status status;
    do {
        SHOAL_TRY(status, sample_version(self, &times[VERSION][count]), done);
        SHOAL_TRY(status, sample_start(command, (int32_t)options->num_gpus, file, start), done);
        times[BEGIN][count] = start[BEGIN];
        times[END][count] = start[END];
    } while (++count < repeats && (double)(shoali_now_ns() - begin) * 1e-9 < seconds);
    const double version = median(times[VERSION], count);
    for (int32_t i = BEGIN; i <= END; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s of the first step of %s", moment[i], what);
        SHOAL_TRY(status, emit(options, name, times[i], count, version), done);
    }
done:
    return status;
}

shoal_status bench_start(const struct bench_options *options)
{
    struct command command;
    int64_t micro_batch;
    char self[4096], folder[] = "/tmp/shoal-start-XXXXXX", file[sizeof folder + 8], what[96];
    shoal_status status;
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (bytes < 0 || !mkdtemp(folder))
        return SHOAL_FAIL(SHOAL_EIO, "bench start: %s: %s",
                          bytes < 0 ? "/proc/self/exe" : "no folder in /tmp", strerror(errno));
    self[bytes] = 0;
    snprintf(file, sizeof file, "%s/time", folder);
    SHOAL_TRY(status, shoal_log_configure("warning", NULL, NULL), done);
    SHOAL_TRY(status, bench_model(&bench_start_flags, options, &micro_batch), done);
    SHOAL_TRY(status, make_command(options, micro_batch, self, file, &command), done);
    SHOAL_TRY(status, describe(options, what, sizeof what), done);
    SHOAL_TRY(status, measure(options, &command, self, file, what), done);
done:
    (void)unlink(file);
    (void)rmdir(folder);
    return status;
}
