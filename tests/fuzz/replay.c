/* The corpus of a target as a test: usage: PROGRAM FOLDER. Files are taken in the order of their
 * names; the one at work is known when a check ends the process. */
#include "fuzz.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILES_MAX = 100, BYTES_MAX = 200 * 1024, PATH_BYTES = 4096 };

static char current[PATH_BYTES + 64];

static void name_input(int signal_number)
{
    ssize_t written = write(STDERR_FILENO, current, strlen(current));
    (void)written;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Returns the file's size. */
static size_t replay(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    static uint8_t bytes[BYTES_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(current, sizeof current, "the input is %s\n", path);
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    /* a copy of just this size, so that a sanitizer sees the first byte behind it */
    uint8_t *copy = malloc(size + (size == 0));
    FUZZ_CHECK(copy);
    memcpy(copy, bytes, size);
    FUZZ_CHECK(LLVMFuzzerTestOneInput(copy, size) == 0);
    free(copy);
    return size;
}

int main(int argc, char **argv)
{
    struct dirent **list = NULL;
    size_t bytes = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, name_input);
    signal(SIGSEGV, name_input);
    const int count = scandir(argv[1], &list, is_input, alphasort);
    FUZZ_CHECK(count > 0 && count <= FILES_MAX);
    for (int i = 0; i < count; i++) {
        bytes += replay(argv[1], list[i]->d_name);
        free(list[i]);
    }
    free(list);
    FUZZ_CHECK(bytes <= BYTES_MAX);
    fprintf(stderr, "%d inputs, %zu bytes\n", count, bytes);
    return 0;
}
