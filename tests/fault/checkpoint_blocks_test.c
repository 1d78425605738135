/* Ranks that hold blocks of the tensors, and parts of their blocks: files are those of one rank
 * that holds all, across chunks, too, and any blocks can be loaded. Blocks that are no cut of a
 * tensor are refused, and so are shards of tensors that are none. */
#include "base/test_cmocka.h"
#include "checkpoint_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 4, RANKS_MAX = 4, KINDS = 2 };
static const char *const names[TENSORS] = {"large", "small", "all", "one"};

/* How `ways[0] x ways[1] x parts` ranks cut: dim 0, dim 1, and each block's flat space in parts. */
struct layout {
    int32_t ways[2], parts;
    bool replicated; /* the second kind: every rank has its blocks entirely */
};
struct rank {
    const struct layout *layout;
    const char *dir;
    struct shoal_thread_world *world;
    int32_t rank;
    bool saves;
    int32_t odd; /* a mistake of the last rank; see cut_odd and __wrap_shoali_shard_pack */
    struct shoali_shard shard[TENSORS];
    const struct shoali_shard *shards[TENSORS];
    shoal_shape shapes[TENSORS];
    uint8_t *data;
    int64_t held;
    bool right;
    shoal_status status;
    char message[512];
    pthread_t thread;
};

/* 4, 5: behind its last shard the rank tells of one more tensor, the one before the first or behind
 * the last. */
static _Thread_local int32_t odd_words;
int32_t __real_shoali_shard_pack(const struct shoali_shard *shard, int64_t *words);
int32_t __wrap_shoali_shard_pack(const struct shoali_shard *shard, int64_t *words);
int32_t __wrap_shoali_shard_pack(const struct shoali_shard *shard, int64_t *words)
{
    int32_t count = __real_shoali_shard_pack(shard, words);
    if (odd_words >= 4 && shoal_shape_count(&shard->global) == 9)
        words[count++] = odd_words == 4 ? -1 : TENSORS;
    return count;
}

static uint8_t value_of(int32_t tensor, int64_t element)
{
    const uint64_t x = ((uint64_t)element + (uint64_t)tensor * 1000003u) * 0x9e3779b97f4a7c15u;
    return (uint8_t)(x >> 50);
}

/* The shapes: the first has more than a chunk of 16 MiB, with an end inside a row. */
static void make_shapes(shoal_shape *shapes)
{
    shapes[0] = shoal_shape_2(4300, 4099);
    shapes[1] = shoal_shape_3(5, 12, 3);
    shapes[2] = shoal_shape_1(77);
    shapes[3] = shoal_shape_2(1, 9);
}

static void cut(struct shoali_shard *shard, int32_t dim, int32_t ways, int32_t index, bool parts)
{
    struct shoali_dim_partition how = {.dim = dim, .ways = ways, .index = index};
    if (parts) {
        how.part_count = 3;
        memcpy(how.part, (int64_t[]){4000, 50, 49}, 3 * sizeof(int64_t));
        memcpy(how.unit, (int64_t[]){10, 25, 7}, 3 * sizeof(int64_t));
    }
    if (shoali_shard_partition(shard, &how) != SHOAL_OK)
        abort();
}

/* 1: rows of the rank before; 2: a row less; 3: a block of another shape. */
static void cut_odd(struct rank *rank)
{
    struct shoali_interval *rows = &rank->shard[0].interval[0][0];
    if (rank->odd == 1)
        rows->begin--;
    if (rank->odd == 2) {
        rows->count--;
        rank->shard[0].local.dim[0]--;
    }
    if (rank->odd == 3)
        rank->shard[1].global.dim[2] = 4;
}

static void cut_all(struct rank *rank)
{
    const struct layout *layout = rank->layout;
    const int32_t i = rank->rank % layout->ways[0];
    const int32_t k = rank->rank / layout->ways[0] % layout->ways[1];
    const bool odd =
        rank->odd && rank->rank == layout->ways[0] * layout->ways[1] * layout->parts - 1;
    for (int32_t t = 0; t < TENSORS; t++) {
        rank->shard[t] = shoali_shard_whole(&rank->shapes[t]);
        rank->shards[t] = t == 2 ? NULL : &rank->shard[t];
    }
    cut(&rank->shard[0], 0, layout->ways[0], i, false);
    cut(&rank->shard[0], 1, layout->ways[1], k, true);
    cut(&rank->shard[1], 1, layout->ways[0], i, false);
    cut(&rank->shard[1], 0, layout->ways[1], k, false);
    cut(&rank->shard[3], 1, layout->ways[0], i, false);
    if (layout->ways[0] * layout->ways[1] == 1)
        memset(rank->shards, 0, sizeof rank->shards);
    if (odd)
        cut_odd(rank);
    odd_words = odd ? rank->odd : 0;
    for (int32_t t = 0; t < TENSORS; t++)
        rank->held += shoal_shape_count(&rank->shard[t].local);
}

/* Fills the flat space, or looks whether its part is filled: by the wholes' elements. */
static bool go_through(struct rank *rank, const struct shoali_checkpoint_range *part, bool fill)
{
    int64_t flat = 0, run;
    for (int32_t t = 0; t < TENSORS; t++) {
        const int64_t count = shoal_shape_count(&rank->shard[t].local);
        for (int64_t at = 0; at < count; at += run) {
            const int64_t element = shoali_shard_run(&rank->shard[t], at, &run);
            for (int64_t i = 0; i < run; i++, flat++) {
                if (fill)
                    rank->data[flat] = value_of(t, element + i);
                else if (flat >= part->begin && flat < part->begin + part->count &&
                         rank->data[flat] != value_of(t, element + i))
                    return false;
            }
        }
    }
    return true;
}

static shoal_status read_data(void *user, int64_t first, int64_t count, void *out)
{
    const struct rank *rank = user;
    memcpy(out, rank->data + first, (size_t)count);
    return SHOAL_OK;
}

static shoal_status write_data(void *user, int64_t first, int64_t count, const void *in)
{
    struct rank *rank = user;
    memcpy(rank->data + first, in, (size_t)count);
    return SHOAL_OK;
}

static void act(struct rank *rank, shoal_group *group)
{
    const struct layout *layout = rank->layout;
    const int32_t part = rank->rank / (layout->ways[0] * layout->ways[1]);
    make_shapes(rank->shapes);
    cut_all(rank);
    const int64_t each = rank->held / layout->parts;
    const struct shoali_checkpoint_range range = {
        part * each, part + 1 == layout->parts ? rank->held - part * each : each};
    struct shoali_checkpoint_kind kinds[KINDS] = {{.name = "model"}, {.name = "master"}};
    rank->data = calloc((size_t)rank->held + 1, 1);
    for (int32_t k = 0; k < KINDS; k++) {
        kinds[k].dtype = SHOAL_U8;
        kinds[k].begin = range.begin;
        kinds[k].count = range.count;
        kinds[k].replicated = k == 1 && layout->replicated;
        kinds[k].user = rank;
        kinds[k].read = read_data;
        kinds[k].write = write_data;
    }
    const struct shoali_checkpoint_args args = {.dir = rank->dir,
                                                .tag = "t",
                                                .group = group,
                                                .names = names,
                                                .shapes = rank->shapes,
                                                .tensor_count = TENSORS,
                                                .shards = rank->shards,
                                                .kinds = kinds,
                                                .kind_count = KINDS,
                                                .engine_json = "{}"};
    if (rank->saves)
        go_through(rank, &range, true);
    rank->status = rank->saves ? shoali_checkpoint_save(&args) : shoali_checkpoint_load(&args);
    snprintf(rank->message, sizeof rank->message, "%s",
             rank->status < 0 ? shoal_error_message() : "");
    const struct shoali_checkpoint_range all = {0, rank->held};
    rank->right = rank->saves || rank->status < 0 ||
                  go_through(rank, layout->replicated ? &all : &range, false);
    free(rank->data);
}

static void *rank_main(void *user)
{
    struct rank *rank = user;
    const struct layout *layout = rank->layout;
    shoal_group *group = NULL;
    const shoal_comm_args args = {.rank = rank->rank,
                                  .world_size = layout->ways[0] * layout->ways[1] * layout->parts,
                                  .backend = "thread",
                                  .threads = rank->world,
                                  .timeout_s = 60};
    if (args.world_size > 1 && shoal_comm_init(&args, &group) != SHOAL_OK)
        abort();
    act(rank, group);
    shoal_comm_destroy(group);
    return NULL;
}

/* text NULL: it succeeds. */
static void run(const struct layout *layout, const char *dir, bool saves, int32_t odd,
                const char *text)
{
    static struct rank ranks[RANKS_MAX];
    struct shoal_thread_world *world = NULL;
    const int32_t count = layout->ways[0] * layout->ways[1] * layout->parts;
    if (count > 1)
        assert_int_equal(shoal_thread_world_create(count, &world), SHOAL_OK);
    for (int32_t r = 0; r < count; r++) {
        ranks[r] = (struct rank){
            .layout = layout, .dir = dir, .world = world, .rank = r, .saves = saves, .odd = odd};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < count; r++)
        pthread_join(ranks[r].thread, NULL);
    shoal_thread_world_destroy(world);
    for (int32_t r = 0; r < count; r++) {
        if ((ranks[r].status < 0) != (text != NULL) || (text && !strstr(ranks[r].message, text)))
            fail_msg("rank %d of %d: %s", (int)r, (int)count, ranks[r].message);
        assert_true(ranks[r].right);
    }
}

static const struct layout layouts[] = {
    {{1, 1}, 1, false}, {{2, 2}, 1, false}, {{2, 2}, 1, true},  {{4, 1}, 1, false},
    {{1, 4}, 1, true},  {{2, 1}, 2, false}, {{1, 2}, 2, false}, {{1, 1}, 3, true},
};

static void test_any_layout(void **state)
{
    (void)state;
    char whole[64], other[64], command[256];
    model_folder_make(whole);
    run(&layouts[0], whole, true, 0, NULL);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        run(&layouts[i], whole, false, 0, NULL);
        model_folder_make(other);
        run(&layouts[i], other, true, 0, NULL);
        snprintf(command, sizeof command, "diff -r %s %s >&2", whole, other);
        assert_int_equal(system(command), 0);
        model_folder_remove(other);
    }
    model_folder_remove(whole);
}

static void test_no_cut(void **state)
{
    char dir[64];
    (void)state;
    model_folder_make(dir);
    run(&layouts[1], dir, true, 1,
        "tensor `large` is partitioned differently on rank 2 and rank 3");
    run(&layouts[1], dir, true, 2,
        "tensor `large`: the blocks on all ranks have 17623654 elements, the tensor has 17625700");
    run(&layouts[1], dir, true, 3,
        "tensor `small` has shape [5, 12, 3], but this rank holds a shard of a tensor of shape [5, "
        "12, 4]");
    for (int32_t odd = 4; odd <= 5; odd++)
        run(&layouts[1], dir, true, odd, "rank 3 reports shards of unknown tensors");
    model_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_layout),
        cmocka_unit_test(test_no_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
