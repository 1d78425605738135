/* Each launcher's variables, alone and beside others'. */
#include "base/base.h"
#include "base/test_cmocka.h"

#include <stdlib.h>
#include <string.h>

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "PALS_LOCAL_RANKID",
                                        "MV2_COMM_WORLD_LOCAL_RANK",
                                        "MV2_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NUM_NODES",
                                        "SLURM_NTASKS"};

/* "NAME=VALUE NAME=VALUE", and nothing else. */
static void set(const char *values)
{
    char text[512];
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        assert_int_equal(unsetenv(variables[i]), 0);
    assert_true(strlen(values) < sizeof text);
    memcpy(text, values, strlen(values) + 1);
    for (char *rest = NULL, *at = strtok_r(text, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(at, '=');
        assert_non_null(equals);
        *equals = '\0';
        assert_int_equal(setenv(at, equals + 1, 1), 0);
    }
}

static void launchers(void **state)
{
    static const struct {
        const char *set, *launcher;
        int64_t rank, size, local_rank, local_size;
    } cases[] = {
        {"", NULL, -1, -1, -1, -1},
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_SIZE=2", NULL, 3, 8, 1, 2},
        {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", NULL, 3, 8, 1, 4},
        {"RANK=3 WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=6", NULL, 3, 8, -1, -1},
        {"OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=6 OMPI_COMM_WORLD_LOCAL_RANK=1 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=5 PMIX_NAMESPACE=7",
         "mpirun of Open MPI", 5, 6, 1, 2},
        {"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 WORLD_SIZE=4",
         "mpirun of MPICH", 2, 4, 0, 2},
        {"PMI_RANK=2 PMI_SIZE=4 PALS_LOCAL_RANKID=1", "mpirun of MPICH", 2, 4, 1, -1},
        {"PMIX_RANK=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_LOCALID=1",
         "srun with PMIx", 1, 2, 1, 2},
        {"SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_LOCALID=1", "srun", 3,
         4, 1, -1},
        {"SLURM_PROCID=0 SLURM_NTASKS=4", NULL, -1, -1, -1, -1}, /* the script of a batch job */
        {"PMIX_RANK=1", NULL, -1, -1, -1, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct shoali_started started;
        set(cases[i].set);
        assert_int_equal(shoali_started_read(&started), SHOAL_OK);
        assert_int_equal(started.rank, cases[i].rank);
        assert_int_equal(started.size, cases[i].size);
        assert_int_equal(started.local_rank, cases[i].local_rank);
        assert_int_equal(started.local_size, cases[i].local_size);
        assert_true(cases[i].launcher
                        ? started.launcher && strcmp(started.launcher, cases[i].launcher) == 0
                        : !started.launcher);
    }
}

static void mistakes(void **state)
{
    static const struct {
        const char *set, *sentence;
    } cases[] = {
        {"RANK=x WORLD_SIZE=2", "RANK=\"x\" must be a number from 0"},
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE=\"0\" must be a number from 1"},
        {"RANK=2 WORLD_SIZE=2", "rank 2 of 2 ranks does not exist"},
        {"PMI_RANK=0 PMI_SIZE=two", "PMI_SIZE=\"two\" must be"},
        {"PMI_RANK=0 PMI_SIZE=2 WORLD_SIZE=3",
         "WORLD_SIZE is 3 and mpirun of MPICH has started 2 ranks"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct shoali_started started;
        set(cases[i].set);
        assert_int_equal(shoali_started_read(&started), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_message(), cases[i].sentence));
        assert_int_equal(started.rank, -1);
        /* An error that is on its way stays what it is. */
        assert_int_equal(SHOAL_FAIL(SHOAL_EIO, "the disk of x%d is full", 7), SHOAL_EIO);
        assert_int_equal(shoali_started_get().size, -1);
        assert_string_equal(shoal_error_message(), "the disk of x7 is full");
    }
}

static void names(void **state)
{
    char name[128];
    (void)state;
    set("PMIX_NAMESPACE=77");
    assert_true(shoali_started_name(name, sizeof name));
    assert_string_equal(name, "pmix 77");
    set("SLURM_JOB_ID=5 SLURM_STEP_ID=1");
    assert_true(shoali_started_name(name, sizeof name));
    assert_string_equal(name, "slurm 5.1");
    set("SLURM_JOB_ID=5");
    assert_false(shoali_started_name(name, sizeof name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
