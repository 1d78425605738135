/* Only what nobody uses, and no older job has made, is a leftover. */
#include "base/test_cmocka.h"
#include "launcher/run/run.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096 };
#define NAME "/dev/shm/mpich_shar_tmpXXXXXX"

static int make(char *path)
{
    const int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, BYTES), 0);
    return file;
}

static void test_mpich(void **state)
{
    (void)state;
    char opened[] = NAME, mapped[] = NAME, free_one[] = NAME, older[] = NAME;
    const time_t now = time(NULL);
    const int file = make(opened), shared = make(mapped);
    void *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    close(shared);
    close(make(free_one));
    close(make(older));
    const struct timespec before[2] = {{now - 60, 0}, {now - 60, 0}};
    assert_int_equal(utimensat(AT_FDCWD, older, before, 0), 0);

    shoali_cleanup_mpi_memory(now - 1);
    assert_int_not_equal(access(free_one, F_OK), 0);
    assert_int_equal(access(older, F_OK), 0);
    assert_int_equal(access(opened, F_OK), 0);
    assert_int_equal(access(mapped, F_OK), 0);

    close(file);
    munmap(memory, BYTES);
    unlink(older);
    shoali_cleanup_mpi_memory(now - 1);
    assert_int_not_equal(access(opened, F_OK), 0);
    assert_int_not_equal(access(mapped, F_OK), 0);
}

/* A file that Open MPI makes to try whether it can. */
static void test_openmpi(void **state)
{
    static const char mine[] = "/dev/shm/open_mpi.0975", other[] = "/dev/shm/open_mpi.mine";
    (void)state;
    assert_true(close(open(mine, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
    assert_true(close(open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
    shoali_cleanup_mpi_memory(time(NULL) - 1);
    assert_int_not_equal(access(mine, F_OK), 0);
    assert_int_equal(access(other, F_OK), 0);
    unlink(other);
}

static int start_named(const char *name)
{
    int ends[2];
    char message;
    assert_int_equal(pipe(ends), 0);
    const int pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, name);
        if (write(ends[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    assert_int_equal(read(ends[0], &message, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

static void make_session(char *base, char *path, size_t bytes, const char *name)
{
    char user[256];
    snprintf(user, sizeof(user), "%s/ompi.host.%u", base, (unsigned)geteuid());
    (void)mkdir(user, 0700);
    snprintf(path, bytes, "%s/%s", user, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(user, sizeof(user), "%s/contact.txt", path);
    assert_true(close(open(user, O_RDWR | O_CREAT | O_CLOEXEC, 0600)) == 0);
}

/* A daemon that hangs goes with its folder; a stranger, and one that has its number, stays. */
static void test_orted(void **state)
{
    (void)state;
    char base[] = "/tmp/shoal_orted_XXXXXX", own[300], foreign[300];
    struct shoali_process daemon, stranger;
    assert_non_null(mkdtemp(base));
    make_session(base, own, sizeof(own), "jf.7");
    make_session(base, foreign, sizeof(foreign), "pid.7");
    const int pid = start_named("orted"), other = start_named("mpirun");
    assert_true(shoali_process_read(pid, &daemon) && shoali_process_read(other, &stranger));

    struct shoali_process later = daemon;
    later.start++;
    shoali_cleanup_orted(&later, own);
    shoali_cleanup_orted(&stranger, own);
    assert_int_equal(access(own, F_OK), 0);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    assert_int_equal(waitpid(other, NULL, WNOHANG), 0);

    shoali_cleanup_orted(&daemon, foreign); /* its folder is not named as a session's */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(access(foreign, F_OK), 0);

    const int second = start_named("orted");
    assert_true(shoali_process_read(second, &daemon));
    shoali_cleanup_orted(&daemon, own);
    assert_int_equal(waitpid(second, NULL, 0), second);
    assert_int_not_equal(access(own, F_OK), 0);
    assert_int_equal(access(foreign, F_OK), 0);

    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", base);
    assert_int_equal(system(command), 0);
}

/* Guards of several ranks look at the same time, and each has the file open for a moment. */
static void test_guards_at_once(void **state)
{
    enum { GUARDS = 2, ROUNDS = 200 };
    (void)state;
    _Atomic int *ready =
        mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(ready, MAP_FAILED);
    for (int round = 0; round < ROUNDS; round++) {
        char path[] = NAME;
        pid_t guard[GUARDS];
        close(make(path));
        atomic_store(ready, 0);
        for (int i = 0; i < GUARDS; i++) {
            guard[i] = fork();
            assert_true(guard[i] >= 0);
            if (guard[i] == 0) {
                atomic_fetch_add(ready, 1);
                while (atomic_load(ready) < GUARDS)
                    sched_yield();
                shoali_cleanup_mpi_memory(time(NULL) - 1);
                _exit(0);
            }
        }
        for (int i = 0; i < GUARDS; i++)
            assert_int_equal(waitpid(guard[i], NULL, 0), guard[i]);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    munmap(ready, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mpich), cmocka_unit_test(test_openmpi),
                                       cmocka_unit_test(test_orted),
                                       cmocka_unit_test(test_guards_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
