#include "comm/algorithms/slots.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SPIN_NS = 50000,
    PATIENCE = 1000 /* looks, 0.1 ms apart */
};

size_t shoali_world_bytes(void)
{
    return (sizeof(struct shoali_world_shared) + 4095) / 4096 * 4096;
}

shoal_status shoali_world_create(const struct shoali_world_args *args,
                                 struct shoali_slots_world **out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_segment segment = args->segment;
    struct shoali_slots_world *world = shoali_calloc(1, sizeof(*world), "the group of all ranks");
    if (!world) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    world->host = args->host;
    world->user = args->user;
    world->segment = args->segment;
    world->shared = args->segment.base;
    world->rank = args->rank;
    world->size = args->size;
    world->timeout_ns = (int64_t)(args->timeout_s * 1e9);
    world->references = 1;
    SHOAL_TRY(status, shoali_ops_select(NULL, NULL, &world->ops), done);
    pthread_mutex_init(&world->lock, NULL);
    *out = world;
    return SHOAL_OK;
done:
    args->host->detach(args->user, &segment);
    args->host->close(args->user);
    shoali_free(world);
    return status;
}

bool shoali_world_join(struct shoali_world_shared *shared, int32_t rank, int32_t pid,
                       int32_t number)
{
    struct shoali_seat_shared *seat = &shared->seat[rank];
    int32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&seat->pid, &nobody, pid))
        return false;
    if (sched_getaffinity(0, sizeof(seat->cores), &seat->cores) != 0)
        CPU_ZERO(&seat->cores);
    seat->number = number;
    atomic_store(&seat->joined, 1);
    return true;
}

/* Keeping a core while waiting pays only when every rank has one: counted over all ranks' masks,
 * because each may be bound to its own. */
void shoali_world_ready(struct shoali_slots_world *world)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int32_t r = 0; r < world->size; r++)
        CPU_OR(&all, &all, &world->shared->seat[r].cores);
    world->core_count = shoali_cgroup_limit_cores(CPU_COUNT(&all), shoali_cgroup_cpus(""));
    world->spin_ns = SPIN_NS;
    world->takes_turns = world->core_count < world->size;
}

void shoali_world_retain(struct shoali_slots_world *world)
{
    pthread_mutex_lock(&world->lock);
    world->references++;
    pthread_mutex_unlock(&world->lock);
}

void shoali_world_release(struct shoali_slots_world *world)
{
    pthread_mutex_lock(&world->lock);
    int32_t left = --world->references;
    pthread_mutex_unlock(&world->lock);
    if (left > 0)
        return;
    shoali_arenas_drop(world, NULL);
    atomic_store(&world->shared->seat[world->rank].left, 1);
    world->host->detach(world->user, &world->segment);
    world->host->close(world->user);
    pthread_mutex_destroy(&world->lock);
    shoali_free(world);
}

/* Another rank is writing the verdict: that takes microseconds, or a while when it has no core. It
 * never comes only when that rank was killed meanwhile; who else may be dead is not told apart. */
static void await_writer(struct shoali_slots_world *world)
{
    int after_a_death = 0;
    while (atomic_load(&world->shared->verdict) == SHOALI_VERDICT_WRITING &&
           after_a_death < PATIENCE) {
        nanosleep(&(struct timespec){0, 100000}, NULL);
        if (after_a_death > 0 ||
            (world->host->find_dead && world->host->find_dead(world->user) >= 0))
            after_a_death++;
    }
}

bool shoali_world_abort(struct shoali_slots_world *world, int32_t rank, shoal_status status,
                        const char *sentence)
{
    struct shoali_world_shared *shared = world->shared;
    uint32_t none = SHOALI_VERDICT_NONE;
    if (!atomic_compare_exchange_strong(&shared->verdict, &none, SHOALI_VERDICT_WRITING)) {
        await_writer(world);
        if (atomic_load(&shared->verdict) == SHOALI_VERDICT_SET)
            return false;
    }
    char text[SHOALI_SENTENCE_BYTES];
    snprintf(text, sizeof(text), "%s", sentence); /* aside: it may be the record's own text */
    shared->verdict_status = status;
    shared->verdict_rank = rank;
    memcpy(shared->verdict_sentence, text, sizeof(text));
    atomic_store(&shared->verdict, SHOALI_VERDICT_SET);
    return true;
}

shoal_status shoali_world_verdict(struct shoali_slots_world *world)
{
    const struct shoali_world_shared *shared = world->shared;
    if (atomic_load(&shared->verdict) != SHOALI_VERDICT_SET)
        return SHOAL_OK;
    if (shared->verdict_rank >= 0 && shared->verdict_rank != world->rank) {
        char name[SHOALI_PLACE_BYTES], doing[SHOALI_PLACE_BYTES];
        const struct shoali_seat_shared *seat = &shared->seat[shared->verdict_rank];
        const struct shoali_seat failed = {.world_rank = seat->number, .shared = seat};
        return SHOAL_FAIL(SHOAL_EPEER, "%s failed%s: %s", shoali_rank_format(&failed, name),
                          shoali_seat_doing(seat, " in ", doing), shared->verdict_sentence);
    }
    return SHOAL_FAIL((shoal_status)shared->verdict_status, "%s", shared->verdict_sentence);
}
