/* Opens a token file, and reads it. */
#include "text_data/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES 8192

struct file_source {
    struct shoali_token_source base;
    struct shoali_token_header header;
    int descriptor;
    char path[]; /* what base.path points to */
};

/* ---- the source ---- */

static shoal_status damaged(const struct shoali_token_source *source, const char *what)
{
    return SHOAL_FAIL(SHOAL_EIO,
                      "token cache %s: %s; delete the file, then the next start makes it again",
                      source->path, what);
}

static shoal_status read_tokens(const struct shoali_token_source *source, int64_t first,
                                int64_t count, int32_t *tokens)
{
    const struct file_source *file = (const struct file_source *)source;
    char buffer[READ_BYTES];
    while (count > 0) {
        const int64_t room = READ_BYTES / (int64_t)source->width;
        const int64_t piece = count < room ? count : room;
        const int64_t at = file->header.tokens_at + first * (int64_t)source->width;
        if (!shoali_pread(file->descriptor, buffer, (size_t)piece * source->width, at))
            return damaged(source, errno ? strerror(errno) : "it was truncated while in use");
        if (!shoali_token_unpack(source->width, buffer, piece, source->vocab_size, tokens))
            return damaged(source, "there are tokens outside the vocabulary in it");
        first += piece;
        tokens += piece;
        count -= piece;
    }
    return SHOAL_OK;
}

/* A row that is damaged counts as none: then more tokens are read. */
static shoal_status count_until(const struct shoali_token_source *source, int64_t end,
                                int64_t *counts, int64_t *until)
{
    const struct file_source *file = (const struct file_source *)source;
    const size_t bytes = (size_t)source->vocab_size * sizeof(*counts);
    const int64_t row = end / file->header.block_tokens - 1;
    uint64_t hash;
    const int64_t at = file->header.rows_at + row * (int64_t)(bytes + sizeof(hash));
    *until = 0;
    if (row < 0 || row >= file->header.row_count ||
        !shoali_pread(file->descriptor, counts, bytes, at) ||
        !shoali_pread(file->descriptor, &hash, sizeof(hash), at + (int64_t)bytes) ||
        hash != shoali_hash64(counts, bytes)) {
        memset(counts, 0, bytes);
        return SHOAL_OK;
    }
    *until = (row + 1) * file->header.block_tokens;
    return SHOAL_OK;
}

static void close_file(struct shoali_token_source *source)
{
    close(((struct file_source *)source)->descriptor);
    shoali_free(source);
}

static const struct shoali_token_source_ops file_ops = {
    .name = "file", .read = read_tokens, .count_until = count_until, .close = close_file};

/* ---- opening ---- */

/* What is wrong with the header of this request's file; NULL nothing. */
static const char *check_header(const struct shoali_token_header *header, int64_t file_bytes,
                                const struct shoali_token_request *request)
{
    struct shoali_token_header plain = *header;
    plain.hash = 0;
    if (memcmp(header->magic, "SHOALTOK", 8) != 0 || header->byte_order != SHOALI_TOKEN_BYTE_ORDER)
        return "it is not a token file for this kind of machine";
    if (header->version != SHOALI_TOKEN_VERSION)
        return "it is of another version";
    if (header->hash != shoali_hash64(&plain, sizeof(plain)) || header->file_bytes != file_bytes)
        return "it is damaged";
    /* what the checksum covers was written by this code and agrees with itself */
    if (header->made_of != request->made_of)
        return "it is of other data";
    if (header->files != shoali_files_state(request->files))
        return "the text has changed";
    return NULL;
}

static shoal_status read_tokenizer(int descriptor, const struct shoali_token_header *header,
                                   shoal_tokenizer **tokenizer)
{
    shoal_status status = SHOAL_END;
    const size_t bytes = (size_t)header->json_bytes;
    char *json = shoali_malloc(bytes + 1, "a tokenizer");
    if (!json)
        return SHOAL_ENOMEM;
    if (shoali_pread(descriptor, json, bytes, header->json_at) &&
        shoali_hash64(json, bytes) == header->json)
        status = shoal_tokenizer_from_json(json, bytes, tokenizer);
    shoali_free(json);
    return status;
}

size_t shoali_token_file_host_bytes(void)
{
    return sizeof(struct file_source);
}

static shoal_status make_source(int *descriptor, const char *path,
                                const struct shoali_token_header *header,
                                struct shoali_token_source **source)
{
    const size_t bytes = sizeof(struct file_source) + strlen(path) + 1;
    struct file_source *file = shoali_calloc(1, bytes, "a token file");
    if (!file)
        return SHOAL_ENOMEM;
    strcpy(file->path, path);
    file->header = *header;
    file->descriptor = *descriptor;
    *descriptor = -1;
    file->base = (struct shoali_token_source){.ops = &file_ops,
                                              .count = header->token_count,
                                              .vocab_size = header->vocab_size,
                                              .width = (size_t)header->width,
                                              .hash = header->tokens,
                                              .path = file->path,
                                              .host_bytes = shoali_token_file_host_bytes()};
    *source = &file->base;
    return SHOAL_OK;
}

/* SHOAL_END: they are damaged. */
static shoal_status read_verdicts(int descriptor, const struct shoali_token_header *header,
                                  const struct shoali_files *files, unsigned char **verdicts)
{
    const size_t count = (size_t)files->count;
    unsigned char *made = shoali_calloc(count + 1, 1, "a list of files");
    if (!made)
        return SHOAL_ENOMEM;
    *verdicts = made;
    if (header->verdict_count != files->count ||
        !shoali_pread(descriptor, made, count, header->verdicts_at) ||
        shoali_hash64(made, count) != header->verdicts)
        return SHOAL_END;
    for (size_t i = 0; i < count; i++)
        if (made[i] >= SHOALI_FILE_VERDICTS)
            return SHOAL_END;
    return SHOAL_OK;
}

shoal_status shoali_token_file_open(const struct shoali_token_request *request,
                                    struct shoali_token_opened *opened)
{
    shoal_status status = SHOAL_END;
    struct shoali_token_header header;
    int64_t bytes;
    const char *wrong = "another user may have written it";
    int descriptor = open(request->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    *opened = (struct shoali_token_opened){0};
    if (descriptor < 0)
        return SHOAL_END;
    if (shoali_place_trusts(descriptor, &bytes))
        wrong = shoali_pread(descriptor, &header, sizeof(header), 0)
                    ? check_header(&header, bytes, request)
                    : "it is too short";
    if (wrong) {
        SHOALI_DEBUG("data", "%s: not used: %s", request->path, wrong);
        goto done;
    }
    SHOAL_TRY(status, read_tokenizer(descriptor, &header, &opened->tokenizer), done);
    if (status == SHOAL_END)
        goto done;
    SHOAL_TRY(status, read_verdicts(descriptor, &header, request->files, &opened->verdict), done);
    if (status == SHOAL_END)
        goto done;
    SHOAL_TRY(status, make_source(&descriptor, request->path, &header, &opened->source), done);
    opened->file_count = header.file_count;
done:
    if (descriptor >= 0)
        close(descriptor);
    if (status != SHOAL_OK)
        shoali_token_opened_fini(opened);
    return status;
}

void shoali_token_opened_fini(struct shoali_token_opened *opened)
{
    shoali_token_source_close(opened->source);
    shoal_tokenizer_destroy(opened->tokenizer);
    shoali_free(opened->verdict);
    free(opened->report);
    *opened = (struct shoali_token_opened){0};
}
