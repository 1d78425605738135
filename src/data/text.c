/* Text files as streams, and the look at all of them before they are encoded. */
#include "data/data.h"
#include "data/gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one file ---- */

shoal_status shoali_text_init(struct shoali_text *text, int beat)
{
    *text = (struct shoali_text){.descriptor = -1, .beat = beat};
    text->piece = shoali_malloc(SHOALI_TEXT_BYTES, "a piece of text");
    return text->piece ? SHOAL_OK : SHOAL_ENOMEM;
}

void shoali_text_fini(struct shoali_text *text)
{
    if (text->piece && text->descriptor >= 0)
        close(text->descriptor);
    shoali_text_end_records(text);
    shoali_gzip_close(text->gzip);
    shoali_free(text->piece);
    *text = (struct shoali_text){.descriptor = -1};
}

static shoal_status check_unchanged(const struct shoali_text *text)
{
    struct stat info;
    const struct shoali_file *file = text->file;
    if (fstat(text->descriptor, &info) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot read: %s", file->path, strerror(errno));
    if (info.st_size != file->bytes || info.st_ino != file->inode ||
        info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec != file->modified_ns)
        return SHOAL_FAIL(SHOAL_EIO,
                          "%s changed while its tokens were made: start again when nobody writes "
                          "to it",
                          file->path);
    return SHOAL_OK;
}

shoal_status shoali_text_begin(struct shoali_text *text, const struct shoali_file *file)
{
    shoal_status status = SHOAL_OK;
    if (text->descriptor >= 0)
        close(text->descriptor);
    shoali_gzip_close(text->gzip);
    text->gzip = NULL;
    text->file = file;
    text->have = 0;
    text->end = false;
    text->descriptor =
        shoali_fault("data_open") ? (errno = EACCES, -1) : open(file->path, O_RDONLY | O_CLOEXEC);
    if (text->descriptor < 0 && (errno == EACCES || errno == EPERM))
        return SHOAL_END;
    if (text->descriptor < 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot open for reading: %s", file->path,
                          strerror(errno));
    (void)posix_fadvise(text->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    shoali_text_begin_records(text);
    if (file->compressed)
        SHOAL_TRY(status, shoali_gzip_open(text->descriptor, file->path, &text->gzip), done);
    SHOAL_TRY(status, check_unchanged(text), done);
done:
    return status;
}

shoal_status shoali_text_read(struct shoali_text *text, char *to, size_t room, size_t *count)
{
    ssize_t got;
    if (text->gzip)
        return shoali_gzip_read(text->gzip, to, room, count);
    do {
        got = shoali_fault("data_read") ? (errno = EIO, -1) : read(text->descriptor, to, room);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot read: %s", text->file->path, strerror(errno));
    *count = (size_t)got;
    return SHOAL_OK;
}

shoal_status shoali_text_next(struct shoali_text *text, size_t used)
{
    shoal_status status = SHOAL_OK;
    text->have -= used;
    memmove(text->piece, text->piece + used, text->have);
    if (text->beat >= 0)
        (void)futimens(text->beat, NULL);
    if (text->file->records)
        SHOAL_TRY(status, shoali_text_next_records(text), done);
    while (!text->end && text->have < SHOALI_TEXT_BYTES) {
        size_t count;
        SHOAL_TRY(status,
                  shoali_text_read(text, text->piece + text->have, SHOALI_TEXT_BYTES - text->have,
                                   &count),
                  done);
        text->have += count;
        text->end = count == 0;
    }
    if (text->end)
        SHOAL_TRY(status, check_unchanged(text), done);
done:
    return status;
}

size_t shoali_text_whole(const struct shoali_text *text)
{
    size_t whole = text->have;
    if (text->end)
        return whole;
    /* a sequence has at most three bytes after its first */
    for (int back = 0; back < 4 && whole > 0; back++) {
        const unsigned char byte = (unsigned char)text->piece[whole - 1];
        if ((byte & 0xc0) == 0xc0)
            return whole - 1;
        if ((byte & 0x80) == 0)
            return whole;
        whole--;
    }
    return text->have; /* no UTF-8: let the decoder say where */
}

/* ---- all files ---- */

struct scanning {
    struct shoali_text text;
    uint8_t *seen; /* of the current file; NULL: not asked for */
    int64_t at;    /* offset of the piece in the file */
    int64_t wrong; /* offset of the first byte that is not UTF-8; -1 none */
    unsigned char wrong_byte;
    bool binary;
};

static void learn(struct scanning *scanning, size_t bytes)
{
    const char *piece = scanning->text.piece;
    uint32_t code_point;
    for (size_t at = 0; at < bytes;) {
        const int length = shoali_utf8_decode(piece + at, bytes - at, &code_point);
        if (length == 0) {
            scanning->wrong = scanning->at + (int64_t)at;
            scanning->wrong_byte = (unsigned char)piece[at];
            return;
        }
        scanning->seen[code_point >> 3] |= (uint8_t)(1u << (code_point & 7));
        at += (size_t)length;
    }
}

/* SHOAL_END: it may not be read. */
static shoal_status scan_file(struct scanning *scanning, const struct shoali_file *file)
{
    shoal_status status;
    struct shoali_text *text = &scanning->text;
    size_t used = 0;
    scanning->at = 0;
    scanning->wrong = -1;
    scanning->binary = false;
    SHOAL_TRY(status, shoali_text_begin(text, file), done);
    if (status == SHOAL_END)
        goto done;
    do {
        scanning->at += (int64_t)used;
        SHOAL_TRY(status, shoali_text_next(text, used), done);
        used = shoali_text_whole(text);
        scanning->binary = memchr(text->piece, 0, text->have) != NULL;
        if (scanning->seen && scanning->wrong < 0 && !scanning->binary)
            learn(scanning, used);
    } while (!text->end && !scanning->binary);
done:
    return status;
}

static shoal_status judge(struct shoali_scan *scan, struct scanning *scanning, int32_t index,
                          const struct shoali_file *file)
{
    shoal_status status;
    if (scanning->seen)
        memset(scanning->seen, 0, SHOALI_CODE_POINTS / 8);
    SHOAL_TRY(status, scan_file(scanning, file), done);
    if (status == SHOAL_END || scanning->binary) {
        SHOALI_WARN("data", "%s: skipped: %s", file->path,
                    status == SHOAL_END ? "it may not be read"
                                        : "it has NUL bytes, so it is not text");
        scan->skipped++;
        return SHOAL_OK;
    }
    if (file->bytes == 0 || scanning->at + (int64_t)scanning->text.have == 0)
        return SHOAL_OK; /* JSON lines may have no texts */
    if (scanning->wrong >= 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s is not UTF-8 at byte %lld (0x%02x); the tokenizer `char` needs "
                          "UTF-8, `byte` takes any data",
                          file->path, (long long)scanning->wrong, scanning->wrong_byte);
    for (size_t i = 0; scan->seen && i < SHOALI_CODE_POINTS / 8; i++)
        scan->seen[i] |= scanning->seen[i];
    if (scan->kept > 0 && scan->seen)
        scan->seen['\n' >> 3] |= 1u << ('\n' & 7);
    const int64_t read = scanning->at + (int64_t)scanning->text.have;
    scan->bytes += (file->compressed ? read : file->bytes) + (scan->kept > 0);
    scan->keep[index] = true;
    scan->kept++;
done:
    return status;
}

shoal_status shoali_scan_init(struct shoali_scan *scan, const struct shoali_files *files,
                              bool learns, int beat)
{
    shoal_status status;
    struct scanning scanning = {.text.descriptor = -1};
    *scan = (struct shoali_scan){0};
    SHOAL_TRY(status, shoali_text_init(&scanning.text, beat), done);
    scan->keep = shoali_calloc((size_t)files->count + 1, sizeof(*scan->keep), "a list of files");
    if (learns) {
        scan->seen = shoali_calloc(SHOALI_CODE_POINTS / 8, 1, "the set of code points");
        scanning.seen = shoali_calloc(SHOALI_CODE_POINTS / 8, 1, "the set of code points");
    }
    if (!scan->keep || (learns && (!scan->seen || !scanning.seen))) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t i = 0; i < files->count; i++)
        SHOAL_TRY(status, judge(scan, &scanning, i, &files->file[i]), done);
    if (scan->kept == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "there is no text in %s or the other data paths: %d file%s found, all "
                            "empty, unreadable or binary",
                            files->first_path, files->count, files->count == 1 ? "" : "s");
done:
    shoali_text_fini(&scanning.text);
    shoali_free(scanning.seen);
    if (status < 0)
        shoali_scan_fini(scan);
    return status;
}

void shoali_scan_fini(struct shoali_scan *scan)
{
    shoali_free(scan->keep);
    shoali_free(scan->seen);
    *scan = (struct shoali_scan){0};
}
