/* A rank that runs out of memory while groups are made or used: it hears so itself, the others get
 * a sentence instead of a wait for it, and nobody goes on with half of a group. */
#include "comm_ranks.h"

#include "base/fault.h"
#include "base/test_cmocka.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 4, CHILDREN = 3, VICTIM = 2, COUNT = 1000 };

/* What the ranks share, processes too. */
static struct found {
    int64_t skip;
    bool fired;
} * found;

/* Everything that allocates: the world; a group of one host, of one rank of each host, and of all;
 * messages. */
static shoal_status live(const struct rank_seat *seat, shoal_group **world)
{
    static const int32_t color[CHILDREN][RANKS] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0}};
    shoal_group *child[CHILDREN] = {NULL};
    shoal_status status;
    float data[COUNT] = {0};
    void *memory = NULL;
    const shoal_comm_args args = ranks_args(seat->ranks, seat->rank);
    SHOAL_TRY(status, shoal_comm_init(&args, world), done);
    for (int32_t c = 0; c < CHILDREN; c++) {
        SHOAL_TRY(status, shoal_comm_split(*world, color[c][seat->rank], 0, &child[c]), done);
        SHOAL_TRY(status, shoal_all_reduce(child[c], data, data, COUNT, SHOAL_F32, SHOAL_SUM, NULL),
                  done);
    }
    SHOAL_TRY(status, shoal_comm_alloc(*world, sizeof data, &memory), done);
    SHOAL_TRY(status, shoal_all_reduce(*world, memory, memory, COUNT, SHOAL_F32, SHOAL_SUM, NULL),
              done);
done:
    if (status < 0 && *world)
        shoal_comm_abort(*world, status);
    for (int32_t c = CHILDREN; c > 0; c--)
        shoal_comm_destroy(child[c - 1]);
    return status;
}

static bool fail_once(struct rank_seat *seat)
{
    char spec[64];
    shoal_group *world = NULL;
    snprintf(spec, sizeof spec, "alloc:%lld", (long long)found->skip);
    EXPECT(shoali_fault_arm(seat->rank == VICTIM ? spec : NULL));
    const shoal_status status = live(seat, &world);
    const bool fired = shoali_fault_left() < 0;
    EXPECT(shoali_fault_arm(NULL));
    if (seat->rank == VICTIM) {
        found->fired = fired;
        EXPECT(status == (fired ? SHOAL_ENOMEM : SHOAL_OK));
    } else { /* memory of all ranks is missing on all of them */
        EXPECT(status == SHOAL_OK || status == SHOAL_EPEER || status == SHOAL_ENOMEM);
        EXPECT(status == SHOAL_OK || strstr(shoal_error_message(), "rank 2"));
    }
    shoal_comm_destroy(world);
    return true;
}

/* The first allocation is one of a rank that nobody knows yet. */
static void fail_each(enum ranks_kind kind, const char *hosts)
{
    assert_int_equal(setenv("SHOAL_PRETEND_HOSTS", hosts, 1), 0);
    found->skip = 1;
    do {
        struct ranks ranks = {
            .kind = kind, .size = RANKS, .run = fail_once, .bare = true, .timeout_s = 60};
        found->fired = false;
        assert_true(ranks_run(&ranks));
        found->skip += found->fired;
    } while (found->fired);
    printf("%lld allocations failed, one after the other\n", (long long)found->skip);
    assert_true(found->skip > (*hosts ? 20 : 10));
    unsetenv("SHOAL_PRETEND_HOSTS");
}

static void test_one_host(void **state)
{
    (void)state;
    fail_each(RANKS_THREAD, "");
    fail_each(RANKS_APART, "");
    fail_each(RANKS_SHM, "");
}

static void test_two_hosts(void **state)
{
    (void)state;
    fail_each(RANKS_SHM, "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_two_hosts),
    };
    found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return found == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
