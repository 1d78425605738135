/* Kernels with a mistake each, and without: what the emulator has to find (plants_test.c). PLANT is
 * the number of the mistake. */
#include "ops/cuda/kernels/matrices.h"

#include "plants.h"

struct plant_shared {
    float x[PLANT_THREADS];
};

/* Each thread gives its value to its neighbour in the next warp, through shared memory. */
KERNEL(plant_exchange, struct plant_args, PLANT_THREADS)
{
    SHARED(struct plant_shared, s);
    s->x[THREAD] = args->in[THREAD];
    if (args->plant != PLANT_NO_BARRIER)
        block_barrier();
    args->out[THREAD] = s->x[(THREAD + 32) % PLANT_THREADS];
}

/* Half of the block goes through a barrier. */
KERNEL(plant_half, struct plant_args, PLANT_THREADS)
{
    if (args->plant != PLANT_HALF_BARRIER || THREAD < PLANT_THREADS / 2)
        block_barrier();
    args->out[THREAD] = args->in[THREAD];
}

/* One element behind the end. */
KERNEL(plant_end, struct plant_args, PLANT_THREADS)
{
    args->out[THREAD] = args->in[THREAD + (args->plant == PLANT_BEHIND_END)];
}

/* A copy to shared memory that nobody waits for. */
KERNEL(plant_copy, struct plant_args, PLANT_THREADS)
{
    SHARED(struct plant_shared, s);
    if (THREAD % 4 == 0)
        copy16_later(&s->x[THREAD], &args->in[THREAD]);
    copies_commit();
    if (args->plant != PLANT_NO_WAIT)
        copies_wait(0);
    block_barrier();
    args->out[THREAD] = s->x[THREAD];
}

/* Two blocks add to one number. */
KERNEL(plant_blocks, struct plant_args, PLANT_THREADS)
{
    if (args->plant == PLANT_TWO_BLOCKS) {
        if (THREAD == 0)
            args->sum[0] += 1;
    } else if (THREAD == 0) {
        (void)atomic_add_i64(args->sum, 1);
    }
}

/* Some lanes of a warp exchange values, and the others do not come. */
KERNEL(plant_lanes, struct plant_args, PLANT_THREADS)
{
    float x = args->in[THREAD];
    if (args->plant != PLANT_LANES_AWAY || THREAD % 2 == 0)
        x += lane_xor_f32(x, 2);
    args->out[THREAD] = x;
}

/* Each warp takes the other one's values as fragments of matrices. */
KERNEL(plant_matrices, struct plant_args, PLANT_THREADS)
{
    SHARED(struct plant_shared, s);
    uint32_t fragment[2];
    s->x[THREAD] = args->in[THREAD];
    if (args->plant != PLANT_NO_BARRIER)
        block_barrier();
    load_two_matrices(fragment, &s->x[(THREAD / 32 ^ 1) * 32 + THREAD % 8 * 4]);
    args->out[THREAD] = f32_of_bits(fragment[0]);
}

/* Lanes whose words share a bank, two by two. */
KERNEL(plant_banks, struct plant_args, PLANT_THREADS)
{
    SHARED(struct plant_shared, s);
    const int lane = THREAD % WARP, half = THREAD / WARP * 16;
    const int at = args->plant == PLANT_BANKS ? lane % 2 * 32 + lane / 2 + half : THREAD;
    s->x[at] = args->in[THREAD];
    args->out[THREAD] = s->x[at];
}

/* Each lane reads a sector of its own. */
KERNEL(plant_sectors, struct plant_args, PLANT_THREADS)
{
    args->out[THREAD] = args->in[args->plant == PLANT_SECTORS ? THREAD * PLANT_STRIDE : THREAD];
}
