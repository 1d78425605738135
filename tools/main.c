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
    {"run", "start a program on several ranks, on this machine or on several hosts", tool_run},
    {"pretrain", "train a model on text or data files", tool_pretrain},
    {"preprocess", "make data files from JSON lines", tool_preprocess},
    {"plan", "predict memory, communication and time of a training", tool_plan},
    {"generate", "generate text with a trained model", tool_generate},
    {"convert", "convert a model for transformers or DeepSpeed", tool_convert},
    {"diff", "find the first difference of two runs or two checkpoints", tool_diff},
    {"inspect", "show the contents of a file or folder: tensors, checkpoints, data", tool_inspect},
    {"checkpoint", "verify, list, show and prune checkpoints", tool_checkpoint},
    {"bench", "measure parts of a training against the machine's limits", tool_bench},
    {"tune", "find the fastest settings for this machine", tool_tune},
    {"elastic", "show which numbers of ranks an elastic configuration allows", tool_elastic},
    {"tokenizer", "train or inspect a tokenizer; encode and decode text", tool_tokenizer},
    {"top", "show what the ranks of a running job do, and the straggler", tool_top},
    {"plot", "draw loss and other numbers of runs as a picture", tool_plot},
    {"report", "show version, machine, devices, communication and kernels", tool_report},
    {"help", "show help of a subcommand, or of the configuration file (help config)", tool_help},
};

const struct tool *tool_table(size_t *count)
{
    *count = sizeof(tools) / sizeof(tools[0]);
    return tools;
}

/* What this build lacks, and the switch that left it out: from tools/CMakeLists.txt. */
static const char *const absent[][2] = {SHOAL_ABSENT_TOOLS{NULL, NULL}};

static bool say_absent(const char *name)
{
    for (size_t i = 0; absent[i][0]; i++)
        if (strcmp(absent[i][0], name) == 0) {
            fprintf(stderr, "shoal: this build has no `%s`: it was configured with %s=OFF\n", name,
                    absent[i][1]);
            return true;
        }
    return false;
}

const struct tool *tool_find(const char *name)
{
    const char *names[TOOLS_MAX];
    size_t all, count = 0;
    const struct tool *table = tool_table(&all);
    for (size_t i = 0; i < all; i++) {
        if (!table[i].run)
            continue;
        names[count++] = table[i].name;
        if (strcmp(name, table[i].name) == 0)
            return &table[i];
    }
    if (say_absent(name))
        return NULL;
    const char *nearest = shoali_nearest(name, names, count);
    fprintf(stderr, "shoal: there is no subcommand \"%s\"", name);
    if (nearest)
        fprintf(stderr, "; nearest is \"%s\"", nearest);
    for (size_t i = 0; !nearest && i < count; i++)
        fprintf(stderr, "%s%s", i ? ", " : "; there are: ", names[i]);
    fprintf(stderr, "\n"
                    "see shoal help\n");
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

/* Every rank finds a user's mistake and numbers that went wrong, and all others learn of a failing
 * one: one sentence is enough. So rank 0, or the one that failed, speaks at once; the rest wait
 * until the launcher ends them, and speak when nobody does. */
int tool_fail_of_ranks(shoal_status status, const shoal_mesh *mesh)
{
    char place[80] = "";
    const struct shoali_started job = shoali_started_get();
    const bool first = job.rank <= 0, alone = job.rank < 0;
    /* without a mesh all have only read the same files */
    const bool file = !mesh && (status == SHOAL_ECORRUPT || status == SHOAL_EIO);
    const bool alike = file || shoal_status_exit_code(status) == 2 || status == SHOAL_ENUMERIC;
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

/* Standard output is a pipe without a reader. Where SIGPIPE is ignored it ends nobody, so
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

int tool_write(const char *path, char *text)
{
    const shoal_status status = shoali_write_file_atomic(path, text, strlen(text));
    free(text);
    if (status < 0)
        fprintf(stderr, "shoal: -o %s: name a file in a folder that can be written and has room\n",
                shoal_error_message());
    return status < 0 ? 2 : 0;
}

const char *tool_take_value(int argc, char **argv, int *at, const char *flag)
{
    const size_t bytes = strlen(flag);
    if (strncmp(argv[*at], flag, bytes) != 0)
        return NULL;
    if (argv[*at][bytes] == '=')
        return argv[*at] + bytes + 1;
    if (argv[*at][bytes] != '\0')
        return NULL;
    return *at + 1 < argc ? argv[++*at] : "";
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

/* `shoal run`, `deepspeed --no_python` and torch.distributed.launch put it between a program and
 * its arguments: --local_rank=N, --local-rank=N, or two words. LOCAL_RANK has the number, too. */
static void drop_local_rank(int *argc, char **argv)
{
    int64_t number;
    const char *word = *argc > 1 ? argv[1] : "";
    const bool is_it =
        strncmp(word, "--local_rank", 12) == 0 || strncmp(word, "--local-rank", 12) == 0;
    const int words = is_it && word[12] == '\0' && *argc > 2 ? 2 : 1;
    const char *value = words == 2 ? argv[2] : is_it && word[12] == '=' ? word + 13 : "";
    if (!is_it || !shoali_parse_i64(value, &number))
        return;
    memmove(argv + 1, argv + 1 + words, (size_t)(*argc - words) * sizeof *argv);
    *argc -= words;
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    drop_local_rank(&argc, argv);
    if (argc < 2) {
        tool_help(1, argv);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("shoal %s\n", shoal_version());
        return tool_flush();
    }
    if (tool_wants_help(2, argv, NULL))
        return tool_help(1, argv);
    const struct tool *tool = tool_find(argv[1]);
    if (!tool)
        return 2;
    /* A file that grows beyond ulimit -f is an error with a sentence. Ranks of `run`, which would
     * inherit this, choose for themselves. */
    if (tool->run != tool_run)
        signal(SIGXFSZ, SIG_IGN);
    shoal_status status = shoal_log_configure(NULL, NULL, NULL); /* SHOAL_LOG */
    if (status >= 0)
        status = tool_keep_pipes(argc, argv);
    return status < 0 ? tool_fail(status) : tool->run(argc - 1, argv + 1);
}
