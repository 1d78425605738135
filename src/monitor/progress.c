/* The live line: rewritten in place on a terminal, plain lines elsewhere. */
#include "monitor/monitor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_COLUMNS 80
#define LINE_BYTES 512

struct shoal_progress {
    shoal_progress_args args;
    bool live;              /* one line that is rewritten */
    char line[LINE_BYTES];  /* on the screen now */
    int64_t last_step;      /* of the last update; 0 none */
    bool pending;           /* plain: the last update was not printed */
    struct shoali_str text; /* kept, so that a step takes no memory */
};

/* A terminal that calls itself dumb, or nothing, may not know the sequences that clear a line. */
static bool can_rewrite(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0;
}

shoal_status shoal_progress_create(const shoal_progress_args *args, shoal_progress **progress)
{
    shoal_status status = SHOAL_OK;
    shoal_progress_args own = {0};
    *progress = NULL;
    if (args)
        own = *args;
    if (!own.out) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "progress needs a file to write to");
        goto done;
    }
    shoal_progress *made = shoali_calloc(1, sizeof(*made), "the progress line");
    if (!made) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    made->args = own;
    made->live = own.style == SHOAL_PROGRESS_LIVE ||
                 (own.style == SHOAL_PROGRESS_ASK && isatty(fileno(own.out)) && can_rewrite());
    if (own.plain_every < 1)
        made->args.plain_every = 10;
    *progress = made;
done:
    return status;
}

void shoal_progress_destroy(shoal_progress *progress)
{
    if (!progress)
        return;
    shoal_progress_finish(progress);
    shoali_str_fini(&progress->text);
    shoali_free(progress);
}

/* Asked at every line: windows are resized. A window that does not say its width may be described
 * by the variable. */
static int32_t columns_now(const shoal_progress *progress)
{
    struct winsize size;
    int64_t columns;
    const char *variable = getenv("COLUMNS");
    if (progress->args.columns > 0)
        return progress->args.columns;
    if (ioctl(fileno(progress->args.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    if (variable && shoali_parse_i64(variable, &columns) && columns > 0 && columns < LINE_BYTES)
        return (int32_t)columns;
    return DEFAULT_COLUMNS;
}

static void append_rate(struct shoali_str *line, double rate)
{
    static const char *const units[] = {"", "k", "M", "G"};
    int unit = 0;
    for (; unit < 3 && rate >= 1000; unit++)
        rate /= 1000;
    shoali_str_append(line, "  %.*f%s tok/s",
                      rate < 10    ? 2
                      : rate < 100 ? 1
                                   : 0,
                      rate, units[unit]);
}

static void append_eta(struct shoali_str *line, double seconds)
{
    if (!(seconds < 3.2e9)) /* more than a century, or NaN */
        return;
    int64_t s = (int64_t)rint(seconds), days = s / 86400;
    shoali_str_append(line, "  ETA ");
    if (days > 0)
        shoali_str_append(line, "%lldd ", (long long)days);
    if (s >= 3600)
        shoali_str_append(line, "%d:%02d:%02d", (int)(s / 3600 % 24), (int)(s / 60 % 60),
                          (int)(s % 60));
    else
        shoali_str_append(line, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

/* Parts of the line in the order in which a narrow window loses them. */
enum part { BATCH, GRAD, LR, SCALE, RATE, SKIPPED, ETA, LOSS, PART_COUNT };

/* All parts from `first` on, and the step. */
static void compose(const shoal_progress *progress, const shoal_progress_values *values, int first,
                    struct shoali_str *line)
{
    int64_t total = progress->args.total_steps;
    line->length = 0;
    shoali_str_append(line, "step %lld", (long long)values->step);
    if (total > 0)
        shoali_str_append(line, "/%lld", (long long)total);
    if (!isnan(values->loss) && first <= LOSS)
        shoali_str_append(line, "  loss %.4f", values->loss);
    if (!isnan(values->lr) && first <= LR)
        shoali_str_append(line, "  lr %.2e", values->lr);
    if (!isnan(values->grad_norm) && first <= GRAD)
        shoali_str_append(line, "  grad %.3g", values->grad_norm);
    if (values->loss_scale > 0 && values->loss_scale != 1 && first <= SCALE)
        shoali_str_append(line, "  scale %g", values->loss_scale);
    if (values->batch_size > 0 && first <= BATCH)
        shoali_str_append(line, "  batch %lld", (long long)values->batch_size);
    if (values->skipped > 0 && first <= SKIPPED)
        shoali_str_append(line, "  skipped %lld", (long long)values->skipped);
    if (!isnan(values->tokens_per_s) && first <= RATE)
        append_rate(line, values->tokens_per_s);
    if (total > values->step && first <= ETA)
        append_eta(line, (double)(total - values->step) * values->seconds_per_step);
}

static bool plain_line_due(const shoal_progress *progress, int64_t step)
{
    const shoal_progress_args *args = &progress->args;
    return step % args->plain_every == 0 || (args->total_steps > 0 && step >= args->total_steps) ||
           progress->last_step == 0;
}

/* A line longer than the window would wrap and could not be rewritten: parts are left out until it
 * is one short of the edge. One that was shown in a wider window has wrapped by now: it stays, and
 * the next begins below it. */
static void show(shoal_progress *progress, const shoal_progress_values *values)
{
    size_t room = (size_t)columns_now(progress) - 1;
    if (room > LINE_BYTES - 1)
        room = LINE_BYTES - 1;
    for (int first = 0; first <= PART_COUNT; first++) {
        compose(progress, values, first, &progress->text);
        if (progress->text.length <= room)
            break;
    }
    const char *begin = strlen(progress->line) > room ? "\n" : "\r";
    snprintf(progress->line, room + 1, "%s", shoali_str_get(&progress->text));
    fprintf(progress->args.out, "%s%s\x1b[K", begin, progress->line);
}

void shoal_progress_update(shoal_progress *progress, const shoal_progress_values *values)
{
    if (progress->live) {
        show(progress, values);
    } else {
        compose(progress, values, 0, &progress->text);
        progress->pending = !plain_line_due(progress, values->step);
        if (!progress->pending)
            fprintf(progress->args.out, "%s\n", shoali_str_get(&progress->text));
    }
    progress->last_step = values->step;
    fflush(progress->args.out);
}

void shoal_progress_message(shoal_progress *progress, const char *text)
{
    const size_t room = (size_t)columns_now(progress) - 1;
    if (progress->line[0] && strlen(progress->line) <= room) {
        fprintf(progress->args.out, "\r\x1b[K%s\n%s", text, progress->line);
    } else {
        fprintf(progress->args.out, "%s%s\n", progress->line[0] ? "\n" : "", text);
        progress->line[0] = '\0'; /* it wrapped and stays above */
    }
    fflush(progress->args.out);
}

void shoal_progress_finish(shoal_progress *progress)
{
    if (progress->line[0])
        fputc('\n', progress->args.out);
    if (progress->pending)
        fprintf(progress->args.out, "%s\n", shoali_str_get(&progress->text));
    progress->line[0] = '\0';
    progress->pending = false;
    fflush(progress->args.out);
}
