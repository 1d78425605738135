/* Groups: of a world, of another group, their memory, and the table. */
#include "comm/hierarchical/hierarchical.h"

#include <stdio.h>
#include <string.h>

static bool has_levels(const struct shoali_hier_layout *layout)
{
    return layout->levels;
}

static bool is_leader(const struct shoali_hier_layout *layout)
{
    return layout->place == 0;
}

/* ---- the world ------------------------------------------------------------------------------ */

static void retain(struct shoali_hier_world *world)
{
    pthread_mutex_lock(&world->lock);
    world->references++;
    pthread_mutex_unlock(&world->lock);
}

static void release(struct shoali_hier_world *world)
{
    pthread_mutex_lock(&world->lock);
    const int32_t left = --world->references;
    pthread_mutex_unlock(&world->lock);
    if (left > 0)
        return;
    if (world->near)
        world->inner->destroy(world->near);
    world->outer->destroy(world->all);
    pthread_mutex_destroy(&world->lock);
    shoali_free(world);
}

/* What the ranks of a host tell each other while they meet. */
struct meeting {
    const struct shoali_hier_world *world;
    const struct shoali_hier_layout *layout;
};

static shoal_status exchange(void *user, const void *own, void *notes)
{
    const struct meeting *meeting = user;
    const struct shoali_hier_layout *layout = meeting->layout;
    shoal_status status = SHOAL_OK;
    unsigned char *all = shoali_calloc((size_t)layout->size, SHOALI_NEAR_NOTE_BYTES, "notes");
    if (!all)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status,
              shoali_hier_run_on(meeting->world->outer, meeting->world->all,
                                 &(struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                                       .here = SHOALI_HERE,
                                                       .in = own,
                                                       .out = all,
                                                       .count = SHOALI_NEAR_NOTE_BYTES,
                                                       .dtype = SHOAL_U8}),
              done);
    for (int32_t r = 0; r < layout->size; r++)
        if (layout->host_of[r] == layout->host)
            memcpy((unsigned char *)notes + (size_t)layout->place_of[r] * SHOALI_NEAR_NOTE_BYTES,
                   all + (size_t)r * SHOALI_NEAR_NOTE_BYTES, SHOALI_NEAR_NOTE_BYTES);
done:
    shoali_free(all);
    return status;
}

/* ---- groups --------------------------------------------------------------------------------- */

static void drop(struct shoali_hier_group *group)
{
    struct shoali_hier_world *world = group->world;
    if (group->room[0])
        world->inner->free(group->near, group->room[0]);
    if (group->leaders)
        world->outer->destroy(group->leaders);
    if (group->near && !group->whole)
        world->inner->destroy(group->near);
    if (group->all && !group->whole)
        world->outer->destroy(group->all);
    shoali_hier_layout_fini(&group->layout);
    shoali_free(group);
    release(world);
}

static shoal_status make_room(struct shoali_hier_group *group)
{
    void *room = NULL;
    const shoal_status status = group->world->inner->alloc(
        group->near, SHOALI_HERE, 2 * (size_t)SHOALI_HIER_ROOM_BYTES, &room);
    group->room[0] = room;
    group->room[1] = status == SHOAL_OK ? group->room[0] + SHOALI_HIER_ROOM_BYTES : NULL;
    return status;
}

static struct shoali_hier_group *make_group(struct shoali_hier_world *world)
{
    struct shoali_hier_group *group = shoali_calloc(1, sizeof *group, "a group");
    if (group) {
        group->world = world;
        group->queue.messages_overlap = true; /* the groups below keep their order */
        retain(world);
    }
    return group;
}

/* A group that has failed while it was made goes with its error kept. The other ranks have theirs,
 * may be at work already, and would take this one's barriers for calls of their own: they hear
 * first. */
static shoal_status give_up(struct shoali_hier_group *group, shoal_status status)
{
    const struct shoali_hier_world *world = group->world;
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    if (status == SHOAL_EPEER)
        world->outer->relay(world->all, status, sentence);
    else
        world->outer->abort(world->all, status, sentence);
    drop(group);
    return SHOAL_FAIL(status, "%s", sentence);
}

static shoal_status open_world(struct shoali_hier_world *world, const struct shoali_hier_args *args,
                               const int32_t *host, struct shoali_hier_group **out)
{
    const int32_t rank = world->outer->rank(world->all), size = world->outer->size(world->all);
    shoal_status status = SHOAL_OK;
    struct shoali_hier_group *group = make_group(world);
    if (!group)
        return SHOAL_ENOMEM;
    struct shoali_hier_layout *layout = &group->layout;
    group->whole = true;
    group->all = world->all;
    SHOAL_TRY(status, shoali_hier_layout_init(layout, host, size, rank), done);
    struct meeting meeting = {.world = world, .layout = layout};
    SHOAL_TRY(status,
              world->inner->create_near(&(struct shoali_near_args){.rank = layout->place,
                                                                   .size = layout->local,
                                                                   .number = rank,
                                                                   .timeout_s = args->timeout_s,
                                                                   .threads = args->threads,
                                                                   .exchange = exchange,
                                                                   .user = &meeting},
                                        &world->near),
              done);
    group->near = world->near;
    world->inner->watch(world->near, shoali_hier_poll, world);
    if (!has_levels(layout)) {
        *out = group;
        return SHOAL_OK;
    }
    SHOAL_TRY(status,
              world->outer->split(world->all,
                                  &(struct shoali_split_args){.here = SHOALI_HERE,
                                                              .color = is_leader(layout) ? 0 : -1,
                                                              .key = layout->host},
                                  &group->leaders),
              done);
    SHOAL_TRY(status, make_room(group), done);
    if (rank == 0)
        SHOALI_DEBUG("comm", "%d ranks on %d hosts: %s within a host, %s between hosts", (int)size,
                     (int)layout->hosts, world->inner->name, world->outer->name);
    *out = group;
    return SHOAL_OK;
done:
    return give_up(group, status);
}

static const struct shoali_comm_ops table;

static shoal_status divide(struct shoali_hier_world *world, const struct shoali_hier_args *args,
                           const int32_t *host, const struct shoali_comm_ops **ops, void **object)
{
    struct shoali_hier_layout layout;
    struct shoali_hier_group *group = NULL;
    shoal_status status = SHOAL_OK;
    const int32_t rank = args->outer->rank(args->all), size = args->outer->size(args->all);
    SHOAL_TRY(status, shoali_hier_layout_init(&layout, host, size, rank), done);
    const bool divided = has_levels(&layout) || (args->near_alone && layout.hosts == 1);
    shoali_hier_layout_fini(&layout);
    if (divided) {
        SHOAL_TRY(status, open_world(world, args, host, &group), done);
        *ops = &table;
        *object = group;
    }
done:
    return status;
}

shoal_status shoali_hierarchical_create(const struct shoali_hier_args *args,
                                        const struct shoali_comm_ops **ops, void **object)
{
    const int32_t size = args->outer->size(args->all);
    shoal_status status = SHOAL_OK;
    int32_t *host = shoali_calloc((size_t)size, sizeof *host, "hosts of ranks");
    struct shoali_hier_world *world = shoali_calloc(1, sizeof *world, "the group of all hosts");
    *ops = args->outer;
    *object = args->all;
    if (!world || !host) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    world->outer = args->outer;
    world->inner = args->inner;
    world->all = args->all;
    world->references = 1;
    pthread_mutex_init(&world->lock, NULL);
    SHOAL_TRY(status, shoali_hier_find_hosts(args->outer, args->all, host), done);
    SHOAL_TRY(status, divide(world, args, host, ops, object), done);
done:
    shoali_free(host);
    if (status < 0)
        args->outer->abort(args->all, status, shoal_error_message()); /* or the others wait */
    if (status == SHOAL_OK && *object == args->all) { /* one level: `all` is the caller's */
        pthread_mutex_destroy(&world->lock);
        shoali_free(world);
    } else if (world && world->references > 0 && world->all) {
        release(world); /* the group holds its own */
    } else {
        args->outer->destroy(args->all);
        shoali_free(world);
    }
    return status;
}

static void destroy(void *backend)
{
    struct shoali_hier_group *group = backend;
    /* peer -1 tells it from the barriers of ranks that go on. */
    const struct shoali_post barrier = {
        .kind = SHOALI_BARRIER, .here = "shoal_comm_destroy", .dtype = SHOAL_U8, .peer = -1};
    if (shoali_hier_run(group, &barrier) != SHOAL_OK)
        SHOALI_DEBUG("comm", "left an aborted group: %s", shoal_error_message());
    drop(group);
}

static int32_t rank(const void *backend)
{
    return ((const struct shoali_hier_group *)backend)->layout.rank;
}

static int32_t size(const void *backend)
{
    return ((const struct shoali_hier_group *)backend)->layout.size;
}

/* ---- split ---------------------------------------------------------------------------------- */

struct choice {
    int32_t color, key;
};

/* Hosts of the ranks of this color, by (key, rank); their number, and this rank's place. */
static int32_t list_members(const struct shoali_hier_layout *layout, const struct choice *choices,
                            int32_t color, int32_t *members, int32_t *host, int32_t *own)
{
    const int32_t count = shoali_split_members(&choices[0].color, 2, layout->size, color, members);
    for (int32_t i = 0; i < count; i++) {
        host[i] = layout->id_of[layout->host_of[members[i]]];
        if (members[i] == layout->rank)
            *own = i;
    }
    return count;
}

/* The groups below: every rank of the parent takes part in each, for the others' sake. */
static shoal_status split_below(struct shoali_hier_group *parent, struct shoali_hier_group *child,
                                const struct shoali_split_args *args)
{
    struct shoali_hier_world *world = parent->world;
    const struct shoali_hier_layout *layout = child ? &child->layout : NULL;
    void *all = NULL, *near = NULL, *leaders = NULL;
    struct shoali_split_args own = {.here = args->here, .key = args->key};
    shoal_status status = SHOAL_OK;
    own.color = layout && (layout->hosts > 1 || !parent->near) ? args->color : -1;
    if (parent->all)
        SHOAL_TRY(status, world->outer->split(parent->all, &own, &all), done);
    own.color = layout && has_levels(layout) && is_leader(layout) ? args->color : -1;
    if (parent->all)
        SHOAL_TRY(status, world->outer->split(parent->all, &own, &leaders), done);
    own.color = layout && (layout->hosts == 1 || has_levels(layout)) ? args->color : -1;
    if (parent->near)
        SHOAL_TRY(status, world->inner->split(parent->near, &own, &near), done);
done:
    if (child) { /* drops what there is, too */
        child->all = all;
        child->near = near;
        child->leaders = leaders;
    }
    return status;
}

static shoal_status make_child(struct shoali_hier_group *parent, const struct choice *choices,
                               int32_t color, struct shoali_hier_group **out)
{
    const struct shoali_hier_layout *layout = &parent->layout;
    int32_t own = 0, *members = NULL;
    shoal_status status = SHOAL_OK;
    struct shoali_hier_group *child = make_group(parent->world);
    members = shoali_calloc(2 * (size_t)layout->size, sizeof *members, "the ranks of a group");
    if (!child || !members) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    int32_t *host = members + layout->size;
    const int32_t count = list_members(layout, choices, color, members, host, &own);
    SHOAL_TRY(status, shoali_hier_layout_init(&child->layout, host, count, own), done);
    *out = child;
    child = NULL;
done:
    shoali_free(members);
    if (child)
        drop(child);
    return status;
}

/* Where the parent has no `near` (a rank per host) or no `all` (one host), neither has the
 * child. */
static shoal_status split(void *backend, const struct shoali_split_args *args, void **out)
{
    struct shoali_hier_group *parent = backend, *child = NULL;
    struct choice own = {args->color, args->key};
    struct choice *choices =
        shoali_calloc((size_t)parent->layout.size, sizeof *choices, "the colors of ranks");
    shoal_status status = choices ? SHOAL_OK : SHOAL_ENOMEM;
    *out = NULL;
    if (status < 0)
        goto done;
    SHOAL_TRY(status,
              shoali_hier_run(parent, &(struct shoali_post){.kind = SHOALI_ALL_GATHER,
                                                            .here = args->here,
                                                            .in = &own,
                                                            .out = choices,
                                                            .count = 2,
                                                            .dtype = SHOAL_I32}),
              done);
    if (args->color >= 0)
        SHOAL_TRY(status, make_child(parent, choices, args->color, &child), done);
    SHOAL_TRY(status, split_below(parent, child, args), done);
    if (child && has_levels(&child->layout))
        SHOAL_TRY(status, make_room(child), done);
    *out = child;
    child = NULL;
done:
    if (status < 0) /* the others have their groups, or wait for this rank */
        shoali_hier_abort(parent, status, shoal_error_message());
    if (child)
        drop(child);
    shoali_free(choices);
    return status;
}

/* ---- memory and the rest -------------------------------------------------------------------- */

/* All ranks get theirs, or none. */
static shoal_status alloc(void *backend, const char *here, size_t bytes, void **memory)
{
    struct shoali_hier_group *group = backend;
    struct shoali_hier_world *world = group->world;
    const bool near = group->near != NULL;
    void *object = near ? group->near : group->all;
    const struct shoali_comm_ops *ops = near ? world->inner : world->outer;
    shoal_status status = ops->alloc(object, here, bytes, memory);
    if (group->layout.hosts == 1 || !near)
        return status;
    int32_t failed = status == SHOAL_OK ? group->layout.size : group->layout.rank;
    char text[512], size_text[32];
    snprintf(text, sizeof text, "%s", status < 0 ? shoal_error_message() : "");
    if (status == SHOAL_ENOMEM && ops->verdict(object) < 0) { /* on this host alone */
        shoali_hier_abort(group, status, text);
        return SHOAL_FAIL(status, "%s", text);
    }
    const shoal_status met = shoali_hier_run(group, &(struct shoali_post){.kind = SHOALI_ALL_REDUCE,
                                                                          .here = here,
                                                                          .in = &failed,
                                                                          .out = &failed,
                                                                          .count = 1,
                                                                          .dtype = SHOAL_I32,
                                                                          .op = SHOAL_MIN});
    if (met == SHOAL_OK && failed == group->layout.size)
        return SHOAL_OK;
    if (status == SHOAL_OK)
        ops->free(object, *memory);
    *memory = NULL;
    if (met < 0)
        return met;
    return status < 0 ? SHOAL_FAIL(status, "%s", text)
                      : SHOAL_FAIL(SHOAL_ENOMEM, "the host of rank %d cannot share %s", (int)failed,
                                   shoali_format_bytes((double)bytes, size_text));
}

static void release_memory(void *backend, void *memory)
{
    const struct shoali_hier_group *group = backend;
    if (group->near)
        group->world->inner->free(group->near, memory);
    else
        group->world->outer->free(group->all, memory);
}

static void second_thread(void *backend)
{
    const struct shoali_hier_group *group = backend;
    const struct shoali_hier_world *world = group->world;
    if (group->near)
        world->inner->second_thread(group->near);
    if (group->all)
        world->outer->second_thread(group->all);
    if (group->leaders)
        world->outer->second_thread(group->leaders);
}

static void set_name(void *backend, const char *name)
{
    const struct shoali_hier_world *world = ((const struct shoali_hier_group *)backend)->world;
    if (world->inner->set_name)
        world->inner->set_name(world->near, name);
    if (world->outer->set_name)
        world->outer->set_name(world->all, name);
}

static void say_place(void *backend)
{
    const struct shoali_hier_world *world = ((const struct shoali_hier_group *)backend)->world;
    if (world->inner->say_place)
        world->inner->say_place(world->near);
    if (world->outer->say_place)
        world->outer->say_place(world->all);
}

static void between_hosts(const void *backend, int64_t bytes[SHOALI_COLLECTIVE_COUNT])
{
    const struct shoali_hier_world *world = ((const struct shoali_hier_group *)backend)->world;
    for (int kind = 0; kind < SHOALI_COLLECTIVE_COUNT; kind++)
        bytes[kind] = atomic_load(&world->between[kind]);
}

static int32_t ranks_per_host(const void *backend)
{
    const struct shoali_hier_layout *layout = &((const struct shoali_hier_group *)backend)->layout;
    return layout->hosts > 1 && layout->in_order ? layout->largest : 0;
}

static bool probe(void)
{
    return true;
}

static const struct shoali_comm_ops table = {
    .abi = SHOALI_COMM_ABI,
    .bytes = sizeof(struct shoali_comm_ops),
    .name = "hierarchical",
    .probe = probe,
    .device_memory = false,
    .destroy = destroy,
    .rank = rank,
    .size = size,
    .post = shoali_hier_post,
    .test = shoali_hier_test,
    .wait = shoali_hier_wait,
    .split = split,
    .alloc = alloc,
    .free = release_memory,
    .abort = shoali_hier_abort,
    .second_thread = second_thread,
    .set_name = set_name,
    .say_place = say_place,
    .between_hosts = between_hosts,
    .ranks_per_host = ranks_per_host,
};
