/* Text to a token file, as a stream. */
#include "text_data/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKS 1024
#define ROW_SHARE 64 /* a histogram row takes at most this part of the tokens that it counts */
#define OUT_BYTES ((size_t)1 << 20)
/* Tokens per byte at most: a normalizer may make eighteen letters of a character of three bytes. */
#define TOKENS_PER_BYTE 8

struct build {
    const struct shoali_token_request *request;
    const char *temporary;
    struct shoali_scan scan;
    struct shoali_text text;
    shoal_tokenizer *tokenizer;
    struct shoali_token_header header;
    int descriptor;
    struct shoali_hash64_stream *hash;
    int64_t *counts; /* of all tokens so far, and their hash behind them: a row */
    int64_t row;     /* rows written */
    char *out;       /* packed tokens, OUT_BYTES */
    int32_t *ids;    /* of a block */
    int64_t id_capacity, row_limit;
    size_t filled;
    int64_t written; /* tokens that have left `out` */
};

/* ---- writing ---- */

static shoal_status cannot_write(const struct build *build)
{
    char size[32];
    if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot write: %s", build->temporary, strerror(errno));
    shoali_format_bytes((double)build->scan.bytes * (double)build->header.width, size);
    return SHOAL_FAIL(SHOAL_EIO,
                      "%s: no space for the token cache, about %s (%s): make room, or give "
                      "--data-cache-path FOLDER on another drive",
                      build->request->path, size, strerror(errno));
}

static shoal_status write_at(const struct build *build, const void *data, size_t bytes, int64_t at)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t count = shoali_fault("data_write")
                            ? (errno = ENOSPC, -1)
                            : pwrite(build->descriptor, from, bytes, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return cannot_write(build);
        from += count;
        at += count;
        bytes -= (size_t)count;
    }
    return SHOAL_OK;
}

static shoal_status flush(struct build *build)
{
    shoal_status status;
    const int64_t at = build->header.tokens_at + build->written * build->header.width;
    SHOAL_TRY(status, write_at(build, build->out, build->filled, at), done);
    shoali_hash64_add(build->hash, build->out, build->filled);
    build->written += (int64_t)build->filled / build->header.width;
    build->filled = 0;
done:
    return status;
}

static shoal_status write_row(struct build *build)
{
    const size_t bytes = (size_t)build->header.vocab_size * sizeof(*build->counts);
    if (build->row >= build->row_limit)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "%s: the text becomes more than %d tokens per byte; use another tokenizer",
            build->request->path, TOKENS_PER_BYTE);
    build->counts[build->header.vocab_size] = (int64_t)shoali_hash64(build->counts, bytes);
    const int64_t at =
        build->header.rows_at + build->row++ * (int64_t)(bytes + sizeof(*build->counts));
    return write_at(build, build->counts, bytes + sizeof(*build->counts), at);
}

/* Takes what `ids` hold. */
static shoal_status put(struct build *build, const int32_t *ids, int64_t count)
{
    shoal_status status = SHOAL_OK;
    struct shoali_token_header *header = &build->header;
    const int64_t room = (int64_t)OUT_BYTES / header->width;
    for (int64_t i = 0, piece; i < count; i += piece) {
        const int64_t to_row = header->block_tokens - header->token_count % header->block_tokens;
        const int64_t to_flush = room - (int64_t)build->filled / header->width;
        piece = count - i < to_row ? count - i : to_row;
        piece = piece < to_flush ? piece : to_flush;
        shoali_token_pack((size_t)header->width, ids + i, piece, build->out + build->filled);
        for (int64_t k = i; k < i + piece; k++)
            build->counts[ids[k]]++;
        build->filled += (size_t)piece * (size_t)header->width;
        header->token_count += piece;
        if (piece == to_row)
            SHOAL_TRY(status, write_row(build), done);
        if (piece == to_flush)
            SHOAL_TRY(status, flush(build), done);
    }
done:
    return status;
}

/* ---- encoding ---- */

/* A block; its ids get room where they are more than the block's bytes. */
static shoal_status encode_block(struct build *build, const char *block, size_t bytes,
                                 int64_t offset)
{
    shoal_status status;
    int64_t count;
    for (int tries = 0; tries < 2; tries++) {
        status = shoali_tokenizer_encode_at(build->tokenizer, block, bytes, offset, build->ids,
                                            build->id_capacity, &count);
        if (status < 0)
            return shoali_error_prefix(status, "%s", build->text.file->path);
        if (count <= build->id_capacity)
            break;
        int32_t *ids = realloc(build->ids, (size_t)count * sizeof *ids);
        if (!ids)
            return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %lld tokens", (long long)count);
        build->ids = ids;
        build->id_capacity = count;
    }
    SHOAL_TRY(status, put(build, build->ids, count), done);
done:
    return status;
}

/* All whole blocks of the piece; *used says how far they go. */
static shoal_status encode_piece(struct build *build, const char *piece, size_t bytes, bool end,
                                 int64_t offset, size_t *used)
{
    shoal_status status = SHOAL_OK;
    for (*used = 0; *used < bytes;) {
        const size_t block =
            shoali_tokenizer_block(build->tokenizer, piece + *used, bytes - *used, end);
        if (block == 0)
            break;
        SHOAL_TRY(status, encode_block(build, piece + *used, block, offset + (int64_t)*used), done);
        *used += block;
    }
done:
    return status;
}

static shoal_status encode_file(struct build *build, const struct shoali_file *file)
{
    shoal_status status;
    int64_t offset = 0;
    size_t used = 0;
    SHOAL_TRY(status, shoali_text_begin(&build->text, file), done);
    if (status == SHOAL_END)
        return SHOAL_FAIL(SHOAL_EIO, "%s is not readable any longer: start again", file->path);
    do {
        SHOAL_TRY(status, shoali_text_next(&build->text, used), done);
        SHOAL_TRY(status,
                  encode_piece(build, build->text.piece, shoali_text_whole(&build->text),
                               build->text.end, offset, &used),
                  done);
        offset += (int64_t)used;
    } while (!build->text.end);
done:
    return status;
}

static shoal_status join(struct build *build)
{
    int64_t count;
    if (shoal_tokenizer_encode(build->tokenizer, "\n", 1, build->ids, build->id_capacity, &count) <
        0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "files are joined by a newline, which the given tokenizer does not have; "
                          "give one file");
    return put(build, build->ids, count);
}

static shoal_status encode_all(struct build *build)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_files *files = build->request->files;
    for (int32_t i = 0; i < files->count; i++) {
        if (build->scan.verdict[i] != SHOALI_FILE_READ)
            continue;
        if (build->header.token_count > 0)
            SHOAL_TRY(status, join(build), done);
        SHOAL_TRY(status, encode_file(build, &files->file[i]), done);
    }
    SHOAL_TRY(status, flush(build), done);
done:
    return status;
}

/* ---- the file ---- */

static shoal_status make_tokenizer(struct build *build)
{
    if (build->request->use_tokenizer)
        return shoali_tokenizer_copy(build->request->use_tokenizer, &build->tokenizer);
    if (build->scan.seen)
        return shoali_tokenizer_from_set(build->scan.seen, &build->tokenizer);
    return shoal_tokenizer_create(build->request->tokenizer ? build->request->tokenizer : "byte",
                                  "", 0, &build->tokenizer);
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + SHOALI_TOKEN_HEADER_BYTES - 1) / SHOALI_TOKEN_HEADER_BYTES *
           SHOALI_TOKEN_HEADER_BYTES;
}

/* There is a limit to the tokens of a text, so the places of all parts are known before it is
 * encoded. Room for rows that are not written is a hole of the file. */
static void lay_out(struct build *build)
{
    struct shoali_token_header *header = &build->header;
    const int64_t row_bytes = ((int64_t)shoal_tokenizer_vocab_size(build->tokenizer) + 1) * 8;
    *header = (struct shoali_token_header){
        .magic = "SHOALTOK",
        .version = SHOALI_TOKEN_VERSION,
        .byte_order = SHOALI_TOKEN_BYTE_ORDER,
        .made_of = build->request->made_of,
        .files = shoali_files_state(build->request->files),
        .json_at = SHOALI_TOKEN_HEADER_BYTES,
        .json_bytes = (int64_t)strlen(shoal_tokenizer_json(build->tokenizer)),
        .verdict_count = build->request->files->count,
        .verdicts = shoali_hash64(build->scan.verdict, (size_t)build->request->files->count),
        .vocab_size = shoal_tokenizer_vocab_size(build->tokenizer),
        .file_count = build->scan.kept,
        .skipped_count = build->scan.skipped};
    header->width = (int32_t)shoali_token_width(header->vocab_size);
    const int64_t fewest = row_bytes * ROW_SHARE / header->width;
    header->block_tokens =
        build->scan.bytes / BLOCKS > fewest ? build->scan.bytes / BLOCKS : fewest;
    header->verdicts_at = header->json_at + header->json_bytes;
    header->rows_at = round_up(header->verdicts_at + header->verdict_count);
    const int64_t most = build->tokenizer->kind->any_cut
                             ? build->scan.bytes
                             : TOKENS_PER_BYTE * build->scan.bytes + TOKENS_PER_BYTE;
    build->row_limit = most / header->block_tokens;
    header->tokens_at = round_up(header->rows_at + build->row_limit * row_bytes);
    header->json =
        shoali_hash64(shoal_tokenizer_json(build->tokenizer), (size_t)header->json_bytes);
}

static shoal_status allocate(struct build *build)
{
    build->hash = shoali_hash64_begin();
    build->counts =
        shoali_calloc((size_t)build->header.vocab_size + 1, sizeof(*build->counts), "token counts");
    build->out = shoali_malloc(OUT_BYTES, "tokens");
    build->ids = shoali_malloc(SHOALI_BLOCK_BYTES_MAX * sizeof(*build->ids), "tokens");
    build->id_capacity = (int64_t)SHOALI_BLOCK_BYTES_MAX;
    return build->hash && build->counts && build->out && build->ids ? SHOAL_OK : SHOAL_ENOMEM;
}

/* The header last: without it the file is nothing, also where a lost rename made it visible. */
static shoal_status complete(struct build *build)
{
    shoal_status status;
    struct shoali_token_header *header = &build->header;
    char page[SHOALI_TOKEN_HEADER_BYTES] = {0};
    header->tokens = shoali_hash64_get(build->hash);
    header->row_count = build->row;
    header->file_bytes = header->tokens_at + header->token_count * header->width;
    header->hash = shoali_hash64(header, sizeof(*header));
    memcpy(page, header, sizeof(*header));
    SHOAL_TRY(status,
              write_at(build, shoal_tokenizer_json(build->tokenizer), (size_t)header->json_bytes,
                       header->json_at),
              done);
    SHOAL_TRY(
        status,
        write_at(build, build->scan.verdict, (size_t)header->verdict_count, header->verdicts_at),
        done);
    SHOAL_TRY(status, write_at(build, page, sizeof(page), 0), done);
    if (fchmod(build->descriptor, 0400) != 0 || fsync(build->descriptor) != 0)
        status = cannot_write(build);
done:
    return status;
}

shoal_status shoali_token_build(const struct shoali_token_request *request, const char *temporary)
{
    shoal_status status;
    const char *name = request->tokenizer ? request->tokenizer : "byte";
    const bool learns = !request->use_tokenizer && strcmp(name, "char") == 0;
    struct build build = {
        .request = request, .temporary = temporary, .descriptor = -1, .text.descriptor = -1};
    SHOAL_TRY(status, shoali_scan_init(&build.scan, request->files, learns, request->beat), done);
    SHOAL_TRY(status, make_tokenizer(&build), done);
    lay_out(&build);
    SHOAL_TRY(status, allocate(&build), done);
    SHOAL_TRY(status, shoali_text_init(&build.text, request->beat), done);
    (void)unlink(temporary); /* of a process that died */
    build.descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (build.descriptor < 0) {
        status = cannot_write(&build);
        goto done;
    }
    SHOAL_TRY(status, encode_all(&build), done);
    SHOAL_TRY(status, complete(&build), done);
done:
    if (build.descriptor >= 0 && close(build.descriptor) != 0 && status >= 0)
        status = cannot_write(&build);
    if (build.descriptor >= 0 && status < 0)
        (void)unlink(temporary);
    shoali_scan_fini(&build.scan);
    shoali_text_fini(&build.text);
    shoali_hash64_end(build.hash);
    shoali_free(build.counts);
    shoali_free(build.out);
    shoali_free(build.ids);
    shoal_tokenizer_destroy(build.tokenizer);
    return status;
}
