/* The offset allocator: no overlap, coalescing, determinism, growth; meta and real agree. */
#include "autograd/test_rig.h"

enum { LIVE = 64, STEPS = 4000 };

struct live {
    int32_t segment;
    size_t bytes;
};

static uintptr_t begin_of(const struct shoali_slot *slot, const struct live *live)
{
    return (uintptr_t)shoali_slot_address(slot, live->segment);
}

static void check_no_overlap(const struct shoali_slot *slot, const struct live *live, int32_t at)
{
    const uintptr_t begin = begin_of(slot, &live[at]);
    assert_int_equal(begin % 64, 0);
    for (int32_t i = 0; i < LIVE; i++)
        if (i != at && live[i].segment != SHOALI_NO_SEGMENT) {
            const uintptr_t other = begin_of(slot, &live[i]);
            assert_true(begin + live[at].bytes <= other || other + live[i].bytes <= begin);
        }
}

/* A seeded sequence of allocations and frees; returns the peak. */
static size_t run_sequence(struct shoali_slot *slot, uint64_t seed, uintptr_t *offsets)
{
    struct live live[LIVE];
    const struct shoali_stream stream = shoali_stream_make(seed, "test", "slot", 0);
    for (int32_t i = 0; i < LIVE; i++)
        live[i].segment = SHOALI_NO_SEGMENT;
    for (int32_t step = 0; step < STEPS; step++) {
        uint32_t random[4];
        shoali_philox(&stream, (uint64_t)step, random);
        struct live *entry = &live[random[0] % LIVE];
        if (entry->segment != SHOALI_NO_SEGMENT) {
            shoali_slot_free(slot, entry->segment);
            entry->segment = SHOALI_NO_SEGMENT;
            offsets[step] = 0;
            continue;
        }
        entry->bytes = random[1] % (random[2] % 8 == 0 ? 20000 : 500);
        rig_ok(shoali_slot_alloc(slot, entry->bytes, &entry->segment));
        check_no_overlap(slot, live, (int32_t)(entry - live));
        offsets[step] = begin_of(slot, entry);
    }
    for (int32_t i = 0; i < LIVE; i++)
        shoali_slot_free(slot, live[i].segment);
    assert_int_equal(shoali_slot_used_bytes(slot), 0);
    return shoali_slot_peak_bytes(slot);
}

static void test_meta_and_real_place_alike(void **state)
{
    (void)state;
    static uintptr_t meta_offsets[STEPS], offsets[STEPS];
    struct rig rig;
    struct shoali_slot *meta, *slot;
    const uint64_t seed = rig_seed("slot");
    rig_open(&rig, "ref");
    rig_ok(shoali_slot_create(NULL, 0, &meta));
    const size_t peak = run_sequence(meta, seed, meta_offsets);
    rig_ok(shoali_slot_create(rig.device, peak, &slot));
    for (int32_t round = 0; round < 2; round++) {
        assert_int_equal(run_sequence(slot, seed, offsets), peak);
        assert_int_equal(shoali_slot_growth_count(slot), 0);
        uintptr_t base = UINTPTR_MAX, meta_base = UINTPTR_MAX;
        for (int32_t i = 0; i < STEPS; i++)
            if (offsets[i] != 0) {
                base = offsets[i] < base ? offsets[i] : base;
                meta_base = meta_offsets[i] < meta_base ? meta_offsets[i] : meta_base;
            }
        for (int32_t i = 0; i < STEPS; i++)
            if (offsets[i] != 0)
                assert_int_equal(offsets[i] - base, meta_offsets[i] - meta_base);
    }
    shoali_slot_destroy(meta);
    shoali_slot_destroy(slot);
    rig_close(&rig);
}

static void test_neighbours_join(void **state)
{
    (void)state;
    struct shoali_slot *slot;
    int32_t a, b, c, all;
    /* every order of freeing three neighbours gives one free block again */
    static const int32_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    rig_ok(shoali_slot_create(NULL, 0, &slot));
    for (int32_t o = 0; o < 6; o++) {
        rig_ok(shoali_slot_alloc(slot, 100, &a));
        rig_ok(shoali_slot_alloc(slot, 64, &b));
        rig_ok(shoali_slot_alloc(slot, 1, &c));
        const int32_t made[3] = {a, b, c};
        for (int32_t i = 0; i < 3; i++)
            shoali_slot_free(slot, made[orders[o][i]]);
        rig_ok(shoali_slot_alloc(slot, 256, &all));
        assert_ptr_equal(shoali_slot_address(slot, all), SHOALI_META_ADDRESS);
        shoali_slot_free(slot, all);
    }
    assert_int_equal(shoali_slot_peak_bytes(slot), 256);
    shoali_slot_destroy(slot);
}

static void test_high_is_of_the_time_since(void **state)
{
    (void)state;
    struct shoali_slot *slot;
    int32_t a, b;
    rig_ok(shoali_slot_create(NULL, 0, &slot));
    rig_ok(shoali_slot_alloc(slot, 640, &a));
    rig_ok(shoali_slot_alloc(slot, 128, &b));
    shoali_slot_free(slot, a);
    assert_int_equal(shoali_slot_take_high(slot), 768);
    assert_int_equal(shoali_slot_take_high(slot), 128); /* what is still there */
    rig_ok(shoali_slot_alloc(slot, 64, &a));
    shoali_slot_free(slot, a);
    shoali_slot_free(slot, b);
    assert_int_equal(shoali_slot_take_high(slot), 192);
    assert_int_equal(shoali_slot_take_high(slot), 0);
    assert_int_equal(shoali_slot_peak_bytes(slot), 768);
    shoali_slot_destroy(slot);
}

static void test_growth_is_counted(void **state)
{
    (void)state;
    struct rig rig;
    struct shoali_slot *slot;
    struct shoali_device_counters before, after;
    int32_t a, b;
    rig_open(&rig, "ref");
    rig_ok(shoali_slot_create(rig.device, 1000, &slot));
    rig_ok(shoali_slot_alloc(slot, 1000, &a));
    assert_int_equal(shoali_slot_growth_count(slot), 0);
    rig_ok(shoali_slot_alloc(slot, 300000, &b));
    assert_int_equal(shoali_slot_growth_count(slot), 1);
    /* the memory stays: the same again grows nothing */
    shoali_device_get_counters(rig.device, &before);
    shoali_slot_reset(slot);
    rig_ok(shoali_slot_alloc(slot, 1000, &a));
    rig_ok(shoali_slot_alloc(slot, 300000, &b));
    shoali_device_get_counters(rig.device, &after);
    assert_int_equal(shoali_slot_growth_count(slot), 1);
    assert_int_equal(before.alloc_count, after.alloc_count);
    assert_int_equal(shoali_slot_alloc(slot, SIZE_MAX / 2, &a), SHOAL_ENOMEM);
    shoali_slot_destroy(slot);
    shoali_device_get_counters(rig.device, &after);
    assert_int_equal(after.allocated_bytes, 0);
    rig_close(&rig);
}

static int warnings;

static void count_warning(void *user, shoal_log_level level, const char *subsystem, int rank,
                          const char *text)
{
    (void)user, (void)subsystem, (void)rank;
    if (level == SHOAL_LOG_WARNING && strstr(text, "the plan did not cover this shape"))
        warnings++;
}

/* A slot grows in silence, unless a plan has said how large it is. */
static void test_growth_beyond_a_plan_is_said(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, "ref");
    rig_ok(shoal_log_configure("info", count_warning, NULL));
    for (int planned = 0; planned < 2; planned++) {
        struct shoali_slot *slot;
        int32_t a;
        rig_ok(shoali_slot_create(rig.device, planned ? 1000 : 0, &slot));
        rig_ok(shoali_slot_alloc(slot, 300000, &a));
        assert_int_equal(warnings, planned);
        shoali_slot_destroy(slot);
    }
    rig_ok(shoal_log_configure(NULL, NULL, NULL));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meta_and_real_place_alike),
        cmocka_unit_test(test_neighbours_join),
        cmocka_unit_test(test_high_is_of_the_time_since),
        cmocka_unit_test(test_growth_is_counted),
        cmocka_unit_test(test_growth_beyond_a_plan_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
