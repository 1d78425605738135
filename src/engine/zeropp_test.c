/* ZeRO++ and MiCS through the configuration: the bits of plain stage 3 in exact mode, also through
 * a checkpoint that another layout reads and writes. */
#include "engine/test_gpt.h"

#include <ftw.h>
#include <unistd.h>

enum { STEPS = 4, HALF = 2 };
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];
static char folder[64];

#define STAGE3(more)                                                                               \
    "\"reduction\":\"exact\",\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":3," more \
    "}"
static const char *const layouts[] = {
    STAGE3("\"mics_shard_size\":2"),
    STAGE3("\"zero_hpz_partition_size\":2,\"stage3_max_live_parameters\":0"),
    STAGE3("\"mics_shard_size\":1,\"overlap_comm\":false"),
    STAGE3("\"stage3_module_granularity_threshold\":3000,\"stage3_param_persistence_threshold\":0"),
};
static const size_t layout_count = sizeof layouts / sizeof layouts[0];

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void test_same_bits(void **state)
{
    (void)state;
    struct gpt_run run = {.ranks = 4, .steps = STEPS, .options = STAGE3("\"overlap_comm\":false")};
    gpt_run_ranks(run, reference);
    for (size_t l = 0; l < layout_count; l++) {
        run.options = layouts[l];
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, 4, reference, layouts[l]);
    }
}

static bool train_half_and_save(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    while (seat->steps_done < HALF)
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat,
                                        &seat->info[seat->steps_done++]) >= 0);
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, "{}") == SHOAL_OK);
    return gpt_train(seat);
}

static bool load_and_train(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, NULL) == SHOAL_OK);
    memcpy(seat->info, reference[0].info, HALF * sizeof seat->info[0]);
    seat->steps_done = HALF;
    return gpt_train(seat);
}

static void test_checkpoints(void **state)
{
    (void)state;
    for (size_t l = 0; l < layout_count; l++) {
        const size_t next = (l + 1) % layout_count;
        struct gpt_run run = {.ranks = 4, .steps = STEPS, .options = layouts[l]};
        strcpy(folder, "/tmp/shoal-zeropp-XXXXXX");
        assert_non_null(mkdtemp(folder));
        run.run = train_half_and_save;
        gpt_run_ranks(run, reference);
        run.run = load_and_train;
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, 4, reference, layouts[l]);
        run.options = layouts[next];
        run.ranks = 2;
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, 2, reference, layouts[next]);
        remove_folder();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
