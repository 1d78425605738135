/* Only what nobody uses, and no older job has made, is a leftover. */
#include "launcher/launcher.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mpich)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
