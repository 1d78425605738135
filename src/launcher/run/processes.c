/* What DeepSpeed's launcher says of a job and its processes (launcher/launch.py), in the words that
 * its users' scripts look for. Subsystem `processes`, level debug: `--log_level info` shows it
 * where the user gives that flag. */
#include "launcher/hosts/hosts.h"
#include "launcher/run/run.h"

#include "base/log.h"
#include "base/str.h"

#include <string.h>

static bool is_shown(void)
{
    return shoali_log_enabled(SHOAL_LOG_DEBUG, SHOALI_PROCESSES_LOG);
}

/* A text as Python writes it. */
static void append_quoted(struct shoali_str *line, const char *text)
{
    const char mark = strchr(text, '\'') && !strchr(text, '"') ? '"' : '\'';
    shoali_str_append(line, "%c", mark);
    for (const char *at = text; *at; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (*at == mark || *at == '\\')
            shoali_str_append(line, "\\%c", *at);
        else if (*at == '\n')
            shoali_str_append(line, "\\n");
        else if (*at == '\t')
            shoali_str_append(line, "\\t");
        else if (byte < ' ' || byte == 127)
            shoali_str_append(line, "\\x%02x", byte);
        else
            shoali_str_append(line, "%c", *at);
    }
    shoali_str_append(line, "%c", mark);
}

static void append_words(struct shoali_str *line, char *const *words)
{
    shoali_str_append(line, "[");
    for (int i = 0; words[i]; i++) {
        shoali_str_append(line, i ? ", " : "");
        append_quoted(line, words[i]);
    }
    shoali_str_append(line, "]");
}

/* {'worker-0': [0, 1]}: the slots of each host, or the numbers of its ranks. */
static void append_world(struct shoali_str *line, const struct shoali_world *world, bool ranks)
{
    shoali_str_append(line, "{");
    for (int32_t i = 0; i < world->nodes; i++) {
        const struct shoali_node *node = &world->node[i];
        shoali_str_append(line, i ? ", " : "");
        append_quoted(line, node->name);
        for (int32_t k = 0; k < node->slots.count; k++)
            shoali_str_append(line, "%s%lld", k ? ", " : ": [",
                              ranks ? (long long)node->first_rank + k
                                    : (long long)node->slots.value[k]);
        shoali_str_append(line, "]");
    }
    shoali_str_append(line, "}");
}

static void say(struct shoali_str *line)
{
    if (!line->failed)
        SHOALI_DEBUG(SHOALI_PROCESSES_LOG, "%s", shoali_str_get(line));
    shoali_str_fini(line);
}

void shoali_processes_say_world(const struct shoali_job *job, const struct shoali_world *world,
                                const char *devices)
{
    struct shoali_str line = {0};
    if (!is_shown())
        return;
    shoali_str_append(&line, "WORLD INFO DICT: ");
    append_world(&line, world, false);
    say(&line);
    SHOALI_DEBUG(SHOALI_PROCESSES_LOG, "nnodes=%d, num_local_procs=%d, node_rank=%d",
                 (int)world->nodes, (int)job->ranks, (int)job->node_rank);
    line = (struct shoali_str){0};
    shoali_str_append(&line, "global_rank_mapping=defaultdict(<class 'list'>, ");
    append_world(&line, world, true);
    shoali_str_append(&line, ")");
    say(&line);
    SHOALI_DEBUG(SHOALI_PROCESSES_LOG, "dist_world_size=%d", (int)job->world_ranks);
    if (devices)
        SHOALI_DEBUG(SHOALI_PROCESSES_LOG, "Setting CUDA_VISIBLE_DEVICES=%s", devices);
}

void shoali_processes_say_start(pid_t pid, char *const *argv)
{
    struct shoali_str line = {0};
    if (!is_shown())
        return;
    shoali_str_append(&line, "process %d spawned with command: ", (int)pid);
    append_words(&line, argv);
    say(&line);
}

void shoali_processes_say_end(pid_t pid)
{
    SHOALI_DEBUG(SHOALI_PROCESSES_LOG, "Process %d exits successfully.", (int)pid);
}

void shoali_processes_say_failure(struct shoali_job *job)
{
    struct shoali_str line = {0};
    char **argv;
    const struct shoali_rank *rank = &job->rank[job->culprit];
    if (!is_shown() || shoali_rank_arguments(job, job->culprit, &argv) < 0)
        return;
    for (int32_t i = 0; i < job->ranks; i++)
        SHOALI_DEBUG(SHOALI_PROCESSES_LOG, "Killing subprocess %d", (int)job->rank[i].pid);
    append_words(&line, argv);
    shoali_str_append(&line, " exits with return code = %d",
                      rank->signal ? -rank->signal : rank->code);
    say(&line);
}
