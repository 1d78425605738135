#include "launcher/elastic/elastic.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>

#define LOOK_NS INT64_C(5000000000)
/* Ranks that have not saved are asked again: they may not have taken signals yet. */
#define ASK_AGAIN_NS INT64_C(30000000000)

void shoali_growth_begin(struct shoali_growth *growth, struct shoali_agent *agent,
                         const struct shoali_world *world)
{
    *growth = (struct shoali_growth){
        .agent = agent, .world = world, .next_ns = shoali_deadline_ns(LOOK_NS)};
    shoali_arena_init(&growth->arena);
}

void shoali_growth_end(struct shoali_growth *growth)
{
    if (growth->asking)
        shoali_calls_end(&growth->all, &growth->calls);
    shoali_arena_fini(&growth->arena);
}

/* Marks the nodes of the hostfile that the job has; false: it has all of them. */
static bool mark_known(const struct shoali_growth *growth, bool *known)
{
    bool more = false;
    for (int32_t i = 0; i < growth->all.nodes; i++) {
        for (int32_t k = 0; k < growth->world->nodes && !known[i]; k++)
            known[i] = strcmp(growth->all.node[i].name, growth->world->node[k].name) == 0;
        more = more || !known[i];
    }
    return more;
}

static shoal_status ask(struct shoali_growth *growth, const struct shoali_front *front)
{
    shoal_status status;
    const struct shoali_agent *agent = growth->agent;
    struct shoali_front asks = *front;
    shoali_arena_reset(&growth->arena);
    asks.arena = &growth->arena;
    SHOAL_TRY(status, shoali_world_find(agent->options, agent->args, &growth->arena, &growth->all),
              done);
    bool *known = shoali_arena_alloc(&growth->arena, (size_t)growth->all.nodes * sizeof(bool));
    if (!known) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    if (!mark_known(growth, known) && growth->all.ranks <= growth->world->ranks)
        goto done;
    SHOAL_TRY(status, shoali_calls_begin(&asks, &growth->all, known, &growth->calls), done);
    growth->asking = true;
done:
    return status;
}

/* The answers are there: is it worth a restart? */
static enum shoali_advice weigh(struct shoali_growth *growth)
{
    struct shoali_world world;
    shoali_calls_end(&growth->all, &growth->calls);
    growth->asking = false;
    if (shoali_agent_choose(growth->agent, &growth->all, growth->calls.here, &growth->arena,
                            &world) < 0) {
        shoali_error_clear(); /* looked at again in a while */
        return SHOALI_GO_ON;
    }
    if (world.ranks <= growth->world->ranks)
        return SHOALI_GO_ON;
    SHOALI_INFO("launcher",
                "%d ranks on %d host%s are available instead of %d: asking for a checkpoint, then "
                "restarting on them",
                (int)world.ranks, (int)world.nodes, world.nodes == 1 ? "" : "s",
                (int)growth->world->ranks);
    growth->saving = true;
    shoali_agent_latest(growth->agent, growth->tag);
    growth->next_ns = shoali_deadline_ns(ASK_AGAIN_NS);
    return SHOALI_ASK_TO_SAVE;
}

enum shoali_advice shoali_growth_poll(void *user, const struct shoali_front *front)
{
    struct shoali_growth *growth = user;
    char tag[SHOALI_ELASTIC_TAG_BYTES];
    if (growth->saving) {
        shoali_agent_latest(growth->agent, tag);
        if (strcmp(tag, growth->tag) != 0)
            return SHOALI_END_IT;
        if (!shoali_deadline_passed(growth->next_ns))
            return SHOALI_GO_ON;
        growth->next_ns = shoali_deadline_ns(ASK_AGAIN_NS);
        return SHOALI_ASK_TO_SAVE;
    }
    if (growth->asking)
        return shoali_calls_test(&growth->all, &growth->calls) ? weigh(growth) : SHOALI_GO_ON;
    if (!growth->agent->save || !shoali_deadline_passed(growth->next_ns))
        return SHOALI_GO_ON;
    growth->next_ns = shoali_deadline_ns(LOOK_NS);
    if (ask(growth, front) < 0) {
        SHOALI_WARN("launcher", "cannot look for more hosts: %s", shoal_error_message());
        shoali_error_clear();
    }
    return SHOALI_GO_ON;
}
