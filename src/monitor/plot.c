/* Axes, ticks and curves as SVG. */
#include "monitor/plot.h"

#include "base/plain.h"

#include <math.h>
#include <string.h>

enum { /* pixels */
       LEFT = 76,
       RIGHT = 20,
       TITLE = 40,
       LEGEND_ROW = 20,
       PANEL_TITLE = 26,
       PANEL = 220,
       TICKS = 26,
       X_NAME = 24,
       PAIR_PIXELS = 90, /* between two labels of the x axis */
       LABEL_BYTES = 90
};
#define VALUE_MAX 1e300

/* Colours that readers with a colour deficiency tell apart on white. */
static const char *const colours[] = {"#0060b0", "#d04a00", "#007a5a", "#b02a7a",
                                      "#7a5c00", "#3a3a3a", "#0090b8", "#6a3ac0"};
enum { COLOURS = sizeof colours / sizeof colours[0] };
/* After the last colour they begin again, with another dash. */
static const char *const dashes[] = {"none", "7 3", "2 3", "9 3 2 3"};
enum { DASHES = sizeof dashes / sizeof dashes[0] };

/* ---- texts ---------------------------------------------------------------------------------- */

void shoali_append_xml(struct shoali_str *out, const char *text)
{
    const size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        uint32_t code = 0;
        const int length = shoali_utf8_decode(text + at, bytes - at, &code);
        const bool control = code < 0x20 && code != '\n' && code != '\t';
        if (length == 0 || control || code == 0xfffe || code == 0xffff)
            shoali_str_append_bytes(out, "?", 1);
        else if (code == '&' || code == '<' || code == '>' || code == '"')
            shoali_str_append(out, "&#%u;", (unsigned)code);
        else
            shoali_str_append_bytes(out, text + at, (size_t)length);
        at += length ? (size_t)length : 1;
    }
}

/* The end of a long label, which tells paths apart. */
static void append_label(struct shoali_str *out, const char *label)
{
    const size_t bytes = strlen(label);
    const char *at = label;
    if (bytes > LABEL_BYTES) {
        at += bytes - LABEL_BYTES;
        while ((*at & 0xc0) == 0x80)
            at++;
        shoali_str_append(out, "...");
    }
    shoali_append_xml(out, at);
}

/* ---- ticks ---------------------------------------------------------------------------------- */

/* The power of ten at or below a positive value. */
static int exponent_of(double value)
{
    return (int)floor(log10(value) + 1e-9);
}

/* The distance of ticks: 1, 2 or 5 times a power of 10, at most `count` + 1 ticks in a range. */
static double tick_step(double range, int32_t count)
{
    const double raw = range / count;
    const double power = pow(10, exponent_of(raw));
    const double factor = raw / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

/* A value where ticks are `step` apart and at most `largest`: "2.5", "40k", "1.5e-5". */
static void append_tick(struct shoali_str *out, double value, double step, double largest)
{
    static const struct {
        double from;
        const char *suffix;
    } unit[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    const char *suffix = "";
    char power[16];
    double divisor = 1;
    if (fabs(value) < step / 2) {
        shoali_str_append(out, "0");
        return;
    }
    if (largest >= 1e15 || largest < 1e-3) {
        divisor = pow(10, exponent_of(largest));
        shoali_snprintf(power, sizeof power, "e%d", exponent_of(largest));
        suffix = power;
    }
    for (int i = 0; !*suffix && largest >= 1e4 && i < 4; i++)
        if (largest >= unit[i].from) {
            divisor = unit[i].from;
            suffix = unit[i].suffix;
        }
    const int decimals = -exponent_of(step / divisor);
    shoali_str_append(out, "%.*f%s", decimals > 0 ? decimals : 0, value / divisor, suffix);
}

/* ---- ranges --------------------------------------------------------------------------------- */

struct range {
    double low, high;
};

static bool drawn(double value)
{
    return isfinite(value) && fabs(value) <= VALUE_MAX;
}

static void widen(struct range *range, double value)
{
    if (!drawn(value))
        return;
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

/* Gives a range a length that ticks can divide, and a margin in shares of the length. */
static void finish_range(struct range *range, double margin)
{
    if (!(range->low <= range->high)) /* no value at all */
        *range = (struct range){0, 1};
    const double largest = fmax(fabs(range->low), fabs(range->high));
    const double length = range->high - range->low;
    const double pad = length > 1e-9 * largest ? margin * length : largest > 0 ? largest / 10 : 1;
    range->low -= pad;
    range->high += pad;
}

static struct range x_range_of(const struct shoali_picture *picture)
{
    struct range range = {INFINITY, -INFINITY};
    for (int32_t p = 0; p < picture->panel_count; p++)
        for (int32_t c = 0; c < picture->panel[p].curve_count; c++) {
            const struct shoali_curve *curve = &picture->panel[p].curve[c];
            for (int64_t i = 0; i < curve->count; i++)
                widen(&range, curve->x[i]);
        }
    finish_range(&range, 0);
    return range;
}

static struct range y_range_of(const struct shoali_panel *panel)
{
    struct range range = {INFINITY, -INFINITY};
    for (int32_t c = 0; c < panel->curve_count; c++)
        for (int64_t i = 0; i < panel->curve[c].count; i++)
            widen(&range, panel->curve[c].y[i]);
    finish_range(&range, 0.05);
    return range;
}

/* ---- curves --------------------------------------------------------------------------------- */

/* Where values go: a rectangle of pixels. */
struct frame {
    double left, top, width, height;
    struct range x, y;
};

static double pixel_x(const struct frame *frame, double x)
{
    return frame->left + frame->width * (x - frame->x.low) / (frame->x.high - frame->x.low);
}

static double pixel_y(const struct frame *frame, double y)
{
    return frame->top + frame->height * (frame->y.high - y) / (frame->y.high - frame->y.low);
}

/* The values of one column of pixels: its lowest and highest point. */
struct column {
    int64_t number, low, high; /* of points; low < 0: empty */
};

static void append_point(struct shoali_str *out, const struct frame *frame,
                         const struct shoali_curve *curve, int64_t i, bool *down)
{
    const double x = pixel_x(frame, curve->x[i]), y = pixel_y(frame, curve->y[i]);
    /* h0: a lone point is a dot, by the round ends of lines */
    shoali_str_append(out, *down ? "L%.1f %.1f" : "M%.1f %.1fh0", x, y);
    *down = true;
}

static void flush_column(struct shoali_str *out, const struct frame *frame,
                         const struct shoali_curve *curve, struct column *column, bool *down)
{
    if (column->low < 0)
        return;
    const int64_t first = column->low < column->high ? column->low : column->high;
    const int64_t last = column->low < column->high ? column->high : column->low;
    append_point(out, frame, curve, first, down);
    if (last != first)
        append_point(out, frame, curve, last, down);
    column->low = -1;
}

static void append_path(struct shoali_str *out, const struct frame *frame,
                        const struct shoali_curve *curve)
{
    struct column column = {.low = -1};
    bool down = false;
    for (int64_t i = 0; i < curve->count; i++) {
        if (!drawn(curve->x[i]) || !drawn(curve->y[i])) {
            flush_column(out, frame, curve, &column, &down);
            down = false;
            continue;
        }
        const int64_t number = (int64_t)(2 * pixel_x(frame, curve->x[i]));
        if (column.low >= 0 && number != column.number)
            flush_column(out, frame, curve, &column, &down);
        if (column.low < 0)
            column = (struct column){number, i, i};
        if (curve->y[i] < curve->y[column.low])
            column.low = i;
        if (curve->y[i] > curve->y[column.high])
            column.high = i;
    }
    flush_column(out, frame, curve, &column, &down);
}

/* The exponential mean; weights add up to 1 from the first value on. */
static void smooth_values(const double *values, int64_t count, double smooth, double *smoothed)
{
    double sum = 0, weight = 0;
    for (int64_t i = 0; i < count; i++) {
        smoothed[i] = NAN;
        if (!drawn(values[i]))
            continue;
        sum = smooth * sum + (1 - smooth) * values[i];
        weight = smooth * weight + (1 - smooth);
        smoothed[i] = sum / weight;
    }
}

static void append_stroke(struct shoali_str *out, int32_t number, const char *opacity)
{
    shoali_str_append(out,
                      " fill=\"none\" stroke=\"%s\" stroke-dasharray=\"%s\" stroke-width=\"1.6\" "
                      "stroke-linecap=\"round\" stroke-linejoin=\"round\" opacity=\"%s\"/>\n",
                      colours[number % COLOURS], dashes[number / COLOURS % DASHES], opacity);
}

static shoal_status append_curve(struct shoali_str *out, const struct frame *frame,
                                 const struct shoali_curve *curve, int32_t number, double smooth)
{
    shoali_str_append(out, "<path d=\"");
    append_path(out, frame, curve);
    shoali_str_append(out, "\"");
    append_stroke(out, number, smooth > 0 ? "0.25" : "1");
    if (!(smooth > 0))
        return SHOAL_OK;
    double *smoothed = shoali_calloc((size_t)curve->count + 1, sizeof *smoothed, "a smooth curve");
    if (!smoothed)
        return SHOAL_ENOMEM;
    smooth_values(curve->y, curve->count, smooth, smoothed);
    struct shoali_curve mean = *curve;
    mean.y = smoothed;
    shoali_str_append(out, "<path d=\"");
    append_path(out, frame, &mean);
    shoali_str_append(out, "\"");
    append_stroke(out, number, "1");
    shoali_free(smoothed);
    return SHOAL_OK;
}

/* ---- axes ----------------------------------------------------------------------------------- */

static void append_line(struct shoali_str *out, double x1, double y1, double x2, double y2)
{
    shoali_str_append(out, "<path d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x1, y1, x2, y2);
}

static double largest_of(const struct range *range)
{
    return fmax(fabs(range->low), fabs(range->high));
}

/* First the lines of all ticks, then their labels: each has attributes in common. */
static void append_x_axis(struct shoali_str *out, const struct frame *frame)
{
    const double bottom = frame->top + frame->height;
    const double step =
        tick_step(frame->x.high - frame->x.low, (int32_t)(frame->width / PAIR_PIXELS));
    const int64_t first = (int64_t)ceil(frame->x.low / step - 1e-9);
    const int64_t last = (int64_t)floor(frame->x.high / step + 1e-9);
    shoali_str_append(out, "<g stroke=\"#e4e4e4\">\n");
    for (int64_t i = first; i <= last; i++) {
        const double x = pixel_x(frame, (double)i * step);
        append_line(out, x, frame->top, x, bottom);
    }
    shoali_str_append(out, "</g>\n<g text-anchor=\"middle\" fill=\"#444\">\n");
    for (int64_t i = first; i <= last; i++) {
        shoali_str_append(out, "<text x=\"%.1f\" y=\"%.1f\">", pixel_x(frame, (double)i * step),
                          bottom + 17);
        append_tick(out, (double)i * step, step, largest_of(&frame->x));
        shoali_str_append(out, "</text>\n");
    }
    shoali_str_append(out, "</g>\n");
}

static void append_y_axis(struct shoali_str *out, const struct frame *frame)
{
    const double step = tick_step(frame->y.high - frame->y.low, 6);
    const int64_t first = (int64_t)ceil(frame->y.low / step - 1e-9);
    const int64_t last = (int64_t)floor(frame->y.high / step + 1e-9);
    shoali_str_append(out, "<g stroke=\"#e4e4e4\">\n");
    for (int64_t i = first; i <= last; i++) {
        const double y = pixel_y(frame, (double)i * step);
        append_line(out, frame->left, y, frame->left + frame->width, y);
    }
    shoali_str_append(out, "</g>\n<g text-anchor=\"end\" fill=\"#444\">\n");
    for (int64_t i = first; i <= last; i++) {
        shoali_str_append(out, "<text x=\"%.1f\" y=\"%.1f\">", frame->left - 7,
                          pixel_y(frame, (double)i * step) + 4.5);
        append_tick(out, (double)i * step, step, largest_of(&frame->y));
        shoali_str_append(out, "</text>\n");
    }
    shoali_str_append(out, "</g>\n");
}

/* ---- pictures ------------------------------------------------------------------------------- */

static shoal_status append_panel(struct shoali_str *out, const struct shoali_picture *picture,
                                 const struct shoali_panel *panel, struct frame *frame)
{
    shoal_status status = SHOAL_OK;
    frame->y = y_range_of(panel);
    shoali_str_append(out, "<g>\n<text x=\"%.1f\" y=\"%.1f\" font-weight=\"600\">", frame->left,
                      frame->top - 8);
    shoali_append_xml(out, panel->title);
    shoali_str_append(out, "</text>\n");
    append_x_axis(out, frame);
    append_y_axis(out, frame);
    shoali_str_append(out, "<path d=\"M%.1f %.1fv%.1fh%.1f\" fill=\"none\" stroke=\"#444\"/>\n",
                      frame->left, frame->top, frame->height, frame->width);
    for (int32_t i = 0; i < panel->curve_count; i++)
        SHOAL_TRY(status, append_curve(out, frame, &panel->curve[i], i, picture->smooth), done);
    shoali_str_append(out, "</g>\n");
done:
    return status;
}

static void append_legend(struct shoali_str *out, const struct shoali_panel *panel)
{
    for (int32_t i = 0; i < panel->curve_count; i++) {
        const int32_t y = TITLE + LEGEND_ROW * i + LEGEND_ROW / 2;
        shoali_str_append(out, "<path d=\"M%d %dh28\"", LEFT, (int)y);
        append_stroke(out, i, "1");
        shoali_str_append(out, "<text x=\"%d\" y=\"%d\">", LEFT + 36, (int)y + 5);
        append_label(out, panel->curve[i].label);
        shoali_str_append(out, "</text>\n");
    }
}

shoal_status shoali_picture_append(struct shoali_str *out, const struct shoali_picture *picture)
{
    shoal_status status = SHOAL_OK;
    const int32_t rows = picture->legend ? picture->panel[0].curve_count : 0;
    const int32_t above = TITLE + rows * LEGEND_ROW, each = PANEL_TITLE + PANEL + TICKS;
    const int32_t height = above + picture->panel_count * each + X_NAME;
    struct frame frame = {.left = LEFT, .width = picture->width - LEFT - RIGHT, .height = PANEL};
    frame.x = x_range_of(picture);
    shoali_str_append(out,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                      "viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"system-ui, sans-serif\" "
                      "font-size=\"13\">\n<title>",
                      (int)picture->width, (int)height, (int)picture->width, (int)height);
    shoali_append_xml(out, picture->title);
    shoali_str_append(out,
                      "</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                      "<text x=\"%d\" y=\"26\" font-size=\"17\" font-weight=\"600\">",
                      LEFT);
    append_label(out, picture->title);
    shoali_str_append(out, "</text>\n");
    if (picture->legend)
        append_legend(out, &picture->panel[0]);
    for (int32_t i = 0; i < picture->panel_count; i++) {
        frame.top = above + i * each + PANEL_TITLE;
        SHOAL_TRY(status, append_panel(out, picture, &picture->panel[i], &frame), done);
    }
    shoali_str_append(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                      frame.left + frame.width / 2, (int)height - 9);
    shoali_append_xml(out, picture->x_name);
    shoali_str_append(out, "</text>\n</svg>\n");
done:
    return status;
}
