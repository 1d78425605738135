/* Only what nobody uses, and no older job has made, is a leftover. */
#include "launcher/launcher.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

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

    shoali_leftover_of_mpich(now - 1);
    assert_int_not_equal(access(free_one, F_OK), 0);
    assert_int_equal(access(older, F_OK), 0);
    assert_int_equal(access(opened, F_OK), 0);
    assert_int_equal(access(mapped, F_OK), 0);

    close(file);
    munmap(memory, BYTES);
    unlink(older);
    shoali_leftover_of_mpich(now - 1);
    assert_int_not_equal(access(opened, F_OK), 0);
    assert_int_not_equal(access(mapped, F_OK), 0);
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
                shoali_leftover_of_mpich(time(NULL) - 1);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mpich),
                                       cmocka_unit_test(test_guards_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
