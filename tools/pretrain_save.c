/* Checkpoints of a run, and the signals that ask for them. */
#include "pretrain.h"

#include <signal.h>
#include <string.h>

/* The engine that a signal is for; NULL: none yet, or no more. */
static shoal_engine *volatile signalled_engine;
static volatile sig_atomic_t early_save;

static void on_stop(int number)
{
    (void)number;
    if (signalled_engine)
        shoal_engine_request_stop(signalled_engine);
}

static void on_save(int number)
{
    (void)number;
    if (signalled_engine)
        shoal_engine_request_save(signalled_engine);
    else
        early_save = 1;
}

void pretrain_expect_signals(void)
{
    signal(SIGUSR1, on_save);
}

void pretrain_take_signals(const struct pretrain *run)
{
    signalled_engine = run->engine;
    if (early_save)
        shoal_engine_request_save(run->engine);
    if (run->options.exit_signal_handler)
        signal(SIGTERM, on_stop);
}

void pretrain_drop_signals(void)
{
    signalled_engine = NULL;
}

static void say(struct pretrain *run, const char *line)
{
    if (run->progress)
        shoal_progress_message(run->progress, line);
}

void pretrain_say_saved(struct pretrain *run)
{
    char line[512];
    shoal_save_info info;
    shoal_engine_get_save_info(run->engine, &info);
    if (info.step < 0 || info.step + 1 == run->said_saved)
        return;
    run->said_saved = info.step + 1;
    snprintf(line, sizeof line, "saved step %lld to %s", (long long)info.step, run->options.save);
    if (info.staging_bytes > 0) { /* beside the training */
        const size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " in %.2f s; stall %.1f ms = %.1f %% of a step",
                 info.seconds, info.stall_ms,
                 run->step_ms > 0 ? 100 * info.stall_ms / run->step_ms : 0.0);
        if (info.waits > 0)
            snprintf(line + strlen(line), sizeof line - strlen(line),
                     ", which waited for room %lld times: checkpoint.writer.staging_buffer_size "
                     "gives more",
                     (long long)info.waits);
    }
    say(run, line);
}

shoal_status pretrain_save(struct pretrain *run)
{
    shoal_status status;
    SHOAL_TRY(status,
              shoal_engine_save_checkpoint(run->engine, run->options.save, NULL, run->client_json),
              done);
    pretrain_say_saved(run);
done:
    return status;
}

bool pretrain_wants_save(struct pretrain *run, bool due)
{
    if (!shoal_engine_save_requested(run->engine))
        return run->options.save && due;
    if (run->options.save)
        return true;
    if (!run->asked_in_vain)
        say(run, "SIGUSR1 asks for a checkpoint, and there is no --save: nothing is saved");
    run->asked_in_vain = true;
    return false;
}

shoal_status pretrain_end_saves(struct pretrain *run)
{
    shoal_status status;
    SHOAL_TRY(status, shoal_engine_wait_save(run->engine), done);
    pretrain_say_saved(run);
done:
    return status;
}
