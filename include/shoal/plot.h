/* plot.h - draws the numbers of runs as an SVG picture, and one run as an HTML page.
 *
 * A *run* is a file of JSON lines, as jsonl_monitor writes, or a folder of `--save`. Of a folder
 * the one file *.jsonl is read that is in the folder or in a folder of it. Both texts are whole:
 * they refer to no other file and to no address of a network.
 */
#ifndef SHOAL_PLOT_H
#define SHOAL_PLOT_H

#include "shoal/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shoal_plot_x {
    SHOAL_PLOT_STEP = 0,
    SHOAL_PLOT_TOKENS = 1, /* consumed samples times tokens of a sample */
    SHOAL_PLOT_TIME = 2    /* seconds spent in steps: samples over samples_per_second, summed */
} shoal_plot_x;

typedef struct shoal_plot_args {
    const char *const *runs; /* paths; one curve each */
    int32_t run_count;       /* 1 to 64 */
    /* Scalars to draw, one below the other; 0: the training loss. A name may lack its folders:
     * "lr" is "Train/Samples/lr". */
    const char *const *names;
    int32_t name_count; /* at most 16 */
    shoal_plot_x x;
    int64_t seq_length; /* tokens of a sample; 0: as the run's newest checkpoint says */
    double smooth;      /* weight of the past in an exponential mean: 0 to below 1 */
    const char *title;  /* NULL: the scalars' names */
} shoal_plot_args;

/* Draws runs as SVG. A last line that a stopped run left unfinished is ignored. *svg is owned by
 * the caller: free(). Not collective. SHOAL_ENOENT, SHOAL_EINVAL: names the file, its line or the
 * scalar, and what to change. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_plot(const shoal_plot_args *args, char **svg);

typedef struct shoal_run_page_args {
    const char *run;
    const char *lines; /* file of JSON lines; NULL: as found in the run */
    const char *log;   /* what the run printed; NULL: the one file *.log of the run */
    double smooth;     /* as above */
} shoal_run_page_args;

/* Describes a run as an HTML page: final figures, curves, memory, checkpoints, configuration, lines
 * of its log, failure report. A folder of checkpoints without lines gets a page without curves.
 * *html is owned by the caller: free(). Not collective. Errors as shoal_plot. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_run_page(const shoal_run_page_args *args, char **html);

#ifdef __cplusplus
}
#endif
#endif
