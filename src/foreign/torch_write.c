/* Archives without compression (APPNOTE.TXT of PKWARE). Every size and offset has 64 bits, in the
 * extra field 1 and the larger end record, so there is one form for all sizes. */
#include "foreign/torch_write.h"

#include "base/write_advice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18, ALIGN = 64, LOCAL_BYTES = 30, WIDE_BYTES = 20, VERSION = 45 };

/* CRC-32 of ISO 3309, bytewise: one row of 256 numbers, made when it is needed. */
static void make_crc_row(uint32_t row[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ 0xedb88320u : value >> 1;
        row[i] = value;
    }
}

static uint32_t crc_of(uint32_t crc, const unsigned char *data, int64_t bytes)
{
    uint32_t row[256];
    make_crc_row(row);
    crc = ~crc;
    for (int64_t i = 0; i < bytes; i++)
        crc = row[(crc ^ data[i]) & 0xff] ^ crc >> 8;
    return ~crc;
}

static shoal_status cannot_write(const struct shoali_torch_writer *writer)
{
    return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot write: %s%s", writer->path,
                      strerror(errno), shoali_write_advice(errno));
}

static shoal_status write_at(const struct shoali_torch_writer *writer, const char *data,
                             int64_t bytes, int64_t at)
{
    shoal_status status = SHOAL_OK;
    const bool limited = shoali_file_limit_begin();
    while (bytes > 0 && status == SHOAL_OK) {
        const ssize_t count = shoali_fault("torch_write")
                                  ? (errno = ENOSPC, -1)
                                  : pwrite(writer->descriptor, data, (size_t)bytes, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            status = cannot_write(writer);
        } else {
            data += count;
            bytes -= count;
            at += count;
        }
    }
    shoali_file_limit_end(limited);
    return status;
}

static shoal_status flush(struct shoali_torch_writer *writer)
{
    const shoal_status status =
        write_at(writer, writer->buffer, writer->filled, writer->at - writer->filled);
    writer->filled = 0;
    return status;
}

static shoal_status append(struct shoali_torch_writer *writer, const void *data, int64_t bytes)
{
    shoal_status status = SHOAL_OK;
    const char *from = data;
    while (bytes > 0) {
        const int64_t room = BUFFER_BYTES - writer->filled, part = bytes < room ? bytes : room;
        memcpy(writer->buffer + writer->filled, from, (size_t)part);
        writer->filled += part;
        writer->at += part;
        from += part;
        bytes -= part;
        if (writer->filled == BUFFER_BYTES)
            SHOAL_TRY(status, flush(writer), done);
    }
done:
    return status;
}

static char *put(char *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *to++ = (char)(number >> (8 * i) & 0xffu);
    return to;
}

/* Fields that local headers and entries of the directory share: from the version needed to the two
 * lengths behind the sizes. */
static char *put_common(char *to, const struct shoali_torch_member *member, size_t extra)
{
    to = put(to, VERSION, 2);
    to = put(to, 0x800, 2);      /* the name is UTF-8 */
    to = put(to, 0, 2);          /* stored */
    to = put(to, 0, 2);          /* no time: */
    to = put(to, 1 << 5 | 1, 2); /* the first day of the format's time */
    to = put(to, member->crc, 4);
    to = put(to, 0xffffffffu, 4);
    to = put(to, 0xffffffffu, 4);
    to = put(to, strlen(member->name), 2);
    return put(to, extra, 2);
}

/* Local header: name, sizes, and as much padding as brings the data to a multiple of ALIGN. */
static int64_t make_header(const struct shoali_torch_member *member, char out[256])
{
    const size_t name = strlen(member->name);
    const int64_t bare = member->header + LOCAL_BYTES + (int64_t)name + WIDE_BYTES + 4;
    const int64_t padding = (ALIGN - bare % ALIGN) % ALIGN;
    char *to = put(out, 0x04034b50u, 4);
    to = put_common(to, member, (size_t)(WIDE_BYTES + 4 + padding));
    memcpy(to, member->name, name);
    to = put(to + name, 1, 2);
    to = put(to, 16, 2);
    to = put(to, (uint64_t)member->bytes, 8);
    to = put(to, (uint64_t)member->bytes, 8);
    to = put(to, 0x4246, 2); /* as PyTorch marks its padding */
    to = put(to, (uint64_t)padding, 2);
    memset(to, 'Z', (size_t)padding);
    return to + padding - out;
}

static shoal_status begin(struct shoali_torch_writer *writer, const char *name, int64_t bytes)
{
    char header[256];
    SHOAL_ASSERT(writer->left == 0);
    if (writer->count == writer->capacity) {
        const int64_t capacity = writer->capacity > 0 ? 2 * writer->capacity : 16;
        struct shoali_torch_member *larger =
            realloc(writer->member, (size_t)capacity * sizeof *larger);
        if (!larger)
            return SHOAL_FAIL(SHOAL_ENOMEM, "%s: cannot allocate its directory", writer->path);
        writer->member = larger;
        writer->capacity = capacity;
    }
    struct shoali_torch_member *member = &writer->member[writer->count++];
    *member = (struct shoali_torch_member){.header = writer->at, .bytes = bytes};
    snprintf(member->name, sizeof member->name, "archive/%s", name);
    writer->left = bytes;
    return append(writer, header, make_header(member, header));
}

shoal_status shoali_torch_writer_put(struct shoali_torch_writer *writer, const void *data,
                                     int64_t bytes)
{
    shoal_status status;
    char header[256];
    struct shoali_torch_member *member = &writer->member[writer->count - 1];
    SHOAL_ASSERT(bytes <= writer->left);
    member->crc = crc_of(member->crc, data, bytes);
    writer->left -= bytes;
    SHOAL_TRY(status, append(writer, data, bytes), done);
    if (writer->left > 0)
        return SHOAL_OK;
    /* the header again, now with the sum */
    SHOAL_TRY(status, flush(writer), done);
    const int64_t length = make_header(member, header);
    SHOAL_TRY(status, write_at(writer, header, length, member->header), done);
done:
    return status;
}

static shoal_status add(struct shoali_torch_writer *writer, const char *name, const char *text,
                        int64_t bytes)
{
    shoal_status status;
    SHOAL_TRY(status, begin(writer, name, bytes), done);
    SHOAL_TRY(status, shoali_torch_writer_put(writer, text, bytes), done);
done:
    return status;
}

shoal_status shoali_torch_writer_open(struct shoali_torch_writer *writer, const char *path,
                                      const struct shoali_pickling *pickling)
{
    shoal_status status;
    *writer = (struct shoali_torch_writer){.descriptor = -1};
    writer->path = strdup(path);
    writer->buffer = shoali_malloc(BUFFER_BYTES, "part of an archive");
    if (!writer->path || !writer->buffer || pickling->text.failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "%s: cannot allocate its contents", path);
    writer->descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->descriptor < 0)
        return cannot_write(writer);
    SHOAL_TRY(status, add(writer, "data.pkl", pickling->text.text, (int64_t)pickling->text.length),
              done);
    SHOAL_TRY(status, add(writer, "byteorder", "little", 6), done);
done:
    return status;
}

shoal_status shoali_torch_writer_begin(struct shoali_torch_writer *writer, int64_t bytes)
{
    shoal_status status;
    char name[32];
    snprintf(name, sizeof name, "data/%lld", (long long)writer->storages++);
    SHOAL_TRY(status, begin(writer, name, bytes), done);
    if (bytes == 0)
        SHOAL_TRY(status, shoali_torch_writer_put(writer, "", 0), done);
done:
    return status;
}

static shoal_status add_entry(struct shoali_torch_writer *writer,
                              const struct shoali_torch_member *member)
{
    char entry[256];
    const size_t name = strlen(member->name);
    char *to = put(entry, 0x02014b50u, 4);
    to = put(to, VERSION, 2);
    to = put_common(to, member, 28);
    to = put(to, 0, 2); /* no comment */
    to = put(to, 0, 2);
    to = put(to, 0, 2);
    to = put(to, 0, 4);
    to = put(to, 0xffffffffu, 4);
    memcpy(to, member->name, name);
    to = put(to + name, 1, 2);
    to = put(to, 24, 2);
    to = put(to, (uint64_t)member->bytes, 8);
    to = put(to, (uint64_t)member->bytes, 8);
    to = put(to, (uint64_t)member->header, 8);
    return append(writer, entry, to - entry);
}

/* The three records behind the directory. */
static shoal_status add_end(struct shoali_torch_writer *writer, int64_t directory)
{
    char end[128];
    const int64_t bytes = writer->at - directory, at = writer->at;
    char *to = put(end, 0x06064b50u, 4);
    to = put(to, 44, 8);
    to = put(to, VERSION, 2);
    to = put(to, VERSION, 2);
    to = put(to, 0, 8);
    to = put(to, (uint64_t)writer->count, 8);
    to = put(to, (uint64_t)writer->count, 8);
    to = put(to, (uint64_t)bytes, 8);
    to = put(to, (uint64_t)directory, 8);
    to = put(to, 0x07064b50u, 4);
    to = put(to, 0, 4);
    to = put(to, (uint64_t)at, 8);
    to = put(to, 1, 4);
    to = put(to, 0x06054b50u, 4);
    to = put(to, 0, 4);
    to = put(to, 0xffff, 2);
    to = put(to, 0xffff, 2);
    to = put(to, 0xffffffffu, 4);
    to = put(to, 0xffffffffu, 4);
    to = put(to, 0, 2);
    return append(writer, end, to - end);
}

shoal_status shoali_torch_writer_finish(struct shoali_torch_writer *writer)
{
    shoal_status status;
    SHOAL_TRY(status, add(writer, "version", "3\n", 2), done);
    const int64_t directory = writer->at;
    for (int64_t i = 0; i < writer->count; i++)
        SHOAL_TRY(status, add_entry(writer, &writer->member[i]), done);
    SHOAL_TRY(status, add_end(writer, directory), done);
    SHOAL_TRY(status, flush(writer), done);
    if (fsync(writer->descriptor) != 0)
        status = cannot_write(writer);
done:
    return status;
}

void shoali_torch_writer_close(struct shoali_torch_writer *writer)
{
    if (writer->path && writer->descriptor >= 0)
        close(writer->descriptor);
    free(writer->path);
    free(writer->member);
    shoali_free(writer->buffer);
    *writer = (struct shoali_torch_writer){.descriptor = -1};
}
