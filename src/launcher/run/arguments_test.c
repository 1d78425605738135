/* Where --local_rank=N stands among the words of a program. */
#include "base/test_cmocka.h"
#include "launcher/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words of rank 3, as one text. */
static void expect(const char *words, bool no_local_rank, const char *expected)
{
    char copy[256], got[256] = "", *rest = copy;
    const char *program[32] = {NULL};
    snprintf(copy, sizeof copy, "%s", words);
    for (int i = 0; i < 31 && rest; i++)
        program[i] = strsep(&rest, " ");
    const shoal_launch_args args = {.program = program, .no_local_rank = no_local_rank};
    struct shoali_job job = {.args = &args};
    char **list;
    shoali_arena_init(&job.arena);
    assert_int_equal(shoali_rank_arguments(&job, 3, &list), SHOAL_OK);
    for (int i = 0; list[i]; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "", list[i]);
    shoali_arena_fini(&job.arena);
    assert_string_equal(got, expected);
}

static void test_behind_the_program(void **state)
{
    (void)state;
    expect("./train", false, "./train --local_rank=3");
    expect("./train a -b", false, "./train --local_rank=3 a -b");
    expect("./train a -b", true, "./train a -b");
    expect("shoal pretrain gpt", false, "shoal --local_rank=3 pretrain gpt");
    expect("./bashful x", false, "./bashful --local_rank=3 x");
}

static void test_behind_the_script(void **state)
{
    (void)state;
    expect("python3 train.py a", false, "python3 train.py --local_rank=3 a");
    expect("/usr/bin/python3.11 -u -W ignore -Xdev train.py a", false,
           "/usr/bin/python3.11 -u -W ignore -Xdev train.py --local_rank=3 a");
    expect("python3 -u -m package.train -m b", false,
           "python3 -u -m package.train --local_rank=3 -m b");
    expect("python3 -um package.train b", false, "python3 -um package.train --local_rank=3 b");
    expect("python3 -c code b", false, "python3 -c code --local_rank=3 b");
    expect("python3 - b", false, "python3 - --local_rank=3 b");
    expect("python3", false, "python3 --local_rank=3");
    expect("python3 -m", false, "python3 -m --local_rank=3");
    expect("bash --norc -o pipefail x.sh a", false,
           "bash --norc -o pipefail x.sh --local_rank=3 a");
    expect("perl -w x.pl a", false, "perl -w x.pl --local_rank=3 a");
}

/* The word behind a shell's code is its name. */
static void test_shell_code(void **state)
{
    (void)state;
    expect("sh -c code", false, "sh -c code --local_rank=3");
    expect("sh -c code name a", false, "sh -c code name --local_rank=3 a");
    expect("bash -ec code name a", false, "bash -ec code name --local_rank=3 a");
    expect("bash -c -e code name a", false, "bash -c -e code name --local_rank=3 a");
}

static void test_wrapper(void **state)
{
    (void)state;
    expect("env A=b ./train a", false, "env A=b ./train a --local_rank=3");
    expect("/usr/bin/numactl -N 0 ./train a", false,
           "/usr/bin/numactl -N 0 ./train a --local_rank=3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behind_the_program),
        cmocka_unit_test(test_behind_the_script),
        cmocka_unit_test(test_shell_code),
        cmocka_unit_test(test_wrapper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
