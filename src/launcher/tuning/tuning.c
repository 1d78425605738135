#include "launcher/tuning/tuning.h"

#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A micro-batch that is twice as large has to bring so much. */
#define PLATEAU 0.05

/* ---- trials ---------------------------------------------------------------------------------- */
static struct shoali_trial *add_trial(struct shoali_tuning *tuning, int32_t stage, int64_t size)
{
    const int64_t accumulation = shoali_tuning_accumulation(tuning, size);
    if (accumulation < 1 || tuning->trials == SHOALI_TRIALS_MAX)
        return NULL;
    struct shoali_trial *trial = &tuning->trial[tuning->trials++];
    *trial =
        (struct shoali_trial){.stage = stage, .micro_batch = size, .accumulation = accumulation};
    for (int32_t i = 0; i < SHOALI_KNOBS; i++)
        trial->knob[i] = -1;
    return trial;
}

/* How a search ends: nothing better for a while, enough, or somebody wants it to. */
struct search {
    int32_t tried, since_best, best; /* best: -1 none */
};

static bool goes_on(const struct shoali_tuning *tuning, const struct search *search)
{
    return !tuning->asked && search->tried < tuning->config.tuner_num_trials &&
           search->since_best < tuning->config.tuner_early_stopping;
}

static shoal_status try_one(struct shoali_tuning *tuning, struct search *search,
                            struct shoali_trial *trial)
{
    shoal_status status;
    const int32_t index = (int32_t)(trial - tuning->trial);
    SHOAL_TRY(status, shoali_tuning_try(tuning, trial), done);
    search->tried++;
    search->since_best++;
    if (trial->runs &&
        (search->best < 0 ||
         shoali_tuning_better(tuning, trial->value, tuning->trial[search->best].value))) {
        search->best = index;
        search->since_best = 0;
    }
done:
    return status;
}

static bool was_tried(const struct shoali_tuning *tuning, int32_t begin, int64_t size)
{
    for (int32_t i = begin; i < tuning->trials; i++)
        if (tuning->trial[i].micro_batch == size)
            return true;
    return false;
}

/* ---- sizes of micro-batches ------------------------------------------------------------------ */
static shoal_status try_list(struct shoali_tuning *tuning, int32_t stage,
                             const struct shoali_ints *sizes, struct search *search)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < sizes->count && goes_on(tuning, search); i++) {
        struct shoali_trial *trial = add_trial(tuning, stage, sizes->value[i]);
        if (trial)
            SHOAL_TRY(status, try_one(tuning, search, trial), done);
        else
            SHOALI_WARN("launcher",
                        "autotuning: a batch of %lld on %d data-parallel ranks cannot be made of "
                        "micro-batches of %lld: left out",
                        (long long)tuning->batch, (int)tuning->data_ranks,
                        (long long)sizes->value[i]);
    }
done:
    return status;
}

/* Gain of the trial over another one, as a part. */
static double gain_of(const struct shoali_tuning *tuning, const struct shoali_trial *trial,
                      const struct shoali_trial *over)
{
    const bool more = shoali_tuning_better(tuning, 2, 1);
    return more ? trial->value / over->value - 1 : over->value / trial->value - 1;
}

/* first, 2 first, ... *last: the largest that may be tried around the best. */
static shoal_status try_doubling(struct shoali_tuning *tuning, int32_t stage, int64_t first,
                                 struct search *search, int64_t *last)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_trial *before = NULL;
    const int64_t most = tuning->config.max_train_micro_batch_size_per_gpu;
    for (int64_t size = first; size <= most && goes_on(tuning, search); size *= 2) {
        struct shoali_trial *trial = add_trial(tuning, stage, size);
        if (!trial)
            continue;
        *last = size;
        SHOAL_TRY(status, try_one(tuning, search, trial), done);
        if (!trial->runs || (before && gain_of(tuning, trial, before) < PLATEAU))
            break;
        before = trial;
    }
done:
    return status;
}

/* Evenly between half of the best and what came after it; sizes that the batch cannot be made of
 * make way for their neighbours. */
static shoal_status try_around(struct shoali_tuning *tuning, int32_t stage, int32_t begin,
                               int64_t last, struct search *search)
{
    shoal_status status = SHOAL_OK;
    if (search->best < 0)
        return SHOAL_OK;
    const int64_t best = tuning->trial[search->best].micro_batch;
    const int64_t low = best / 2, high = last > best ? last : 2 * best;
    const int64_t wanted = tuning->config.num_tuning_micro_batch_sizes;
    int64_t made = 0;
    for (int64_t i = 1; i <= wanted && goes_on(tuning, search); i++) {
        int64_t size = low + (high - low) * i / (wanted + 1);
        while (size < high &&
               (was_tried(tuning, begin, size) || !shoali_tuning_accumulation(tuning, size)))
            size++;
        struct shoali_trial *trial =
            size > low && size < high ? add_trial(tuning, stage, size) : NULL;
        if (trial && ++made <= wanted)
            SHOAL_TRY(status, try_one(tuning, search, trial), done);
    }
done:
    return status;
}

/* ---- knobs ----------------------------------------------------------------------------------- */
/* Every combination of those that do anything in this stage, the first knob changing slowest. */
static void add_combinations(struct shoali_tuning *tuning, const struct shoali_trial *best)
{
    const struct shoali_trial base = *best;
    const int32_t stage = base.stage >= 0
                              ? base.stage
                              : (int32_t)json_integer_value(json_object_get(
                                    json_object_get(tuning->root, "zero_optimization"), "stage"));
    int64_t count = 1;
    for (int32_t i = 0; i < tuning->knob_count; i++)
        count *= stage >= tuning->knobs[i].first_stage ? tuning->knobs[i].count : 1;
    for (int64_t number = 0; count > 1 && number < count; number++) {
        struct shoali_trial *trial = add_trial(tuning, base.stage, base.micro_batch);
        int64_t rest = number;
        for (int32_t i = tuning->knob_count - 1; trial && i >= 0; i--) {
            const struct shoali_knob *knob = &tuning->knobs[i];
            if (stage < knob->first_stage)
                continue;
            trial->knob[i] = (int32_t)(rest % knob->count);
            rest /= knob->count;
        }
    }
}

static shoal_status try_knobs(struct shoali_tuning *tuning, int32_t best)
{
    shoal_status status = SHOAL_OK;
    struct search search = {.best = best};
    const int32_t begin = tuning->trials;
    add_combinations(tuning, &tuning->trial[best]);
    while (goes_on(tuning, &search)) {
        const int32_t next = shoali_tuning_next(tuning, begin, tuning->trials);
        if (next < 0)
            break;
        SHOAL_TRY(status, try_one(tuning, &search, &tuning->trial[next]), done);
    }
done:
    return status;
}

/* ---- stages ---------------------------------------------------------------------------------- */
static shoal_status try_stage(struct shoali_tuning *tuning, int32_t stage,
                              const struct shoali_ints *sizes, int64_t first, int32_t *last_best)
{
    shoal_status status;
    struct search search = {.best = -1};
    const int32_t begin = tuning->trials;
    int64_t last = 0;
    if (sizes->count > 0) {
        SHOAL_TRY(status, try_list(tuning, stage, sizes, &search), done);
    } else {
        SHOAL_TRY(status, try_doubling(tuning, stage, first, &search, &last), done);
        SHOAL_TRY(status, try_around(tuning, stage, begin, last, &search), done);
    }
    const bool worse =
        search.best < 0 ||
        (*last_best >= 0 && shoali_tuning_better(tuning, tuning->trial[*last_best].value,
                                                 tuning->trial[search.best].value));
    *last_best = search.best >= 0 ? search.best : *last_best;
    if (!tuning->config.fast && !worse)
        SHOAL_TRY(status, try_knobs(tuning, search.best), done);
done:
    return status;
}

static shoal_status nothing_ran(const struct shoali_tuning *tuning)
{
    const struct shoali_trial *first = &tuning->trial[0];
    bool usage = true;
    for (int32_t i = 0; i < tuning->trials; i++)
        usage = usage && tuning->trial[i].code == 2;
    if (tuning->trials == 0)
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "%s: autotuning: a batch of %lld on %d data-parallel ranks cannot be made "
            "of micro-batches of %lld to %lld: change train_batch_size, or the number "
            "of ranks",
            tuning->config_path, (long long)tuning->batch, (int)tuning->data_ranks,
            (long long)tuning->config.min_train_micro_batch_size_per_gpu,
            (long long)tuning->config.max_train_micro_batch_size_per_gpu);
    return SHOAL_FAIL(usage ? SHOAL_ECONFIG : SHOAL_EIO,
                      "autotuning: none of %d experiments reached step %lld; the first one failed: "
                      "%s (its whole output: %s/%s/stderr.log)",
                      (int)tuning->trials, (long long)tuning->config.end_profile_step, first->why,
                      tuning->results_dir, first->name);
}

static shoal_status search(struct shoali_tuning *tuning)
{
    shoal_status status;
    int32_t stages[4], count, last_best = -1;
    int64_t first = 1;
    struct shoali_ints sizes = {0};
    const size_t given =
        json_array_size(json_object_get(tuning->root, "train_micro_batch_size_per_gpu"));
    sizes.value = shoali_arena_alloc(&tuning->arena, (given + 1) * sizeof(sizes.value[0]));
    tuning->trial =
        shoali_arena_alloc(&tuning->arena, SHOALI_TRIALS_MAX * sizeof(tuning->trial[0]));
    if (!tuning->trial || !sizes.value)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_tuning_stages(tuning, stages, &count), done);
    SHOAL_TRY(status, shoali_tuning_sizes(tuning, &sizes, &first), done);
    for (int32_t i = 0; i < count && !tuning->asked; i++)
        SHOAL_TRY(status, try_stage(tuning, stages[i], &sizes, first, &last_best), done);
    if (tuning->best < 0 && !tuning->asked)
        status = nothing_ran(tuning);
done:
    return status;
}

/* ---- what a job needs beside its configuration ----------------------------------------------- */
/* With several hosts: `shoal tune comm` on them, whose table all trials use. */
static shoal_status tune_comm(struct shoali_tuning *tuning)
{
    shoal_status status;
    bool well = false;
    struct shoali_text_list words = {.arena = &tuning->arena};
    if (tuning->config.fast || tuning->hosts < 2)
        return SHOAL_OK;
    const char *path = shoali_arena_printf(&tuning->arena, "%s/comm.tuning", tuning->results_dir);
    shoali_text_list_add(&words, "%s", tuning->self);
    shoali_text_list_add(&words, "run");
    shoali_text_list_add_all(&words, &tuning->flags);
    shoali_text_list_add(&words, "--no_local_rank");
    shoali_text_list_add(&words, "%s", tuning->self);
    shoali_text_list_add(&words, "tune");
    shoali_text_list_add(&words, "comm");
    shoali_text_list_add(&words, "--output");
    shoali_text_list_add(&words, "%s", path ? path : "");
    if (words.failed || !path)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_tuning_helper(tuning, "tune_comm", &words, &well), done);
    if (well && access(path, R_OK) == 0) {
        tuning->comm_table = path;
        SHOALI_INFO("launcher", "autotuning: the algorithms of collectives are those of %s", path);
    }
done:
    return status;
}

static const char *nvme_folder(const struct shoali_tuning *tuning)
{
    static const char *const keys[] = {"offload_optimizer", "offload_param"};
    const json_t *zero = json_object_get(tuning->root, "zero_optimization");
    for (int i = 0; i < 2; i++) {
        const json_t *offload = json_object_get(zero, keys[i]);
        const char *device = json_string_value(json_object_get(offload, "device"));
        if (device && strcmp(device, "nvme") == 0)
            return json_string_value(json_object_get(offload, "nvme_path"));
    }
    return NULL;
}

/* Where the configuration offloads to a disk: `shoal tune io` on it. Its last line is the
 * section. */
static shoal_status tune_io(struct shoali_tuning *tuning)
{
    shoal_status status;
    bool well = false;
    char path[4400], *data = NULL;
    size_t bytes = 0;
    json_t *answer = NULL;
    struct shoali_text_list words = {.arena = &tuning->arena};
    const char *folder = nvme_folder(tuning);
    if (tuning->config.fast || !folder || json_object_get(tuning->root, "aio"))
        return SHOAL_OK;
    shoali_text_list_add(&words, "%s", tuning->self);
    shoali_text_list_add(&words, "tune");
    shoali_text_list_add(&words, "io");
    shoali_text_list_add(&words, "--folder");
    shoali_text_list_add(&words, "%s", folder);
    /* Seconds, not minutes: it is a beginning of what is searched for. */
    shoali_text_list_add(&words, "--size=128M");
    shoali_text_list_add(&words, "--repeats=3");
    if (words.failed)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_tuning_helper(tuning, "tune_io", &words, &well), done);
    snprintf(path, sizeof(path), "%s/tune_io/stdout.log", tuning->results_dir);
    if (!well || shoali_read_file(path, &data, &bytes) < 0)
        goto done; /* said; the configuration's defaults do */
    while (bytes > 0 && data[bytes - 1] == '\n')
        data[--bytes] = '\0';
    const char *last = strrchr(data, '\n') ? strrchr(data, '\n') + 1 : data;
    if (shoali_json_read(last, strlen(last), &answer, NULL) == SHOAL_OK) {
        tuning->aio = json_incref(json_object_get(answer, "aio"));
        SHOALI_INFO("launcher", "autotuning: %s", last);
    }
done:
    if (status >= 0)
        shoali_error_clear();
    free(data);
    json_decref(answer);
    return status < 0 ? status : SHOAL_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */
static const char *absolute(struct shoali_tuning *tuning, const char *path)
{
    return *path == '/' ? path : shoali_arena_printf(&tuning->arena, "%s/%s", tuning->folder, path);
}

static shoal_status find_places(struct shoali_tuning *tuning)
{
    shoal_status status;
    char path[4096], folder[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0 || !getcwd(folder, sizeof(folder)))
        return SHOAL_FAIL(SHOAL_EIO,
                          "cannot find the path of this program, or the current folder: %s",
                          strerror(errno));
    path[length] = '\0';
    tuning->self = shoali_arena_strdup(&tuning->arena, path);
    tuning->folder = shoali_arena_strdup(&tuning->arena, folder);
    if (!tuning->self || !tuning->folder)
        return SHOAL_ENOMEM;
    tuning->results_dir = absolute(tuning, tuning->config.results_dir);
    tuning->exps_dir = absolute(tuning, tuning->config.exps_dir);
    if (!tuning->results_dir || !tuning->exps_dir)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_make_dirs(tuning->results_dir), done);
    SHOAL_TRY(status, shoali_make_dirs(tuning->exps_dir), done);
done:
    return status < 0 ? shoali_error_prefix(SHOAL_EINVAL, "autotuning") : status;
}

/* Flags as they were given, without the one that asks for this. */
static void copy_flags(struct shoali_tuning *tuning, const struct shoali_strings *flags)
{
    tuning->flags.arena = tuning->program.arena = &tuning->arena;
    for (int32_t i = 0; i < flags->count; i++)
        shoali_text_list_add(&tuning->flags, "%s", flags->value[i]);
    shoali_text_list_drop(&tuning->flags, "autotuning");
    for (const char *const *word = tuning->args->program; *word; word++)
        shoali_text_list_add(&tuning->program, "%s", *word);
}

static shoal_status check_flags(const struct shoali_launch_options *options)
{
    const char *conflict = options->elastic_training ? "--elastic_training"
                           : options->no_ssh         ? "--no_ssh"
                           : options->dry_run        ? "--dry-run"
                                                     : NULL;
    if (!conflict)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "--autotuning starts many jobs one after the other by itself: leave %s out",
                      conflict);
}

shoal_status shoali_tune(const struct shoali_launch_options *options, const shoal_launch_args *args,
                         const struct shoali_strings *flags, struct shoali_arena *arena,
                         const char *const **best, int *exit_code)
{
    shoal_status status;
    struct shoali_tuning tuning = {.options = options, .args = args, .best = -1};
    struct shoali_world world = {0};
    *best = NULL;
    shoali_arena_init(&tuning.arena);
    SHOAL_TRY(status, check_flags(options), done);
    if (!args->program[0]) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "no program to start: write it after the flags");
        goto done;
    }
    SHOAL_TRY(status, shoali_world_find(options, args, &tuning.arena, &world), done);
    tuning.ranks = world.ranks;
    tuning.hosts = world.nodes;
    copy_flags(&tuning, flags);
    SHOAL_TRY(status, shoali_tuning_read(&tuning), done);
    SHOAL_TRY(status, find_places(&tuning), done);
    if (tuning.flags.failed || tuning.program.failed) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOALI_INFO("launcher",
                "autotuning: experiments on %d rank%s, of %d host%s; their results are in %s",
                (int)tuning.ranks, tuning.ranks == 1 ? "" : "s", (int)tuning.hosts,
                tuning.hosts == 1 ? "" : "s", tuning.results_dir);
    SHOAL_TRY(status, tune_comm(&tuning), done);
    SHOAL_TRY(status, tune_io(&tuning), done);
    SHOAL_TRY(status, search(&tuning), done);
    if (tuning.best >= 0)
        SHOAL_TRY(status, shoali_tuning_results(&tuning, arena, best), done);
    if (tuning.best >= 0 && tuning.comm_table && strcmp(options->autotuning, "run") == 0)
        setenv("SHOAL_COMM_TUNING", tuning.comm_table, 1);
    if (tuning.asked) {
        *best = NULL;
        *exit_code = 128 + tuning.asked;
    }
done:
    json_decref(tuning.aio);
    shoali_json_close(tuning.document);
    shoali_arena_fini(&tuning.arena);
    return status;
}
