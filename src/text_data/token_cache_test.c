/* Token files: the tokens of the text whatever happened to the file, made once, and never trusted
 * without reason. */
#include "data/test_text.h"
#include "text_data/token_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Everything that the tokens of `dataset` say. */
static uint64_t tokens_hash(const shoal_dataset *dataset)
{
    int32_t tokens[512];
    uint64_t hash = 0;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        const int64_t count = shoal_dataset_token_count(dataset, (shoal_split)p);
        for (int64_t at = 0, piece; at < count; at += piece) {
            piece = count - at < 512 ? count - at : 512;
            ok(shoal_dataset_read(dataset, (shoal_split)p, at, piece, tokens));
            hash = shoali_hash64_seeded(tokens, (size_t)piece * sizeof(*tokens), hash);
        }
    }
    return hash;
}

static ino_t inode_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? info.st_ino : 0;
}

/* Opens, and tells the file and whether its tokens are those expected. */
static ino_t open_and_compare(const char *tokenizer, uint64_t expected, char *path)
{
    shoal_dataset *dataset = open_folder(tokenizer);
    assert_true(tokens_hash(dataset) == expected);
    const ino_t inode = inode_of(shoal_dataset_path(dataset));
    if (path)
        strcpy(path, shoal_dataset_path(dataset));
    shoal_dataset_destroy(dataset);
    assert_true(inode != 0);
    return inode;
}

/* ---- when it is made again ---- */

static void test_stale(void **state)
{
    (void)state;
    write_text("a", "some text", 9);
    shoal_dataset *dataset = open_folder("char");
    const uint64_t first = tokens_hash(dataset);
    shoal_dataset_destroy(dataset);
    const ino_t inode = open_and_compare("char", first, NULL);
    assert_int_equal(open_and_compare("char", first, NULL), inode); /* not made again */

    write_text("a", "emos txet", 9); /* the same size, at once */
    dataset = open_folder("char");
    assert_true(tokens_hash(dataset) != first);
    shoal_dataset_destroy(dataset);
    write_text("a", "some text", 9);
    (void)open_and_compare("char", first, NULL);
    write_text("b", "", 0); /* one more file, although it adds nothing */
    const ino_t more = open_and_compare("char", first, NULL);
    assert_int_equal(open_and_compare("char", first, NULL), more);
    write_text("b", "more", 4);
    dataset = open_folder("char");
    assert_int_equal(shoal_dataset_file_count(dataset), 2);
    shoal_dataset_destroy(dataset);
    assert_int_equal(remove(path_of("b")), 0);
    (void)open_and_compare("char", first, NULL);
    /* another tokenizer is another file */
    dataset = open_folder("byte");
    assert_int_equal(shoal_dataset_vocab_size(dataset), 256);
    shoal_dataset_destroy(dataset);
}

/* A run that goes on with its vocabulary uses the file it began with. */
static void test_continued(void **state)
{
    (void)state;
    write_text("a", "some text", 9);
    shoal_dataset *learnt = open_folder("char"), *used = NULL;
    const char *path = folder;
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &path,
                                                  .path_count = 1,
                                                  .use_tokenizer = shoal_dataset_tokenizer(learnt)},
                            &used));
    assert_string_equal(shoal_dataset_path(used), shoal_dataset_path(learnt));
    shoal_dataset_destroy(used);
    write_text("a", "some tex.", 9); /* '.' is no token of it, 't' is not in it */
    assert_int_equal(shoal_dataset_create(
                         &(shoal_dataset_args){.paths = &path,
                                               .path_count = 1,
                                               .use_tokenizer = shoal_dataset_tokenizer(learnt)},
                         &used),
                     SHOAL_EINVAL);
    write_text("a", "some texx", 9);
    ok(shoal_dataset_create(&(shoal_dataset_args){.paths = &path,
                                                  .path_count = 1,
                                                  .use_tokenizer = shoal_dataset_tokenizer(learnt)},
                            &used));
    assert_string_not_equal(shoal_dataset_path(used), shoal_dataset_path(learnt));
    assert_int_equal(shoal_dataset_vocab_size(used), shoal_dataset_vocab_size(learnt));
    shoal_dataset_destroy(used);
    shoal_dataset_destroy(learnt);
}

static void change_byte(const char *path, off_t at)
{
    unsigned char byte;
    assert_int_equal(chmod(path, 0600), 0);
    const int descriptor = open(path, O_RDWR);
    assert_int_equal(pread(descriptor, &byte, 1, at), 1);
    byte ^= 0x41;
    assert_int_equal(pwrite(descriptor, &byte, 1, at), 1);
    assert_int_equal(close(descriptor), 0);
}

static struct shoali_token_header header_of(const char *path)
{
    struct shoali_token_header header;
    const int descriptor = open(path, O_RDONLY);
    assert_int_equal(read(descriptor, &header, sizeof(header)), sizeof(header));
    close(descriptor);
    return header;
}

/* Every byte of the header and of the vocabulary, and every length: made again, with its tokens. */
static void test_damaged(void **state)
{
    char path[512];
    (void)state;
    write_text("a", "some text that is damaged", 25);
    shoal_dataset *dataset = open_folder("char");
    const uint64_t expected = tokens_hash(dataset);
    shoal_dataset_destroy(dataset);
    ino_t inode = open_and_compare("char", expected, path);
    const struct shoali_token_header header = header_of(path);
    for (int64_t at = 0; at < header.json_at + header.json_bytes;
         at += at == sizeof(header) - 1 ? header.json_at - at : 1) {
        change_byte(path, at);
        dataset = open_folder("char");
        dataset = (shoal_dataset_destroy(dataset), NULL);
        const struct shoali_token_header now = header_of(path);
        assert_memory_equal(&now, &header, sizeof(now));
        inode = open_and_compare("char", expected, path);
    }
    for (int64_t bytes = 0; bytes <= header.file_bytes + 1;
         bytes += bytes < header.file_bytes - 3 ? 997 : 1) {
        if (bytes == header.file_bytes)
            continue;
        assert_int_equal(chmod(path, 0600) | truncate(path, bytes), 0);
        inode = open_and_compare("char", expected, path);
    }
    /* not ours alone; a link; a folder in its place is an error, no crash */
    assert_int_equal(chmod(path, 0622), 0);
    assert_int_not_equal(open_and_compare("char", expected, path), 0);
    assert_int_equal(header_of(path).token_count, 25);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0400);
    assert_int_equal(rename(path, path_of("elsewhere.shoal-tokens")), 0);
    assert_int_equal(symlink(path_of("elsewhere.shoal-tokens"), path), 0);
    inode = open_and_compare("char", expected, path);
    assert_true(lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_ino == inode);
    assert_int_equal(unlink(path) | mkdir(path, 0700), 0);
    assert_int_equal(create("char", &dataset), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "--data-cache-path"));
}

/* What is not looked at when it is opened is not believed when it is used. */
static void test_damaged_inside(void **state)
{
    char *text = malloc(400000);
    double before, after;
    int32_t tokens[8];
    (void)state;
    for (int i = 0; i < 400000; i++)
        text[i] = (char)('a' + i * 7 % 26);
    write_text("a", text, 400000);
    free(text);
    shoal_dataset *dataset = open_folder("char");
    const char *path = shoal_dataset_path(dataset);
    const struct shoali_token_header header = header_of(path);
    assert_true(header.row_count > 1);
    ok(shoal_dataset_unigram_entropy(dataset, SHOAL_SPLIT_VALID, &before));
    for (int64_t row = 0; row < header.row_count; row++)
        change_byte(path, header.rows_at + row * (header.vocab_size + 1) * 8 + 3);
    ok(shoal_dataset_unigram_entropy(dataset, SHOAL_SPLIT_VALID, &after));
    assert_true(before == after);
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, 8, tokens));
    change_byte(path, header.tokens_at + 5); /* 0x41 is beyond 26 */
    assert_int_equal(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, 8, tokens), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), path));
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 6, 8, tokens));
    change_byte(path, header.tokens_at + 5);
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 0, 8, tokens));

    /* truncated while in use: a sentence, no signal; deleted: nothing happens */
    assert_int_equal(truncate(path, header.tokens_at + 100), 0);
    ok(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 92, 8, tokens));
    assert_int_equal(shoal_dataset_read(dataset, SHOAL_SPLIT_TRAIN, 93, 8, tokens), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "truncated"));
    shoal_dataset_destroy(dataset);
    dataset = open_folder("char");
    assert_int_equal(unlink(shoal_dataset_path(dataset)), 0);
    ok(shoal_dataset_unigram_entropy(dataset, SHOAL_SPLIT_VALID, &after));
    assert_true(before == after);
    shoal_dataset_destroy(dataset);
}

/* ---- failures while it is made ---- */

static int leftovers(void)
{
    char command[256], line[512];
    int count = 0;
    snprintf(command, sizeof(command), "find %s -name '*.tmp' -o -name '*.lock'", folder);
    FILE *list = popen(command, "r");
    while (fgets(line, sizeof(line), list))
        count++;
    pclose(list);
    return count;
}

static void test_failures(void **state)
{
    static const char *const points[] = {"alloc", "data_write", "data_read", "data_rename"};
    char spec[64];
    (void)state;
    write_text("a", "some text", 9);
    for (size_t p = 0; p < sizeof(points) / sizeof(points[0]); p++) {
        bool fired = true;
        for (int skip = 0; fired; skip++) {
            shoal_dataset *dataset = NULL;
            write_text("b", "x", (size_t)(skip & 1)); /* stale each time */
            snprintf(spec, sizeof(spec), "%s:%d", points[p], skip);
            assert_true(skip < 200 && shoali_fault_arm(spec));
            const shoal_status status = create("char", &dataset);
            fired = shoali_fault_left() < 0;
            assert_true(shoali_fault_arm(NULL));
            assert_true((dataset == NULL) == (status < 0));
            assert_true(fired || status >= 0);
            assert_true(skip > 0 || status < 0);
            if (status < 0 && strcmp(points[p], "data_write") == 0)
                assert_non_null(strstr(shoal_error_message(), "--data-cache-path"));
            shoal_dataset_destroy(dataset);
            assert_int_equal(leftovers(), 0);
        }
    }
}

/* The process dies at each write and before the rename: the next one makes it. */
static void test_killed(void **state)
{
    char spec[64];
    int code, deaths = 0;
    (void)state;
    write_text("a", "some text", 9);
    for (int skip = 0; skip < 20; skip++) {
        snprintf(spec, sizeof(spec), skip ? "data_write:%d=kill" : "data_rename=kill", skip - 1);
        write_text("b", "y", (size_t)(skip & 1));
        const pid_t child = fork();
        if (child == 0) {
            shoal_dataset *dataset = NULL;
            _exit(shoali_fault_arm(spec) && create("char", &dataset) == SHOAL_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &code, 0), child);
        if (WIFEXITED(code) && WEXITSTATUS(code) == 0)
            break;
        assert_true(WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL);
        deaths++;
        shoal_dataset *dataset = open_folder("char");
        assert_int_equal(shoal_dataset_file_count(dataset), 1 + (skip & 1));
        shoal_dataset_destroy(dataset);
        assert_int_equal(leftovers(), 0);
    }
    assert_true(deaths >= 4);
}

/* ---- several processes ---- */

/* `ms` 0: until it is killed. *over is memory of both processes: 1 from just before the end on. */
static pid_t hold_lock(const char *path, int ms, _Atomic int *over)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        const int lock = open(path, O_RDWR | O_CREAT, 0600);
        if (flock(lock, LOCK_EX) != 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (ms == 0)
            pause();
        usleep((useconds_t)ms * 1000);
        atomic_store(over, 1);
        _exit(0); /* as if it had died: the file stays, the lock does not */
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void test_wait(void **state)
{
    char lock[600];
    (void)state;
    write_text("a", "some text", 9);
    shoal_dataset *dataset = open_folder("byte");
    snprintf(lock, sizeof(lock), "%s.lock", shoal_dataset_path(dataset));
    assert_int_equal(unlink(shoal_dataset_path(dataset)), 0);
    shoal_dataset_destroy(dataset);
    _Atomic int *over =
        mmap(NULL, sizeof *over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(over != MAP_FAILED);
    pid_t child = hold_lock(lock, 300, over);
    dataset = open_folder("byte");
    assert_int_equal(*over, 1);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(leftovers(), 0);
    /* what is there is opened without a look at locks; what must be made has a deadline */
    child = hold_lock(lock, 0, NULL);
    shoal_dataset *second = open_folder("byte");
    shoal_dataset_destroy(second);
    assert_int_equal(unlink(shoal_dataset_path(dataset)), 0);
    shoal_dataset_destroy(dataset);
    assert_true(shoali_fault_arm("data_wait:3"));
    assert_int_equal(create("byte", &dataset), SHOAL_ETIMEOUT);
    assert_true(shoali_fault_arm(NULL));
    assert_non_null(strstr(shoal_error_message(), lock));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    munmap(over, sizeof *over);
}

static void test_race(void **state)
{
    pid_t child[6];
    int code;
    char *text = malloc(3000000);
    (void)state;
    memset(text, 'q', 3000000);
    write_text("a", text, 3000000);
    free(text);
    for (int i = 0; i < 6; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            shoal_dataset *dataset = NULL;
            const bool made = create("byte", &dataset) == SHOAL_OK;
            struct shoali_token_header header = header_of(shoal_dataset_path(dataset));
            _exit(made && header.token_count == 3000000 ? 0 : 1);
        }
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(waitpid(child[i], &code, 0), child[i]);
        assert_int_equal(code, 0);
    }
    assert_int_equal(leftovers(), 0);
}

/* ---- places ---- */

static void test_places(void **state)
{
    char text[256], given[256], home[256], other[256];
    const char *path = text;
    shoal_dataset *dataset = NULL;
    const bool root = geteuid() == 0;
    shoal_dataset_args args = {.paths = &path, .path_count = 1, .cache_path = given};
    (void)state;
    write_text("text", "some text", 9);
    snprintf(text, sizeof(text), "%s/text", folder);
    snprintf(other, sizeof(other), "%s/other", folder);
    snprintf(given, sizeof(given), "%s/some/where", folder);
    snprintf(home, sizeof(home), "%s/home", folder);
    ok(shoal_dataset_create(&args, &dataset));
    assert_int_equal(strncmp(shoal_dataset_path(dataset), given, strlen(given)), 0);
    shoal_dataset_destroy(dataset);

    /* a folder that may not be written: a place of one's own, or a sentence */
    args.cache_path = NULL;
    assert_int_equal(mkdir(home, 0700), 0);
    if (root)
        assert_int_equal(chown(home, 65534, (gid_t)-1) | chmod(folder, 0755) |
                             chmod(path_of("text"), 0644) | seteuid(65534),
                         0);
    else
        assert_int_equal(chmod(folder, 0500), 0);
    setenv("XDG_CACHE_HOME", home, 1);
    ok(shoal_dataset_create(&args, &dataset));
    strcat(home, "/shoal/text-byte-");
    assert_int_equal(strncmp(shoal_dataset_path(dataset), home, strlen(home)), 0);
    assert_int_equal(unlink(shoal_dataset_path(dataset)), 0);
    shoal_dataset_destroy(dataset);
    assert_int_equal(chmod(path_of("home/shoal"), 0770), 0);
    assert_int_equal(shoal_dataset_create(&args, &dataset), SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), "--data-cache-path"));
    args.cache_path = other;
    assert_int_equal(shoal_dataset_create(&args, &dataset), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "--data-cache-path"));
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(root ? seteuid(0) : chmod(folder, 0700), 0);
}

/* A plan learns what it needs and leaves nothing behind. */
static void test_peek(void **state)
{
    static const char *const tokenizers[] = {"byte", "char"};
    const char *path = folder;
    (void)state;
    write_text("a", "some text", 9);
    for (int t = 0; t < 2; t++) {
        shoal_dataset_info before, after;
        const shoal_dataset_args args = {
            .paths = &path, .path_count = 1, .tokenizer = tokenizers[t]};
        ok(shoal_dataset_peek(&args, &before));
        assert_true(t > 0 || access(path_of(SHOALI_CACHE_FOLDER), F_OK) != 0);
        shoal_dataset *dataset = open_folder(tokenizers[t]);
        ok(shoal_dataset_peek(&args, &after));
        assert_int_equal(before.vocab_size, after.vocab_size);
        assert_int_equal(before.host_bytes, after.host_bytes);
        assert_int_equal(before.vocab_size, shoal_dataset_vocab_size(dataset));
        assert_int_equal(before.host_bytes, shoal_dataset_host_bytes(dataset));
        assert_true(before.host_bytes > 0 && before.host_bytes < 8192);
        shoal_dataset_destroy(dataset);
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_stale),          IN_FOLDER(test_continued), IN_FOLDER(test_damaged),
        IN_FOLDER(test_damaged_inside), IN_FOLDER(test_failures),  IN_FOLDER(test_killed),
        IN_FOLDER(test_wait),           IN_FOLDER(test_race),      IN_FOLDER(test_places),
        IN_FOLDER(test_peek),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
