/* Integer arrays as files of numpy.save (format version 1.0): magic, a header that is padded with
 * blanks so that the numbers begin at a multiple of 64, the numbers. */
#include "data/indexed/indexed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define ALIGN 64
#define PREFIX 10 /* magic, version, bytes of the header */
#define HEADER_BYTES (2 * ALIGN)
#define READ_NUMBERS 1024

/* All that comes before the numbers. Returns its length. */
static int64_t make_header(const struct shoali_npy *file, char header[HEADER_BYTES])
{
    char shape[48];
    if (file->columns == 1)
        snprintf(shape, sizeof shape, "(%lld,)", (long long)file->rows);
    else
        snprintf(shape, sizeof shape, "(%lld, %d)", (long long)file->rows, (int)file->columns);
    memset(header, ' ', HEADER_BYTES);
    const int length = snprintf(header + PREFIX, HEADER_BYTES - PREFIX,
                                "{'descr': '<%c%d', 'fortran_order': False, 'shape': %s, }",
                                file->kind, (int)file->width, shape);
    header[PREFIX + length] = ' ';
    const int whole = (PREFIX + length + 1 + ALIGN - 1) / ALIGN * ALIGN;
    header[whole - 1] = '\n';
    const int rest = whole - PREFIX;
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(rest & 0xff);
    header[9] = (char)(rest >> 8);
    return whole;
}

static shoal_status cannot_write(const struct shoali_npy *file)
{
    return SHOAL_FAIL(SHOAL_EIO,
                      "%s: cannot write: %s; make room, or give --data-cache-path FOLDER on "
                      "another drive",
                      file->path, strerror(errno));
}

static shoal_status flush(struct shoali_npy *file)
{
    const char *from = file->buffer;
    while (file->filled > 0) {
        const ssize_t count = shoali_fault("data_write")
                                  ? (errno = ENOSPC, -1)
                                  : write(file->descriptor, from, file->filled);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return cannot_write(file);
        from += count;
        file->filled -= (size_t)count;
    }
    return SHOAL_OK;
}

shoal_status shoali_npy_create(const char *path, char kind, size_t width, int64_t rows,
                               int32_t columns, struct shoali_npy *file)
{
    shoal_status status = SHOAL_OK;
    *file = (struct shoali_npy){
        .descriptor = -1, .kind = kind, .width = width, .columns = columns, .rows = rows};
    file->path = strdup(path);
    file->buffer = shoali_malloc(BUFFER_BYTES, "numbers of an index");
    if (!file->path || !file->buffer) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate an index file");
        goto done;
    }
    (void)unlink(path); /* of a process that died */
    file->descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file->descriptor < 0) {
        status = cannot_write(file);
        goto done;
    }
    file->begin = make_header(file, file->buffer);
    file->filled = (size_t)file->begin;
done:
    if (status < 0)
        shoali_npy_close(file);
    return status;
}

shoal_status shoali_npy_put(struct shoali_npy *file, const void *numbers, int64_t count)
{
    shoal_status status = SHOAL_OK;
    const char *from = numbers;
    size_t left = (size_t)count * file->width;
    file->written += (int64_t)left;
    while (left > 0) {
        const size_t room = BUFFER_BYTES - file->filled, piece = left < room ? left : room;
        memcpy(file->buffer + file->filled, from, piece);
        file->filled += piece;
        from += piece;
        left -= piece;
        if (file->filled == BUFFER_BYTES)
            SHOAL_TRY(status, flush(file), done);
    }
done:
    return status;
}

shoal_status shoali_npy_finish(struct shoali_npy *file)
{
    shoal_status status;
    SHOAL_ASSERT(file->written == file->rows * file->columns * (int64_t)file->width);
    SHOAL_TRY(status, flush(file), done);
    if (fchmod(file->descriptor, 0400) != 0 || fsync(file->descriptor) != 0)
        status = cannot_write(file);
done:
    return status;
}

/* Whether the file begins as make_header would have it. */
static bool parse_header(struct shoali_npy *file, int64_t file_bytes)
{
    char there[HEADER_BYTES + 1] = {0}, made[HEADER_BYTES];
    long long rows = 0;
    int width = 0, columns = 1;
    const size_t have = file_bytes < HEADER_BYTES ? (size_t)file_bytes : HEADER_BYTES;
    if (have < PREFIX || !shoali_pread(file->descriptor, there, have, 0))
        return false;
    const int found =
        sscanf(there + PREFIX, "{'descr': '<%c%d', 'fortran_order': False, 'shape': (%lld, %d",
               &file->kind, &width, &rows, &columns);
    if (found < 3 || (width != 2 && width != 4 && width != 8) || rows < 0 || columns < 1 ||
        columns > 3 || (file->kind != 'i' && file->kind != 'u'))
        return false;
    file->width = (size_t)width;
    file->rows = rows;
    file->columns = columns;
    file->begin = make_header(file, made);
    return (size_t)file->begin <= have && memcmp(there, made, (size_t)file->begin) == 0 &&
           (file_bytes - file->begin) / (width * columns) == rows &&
           (file_bytes - file->begin) % (width * columns) == 0;
}

shoal_status shoali_npy_open(const char *path, struct shoali_npy *file)
{
    int64_t bytes;
    *file = (struct shoali_npy){.descriptor =
                                    open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
    if (file->descriptor < 0)
        return SHOAL_END;
    if (!shoali_place_trusts(file->descriptor, &bytes) || !parse_header(file, bytes)) {
        SHOALI_DEBUG("data", "%s: not used: it is not an index file of this user", path);
        shoali_npy_close(file);
        return SHOAL_END;
    }
    file->path = strdup(path);
    if (file->path)
        return SHOAL_OK;
    shoali_npy_close(file);
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of an index file");
}

static int64_t number_at(const struct shoali_npy *file, const char *bytes)
{
    int16_t two;
    int32_t four;
    int64_t eight;
    memcpy(&two, bytes, sizeof two);
    if (file->width == 2)
        return two;
    memcpy(&four, bytes, sizeof four);
    if (file->width == 4)
        return file->kind == 'u' ? (int64_t)(uint32_t)four : four;
    memcpy(&eight, bytes, sizeof eight);
    return eight;
}

shoal_status shoali_npy_read(const struct shoali_npy *file, int64_t first, int64_t count,
                             int64_t *numbers)
{
    char bytes[READ_NUMBERS * sizeof(int64_t)];
    int64_t left = count * file->columns, at = first * file->columns;
    SHOAL_ASSERT(first >= 0 && count >= 0 && first <= file->rows - count);
    while (left > 0) {
        const int64_t piece = left < READ_NUMBERS ? left : READ_NUMBERS;
        if (!shoali_pread(file->descriptor, bytes, (size_t)piece * file->width,
                          file->begin + at * (int64_t)file->width))
            return SHOAL_FAIL(SHOAL_EIO,
                              "%s: cannot read: %s; delete the file, then the next start makes it "
                              "again",
                              file->path,
                              errno ? strerror(errno) : "it was truncated while in use");
        for (int64_t i = 0; i < piece; i++)
            *numbers++ = number_at(file, bytes + (size_t)i * file->width);
        at += piece;
        left -= piece;
    }
    return SHOAL_OK;
}

void shoali_npy_close(struct shoali_npy *file)
{
    if (file->descriptor >= 0)
        close(file->descriptor);
    free((char *)(uintptr_t)file->path);
    shoali_free(file->buffer);
    *file = (struct shoali_npy){.descriptor = -1};
}
