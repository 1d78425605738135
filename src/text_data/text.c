/* Text files as streams, and the look at all of them before they are encoded. */
#include "base/beginning.h"
#include "base/plain.h"
#include "text_data/gzip.h"
#include "text_data/text_data.h"
#include "text_data/text_kind.h"

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
        return SHOAL_FAIL(
            SHOAL_EIO,
            "%s changed while its tokens were made: start again when no process writes to it",
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
    SHOAL_TRY(status, shoali_beginning_check(file->path, text->descriptor), done);
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
    bool refuses_json;
    bool counts; /* NUL bytes were found: the file is counted */
    struct shoali_text_counts count;
    enum shoali_text_kind kind;
};

static bool has_ending(const char *path, const char *ending)
{
    const size_t length = strlen(path), bytes = strlen(ending);
    return length > bytes && shoali_strcasecmp(path + length - bytes, ending) == 0;
}

/* JSON that its name does not announce: training would learn braces, quotes and keys. The first
 * piece of the file decides. */
static shoal_status check_json(const struct scanning *scanning, const struct shoali_file *file)
{
    const struct shoali_text *text = &scanning->text;
    if (!scanning->refuses_json || scanning->at > 0 || file->records ||
        scanning->kind != SHOALI_KIND_TEXT)
        return SHOAL_OK;
    if (shoali_json_is_lines(text->piece, text->have))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s holds JSON lines, and its name does not say so: call it *.jsonl to "
                          "train on the texts of --json-keys, or give --data-text to train on it "
                          "as it stands",
                          file->path);
    if (text->have > 0 && has_ending(file->path, ".json"))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s is JSON, which would be learnt with its braces and keys: make JSON "
                          "lines of it (*.jsonl), take it out, or give --data-text to train on it "
                          "as it stands",
                          file->path);
    return SHOAL_OK;
}

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

/* Looks at the next `used` bytes; false: they have NUL bytes, and the file is not counted yet. */
static bool look_at(struct scanning *scanning, size_t used)
{
    const struct shoali_text *text = &scanning->text;
    if (!scanning->counts)
        return !memchr(text->piece, 0, text->have);
    shoali_text_count(&scanning->count, text->piece, used);
    if (!text->file->records) /* JSON may spell any character */
        scanning->kind = shoali_text_kind_of(&scanning->count);
    return true;
}

/* SHOAL_END: it may not be read. */
static shoal_status scan_once(struct scanning *scanning, const struct shoali_file *file)
{
    shoal_status status;
    struct shoali_text *text = &scanning->text;
    size_t used = 0;
    scanning->at = 0;
    scanning->wrong = -1;
    scanning->kind = SHOALI_KIND_TEXT;
    SHOAL_TRY(status, shoali_text_begin(text, file), done);
    if (status == SHOAL_END)
        goto done;
    do {
        scanning->at += (int64_t)used;
        SHOAL_TRY(status, shoali_text_next(text, used), done);
        used = shoali_text_whole(text);
        if (!look_at(scanning, used)) {
            scanning->counts = true;
            break;
        }
        SHOAL_TRY(status, check_json(scanning, file), done);
        if (scanning->seen && scanning->wrong < 0)
            learn(scanning, used);
    } while (!text->end && scanning->kind == SHOALI_KIND_TEXT);
done:
    return status;
}

/* A file with NUL bytes is read once more, from its beginning. */
static shoal_status scan_file(struct scanning *scanning, const struct shoali_file *file)
{
    shoal_status status;
    scanning->counts = false;
    scanning->count = (struct shoali_text_counts){0};
    SHOAL_TRY(status, scan_once(scanning, file), done);
    if (scanning->counts)
        SHOAL_TRY(status, scan_once(scanning, file), done);
done:
    return status;
}

/* What is not read is said; what was named is not left out. */
static shoal_status leave_out(struct shoali_scan *scan, const struct scanning *scanning,
                              int32_t index, const struct shoali_file *file, bool unreadable)
{
    const bool named = !*file->name;
    if (unreadable && named)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s is not readable: change its permissions, or take it out of the data "
                          "paths",
                          file->path);
    if (named)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s is no text: byte %lld is NUL, and others belong to no text: take it "
                          "out of the data paths",
                          file->path, (long long)scanning->count.first_nul + 1);
    SHOALI_WARN("data", "%s: skipped: %s", file->path,
                unreadable ? "it is not readable" : "it is no text: it has NUL and control bytes");
    scan->skipped++;
    scan->verdict[index] = unreadable ? SHOALI_FILE_UNREADABLE : SHOALI_FILE_BINARY;
    return SHOAL_OK;
}

static shoal_status check_kind(struct shoali_scan *scan, struct scanning *scanning, int32_t index,
                               const struct shoali_file *file)
{
    shoal_status status;
    if (scanning->seen)
        memset(scanning->seen, 0, SHOALI_CODE_POINTS / 8);
    SHOAL_TRY(status, scan_file(scanning, file), done);
    if (status == SHOAL_END || scanning->kind == SHOALI_KIND_BINARY)
        return leave_out(scan, scanning, index, file, status == SHOAL_END);
    if (scanning->kind == SHOALI_KIND_WIDE)
        return shoali_beginning_fail_wide(file->path, "every second byte is NUL");
    if (scanning->count.nul > 0)
        SHOALI_WARN("data", "%s has %lld NUL bytes, the first is byte %lld: they are read as text",
                    file->path, (long long)scanning->count.nul,
                    (long long)scanning->count.first_nul + 1);
    if (file->bytes == 0 || scanning->at + (int64_t)scanning->text.have == 0) {
        scan->verdict[index] = SHOALI_FILE_EMPTY; /* JSON lines may have no texts */
        return SHOAL_OK;
    }
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
    scan->verdict[index] = SHOALI_FILE_READ;
    scan->kept++;
done:
    return status;
}

shoal_status shoali_scan_init(struct shoali_scan *scan, const struct shoali_files *files,
                              bool learns, int beat)
{
    shoal_status status;
    struct scanning scanning = {.text.descriptor = -1, .refuses_json = !files->data_text};
    *scan = (struct shoali_scan){0};
    SHOAL_TRY(status, shoali_text_init(&scanning.text, beat), done);
    scan->verdict = shoali_calloc((size_t)files->count + 1, 1, "a list of files");
    if (learns) {
        scan->seen = shoali_calloc(SHOALI_CODE_POINTS / 8, 1, "the set of code points");
        scanning.seen = shoali_calloc(SHOALI_CODE_POINTS / 8, 1, "the set of code points");
    }
    if (!scan->verdict || (learns && (!scan->seen || !scanning.seen))) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t i = 0; i < files->count; i++)
        SHOAL_TRY(status, check_kind(scan, &scanning, i, &files->file[i]), done);
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
    shoali_free(scan->verdict);
    shoali_free(scan->seen);
    *scan = (struct shoali_scan){0};
}
