/* Who is there, and who of them is which rank. */
#include "launcher/elastic/elastic.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_NS INT64_C(5000000000)
#define ENDING_NS INT64_C(1000000000)

/* A step of its own says whether a node of the allocation takes one. */
static void add_step(const struct shoali_node *node, struct shoali_text_list *words)
{
    shoali_text_list_add(words, "srun");
    shoali_text_list_add(words, "--overlap");
    shoali_text_list_add(words, "--nodes=1");
    shoali_text_list_add(words, "--ntasks=1");
    shoali_text_list_add(words, "--input=none");
    shoali_text_list_add(words, "--nodelist=%s", node->name);
}

static shoal_status call(const struct shoali_front *front, const struct shoali_node *node,
                         struct shoali_calls *calls, int32_t index)
{
    shoal_status status = SHOAL_OK;
    struct shoali_text_list words = {.arena = front->arena};
    if (node->here && front->launcher != SHOALI_BY_PDSH) { /* this machine */
        calls->here[index] = true;
        return SHOAL_OK;
    }
    if (front->launcher == SHOALI_BY_SLURM)
        add_step(node, &words);
    else
        SHOAL_TRY(status, shoali_ssh_command(front, node, &words), done);
    shoali_text_list_add(&words, "true");
    if (words.failed) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    const struct shoali_start start = {
        .words = &words, .input = -1, .output = -1, .errors = -1, .silent = true};
    SHOAL_TRY(status, shoali_start(&start, front->arena, &calls->pid[index]), done);
done:
    return status;
}

shoal_status shoali_calls_begin(const struct shoali_front *front, const struct shoali_world *world,
                                const bool *known, struct shoali_calls *calls)
{
    shoal_status status = SHOAL_OK;
    const size_t nodes = (size_t)world->nodes;
    calls->pid = shoali_arena_alloc(front->arena, nodes * sizeof(calls->pid[0]));
    calls->here = shoali_arena_alloc(front->arena, nodes * sizeof(calls->here[0]));
    calls->deadline_ns = shoali_deadline_ns(ANSWER_NS);
    if (!calls->pid || !calls->here)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < world->nodes && status == SHOAL_OK; i++) {
        if (known && known[i])
            calls->here[i] = true;
        else
            status = call(front, &world->node[i], calls, i);
    }
    if (status < 0)
        shoali_calls_end(world, calls);
    return status;
}

bool shoali_calls_test(const struct shoali_world *world, struct shoali_calls *calls)
{
    int32_t open = 0;
    for (int32_t i = 0; i < world->nodes; i++) {
        int how = 0;
        if (calls->pid[i] <= 0)
            continue;
        const pid_t ended = waitpid(calls->pid[i], &how, WNOHANG);
        if (ended == 0) {
            open++;
            continue;
        }
        calls->here[i] = ended > 0 && WIFEXITED(how) && WEXITSTATUS(how) == 0;
        calls->pid[i] = 0;
    }
    return open == 0 || shoali_deadline_passed(calls->deadline_ns);
}

static void end_call(pid_t pid, int signal)
{
    kill(-pid, signal);
    kill(pid, signal); /* where it has not yet become a group */
}

/* srun takes back its step when it is asked to end; one that is killed leaves it behind. */
void shoali_calls_end(const struct shoali_world *world, struct shoali_calls *calls)
{
    const int64_t deadline_ns = shoali_deadline_ns(ENDING_NS);
    int32_t open = 0;
    for (int32_t i = 0; i < world->nodes; i++)
        if (calls->pid[i] > 0)
            end_call(calls->pid[i], SIGTERM);
    do {
        open = 0;
        for (int32_t i = 0; i < world->nodes; i++)
            if (calls->pid[i] > 0 && waitpid(calls->pid[i], NULL, WNOHANG) != 0)
                calls->pid[i] = 0;
            else
                open += calls->pid[i] > 0;
        if (open > 0)
            usleep(10000);
    } while (open > 0 && !shoali_deadline_passed(deadline_ns));
    for (int32_t i = 0; i < world->nodes; i++)
        if (calls->pid[i] > 0) {
            end_call(calls->pid[i], SIGKILL);
            waitpid(calls->pid[i], NULL, 0);
            calls->pid[i] = 0;
        }
}

static bool takes(const struct shoali_agent *agent, const struct shoali_world *all,
                  const bool *here, int32_t index, int32_t taken)
{
    return here[index] && all->node[index].slots.count > 0 &&
           (agent->most_nodes == 0 || taken < agent->most_nodes);
}

shoal_status shoali_agent_choose(const struct shoali_agent *agent, const struct shoali_world *all,
                                 const bool *here, struct shoali_arena *arena,
                                 struct shoali_world *world)
{
    const int64_t model = agent->config.model_parallel_size;
    int64_t slots = 0, ranks;
    int32_t nodes = 0;
    *world = (struct shoali_world){.file = all->file, .named = all->named};
    for (int32_t i = 0; i < all->nodes; i++)
        if (takes(agent, all, here, i, nodes)) {
            slots += all->node[i].slots.count;
            nodes++;
        }
    ranks = shoali_elastic_largest(&agent->sizes, slots / model) * model;
    if (nodes < agent->least_nodes || ranks == 0)
        return SHOAL_OK;
    world->node = shoali_arena_alloc(arena, (size_t)nodes * sizeof(world->node[0]));
    if (!world->node)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < all->nodes && world->ranks < ranks; i++) {
        if (!takes(agent, all, here, i, world->nodes))
            continue;
        struct shoali_node *node = &world->node[world->nodes++];
        *node = all->node[i];
        node->first_rank = world->ranks;
        if (node->slots.count > ranks - world->ranks)
            node->slots.count = (int32_t)(ranks - world->ranks);
        world->ranks += node->slots.count;
    }
    return SHOAL_OK;
}
