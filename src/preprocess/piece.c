/* A piece of JSON lines to packed tokens. */
#include "preprocess/preprocess.h"

#include <stdlib.h>
#include <string.h>

static shoal_status grow(void **memory, size_t needed, size_t bytes, size_t *room)
{
    if (needed <= *room)
        return SHOAL_OK;
    const size_t larger = needed + needed / 2 + 64;
    void *grown = shoali_fault("alloc") ? NULL : realloc(*memory, larger * bytes);
    if (!grown)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %zu bytes of tokens", larger * bytes);
    *memory = grown;
    *room = larger;
    return SHOAL_OK;
}

static shoal_status add_number(int32_t **list, int64_t *count, int64_t *room, int64_t number)
{
    size_t have = (size_t)*room;
    void *memory = *list;
    const shoal_status status = grow(&memory, (size_t)*count + 1, sizeof **list, &have);
    if (status < 0)
        return status;
    *list = memory;
    *room = (int64_t)have;
    (*list)[(*count)++] = (int32_t)number;
    return SHOAL_OK;
}

static shoal_status add_tokens(const struct shoali_piece_task *task, const int32_t *ids,
                               int64_t count, struct shoali_piece_out *out)
{
    const size_t bytes = (size_t)count * shoali_index_type_bytes(task->type);
    void *memory = out->tokens;
    const shoal_status status = grow(&memory, out->bytes + bytes, 1, &out->capacity);
    if (status < 0)
        return status;
    out->tokens = memory;
    shoali_index_pack(task->type, ids, count, out->tokens + out->bytes);
    out->bytes += bytes;
    return SHOAL_OK;
}

/* Room for so many ids. */
static shoal_status reserve_ids(struct shoali_piece_tools *tools, size_t count)
{
    size_t room = (size_t)tools->room;
    void *memory = tools->ids;
    const shoal_status status = grow(&memory, count, sizeof *tools->ids, &room);
    if (status < 0)
        return status;
    tools->ids = memory;
    tools->room = (int64_t)room;
    return SHOAL_OK;
}

/* A sequence of the text, where it has tokens. */
static shoal_status encode_text(const struct shoali_piece_task *task,
                                struct shoali_piece_tools *tools, const char *text, size_t bytes,
                                struct shoali_piece *piece, struct shoali_piece_out *out)
{
    shoal_status status;
    int64_t count;
    SHOAL_TRY(status, reserve_ids(tools, bytes + 1), done);
    SHOAL_TRY(status,
              shoal_tokenizer_encode(task->tokenizer, text, bytes, tools->ids, tools->room, &count),
              done);
    if (count > tools->room) {
        SHOAL_TRY(status, reserve_ids(tools, (size_t)count), done);
        SHOAL_TRY(
            status,
            shoal_tokenizer_encode(task->tokenizer, text, bytes, tools->ids, tools->room, &count),
            done);
    }
    if (count == 0)
        goto done;
    SHOAL_TRY(status, add_tokens(task, tools->ids, count, out), done);
    SHOAL_TRY(status, add_number(&out->lengths, &out->sequence_count, &out->sequence_room, count),
              done);
    piece->token_count += count;
done:
    return status;
}

static shoal_status encode_sentences(const struct shoali_piece_task *task,
                                     struct shoali_piece_tools *tools, const char *text,
                                     size_t bytes, struct shoali_piece *piece,
                                     struct shoali_piece_out *out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_sentences sentences = {
        .text = text, .bytes = bytes, .keep_space = task->keep_space};
    size_t begin, end;
    while (shoali_sentence_next(&sentences, &begin, &end))
        SHOAL_TRY(status, encode_text(task, tools, text + begin, end - begin, piece, out), done);
done:
    return status;
}

/* A document of the texts of one key: a sequence of each, or of each sentence, that has tokens. The
 * end-of-document token belongs to the last; a document without tokens has none. */
static shoal_status encode(const struct shoali_piece_task *task, struct shoali_piece_tools *tools,
                           const struct shoali_jsonl_value *value, struct shoali_piece *piece,
                           struct shoali_piece_out *out)
{
    shoal_status status = SHOAL_OK;
    const int64_t before = out->sequence_count;
    size_t begin = 0;
    for (int32_t i = 0; i < value->count; begin = value->end[i++]) {
        const char *text = value->text + begin;
        const size_t bytes = value->end[i] - begin;
        SHOAL_TRY(
            status,
            (task->split ? encode_sentences : encode_text)(task, tools, text, bytes, piece, out),
            done);
    }
    const int64_t sequences = out->sequence_count - before;
    if (sequences > 0 && task->eod >= 0) {
        SHOAL_TRY(status, add_tokens(task, &task->eod, 1, out), done);
        out->lengths[out->sequence_count - 1]++;
        piece->token_count++;
    }
    SHOAL_TRY(status,
              add_number(&out->sequences, &out->document_count, &out->document_room, sequences),
              done);
done:
    return status;
}

static shoal_status learn(const struct shoali_jsonl_value *value, uint8_t *seen)
{
    uint32_t code_point;
    /* the reader of records has seen to it that this is UTF-8 */
    for (size_t at = 0; at < value->bytes;) {
        const int length = shoali_utf8_decode(value->text + at, value->bytes - at, &code_point);
        SHOAL_ASSERT(length > 0);
        seen[code_point >> 3] |= (uint8_t)(1u << (code_point & 7));
        at += (size_t)length;
    }
    return SHOAL_OK;
}

static shoal_status make_record(const struct shoali_piece_task *task,
                                struct shoali_piece_tools *tools, struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    for (int32_t k = 0; k < task->key_count; k++) {
        const struct shoali_jsonl_value *value = &tools->jsonl.value[k];
        status = task->tokenizer ? encode(task, tools, value, piece, &piece->out[k])
                                 : learn(value, tools->seen);
        if (status < 0)
            return shoali_error_prefix(status, "key `%s`", task->keys[k]);
    }
    return status;
}

static shoal_status make_lines(const struct shoali_piece_task *task,
                               const struct shoali_line_input *input,
                               struct shoali_piece_tools *tools, struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    const char *at = piece->text.text, *end = at + piece->text.bytes;
    for (int64_t line = piece->text.begin.line + 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        at += line == 1 ? shoali_bom_bytes(at, (size_t)(stop - at)) : 0;
        status = shoali_jsonl_read(&tools->jsonl, at, (size_t)(stop - at));
        if (status == SHOAL_OK)
            status = make_record(task, tools, piece);
        if (status < 0) {
            const char *path = input->path[piece->text.begin.file];
            return shoali_error_prefix(status, "%s:%lld",
                                       strcmp(path, "-") == 0 ? "standard input" : path,
                                       (long long)line);
        }
        at = stop + 1;
    }
    return SHOAL_OK;
}

void shoali_piece_make(const struct shoali_piece_task *task, const struct shoali_line_input *input,
                       struct shoali_piece_tools *tools, struct shoali_piece *piece)
{
    tools->jsonl.keys = task->keys;
    tools->jsonl.key_count = task->key_count;
    piece->token_count = 0;
    piece->status = SHOAL_OK;
    if (!piece->out)
        piece->out = shoali_calloc((size_t)task->key_count, sizeof *piece->out, "a piece");
    if (!piece->out)
        piece->status = SHOAL_ENOMEM;
    for (int32_t k = 0; piece->out && k < task->key_count; k++) {
        piece->out[k].bytes = 0;
        piece->out[k].sequence_count = piece->out[k].document_count = 0;
    }
    if (piece->status == SHOAL_OK)
        piece->status = make_lines(task, input, tools, piece);
    piece->message[0] = '\0';
    if (piece->status < 0) /* error records belong to one thread */
        strncat(piece->message, shoal_error_message(), sizeof piece->message - 1);
}

void shoali_piece_fini(struct shoali_piece *piece, int32_t key_count)
{
    for (int32_t k = 0; piece->out && k < key_count; k++) {
        free(piece->out[k].tokens);
        free(piece->out[k].lengths);
        free(piece->out[k].sequences);
    }
    shoali_free(piece->out);
    free(piece->text.text);
    *piece = (struct shoali_piece){0};
}

void shoali_piece_tools_fini(struct shoali_piece_tools *tools)
{
    shoali_jsonl_fini(&tools->jsonl);
    free(tools->ids);
    shoali_free(tools->seen);
    *tools = (struct shoali_piece_tools){0};
}
