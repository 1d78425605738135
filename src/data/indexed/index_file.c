/* P.idx and P.bin: opened, checked, read. */
#include "base/beginning.h"
#include "data/indexed/indexed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "MMIDIDX\0" /* with its own end: nine bytes */
#define MAGIC_BYTES 9
#define VERSION 1u
#define PIECE 16384 /* numbers that are looked at at once */
#define READ_BYTES 8192

static const struct {
    const char *name;
    size_t bytes;
} types[] = {{NULL, 0},    {"uint8", 1},   {"int8", 1},    {"int16", 2}, {"int32", 4},
             {"int64", 8}, {"float64", 8}, {"float32", 4}, {"uint16", 2}};
enum { TYPE_U8 = 1, TYPE_I8, TYPE_I16, TYPE_I32, TYPE_I64, TYPE_F64, TYPE_F32, TYPE_U16 };

const char *shoali_index_type_name(int32_t type)
{
    return type >= TYPE_U8 && type <= TYPE_U16 ? types[type].name : NULL;
}

size_t shoali_index_type_bytes(int32_t type)
{
    return shoali_index_type_name(type) ? types[type].bytes : 0;
}

/* ---- where things are ---- */

static int64_t offsets_at(const struct shoali_indexed *file)
{
    return SHOALI_INDEX_HEADER_BYTES + 4 * file->sequence_count;
}

static int64_t boundaries_at(const struct shoali_indexed *file)
{
    return SHOALI_INDEX_HEADER_BYTES + 12 * file->sequence_count;
}

static shoal_status damaged(const struct shoali_indexed *file, int64_t at, const char *what)
{
    return SHOAL_FAIL(SHOAL_EINVAL, "%s.idx: damaged at byte %lld: %s", file->prefix, (long long)at,
                      what);
}

static shoal_status cannot_read(const struct shoali_indexed *file, const char *suffix)
{
    return SHOAL_FAIL(SHOAL_EIO, "%s.%s: cannot read: %s", file->prefix, suffix,
                      errno ? strerror(errno) : "it was truncated while in use");
}

/* ---- opening ---- */

static shoal_status open_one(struct shoali_indexed *file, const char *suffix, int *descriptor,
                             int64_t *bytes)
{
    shoal_status status = SHOAL_OK;
    struct stat info;
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s.%s", file->prefix, suffix);
    if (path.failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of a data file");
    *descriptor = shoali_fault("data_open")
                      ? (errno = EACCES, -1)
                      : open(shoali_str_get(&path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*descriptor < 0 || fstat(*descriptor, &info) != 0)
        status = SHOAL_FAIL(shoali_path_status(errno), "%s: cannot open for reading: %s",
                            shoali_str_get(&path), strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s is no plain file", shoali_str_get(&path));
    else
        status = shoali_beginning_check_lfs(shoali_str_get(&path), *descriptor);
    if (status == SHOAL_OK) {
        const uint64_t words[] = {(uint64_t)info.st_size, (uint64_t)info.st_ino,
                                  (uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec};
        *bytes = info.st_size;
        file->state = shoali_hash64_seeded(words, sizeof words, file->state);
    }
    shoali_str_fini(&path);
    return status;
}

static uint64_t word_at(const unsigned char *bytes)
{
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--)
        word = word << 8 | bytes[i];
    return word;
}

static shoal_status check_type(struct shoali_indexed *file, int32_t type)
{
    if (!shoali_index_type_name(type))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s.idx: damaged at byte 17: there is no token type %d; the types are 1 "
                          "to 8",
                          file->prefix, (int)type);
    if (type == TYPE_F32 || type == TYPE_F64)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s.idx holds %s numbers, which cannot be tokens",
                          file->prefix, shoali_index_type_name(type));
    file->type = type;
    file->width = shoali_index_type_bytes(type);
    return SHOAL_OK;
}

/* Counts against the size of the file: a count that fits cannot overflow anything below. */
static shoal_status check_counts(struct shoali_indexed *file, uint64_t sequences,
                                 uint64_t boundaries)
{
    const uint64_t room = (uint64_t)(file->index_bytes - SHOALI_INDEX_HEADER_BYTES);
    if (sequences > room / 12 || boundaries > room / 8)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s.idx: damaged at byte 18: %llu sequences and %llu document boundaries "
                          "do not fit into its %lld bytes",
                          file->prefix, (unsigned long long)sequences,
                          (unsigned long long)boundaries, (long long)file->index_bytes);
    const uint64_t needed = 12 * sequences + 8 * boundaries;
    if (room == needed + sequences && sequences > 0)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "%s.idx has a list of modes, as multimodal data have: only text is "
                          "supported",
                          file->prefix);
    if (room != needed)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s.idx has %lld bytes, but %llu sequences and %llu document boundaries "
                          "take %llu: it was truncated, or data was appended",
                          file->prefix, (long long)file->index_bytes, (unsigned long long)sequences,
                          (unsigned long long)boundaries,
                          (unsigned long long)(needed + SHOALI_INDEX_HEADER_BYTES));
    if (boundaries == 0)
        return damaged(file, 26,
                       "there are no document boundaries; at least the one at 0 is required");
    if (sequences > INT32_MAX)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "%s.idx has %llu sequences; at most 2^31 - 1 of one "
                          "file can be numbered",
                          file->prefix, (unsigned long long)sequences);
    file->sequence_count = (int64_t)sequences;
    file->boundary_count = (int64_t)boundaries;
    return SHOAL_OK;
}

static shoal_status check_header(struct shoali_indexed *file)
{
    shoal_status status;
    unsigned char header[SHOALI_INDEX_HEADER_BYTES];
    if (file->index_bytes < SHOALI_INDEX_HEADER_BYTES)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s.idx has %lld bytes, which is less than its header",
                          file->prefix, (long long)file->index_bytes);
    if (!shoali_pread(file->index, header, sizeof header, 0))
        return cannot_read(file, "idx");
    if (memcmp(header, MAGIC, MAGIC_BYTES) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s.idx is not an index of Megatron: it does not begin with MMIDIDX",
                          file->prefix);
    if (word_at(header + 9) != VERSION)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s.idx is of version %llu; version 1 is known",
                          file->prefix, (unsigned long long)word_at(header + 9));
    SHOAL_TRY(status, check_type(file, header[17]), done);
    SHOAL_TRY(status, check_counts(file, word_at(header + 18), word_at(header + 26)), done);
done:
    return status;
}

/* Looks at the lengths and offsets [first, first + count). `end`: where the one before ends. */
static shoal_status check_piece(struct shoali_indexed *file, int64_t first, int64_t count,
                                const int32_t *lengths, const int64_t *offsets, int64_t *end)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t bytes = lengths[i] * (int64_t)file->width;
        if (lengths[i] < 0)
            return damaged(file, SHOALI_INDEX_HEADER_BYTES + 4 * (first + i),
                           "a sequence has a negative length");
        if (offsets[i] < 0 || offsets[i] < *end || offsets[i] % (int64_t)file->width != 0)
            return damaged(file, offsets_at(file) + 8 * (first + i),
                           "a sequence begins inside the one before, or inside a token");
        if (offsets[i] > file->token_bytes - bytes)
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "%s.idx: sequence %lld is bytes %lld to %lld of %s.bin, which has %lld: one of the "
                "two files was truncated, or they do not belong together",
                file->prefix, (long long)(first + i), (long long)offsets[i],
                (long long)(offsets[i] + bytes), file->prefix, (long long)file->token_bytes);
        *end = offsets[i] + bytes;
        file->token_count += lengths[i];
        file->shortest = lengths[i] < file->shortest ? lengths[i] : file->shortest;
        file->longest = lengths[i] > file->longest ? lengths[i] : file->longest;
    }
    return SHOAL_OK;
}

static shoal_status check_sequences(struct shoali_indexed *file, int32_t *lengths, int64_t *offsets)
{
    shoal_status status = SHOAL_OK;
    int64_t end = 0;
    file->shortest = INT32_MAX;
    for (int64_t at = 0; at < file->sequence_count; at += PIECE) {
        const int64_t left = file->sequence_count - at, count = left < PIECE ? left : PIECE;
        if (!shoali_pread(file->index, lengths, (size_t)count * sizeof *lengths,
                          SHOALI_INDEX_HEADER_BYTES + 4 * at) ||
            !shoali_pread(file->index, offsets, (size_t)count * sizeof *offsets,
                          offsets_at(file) + 8 * at))
            return cannot_read(file, "idx");
        SHOAL_TRY(status, check_piece(file, at, count, lengths, offsets, &end), done);
        file->hash = shoali_hash64_seeded(lengths, (size_t)count * sizeof *lengths, file->hash);
        file->hash = shoali_hash64_seeded(offsets, (size_t)count * sizeof *offsets, file->hash);
    }
    if (file->sequence_count == 0)
        file->shortest = 0;
done:
    return status;
}

static shoal_status check_boundaries(struct shoali_indexed *file, int64_t *boundaries)
{
    int64_t before = 0;
    for (int64_t at = 0; at < file->boundary_count; at += PIECE) {
        const int64_t left = file->boundary_count - at, count = left < PIECE ? left : PIECE;
        if (!shoali_pread(file->index, boundaries, (size_t)count * sizeof *boundaries,
                          boundaries_at(file) + 8 * at))
            return cannot_read(file, "idx");
        for (int64_t i = 0; i < count; i++) {
            if (boundaries[i] < before || boundaries[i] > file->sequence_count ||
                (at + i == 0 && boundaries[i] != 0))
                return damaged(file, boundaries_at(file) + 8 * (at + i),
                               "document boundaries must begin at 0 and never decrease");
            before = boundaries[i];
        }
        file->hash =
            shoali_hash64_seeded(boundaries, (size_t)count * sizeof *boundaries, file->hash);
    }
    if (before != file->sequence_count)
        return damaged(file, file->index_bytes - 8,
                       "the last document does not end where the sequences do");
    return SHOAL_OK;
}

static shoal_status check_all(struct shoali_indexed *file)
{
    shoal_status status;
    int32_t *lengths = NULL;
    int64_t *offsets = NULL;
    SHOAL_TRY(status, check_header(file), done);
    lengths = shoali_malloc(PIECE * sizeof *lengths, "a piece of an index");
    offsets = shoali_malloc(PIECE * sizeof *offsets, "a piece of an index");
    if (!lengths || !offsets) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    file->hash = shoali_hash64_seeded(&file->type, sizeof file->type, (uint64_t)file->token_bytes);
    SHOAL_TRY(status, check_sequences(file, lengths, offsets), done);
    SHOAL_TRY(status, check_boundaries(file, offsets), done);
done:
    shoali_free(lengths);
    shoali_free(offsets);
    return status;
}

/* ENOENT of a prefix that was given with a suffix is a mistake that has an answer. */
static shoal_status explain_missing(const char *prefix, shoal_status status)
{
    const size_t length = strlen(prefix);
    if (status == SHOAL_ENOENT && length > 4 &&
        (strcmp(prefix + length - 4, ".bin") == 0 || strcmp(prefix + length - 4, ".idx") == 0))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: give the prefix %.*s, which names the .bin and the .idx file",
                          prefix, (int)(length - 4), prefix);
    return status;
}

shoal_status shoali_indexed_open(const char *prefix, struct shoali_indexed **file)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_indexed *made = shoali_calloc(1, sizeof *made, "an indexed data file");
    *file = NULL;
    if (!made)
        return SHOAL_ENOMEM;
    made->index = made->tokens = -1;
    made->prefix = shoali_malloc(strlen(prefix) + 1, "the name of a data file");
    if (!made->prefix)
        goto done;
    strcpy(made->prefix, prefix);
    status = open_one(made, "idx", &made->index, &made->index_bytes);
    if (status < 0) {
        status = explain_missing(prefix, status);
        goto done;
    }
    SHOAL_TRY(status, open_one(made, "bin", &made->tokens, &made->token_bytes), done);
    SHOAL_TRY(status, check_all(made), done);
    *file = made;
    made = NULL;
done:
    shoali_indexed_close(made);
    return status;
}

void shoali_indexed_close(struct shoali_indexed *file)
{
    if (!file)
        return;
    if (file->index >= 0)
        close(file->index);
    if (file->tokens >= 0)
        close(file->tokens);
    shoali_free(file->prefix);
    shoali_free(file);
}

shoal_status shoal_indexed_inspect(const char *prefix, shoal_indexed_info *info)
{
    shoal_status status;
    struct shoali_indexed *file = NULL;
    shoal_indexed_info found = {0};
    SHOAL_TRY(status, shoali_indexed_open(prefix, &file), done);
    found = (shoal_indexed_info){.dtype = shoali_index_type_name(file->type),
                                 .token_width = (int32_t)file->width,
                                 .sequence_count = file->sequence_count,
                                 .document_count = file->boundary_count - 1,
                                 .token_count = file->token_count,
                                 .shortest = file->shortest,
                                 .longest = file->longest,
                                 .index_bytes = file->index_bytes,
                                 .token_bytes = file->token_bytes};
done:
    if (info)
        *info = found;
    shoali_indexed_close(file);
    return status;
}

/* ---- reading ---- */

shoal_status shoali_indexed_lengths(const struct shoali_indexed *file, int64_t first, int64_t count,
                                    int32_t *lengths)
{
    SHOAL_ASSERT(first >= 0 && count >= 0 && first <= file->sequence_count - count);
    if (!shoali_pread(file->index, lengths, (size_t)count * sizeof *lengths,
                      SHOALI_INDEX_HEADER_BYTES + 4 * first))
        return cannot_read(file, "idx");
    return SHOAL_OK;
}

shoal_status shoali_indexed_boundaries(const struct shoali_indexed *file, int64_t first,
                                       int64_t count, int64_t *boundaries)
{
    SHOAL_ASSERT(first >= 0 && count >= 0 && first <= file->boundary_count - count);
    if (!shoali_pread(file->index, boundaries, (size_t)count * sizeof *boundaries,
                      boundaries_at(file) + 8 * first))
        return cannot_read(file, "idx");
    return SHOAL_OK;
}

shoal_status shoali_indexed_count(const struct shoali_indexed *file, int64_t first, int64_t end,
                                  int64_t *tokens)
{
    shoal_status status = SHOAL_OK;
    int32_t lengths[READ_BYTES / sizeof(int32_t)];
    const int64_t room = (int64_t)(sizeof lengths / sizeof lengths[0]);
    *tokens = 0;
    for (int64_t at = first; at < end; at += room) {
        const int64_t count = end - at < room ? end - at : room;
        SHOAL_TRY(status, shoali_indexed_lengths(file, at, count, lengths), done);
        for (int64_t i = 0; i < count; i++)
            *tokens += lengths[i];
    }
done:
    return status;
}

/* A token as a number, -1 for one that is none. */
static int64_t token_at(const struct shoali_indexed *file, const unsigned char *bytes)
{
    uint16_t two;
    int32_t four;
    int64_t eight;
    switch (file->type) {
    case TYPE_U8:
        return bytes[0];
    case TYPE_I8:
        return (int8_t)bytes[0];
    case TYPE_U16:
        memcpy(&two, bytes, sizeof two);
        return two;
    case TYPE_I16:
        memcpy(&two, bytes, sizeof two);
        return (int16_t)two;
    case TYPE_I32:
        memcpy(&four, bytes, sizeof four);
        return four;
    default:
        memcpy(&eight, bytes, sizeof eight);
        return eight;
    }
}

/* Index of the first token outside the vocabulary; count: there is none. */
static int64_t unpack(const struct shoali_indexed *file, const unsigned char *bytes, int64_t count,
                      int32_t vocab_size, int32_t *tokens)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t token = token_at(file, bytes + (size_t)i * file->width);
        if (token < 0 || token >= vocab_size)
            return i;
        tokens[i] = (int32_t)token;
    }
    return count;
}

static shoal_status read_tokens(const struct shoali_indexed *file, int64_t sequence, int64_t at,
                                int64_t count, int32_t vocab_size, int32_t *tokens)
{
    unsigned char bytes[READ_BYTES];
    const int64_t room = READ_BYTES / (int64_t)file->width;
    while (count > 0) {
        const int64_t piece = count < room ? count : room;
        if (shoali_fault("data_read") ||
            !shoali_pread(file->tokens, bytes, (size_t)piece * file->width, at))
            return cannot_read(file, "bin");
        const int64_t good = unpack(file, bytes, piece, vocab_size, tokens);
        if (good < piece)
            return SHOAL_FAIL(
                SHOAL_EINVAL,
                "%s.bin: token %lld at byte %lld, in sequence %lld, is outside the vocabulary of "
                "%d: the data were made with another tokenizer, or --vocab-size is too small",
                file->prefix, (long long)token_at(file, bytes + (size_t)good * file->width),
                (long long)(at + good * (int64_t)file->width), (long long)sequence, vocab_size);
        tokens += piece;
        at += piece * (int64_t)file->width;
        count -= piece;
    }
    return SHOAL_OK;
}

shoal_status shoali_indexed_read(const struct shoali_indexed *file, int64_t sequence,
                                 int64_t offset, int64_t count, int32_t vocab_size, int64_t room,
                                 int32_t *tokens, int64_t *got)
{
    int32_t length;
    int64_t begin;
    if (sequence < 0 || sequence >= file->sequence_count)
        return SHOAL_FAIL(SHOAL_EIO, "%s has no sequence %lld, only %lld", file->prefix,
                          (long long)sequence, (long long)file->sequence_count);
    if (!shoali_pread(file->index, &length, sizeof length,
                      SHOALI_INDEX_HEADER_BYTES + 4 * sequence) ||
        !shoali_pread(file->index, &begin, sizeof begin, offsets_at(file) + 8 * sequence))
        return cannot_read(file, "idx");
    if (offset < 0 || offset > length || count > length - offset || length < 0 || begin < 0 ||
        begin > file->token_bytes - length * (int64_t)file->width)
        return SHOAL_FAIL(SHOAL_EIO,
                          "%s.idx: sequence %lld changed after the file was opened: start again "
                          "when no process writes to it",
                          file->prefix, (long long)sequence);
    *got = count < 0 ? length - offset : count;
    if (*got > room)
        *got = room;
    return read_tokens(file, sequence, begin + offset * (int64_t)file->width, *got, vocab_size,
                       tokens);
}
