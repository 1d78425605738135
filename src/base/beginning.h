/* beginning - what the first bytes of a file say of files that are not what their name promises.
 *
 * A clone without git-lfs leaves a pointer, a small text, in place of each large file. An editor of
 * another system may save text as UTF-16. Both parse as something, or give an error about a byte.
 * Readers call these functions first, so that the sentence names the cause. */
#ifndef SHOALI_BEGINNING_H
#define SHOALI_BEGINNING_H

#include "base/error.h"

#include <stddef.h>

/* As many bytes as the functions look at. */
enum { SHOALI_BEGINNING_BYTES = 128 };

/* SHOAL_EINVAL: the file is a pointer of git-lfs. */
SHOAL_CHECKED shoal_status shoali_beginning_lfs(const char *path, const char *data, size_t bytes);
/* SHOAL_EINVAL: the text begins with the byte order mark of UTF-16 or UTF-32. */
SHOAL_CHECKED shoal_status shoali_beginning_wide(const char *path, const char *data, size_t bytes);
/* The first, and both, of an open file; the descriptor's offset stays. A pipe has no beginning:
 * SHOAL_OK. */
SHOAL_CHECKED shoal_status shoali_beginning_check_lfs(const char *path, int descriptor);
SHOAL_CHECKED shoal_status shoali_beginning_check(const char *path, int descriptor);
/* SHOAL_EINVAL: text in UTF-16 or UTF-32, `where` says what tells. */
SHOAL_CHECKED shoal_status shoali_beginning_fail_wide(const char *path, const char *where);

#endif
