/* The live line: rewritten in place on a terminal, plain lines elsewhere. */
#include "monitor/monitor.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEFAULT_COLUMNS 80
#define LINE_BYTES 512

struct shoal_progress {
    shoal_progress_args args;
    char line[LINE_BYTES];  /* on the screen now */
    int64_t last_step;      /* printed or shown; 0 none */
    struct shoali_str text; /* kept, so that a step takes no memory */
};

shoal_status shoal_progress_create(const shoal_progress_args *args, shoal_progress **progress)
{
    *progress = NULL;
    if (!args->out)
        return SHOAL_FAIL(SHOAL_EINVAL, "progress needs a file to write to");
    shoal_progress *made = shoali_calloc(1, sizeof(*made), "the progress line");
    if (!made)
        return SHOAL_ENOMEM;
    made->args = *args;
    if (args->terminal < 0)
        made->args.terminal = isatty(fileno(args->out));
    if (args->plain_every < 1)
        made->args.plain_every = 10;
    *progress = made;
    return SHOAL_OK;
}

void shoal_progress_destroy(shoal_progress *progress)
{
    if (!progress)
        return;
    if (progress->line[0]) {
        fputc('\n', progress->args.out);
        fflush(progress->args.out);
    }
    shoali_str_fini(&progress->text);
    shoali_free(progress);
}

/* Asked at every line: windows are resized. */
static int32_t columns_now(const shoal_progress *progress)
{
    struct winsize size;
    if (progress->args.columns > 0)
        return progress->args.columns;
    if (ioctl(fileno(progress->args.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
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

static void compose(const shoal_progress *progress, const shoal_progress_values *values,
                    struct shoali_str *line)
{
    int64_t total = progress->args.total_steps;
    shoali_str_append(line, "step %lld", (long long)values->step);
    if (total > 0)
        shoali_str_append(line, "/%lld", (long long)total);
    if (!isnan(values->loss))
        shoali_str_append(line, "  loss %.4f", values->loss);
    if (!isnan(values->lr))
        shoali_str_append(line, "  lr %.2e", values->lr);
    if (!isnan(values->grad_norm))
        shoali_str_append(line, "  grad %.3g", values->grad_norm);
    if (values->loss_scale > 0 && values->loss_scale != 1)
        shoali_str_append(line, "  scale %g", values->loss_scale);
    if (values->skipped > 0)
        shoali_str_append(line, "  skipped %lld", (long long)values->skipped);
    if (!isnan(values->tokens_per_s))
        append_rate(line, values->tokens_per_s);
    if (total > values->step)
        append_eta(line, (double)(total - values->step) * values->seconds_per_step);
}

static bool plain_line_due(const shoal_progress *progress, int64_t step)
{
    const shoal_progress_args *args = &progress->args;
    return step % args->plain_every == 0 || (args->total_steps > 0 && step >= args->total_steps) ||
           progress->last_step == 0;
}

/* A line longer than the window would wrap and could not be rewritten: cut one short of the edge.
 */
static void show(shoal_progress *progress, const char *text)
{
    size_t room = (size_t)columns_now(progress) - 1;
    if (room > LINE_BYTES - 1)
        room = LINE_BYTES - 1;
    snprintf(progress->line, room + 1, "%s", text);
    fprintf(progress->args.out, "\r%s\x1b[K", progress->line);
}

void shoal_progress_update(shoal_progress *progress, const shoal_progress_values *values)
{
    struct shoali_str *line = &progress->text;
    line->length = 0;
    compose(progress, values, line);
    if (progress->args.terminal)
        show(progress, shoali_str_get(line));
    else if (plain_line_due(progress, values->step))
        fprintf(progress->args.out, "%s\n", shoali_str_get(line));
    progress->last_step = values->step;
    fflush(progress->args.out);
}

void shoal_progress_message(shoal_progress *progress, const char *text)
{
    if (progress->line[0])
        fprintf(progress->args.out, "\r\x1b[K%s\n%s", text, progress->line);
    else
        fprintf(progress->args.out, "%s\n", text);
    fflush(progress->args.out);
}
