/* Where jobs meet that run beside each other. */
#include "launcher/run/run.h"

#include "base/str.h"
#include "base/test_cmocka.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char list[] = "/tmp/shoal_ports_XXXXXX"; /* $D: what ranks write */

static int setup(void **state)
{
    (void)state;
    unsetenv("MASTER_PORT");
    strcpy(list + sizeof(list) - 7, "XXXXXX");
    const int descriptor = mkstemp(list);
    return descriptor >= 0 && close(descriptor) == 0 && setenv("D", list, 1) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(list);
}

static char *read_list(void)
{
    static char text[1024];
    char *data = NULL;
    size_t bytes = 0;
    if (shoali_read_file(list, &data, &bytes) < 0)
        fail_msg("%s", shoal_error_message());
    snprintf(text, sizeof(text), "%s", data);
    free(data);
    return text;
}

static void test_port_in_use(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0), code = -1;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    const char *program[] = {"/bin/sh", "-c", "echo >$D", NULL};
    shoal_launch_args args = {.program = program, .master_port = ntohs(address.sin_port)};
    shoal_status status = shoal_launch(&args, &code);
    close(listener);
    assert_int_equal(status, SHOAL_EINVAL);
    assert_int_equal(shoal_status_exit_code(status), 2);
    assert_non_null(strstr(shoal_error_message(), "--master_port"));
    assert_string_equal(read_list(), ""); /* nothing was started */
}

/* A MASTER_PORT of the user is a wish, that of an outer launcher is not. */
static void test_port_of_the_environment(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(address);
    int taken = socket(AF_INET, SOCK_STREAM, 0), code = -1;
    char port[16], script[64];
    assert_int_equal(bind(taken, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &bytes), 0);
    snprintf(port, sizeof(port), "%d", ntohs(address.sin_port));
    snprintf(script, sizeof(script), "test $MASTER_PORT = %s", port);
    const char *program[] = {"/bin/sh", "-c", script, NULL};
    const shoal_launch_args args = {.program = program};
    setenv("MASTER_PORT", port, 1);
    assert_int_equal(shoal_launch(&args, &code), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "(MASTER_PORT) is already in use"));
    setenv("SHOAL_JOB_ID", "of-an-outer-job", 1);
    assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
    assert_int_equal(code, 1); /* another port */
    unsetenv("SHOAL_JOB_ID");
    close(taken);
    assert_int_equal(shoal_launch(&args, &code), SHOAL_OK);
    assert_int_equal(code, 0);
    setenv("MASTER_PORT", "65536", 1);
    assert_int_equal(shoal_launch(&args, &code), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "MASTER_PORT=\"65536\" is no port"));
    unsetenv("MASTER_PORT");
}

/* Jobs at the same instant that asked for no port get one each, and keep it. */
static void test_ports_of_many_jobs(void **state)
{
    (void)state;
    enum { JOBS = 8 };
    int pid[JOBS], ports[JOBS], count = 0, result;
    const char *program[] = {"/bin/sh", "-c",
                             "echo $MASTER_PORT >>$D; "
                             "until test $(wc -l <$D) = 8; do sleep 0.02; done",
                             NULL};
    const shoal_launch_args args = {.program = program};
    for (int i = 0; i < JOBS; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            int code = 9;
            alarm(60);
            _exit(shoal_launch(&args, &code) < 0 ? 99 : code);
        }
    }
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(waitpid(pid[i], &result, 0), pid[i]);
        assert_int_equal(result, 0);
    }
    for (char *at = read_list(); *at; at += strcspn(at, "\n") + 1) {
        ports[count] = atoi(at);
        for (int i = 0; i < count; i++)
            assert_int_not_equal(ports[i], ports[count]);
        count++;
    }
    assert_int_equal(count, JOBS);
}

#define PORT_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        PORT_TEST(test_port_in_use),
        PORT_TEST(test_port_of_the_environment),
        PORT_TEST(test_ports_of_many_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
