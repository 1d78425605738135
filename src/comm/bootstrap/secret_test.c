/* Where a job's secret comes from, and which files are refused. */
#include "comm/bootstrap/secret.h"

#include "base/test_cmocka.h"
#include "comm/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static bool says(const char *text)
{
    return strstr(shoal_error_message(), text) != NULL;
}

static int setup(void **state)
{
    (void)state;
    static const char *const names[] = {"SHOAL_SECRET", "SHOAL_SECRET_FILE",
                                        "SHOAL_JOB_ID", "TORCHELASTIC_RUN_ID",
                                        "SLURM_JOB_ID", "PMIX_NAMESPACE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    strcpy(path, "/tmp/shoal-secret-XXXXXX");
    int fd = mkstemp(path); /* mode 600 */
    return fd >= 0 && close(fd) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path) == 0 || rmdir(path) == 0 ? 0 : -1;
}

static void write_secret(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    setenv("SHOAL_SECRET_FILE", path, 1);
}

static void environment_and_file_agree(void **state)
{
    (void)state;
    struct shoali_credentials given, file, other;
    setenv("SHOAL_SECRET", "0123456789abcdef", 1);
    assert_int_equal(shoali_credentials_find(&given), SHOAL_OK);
    assert_false(given.this_machine);
    unsetenv("SHOAL_SECRET");
    write_secret("0123456789abcdef \r\n\n");
    assert_int_equal(shoali_credentials_find(&file), SHOAL_OK);
    assert_memory_equal(&given, &file, sizeof(given));
    write_secret("0123456789abcdeF");
    assert_int_equal(shoali_credentials_find(&other), SHOAL_OK);
    assert_memory_not_equal(given.key, other.key, sizeof(given.key));
    assert_memory_equal(given.job, other.job, sizeof(given.job));
    setenv("SHOAL_SECRET", "0123456789abcdef", 1); /* goes before the file */
    assert_int_equal(shoali_credentials_find(&other), SHOAL_OK);
    assert_memory_equal(given.key, other.key, sizeof(given.key));
}

static void jobs_have_tags(void **state)
{
    (void)state;
    static const char *const names[] = {"PMIX_NAMESPACE", "SLURM_STEP_ID", "SLURM_JOB_ID",
                                        "TORCHELASTIC_RUN_ID", "SHOAL_JOB_ID"};
    struct shoali_credentials last = {0}, next;
    setenv("SHOAL_SECRET", "0123456789abcdef", 1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(shoali_credentials_find(&last), SHOAL_OK);
        setenv(names[i], "17", 1);
        assert_int_equal(shoali_credentials_find(&next), SHOAL_OK);
        if (i != 1) /* a step without a job is none */
            assert_memory_not_equal(last.job, next.job, sizeof(last.job));
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    setenv("SHOAL_JOB_ID", "", 1); /* empty is none, and equals only none */
    assert_int_equal(shoali_credentials_find(&next), SHOAL_OK);
    assert_memory_not_equal(last.job, next.job, sizeof(last.job));
}

static void refuse(const char *text)
{
    struct shoali_credentials credentials;
    assert_int_equal(shoali_credentials_find(&credentials), SHOAL_EINVAL);
    if (!says(text))
        fail_msg("%s", shoal_error_message());
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    char *large = malloc(5000);
    setenv("SHOAL_SECRET", "short", 1);
    refuse("SHOAL_SECRET has 5 characters and needs 16");
    assert_false(says("short"));
    unsetenv("SHOAL_SECRET");
    write_secret("too short a word\n");
    assert_int_equal(chmod(path, 0640), 0);
    refuse("may be read or written by others (mode 640)");
    assert_int_equal(chmod(path, 0602), 0);
    refuse("chmod 600");
    assert_int_equal(chmod(path, 0600), 0);
    write_secret("15 characters..\n");
    refuse("has 15 characters and needs 16");
    memset(large, 'x', 4999);
    large[4999] = '\0';
    write_secret(large);
    refuse("longer than 4096");
    free(large);
    if (getuid() == 0) {
        write_secret("0123456789abcdef");
        assert_int_equal(chown(path, 65534, 65534), 0);
        refuse("belongs to user 65534");
    }
    assert_int_equal(unlink(path), 0);
    refuse("No such file");
    assert_int_equal(mkfifo(path, 0600), 0); /* does not wait for a writer */
    refuse("not a plain file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    refuse("not a plain file");
}

static void users_have_their_own(void **state)
{
    (void)state;
    struct shoali_credentials first, second;
    char folder[SHOALI_FOLDER_BYTES], file[64];
    struct stat info;
    if (access(shoali_folder_root(), W_OK) != 0)
        skip();
    assert_int_equal(shoali_credentials_find(&first), SHOAL_OK);
    assert_int_equal(shoali_credentials_find(&second), SHOAL_OK);
    assert_true(first.this_machine);
    assert_memory_equal(&first, &second, sizeof(first));
    assert_int_equal(lstat(shoali_folder_path(folder), &info), 0);
    assert_true(S_ISDIR(info.st_mode) && info.st_uid == geteuid());
    assert_int_equal(info.st_mode & 07777, 0700);
    snprintf(file, sizeof(file), "%s/secret", folder);
    assert_int_equal(lstat(file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(info.st_size, 64);
}

static void drawn_ones_differ(void **state)
{
    (void)state;
    char first[SHOALI_SECRET_TEXT_BYTES], second[SHOALI_SECRET_TEXT_BYTES];
    assert_int_equal(shoali_secret_draw(first), SHOAL_OK);
    assert_int_equal(shoali_secret_draw(second), SHOAL_OK);
    assert_int_equal(strspn(first, "0123456789abcdef"), 64);
    assert_int_equal(strlen(first), 64);
    assert_string_not_equal(first, second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(environment_and_file_agree, setup, teardown),
        cmocka_unit_test_setup_teardown(jobs_have_tags, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_files_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(users_have_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(drawn_ones_differ, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
