/* Saves beside the training. */
#include "engine/save/checkpoint.h"

#include "base/waiting.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCE_BYTES = 1024 };

struct shoali_engine_saver {
    struct shoal_engine *engine;
    shoal_group *group; /* owned; NULL: one rank */
    struct shoali_worker *worker;
    uint32_t ticket;
    bool at_work, failed; /* failed: and nobody was told yet */
    /* of the save at work: its own copies */
    struct shoali_engine_tensors tensors;
    char *dir, *tag, *numbers, *client_json;
    struct shoali_checkpoint_args args;
    int64_t begin_ns, stall_ns;
    /* written by the thread before `over` */
    _Atomic bool over;
    int64_t end_ns;
    shoal_status status;
    char sentence[SENTENCE_BYTES];
};

/* ---- the thread ----------------------------------------------------------------------------- */

static void expected(void *user)
{
    shoali_zero_snapshot_expected(user);
}

static shoal_status run(const void *argument)
{
    struct shoali_engine_saver *saver = *(struct shoali_engine_saver *const *)argument;
    saver->status = shoali_checkpoint_save(&saver->args);
    if (saver->status < 0)
        snprintf(saver->sentence, sizeof saver->sentence, "%s", shoal_error_message());
    shoali_zero_snapshot_end(saver->engine->zero);
    saver->end_ns = shoali_now_ns();
    atomic_store(&saver->over, true);
    return SHOAL_OK; /* the worker has other saves to do */
}

/* ---- the training's side -------------------------------------------------------------------- */

shoal_status shoali_engine_saver_create(struct shoal_engine *engine)
{
    shoal_status status;
    const int64_t staging = engine->config.checkpoint.writer.staging_buffer_size;
    struct shoali_engine_saver *saver = shoali_calloc(1, sizeof *saver, "a saver");
    if (!saver)
        return SHOAL_ENOMEM;
    saver->engine = engine;
    engine->save.saver = saver;
    const struct shoali_split_args split = {
        .here = SHOAL_HERE, .color = 0, .key = engine->place.rank, .expected = engine->place.world};
    if (engine->place.world > 1) {
        SHOAL_TRY(status, shoali_comm_split(engine->place.group, &split, &saver->group), done);
        shoali_comm_second_thread(saver->group);
    }
    SHOAL_TRY(status, shoali_zero_snapshot_create(engine->zero, staging, engine->meta), done);
    engine->save.buffer_bytes += shoali_zero_snapshot_bytes(engine->zero);
    if (!engine->meta)
        SHOAL_TRY(status, shoali_worker_create(&saver->worker), done);
done:
    return status; /* the engine's own destroy frees it */
}

static void forget(struct shoali_engine_saver *saver)
{
    shoali_engine_tensors_fini(&saver->tensors);
    saver->tensors = (struct shoali_engine_tensors){0};
    free(saver->dir);
    free(saver->tag);
    free(saver->client_json);
    free(saver->numbers);
    saver->dir = saver->tag = saver->client_json = saver->numbers = NULL;
}

/* What became of a save that is over. */
static void conclude(struct shoal_engine *engine)
{
    struct shoali_engine_saver *saver = engine->save.saver;
    struct shoali_zero_snapshot_stats stats;
    shoal_save_info *info = &engine->save.info;
    shoali_zero_snapshot_get_stats(engine->zero, &stats);
    info->at_work = false;
    saver->at_work = false;
    saver->failed = saver->status < 0;
    if (saver->status == SHOAL_OK) {
        info->step = saver->args.step;
        info->seconds = (double)(saver->end_ns - saver->begin_ns) * 1e-9;
        info->stall_ms = (double)(saver->stall_ns + stats.stall_ns) * 1e-6;
        info->staging_bytes = stats.staging_bytes;
        info->most_staged_bytes = stats.most_staged_bytes;
        info->waits = stats.full_count;
    }
    forget(saver);
}

static void poll(struct shoal_engine *engine)
{
    if (engine->save.saver && engine->save.saver->at_work && atomic_load(&engine->save.saver->over))
        conclude(engine);
}

static shoal_status report_failure(struct shoali_engine_saver *saver)
{
    if (!saver->failed)
        return SHOAL_OK;
    saver->failed = false;
    return SHOAL_FAIL(saver->status, "the background save of step %lld failed: %s",
                      (long long)saver->args.step, saver->sentence);
}

shoal_status shoal_engine_wait_save(shoal_engine *engine)
{
    shoal_status status = SHOAL_OK;
    struct shoali_engine_saver *saver = engine->save.saver;
    if (!saver)
        return SHOAL_OK;
    if (saver->at_work) {
        struct shoali_waiting_aloud *aloud = shoali_waiting_aloud_begin(
            SHOAL_LOG_INFO, "checkpoint",
            "waiting for the background save: its disk is slow, or another rank is");
        shoali_status_page_io_begin(shoali_status_page_get());
        status = shoali_worker_wait(saver->worker, saver->ticket);
        shoali_waiting_aloud_end(aloud);
        shoali_status_page_io_end(shoali_status_page_get());
        if (status < 0)
            goto done;
        poll(engine);
    }
    SHOAL_TRY(status, report_failure(saver), done);
done:
    return status;
}

void shoali_engine_saver_destroy(struct shoali_engine_saver *saver)
{
    if (!saver)
        return;
    shoali_worker_destroy(saver->worker);
    if (saver->at_work)
        conclude(saver->engine);
    /* a run that was given up between the commit and the ranks' last word has committed */
    if (report_failure(saver) < 0)
        SHOALI_ERROR("engine", "%s; the checkpoint that `latest` names is whole",
                     shoal_error_message());
    forget(saver);
    shoal_comm_destroy(saver->group);
    shoali_free(saver);
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

/* What the save needs when the caller has gone on. */
static shoal_status prepare(struct shoali_engine_saver *saver,
                            const struct shoali_save_request *request)
{
    shoal_status status;
    struct shoal_engine *engine = saver->engine;
    forget(saver); /* what an attempt that failed has left */
    saver->dir = copy(request->dir);
    saver->tag = copy(request->tag);
    saver->client_json = copy(request->client_json);
    if (!saver->dir || !saver->tag || (request->client_json && !saver->client_json))
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a save's names");
    SHOAL_TRY(status, shoali_engine_tensors_init(&saver->tensors, engine), done);
    SHOAL_TRY(status, shoali_engine_tensors_add_all(&saver->tensors, engine, true), done);
    SHOAL_TRY(status, shoali_engine_numbers(engine, &saver->numbers), done);
    saver->args = shoali_engine_checkpoint_args(&saver->tensors, engine, saver->dir, saver->tag);
    saver->args.group = saver->group;
    saver->args.engine_json = saver->numbers;
    saver->args.client_json = saver->client_json;
    saver->args.step = engine->step.global_steps;
    saver->args.tag_chosen = request->tag_chosen;
    saver->args.expected = expected;
    saver->args.user = engine->zero;
done:
    return status;
}

static shoal_status wait_for_the_one_before(struct shoal_engine *engine)
{
    const struct shoali_engine_saver *saver = engine->save.saver;
    poll(engine);
    if (saver->at_work && engine->place.rank == 0)
        SHOALI_INFO("engine",
                    "the checkpoint of step %lld is still being written: the save of step %lld "
                    "waits for it",
                    (long long)saver->args.step, (long long)engine->step.global_steps);
    return shoal_engine_wait_save(engine);
}

shoal_status shoali_engine_saver_begin(struct shoal_engine *engine,
                                       const struct shoali_save_request *request)
{
    shoal_status status = SHOAL_OK;
    const int64_t called_ns = shoali_now_ns();
    if (!engine->save.saver)
        SHOAL_TRY(status, shoali_engine_saver_create(engine), done);
    struct shoali_engine_saver *saver = engine->save.saver;
    SHOAL_TRY(status, wait_for_the_one_before(engine), done);
    SHOAL_TRY(status, prepare(saver, request), done);
    SHOAL_TRY(status, shoali_zero_snapshot_begin(engine->zero), done);
    saver->begin_ns = called_ns;
    atomic_store(&saver->over, false);
    saver->at_work = true;
    engine->save.info.at_work = true;
    engine->save.info.at_work_step = engine->step.global_steps;
    SHOAL_TRY(status, shoali_worker_post(saver->worker, run, &saver, sizeof saver, &saver->ticket),
              done);
    saver->stall_ns = shoali_now_ns() - called_ns;
done:
    return status;
}

/* ---- at each step --------------------------------------------------------------------------- */

uint32_t shoali_engine_asks(struct shoal_engine *engine)
{
    poll(engine);
    return (engine->step.stop_asked ? SHOALI_ZERO_STOP : 0u) |
           (engine->step.save_asked ? SHOALI_ZERO_SAVE : 0u) |
           (engine->save.saver && engine->save.saver->failed ? SHOALI_ZERO_FAILED : 0u);
}

shoal_status shoali_engine_receive_verdict(struct shoal_engine *engine,
                                           const struct shoali_zero_verdict *verdict)
{
    engine->step.stop = engine->step.stop || verdict->stop;
    engine->step.save_requested = engine->step.save_requested || verdict->save;
    if (verdict->save)
        engine->step.save_asked = 0;
    return verdict->failed ? shoal_engine_wait_save(engine) : SHOAL_OK;
}

void shoal_engine_request_save(shoal_engine *engine)
{
    engine->step.save_asked = 1;
}

bool shoal_engine_save_requested(const shoal_engine *engine)
{
    return engine->step.save_requested;
}

void shoal_engine_get_save_info(const shoal_engine *engine, shoal_save_info *info)
{
    if (info)
        *info = engine->save.info;
}
