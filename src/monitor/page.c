/* A run as an HTML page. */
#include "monitor/plot.h"

#include "base/plain.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 620 }; /* pixels of a picture */

struct page {
    struct shoali_str out;
    const shoal_run_page_args *args;
    bool has_lines;
    struct shoali_run run; /* has_lines */
    struct shoali_run_folder folder;
    char *log; /* owned; NULL: there is none */
};

/* Narrow screens: tables and pictures scroll in a box of their own, and the page does not. */
static const char head[] =
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<style>\n"
    "body{font:16px/1.5 system-ui,sans-serif;color:#1d1d1d;background:#fff;max-width:60rem;"
    "margin:0 auto;padding:1rem}\n"
    "h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.2rem;margin-top:2rem}\n"
    "table{border-collapse:collapse}\n"
    "th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #ddd;"
    "vertical-align:top}\n"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".box{overflow-x:auto;max-width:100%}\n"
    ".box svg{display:block;max-width:100%;min-width:30rem;height:auto}\n"
    "pre{background:#f4f4f4;padding:.8rem;overflow-x:auto;margin:0}\n"
    ".failure pre{border-left:4px solid #b00020}\n"
    "summary{cursor:pointer;padding:.3rem 0}\n"
    ":focus-visible{outline:2px solid #0060b0;outline-offset:2px}\n"
    "</style>\n";

/* ---- parts of a page ------------------------------------------------------------------------ */

static void append(struct page *page, const char *html)
{
    shoali_str_append(&page->out, "%s", html);
}

static void begin_section(struct page *page, const char *kind, const char *heading)
{
    shoali_str_append(&page->out, "<section class=\"%s\">\n<h2>%s</h2>\n", kind, heading);
}

/* A box that scrolls can have the keyboard's focus, and has a name for screen readers. */
static void begin_box(struct page *page, const char *label)
{
    append(page, "<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"");
    shoali_append_xml(&page->out, label);
    append(page, "\">\n");
}

static void append_row(struct page *page, const char *name, const char *value)
{
    append(page, "<tr><th scope=\"row\">");
    shoali_append_xml(&page->out, name);
    append(page, "</th><td>");
    shoali_append_xml(&page->out, value);
    append(page, "</td></tr>\n");
}

static const char *short_name(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* A value as its name wants it: bytes for people, other numbers with six digits. */
static const char *format_value(const char *name, double value, char *text, size_t bytes)
{
    if (!isfinite(value))
        shoali_snprintf(text, bytes, "not finite");
    else if (strstr(name, "bytes") && bytes >= 32)
        shoali_format_bytes(value, text);
    else
        shoali_snprintf(text, bytes, "%.6g", value);
    return text;
}

/* ---- figures -------------------------------------------------------------------------------- */

struct extent {
    double last, low, high; /* NaN: no finite value */
};

static struct extent extent_of(const struct shoali_run *run, const struct shoali_scalar *scalar)
{
    struct extent extent = {NAN, NAN, NAN};
    for (int64_t i = 0; i < run->count; i++) {
        if (!isfinite(scalar->value[i]))
            continue;
        extent.last = scalar->value[i];
        extent.low = fmin(extent.low, scalar->value[i]);
        extent.high = fmax(extent.high, scalar->value[i]);
    }
    return extent;
}

static shoal_status append_totals(struct page *page)
{
    const struct shoali_run *run = &page->run;
    const int64_t samples = run->samples[run->count - 1];
    const int64_t seq_length = shoali_run_folder_seq_length(&page->folder);
    char text[64];
    double *seconds = shoali_calloc((size_t)run->count, sizeof *seconds, "the time of steps");
    if (!seconds)
        return SHOAL_ENOMEM;
    const shoal_status status = shoali_run_seconds(run, seconds);
    append(page, "<table>\n");
    snprintf(text, sizeof text, "%lld to %lld", (long long)run->step[0],
             (long long)run->step[run->count - 1]);
    append_row(page, "steps", text);
    if (samples >= 0) {
        snprintf(text, sizeof text, "%lld", (long long)samples);
        append_row(page, "samples", text);
    }
    if (samples >= 0 && seq_length > 0)
        append_row(page, "tokens", shoali_format_count((double)samples * (double)seq_length, text));
    if (status == SHOAL_OK) {
        shoali_snprintf(text, sizeof text, "%.1f s", seconds[run->count - 1]);
        append_row(page, "time in steps", text);
    } else {
        shoali_error_clear(); /* lines without a speed have no time */
    }
    append(page, "</table>\n");
    shoali_free(seconds);
    return SHOAL_OK;
}

static shoal_status append_figures(struct page *page)
{
    shoal_status status;
    char text[3][64];
    begin_section(page, "figures", "Final figures");
    SHOAL_TRY(status, append_totals(page), done);
    begin_box(page, "Final figures");
    append(page, "<table>\n<thead><tr><th scope=\"col\">scalar</th><th class=\"n\" scope=\"col\">"
                 "last</th><th class=\"n\" scope=\"col\">minimum</th><th class=\"n\" "
                 "scope=\"col\">maximum</th></tr></thead>\n<tbody>\n");
    for (int32_t i = 0; i < page->run.scalar_count; i++) {
        const struct shoali_scalar *scalar = &page->run.scalar[i];
        const struct extent extent = extent_of(&page->run, scalar);
        append(page, "<tr><th scope=\"row\">");
        shoali_append_xml(&page->out, scalar->name);
        shoali_str_append(
            &page->out,
            "</th><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
            format_value(scalar->name, extent.last, text[0], sizeof text[0]),
            format_value(scalar->name, extent.low, text[1], sizeof text[1]),
            format_value(scalar->name, extent.high, text[2], sizeof text[2]));
    }
    append(page, "</tbody>\n</table>\n</div>\n</section>\n");
done:
    return status;
}

/* ---- curves --------------------------------------------------------------------------------- */

static bool is_main(const char *name)
{
    static const char *const names[] = {"train_loss", "lr", "grad_norm", "samples_per_second"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(short_name(name), names[i]) == 0)
            return true;
    return false;
}

static shoal_status append_scalar(struct page *page, const struct shoali_scalar *scalar,
                                  const double *x)
{
    shoal_status status;
    const struct shoali_curve curve = {page->run.path, x, scalar->value, page->run.count};
    const struct shoali_panel panel = {scalar->name, &curve, 1};
    const struct shoali_picture picture = {.title = short_name(scalar->name),
                                           .x_name = "step",
                                           .width = WIDTH,
                                           .smooth = page->args->smooth,
                                           .panel = &panel,
                                           .panel_count = 1};
    begin_box(page, picture.title);
    SHOAL_TRY(status, shoali_picture_append(&page->out, &picture), done);
    append(page, "</div>\n");
done:
    return status;
}

/* Scalars that are `main`, or all others. */
static shoal_status append_scalars(struct page *page, bool main, const double *x)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < page->run.scalar_count; i++)
        if (is_main(page->run.scalar[i].name) == main)
            SHOAL_TRY(status, append_scalar(page, &page->run.scalar[i], x), done);
done:
    return status;
}

static shoal_status append_curves(struct page *page)
{
    shoal_status status;
    double *x = shoali_calloc((size_t)page->run.count, sizeof *x, "the steps of a run");
    if (!x)
        return SHOAL_ENOMEM;
    begin_section(page, "curves", "Curves");
    SHOAL_TRY(status, shoali_run_x(&page->run, SHOAL_PLOT_STEP, 0, x), done);
    SHOAL_TRY(status, append_scalars(page, true, x), done);
    append(page, "<details>\n<summary>Other scalars</summary>\n");
    SHOAL_TRY(status, append_scalars(page, false, x), done);
    append(page, "</details>\n</section>\n");
done:
    shoali_free(x);
    return status;
}

/* ---- log ------------------------------------------------------------------------------------ */

/* Calls `take` for each line, without its newline and without what a carriage return replaced. */
static void each_line(const char *text, void (*take)(void *context, const char *line, size_t bytes),
                      void *context)
{
    for (const char *at = text; *at;) {
        size_t bytes = strcspn(at, "\n");
        const char *next = at + bytes + (at[bytes] == '\n');
        if (bytes > 0 && at[bytes - 1] == '\r')
            bytes--;
        for (size_t i = bytes; i > 0; i--)
            if (at[i - 1] == '\r') {
                at += i;
                bytes -= i;
                break;
            }
        take(context, at, bytes);
        at = next;
    }
}

#define LAUNCHER "[shoal run] "

/* The last failure report: its first line says how a rank or host ended, indented ones follow. */
struct failure {
    struct shoali_str text;
    bool inside;
};

static bool line_has(const char *line, size_t bytes, const char *word)
{
    const size_t wanted = strlen(word);
    for (size_t i = 0; i + wanted <= bytes; i++)
        if (memcmp(line + i, word, wanted) == 0)
            return true;
    return false;
}

static void take_failure(void *context, const char *line, size_t bytes)
{
    static const char *const words[] = {
        "was killed by signal", "exited with code",    "has made no progress", "does not answer",
        "connection is gone",   "has started no rank", "wait for each other",  "cannot start"};
    struct failure *failure = context;
    const size_t prefix = strlen(LAUNCHER);
    if (bytes < prefix || memcmp(line, LAUNCHER, prefix) != 0)
        return;
    const bool indented = bytes > prefix && line[prefix] == ' ';
    bool first = false;
    for (size_t i = 0; !indented && i < sizeof words / sizeof words[0]; i++)
        first = first || line_has(line, bytes, words[i]);
    if (first) {
        const bool failed = failure->text.failed;
        shoali_str_fini(&failure->text);
        failure->text = (struct shoali_str){.failed = failed};
    }
    failure->inside = first || (indented && failure->inside);
    if (failure->inside) {
        shoali_str_append_bytes(&failure->text, line, bytes);
        shoali_str_append_bytes(&failure->text, "\n", 1);
    }
}

static void append_failure(struct page *page)
{
    struct failure failure = {0};
    if (page->log)
        each_line(page->log, take_failure, &failure);
    if (failure.text.length > 0) {
        begin_section(page, "failure", "Failure report");
        append(page, "<pre tabindex=\"0\">");
        shoali_append_xml(&page->out, shoali_str_get(&failure.text));
        append(page, "</pre>\n</section>\n");
    }
    page->out.failed = page->out.failed || failure.text.failed;
    shoali_str_fini(&failure.text);
}

/* What a run prints of its ranks, mesh, model, data, batch and memory. */
static const char *const fact_names[] = {"ranks", "mesh", "model", "data", "batch", "memory"};
enum { FACTS = sizeof fact_names / sizeof fact_names[0] };

struct facts { /* of each the last line */
    const char *line[FACTS];
    size_t bytes[FACTS];
};

static void take_fact(void *context, const char *line, size_t bytes)
{
    struct facts *facts = context;
    for (int i = 0; i < FACTS; i++) {
        const size_t name = strlen(fact_names[i]);
        if (bytes > name + 2 && memcmp(line, fact_names[i], name) == 0 &&
            memcmp(line + name, ": ", 2) == 0) {
            facts->line[i] = line + name + 2;
            facts->bytes[i] = bytes - name - 2;
        }
    }
}

static void append_facts(struct page *page)
{
    struct facts facts = {0};
    bool any = false;
    each_line(page->log, take_fact, &facts);
    for (int i = 0; i < FACTS; i++) {
        if (!facts.line[i])
            continue;
        if (!any) {
            begin_section(page, "job", "Job");
            begin_box(page, "Job");
            append(page, "<table>\n");
        }
        any = true;
        struct shoali_str value = {0};
        shoali_str_append_bytes(&value, facts.line[i], facts.bytes[i]);
        append_row(page, fact_names[i], shoali_str_get(&value));
        page->out.failed = page->out.failed || value.failed;
        shoali_str_fini(&value);
    }
    if (any)
        append(page, "</table>\n</div>\n</section>\n");
}

/* ---- checkpoints and configuration ---------------------------------------------------------- */

static void append_checkpoints(struct page *page)
{
    if (page->folder.count == 0)
        return;
    begin_section(page, "checkpoints", "Checkpoints");
    begin_box(page, "Checkpoints");
    append(page, "<table>\n<thead><tr><th scope=\"col\">name</th><th class=\"n\" scope=\"col\">"
                 "step</th><th class=\"n\" scope=\"col\">size</th><th scope=\"col\">saved</th></tr>"
                 "</thead>\n<tbody>\n");
    for (int32_t i = 0; i < page->folder.count; i++) {
        const struct shoali_run_checkpoint *checkpoint = &page->folder.checkpoint[i];
        const time_t seconds = (time_t)checkpoint->seconds;
        struct tm utc;
        char size[32], date[64] = "";
        if (gmtime_r(&seconds, &utc))
            strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &utc);
        append(page, "<tr><th scope=\"row\">");
        shoali_append_xml(&page->out, checkpoint->tag);
        shoali_str_append(&page->out,
                          "</th><td class=\"n\">%lld</td><td class=\"n\">%s</td><td>%s</td></tr>\n",
                          (long long)checkpoint->step,
                          shoali_format_bytes((double)checkpoint->bytes, size), date);
    }
    append(page, "</tbody>\n</table>\n</div>\n<p>The command <code>shoal checkpoint verify "
                 "DIR</code> compares their hashes.</p>\n</section>\n");
}

/* Rows of an object's members; those of an object in it after its name. */
static shoal_status append_members(struct page *page, const json_t *object, const char *before)
{
    shoal_status status = SHOAL_OK;
    const char *key;
    json_t *value;
    struct shoali_str name = {0};
    char *text = NULL;
    json_object_foreach((json_t *)object, key, value)
    {
        shoali_str_fini(&name);
        name = (struct shoali_str){0};
        shoali_str_append(&name, "%s%s", before, key);
        page->out.failed = page->out.failed || name.failed;
        if (json_is_object(value)) {
            shoali_str_append(&name, ".");
            SHOAL_TRY(status, append_members(page, value, shoali_str_get(&name)), done);
            continue;
        }
        if (json_is_string(value)) {
            append_row(page, shoali_str_get(&name), json_string_value(value));
            continue;
        }
        SHOAL_TRY(status,
                  shoali_json_write(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(7),
                                    "a value of the configuration", &text),
                  done);
        append_row(page, shoali_str_get(&name), text);
        free(text);
        text = NULL;
    }
done:
    free(text);
    shoali_str_fini(&name);
    return status;
}

static shoal_status append_configuration(struct page *page)
{
    shoal_status status = SHOAL_OK;
    const struct {
        const char *heading;
        const json_t *object;
    } part[] = {{"Model, data and tokenizer", json_object_get(page->folder.manifest, "client")},
                {"Training", json_object_get(page->folder.manifest, "engine")}};
    if (!page->folder.manifest)
        return SHOAL_OK;
    begin_section(page, "configuration", "Configuration");
    append(page, "<p>As the newest checkpoint records it.</p>\n");
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        if (!part[i].object)
            continue;
        shoali_str_append(&page->out, "<details open>\n<summary>%s</summary>\n", part[i].heading);
        begin_box(page, part[i].heading);
        append(page, "<table>\n");
        SHOAL_TRY(status, append_members(page, part[i].object, ""), done);
        append(page, "</table>\n</div>\n</details>\n");
    }
    append(page, "</section>\n");
done:
    return status;
}

/* ---- the page ------------------------------------------------------------------------------- */

static shoal_status read_log(struct page *page)
{
    shoal_status status = SHOAL_OK;
    const char *path = page->args->log;
    struct shoali_arena arena;
    size_t bytes;
    shoali_arena_init(&arena);
    if (!path && shoali_run_is_folder(page->args->run)) {
        status = shoali_run_find_file(&arena, page->args->run, ".log", &path);
        if (status == SHOAL_EINVAL) { /* several: none of them is the run's own */
            shoali_error_clear();
            status = SHOAL_OK;
            path = NULL;
        }
    }
    if (status == SHOAL_OK && path)
        status = shoali_read_file(path, &page->log, &bytes);
    shoali_arena_fini(&arena);
    return status;
}

/* A folder of checkpoints is enough for a page, also without lines. */
static shoal_status read_page(struct page *page)
{
    shoal_status status;
    struct shoali_arena arena;
    const char *lines = page->args->lines;
    const char *run = page->args->run;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_run_folder_read(run, &page->folder), done);
    if (!lines && shoali_run_is_folder(run))
        SHOAL_TRY(status, shoali_run_find_file(&arena, run, ".jsonl", &lines), done);
    if (lines || page->folder.count == 0) {
        SHOAL_TRY(status, shoali_run_read(lines ? lines : run, &page->run), done);
        page->has_lines = true;
    }
    SHOAL_TRY(status, read_log(page), done);
done:
    shoali_arena_fini(&arena);
    return status;
}

static shoal_status write_page(struct page *page)
{
    shoal_status status = SHOAL_OK;
    append(page, "<!doctype html>\n<html lang=\"en\">\n<head>\n<title>Run ");
    shoali_append_xml(&page->out, page->args->run);
    append(page, "</title>\n");
    append(page, head);
    append(page, "</head>\n<body>\n<main>\n<h1>Run ");
    shoali_append_xml(&page->out, page->args->run);
    append(page, "</h1>\n");
    append_failure(page);
    if (page->has_lines) {
        SHOAL_TRY(status, append_figures(page), done);
        SHOAL_TRY(status, append_curves(page), done);
    } else {
        append(page,
               "<p>There are no curves, because the folder has no lines of numbers (*.jsonl). "
               "Enable <code>jsonl_monitor</code> in the configuration, or name its file by "
               "<code>--lines</code>.</p>\n");
    }
    if (page->log)
        append_facts(page);
    append_checkpoints(page);
    SHOAL_TRY(status, append_configuration(page), done);
    append(page, "</main>\n</body>\n</html>\n");
done:
    return status;
}

shoal_status shoal_run_page(const shoal_run_page_args *args, char **html)
{
    shoal_status status;
    struct page page = {.args = args};
    *html = NULL;
    if (!(args->smooth >= 0 && args->smooth < 1))
        return SHOAL_FAIL(SHOAL_EINVAL, "smoothing is %g: give a number from 0 to below 1",
                          args->smooth);
    SHOAL_TRY(status, read_page(&page), done);
    SHOAL_TRY(status, write_page(&page), done);
    SHOAL_TRY(status, shoali_hand_over(&page.out, "a page", html), done);
done:
    if (page.has_lines)
        shoali_run_fini(&page.run);
    shoali_run_folder_fini(&page.folder);
    shoali_str_fini(&page.out);
    free(page.log);
    return status;
}
