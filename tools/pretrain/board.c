/* Megatron's scalars in TensorBoard: --tensorboard-dir. The x axis is the iteration; that of names
 * with " vs samples" the consumed samples. The first rank writes them. */
#include "pretrain/pretrain.h"

#include "base/str.h"

#include <math.h>
#include <stdio.h>

shoal_status pretrain_open_board(struct pretrain *run)
{
    const struct pretrain_board_options *board = &run->options.board;
    if (!board->dir || !run->progress)
        return SHOAL_OK;
    if (shoali_make_dirs(board->dir) < 0)
        return shoali_error_prefix(SHOAL_EINVAL, "--tensorboard-dir");
    return shoal_monitor_create(&(shoal_monitor_args){.tensorboard_enabled = true,
                                                      .tensorboard_output_path = board->dir,
                                                      .tensorboard_job_name = "",
                                                      .goes_on = true},
                                &run->board);
}

/* At both x axes. */
static shoal_status write_twice(struct pretrain *run, int64_t iteration, int64_t samples,
                                const shoal_event *events, int32_t count)
{
    enum { MOST = 4 };
    shoal_status status;
    char name[MOST][64];
    shoal_event by_samples[MOST];
    SHOAL_ASSERT(count <= MOST);
    for (int32_t i = 0; i < count; i++) {
        snprintf(name[i], sizeof name[i], "%s vs samples", events[i].name);
        by_samples[i] = (shoal_event){name[i], events[i].value};
    }
    SHOAL_TRY(status, shoal_monitor_write(run->board, iteration, iteration, events, count), done);
    SHOAL_TRY(status, shoal_monitor_write(run->board, iteration, samples, by_samples, count), done);
done:
    return status;
}

static const char *loss_name(const struct pretrain *run)
{
    const bool pairs = pretrain_samples(&run->options) == SHOAL_SAMPLE_MASKED_PAIRS;
    return pairs ? "lm + sop loss" : "lm loss";
}

/* What flags ask for beyond loss, rate, scale and norm. */
static shoal_status write_more(struct pretrain *run, const shoal_step_info *info)
{
    const struct pretrain_board_options *board = &run->options.board;
    const int64_t iteration = info->step + 1;
    shoal_event events[4];
    int32_t count = 0;
    shoal_memory_info memory;
    if (board->timers)
        events[count++] = (shoal_event){"iteration-time", info->step_ms * 1e-3};
    if (board->world_size)
        events[count++] = (shoal_event){"world-size", (double)shoal_engine_world_size(run->engine)};
    if (board->memory) {
        shoal_engine_get_memory_info(run->engine, &memory);
        events[count++] =
            (shoal_event){"mem-max-allocated-bytes", (double)memory.device_peak_bytes};
    }
    return shoal_monitor_write(run->board, iteration, iteration, events, count);
}

shoal_status pretrain_board_step(struct pretrain *run, const shoal_step_info *info)
{
    shoal_status status;
    const struct pretrain_board_options *board = &run->options.board;
    const int64_t iteration = info->step + 1;
    shoal_event events[4];
    int32_t count = 0;
    if (!run->board || iteration % board->log_interval != 0)
        return SHOAL_OK;
    if (!board->no_learning_rate)
        events[count++] = (shoal_event){"learning-rate", info->lr};
    if (board->batch_size)
        events[count++] = (shoal_event){"batch-size", (double)info->train_batch_size};
    if (info->applied)
        events[count++] = (shoal_event){loss_name(run), info->loss};
    if (!board->no_loss_scale)
        events[count++] = (shoal_event){"loss-scale", info->loss_scale > 0 ? info->loss_scale : 1};
    const shoal_event norm = {"grad-norm", info->grad_norm};
    SHOAL_TRY(status, write_twice(run, iteration, info->consumed_samples, events, count), done);
    if (!isnan(norm.value))
        SHOAL_TRY(status, write_twice(run, iteration, info->consumed_samples, &norm, 1), done);
    SHOAL_TRY(status, write_more(run, info), done);
done:
    return status;
}

shoal_status pretrain_board_validation(struct pretrain *run, double loss)
{
    char name[2][64];
    const int64_t iteration = shoal_engine_global_steps(run->engine);
    if (!run->board)
        return SHOAL_OK;
    snprintf(name[0], sizeof name[0], "%s validation", loss_name(run));
    snprintf(name[1], sizeof name[1], "%s validation ppl", loss_name(run));
    const shoal_event events[] = {{name[0], loss}, {name[1], exp(fmin(20, loss))}};
    return write_twice(run, iteration, shoal_engine_consumed_samples(run->engine), events,
                       run->options.board.validation_ppl ? 2 : 1);
}
