/* The `shoal` program. */
#include "tool.h"

#include "base/started.h"
#include "base/str.h"
#include "shoal/log.h"
#include "shoal/report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOOLS_MAX = 64 };

static const struct tool tools[] = {
    {"run", "start a program on several ranks, of this machine or of several hosts", tool_run},
    {"pretrain", "train a model on text or data files", tool_pretrain},
    {"preprocess", "make data files of JSON lines", tool_preprocess},
    {"plan", "say what a training will need: memory, messages, time", tool_plan},
    {"generate", "write text with a trained model", tool_generate},
    {"convert", "write a model for other programs: names, type, sizes of files", tool_convert},
    {"diff", "find where two runs, or two checkpoints, differ", tool_diff},
    {"inspect", "show what is inside of a file or folder: tensors, checkpoints, data",
     tool_inspect},
    {"checkpoint", "verify, list, show and prune checkpoints", tool_checkpoint},
    {"bench", "measure a part or the whole against the machine's limit", tool_bench},
    {"tune", "find the fastest settings for this machine", tool_tune},
    {"elastic", "show which numbers of ranks a configuration allows", tool_elastic},
    {"tokenizer", "train a tokenizer, encode, decode, look into one", tool_tokenizer},
    {"top", "show what the ranks of a running job do, and which one the others wait for", tool_top},
    {"report", "show what this build finds on this machine", tool_report},
    {"help", "show help for a subcommand, or the configuration file (help config)", tool_help},
};

const struct tool *tool_table(size_t *count)
{
    *count = sizeof(tools) / sizeof(tools[0]);
    return tools;
}

const struct tool *tool_find(const char *name)
{
    const char *names[TOOLS_MAX];
    size_t count;
    const struct tool *table = tool_table(&count);
    for (size_t i = 0; i < count; i++) {
        names[i] = table[i].name;
        if (strcmp(name, names[i]) == 0)
            return &table[i];
    }
    const char *nearest = shoali_nearest(name, names, count);
    fprintf(stderr, "shoal: there is no subcommand \"%s\"", name);
    if (nearest)
        fprintf(stderr, "; nearest is \"%s\"", nearest);
    fprintf(stderr, "\nshoal help lists them\n");
    return NULL;
}

int tool_fail(shoal_status status)
{
    const char *trace = getenv("SHOAL_TRACE");
    const char *text =
        trace && strcmp(trace, "1") == 0 ? shoal_error_trace() : shoal_error_message();
    /* Flag errors already begin with the subcommand. */
    const char *prefix = strncmp(text, "shoal ", 6) == 0 ? "" : "shoal: ";
    fprintf(stderr, "%s%s\n", prefix, *text ? text : shoal_status_name(status));
    return shoal_status_exit_code(status);
}

/* What ranks agreed on, as on a save that failed: the sentence of the others begins with the rank
 * that found it, which has the word. */
static bool is_of_another(shoal_status status, int64_t rank)
{
    int failed;
    return status == SHOAL_EPEER ||
           (sscanf(shoal_error_message(), "rank %d could not ", &failed) == 1 && failed != rank);
}

/* Every rank finds a user's mistake and numbers that went wrong, and all others hear of a failing
 * one: one sentence is enough. So rank 0, or the one that failed, speaks at once; the rest wait
 * until the launcher ends them, and speak when nobody does. */
int tool_fail_of_ranks(shoal_status status, const shoal_mesh *mesh)
{
    char place[80] = "";
    const struct shoali_started job = shoali_started_get();
    const bool first = job.rank <= 0, alone = job.rank < 0;
    const bool alike = shoal_status_exit_code(status) == 2 || status == SHOAL_ENUMERIC;
    if (!is_of_another(status, job.rank) && (first || !alike))
        return tool_fail(status);
    if (!alone && nanosleep(&(struct timespec){.tv_sec = 1}, NULL) != 0)
        return shoal_status_exit_code(status);
    if (mesh)
        shoal_mesh_format(mesh, shoal_mesh_rank(mesh), place, sizeof place);
    return tool_fail(alone ? status
                           : shoali_error_prefix(status, "rank %d%s%s%s", (int)job.rank,
                                                 *place ? " (" : "", place, *place ? ")" : ""));
}

/* Standard output is a pipe that nobody reads any more. Where SIGPIPE is ignored it ends nobody, so
 * the exit code is given that it would have left. */
static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP));
}

int tool_flush(void)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    const int error = errno;
    if (reader_left())
        return 128 + SIGPIPE;
    errno = error; /* 0: it was an earlier write */
    fprintf(stderr, "shoal: cannot write to standard output%s%s\n", errno ? ": " : "",
            errno ? strerror(errno) : "");
    return 1;
}

int tool_print(char *text)
{
    (void)fputs(text, stdout); /* an error stays in the stream */
    free(text);
    return tool_flush();
}

int tool_wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
    return 0;
}

int tool_no_arguments(int argc, char **argv)
{
    if (argc < 2)
        return 0;
    fprintf(stderr, "shoal %s takes no arguments, got \"%s\"\n", argv[0], argv[1]);
    return 2;
}

/* A file that is opened must not become standard output by taking its number: what was closed is
 * held by something that cannot be written, so that errors stay errors. */
static void hold_standard_streams(void)
{
    int fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDONLY);
    if (fd > STDERR_FILENO)
        (void)close(fd);
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    if (argc < 2) {
        tool_help(1, argv);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("shoal %s\n", shoal_version());
        return tool_flush();
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return tool_help(1, argv);
    const struct tool *tool = tool_find(argv[1]);
    if (!tool)
        return 2;
    /* A file that grows beyond ulimit -f is an error with a sentence. Ranks of `run`, which would
     * inherit this, choose for themselves. */
    if (tool->run != tool_run)
        signal(SIGXFSZ, SIG_IGN);
    const shoal_status status = shoal_log_configure(NULL, NULL, NULL); /* SHOAL_LOG */
    return status < 0 ? tool_fail(status) : tool->run(argc - 1, argv + 1);
}
