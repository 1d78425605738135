/* Measures MPI_Allreduce over sizes as `shoal bench comm --op all_reduce` does: medians of samples,
 * the slowest rank counts. Prints a line for each size: bytes, microseconds.
 * Usage: all_reduce MIN_BYTES MAX_BYTES FACTOR SECONDS REPEATS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { REPEATS_MAX = 101 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sample(float *data, int count, int calls)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double took = (MPI_Wtime() - start) * 1e6 / calls;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 6)
        MPI_Abort(MPI_COMM_WORLD, 2);
    const long least = atol(argv[1]), most = atol(argv[2]), factor = atol(argv[3]);
    const double seconds = atof(argv[4]);
    const int repeats = atoi(argv[5]);
    double us[REPEATS_MAX];
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *data = calloc((size_t)most / sizeof(float) + 1, sizeof(float));
    if (!data || repeats < 1 || repeats > REPEATS_MAX || factor < 2)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (long bytes = least; bytes <= most; bytes *= factor) {
        const int count = (int)(bytes / (long)sizeof(float));
        sample(data, count, 1);
        const double each = sample(data, count, 2);
        int calls = (int)(seconds * 1e6 / repeats / each);
        calls = calls < 1 ? 1 : calls;
        for (int i = 0; i < repeats; i++)
            us[i] = sample(data, count, calls);
        qsort(us, (size_t)repeats, sizeof us[0], by_value);
        if (rank == 0)
            printf("%ld %.1f\n", bytes, us[repeats / 2]);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
