/* What Slurm's variables say of an allocation: its nodes, and how many ranks each is to have. */
#include "launcher/cluster/cluster.h"

#include "base/plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 65536, NAME_BYTES = 256 };

int32_t shoali_environment_number(const char *name)
{
    int64_t number = 0;
    const char *text = getenv(name);
    return text && shoali_parse_i64(text, &number) && number > 0 && number < INT32_MAX
               ? (int32_t)number
               : 0;
}

/* ---- lists of hosts -------------------------------------------------------------------------- */
static bool expand(struct shoali_text_list *names, const char *before, const char *rest);

/* One number or range of a bracket, as "07-12", between what stands before and behind it. */
static bool expand_range(struct shoali_text_list *names, const char *before, const char *range,
                         const char *behind)
{
    char *end, name[NAME_BYTES];
    if (!shoali_ascii_digit(*range))
        return false;
    const unsigned long first = strtoul(range, &end, 10);
    const int digits = (int)(end - range);
    unsigned long last = first;
    if (*end == '-' && shoali_ascii_digit(end[1]))
        last = strtoul(end + 1, &end, 10);
    if (last < first || last - first >= NAMES_MAX || (*end != ',' && *end != ']'))
        return false;
    for (unsigned long number = first; number <= last; number++) {
        const int length = snprintf(name, sizeof(name), "%s%0*lu", before, digits, number);
        if (length >= NAME_BYTES || !expand(names, name, behind))
            return false;
    }
    return true;
}

/* The names that begin with `before` and go on as `rest` says, up to a comma or the end. */
static bool expand(struct shoali_text_list *names, const char *before, const char *rest)
{
    char name[NAME_BYTES];
    const size_t plain = strcspn(rest, "[,");
    const int length = snprintf(name, sizeof(name), "%s%.*s", before, (int)plain, rest);
    if (length >= NAME_BYTES || names->count >= NAMES_MAX)
        return false;
    if (rest[plain] != '[') {
        shoali_text_list_add(names, "%s", name);
        return length > 0;
    }
    const char *behind = strchr(rest + plain, ']');
    for (const char *at = rest + plain; behind && at < behind; at += 1 + strcspn(at + 1, ",]"))
        if (!expand_range(names, name, at + 1, behind + 1))
            return false;
    return behind != NULL;
}

/* Adds the names of "node[03-07,9],other2"; false: it is no such list. */
static bool add_names(const char *list, struct shoali_text_list *names)
{
    while (*list) {
        int32_t depth = 0;
        if (!expand(names, "", list))
            return false;
        for (; *list && (depth > 0 || *list != ','); list++)
            depth += *list == '[' ? 1 : *list == ']' ? -1 : 0;
        if (*list == ',' && !*++list)
            return false;
    }
    return names->count > 0 && !names->failed;
}

/* "4,1(x2)": of the index-th node; 0: it is not said. */
static int32_t tasks_of(const char *text, int32_t index)
{
    for (int32_t node = 0; text && shoali_ascii_digit(*text);) {
        char *end;
        const long tasks = strtol(text, &end, 10);
        long times = 1;
        if (strncmp(end, "(x", 2) == 0)
            times = strtol(end + 2, &end, 10);
        node += (int32_t)times;
        if (index < node)
            return tasks < INT32_MAX ? (int32_t)tasks : 0;
        end += *end == ')';
        text = *end == ',' ? end + 1 : NULL;
    }
    return 0;
}

/* ---- the world ------------------------------------------------------------------------------- */
/* How many ranks a node of the allocation is to have. salloc -N alone gives a node as many tasks as
 * it has cores, which nobody has asked for: then it is one. */
static int32_t ranks_of(const shoal_launch_args *args, int32_t index)
{
    const int32_t per_node = shoali_environment_number("SLURM_NTASKS_PER_NODE");
    if (args->ranks || per_node)
        return args->ranks ? args->ranks : per_node;
    const int32_t tasks =
        getenv("SLURM_NTASKS") ? tasks_of(getenv("SLURM_TASKS_PER_NODE"), index) : 0;
    return tasks ? tasks : 1;
}

static shoal_status add_node(const char *name, int32_t ranks, struct shoali_arena *arena,
                             struct shoali_world *world)
{
    struct shoali_node *node = &world->node[world->nodes++];
    *node = (struct shoali_node){.name = name, .first_rank = world->ranks};
    node->slots.value = shoali_arena_alloc(arena, (size_t)ranks * sizeof(int64_t));
    if (!node->slots.value)
        return SHOAL_ENOMEM;
    for (; node->slots.count < ranks; node->slots.count++)
        node->slots.value[node->slots.count] = node->slots.count;
    world->ranks += ranks;
    return SHOAL_OK;
}

shoal_status shoali_slurm_world(const shoal_launch_args *args, struct shoali_arena *arena,
                                struct shoali_world *world)
{
    shoal_status status = SHOAL_OK;
    struct shoali_text_list names = {.arena = arena};
    const char *list = getenv("SLURM_JOB_NODELIST");
    int32_t nodes = args->num_nodes ? args->num_nodes : shoali_environment_number("SLURM_NNODES");
    nodes = nodes ? nodes : 1;
    if (args->include || args->exclude)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--launcher slurm: --include and --exclude choose among the hosts of a "
                          "hostfile; without one give --num_nodes and --num_gpus, and Slurm's own "
                          "flags in --launcher_args");
    *world = (struct shoali_world){.named = list && *list && add_names(list, &names) &&
                                            names.count >= nodes};
    if (list && *list && !world->named)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num_nodes %d: the allocation has the nodes SLURM_JOB_NODELIST=%s",
                          (int)nodes, list);
    world->node = shoali_arena_alloc(arena, (size_t)nodes * sizeof(world->node[0]));
    if (!world->node)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < nodes; i++)
        SHOAL_TRY(status,
                  add_node(world->named ? shoali_text_list_at(&names, i) : "slurm",
                           ranks_of(args, i), arena, world),
                  done);
done:
    return status;
}
