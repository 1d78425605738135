/* Measures an in-place all-reduce of floats by the MPI that it is compiled with, as `shoal
 * bench comm` does. Prints the median, least and greatest time in us.
 * Usage: mpirun -n 2 mpi_all_reduce BYTES REPEATS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const size_t count = argc > 2 ? (size_t)atoll(argv[1]) / sizeof(float) : 0;
    const int repeats = argc > 2 ? atoi(argv[2]) : 0;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *data = calloc(count + 1, sizeof *data);
    double *us = calloc((size_t)repeats + 1, sizeof *us);
    if (!data || !us || count == 0 || repeats <= 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = -2; i < repeats; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0)
            us[i] = 1e6 * (MPI_Wtime() - begin);
    }
    qsort(us, (size_t)repeats, sizeof *us, by_size);
    if (rank == 0)
        printf("%.1f %.1f %.1f\n", us[repeats / 2], us[0], us[repeats - 1]);
    free(us);
    free(data);
    return MPI_Finalize();
}
