/* Joining and leaving the world, groups of groups, shared memory. */
#include "comm/algorithms/slots.h"
#include "comm/group.h"
#include "comm/hierarchical/hierarchical.h"
#include "comm/launcher_watch.h"
#include "comm/mpi/mpi.h"
#include "comm/status_page_file.h"
#include "comm/wrap/wrap.h"
#include "shoal/mpi.h"

#include <stdlib.h>
#include <string.h>

static const double default_timeout_s = 600;
enum { DEFAULT_PORT = 29500, JOB_PORTS = 20000, JOB_PORT_COUNT = 12000 };

const struct shoali_comm_ops *const *shoali_comm_all(void)
{
    static const struct shoali_comm_ops *const all[] = {&shoali_comm_self, &shoali_comm_thread,
                                                        &shoali_comm_shm,  &shoali_comm_mpi,
                                                        &shoali_comm_ucx,  NULL};
    return all;
}

/* An integer variable; `value` stays when it is not set. */
static shoal_status read_variable(const char *name, int64_t low, int64_t high, int32_t *value)
{
    const char *text = getenv(name);
    int64_t number = 0;
    if (!text || !*text)
        return SHOAL_OK;
    if (!shoali_parse_i64(text, &number) || number < low || number > high)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s=\"%s\" must be a number from %lld to %lld", name, text,
                          (long long)low, (long long)high);
    *value = (int32_t)number;
    return SHOAL_OK;
}

static shoal_status read_timeout(double *seconds)
{
    const char *text = getenv("DEEPSPEED_TIMEOUT");
    double minutes = 0;
    *seconds = default_timeout_s;
    if (!text || !*text)
        return SHOAL_OK;
    if (!shoali_parse_f64(text, &minutes) || !(minutes > 0) || minutes > 1e6)
        return SHOAL_FAIL(SHOAL_EINVAL, "DEEPSPEED_TIMEOUT=\"%s\" must be a number of minutes > 0",
                          text);
    *seconds = minutes * 60;
    return SHOAL_OK;
}

static shoal_status find_backend(const char *name, const struct shoali_comm_ops **ops)
{
    for (const struct shoali_comm_ops *const *at = shoali_comm_all(); *at; at++)
        if (strcmp((*at)->name, name) == 0) {
            *ops = *at;
            return (*at)->probe() ? SHOAL_OK
                                  : SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                                               "backend %s does not work on this machine", name);
        }
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "unknown backend \"%s\" (SHOAL_COMM): use self, thread, shm, mpi or ucx",
                      name);
}

/* Two jobs of mpirun or srun on one machine must not meet, and nobody gives them ports. */
static int32_t default_port(const struct shoali_started *job)
{
    char name[256];
    if (!job->launcher || !shoali_started_name(name, sizeof name))
        return DEFAULT_PORT;
    return JOB_PORTS + (int32_t)(shoali_hash64(name, strlen(name)) % JOB_PORT_COUNT);
}

const char *shoali_comm_default_backend(const struct shoali_started *job)
{
    const char *wanted = getenv("SHOAL_COMM");
    if (job->size <= 1)
        return "self";
    if (wanted && *wanted)
        return wanted;
    if (job->launcher)
        return job->local_size != job->size ? "mpi" : "shm";
    return job->local_size > 0 && job->local_size != job->size ? "ucx" : "shm";
}

static shoal_status resolve_rank(shoal_comm_args *args, const struct shoali_started *job)
{
    const char *text = getenv("WORLD_SIZE");
    int64_t size = 1;
    args->world_size = job->size > 0 ? (int32_t)job->size : 1;
    args->rank = job->rank > 0 ? (int32_t)job->rank : 0;
    if (job->rank < 0 && text && shoali_parse_i64(text, &size) && size > 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "WORLD_SIZE is %lld but RANK is not set: start the ranks with `shoal "
                          "run`, or give each its RANK",
                          (long long)size);
    return SHOAL_OK;
}

/* Fills what the caller left open. */
static shoal_status resolve(shoal_comm_args *args)
{
    shoal_status status = SHOAL_OK;
    const char *address = getenv("MASTER_ADDR"), *backend = getenv("SHOAL_COMM");
    struct shoali_started job = {.size = args->world_size};
    const struct shoali_comm_ops *known;
    if (backend && *backend) /* a mistake is told also where one rank needs no backend */
        SHOAL_TRY(status, find_backend(backend, &known), done);
    if (args->world_size == 0) {
        SHOAL_TRY(status, shoali_started_read(&job), done);
        SHOAL_TRY(status, resolve_rank(args, &job), done);
    }
    if (args->world_size < 1 || args->rank < 0 || args->rank >= args->world_size) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "rank %d of %d ranks does not exist: RANK counts from 0 to "
                            "WORLD_SIZE - 1",
                            (int)args->rank, (int)args->world_size);
        goto done;
    }
    if (!args->master_addr)
        args->master_addr = address && *address ? address : "127.0.0.1";
    if (args->master_port == 0) {
        args->master_port = default_port(&job);
        SHOAL_TRY(status, read_variable("MASTER_PORT", 1, 65535, &args->master_port), done);
    }
    if (!(args->timeout_s > 0))
        SHOAL_TRY(status, read_timeout(&args->timeout_s), done);
    if (!args->backend)
        args->backend = args->threads ? "thread" : shoali_comm_default_backend(&job);
done:
    return status;
}

/* Takes `object` over, on failure too. */
static shoal_status make_group(const struct shoali_comm_ops *ops, void *object,
                               const struct shoali_comm_ops *backend, shoal_group **out)
{
    struct shoal_group *group = shoali_calloc(1, sizeof(*group), "a group");
    if (!group) {
        ops->abort(object, SHOAL_ENOMEM, shoal_error_message()); /* or the others wait for us */
        ops->destroy(object);
        return SHOAL_ENOMEM;
    }
    group->ops = ops;
    group->object = object;
    group->backend = backend;
    group->device_memory = backend->device_memory;
    group->rank = ops->rank(object);
    group->size = ops->size(object);
    *out = group;
    return SHOAL_OK;
}

/* Ranks of several hosts become a hierarchy, unless SHOAL_HIERARCHICAL=0 says that they do not;
 * those of one machine do where hosts are pretended, and where MPI brought them here: a program
 * that hands its communicator over has not chosen how messages go, and an MPI moves within a
 * machine by copies what ranks here read in place. `*object` belongs to `*backend`, on failure to
 * nobody. */
static shoal_status divide(struct shoal_thread_world *threads, double timeout_s,
                           const struct shoali_comm_ops **backend, void **object)
{
    int32_t wanted = 1;
    const bool local = *backend == &shoali_comm_thread || *backend == &shoali_comm_shm;
    const shoal_status status = read_variable("SHOAL_HIERARCHICAL", 0, 1, &wanted);
    if (status < 0) {
        (*backend)->abort(*object, status, shoal_error_message()); /* or the others wait for us */
        (*backend)->destroy(*object);
        return status;
    }
    if (!wanted || !(*backend)->relay || (*backend)->size(*object) < 2 ||
        (local && !shoali_hierarchical_is_pretended()))
        return SHOAL_OK;
    const struct shoali_hier_args args = {.outer = *backend,
                                          .inner = threads ? &shoali_comm_thread : &shoali_comm_shm,
                                          .all = *object,
                                          .timeout_s = timeout_s,
                                          .threads = threads,
                                          .near_alone = *backend == &shoali_comm_mpi};
    return shoali_hierarchical_create(&args, backend, object);
}

/* Takes `object`, of the backend, over. */
static shoal_status wrap(const struct shoali_comm_ops *backend, void *object, bool no_check,
                         shoal_group **group)
{
    static const struct shoali_comm_ops *const wrappers[] = {
        &shoali_comm_fault, &shoali_comm_record, &shoali_comm_check};
    const struct shoali_comm_ops *ops = backend;
    shoal_status status = SHOAL_OK;
    for (int i = 0; i < (no_check ? 2 : 3); i++) {
        SHOAL_TRY(status, shoali_wrap_create(wrappers[i], ops, object, &object), done);
        ops = wrappers[i];
    }
    SHOAL_TRY(status, make_group(ops, object, backend, group), done);
done:
    return status;
}

shoal_status shoal_comm_from_mpi_handle(int32_t handle, shoal_group **group)
{
    const struct shoali_comm_ops *backend = &shoali_comm_mpi;
    double timeout_s = 0;
    void *object = NULL;
    shoal_status status = SHOAL_OK;
    *group = NULL;
    SHOAL_TRY(status, read_timeout(&timeout_s), done);
    SHOAL_TRY(status, shoali_mpi_adopt(handle, timeout_s, &object), done);
    shoali_context_get()->rank = shoali_comm_mpi.rank(object);
    shoali_context_get()->world = shoali_comm_mpi.size(object);
    SHOAL_TRY(status, divide(NULL, timeout_s, &backend, &object), done);
    SHOAL_TRY(status, wrap(backend, object, false, group), done);
done:
    return status;
}

/* A launcher reads what a rank that failed has said. */
static void close_page(struct shoali_status_page *page)
{
    const char *launcher = getenv(SHOALI_LAUNCHER_VARIABLE);
    shoali_status_page_close(page,
                             page && atomic_load(&page->failure) != 0 && launcher && *launcher);
}

shoal_status shoal_comm_init(const shoal_comm_args *given, shoal_group **group)
{
    const struct shoali_comm_ops *backend = NULL;
    struct shoali_launcher_watch *watch = NULL;
    struct shoali_status_page *page = NULL;
    shoal_comm_args args = {0};
    void *object = NULL;
    shoal_status status = SHOAL_OK;
    *group = NULL;
    if (given)
        args = *given;
    SHOAL_TRY(status, resolve(&args), done);
    SHOAL_TRY(status, find_backend(args.backend, &backend), done);
    shoali_context_get()->rank = args.rank;
    shoali_context_get()->world = args.world_size;
    SHOAL_TRY(status, shoali_launcher_watch_create(&args, &watch), done);
    if (!args.threads)
        page = shoali_status_page_open(args.rank, args.world_size);
    SHOAL_TRY(status, backend->create(&args, &object), done);
    SHOAL_TRY(status, divide(args.threads, args.timeout_s, &backend, &object), done);
    SHOAL_TRY(status, wrap(backend, object, args.no_check, group), done);
    (*group)->watch = watch;
    watch = NULL;
    if (page)
        shoali_status_page_put_text(page->backend, SHOALI_STATUS_PAGE_WORD_WORDS, backend->name);
    (*group)->page = page;
    page = NULL;
done:
    if (status < 0)
        shoali_status_page_fail(page, status, shoal_error_message());
    close_page(page);
    shoali_launcher_watch_destroy(watch);
    return status;
}

int64_t shoali_comm_control_bytes(int32_t ranks)
{
    const int32_t members = ranks < SHOALI_MAX_RANKS ? ranks : SHOALI_MAX_RANKS;
    return ranks > 1 ? (int64_t)shoali_group_bytes(members) / members : 0;
}

shoal_status shoali_comm_create_meta(int32_t rank, int32_t ranks, const shoal_group *like,
                                     shoal_group **group)
{
    shoal_status status;
    void *object = NULL;
    const shoal_comm_args args = {.rank = rank, .world_size = ranks};
    *group = NULL;
    SHOAL_TRY(status, shoali_comm_meta.create(&args, &object), done);
    SHOAL_TRY(status, shoali_wrap_create(&shoali_comm_record, &shoali_comm_meta, object, &object),
              done);
    SHOAL_TRY(status, make_group(&shoali_comm_record, object, &shoali_comm_meta, group), done);
    (*group)->device_memory = like && like->device_memory;
done:
    return status;
}

void shoal_comm_destroy(shoal_group *group)
{
    if (!group)
        return;
    (void)!shoali_comm_settle(group); /* its failure is the device's too */
    group->ops->destroy(group->object);
    close_page(group->page);
    shoali_launcher_watch_destroy(group->watch);
    while (group->block) { /* of which the device is gone */
        struct shoali_comm_block *block = group->block;
        group->block = block->next;
        shoali_free(block);
    }
    shoali_free(group);
}

int32_t shoal_comm_rank(const shoal_group *group)
{
    return group->rank;
}

int32_t shoal_comm_size(const shoal_group *group)
{
    return group->size;
}

const char *shoal_comm_backend(const shoal_group *group)
{
    return group->backend->name;
}

shoal_status shoali_comm_split(shoal_group *parent, const struct shoali_split_args *args,
                               shoal_group **group)
{
    void *child = NULL;
    *group = NULL;
    shoal_status status = shoali_comm_settle(parent);
    if (status == SHOAL_OK)
        status = parent->ops->split(parent->object, args, &child);
    if (status == SHOAL_OK && child)
        status = make_group(parent->ops, child, parent->backend, group);
    if (*group)
        (*group)->device_memory = parent->device_memory;
    if (status == SHOAL_OK && args->expected > 0)
        SHOAL_ASSERT(child && (*group)->size == args->expected && (*group)->rank == args->key);
    return status;
}

shoal_status shoal_comm_split_at(const char *here, shoal_group *parent, int32_t color, int32_t key,
                                 shoal_group **group)
{
    return shoali_comm_split(
        parent, &(struct shoali_split_args){.here = here, .color = color, .key = key}, group);
}

shoal_status shoal_comm_alloc_at(const char *here, shoal_group *group, size_t bytes, void **memory)
{
    *memory = NULL;
    const shoal_status status = shoali_comm_settle(group);
    return status == SHOAL_OK ? group->ops->alloc(group->object, here, bytes, memory) : status;
}

void shoal_comm_free(shoal_group *group, void *memory)
{
    if (memory)
        group->ops->free(group->object, memory);
}

void shoal_comm_abort(shoal_group *group, shoal_status status)
{
    if (status >= 0)
        status = SHOAL_FAIL(SHOAL_EINTERRUPTED, "the run was stopped");
    const char *sentence = shoal_error_message();
    shoali_status_page_fail(shoali_status_page_get(), status, sentence);
    group->ops->abort(group->object, status, *sentence ? sentence : shoal_status_name(status));
}

void shoali_comm_set_name(shoal_group *group, const char *name)
{
    struct shoali_status_page *page = shoali_status_page_get();
    if (page)
        shoali_status_page_put_text(page->name, SHOALI_STATUS_PAGE_NAME_WORDS, name);
    if (group->ops->set_name)
        group->ops->set_name(group->object, name);
}

void shoali_comm_say_place(shoal_group *group)
{
    if (group && group->ops->say_place)
        group->ops->say_place(group->object);
}

void shoali_comm_second_thread(shoal_group *group)
{
    group->ops->second_thread(group->object);
}

/* The object of a table among those that wrap each other. */
static void *object_of(const shoal_group *group, const struct shoali_comm_ops *table)
{
    const struct shoali_comm_ops *ops = group->ops;
    void *object = group->object;
    while (ops != table) {
        const struct shoali_wrap *wrap = object;
        ops = wrap->inner_ops;
        object = wrap->inner;
    }
    return object;
}

void shoali_comm_get_counters(const shoal_group *group, struct shoali_comm_counters *counters)
{
    shoali_record_read(object_of(group, &shoali_comm_record), counters);
    if (group->backend->between_hosts)
        group->backend->between_hosts(object_of(group, group->backend), counters->between_hosts);
}

shoal_status shoali_comm_add_counters(shoal_group *group, struct shoali_comm_counters *sum)
{
    shoal_status status = SHOAL_OK;
    struct shoali_comm_counters more;
    if (!group)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_comm_settle(group), done);
    shoali_comm_get_counters(group, &more);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        sum->calls[k] += more.calls[k];
        sum->elements[k] += more.elements[k];
        sum->bytes[k] += more.bytes[k];
    }
    sum->shared_bytes += more.shared_bytes;
    sum->wait_ns += more.wait_ns;
done:
    return status;
}

void shoali_comm_set_log(shoal_group *group, struct shoali_comms_log *log)
{
    shoali_record_set_log(object_of(group, &shoali_comm_record), log);
}

bool shoali_comm_has_hosts(const shoal_group *group)
{
    return group->backend->between_hosts != NULL;
}

int32_t shoali_comm_ranks_per_host(const shoal_group *group)
{
    return group->backend->ranks_per_host
               ? group->backend->ranks_per_host(object_of(group, group->backend))
               : 0;
}
