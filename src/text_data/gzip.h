/* gzip - compressed JSON lines, read as the stream that they are (RFC 1952, through zlib).
 *
 * There is no way to a place in the middle but through all that is before it: whoever goes on
 * somewhere skips. Files of several members, as from `cat a.gz b.gz`, are one text.
 */
#ifndef SHOALI_GZIP_H
#define SHOALI_GZIP_H

#include "base/base.h"

struct shoali_gzip;
/* Whether a file's name says that it is compressed. */
bool shoali_gzip_is_name(const char *path);
/* Reads from the descriptor's place on. Both are borrowed until close. SHOAL_EUNSUPPORTED: this
 * build has no zlib. *gzip is owned. */
SHOAL_CHECKED shoal_status shoali_gzip_open(int descriptor, const char *path,
                                            struct shoali_gzip **gzip);
/* Up to `room` bytes of text; *count 0: the end. SHOAL_EINVAL: no gzip data, damaged, cut off.
 * SHOAL_EIO. */
SHOAL_CHECKED shoal_status shoali_gzip_read(struct shoali_gzip *gzip, void *to, size_t room,
                                            size_t *count);
/* Reads over `bytes` of text, which are there. */
SHOAL_CHECKED shoal_status shoali_gzip_skip(struct shoali_gzip *gzip, int64_t bytes);
void shoali_gzip_close(struct shoali_gzip *gzip); /* NULL is fine */

#endif
