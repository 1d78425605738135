/* Compressed files through zlib, where there is one. */
#include "text_data/gzip.h"

#include "base/plain.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#ifdef SHOALI_HAVE_ZLIB
#include <zlib.h>
#endif

bool shoali_gzip_is_name(const char *path)
{
    const size_t length = strlen(path);
    return length > 3 && shoali_strcasecmp(path + length - 3, ".gz") == 0;
}

#ifdef SHOALI_HAVE_ZLIB

#define INPUT_BYTES (256 << 10)
#define GZIP_WINDOW (15 + 16) /* zlib's largest window; 16: with gzip's header and checksum */

struct shoali_gzip {
    z_stream stream;
    int descriptor;
    const char *path;
    bool ended;   /* nothing follows in the file */
    bool between; /* no member has begun, or the last one is whole */
    unsigned char input[INPUT_BYTES];
};

shoal_status shoali_gzip_open(int descriptor, const char *path, struct shoali_gzip **gzip)
{
    struct shoali_gzip *made = shoali_calloc(1, sizeof *made, "a reader of gzip data");
    *gzip = NULL;
    if (!made)
        return SHOAL_ENOMEM;
    if (shoali_fault("alloc") || inflateInit2(&made->stream, GZIP_WINDOW) != Z_OK) {
        shoali_free(made);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a reader of gzip data");
    }
    made->descriptor = descriptor;
    made->path = path;
    made->between = true;
    *gzip = made;
    return SHOAL_OK;
}

void shoali_gzip_close(struct shoali_gzip *gzip)
{
    if (!gzip)
        return;
    (void)inflateEnd(&gzip->stream);
    shoali_free(gzip);
}

static shoal_status read_input(struct shoali_gzip *gzip)
{
    ssize_t got;
    do {
        got = shoali_fault("data_read") ? (errno = EIO, -1)
                                        : read(gzip->descriptor, gzip->input, INPUT_BYTES);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot read: %s", gzip->path, strerror(errno));
    gzip->ended = got == 0;
    gzip->stream.next_in = gzip->input;
    gzip->stream.avail_in = (unsigned)got;
    return SHOAL_OK;
}

/* Tapes and some writers fill the last block with zeros. */
static void skip_padding(struct shoali_gzip *gzip)
{
    z_stream *stream = &gzip->stream;
    while (gzip->between && stream->avail_in > 0 && *stream->next_in == 0) {
        stream->next_in++;
        stream->avail_in--;
    }
}

static shoal_status inflate_some(struct shoali_gzip *gzip)
{
    z_stream *stream = &gzip->stream;
    gzip->between = false;
    const int result = inflate(stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
        gzip->between = true;
        (void)inflateReset(stream);
        return SHOAL_OK;
    }
    if (result == Z_OK || result == Z_BUF_ERROR)
        return SHOAL_OK;
    if (result == Z_MEM_ERROR)
        return SHOAL_FAIL(SHOAL_ENOMEM, "%s: cannot allocate memory to decompress it", gzip->path);
    return SHOAL_FAIL(
        SHOAL_EINVAL,
        "%s is not gzip data, or is damaged: %s; copy it again, or give the uncompressed text",
        gzip->path, stream->msg ? stream->msg : "an unknown method");
}

shoal_status shoali_gzip_read(struct shoali_gzip *gzip, void *to, size_t room, size_t *count)
{
    shoal_status status = SHOAL_OK;
    z_stream *stream = &gzip->stream;
    const unsigned most = room < (1u << 30) ? (unsigned)room : 1u << 30;
    stream->next_out = to;
    stream->avail_out = most;
    *count = 0;
    while (stream->avail_out == most && !(gzip->ended && stream->avail_in == 0)) {
        if (stream->avail_in == 0)
            SHOAL_TRY(status, read_input(gzip), done);
        skip_padding(gzip);
        if (stream->avail_in > 0)
            SHOAL_TRY(status, inflate_some(gzip), done);
    }
    *count = most - stream->avail_out;
    if (*count == 0 && !gzip->between)
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s ends in the middle of its compressed data: copy it again",
                       gzip->path);
done:
    return status;
}

#else

shoal_status shoali_gzip_open(int descriptor, const char *path, struct shoali_gzip **gzip)
{
    (void)descriptor;
    *gzip = NULL;
    return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                      "%s is compressed, and this build has no zlib: decompress it, as in zcat "
                      "FILE | shoal preprocess --input -",
                      path);
}

shoal_status shoali_gzip_read(struct shoali_gzip *gzip, void *to, size_t room, size_t *count)
{
    (void)gzip, (void)to, (void)room;
    *count = 0;
    return SHOAL_FAIL(SHOAL_EINTERNAL, "gzip data are read without zlib");
}

void shoali_gzip_close(struct shoali_gzip *gzip)
{
    (void)gzip;
}

#endif

shoal_status shoali_gzip_skip(struct shoali_gzip *gzip, int64_t bytes)
{
    shoal_status status = SHOAL_OK;
    char text[16 << 10];
    while (bytes > 0) {
        size_t count;
        const size_t room = bytes < (int64_t)sizeof text ? (size_t)bytes : sizeof text;
        SHOAL_TRY(status, shoali_gzip_read(gzip, text, room, &count), done);
        if (count == 0)
            return SHOAL_FAIL(SHOAL_EIO, "a compressed file has become shorter than it was");
        bytes -= (int64_t)count;
    }
done:
    return status;
}
