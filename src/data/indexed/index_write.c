/* P.bin and P.idx, written. Lengths and document boundaries wait in files of their own until all
 * sequences are known, because they stand before the offsets. */
#include "base/write_advice.h"
#include "data/indexed/indexed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)
#define PIECE 16384

/* A file that grows at its end. */
struct append {
    char *path; /* owned */
    int descriptor;
    char *buffer;  /* owned */
    size_t filled; /* bytes in it */
    int64_t bytes; /* of the file, those in the buffer included */
};

enum { TOKENS, LENGTHS, DOCUMENTS, INDEX, FILES };
static const char *const suffixes[FILES] = {"bin.tmp", "lengths.tmp", "documents.tmp", "idx.tmp"};

struct shoal_index_writer {
    char *prefix; /* owned */
    int32_t type;
    size_t width;
    struct append file[FILES];
    int64_t sequence_count, document_count;
    bool finished, leaves;
};

/* ---- a growing file ---- */

static shoal_status cannot_write(const struct append *file)
{
    return SHOAL_FAIL(errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? SHOAL_EIO
                      : shoali_path_status(errno) == SHOAL_ENOENT          ? SHOAL_EINVAL
                                                                  : shoali_path_status(errno),
                      "%s: cannot write: %s%s", file->path, strerror(errno),
                      shoali_write_advice(errno));
}

static shoal_status append_open(struct append *file, const char *prefix, const char *suffix,
                                bool anew)
{
    struct shoali_str path = {0};
    *file = (struct append){.descriptor = -1};
    shoali_str_append(&path, "%s.%s", prefix, suffix);
    file->path = path.failed ? NULL : strdup(shoali_str_get(&path));
    shoali_str_fini(&path);
    file->buffer = shoali_malloc(BUFFER_BYTES, "a data file");
    if (!file->path || !file->buffer)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a data file");
    file->descriptor = open(file->path, O_RDWR | O_CLOEXEC | (anew ? O_CREAT | O_TRUNC : 0), 0666);
    if (file->descriptor < 0 && !anew && errno == ENOENT)
        return SHOAL_END;
    return file->descriptor < 0 ? cannot_write(file) : SHOAL_OK;
}

static void append_close(struct append *file, bool removes)
{
    if (file->descriptor >= 0) {
        close(file->descriptor);
        if (removes)
            (void)unlink(file->path);
    }
    free(file->path);
    shoali_free(file->buffer);
    *file = (struct append){.descriptor = -1};
}

static shoal_status append_out(struct append *file, const char *from, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t count = shoali_fault("data_write") ? (errno = ENOSPC, -1)
                                                         : write(file->descriptor, from, bytes);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return cannot_write(file);
        from += count;
        bytes -= (size_t)count;
    }
    return SHOAL_OK;
}

static shoal_status append_flush(struct append *file)
{
    const size_t filled = file->filled;
    file->filled = 0;
    return append_out(file, file->buffer, filled);
}

static shoal_status append_put(struct append *file, const void *data, size_t bytes)
{
    shoal_status status = SHOAL_OK;
    file->bytes += (int64_t)bytes;
    if (bytes > BUFFER_BYTES - file->filled)
        SHOAL_TRY(status, append_flush(file), done);
    if (bytes >= BUFFER_BYTES) {
        SHOAL_TRY(status, append_out(file, data, bytes), done);
    } else if (bytes > 0) {
        memcpy(file->buffer + file->filled, data, bytes);
        file->filled += bytes;
    }
done:
    return status;
}

static shoal_status append_sync(struct append *file)
{
    shoal_status status;
    SHOAL_TRY(status, append_flush(file), done);
    if (shoali_fault("data_sync") || fdatasync(file->descriptor) != 0)
        status = cannot_write(file);
done:
    return status;
}

/* Goes on at `bytes`. SHOAL_END: it is shorter. */
static shoal_status append_cut(struct append *file, int64_t bytes)
{
    struct stat info;
    if (fstat(file->descriptor, &info) != 0)
        return cannot_write(file);
    if (info.st_size < bytes)
        return SHOAL_END;
    if (ftruncate(file->descriptor, (off_t)bytes) != 0 ||
        lseek(file->descriptor, (off_t)bytes, SEEK_SET) < 0)
        return cannot_write(file);
    file->bytes = bytes;
    return SHOAL_OK;
}

/* ---- the writer ---- */

int32_t shoali_index_type_for(int64_t vocab_size)
{
    return vocab_size < 65500 ? 8 : 4;
}

void shoali_index_pack(int32_t type, const int32_t *ids, int64_t count, void *to)
{
    uint16_t *narrow = to;
    if (shoali_index_type_bytes(type) == 4)
        memcpy(to, ids, (size_t)count * sizeof *ids);
    for (int64_t i = 0; shoali_index_type_bytes(type) == 2 && i < count; i++)
        narrow[i] = (uint16_t)ids[i];
}

static shoal_status make_writer(const char *prefix, int32_t type, bool anew,
                                shoal_index_writer **writer)
{
    shoal_status status = SHOAL_ENOMEM;
    shoal_index_writer *made = shoali_calloc(1, sizeof *made, "a writer of data files");
    *writer = NULL;
    if (!made)
        return SHOAL_ENOMEM;
    for (int i = 0; i < FILES; i++)
        made->file[i].descriptor = -1;
    made->type = type;
    made->width = shoali_index_type_bytes(type);
    made->leaves = !anew;
    made->prefix = strdup(prefix);
    if (!made->prefix) {
        (void)SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a data file");
        goto done;
    }
    for (int i = 0; i < INDEX; i++) {
        SHOAL_TRY(status, append_open(&made->file[i], prefix, suffixes[i], anew), done);
        if (status == SHOAL_END)
            goto done;
    }
    *writer = made;
    made = NULL;
done:
    shoal_index_writer_destroy(made);
    return status;
}

shoal_status shoali_index_writer_create(const char *prefix, int32_t type,
                                        shoal_index_writer **writer)
{
    shoal_status status;
    const int64_t zero = 0;
    SHOAL_TRY(status, make_writer(prefix, type, true, writer), done);
    SHOAL_TRY(status, append_put(&(*writer)->file[DOCUMENTS], &zero, sizeof zero), done);
done:
    return status;
}

shoal_status shoal_index_writer_create(const char *prefix, int64_t vocab_size,
                                       shoal_index_writer **writer)
{
    return shoali_index_writer_create(prefix, shoali_index_type_for(vocab_size), writer);
}

shoal_status shoali_index_writer_resume(const char *prefix, int32_t type,
                                        const struct shoali_index_mark *mark,
                                        shoal_index_writer **writer)
{
    shoal_status status;
    SHOAL_TRY(status, make_writer(prefix, type, false, writer), done);
    if (status == SHOAL_END)
        return SHOAL_END;
    shoal_index_writer *made = *writer;
    const int64_t bytes[INDEX] = {mark->token_bytes, 4 * mark->sequence_count,
                                  8 * (mark->document_count + 1)};
    for (int i = 0; i < INDEX && status == SHOAL_OK; i++)
        SHOAL_TRY(status, append_cut(&made->file[i], bytes[i]), done);
    made->sequence_count = mark->sequence_count;
    made->document_count = mark->document_count;
done:
    if (status != SHOAL_OK) {
        shoal_index_writer_destroy(*writer);
        *writer = NULL;
    }
    return status;
}

void shoali_index_writer_leave(shoal_index_writer *writer, bool leaves)
{
    writer->leaves = leaves;
}

void shoal_index_writer_destroy(shoal_index_writer *writer)
{
    if (!writer)
        return;
    for (int i = 0; i < FILES; i++) {
        const bool renamed = writer->finished && (i == TOKENS || i == INDEX);
        append_close(&writer->file[i], !renamed && (writer->finished || !writer->leaves));
    }
    free(writer->prefix);
    shoali_free(writer);
}

static shoal_status add_sequence(shoal_index_writer *writer, int32_t length)
{
    writer->sequence_count++;
    return append_put(&writer->file[LENGTHS], &length, sizeof length);
}

shoal_status shoal_index_writer_add(shoal_index_writer *writer, const int32_t *tokens,
                                    int64_t count)
{
    shoal_status status = SHOAL_OK;
    int32_t packed[2048];
    const int64_t room = (int64_t)(sizeof packed / sizeof packed[0]);
    const int64_t limit = writer->width == 2 ? UINT16_MAX : INT32_MAX;
    if (count < 0 || count > INT32_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a sequence has %lld tokens: at most 2^31 - 1 are supported",
                          (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] > limit)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s: token %d does not fit into %d bytes per token",
                              writer->prefix, (int)tokens[i], (int)writer->width);
    for (int64_t at = 0; at < count; at += room) {
        const int64_t piece = count - at < room ? count - at : room;
        shoali_index_pack(writer->type, tokens + at, piece, packed);
        SHOAL_TRY(status, append_put(&writer->file[TOKENS], packed, (size_t)piece * writer->width),
                  done);
    }
    SHOAL_TRY(status, add_sequence(writer, (int32_t)count), done);
done:
    return status;
}

shoal_status shoal_index_writer_end_document(shoal_index_writer *writer)
{
    writer->document_count++;
    return append_put(&writer->file[DOCUMENTS], &writer->sequence_count,
                      sizeof writer->sequence_count);
}

shoal_status shoali_index_writer_put(shoal_index_writer *writer,
                                     const struct shoali_index_block *block)
{
    shoal_status status;
    SHOAL_TRY(status, append_put(&writer->file[TOKENS], block->tokens, block->token_bytes), done);
    SHOAL_TRY(status,
              append_put(&writer->file[LENGTHS], block->lengths,
                         (size_t)block->sequence_count * sizeof *block->lengths),
              done);
    for (int64_t i = 0; i < block->document_count; i++) {
        writer->sequence_count += block->sequences[i];
        SHOAL_TRY(status, shoal_index_writer_end_document(writer), done);
    }
done:
    return status;
}

shoal_status shoali_index_writer_sync(shoal_index_writer *writer, struct shoali_index_mark *mark)
{
    shoal_status status = SHOAL_OK;
    for (int i = 0; i < INDEX; i++)
        SHOAL_TRY(status, append_sync(&writer->file[i]), done);
    *mark = (struct shoali_index_mark){.token_bytes = writer->file[TOKENS].bytes,
                                       .sequence_count = writer->sequence_count,
                                       .document_count = writer->document_count};
done:
    return status;
}

/* ---- appending another pair ---- */

static shoal_status copy_bytes(struct append *to, const struct shoali_indexed *from)
{
    shoal_status status = SHOAL_OK;
    char *piece = shoali_malloc(BUFFER_BYTES, "a piece of a data file");
    if (!piece)
        return SHOAL_ENOMEM;
    for (int64_t at = 0; at < from->token_bytes; at += (int64_t)BUFFER_BYTES) {
        const int64_t left = from->token_bytes - at;
        const size_t bytes = left < (int64_t)BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
        if (!shoali_pread(from->tokens, piece, bytes, at)) {
            status = SHOAL_FAIL(SHOAL_EIO, "%s.bin: cannot read: %s", from->prefix,
                                errno ? strerror(errno) : "it was truncated while in use");
            goto done;
        }
        SHOAL_TRY(status, append_put(to, piece, bytes), done);
    }
done:
    shoali_free(piece);
    return status;
}

/* What lies in its P.bin without belonging to a sequence would shift the offsets. */
static shoal_status check_whole(const shoal_index_writer *writer, const struct shoali_indexed *from)
{
    if (from->type != writer->type)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s has tokens of type %s, the earlier files %s: only files of one type "
                          "can be merged; make all of them with one tokenizer",
                          from->prefix, shoali_index_type_name(from->type),
                          shoali_index_type_name(writer->type));
    if (from->token_bytes != from->token_count * (int64_t)from->width)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s.bin has %lld bytes, but its sequences take %lld: files with gaps "
                          "cannot be merged",
                          from->prefix, (long long)from->token_bytes,
                          (long long)(from->token_count * (int64_t)from->width));
    return SHOAL_OK;
}

static shoal_status append_lists(shoal_index_writer *writer, const struct shoali_indexed *from)
{
    shoal_status status = SHOAL_OK;
    const int64_t before = writer->sequence_count;
    int64_t numbers[1024];
    const int64_t room = (int64_t)(sizeof numbers / sizeof numbers[0]);
    for (int64_t at = 0; at < from->sequence_count; at += room) {
        const int64_t left = from->sequence_count - at, count = left < room ? left : room;
        int32_t *lengths = (int32_t *)(void *)numbers;
        SHOAL_TRY(status, shoali_indexed_lengths(from, at, count, lengths), done);
        SHOAL_TRY(status,
                  append_put(&writer->file[LENGTHS], lengths, (size_t)count * sizeof *lengths),
                  done);
    }
    for (int64_t at = 1; at < from->boundary_count; at += room) {
        const int64_t left = from->boundary_count - at, count = left < room ? left : room;
        SHOAL_TRY(status, shoali_indexed_boundaries(from, at, count, numbers), done);
        for (int64_t i = 0; i < count; i++)
            numbers[i] += before;
        SHOAL_TRY(status,
                  append_put(&writer->file[DOCUMENTS], numbers, (size_t)count * sizeof *numbers),
                  done);
    }
    writer->sequence_count += from->sequence_count;
    writer->document_count += from->boundary_count - 1;
done:
    return status;
}

static shoal_status append_file(shoal_index_writer *writer, const struct shoali_indexed *from)
{
    shoal_status status;
    SHOAL_TRY(status, check_whole(writer, from), done);
    SHOAL_TRY(status, copy_bytes(&writer->file[TOKENS], from), done);
    SHOAL_TRY(status, append_lists(writer, from), done);
done:
    return status;
}

shoal_status shoal_index_writer_append(shoal_index_writer *writer, const char *prefix)
{
    shoal_status status;
    struct shoali_indexed *from = NULL;
    SHOAL_TRY(status, shoali_indexed_open(prefix, &from), done);
    SHOAL_TRY(status, append_file(writer, from), done);
done:
    shoali_indexed_close(from);
    return status;
}

shoal_status shoal_indexed_merge(const char *const *prefixes, int32_t count, const char *prefix)
{
    shoal_status status = SHOAL_OK;
    shoal_index_writer *writer = NULL;
    struct shoali_indexed *from = NULL;
    if (count < 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "nothing to merge: give the prefixes of data files");
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(prefixes[i], prefix) == 0) {
            status = SHOAL_FAIL(SHOAL_EINVAL, "%s cannot be merged into itself", prefix);
            goto done;
        }
        SHOAL_TRY(status, shoali_indexed_open(prefixes[i], &from), done);
        if (!writer)
            SHOAL_TRY(status, shoali_index_writer_create(prefix, from->type, &writer), done);
        SHOAL_TRY(status, append_file(writer, from), done);
        shoali_indexed_close(from);
        from = NULL;
    }
    SHOAL_TRY(status, shoal_index_writer_finish(writer), done);
done:
    shoali_indexed_close(from);
    shoal_index_writer_destroy(writer);
    return status;
}

/* ---- the index ---- */

static void put_word(char *to, uint64_t word)
{
    for (int i = 0; i < 8; i++)
        to[i] = (char)(word >> (8 * i));
}

static shoal_status write_header(const shoal_index_writer *writer, struct append *to)
{
    char header[SHOALI_INDEX_HEADER_BYTES] = "MMIDIDX";
    put_word(header + 9, 1);
    header[17] = (char)writer->type;
    put_word(header + 18, (uint64_t)writer->sequence_count);
    put_word(header + 26, (uint64_t)writer->document_count + 1);
    return append_put(to, header, sizeof header);
}

static shoal_status copy_list(const struct append *from, struct append *to)
{
    shoal_status status = SHOAL_OK;
    char *piece = shoali_malloc(BUFFER_BYTES, "a piece of an index");
    if (!piece)
        return SHOAL_ENOMEM;
    for (int64_t at = 0; at < from->bytes; at += (int64_t)BUFFER_BYTES) {
        const int64_t left = from->bytes - at;
        const size_t bytes = left < (int64_t)BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
        if (!shoali_pread(from->descriptor, piece, bytes, at)) {
            status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot read", from->path);
            goto done;
        }
        SHOAL_TRY(status, append_put(to, piece, bytes), done);
    }
done:
    shoali_free(piece);
    return status;
}

static shoal_status write_offsets(const shoal_index_writer *writer, struct append *to)
{
    shoal_status status = SHOAL_OK;
    const struct append *from = &writer->file[LENGTHS];
    int32_t lengths[2048];
    const int64_t room = (int64_t)(sizeof lengths / sizeof lengths[0]);
    int64_t offset = 0;
    for (int64_t at = 0; at < writer->sequence_count; at += room) {
        const int64_t left = writer->sequence_count - at, count = left < room ? left : room;
        if (!shoali_pread(from->descriptor, lengths, (size_t)count * sizeof *lengths, 4 * at))
            return SHOAL_FAIL(SHOAL_EIO, "%s: cannot read", from->path);
        for (int64_t i = 0; i < count; i++) {
            SHOAL_TRY(status, append_put(to, &offset, sizeof offset), done);
            offset += lengths[i] * (int64_t)writer->width;
        }
    }
    SHOAL_ASSERT(offset == writer->file[TOKENS].bytes);
done:
    return status;
}

static shoal_status publish(const shoal_index_writer *writer, int which, const char *suffix)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s.%s", writer->prefix, suffix);
    if (path.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a data file");
    else if (shoali_fault("data_rename") ||
             rename(writer->file[which].path, shoali_str_get(&path)) != 0)
        status =
            SHOAL_FAIL(SHOAL_EIO, "%s: cannot be made: %s", shoali_str_get(&path), strerror(errno));
    shoali_str_fini(&path);
    return status;
}

static shoal_status unlink_index(const shoal_index_writer *writer)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s.idx", writer->prefix);
    if (path.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a data file");
    else if (unlink(shoali_str_get(&path)) != 0 && errno != ENOENT)
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot be replaced: %s", shoali_str_get(&path),
                            strerror(errno));
    shoali_str_fini(&path);
    return status;
}

shoal_status shoal_index_writer_finish(shoal_index_writer *writer)
{
    shoal_status status;
    struct append *index = &writer->file[INDEX];
    for (int i = 0; i < INDEX; i++)
        SHOAL_TRY(status, append_flush(&writer->file[i]), done);
    SHOAL_TRY(status, append_open(index, writer->prefix, suffixes[INDEX], true), done);
    SHOAL_TRY(status, write_header(writer, index), done);
    SHOAL_TRY(status, copy_list(&writer->file[LENGTHS], index), done);
    SHOAL_TRY(status, write_offsets(writer, index), done);
    SHOAL_TRY(status, copy_list(&writer->file[DOCUMENTS], index), done);
    SHOAL_TRY(status, append_sync(&writer->file[TOKENS]), done);
    SHOAL_TRY(status, append_sync(index), done);
    /* the index last: without it there is no data, also where other data had these names */
    SHOAL_TRY(status, unlink_index(writer), done);
    SHOAL_TRY(status, publish(writer, TOKENS, "bin"), done);
    SHOAL_TRY(status, publish(writer, INDEX, "idx"), done);
    writer->finished = true;
done:
    return status;
}
