/* test_folder - a folder of its own for a test program: make_folder and remove_folder are cmocka's
 * fixtures, of a group or of each test; `folder`, and *state, is its path in between. */
#ifndef SHOALI_TEST_FOLDER_H
#define SHOALI_TEST_FOLDER_H

#include "base/str.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char folder[64];

static inline int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static inline int make_folder(void **state)
{
    strcpy(folder, "/tmp/shoal-test-XXXXXX");
    *state = mkdtemp(folder);
    return *state ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes FOLDER/PATH, and makes the folders that it is in; `path` begins with a slash. */
static inline void put_in_folder(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", folder, path);
    char *slash = strrchr(whole, '/');
    *slash = '\0';
    if (shoali_make_dirs(whole) < 0)
        abort();
    *slash = '/';
    if (shoali_write_file_atomic(whole, text, strlen(text)) < 0)
        abort();
}

#endif
