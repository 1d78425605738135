/* Which curves a picture of runs has. */
#include "monitor/plot.h"

#include <stdlib.h>
#include <string.h>

enum { RUNS_MAX = 64, NAMES_MAX = 16, WIDTH = 900 };

/* Also for what was found in the arenas of `runs`. */
struct picture {
    struct shoali_arena arena;
    struct shoali_run run[RUNS_MAX];
    double *x[RUNS_MAX];
    int32_t run_count; /* that were read */
};

shoal_status shoali_hand_over(struct shoali_str *out, const char *what, char **text)
{
    if (!out->failed) {
        *text = strdup(shoali_str_get(out));
        out->failed = !*text;
    }
    const bool failed = out->failed;
    shoali_str_fini(out);
    return failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of %s", what) : SHOAL_OK;
}

shoal_status shoali_run_x(const struct shoali_run *run, shoal_plot_x axis, int64_t seq_length,
                          double *x)
{
    if (axis == SHOAL_PLOT_TIME)
        return shoali_run_seconds(run, x);
    if (axis == SHOAL_PLOT_TOKENS && seq_length < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: --x tokens needs the tokens of a sample: give --seq-length N",
                          run->lines);
    for (int64_t i = 0; i < run->count; i++) {
        if (axis == SHOAL_PLOT_TOKENS && run->samples[i] < 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s: step %lld has no \"samples\", which --x tokens needs: give "
                              "--x step",
                              run->lines, (long long)run->step[i]);
        x[i] = axis == SHOAL_PLOT_TOKENS ? (double)run->samples[i] * (double)seq_length
                                         : (double)run->step[i];
    }
    return SHOAL_OK;
}

static shoal_status read_run(struct picture *picture, const shoal_plot_args *args, int32_t i)
{
    shoal_status status;
    struct shoali_run *run = &picture->run[i];
    struct shoali_run_folder folder = {0};
    int64_t seq_length = args->seq_length;
    SHOAL_TRY(status, shoali_run_read(args->runs[i], run), done);
    picture->run_count++;
    if (args->x == SHOAL_PLOT_TOKENS && seq_length < 1) {
        SHOAL_TRY(status, shoali_run_folder_read(args->runs[i], &folder), done);
        seq_length = shoali_run_folder_seq_length(&folder);
        shoali_run_folder_fini(&folder);
    }
    picture->x[i] = shoali_arena_alloc(&picture->arena, (size_t)run->count * sizeof(double));
    if (!picture->x[i]) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, shoali_run_x(run, args->x, seq_length, picture->x[i]), done);
done:
    return status;
}

static shoal_status check(const shoal_plot_args *args)
{
    if (args->run_count < 1 || args->run_count > RUNS_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, "a picture has 1 to %d runs, got %d", (int)RUNS_MAX,
                          (int)args->run_count);
    if ((int)args->x < SHOAL_PLOT_STEP || (int)args->x > SHOAL_PLOT_TIME)
        return SHOAL_FAIL(SHOAL_EINVAL, "x axis %d: give one of enum shoal_plot_x", (int)args->x);
    if (args->name_count < 0 || args->name_count > NAMES_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, "a picture has 1 to %d scalars, got %d", (int)NAMES_MAX,
                          (int)args->name_count);
    if (!(args->smooth >= 0 && args->smooth < 1))
        return SHOAL_FAIL(SHOAL_EINVAL, "smoothing is %g: give a number from 0 to below 1",
                          args->smooth);
    return SHOAL_OK;
}

/* The panel of a scalar, in the arena. */
static shoal_status make_panel(struct picture *picture, const char *name,
                               struct shoali_panel *panel)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_scalar *scalar;
    struct shoali_curve *curve =
        shoali_arena_alloc(&picture->arena, (size_t)picture->run_count * sizeof *curve);
    if (!curve)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < picture->run_count; i++) {
        const struct shoali_run *run = &picture->run[i];
        SHOAL_TRY(status, shoali_run_find(run, name, &scalar), done);
        curve[i] = (struct shoali_curve){run->path, picture->x[i], scalar->value, run->count};
        panel->title = scalar->name;
    }
    panel->curve = curve;
    panel->curve_count = picture->run_count;
done:
    return status;
}

/* The scalars' names without their folders: "train_loss, lr". */
static const char *title_of(struct picture *picture, const struct shoali_panel *panel,
                            int32_t count)
{
    struct shoali_str text = {0};
    for (int32_t i = 0; i < count; i++) {
        const char *slash = strrchr(panel[i].title, '/');
        shoali_str_append(&text, "%s%s", i ? ", " : "", slash ? slash + 1 : panel[i].title);
    }
    const char *title =
        text.failed ? NULL : shoali_arena_strdup(&picture->arena, shoali_str_get(&text));
    shoali_str_fini(&text);
    return title;
}

static shoal_status draw(struct picture *picture, const shoal_plot_args *args, char **svg)
{
    static const char *const x_names[] = {"step", "tokens", "training time (s)"};
    static const char *const loss[] = {SHOALI_LOSS_NAME};
    const char *const *names = args->name_count > 0 ? args->names : loss;
    struct shoali_panel panel[NAMES_MAX];
    struct shoali_str out = {0};
    shoal_status status = SHOAL_OK;
    struct shoali_picture whole = {.title = args->title,
                                   .x_name = x_names[args->x],
                                   .width = WIDTH,
                                   .legend = true,
                                   .smooth = args->smooth,
                                   .panel = panel,
                                   .panel_count = args->name_count > 0 ? args->name_count : 1};
    for (int32_t i = 0; i < whole.panel_count; i++)
        SHOAL_TRY(status, make_panel(picture, names[i], &panel[i]), done);
    if (!whole.title)
        whole.title = title_of(picture, panel, whole.panel_count);
    if (!whole.title) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, shoali_picture_append(&out, &whole), done);
    SHOAL_TRY(status, shoali_hand_over(&out, "a picture", svg), done);
done:
    shoali_str_fini(&out);
    return status;
}

shoal_status shoal_plot(const shoal_plot_args *args, char **svg)
{
    shoal_status status;
    struct picture *picture = NULL;
    *svg = NULL;
    SHOAL_TRY(status, check(args), done);
    picture = shoali_calloc(1, sizeof *picture, "a picture");
    if (!picture) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    shoali_arena_init(&picture->arena);
    for (int32_t i = 0; i < args->run_count; i++)
        SHOAL_TRY(status, read_run(picture, args, i), done);
    SHOAL_TRY(status, draw(picture, args, svg), done);
done:
    for (int32_t i = 0; picture && i < picture->run_count; i++)
        shoali_run_fini(&picture->run[i]);
    if (picture)
        shoali_arena_fini(&picture->arena);
    shoali_free(picture);
    return status;
}
