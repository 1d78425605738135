/* `shoal top`: status pages of a running job, twice, and the difference. */
#include "launcher/watch/watch.h"

#include "base/base.h"
#include "comm/status_page_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { JOBS_MAX = 64, WORDS_BYTES = 65536 };
#define TOLD_NS INT64_C(2500000000)

struct job {
    char id[SHOALI_JOB_NAME_BYTES];
    int32_t ranks;   /* of its world */
    int32_t process; /* of one of its ranks here, 0: none */
    bool wanted;
};
struct search {
    const char *text; /* NULL: any */
    struct stat folder;
    bool is_folder;
    struct job job[JOBS_MAX];
    int32_t count;
};

static bool same_folder(const struct stat *folder, const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && info.st_dev == folder->st_dev && info.st_ino == folder->st_ino;
}

/* Does the process work in the folder, or has it a word that means it? */
static bool names_folder(int pid, const struct stat *folder)
{
    char path[64], cwd[4096], word[8192];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/cwd", pid);
    const ssize_t length = readlink(path, cwd, sizeof(cwd) - 1);
    if (length <= 0)
        return false;
    cwd[length] = '\0';
    if (same_folder(folder, cwd))
        return true;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
    FILE *file = fopen(path, "re");
    char *words = malloc(WORDS_BYTES);
    const size_t bytes = file && words ? fread(words, 1, WORDS_BYTES - 1, file) : 0;
    for (size_t at = 0; at < bytes && !found; at += strlen(words + at) + 1) {
        words[bytes] = '\0';
        const char *equals = strchr(words + at, '='), *name = words + at;
        if (*name == '-' && equals)
            name = equals + 1;
        snprintf(word, sizeof(word), "%s%s%s", *name == '/' ? "" : cwd, *name == '/' ? "" : "/",
                 name);
        found = *name && same_folder(folder, word);
    }
    if (file)
        fclose(file);
    free(words);
    return found;
}

static bool is_wanted(const struct search *search, const char *id,
                      const struct shoali_status_page_view *page)
{
    int64_t pid;
    if (!search->text || strcmp(search->text, id) == 0)
        return true;
    if (shoali_parse_i64(search->text, &pid))
        return page->pid == pid || strtoll(id, NULL, 10) == pid;
    return search->is_folder && names_folder((int)page->pid, &search->folder);
}

/* A process that is gone has left its status page to nobody. */
static bool lives(const struct shoali_status_page_view *page)
{
    struct shoali_process process;
    return shoali_process_read((int32_t)page->pid, &process) &&
           (int64_t)process.start == page->start && !shoali_process_has_ended(&process);
}

static bool find(void *user, const char *id, int32_t rank, bool copy)
{
    struct search *search = user;
    struct shoali_status_page_view view;
    struct shoali_status_page *page = shoali_status_page_attach(id, rank, copy);
    const bool read = page && shoali_status_page_read(page, &view);
    shoali_status_page_detach(page);
    if (!read || (!copy && !lives(&view)) || view.world < 1 ||
        view.world > SHOALI_STATUS_PAGE_RANKS_MAX)
        return true;
    int32_t i = 0;
    while (i < search->count && strcmp(search->job[i].id, id) != 0)
        i++;
    if (i == JOBS_MAX)
        return false;
    struct job *job = &search->job[i];
    if (i == search->count) {
        *job = (struct job){.ranks = (int32_t)view.world};
        snprintf(job->id, sizeof(job->id), "%s", id);
        search->count++;
    }
    if (!copy)
        job->process = (int32_t)view.pid;
    job->wanted = job->wanted || is_wanted(search, id, &view);
    return true;
}

static shoal_status find_job(struct search *search, const struct job **found)
{
    int32_t wanted = 0;
    char list[512] = "";
    size_t at = 0;
    shoali_status_pages_walk(find, search);
    for (int32_t i = 0; i < search->count; i++) {
        if (!search->job[i].wanted)
            continue;
        wanted++;
        *found = &search->job[i];
        if (at < sizeof(list) - 96)
            at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s (%d rank%s)", at ? ", " : "",
                                   search->job[i].id, (int)search->job[i].ranks,
                                   search->job[i].ranks == 1 ? "" : "s");
    }
    if (wanted == 1)
        return SHOAL_OK;
    if (wanted > 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "several jobs run: %s: name one by its id", list);
    if (search->text)
        return SHOAL_FAIL(SHOAL_ENOENT,
                          "no running job matches \"%s\": give the pid of `shoal run` or of a "
                          "rank, or a folder of the job; a job of several hosts is shown on the "
                          "machine where its `shoal run` was called",
                          search->text);
    return SHOAL_FAIL(SHOAL_ENOENT,
                      "no job of this user runs on this machine (a job of several hosts is shown "
                      "on the machine where its `shoal run` was called)");
}

/* ---- two looks ------------------------------------------------------------------------------ */

struct sample {
    const struct job *job;
    struct shoali_rank_view *before, *after;
    int64_t before_ns, after_ns;
};

static double share(int64_t from, int64_t to, int64_t of_ns)
{
    const double part = of_ns > 0 ? (double)(to - from) / (double)of_ns : 0;
    return part < 0 ? 0 : part > 1 ? 1 : part;
}

struct figures {
    double tokens_per_s, compute, wait, io, late_ms;
};

static void count_figures(const struct sample *sample, int32_t rank, struct figures *figures)
{
    const struct shoali_status_page_view *a = &sample->before[rank].page,
                                         *b = &sample->after[rank].page;
    const bool sent = b->sent_ns != 0; /* what another host has sent is as old as it is */
    const int64_t span_ns = sent ? b->sent_ns - (a->sent_ns ? a->sent_ns : b->sent_ns)
                                 : sample->after_ns - sample->before_ns;
    figures->wait = sent ? share(a->sent_wait_ns, b->sent_wait_ns, span_ns)
                         : share(a->wait_ns, b->wait_ns, span_ns);
    figures->io =
        sent ? share(a->sent_io_ns, b->sent_io_ns, span_ns) : share(a->io_ns, b->io_ns, span_ns);
    figures->compute = 1 - figures->wait - figures->io;
    figures->compute = figures->compute < 0 ? 0 : figures->compute;
    figures->tokens_per_s =
        span_ns > 0 ? (double)(b->tokens - a->tokens) / ((double)span_ns * 1e-9) : 0;
}

static void describe_now(const struct shoali_rank_view *view, char *text, size_t bytes)
{
    const struct shoali_status_page_view *page = &view->page;
    if (view->state == 'T' || view->state == 't')
        snprintf(text, bytes, "stopped");
    else if (page->failure != 0)
        snprintf(text, bytes, "failed");
    else if (page->reads)
        snprintf(text, bytes, "reads or writes");
    else if (page->waits)
        snprintf(text, bytes, "waits in %s", page->collective);
    else
        snprintf(text, bytes, "%s", page->doing[0] ? page->doing : "-");
}

static void print_rank(const struct sample *sample, int32_t rank, struct shoali_str *out)
{
    const struct shoali_rank_view *view = &sample->after[rank];
    const struct shoali_status_page_view *page = &view->page;
    struct figures figures;
    char now[64], memory[32], resident[32];
    if (!view->known) {
        shoali_str_append(out, "%4d  not joined\n", (int)rank);
        return;
    }
    count_figures(sample, rank, &figures);
    describe_now(view, now, sizeof(now));
    shoali_str_append(
        out, "%4d  %-14.14s %-16.16s %9lld %10.0f %7.0f%% %5.0f%% %5.0f%% %11s %11s  %s\n",
        (int)rank, page->host, page->name[0] ? page->name : "-", (long long)page->steps,
        figures.tokens_per_s, 100 * figures.compute, 100 * figures.wait, 100 * figures.io,
        shoali_format_bytes((double)page->memory_bytes, memory),
        view->resident_bytes ? shoali_format_bytes((double)view->resident_bytes, resident) : "-",
        now);
}

static void print_straggler(const struct sample *sample, struct shoali_str *out)
{
    struct shoali_straggler straggler;
    int64_t waited_ns = 0;
    const int32_t ranks = sample->job->ranks;
    const int32_t missing = shoali_ranks_missing(sample->after, ranks, &waited_ns);
    shoali_ranks_straggler(sample->after, ranks, &straggler);
    if (missing >= 0 && waited_ns > 1000000000)
        shoali_str_append(out, "all ranks have waited for rank %d for %.1f s\n", (int)missing,
                          (double)waited_ns * 1e-9);
    else if (straggler.rank >= 0)
        shoali_str_append(out,
                          "straggler: rank %d (%s): it reaches collectives %.1f ms after the first "
                          "rank (mean of %d)\n",
                          (int)straggler.rank, sample->after[straggler.rank].page.host,
                          straggler.late_ms, straggler.meetings);
    else
        shoali_str_append(out, "no straggler in %d collectives with known arrival times\n",
                          straggler.meetings);
}

static void print_table(const struct sample *sample, struct shoali_str *out)
{
    const struct job *job = sample->job;
    int64_t goal = 0;
    for (int32_t r = 0; r < job->ranks; r++)
        if (sample->after[r].known && sample->after[r].page.goal > goal)
            goal = sample->after[r].page.goal;
    shoali_str_append(out, "job %s: %d rank%s", job->id, (int)job->ranks,
                      job->ranks == 1 ? "" : "s");
    if (goal > 0)
        shoali_str_append(out, ", %lld steps in all", (long long)goal);
    shoali_str_append(out,
                      "\nrank  host           place                 step   tokens/s  compute   wait"
                      "    I/O      memory    resident  now\n");
    for (int32_t r = 0; r < job->ranks; r++)
        print_rank(sample, r, out);
    if (job->ranks > 1)
        print_straggler(sample, out);
}

static void print_json(const struct sample *sample, struct shoali_str *out)
{
    const struct job *job = sample->job;
    struct shoali_straggler straggler;
    bool first = true;
    shoali_ranks_straggler(sample->after, job->ranks, &straggler);
    shoali_str_append(out, "{\"job\": \"%s\", \"ranks\": [", job->id);
    for (int32_t r = 0; r < job->ranks; r++) {
        const struct shoali_status_page_view *page = &sample->after[r].page;
        struct figures figures;
        if (!sample->after[r].known)
            continue;
        count_figures(sample, r, &figures);
        shoali_str_append(
            out,
            "%s{\"rank\": %d, \"node\": %lld, \"pid\": %lld, \"step\": %lld, "
            "\"tokens_per_s\": %.1f, \"compute\": %.3f, \"wait\": %.3f, \"io\": %.3f, "
            "\"memory_bytes\": %lld, \"resident_bytes\": %lld, \"waiting\": %s}",
            first ? "" : ", ", (int)r, (long long)page->node, (long long)page->pid,
            (long long)page->steps, figures.tokens_per_s, figures.compute, figures.wait, figures.io,
            (long long)page->memory_bytes, (long long)sample->after[r].resident_bytes,
            page->waits ? "true" : "false");
        first = false;
    }
    shoali_str_append(out, "], \"straggler\": %d, \"late_ms\": %.3f, \"meetings\": %d}\n",
                      (int)straggler.rank, straggler.late_ms, (int)straggler.meetings);
}

static void rest(double seconds)
{
    struct timespec left = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0)
        continue;
}

/* Has a rank of another host been told of since? */
static bool is_told(const struct sample *sample)
{
    bool sent = true;
    for (int32_t r = 0; r < sample->job->ranks && sent; r++)
        sent = !sample->after[r].known || sample->after[r].page.sent_ns == 0 ||
               (sample->before[r].known &&
                sample->after[r].page.sent_ns != sample->before[r].page.sent_ns);
    return sent;
}

/* Two looks; hosts send their status pages once a second, so that the second may have to wait for
 * that. */
static void look_twice(struct sample *sample, double seconds)
{
    const struct job *job = sample->job;
    (void)shoali_ranks_poll(job->id, job->ranks, sample->before);
    sample->before_ns = shoali_now_ns();
    rest(seconds);
    const int64_t until_ns = shoali_deadline_ns(TOLD_NS);
    (void)shoali_ranks_poll(job->id, job->ranks, sample->after);
    while (!is_told(sample) && !shoali_deadline_passed(until_ns)) {
        rest(0.05);
        (void)shoali_ranks_poll(job->id, job->ranks, sample->after);
    }
    sample->after_ns = shoali_now_ns();
}

shoal_status shoal_top(const char *text, double seconds, int32_t json, char **out)
{
    shoal_status status;
    struct search *search = NULL;
    struct sample sample = {0};
    struct shoali_str lines = {0};
    *out = NULL;
    if (!(seconds > 0) || seconds > 3600)
        return SHOAL_FAIL(SHOAL_EINVAL, "%g s between two samples: give more than 0, at most 3600",
                          seconds);
    search = shoali_calloc(1, sizeof *search, "jobs");
    if (!search)
        return SHOAL_ENOMEM;
    search->text = text;
    search->is_folder = text && stat(text, &search->folder) == 0 && S_ISDIR(search->folder.st_mode);
    SHOAL_TRY(status, find_job(search, &sample.job), done);
    const size_t ranks = (size_t)sample.job->ranks;
    sample.before = shoali_calloc(ranks, sizeof sample.before[0], "boards");
    sample.after = shoali_calloc(ranks, sizeof sample.after[0], "boards");
    if (!sample.before || !sample.after) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    look_twice(&sample, seconds);
    if (json)
        print_json(&sample, &lines);
    else
        print_table(&sample, &lines);
    if (lines.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the table");
    else
        *out = lines.text;
done:
    if (status < 0)
        shoali_str_fini(&lines);
    shoali_free(sample.before);
    shoali_free(sample.after);
    shoali_free(search);
    return status;
}
