#include "comm/comms_log.h"

#include "base/plain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* DeepSpeed's names where they are not ours. */
static const char *const their_names[SHOALI_COLLECTIVE_COUNT] = {
    [SHOALI_REDUCE_SCATTER] = "reduce_scatter_tensor",
    [SHOALI_ALL_GATHER] = "all_gather_into_tensor",
    [SHOALI_ALL_TO_ALL] = "all_to_all_single",
};

enum { LATENCIES_MAX = 1 << 20 }; /* of a row that are kept; later ones count in the sum alone */

struct row {
    struct shoali_comms_call call;
    int64_t count, kept, room;
    double sum_ms;
    float *ms;
};
struct shoali_comms_log {
    struct shoali_comms_log_args args;
    bool wanted[SHOALI_COLLECTIVE_COUNT];
    pthread_mutex_t lock;
    bool paused; /* its own collectives are not what is asked for */
    struct row *row;
    int32_t rows, room;
};

static const char *name_of(enum shoali_collective kind)
{
    return their_names[kind] ? their_names[kind] : shoali_collective_name(kind);
}

static shoal_status want(struct shoali_comms_log *log, const char *name)
{
    const char *names[SHOALI_COLLECTIVE_COUNT];
    for (int kind = 0; kind < SHOALI_COLLECTIVE_COUNT; kind++) {
        names[kind] = name_of((enum shoali_collective)kind);
        if (strcmp(name, names[kind]) == 0 ||
            strcmp(name, shoali_collective_name((enum shoali_collective)kind)) == 0) {
            log->wanted[kind] = true;
            return SHOAL_OK;
        }
    }
    const char *nearest = shoali_nearest(name, names, SHOALI_COLLECTIVE_COUNT);
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "comms_logger.prof_ops: there is no collective \"%s\"%s%s%s; they are "
                      "all_reduce, reduce_scatter_tensor, all_gather_into_tensor, broadcast, "
                      "all_to_all_single, all_to_all_v, send, recv and barrier",
                      name, nearest ? "; nearest is \"" : "", nearest ? nearest : "",
                      nearest ? "\"" : "");
}

shoal_status shoali_comms_log_create(const struct shoali_comms_log_args *args,
                                     struct shoali_comms_log **out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_comms_log *log = shoali_calloc(1, sizeof *log, "the log of collectives");
    *out = NULL;
    if (!log)
        return SHOAL_ENOMEM;
    log->args = *args;
    pthread_mutex_init(&log->lock, NULL);
    for (int kind = 0; kind < SHOALI_COLLECTIVE_COUNT; kind++)
        log->wanted[kind] = args->all && kind != SHOALI_SPLIT && kind != SHOALI_COMM_ALLOC;
    for (const char *const *name = args->ops; name && *name; name++)
        SHOAL_TRY(status, want(log, *name), done);
    *out = log;
    return SHOAL_OK;
done:
    shoali_comms_log_destroy(log);
    return status;
}

void shoali_comms_log_destroy(struct shoali_comms_log *log)
{
    if (!log)
        return;
    for (int32_t i = 0; i < log->rows; i++)
        free(log->row[i].ms);
    free(log->row);
    pthread_mutex_destroy(&log->lock);
    shoali_free(log);
}

/* ---- formulas ------------------------------------------------------------------------------- */

int64_t shoali_comms_bytes(const struct shoali_post *post, int32_t ranks)
{
    if (post->kind == SHOALI_ALL_TO_ALL || post->kind == SHOALI_ALL_TO_ALL_V)
        return (int64_t)shoali_post_in_bytes(post, ranks);
    if (post->kind == SHOALI_BARRIER)
        return 0;
    return post->count * (int64_t)shoal_dtype_bytes(post->dtype);
}

/* Gbit/s. */
static void bandwidth_of(const struct shoali_comms_call *call, double milliseconds, double *algbw,
                         double *busbw)
{
    const double n = call->ranks, most = (n - 1) / n;
    const double rate = milliseconds > 0 ? (double)call->bytes / milliseconds * 8 / 1e6 : 0;
    switch (call->kind) {
    case SHOALI_ALL_TO_ALL:
    case SHOALI_ALL_TO_ALL_V:
        *algbw = rate;
        *busbw = rate * most;
        break;
    case SHOALI_ALL_GATHER:
    case SHOALI_REDUCE_SCATTER:
        *algbw = rate * n;
        *busbw = rate * n * most;
        break;
    case SHOALI_ALL_REDUCE:
        *algbw = 2 * rate;
        *busbw = rate * 2 * most;
        break;
    default:
        *algbw = *busbw = rate;
        break;
    }
}

/* "0B", "1.5 KB": DeepSpeed's way to write S. */
static const char *format_bytes(int64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 5; unit++)
        value /= 1024;
    if (bytes == 0)
        snprintf(text, 32, "0B");
    else /* two decimals that say nothing are left out, as Python's round leaves them */
        shoali_snprintf(text, 32,
                        value * 10 == (double)(int64_t)(value * 10) ? "%.1f %s" : "%.2f %s", value,
                        units[unit]);
    return text;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean without floor(count / 10) values of each end; sorts them. */
static double trimmed_mean(double *values, int64_t count)
{
    const int64_t cut = count / 10;
    double sum = 0;
    qsort(values, (size_t)count, sizeof values[0], compare);
    for (int64_t i = cut; i < count - cut; i++)
        sum += values[i];
    return sum / (double)(count - 2 * cut);
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* With the lock. */
static struct row *find_row(struct shoali_comms_log *log, const struct shoali_comms_call *call)
{
    for (int32_t i = 0; i < log->rows; i++)
        if (log->row[i].call.kind == call->kind && log->row[i].call.bytes == call->bytes &&
            log->row[i].call.ranks == call->ranks)
            return &log->row[i];
    if (log->rows == log->room) {
        const int32_t room = log->room ? 2 * log->room : 16;
        struct row *grown = realloc(log->row, (size_t)room * sizeof *grown);
        if (!grown)
            return NULL; /* a table with fewer rows is better than a run that ends */
        log->row = grown;
        log->room = room;
    }
    log->row[log->rows] = (struct row){.call = *call};
    return &log->row[log->rows++];
}

static void keep(struct row *row, double ms)
{
    row->count++;
    row->sum_ms += ms;
    if (row->kept == row->room && row->room < LATENCIES_MAX) {
        const int64_t room = row->room ? 2 * row->room : 64;
        float *grown = realloc(row->ms, (size_t)room * sizeof *grown);
        if (!grown)
            return;
        row->ms = grown;
        row->room = room;
    }
    if (row->kept < row->room)
        row->ms[row->kept++] = (float)ms;
}

void shoali_comms_log_add(struct shoali_comms_log *log, const struct shoali_comms_call *call,
                          int64_t latency_ns)
{
    const double ms = (double)latency_ns * 1e-6;
    double algbw, busbw;
    char size[32];
    if (!log->wanted[call->kind] || log->paused)
        return;
    pthread_mutex_lock(&log->lock);
    struct row *row = find_row(log, call);
    if (row)
        keep(row, ms);
    pthread_mutex_unlock(&log->lock);
    if (!log->args.verbose)
        return;
    bandwidth_of(call, ms, &algbw, &busbw);
    SHOALI_INFO("comm",
                "comm op: %s%s%s | time (ms): %.2f | msg size: %s | algbw (Gbps): %.2f | "
                "busbw (Gbps): %.2f",
                name_of(call->kind), log->args.debug ? " | at: " : "",
                log->args.debug ? call->here : "", ms, format_bytes(call->bytes, size), algbw,
                busbw);
}

/* ---- tables --------------------------------------------------------------------------------- */

static int order(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->call.kind != y->call.kind)
        return x->call.kind < y->call.kind ? -1 : 1;
    if (x->call.bytes != y->call.bytes)
        return x->call.bytes < y->call.bytes ? -1 : 1;
    return x->call.ranks - y->call.ranks;
}

static double mean_of(const struct row *row)
{
    double *values = malloc((size_t)row->kept * sizeof *values + 1);
    double mean = row->count ? row->sum_ms / (double)row->count : 0;
    for (int64_t i = 0; values && i < row->kept; i++)
        values[i] = row->ms[i];
    if (values && row->kept > 0 && row->kept == row->count)
        mean = trimmed_mean(values, row->kept);
    free(values);
    return mean;
}

static void print_rows(const struct shoali_comms_log *log, struct shoali_str *text)
{
    char size[32];
    shoali_str_append(text, "%-20s%-20s%-20s%-20s%-20s%-20s%-20s\n", "Comm. Op", "Message Size",
                      "Count", "Total Latency(ms)", "Avg Latency(ms)", "tput_avg (Gbps)",
                      "busbw_avg (Gbps)");
    for (int32_t i = 0; i < log->rows; i++) {
        const struct row *row = &log->row[i];
        double algbw, busbw;
        const double mean = mean_of(row);
        bandwidth_of(&row->call, mean, &algbw, &busbw);
        if (i == 0 || row->call.kind != log->row[i - 1].call.kind)
            shoali_str_append(text, "%s\n", name_of(row->call.kind));
        shoali_str_append(text, "%-20s%-20s%-20lld%-20.2f%-20.2f%-20.2f%-20.2f\n", "",
                          format_bytes(row->call.bytes, size), (long long)row->count, row->sum_ms,
                          mean, algbw, busbw);
    }
}

/* Do all ranks have the same rows with as many calls? */
static shoal_status is_same(const struct shoali_comms_log *log, shoal_group *group, bool *same)
{
    shoal_status status;
    uint64_t own = 0;
    for (int32_t i = 0; i < log->rows; i++) {
        const int64_t words[] = {(int64_t)own, log->row[i].call.kind, log->row[i].call.bytes,
                                 log->row[i].call.ranks, log->row[i].kept};
        own = shoali_hash64(words, sizeof words);
    }
    int64_t pair[2] = {(int64_t)(own >> 1), -(int64_t)(own >> 1)};
    SHOAL_TRY(status, shoal_all_reduce(group, pair, pair, 2, SHOAL_I64, SHOAL_MIN, NULL), done);
    *same = pair[0] == -pair[1];
done:
    return status;
}

static shoal_status print_straggler(const struct shoali_comms_log *log, shoal_group *group,
                                    struct shoali_str *text)
{
    shoal_status status;
    bool same = false;
    char size[32];
    SHOAL_TRY(status, is_same(log, group, &same), done);
    if (!same) {
        shoali_str_append(text, "no straggler effect: the ranks made different calls\n");
        return SHOAL_OK;
    }
    shoali_str_append(text,
                      "_______________________________\nBreakdown with straggler effect\n"
                      "-------------------------------\n%-20s%-20s%-20s%-20s%-20s%-20s%-20s\n",
                      "Comm. Op", "Message Size", "Count", "Total comm lat(ms)",
                      "Total straggler(ms)", "Avg comm lat(ms)", "Avg straggler(ms)");
    for (int32_t i = 0; i < log->rows; i++) {
        const struct row *row = &log->row[i];
        float *least = shoali_malloc((size_t)row->kept * sizeof *least + 1, "least latencies");
        double sum = 0, total = 0;
        if (!least) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        status = shoal_all_reduce(group, row->ms, least, row->kept, SHOAL_F32, SHOAL_MIN, NULL);
        for (int64_t k = 0; k < row->kept && status >= 0; k++) {
            sum += (double)least[k];
            total += (double)row->ms[k];
        }
        shoali_free(least);
        if (status < 0)
            goto done;
        const double n = row->kept ? (double)row->kept : 1;
        if (i == 0 || row->call.kind != log->row[i - 1].call.kind)
            shoali_str_append(text, "%s\n", name_of(row->call.kind));
        shoali_str_append(text, "%-20s%-20s%-20lld%-20.2f%-20.2f%-20.2f%-20.2f\n", "",
                          format_bytes(row->call.bytes, size), (long long)row->count, sum,
                          total - sum, sum / n, (total - sum) / n);
    }
done:
    return status;
}

shoal_status shoali_comms_log_summary(struct shoali_comms_log *log, shoal_group *group,
                                      struct shoali_str *text)
{
    shoal_status status = SHOAL_OK;
    log->paused = true;
    if (log->rows)
        qsort(log->row, (size_t)log->rows, sizeof log->row[0], order);
    print_rows(log, text);
    if (group)
        SHOAL_TRY(status, print_straggler(log, group, text), done);
    if (text->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the table of collectives");
done:
    log->paused = false;
    return status;
}
