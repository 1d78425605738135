/* Which core a rank is on, and that no two ranks stay on one (slots.h). */
#include "comm/algorithms/slots.h"

/* From one look at the others' cores to the next: they are a line of memory each. */
#define LOOK_NS INT64_C(100000)

void shoali_world_say_core(struct shoali_slots_world *world)
{
    _Atomic int32_t *published = &world->shared->seat[world->rank].core;
    const int32_t core = sched_getcpu() + 1;
    if (atomic_load_explicit(published, memory_order_relaxed) != core)
        atomic_store_explicit(published, core, memory_order_relaxed);
}

/* Does a rank below have the core that this one is on? Takes the ranks' cores out of the set. */
static bool meets(const struct shoali_slots_world *world, cpu_set_t *set)
{
    const int32_t own = atomic_load(&world->shared->seat[world->rank].core);
    bool met = false;
    for (int32_t r = 0; r < world->size; r++) {
        const int32_t core = atomic_load(&world->shared->seat[r].core);
        met = met || (own > 0 && r < world->rank && core == own);
        if (core > 0 && core <= CPU_SETSIZE)
            CPU_CLR(core - 1, set);
    }
    return met;
}

bool shoali_world_part(struct shoali_slots_world *world)
{
    cpu_set_t home = {0}, free;
    const int64_t now_ns = shoali_now_ns();
    if (world->takes_turns || world->rank == 0 ||
        now_ns - atomic_load_explicit(&world->looked_ns, memory_order_relaxed) < LOOK_NS)
        return false;
    atomic_store_explicit(&world->looked_ns, now_ns, memory_order_relaxed);
    shoali_world_say_core(world);
    free = world->shared->seat[world->rank].cores;
    if (!meets(world, &free) || sched_getaffinity(0, sizeof home, &home) != 0)
        return false;
    CPU_AND(&free, &free, &home);
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0)
        return false;
    shoali_world_say_core(world);
    (void)sched_setaffinity(0, sizeof home, &home);
    return true;
}
