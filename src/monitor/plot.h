/* plot - curves as SVG text, and a run as an HTML page. Level L1. The interface is shoal/plot.h.
 *
 * Terms
 *   picture   A picture has panels below each other, one title, one legend and one x axis.
 *   panel     A panel has the curves of one scalar and its own y axis.
 *   curve     A curve has the values of one run. Curve i has the same colour in every panel.
 *
 * Invariants
 *   The text is a whole <svg> element: a file as it is, and a part of an HTML page.
 *   NaN, infinities and values beyond 1e300 are gaps.
 *   A curve has at most four points per pixel of width, so its text does not grow with the run.
 *   All names are escaped; a byte that is not UTF-8 becomes '?'.
 *
 * Files
 *   plot.c        axes, ticks, curves
 *   plot_runs.c   shoal_plot: which curves a picture of runs has
 *   page.c        shoal_run_page
 */
#ifndef SHOALI_PLOT_H
#define SHOALI_PLOT_H

#include "monitor/run_read.h"
#include "shoal/plot.h"

struct shoali_curve {
    const char *label;
    const double *x, *y; /* borrowed; count */
    int64_t count;
};
struct shoali_panel {
    const char *title;
    const struct shoali_curve *curve;
    int32_t curve_count;
};
struct shoali_picture {
    const char *title, *x_name;
    int32_t width; /* pixels */
    bool legend;
    double smooth; /* of shoal_plot_args */
    const struct shoali_panel *panel;
    int32_t panel_count;
};
/* SHOAL_ENOMEM only; the text's own failure stays in `out`. */
SHOAL_CHECKED shoal_status shoali_picture_append(struct shoali_str *out,
                                                 const struct shoali_picture *picture);
/* Text for an element or an attribute. */
void shoali_append_xml(struct shoali_str *out, const char *text);

/* The x axis of a run: x[count]. SHOAL_EINVAL: the lines do not have what the axis needs. */
SHOAL_CHECKED shoal_status shoali_run_x(const struct shoali_run *run, shoal_plot_x axis,
                                        int64_t seq_length, double *x);
/* Hands a finished text over: free(). SHOAL_ENOMEM if a part of it could not be allocated. */
SHOAL_CHECKED shoal_status shoali_hand_over(struct shoali_str *out, const char *what, char **text);

#endif
