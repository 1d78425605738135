/* draw.c - a timeline as a picture: a row per stage, a box per computation. */
#include "pipeline_parallel/pipeline_parallel.h"

#include "base/str.h"

enum {
    WIDTH = 1200,
    MARGIN = 16,
    LABEL = 72, /* of a row, in front of its boxes */
    ROW = 30,   /* height of a box */
    GAP = 6,    /* between rows */
    HEAD = 34,  /* above the first row */
    FOOT = 40,  /* below the last: the legend */
    DIGIT = 7,  /* width of one in a box */
    KINDS = 4,
    SWATCH = 130 /* width of an entry of the legend */
};

/* Of later chunks the same colours, paler. */
static const struct {
    const char *name, *color;
} kinds[KINDS] = {[SHOALI_FORWARD] = {"forward", "#4e79a7"},
                  [SHOALI_BACKWARD] = {"backward", "#f28e2b"},
                  [SHOALI_BACKWARD_INPUT] = {"of inputs", "#f28e2b"},
                  [SHOALI_BACKWARD_WEIGHT] = {"of weights", "#59a14f"}};

static void draw_box(const struct shoali_compute *one, int32_t chunks, double left, double width,
                     int32_t top, struct shoali_str *svg)
{
    const double strength = 1 - 0.6 * (double)one->chunk / (double)chunks;
    const int32_t digits = one->micro > 99 ? 3 : one->micro > 9 ? 2 : 1;
    shoali_str_append(svg,
                      "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
                      "fill-opacity=\"%.2f\" stroke=\"#fff\" stroke-width=\"0.5\"/>\n",
                      left, top, width, ROW, kinds[one->kind].color, strength);
    if (width > digits * DIGIT + 2)
        shoali_str_append(svg, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                          left + width / 2, top + ROW / 2 + 4, one->micro);
}

static void draw_stage(const struct shoali_orders *orders, const struct shoali_timeline *timeline,
                       int32_t stage, struct shoali_str *svg)
{
    const double scale = (WIDTH - 2 * MARGIN - LABEL) / timeline->makespan;
    const int32_t top = HEAD + stage * (ROW + GAP);
    shoali_str_append(svg, "<text x=\"%d\" y=\"%d\">stage %d</text>\n", MARGIN, top + ROW / 2 + 4,
                      stage);
    shoali_str_append(svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#eee\"/>\n",
                      MARGIN + LABEL, top, WIDTH - 2 * MARGIN - LABEL, ROW);
    for (int32_t i = 0; i < orders->count; i++) {
        const double begin = timeline->begin[stage][i];
        draw_box(&orders->list[stage][i], orders->args.chunks, MARGIN + LABEL + begin * scale,
                 (timeline->end[stage][i] - begin) * scale, top, svg);
    }
}

static void draw_legend(const struct shoali_orders *orders, int32_t top, struct shoali_str *svg)
{
    bool seen[KINDS] = {false};
    int32_t left = MARGIN + LABEL;
    for (int32_t i = 0; i < orders->count; i++)
        seen[orders->list[0][i].kind] = true;
    for (int kind = 0; kind < KINDS; kind++) {
        if (!seen[kind])
            continue;
        shoali_str_append(svg,
                          "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n"
                          "<text x=\"%d\" y=\"%d\">%s</text>\n",
                          left, top, kinds[kind].color, left + 18, top + 10, kinds[kind].name);
        left += SWATCH;
    }
    shoali_str_append(svg, "<text x=\"%d\" y=\"%d\">numbers: micro-batches%s</text>\n", left,
                      top + 10, orders->args.chunks > 1 ? "; paler: later chunks" : "");
}

double shoali_timeline_bubble(const struct shoali_timeline *timeline)
{
    return timeline->makespan / timeline->ideal - 1;
}

void shoali_timeline_draw(const struct shoali_orders *orders,
                          const struct shoali_timeline *timeline, struct shoali_str *svg)
{
    const struct shoali_pipeline_args *args = &orders->args;
    const int32_t height = HEAD + args->stages * (ROW + GAP) + FOOT;
    shoali_str_append(svg,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                      "font-family=\"sans-serif\" font-size=\"12\">\n"
                      "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                      "<text x=\"%d\" y=\"20\">%s: %d stages",
                      WIDTH, height, MARGIN, shoali_pipeline_schedule_name(args->schedule),
                      args->stages);
    if (args->chunks > 1)
        shoali_str_append(svg, " of %d chunks", args->chunks);
    shoali_str_append(svg, ", %d micro-batches, bubble %.1f %% of the time without one</text>\n",
                      args->micro_batches, 100 * shoali_timeline_bubble(timeline));
    for (int32_t stage = 0; stage < args->stages; stage++)
        draw_stage(orders, timeline, stage, svg);
    draw_legend(orders, HEAD + args->stages * (ROW + GAP) + 12, svg);
    shoali_str_append(svg, "</svg>\n");
}
