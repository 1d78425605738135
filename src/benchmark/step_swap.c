/* step_swap.c - the update of optimizer states on a drive, against the drive and the arithmetic.
 *
 * The drive is measured between the samples of the step. The same update without a file comes last,
 * after the first engine is gone, so that the two are never in memory together. */
#include "benchmark/io.h"
#include "benchmark/step.h"
#include "engine/engine.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Of the file that the drive is measured with: longer than its own memory for writes, but not as
 * long as the states of a large model. */
#define FILE_MIN ((int64_t)1 << 20)
#define FILE_MAX ((int64_t)256 << 20)

/* Since the engine was created. */
struct moved {
    int64_t steps, read, written; /* bytes of this rank */
};
struct shoali_step_swap {
    char *text; /* the configuration with the states in host memory */
    char *folder;
    struct moved before;                   /* the samples */
    struct shoali_samples read, write;     /* GB/s of all ranks together */
    struct shoali_samples update, without; /* ms of the slowest rank, with and without the drive */
};

/* ---- the same without a file ---------------------------------------------------------------- */

/* The keys of a file have nothing to do there. */
static char *text_without_file(const struct shoal_engine *engine)
{
    static const char *const of_files[] = {"nvme_path", "buffer_count", "pipeline_read",
                                           "pipeline_write"};
    json_t *root = json_deep_copy(shoali_json_root(engine->config.document));
    json_t *zero = json_object_get(root, "zero_optimization");
    json_t *offload = json_object_get(zero, "offload_optimizer");
    for (size_t i = 0; i < sizeof of_files / sizeof of_files[0]; i++)
        (void)json_object_del(offload, of_files[i]);
    char *text = NULL;
    if (json_object_set_new(offload, "device", json_string("cpu")) != 0 ||
        shoali_json_write(root, JSON_REAL_PRECISION(17), "the configuration", &text) < 0)
        text = NULL;
    json_decref(root);
    return text;
}

shoal_status shoali_step_swap_create(struct shoali_step *step, struct shoali_step_swap **swap_out)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_offload_optimizer_config *offload =
        &step->engine->config.zero_optimization.offload_optimizer;
    if (offload->device != SHOALI_OFFLOAD_NVME)
        return SHOAL_OK;
    struct shoali_step_swap *swap = shoali_calloc(1, sizeof *swap, "the benchmark");
    if (!swap)
        return SHOAL_ENOMEM;
    *swap_out = swap;
    swap->text = text_without_file(step->engine);
    swap->folder = strdup(offload->nvme_path);
    if (!swap->text || !swap->folder)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "bench step: out of memory");
    return status;
}

void shoali_step_swap_destroy(struct shoali_step_swap *swap)
{
    if (!swap)
        return;
    free(swap->text);
    free(swap->folder);
    shoali_free(swap);
}

/* ---- samples -------------------------------------------------------------------------------- */

static shoal_status ignore(void *user, const shoali_bench_result *result)
{
    (void)user;
    (void)result;
    return SHOAL_OK;
}

/* Bytes up to now; those of the samples are the difference. */
static void count_bytes(const struct shoali_step *step, struct moved *moved)
{
    shoal_memory_info memory;
    shoal_engine_get_memory_info(step->engine, &memory);
    moved->steps = shoal_engine_global_steps(step->engine);
    moved->read = memory.offload_read_bytes;
    moved->written = memory.offload_written_bytes;
}

/* All ranks use the drive at once, as in a step: their speeds add up. */
shoal_status shoali_step_swap_sample(struct shoali_step_swap *swap, struct shoali_step *step)
{
    shoal_status status;
    shoal_memory_info memory;
    shoali_bench_io_args args;
    shoali_bench_run run;
    struct shoali_io_speed speed;
    shoal_engine_get_memory_info(step->engine, &memory);
    int64_t bytes = memory.offload_nvme_bytes < FILE_MAX ? memory.offload_nvme_bytes : FILE_MAX;
    bytes = bytes > FILE_MIN ? bytes : FILE_MIN;
    const shoali_bench_io_args given = {
        .run = {.repeats = 1, .sink = ignore}, .folder = swap->folder, .bytes = bytes};
    SHOAL_TRY(status, shoali_bench_io_init(&given, 1, 1, &args, &run), done);
    SHOAL_TRY(status, shoal_barrier(step->group), done);
    SHOAL_TRY(status, shoali_bench_io_measure(&args, &run, &speed), done);
    double gbs[2] = {speed.read, speed.write};
    SHOAL_TRY(status, shoal_all_reduce(step->group, gbs, gbs, 2, SHOAL_F64, SHOAL_SUM, NULL), done);
    shoali_samples_add(&swap->read, gbs[0]);
    shoali_samples_add(&swap->write, gbs[1]);
    if (swap->read.count == 1)
        count_bytes(step, &swap->before);
done:
    return status;
}

/* The update of every sample as the slowest rank had it. */
static shoal_status slowest(struct shoali_step *step, struct shoali_samples *update)
{
    *update = step->update;
    return shoal_all_reduce(step->group, update->value, update->value, update->count, SHOAL_F64,
                            SHOAL_MAX, NULL);
}

static shoal_status update_without_file(struct shoali_step_swap *swap, struct shoali_step *step)
{
    shoal_status status;
    double seconds;
    shoal_engine_destroy(step->engine);
    step->engine = NULL;
    SHOAL_TRY(status, shoali_step_make_engine(step, swap->text), done);
    SHOAL_TRY(status, shoali_step_train(step, 1, &seconds), done); /* touches memory */
    shoali_step_forget(step);
    for (int32_t i = 0; i < step->run.repeats; i++)
        SHOAL_TRY(status, shoali_step_train(step, 1, &seconds), done);
    SHOAL_TRY(status, slowest(step, &swap->without), done);
done:
    return status;
}

/* ---- result --------------------------------------------------------------------------------- */

/* bytes: read and written by a step of all ranks. A drive does one thing at a time. */
static shoal_status emit(const struct shoali_step_swap *swap, const struct shoali_step *step,
                         const double bytes[2])
{
    const double arithmetic = shoali_samples_median(&swap->without);
    const double update = shoali_samples_median(&swap->update);
    double all_read = (bytes[0] + bytes[1]) * 1e-6 / shoali_samples_median(&swap->read);
    all_read = all_read > arithmetic ? all_read : arithmetic;
    struct shoali_samples drive = {.count = 0}, limit = {.count = 0};
    for (int32_t i = 0; i < swap->read.count; i++) {
        const double ms =
            bytes[0] * 1e-6 / swap->read.value[i] + bytes[1] * 1e-6 / swap->write.value[i];
        shoali_samples_add(&drive, ms);
        shoali_samples_add(&limit, ms > arithmetic ? ms : arithmetic);
    }
    const shoali_bench_value values[] = {
        {"read", "MB", bytes[0] * 1e-6},
        {"written", "MB", bytes[1] * 1e-6},
        {"the drive reads", "GB/s", shoali_samples_median(&swap->read)},
        {"writes", "GB/s", shoali_samples_median(&swap->write)},
        {"these bytes alone", "ms", shoali_samples_median(&drive)},
        {"update without the drive", "ms", arithmetic},
        {"of the limit", "times", update / shoali_samples_median(&limit)},
        {"with all bytes at the speed of reads", "times", update / all_read}};
    shoali_bench_result result = {.bench = "step",
                                  .name = "update of states on the drive",
                                  .unit = "ms",
                                  .limit_name =
                                      "these bytes alone, or the update without the drive",
                                  .values = values,
                                  .value_count = sizeof values / sizeof values[0]};
    return shoali_bench_emit(&step->run, &result, &swap->update, &limit);
}

shoal_status shoali_step_swap_finish(struct shoali_step_swap *swap, struct shoali_step *step)
{
    shoal_status status;
    struct moved now;
    count_bytes(step, &now);
    const double steps = (double)(now.steps - swap->before.steps);
    double bytes[2] = {(double)(now.read - swap->before.read) / steps,
                       (double)(now.written - swap->before.written) / steps};
    SHOAL_TRY(status, shoal_all_reduce(step->group, bytes, bytes, 2, SHOAL_F64, SHOAL_SUM, NULL),
              done);
    SHOAL_TRY(status, slowest(step, &swap->update), done);
    SHOAL_TRY(status, update_without_file(swap, step), done);
    if (shoal_comm_rank(step->group) == 0)
        SHOAL_TRY(status, emit(swap, step, bytes), done);
done:
    return status;
}
