/* How processes of one machine find each other: rank 0 serves a store, puts the name of the control
 * segment there, and everybody maps it, takes its seat and waits for the others' seats. The store
 * lets in who knows the job's secret, and what it says is believed, but for what is mapped. */
#include "comm/shm/shm.h"

#include "base/waiting.h"
#include "comm/bootstrap/agent_store.h"
#include "comm/bootstrap/bootstrap.h"
#include "comm/machine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char world_key[] = "shoal/shm/world";

enum { STORE_CHECK_NS = 20000000, NAP_NS = 200000, LONG_NAP_NS = 5000000 };

/* The value behind world_key. */
struct invitation {
    uint32_t abi;
    int32_t world_size;
    uint64_t bytes;
    char boot[SHOALI_BOOT_BYTES];
    char name[sizeof(((struct shoali_segment *)0)->name)];
};

static const struct shoali_slots_host host = {
    .any_address = false,
    .create = shoali_shm_create,
    .attach = shoali_shm_attach,
    .reserve = shoali_shm_reserve,
    .seal = shoali_shm_seal,
    .detach = shoali_shm_detach,
    .find_dead = shoali_shm_find_dead,
    .close = shoali_shm_peers_close,
};

static shoal_status invite(struct shoali_store *store, const shoal_comm_args *args,
                           struct shoali_segment *segment)
{
    int32_t world_rank[SHOALI_MAX_RANKS];
    struct invitation invitation = {.abi = SHOALI_COMM_ABI, .world_size = args->world_size};
    shoal_status status = SHOAL_OK;
    size_t bytes = shoali_world_bytes() + shoali_group_bytes(args->world_size);
    SHOAL_TRY(status, shoali_shm_create(NULL, bytes, segment), done);
    for (int32_t r = 0; r < args->world_size; r++)
        world_rank[r] = r;
    shoali_group_format((unsigned char *)segment->base + shoali_world_bytes(), args->world_size, 0,
                        world_rank);
    invitation.bytes = bytes;
    SHOAL_TRY(status, shoali_machine_read_boot(invitation.boot), done);
    memcpy(invitation.name, segment->name, sizeof(invitation.name));
    SHOAL_TRY(status, shoali_store_put(store, world_key, &invitation, sizeof(invitation)), done);
done:
    return status;
}

static shoal_status accept_invitation(struct shoali_store *store, const shoal_comm_args *args,
                                      struct shoali_segment *segment)
{
    struct invitation invitation = {0};
    size_t size = sizeof(invitation);
    char boot[SHOALI_BOOT_BYTES];
    const size_t bytes = shoali_world_bytes() + shoali_group_bytes(args->world_size);
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, shoali_store_wait(store, world_key, &invitation, &size), done);
    SHOAL_TRY(status, shoali_machine_read_boot(boot), done);
    const bool readable = size == sizeof(invitation) && invitation.abi == SHOALI_COMM_ABI;
    if (!readable || (invitation.world_size == args->world_size && invitation.bytes != bytes))
        status = SHOAL_FAIL(SHOAL_EMISMATCH, "rank 0 and rank %d run different versions of Shoal",
                            (int)args->rank);
    else if (invitation.world_size != args->world_size)
        status = SHOAL_FAIL(
            SHOAL_EINVAL,
            "rank %d expects %d ranks, rank 0 expects %d: WORLD_SIZE must be the same on all ranks",
            (int)args->rank, (int)args->world_size, (int)invitation.world_size);
    else if (shoali_machine_differs(boot, invitation.boot))
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "rank %d is on another machine than rank 0: backend shm connects the "
                            "processes of one machine",
                            (int)args->rank);
    if (status != SHOAL_OK)
        goto done;
    segment->bytes = bytes;
    memcpy(segment->name, invitation.name, sizeof(segment->name));
    segment->name[sizeof(segment->name) - 1] = '\0';
    SHOAL_TRY(status, shoali_shm_attach(NULL, segment), done);
done:
    return status;
}

/* Ranks without a seat, as text; their number. */
static int32_t list_absent(const struct shoali_world_shared *shared, int32_t size, char *text,
                           size_t bytes)
{
    int32_t count = 0, at = 0;
    text[0] = '\0';
    for (int32_t r = 0; r < size; r++) {
        if (atomic_load(&shared->seat[r].joined))
            continue;
        if ((size_t)at + 16 < bytes)
            at += snprintf(text + at, bytes - (size_t)at, "%s%d", count ? ", " : "", (int)r);
        count++;
    }
    return count;
}

static shoal_status check_ended(const shoal_comm_args *args, int32_t rank)
{
    if (!shoali_shm_has_ended(args, rank))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EPEER,
                      "rank %d ended before it joined the others, without an error: every rank of "
                      "a job must call shoal_comm_init",
                      (int)rank);
}

/* While rank 0, which serves the store, is awaited. */
static shoal_status check_server(const void *user)
{
    return check_ended(user, 0);
}

/* One look while others are awaited: a verdict in the store, a joined rank that has died, one that
 * will not come. */
static shoal_status look_around(struct shoali_store *store, const shoal_comm_args *args,
                                const struct shoali_world_shared *shared)
{
    const int32_t size = args->world_size;
    char value[sizeof(struct invitation)], absent[128];
    size_t bytes = sizeof(value);
    shoal_status status = shoali_store_get(store, world_key, value, &bytes);
    if (status < 0) /* rank 0 closes the store when all have joined */
        return list_absent(shared, size, absent, sizeof(absent)) > 0 ? status : SHOAL_OK;
    for (int32_t r = 0; r < size; r++) {
        pid_t pid = atomic_load(&shared->seat[r].pid);
        if (pid == 0 && (status = check_ended(args, r)) < 0)
            return status;
        if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
            return SHOAL_FAIL(SHOAL_EPEER, "rank %d (pid %d) is gone: it left while joining",
                              (int)r, (int)pid);
    }
    return SHOAL_OK;
}

static shoal_status fail_of_absence(const struct shoali_store *store, const shoal_comm_args *args,
                                    const char *absent)
{
    const int trouble = shoali_store_get_trouble(store);
    return SHOAL_FAIL(SHOAL_ETIMEOUT, "of %d ranks these did not join within %.1f s: %s%s%s%s",
                      (int)args->world_size, args->timeout_s, absent,
                      trouble ? "; rank 0 could not accept their connections: " : "",
                      trouble ? strerror(trouble) : "", shoali_descriptor_advice(trouble));
}

/* The lowest of those that wait says it. */
static void say_absent(const shoal_comm_args *args, const struct shoali_world_shared *shared,
                       struct shoali_waiting *waiting, const char *absent)
{
    bool first = true;
    for (int32_t r = 0; r < args->rank; r++)
        first = first && !atomic_load(&shared->seat[r].joined);
    if (shoali_waiting_due(waiting, NULL) && first)
        SHOALI_WARN("comm",
                    "waiting for %.0f s for other ranks to join at %s:%d; of %d these have not: "
                    "%s; are they running, with the same MASTER_ADDR and MASTER_PORT?",
                    shoali_waiting_seconds(waiting), args->master_addr, (int)args->master_port,
                    (int)args->world_size, absent);
}

static shoal_status join(struct shoali_store *store, const shoal_comm_args *args,
                         struct shoali_world_shared *shared)
{
    char absent[128];
    struct shoali_waiting waiting = {0};
    if (!shoali_world_join(shared, args->rank, (int32_t)getpid(), args->rank))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "two processes are rank %d: RANK must be different on every process, and "
                          "MASTER_PORT for every job",
                          (int)args->rank);
    int64_t deadline_ns = shoali_deadline_ns((int64_t)(args->timeout_s * 1e9));
    int64_t poll_ns = shoali_now_ns() + STORE_CHECK_NS;
    while (list_absent(shared, args->world_size, absent, sizeof(absent)) > 0) {
        if (shoali_deadline_passed(deadline_ns))
            return fail_of_absence(store, args, absent);
        say_absent(args, shared, &waiting, absent);
        nanosleep(
            &(struct timespec){0, shoali_waiting_seconds(&waiting) < 1 ? NAP_NS : LONG_NAP_NS},
            NULL);
        if (shoali_now_ns() < poll_ns)
            continue;
        shoal_status status = look_around(store, args, shared);
        if (status < 0)
            return status;
        poll_ns = shoali_now_ns() + STORE_CHECK_NS;
    }
    return SHOAL_OK;
}

static shoal_status meet(const shoal_comm_args *args, struct shoali_segment *segment)
{
    struct shoali_store *store = NULL;
    struct shoali_credentials credentials = {0};
    shoal_status status = SHOAL_OK;
    char where[320], sentence[SHOALI_SENTENCE_BYTES];
    snprintf(where, sizeof(where), "%.255s:%d", args->master_addr, (int)args->master_port);
    const struct shoali_store_args store_args = {
        .kind = "tcp",
        .where = where,
        .server = args->rank == 0,
        .credentials = &credentials,
        .by_agent = shoali_agent_store_is_at(args->master_addr, args->master_port),
        .timeout_s = args->timeout_s,
        .look = check_server,
        .poll_user = args};
    SHOAL_TRY(status, shoali_credentials_find(&credentials), done);
    SHOAL_TRY(status, shoali_store_open(&store_args, &store), done);
    if (args->rank > 0)
        SHOAL_TRY(status, accept_invitation(store, args, segment), done);
    else
        SHOAL_TRY(status, invite(store, args, segment), done);
    SHOAL_TRY(status, join(store, args, segment->base), done);
done:
    if (status < 0 && store) {
        snprintf(sentence, sizeof(sentence), "rank %d failed: %s", (int)args->rank,
                 shoal_error_message());
        if (status != SHOAL_EPEER)
            shoali_store_abort(store, sentence);
        /* The others learn it here: the store must outlive their next look or late arrival. */
        if (args->rank == 0)
            nanosleep(&(struct timespec){0, 500000000}, NULL);
    }
    shoali_shm_seal(segment);
    shoali_store_close(store);
    shoali_credentials_wipe(&credentials);
    return status;
}

static bool probe(void)
{
    return shoali_shm_works();
}

/* All have joined. Takes the segment over. */
static shoal_status open_group(struct shoali_segment *segment, int32_t rank, int32_t size,
                               double timeout_s, void **backend)
{
    struct shoali_shm_peers *peers = NULL;
    struct shoali_slots_world *world = NULL;
    struct shoali_slots_group *group = NULL;
    shoal_status status = SHOAL_OK;
    SHOAL_TRY(status, shoali_shm_peers_create(segment->base, rank, size, &peers), done);
    struct shoali_world_args world_args = {.host = &host,
                                           .user = peers,
                                           .segment = *segment,
                                           .rank = rank,
                                           .size = size,
                                           .timeout_s = timeout_s};
    segment->base = NULL; /* the world's from here */
    SHOAL_TRY(status, shoali_world_create(&world_args, &world), done);
    shoali_world_ready(world);
    SHOAL_TRY(status,
              shoali_group_open(world, (unsigned char *)world->segment.base + shoali_world_bytes(),
                                &(struct shoali_segment){0}, rank, &group),
              done);
    *backend = group;
done:
    shoali_shm_detach(NULL, segment);
    if (status < 0 && world) /* it leaves in order, so the others would wait for it */
        (void)shoali_world_abort(world, rank, status, shoal_error_message());
    if (world)
        shoali_world_release(world); /* the group holds its own reference */
    return status;
}

static shoal_status create(const shoal_comm_args *args, void **backend)
{
    struct shoali_segment segment = {.fd = -1};
    if (args->world_size > SHOALI_MAX_RANKS)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "backend shm has at most %d ranks, not %d",
                          SHOALI_MAX_RANKS, (int)args->world_size);
    const shoal_status status = meet(args, &segment);
    if (status == SHOAL_OK)
        return open_group(&segment, args->rank, args->world_size, args->timeout_s, backend);
    shoali_shm_detach(NULL, &segment);
    return status;
}

/* ---- a host's ranks within a larger world --------------------------------------------------- */

/* What a rank tells the others of its host, who meet by the larger world and need no store. */
struct near_note {
    int32_t status;
    char name[sizeof(((struct shoali_segment *)0)->name)];
    char sentence[380];
};
_Static_assert(sizeof(struct near_note) <= SHOALI_NEAR_NOTE_BYTES, "a note is longer");

/* Tells how far this rank has come; an error when one of the host's ranks has not. */
static shoal_status meet_near(const struct shoali_near_args *args, shoal_status own, char *name)
{
    union {
        struct near_note note;
        unsigned char bytes[SHOALI_NEAR_NOTE_BYTES];
    } answer = {.note = {.status = (int32_t)own}}, *all;
    shoal_status status = own;
    snprintf(answer.note.name, sizeof answer.note.name, "%s", name);
    if (own < 0)
        snprintf(answer.note.sentence, sizeof answer.note.sentence, "%s", shoal_error_message());
    all = shoali_calloc((size_t)args->size, sizeof *all, "notes of a host's ranks");
    if (!all)
        return SHOAL_ENOMEM;
    const shoal_status met = args->exchange(args->user, &answer, all);
    if (own == SHOAL_OK || met == SHOAL_EPEER) /* whose sentence is the last error */
        status = met;
    for (int32_t r = 0; r < args->size && status == SHOAL_OK; r++) {
        all[r].note.sentence[sizeof all[r].note.sentence - 1] = '\0';
        if (all[r].note.status < 0)
            status = SHOAL_FAIL((shoal_status)all[r].note.status, "%s", all[r].note.sentence);
    }
    if (status == SHOAL_OK)
        snprintf(name, sizeof all[0].note.name, "%s", all[0].note.name);
    shoali_free(all);
    return status;
}

static shoal_status create_near(const struct shoali_near_args *args, void **backend)
{
    struct shoali_segment segment = {.fd = -1};
    const size_t bytes = shoali_world_bytes() + shoali_group_bytes(args->size);
    int32_t world_rank[SHOALI_MAX_RANKS];
    shoal_status status = SHOAL_OK, met;
    if (args->size > SHOALI_MAX_RANKS) {
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED, "a host has at most %d ranks, not %d",
                            SHOALI_MAX_RANKS, (int)args->size);
    } else if (args->rank == 0) {
        status = shoali_shm_create(NULL, bytes, &segment);
        for (int32_t r = 0; r < args->size; r++)
            world_rank[r] = r;
        if (status == SHOAL_OK)
            shoali_group_format((unsigned char *)segment.base + shoali_world_bytes(), args->size, 0,
                                world_rank);
    }
    met = status = meet_near(args, status, segment.name);
    if (status == SHOAL_OK && args->rank > 0) {
        segment.bytes = bytes;
        status = shoali_shm_attach(NULL, &segment);
    }
    if (status == SHOAL_OK &&
        !shoali_world_join(segment.base, args->rank, (int32_t)getpid(), args->number))
        status = SHOAL_FAIL(SHOAL_EINVAL, "two processes are rank %d", (int)args->number);
    if (met == SHOAL_OK) /* those that know of a failure do not meet again */
        status = meet_near(args, status, segment.name);
    shoali_shm_seal(&segment);
    if (status == SHOAL_OK)
        return open_group(&segment, args->rank, args->size, args->timeout_s, backend);
    shoali_shm_detach(NULL, &segment);
    return status;
}

const struct shoali_comm_ops shoali_comm_shm = {
    .abi = SHOALI_COMM_ABI,
    .bytes = sizeof(struct shoali_comm_ops),
    .name = "shm",
    .probe = probe,
    .device_memory = false,
    .create = create,
    .destroy = shoali_slots_destroy,
    .rank = shoali_slots_rank,
    .size = shoali_slots_size,
    .post = shoali_slots_post,
    .test = shoali_slots_test,
    .wait = shoali_slots_wait,
    .split = shoali_slots_split,
    .alloc = shoali_slots_alloc,
    .free = shoali_slots_free,
    .abort = shoali_slots_abort,
    .second_thread = shoali_slots_second_thread,
    .set_name = shoali_slots_set_name,
    .say_place = shoali_slots_say_place,
    .verdict = shoali_slots_verdict,
    .relay = shoali_slots_relay,
    .create_near = create_near,
    .watch = shoali_slots_watch,
};
