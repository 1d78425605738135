#include "checkpoint_model.h"
#include "base/test_cmocka.h"

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- the model ---- */

void model_add(struct model *model, const char *name, shoal_shape shape)
{
    const int32_t at = model->tensor_count++;
    snprintf(model->name_text[at], sizeof model->name_text[at], "%s", name);
    model->names[at] = model->name_text[at];
    model->shapes[at] = shape;
    model->flat_count += shoal_shape_count(&shape);
}

void model_add_kind(struct model *model, const char *name, shoal_dtype dtype, bool replicated)
{
    model->kinds[model->kind_count++] = (struct model_kind){name, dtype, replicated};
}

void model_random(struct model *model, uint64_t seed, int64_t dim_max)
{
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F64, SHOAL_U8, SHOAL_I64};
    const struct shoali_stream stream = shoali_stream_make(seed, "test", "model", 0);
    uint64_t next = 0;
    *model = (struct model){0};
    const int32_t tensors = (int32_t)shoali_random_below(&stream, next++, MODEL_TENSORS_MAX + 1);
    for (int32_t i = 0; i < tensors; i++) {
        char name[32];
        shoal_shape shape = {.ndim = (int32_t)shoali_random_below(&stream, next++, 6)};
        for (int32_t d = 0; d < shape.ndim; d++)
            shape.dim[d] =
                (int64_t)shoali_random_below(&stream, next++, (uint64_t)(d < 2 ? dim_max : 3) + 1);
        snprintf(name, sizeof name, "block.%d.\"w\\\xc3\xa9\"", i);
        model_add(model, name, shape);
    }
    static const char *const names[] = {"model", "master", "exp_avg"};
    for (int i = 0; i < 3; i++) {
        const uint64_t dtype = shoali_random_below(&stream, next++, 5);
        model_add_kind(model, names[i], dtypes[dtype],
                       shoali_random_below(&stream, next++, 3) == 0);
    }
    model->max_shard_bytes = 1 + (int64_t)shoali_random_below(&stream, next++, 100000);
}

/* ---- values ---- */

static uint8_t value_of(uint64_t content, const char *kind, int64_t byte)
{
    uint64_t x = (uint64_t)byte + content * 0x9e3779b97f4a7c15u + (uint64_t)kind[0] * 1000003u +
                 strlen(kind) * 7919u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return (uint8_t)(x >> 56);
}

/* One kind as one rank holds it. */
struct holder {
    const struct model_kind *kind;
    struct shoali_checkpoint_range range[MODEL_PIECES_MAX];
    int32_t ranges;
    int64_t begin, count; /* of `data`: from the first range's begin to the last one's end */
    uint8_t *data;
    bool refuses;
    int64_t expected, read;          /* elements: told in front, and read */
    uint64_t expected_sum, read_sum; /* of their places */
};

static uint8_t *place(struct holder *holder, int64_t first, int64_t count)
{
    bool held = false;
    for (int32_t r = 0; r < holder->ranges; r++) {
        const struct shoali_checkpoint_range *range = &holder->range[r];
        held = held || (first >= range->begin && first + count <= range->begin + range->count);
    }
    if (!held)
        abort(); /* asked for elements of another rank */
    return holder->data + (size_t)(first - holder->begin) * shoal_dtype_bytes(holder->kind->dtype);
}

static shoal_status read_holder(void *user, int64_t first, int64_t count, void *out)
{
    struct holder *holder = user;
    if (holder->refuses)
        return SHOAL_FAIL(SHOAL_ENUMERIC, "the device is on fire");
    holder->read += count;
    holder->read_sum += (uint64_t)(2 * first + count) * (uint64_t)count;
    memcpy(out, place(holder, first, count),
           (size_t)count * shoal_dtype_bytes(holder->kind->dtype));
    return SHOAL_OK;
}

static void expect_holder(void *user, int64_t first, int64_t count)
{
    struct holder *holder = user;
    holder->expected += count;
    holder->expected_sum += (uint64_t)(2 * first + count) * (uint64_t)count;
}

static shoal_status write_holder(void *user, int64_t first, int64_t count, const void *in)
{
    struct holder *holder = user;
    if (holder->refuses)
        return SHOAL_FAIL(SHOAL_ENUMERIC, "the device is on fire");
    memcpy(place(holder, first, count), in, (size_t)count * shoal_dtype_bytes(holder->kind->dtype));
    return SHOAL_OK;
}

/* ---- ranks ---- */

struct rank {
    struct model_run *run;
    struct shoal_thread_world *world;
    int32_t rank;
    bool saves, passed;
    pthread_t thread;
};

/* Cuts [0, flat_count) at random places and deals the parts out like cards, not always beginning
 * with rank 0. */
static void deal(const struct model_run *run, int32_t kind, int32_t rank, struct holder *holder)
{
    const struct shoali_stream stream =
        shoali_stream_make(run->layout, "test", "layout", (uint64_t)kind);
    int64_t cut[MODEL_RANKS_MAX * MODEL_PIECES_MAX + 1] = {0};
    const int32_t parts = run->ranks * holder->ranges;
    const uint64_t room = (uint64_t)run->model->flat_count + 1;
    for (int32_t i = 1; i < parts; i++) {
        int64_t at = (int64_t)shoali_random_below(&stream, (uint64_t)i, room);
        int32_t j = i;
        for (; cut[j - 1] > at; j--)
            cut[j] = cut[j - 1];
        cut[j] = at;
    }
    cut[parts] = run->model->flat_count;
    const int32_t turn = (int32_t)shoali_random_below(&stream, 100, (uint64_t)run->ranks);
    for (int32_t r = 0; r < holder->ranges; r++) {
        const int32_t part = r * run->ranks + (rank + turn) % run->ranks;
        holder->range[r] = (struct shoali_checkpoint_range){cut[part], cut[part + 1] - cut[part]};
    }
    const struct shoali_checkpoint_range *last = &holder->range[holder->ranges - 1];
    holder->begin = holder->range[0].begin;
    holder->count = last->begin + last->count - holder->begin;
}

static void holder_init(struct holder *holder, const struct rank *rank, int32_t kind)
{
    const struct model_run *run = rank->run;
    *holder = (struct holder){.kind = &run->model->kinds[kind],
                              .range[0].count = run->model->flat_count,
                              .ranges = 1,
                              .count = run->model->flat_count,
                              .refuses = run->refusing_rank == rank->rank};
    if (!holder->kind->replicated) {
        holder->ranges = run->pieces > 0 ? run->pieces : 1;
        deal(run, kind, rank->rank, holder);
    }
    const int64_t item = (int64_t)shoal_dtype_bytes(holder->kind->dtype);
    holder->data = calloc((size_t)(holder->count * item) + 1, 1);
    for (int64_t i = 0; rank->saves && i < holder->count * item; i++)
        holder->data[i] = value_of(run->content, holder->kind->name, holder->begin * item + i);
}

static bool holder_right(const struct holder *holder, const struct model_run *run)
{
    const int64_t item = (int64_t)shoal_dtype_bytes(holder->kind->dtype);
    for (int32_t r = 0; r < holder->ranges; r++) {
        const int64_t begin = holder->range[r].begin * item;
        const int64_t end = begin + holder->range[r].count * item;
        for (int64_t i = begin; i < end; i++)
            if (holder->data[i - holder->begin * item] !=
                value_of(run->content, holder->kind->name, i))
                return false;
    }
    return true;
}

static void act(struct rank *rank, shoal_group *group)
{
    struct model_run *run = rank->run;
    const struct model *model = run->model;
    struct holder holders[MODEL_KINDS_MAX];
    struct shoali_checkpoint_kind kinds[MODEL_KINDS_MAX];
    for (int32_t k = 0; k < model->kind_count; k++) {
        struct holder *holder = &holders[k];
        holder_init(holder, rank, k);
        kinds[k] = (struct shoali_checkpoint_kind){.name = holder->kind->name,
                                                   .dtype = holder->kind->dtype,
                                                   .begin = holder->range[0].begin,
                                                   .count = holder->range[0].count,
                                                   .replicated = holder->kind->replicated,
                                                   .user = holder,
                                                   .expect = expect_holder,
                                                   .read = read_holder,
                                                   .write = write_holder};
        if (run->pieces > 0 && !holder->kind->replicated) {
            kinds[k].ranges = holder->range;
            kinds[k].range_count = holder->ranges;
        }
    }
    const struct shoali_checkpoint_args args = {.dir = run->dir,
                                                .tag = run->tag,
                                                .group = group,
                                                .names = model->names,
                                                .shapes = model->shapes,
                                                .tensor_count = model->tensor_count,
                                                .aliases = model->aliases,
                                                .alias_count = model->alias_count,
                                                .kinds = kinds,
                                                .kind_count = model->kind_count,
                                                .engine_json = "{\"seed\":7,\"scale\":0.1}",
                                                .client_json = run->client_json,
                                                .step = run->step,
                                                .tag_chosen = !run->default_tag,
                                                .override_existing = run->override_existing,
                                                .keep = run->keep,
                                                .max_shard_bytes = model->max_shard_bytes};
    shoali_fault_arm(run->fault);
    shoal_status status =
        rank->saves ? shoali_checkpoint_save(&args) : shoali_checkpoint_load(&args);
    run->fired[rank->rank] = shoali_fault_left() < 0;
    shoali_fault_arm(NULL);
    run->status[rank->rank] = status;
    snprintf(run->message[rank->rank], sizeof run->message[0], "%s",
             status < 0 ? shoal_error_message() : "");
    rank->passed = true;
    for (int32_t k = 0; k < model->kind_count; k++) {
        if (status == SHOAL_OK && !rank->saves)
            rank->passed = rank->passed && holder_right(&holders[k], run);
        if (status == SHOAL_OK && rank->saves) /* told in front: each element that is read, once */
            rank->passed = rank->passed && holders[k].expected == holders[k].read &&
                           holders[k].expected_sum == holders[k].read_sum;
        free(holders[k].data);
    }
}

static void *rank_main(void *user)
{
    struct rank *rank = user;
    shoal_group *group = NULL;
    const shoal_comm_args args = {.rank = rank->rank,
                                  .world_size = rank->run->ranks,
                                  .backend = "thread",
                                  .threads = rank->world,
                                  .timeout_s =
                                      rank->run->timeout_s > 0 ? rank->run->timeout_s : 60};
    if (shoal_comm_init(&args, &group) != SHOAL_OK)
        abort();
    shoali_context_get()->rank = rank->rank;
    act(rank, group);
    shoal_comm_destroy(group);
    return NULL;
}

static void run_ranks(struct model_run *run, bool saves)
{
    struct rank ranks[MODEL_RANKS_MAX];
    struct shoal_thread_world *world = NULL;
    for (int32_t r = 0; r < run->ranks; r++)
        ranks[r] = (struct rank){.run = run, .rank = r, .saves = saves};
    if (run->ranks == 1) {
        act(&ranks[0], NULL);
        assert_true(ranks[0].passed);
        return;
    }
    assert_int_equal(shoal_thread_world_create(run->ranks, &world), SHOAL_OK);
    for (int32_t r = 0; r < run->ranks; r++) {
        ranks[r].world = world;
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < run->ranks; r++)
        pthread_join(ranks[r].thread, NULL);
    shoal_thread_world_destroy(world);
    for (int32_t r = 0; r < run->ranks; r++)
        assert_true(ranks[r].passed);
}

void model_save(struct model_run *run)
{
    run_ranks(run, true);
}

void model_load(struct model_run *run)
{
    run_ranks(run, false);
}

static void expect(const struct model_run *run, shoal_status status)
{
    for (int32_t r = 0; r < run->ranks; r++)
        if (run->status[r] != status)
            fail_msg("rank %d of %d: %s instead of %s: %s", r, run->ranks,
                     shoal_status_name(run->status[r]), shoal_status_name(status), run->message[r]);
}

void model_save_expect(struct model_run *run, shoal_status status)
{
    model_save(run);
    expect(run, status);
}

void model_load_expect(struct model_run *run, shoal_status status)
{
    model_load(run);
    expect(run, status);
}

/* ---- folders ---- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static char made[64]; /* the last folder, for the end of a failed test */

static void remove_made(void)
{
    nftw(made, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* In memory where there is room: flushing real disks is most of the time otherwise. */
void model_folder_make(char path[64])
{
    struct statvfs info;
    const double room_bytes = 256e6;
    const bool memory = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &info) == 0 &&
                        (double)info.f_bavail * (double)info.f_frsize > room_bytes;
    if (!*made)
        atexit(remove_made);
    snprintf(path, 64, "%scheckpoint_test_XXXXXX", memory ? "/dev/shm/" : "");
    assert_non_null(mkdtemp(path));
    snprintf(made, sizeof made, "%s", path);
}

void model_folder_remove(const char *path)
{
    assert_int_equal(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

char *model_read_file(const char *dir, const char *name, size_t *bytes)
{
    char path[512], *data = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(shoali_read_file(path, &data, bytes), SHOAL_OK);
    return data;
}

/* ---- the fixture ---- */

int model_set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    struct model *model = &fixture->model;
    model_folder_make(fixture->dir);
    model->max_shard_bytes = 4000;
    model_add(model, "a", shoal_shape_2(30, 40));
    model_add(model, "b", shoal_shape_1(500));
    model_add(model, "c", shoal_shape_1(5));
    model_add_kind(model, "model", SHOAL_F32, false);
    fixture->run = (struct model_run){.model = model,
                                      .dir = fixture->dir,
                                      .tag = "one",
                                      .ranks = 2,
                                      .layout = 3,
                                      .content = 1,
                                      .step = 1,
                                      .refusing_rank = -1};
    *state = fixture;
    return 0;
}

int model_tear_down(void **state)
{
    struct fixture *fixture = *state;
    model_folder_remove(fixture->dir);
    free(fixture);
    return 0;
}

void model_expect_text(const char *message, const char *part)
{
    if (!strstr(message, part))
        fail_msg("no \"%s\" in: %s", part, message);
}
