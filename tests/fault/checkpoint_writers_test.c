/* Which rank writes which chunk: each one exactly one, all as much as the others, and mostly what
 * it holds itself. */
#include "checkpoint/checkpoint_internal.h"

#include "base/rng.h"
#include "base/test_cmocka.h"

#include <stdlib.h>

enum { KINDS = 3, FILES = 4, RANKS_MAX = 9, CHUNKS_MAX = 1000 };

struct fixture {
    struct shoali_checkpoint_args args;
    struct shoali_checkpoint_run run;
    struct shoali_checkpoint_file file[KINDS][FILES];
};

static void make(struct fixture *fixture, uint64_t seed)
{
    const struct shoali_stream stream = shoali_stream_make(seed, "test", "writers", 0);
    uint64_t next = 0;
    *fixture = (struct fixture){.args.kind_count = KINDS};
    struct shoali_checkpoint_run *run = &fixture->run;
    run->args = &fixture->args;
    run->size = 1 + (int32_t)shoali_random_below(&stream, next++, RANKS_MAX);
    for (int32_t k = 0; k < KINDS; k++) {
        run->plan[k].file = fixture->file[k];
        run->plan[k].file_count = 1 + (int32_t)shoali_random_below(&stream, next++, FILES);
        for (int32_t f = 0; f < run->plan[k].file_count; f++)
            fixture->file[k][f].chunk_count =
                1 + (int64_t)shoali_random_below(&stream, next++, k == 0 ? 200 : 3);
    }
    shoali_checkpoint_number_chunks(run);
}

static int64_t chunks_of(const struct shoali_checkpoint_run *run, int32_t kind, int32_t rank,
                         char *seen)
{
    int64_t count = 0, last = -1;
    for (int64_t round = 0; round < shoali_checkpoint_rounds(run, kind); round++) {
        const int64_t chunk = shoali_checkpoint_chunk_of(run, kind, round, rank);
        if (chunk < 0)
            continue;
        assert_true(chunk < run->plan[kind].chunk_count && !seen[chunk]);
        assert_true(count == 0 || chunk == last + 1); /* neighbours */
        int64_t index = -1;
        const struct shoali_checkpoint_file *file =
            shoali_checkpoint_file_of(run, kind, chunk, &index);
        assert_true(index >= 0 && index < file->chunk_count && file->first_chunk + index == chunk);
        seen[chunk] = 1;
        last = chunk;
        count++;
    }
    return count;
}

static void test_each_chunk_has_one_writer(void **state)
{
    (void)state;
    struct fixture fixture;
    for (uint64_t seed = 0; seed < 400; seed++) {
        make(&fixture, seed);
        const struct shoali_checkpoint_run *run = &fixture.run;
        for (int32_t k = 0; k < KINDS; k++) {
            char seen[CHUNKS_MAX] = {0};
            int64_t least = INT64_MAX, most = 0, all = 0;
            for (int32_t rank = 0; rank < run->size; rank++) {
                const int64_t count = chunks_of(run, k, rank, seen);
                least = count < least ? count : least;
                most = count > most ? count : most;
                all += count;
            }
            assert_int_equal(all, run->plan[k].chunk_count);
            assert_true(most - least <= 1);
        }
    }
}

/* Kinds of one chunk each are not all of one rank. */
static void test_small_kinds_are_spread(void **state)
{
    (void)state;
    struct fixture fixture = {.args.kind_count = KINDS};
    struct shoali_checkpoint_run *run = &fixture.run;
    run->args = &fixture.args;
    run->size = 4;
    for (int32_t k = 0; k < KINDS; k++) {
        run->plan[k].file = fixture.file[k];
        run->plan[k].file_count = 1;
        fixture.file[k][0].chunk_count = 1;
    }
    shoali_checkpoint_number_chunks(run);
    for (int32_t k = 0; k < KINDS; k++)
        for (int32_t rank = 0; rank < run->size; rank++)
            assert_int_equal(shoali_checkpoint_chunk_of(run, k, 0, rank), rank == k ? 0 : -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_chunk_has_one_writer),
                                       cmocka_unit_test(test_small_kinds_are_spread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
