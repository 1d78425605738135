/* One suite for the three kinds of store. */
#include "base/fault.h"
#include "base/test_cmocka.h"
#include "comm/bootstrap/bootstrap.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct pair {
    struct shoali_store *first, *second;
    char folder[64];
    int keeper;
};

/* A port that nobody else is given until `keeper` is closed; whoever knows it may listen, with
 * SO_REUSEADDR. */
static int keep_port(int *keeper)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    const int yes = 1;
    *keeper = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(*keeper, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), 0);
    assert_int_equal(bind(*keeper, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(*keeper, (struct sockaddr *)&address, &length), 0);
    return ntohs(address.sin_port);
}

static struct shoali_credentials own_credentials(void)
{
    return (struct shoali_credentials){.key = "a secret of this test", .job = "test"};
}

/* timeout_s: of waits. */
static void open_pair(const char *kind, double timeout_s, struct pair *pair)
{
    char where[64] = "";
    pair->keeper = -1;
    strcpy(pair->folder, "/tmp/shoal-store-XXXXXX");
    if (strcmp(kind, "file") == 0)
        strcpy(where, mkdtemp(pair->folder));
    else
        snprintf(where, sizeof(where), "127.0.0.1:%d", keep_port(&pair->keeper));
    const struct shoali_credentials credentials = own_credentials();
    struct shoali_store_args args = {.kind = kind,
                                     .where = where,
                                     .server = true,
                                     .credentials = &credentials,
                                     .timeout_s = timeout_s};
    assert_int_equal(shoali_store_open(&args, &pair->first), SHOAL_OK);
    args.server = false;
    args.shared = strcmp(kind, "threads") == 0 ? pair->first : NULL;
    assert_int_equal(shoali_store_open(&args, &pair->second), SHOAL_OK);
}

static void close_pair(const char *kind, struct pair *pair)
{
    shoali_store_close(pair->second);
    shoali_store_close(pair->first);
    close(pair->keeper);
    if (strcmp(kind, "file") == 0) {
        char command[96];
        snprintf(command, sizeof(command), "rm -r %s", pair->folder);
        assert_int_equal(system(command), 0);
    }
}

static void *put_late(void *arg)
{
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    assert_int_equal(shoali_store_put(arg, "late/key", "now", 4), SHOAL_OK);
    return NULL;
}

static void check_kind(const char *kind)
{
    struct pair pair;
    open_pair(kind, 60, &pair);
    char *large = malloc(65537), *back = malloc(65537);
    for (int i = 0; i < 65536; i++)
        large[i] = (char)(i * 7);
    size_t bytes = 65536;
    assert_int_equal(shoali_store_get(pair.second, "a", back, &bytes), SHOAL_IN_PROGRESS);
    assert_int_equal(shoali_store_put(pair.second, "a", large, 65536), SHOAL_OK);
    assert_int_equal(shoali_store_put(pair.first, "a", large, 65537), SHOAL_EINVAL);
    assert_int_equal(shoali_store_put(pair.first, "two words", large, 1), SHOAL_EINVAL);
    assert_int_equal(shoali_store_get(pair.first, "two words", back, &bytes), SHOAL_EINVAL);
    bytes = 65536;
    assert_int_equal(shoali_store_get(pair.first, "a", back, &bytes), SHOAL_OK);
    assert_int_equal(bytes, 65536);
    assert_memory_equal(large, back, bytes);
    assert_int_equal(shoali_store_put(pair.first, "a", "xy", 2), SHOAL_OK);
    bytes = 65536;
    assert_int_equal(shoali_store_wait(pair.second, "a", back, &bytes), SHOAL_OK);
    assert_int_equal(bytes, 2);
    assert_int_equal(shoali_store_put(pair.second, "a", "", 0), SHOAL_OK);
    assert_int_equal(shoali_store_get(pair.first, "a", back, &bytes), SHOAL_IN_PROGRESS);

    pthread_t thread;
    pthread_create(&thread, NULL, put_late, pair.first);
    bytes = 10;
    assert_int_equal(shoali_store_wait(pair.second, "late/key", back, &bytes), SHOAL_OK);
    assert_string_equal(back, "now");
    pthread_join(thread, NULL);

    shoali_store_abort(pair.second, "rank 1 is out of luck");
    shoali_store_abort(pair.first, "something later");
    assert_int_equal(shoali_store_wait(pair.first, "never", back, &bytes), SHOAL_EPEER);
    assert_string_equal(shoal_error_message(), "rank 1 is out of luck");
    assert_int_equal(shoali_store_get(pair.second, "late/key", back, &bytes), SHOAL_EPEER);
    assert_string_equal(shoal_error_message(), "rank 1 is out of luck");
    free(large);
    free(back);
    close_pair(kind, &pair);
}

static void check_timeout(const char *kind)
{
    struct pair pair;
    char back[8];
    size_t bytes = sizeof(back);
    open_pair(kind, 1, &pair);
    assert_int_equal(shoali_store_wait(pair.second, "never", back, &bytes), SHOAL_ETIMEOUT);
    close_pair(kind, &pair);
}

static void threads_kind(void **state)
{
    (void)state;
    check_kind("threads");
    check_timeout("threads");
}

static void file_kind(void **state)
{
    (void)state;
    check_kind("file");
    check_timeout("file");
}

static void tcp_kind(void **state)
{
    (void)state;
    check_kind("tcp");
    check_timeout("tcp");
}

static void port_in_use_is_a_sentence(void **state)
{
    (void)state;
    int fd = -1;
    char where[64], expected[128];
    int port = keep_port(&fd);
    assert_int_equal(listen(fd, 1), 0);
    snprintf(where, sizeof(where), "127.0.0.1:%d", port);
    snprintf(expected, sizeof(expected),
             "port %d is already in use (MASTER_PORT): choose another with --master_port", port);
    struct shoali_store *store = NULL;
    const struct shoali_credentials credentials = own_credentials();
    struct shoali_store_args args = {
        .kind = "tcp", .where = where, .server = true, .credentials = &credentials, .timeout_s = 1};
    assert_int_equal(shoali_store_open(&args, &store), SHOAL_EINVAL);
    assert_string_equal(shoal_error_message(), expected);
    assert_null(store);
    close(fd);
}

/* Each allocation of an opened store may fail: an error, and nothing stays open. */
static void memory_may_run_out(void **state)
{
    static const char *const kinds[] = {"threads", "file", "tcp"};
    const struct shoali_credentials credentials = own_credentials();
    char folder[] = "/tmp/shoal-store-XXXXXX", where[64], point[32];
    int keeper;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(where, sizeof(where), "127.0.0.1:%d", keep_port(&keeper));
    for (int k = 0; k < 3; k++) {
        int failed = 0;
        for (bool again = true; again;) {
            struct shoali_store *store = NULL;
            const struct shoali_store_args args = {.kind = kinds[k],
                                                   .where = k == 1 ? folder : where,
                                                   .server = true,
                                                   .credentials = &credentials,
                                                   .timeout_s = 1};
            snprintf(point, sizeof(point), "alloc:%d", failed++);
            assert_true(shoali_fault_arm(point));
            const shoal_status status = shoali_store_open(&args, &store);
            again = shoali_fault_left() < 0; /* it fired */
            assert_true(shoali_fault_arm(NULL));
            assert_int_equal(status, again ? SHOAL_ENOMEM : SHOAL_OK);
            assert_true((store == NULL) == again);
            if (store)
                shoali_store_close(store);
        }
        assert_true(failed > 1);
    }
    close(keeper);
    assert_int_equal(rmdir(folder), 0);
}

static void absent_server_times_out(void **state)
{
    (void)state;
    char where[64];
    int keeper;
    snprintf(where, sizeof(where), "127.0.0.1:%d", keep_port(&keeper));
    struct shoali_store *store = NULL;
    const struct shoali_credentials credentials = own_credentials();
    struct shoali_store_args args = {
        .kind = "tcp", .where = where, .credentials = &credentials, .timeout_s = 0.1};
    assert_int_equal(shoali_store_open(&args, &store), SHOAL_ETIMEOUT);
    assert_non_null(strstr(shoal_error_message(), "MASTER_PORT"));
    args.where = "127.0.0.1:http";
    assert_int_equal(shoali_store_open(&args, &store), SHOAL_EINVAL);
    close(keeper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_kind),       cmocka_unit_test(file_kind),
        cmocka_unit_test(tcp_kind),           cmocka_unit_test(port_in_use_is_a_sentence),
        cmocka_unit_test(memory_may_run_out), cmocka_unit_test(absent_server_times_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
