/* What another user of the machine can do to a job that is about to meet: nothing. Rank 0 waits,
 * the stranger tries, then rank 1 comes and both work. Needs root to become two other users. */
#include "comm_ranks.h"

#include "base/test_cmocka.h"
#include "comm/bootstrap/protocol.h"
#include "comm/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OWNER = 65532, STRANGER = 65534, WATCHDOG_S = 60 };
static const char job[] = "4711.f.00000001", secret[] = "0123456789abcdef0123456789abcdef";

#define WANT(condition)                                                                       \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: not true: %s (last error: %s; %s)\n", __FILE__, __LINE__, \
                    #condition, strerror(errno), shoal_error_message());                      \
            return false;                                                                     \
        }                                                                                     \
    } while (0)

struct scene {
    int32_t port;
    pid_t rank0;
    bool with_secret; /* in the ranks' environment, as from a launcher */
};

static bool become(uid_t user)
{
    return setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0 &&
           setuid(0) != 0; /* for good */
}

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

static shoal_comm_args args_of(const struct scene *scene, int32_t rank, double timeout_s)
{
    return (shoal_comm_args){.rank = rank,
                             .world_size = 2,
                             .backend = "shm",
                             .master_addr = "127.0.0.1",
                             .master_port = scene->port,
                             .timeout_s = timeout_s};
}

static int run_rank(const struct scene *scene, int32_t rank)
{
    shoal_group *group = NULL;
    void *memory = NULL;
    int32_t sum = rank + 1;
    const shoal_comm_args args = args_of(scene, rank, 20);
    alarm(WATCHDOG_S);
    /* A process that has changed its user is closed even to its own; one that was started is not.
     */
    if (!become(OWNER) || prctl(PR_SET_DUMPABLE, 1) != 0)
        return 77;
    setenv("SHOAL_JOB_ID", job, 1);
    if (scene->with_secret)
        setenv("SHOAL_SECRET", secret, 1);
    if (shoal_comm_init(&args, &group) == SHOAL_OK &&
        shoal_comm_alloc(group, 100000, &memory) == SHOAL_OK &&
        shoal_all_reduce(group, &sum, &sum, 1, SHOAL_I32, SHOAL_SUM, NULL) == SHOAL_OK &&
        sum == 3) {
        shoal_comm_destroy(group);
        return 0;
    }
    fprintf(stderr, "rank %d: %s\n", (int)rank, shoal_error_message());
    return 1;
}

/* ---- what the stranger tries; true: it got him nothing -------------------------------------- */

static int connect_to(const struct scene *scene)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)},
                                  .sin_port = htons((uint16_t)scene->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Words of a member, without and with something where the proof should be. */
static bool is_not_heard(const struct scene *scene)
{
    static const char *const words[] = {"A - 9\nI say so.", "P shoal/shm/world 1\nx",
                                        "G shoal/shm/world 0\n"};
    for (int i = 0; i < 6; i++) {
        unsigned char greeting[SHOALI_GREETING_BYTES], proof[SHOALI_PROOF_BYTES] = {1}, rest[64];
        int fd = connect_to(scene);
        WANT(fd >= 0 && recv(fd, greeting, sizeof(greeting), MSG_WAITALL) == sizeof(greeting));
        if (i % 2)
            WANT(send(fd, proof, sizeof(proof), MSG_NOSIGNAL) == sizeof(proof));
        WANT(send(fd, words[i / 2], strlen(words[i / 2]), MSG_NOSIGNAL) > 0);
        shutdown(fd, SHUT_WR);
        /* Nothing but the end, or zeros for the wrong proof: never an answer. */
        ssize_t got = recv(fd, rest, sizeof(rest), MSG_WAITALL);
        WANT(got <= SHOALI_MAC_BYTES);
        for (ssize_t k = 0; k < got; k++)
            WANT(rest[k] == 0);
        close(fd);
    }
    return true;
}

/* Takes rank 1's seat as a program of Shoal would, with all that he can know. */
static bool gets_no_seat(const struct scene *scene, const char *guess)
{
    shoal_group *group = NULL;
    const shoal_comm_args args = args_of(scene, 1, 3);
    setenv("SHOAL_JOB_ID", job, 1);
    if (guess)
        setenv("SHOAL_SECRET", guess, 1);
    else
        unsetenv("SHOAL_SECRET");
    WANT(shoal_comm_init(&args, &group) == SHOAL_EINVAL && !group);
    WANT(says("this rank does not have the secret of rank 0"));
    return true;
}

static bool is_refused(int result)
{
    return result < 0 && (errno == EACCES || errno == EPERM);
}

/* The owner's folder: not listed, not searched, not replaced, not added to. */
static bool finds_no_files(void)
{
    char folder[SHOALI_FOLDER_BYTES], path[96],
        other[] = SHOALI_FOLDER_MEMORY "/shoal-test-stranger";
    snprintf(folder, sizeof(folder), SHOALI_FOLDER_MEMORY "/shoal-%d", OWNER);
    WANT(is_refused(open(folder, O_RDONLY)));
    WANT(is_refused(rename(folder, other)) && is_refused(rmdir(folder)));
    WANT(is_refused(chmod(folder, 0777)));
    snprintf(path, sizeof(path), "%s/shoal-%s-ended.1", folder, job);
    WANT(is_refused(open(path, O_WRONLY | O_CREAT, 0666)));
    WANT(is_refused(symlink("/etc/passwd", path)));
    snprintf(path, sizeof(path), "%s/secret", folder);
    WANT(is_refused(open(path, O_RDONLY)) && is_refused(link(path, other)));
    /* Where the notes of a job would be without such a folder: nobody looks there. */
    snprintf(path, sizeof(path), SHOALI_FOLDER_MEMORY "/shoal-%s-ended.1", job);
    close(open(path, O_WRONLY | O_CREAT, 0666));
    unlink(path);
    return true;
}

/* The rank's process: its descriptors, mappings, memory and environment. */
static bool finds_no_process(pid_t rank)
{
    static const char *const files[] = {"environ", "mem", "maps"};
    char path[64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)rank, files[i]);
        int fd = open(path, O_RDONLY);
        char byte;
        WANT(fd < 0 || read(fd, &byte, 1) <= 0);
        close(fd);
    }
    for (int fd = 0; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)rank, fd);
        WANT(is_refused(open(path, O_RDWR)));
    }
    snprintf(path, sizeof(path), "/proc/%d/map_files", (int)rank);
    WANT(is_refused(open(path, O_RDONLY)));
    WANT(is_refused(kill(rank, SIGKILL)));
    WANT(ptrace(PTRACE_ATTACH, rank, NULL, NULL) < 0);
    return true;
}

static bool holds_connections(const struct scene *scene, int *fds, int count)
{
    for (int i = 0; i < count; i++)
        WANT((fds[i] = connect_to(scene)) >= 0);
    return true;
}

static int attack(const struct scene *scene, int ready)
{
    enum { HELD = 300 };
    static int fds[HELD];
    alarm(WATCHDOG_S);
    const bool failed = !become(STRANGER) || !is_not_heard(scene) || !gets_no_seat(scene, NULL) ||
                        !gets_no_seat(scene, "0123456789abcdef0123456789abcdeF") ||
                        !finds_no_files() || !finds_no_process(scene->rank0) ||
                        !holds_connections(scene, fds, HELD);
    if (write(ready, failed ? "n" : "y", 1) == 1 && !failed)
        pause(); /* holds them while the ranks meet */
    return 1;
}

/* ---- the scenes ------------------------------------------------------------------------------ */

static void await_rank_0(const struct scene *scene)
{
    const int64_t deadline_ns = shoali_deadline_ns(INT64_C(60000000000));
    int fd;
    while ((fd = connect_to(scene)) < 0 && !shoali_deadline_passed(deadline_ns))
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    assert_true(fd >= 0);
    close(fd);
}

static int code_of(pid_t pid)
{
    int code = 0;
    assert_int_equal(waitpid(pid, &code, 0), pid);
    return WIFEXITED(code) ? WEXITSTATUS(code) : 1000 + WTERMSIG(code);
}

static void play(bool with_secret)
{
    struct scene scene = {.with_secret = with_secret};
    int keeper, ready[2];
    char verdict = 0;
    scene.port = ranks_keep_port(&keeper);
    assert_int_equal(pipe(ready), 0);
    scene.rank0 = fork();
    if (scene.rank0 == 0)
        _exit(run_rank(&scene, 0));
    await_rank_0(&scene);
    const pid_t stranger = fork();
    if (stranger == 0)
        _exit(attack(&scene, ready[1]));
    close(ready[1]); /* or nobody hears when the stranger ends */
    assert_int_equal(read(ready[0], &verdict, 1), 1);
    const pid_t rank1 = fork();
    if (rank1 == 0)
        _exit(run_rank(&scene, 1));
    const int code1 = code_of(rank1), code0 = code_of(scene.rank0);
    kill(stranger, SIGKILL);
    code_of(stranger);
    close(keeper);
    close(ready[0]);
    assert_int_equal(verdict, 'y');
    assert_int_equal(code1, 0);
    assert_int_equal(code0, 0);
}

static void launched_job(void **state)
{
    (void)state;
    play(true);
}

static void job_of_a_foreign_launcher(void **state)
{
    (void)state;
    play(false);
}

/* The stranger was first and owns the folder that the ranks would use. */
static int meet_in_taken_folder(const struct scene *scene)
{
    shoal_group *group = NULL;
    const shoal_comm_args args = args_of(scene, 0, 1);
    alarm(WATCHDOG_S);
    if (!become(OWNER))
        return 77;
    return shoal_comm_init(&args, &group) == SHOAL_EINVAL && says("is not a folder of this user") &&
                   says("shoal run") && says("SHOAL_SECRET_FILE")
               ? 0
               : 1;
}

static void taken_folder(void **state)
{
    (void)state;
    char folder[SHOALI_FOLDER_BYTES], path[64];
    struct scene scene = {.with_secret = true};
    int keeper;
    snprintf(folder, sizeof(folder), SHOALI_FOLDER_MEMORY "/shoal-%d", OWNER);
    snprintf(path, sizeof(path), "%s/secret", folder);
    unlink(path);
    rmdir(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(chown(folder, STRANGER, STRANGER), 0);
    scene.port = ranks_keep_port(&keeper);
    pid_t pids[2] = {fork()};
    if (pids[0] == 0)
        _exit(meet_in_taken_folder(&scene));
    const int without = code_of(pids[0]);
    /* With a secret the folder is not needed: segments have no name then. */
    for (int32_t r = 0; r < 2; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            _exit(run_rank(&scene, r));
    }
    const int code1 = code_of(pids[1]), code0 = code_of(pids[0]);
    const int removed = rmdir(folder); /* nobody has put anything there */
    close(keeper);
    assert_int_equal(without, 0);
    assert_int_equal(code1, 0);
    assert_int_equal(code0, 0);
    assert_int_equal(removed, 0);
}

static int clean_up(void **state)
{
    (void)state;
    static const int users[] = {OWNER, STRANGER};
    char folder[SHOALI_FOLDER_BYTES], path[64];
    for (int i = 0; i < 2; i++) {
        snprintf(folder, sizeof(folder), SHOALI_FOLDER_MEMORY "/shoal-%d", users[i]);
        snprintf(path, sizeof(path), "%s/secret", folder);
        unlink(path);
        rmdir(folder);
    }
    return 0;
}

int main(void)
{
    pid_t child = fork();
    int code = 0;
    if (child == 0)
        _exit(become(STRANGER) ? 0 : 1);
    if (waitpid(child, &code, 0) != child || code != 0) {
        printf("skipped: only root can act as two other users\n");
        return 77;
    }
    unsetenv("SHOAL_SECRET");
    unsetenv("SHOAL_SECRET_FILE");
    unsetenv("SHOAL_COMM");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(launched_job, clean_up),
        cmocka_unit_test_teardown(job_of_a_foreign_launcher, clean_up),
        cmocka_unit_test_teardown(taken_folder, clean_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
