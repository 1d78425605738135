/* Trained bits, written down: twenty layouts on the reference kernels, which are plain loops. In
 * exact mode one number holds for many layouts; in fast mode the order of sums is part of a layout,
 * and so is its number. A change here is a change of what everybody's runs give.
 * SHOAL_TEST_VERBOSE=1 prints the numbers. */
#include "engine/test_gpt.h"

#include <ftw.h>

enum { STEPS = 4 };
static struct gpt_seat seats[GPT_RANKS_MAX];
static char folder[] = "/tmp/shoal-fingerprints-XXXXXX";

#define ZERO(stage, more) "\"zero_optimization\":{\"stage\":" #stage more "}"
#define EXACT "\"reduction\":\"exact\","
#define BF16 "\"bf16\":{\"enabled\":true},"
#define FP16 "\"fp16\":{\"enabled\":true,\"initial_scale_power\":8},"
#define SMALL ",\"reduce_bucket_size\":3000,\"allgather_bucket_size\":3000"
#define ALONE ",\"overlap_comm\":false"
#define FETCH ",\"stage3_param_persistence_threshold\":0"
#define CPU(what) ",\"offload_" what "\":{\"device\":\"cpu\",\"buffer_count\":4}"
#define NVME(what) \
    ",\"offload_" what "\":{\"device\":\"nvme\",\"nvme_path\":\"%s\",\"buffer_count\":4}"

static const struct cell {
    int32_t ranks;
    const char *recompute, *options;
    uint64_t fingerprint;
} cells[] = {
    {1, NULL, EXACT ZERO(0, ""), 0xcbdfda6424433bd8u},
    {1, "full", BF16 ZERO(3, CPU("optimizer") CPU("param")), 0x4651f0181a2ad083u},
    {2, NULL, ZERO(0, SMALL), 0x416f106e7e62f231u},
    {2, "full", EXACT FP16 ZERO(0, ALONE), 0x2cc7c0e4ce14e72du},
    {2, NULL, FP16 ZERO(1, SMALL), 0xbeb152f2958ab8c2u},
    {4, NULL, ZERO(1, SMALL ALONE), 0xfc2ccabf44825c22u},
    {4, NULL, EXACT BF16 ZERO(1, CPU("optimizer")), 0x9b1f917067b9245fu},
    {2, "full", BF16 ZERO(2, SMALL), 0x09bf74f7d54c864fu},
    {4, NULL, ZERO(2, ALONE ",\"reduce_scatter\":false"), 0xf559bc55746360b3u},
    {3, NULL, EXACT ZERO(2, NVME("optimizer")), 0xcbdfda6424433bd8u},
    {2, NULL, ZERO(3, FETCH), 0x3a93b860c84e1844u},
    {4, "full", FP16 ZERO(3, SMALL FETCH), 0xc51d82c96b671475u},
    {4, NULL, EXACT BF16 ZERO(3, SMALL ALONE), 0x9b1f917067b9245fu},
    {2, NULL, BF16 ZERO(3, NVME("optimizer") NVME("param") FETCH), 0x09bf74f7d54c864fu},
    {4, NULL, ZERO(3, FETCH ",\"mics_shard_size\":2"), 0x070c5123ade00885u},
    {4, NULL, BF16 ZERO(3, FETCH ",\"zero_hpz_partition_size\":2"), 0x798f3c4abc4d9289u},
    {4, NULL, BF16 ZERO(3, FETCH ",\"zero_quantized_weights\":true"), 0xc3385ccc09795d9fu},
    {4, NULL, ZERO(3, FETCH ",\"zero_quantized_gradients\":true"), 0x589c72e67727fcf2u},
    {4, "full",
     BF16 ZERO(3, SMALL FETCH ",\"zero_quantized_weights\":true,"
                              "\"zero_quantized_gradients\":true,"
                              "\"zero_hpz_partition_size\":2,"
                              "\"zeropp_loco_param\":{\"err_beta\":0.8,\"reset_T\":2}"),
     0x89dbf382a1ed0b6eu},
    {4, NULL, "\"prescale_gradients\":true," BF16 ZERO(0, ""), 0xe547df0d73293487u},
    {2, NULL, "\"gradient_predivide_factor\":4.0,\"gradient_clipping\":0.01," ZERO(1, SMALL),
     0x8be207c814f5e9cau},
};

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static void test_bits(void **state)
{
    const bool fast = getenv("SHOAL_TEST_FAST") != NULL;
    int32_t wrong = 0;
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        const struct cell *cell = &cells[i];
        char options[1024];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(options, sizeof options, cell->options, folder, folder);
#pragma GCC diagnostic pop
        gpt_run_ranks((struct gpt_run){.ranks = cell->ranks,
                                       .recompute = cell->recompute,
                                       .options = options,
                                       .ops = fast ? NULL : "ref",
                                       .dropout = 0.1,
                                       .steps = STEPS},
                      seats);
        if (getenv("SHOAL_TEST_VERBOSE"))
            printf("%2d 0x%016llx loss %.17g norm %.17g\n", (int)i,
                   (unsigned long long)seats[0].fingerprint, seats[0].info[STEPS - 1].loss,
                   seats[0].info[STEPS - 1].grad_norm);
        for (int32_t r = 1; r < cell->ranks; r++)
            assert_int_equal(seats[r].fingerprint, seats[0].fingerprint);
        wrong += seats[0].fingerprint != cell->fingerprint;
    }
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
