/* The texts of JSON lines as the text of a file. */
#include "base/str.h"
#include "text_data/jsonl.h"
#include "text_data/text_data.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES ((size_t)1 << 30) /* a record that is longer is no record */

struct shoali_text_records {
    struct shoali_jsonl jsonl;
    char *raw;                         /* owned: lines as they are in the file */
    size_t at, have, capacity;         /* of raw: what is read next, what there is */
    bool raw_end;                      /* nothing follows in the file */
    int64_t line;                      /* lines that were read */
    char *decoded;                     /* owned: the texts of the last record */
    size_t next, filled, decoded_room; /* of decoded: what is handed out next, what there is */
    bool first;                        /* no record yet: no newline before it */
};

void shoali_text_end_records(struct shoali_text *text)
{
    struct shoali_text_records *records = text->records;
    if (!records)
        return;
    shoali_jsonl_fini(&records->jsonl);
    free(records->raw);
    free(records->decoded);
    shoali_free(records);
    text->records = NULL;
}

void shoali_text_begin_records(struct shoali_text *text)
{
    shoali_text_end_records(text);
}

static shoal_status make_records(struct shoali_text *text)
{
    struct shoali_text_records *made = shoali_calloc(1, sizeof *made, "a reader of JSON lines");
    if (!made)
        return SHOAL_ENOMEM;
    made->jsonl.keys = text->file->records->key;
    made->jsonl.key_count = text->file->records->count;
    made->first = true;
    text->records = made;
    return SHOAL_OK;
}

static shoal_status reserve(char **memory, size_t *capacity, size_t bytes)
{
    if (*capacity >= bytes)
        return SHOAL_OK;
    char *grown = shoali_fault("alloc") ? NULL : realloc(*memory, bytes + bytes / 2);
    if (!grown)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %zu bytes of JSON lines", bytes);
    *memory = grown;
    *capacity = bytes + bytes / 2;
    return SHOAL_OK;
}

/* Reads on behind what there is of a line. */
static shoal_status read_raw(struct shoali_text *text)
{
    shoal_status status;
    struct shoali_text_records *records = text->records;
    size_t count;
    if (records->have - records->at > LINE_BYTES)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s:%lld: the line is longer than a gigabyte",
                          text->file->path, (long long)records->line + 1);
    memmove(records->raw ? records->raw : "", records->raw ? records->raw + records->at : "",
            records->have - records->at);
    records->have -= records->at;
    records->at = 0;
    SHOAL_TRY(status, reserve(&records->raw, &records->capacity, records->have + SHOALI_TEXT_BYTES),
              done);
    SHOAL_TRY(status,
              shoali_text_read(text, records->raw + records->have,
                               records->capacity - records->have, &count),
              done);
    records->have += count;
    records->raw_end = count == 0;
done:
    return status;
}

/* The next line, without its newline. SHOAL_END: there is none. */
static shoal_status next_line(struct shoali_text *text, const char **line, size_t *bytes)
{
    shoal_status status;
    struct shoali_text_records *records = text->records;
    for (size_t looked = 0;;) {
        const char *begin = records->raw + records->at;
        const size_t there = records->have - records->at;
        const char *newline = there > looked ? memchr(begin + looked, '\n', there - looked) : NULL;
        if (newline || (records->raw_end && there > 0)) {
            *line = begin;
            *bytes = newline ? (size_t)(newline - begin) : there;
            records->at += *bytes + (newline != NULL);
            records->line++;
            return SHOAL_OK;
        }
        if (records->raw_end)
            return SHOAL_END;
        looked = there;
        SHOAL_TRY(status, read_raw(text), done);
    }
done:
    return status;
}

static shoal_status put(struct shoali_text_records *records, const char *from, size_t bytes)
{
    const shoal_status status =
        reserve(&records->decoded, &records->decoded_room, records->filled + bytes + 1);
    if (status < 0)
        return status;
    memcpy(records->decoded + records->filled, from, bytes);
    records->filled += bytes;
    return SHOAL_OK;
}

static shoal_status put_texts(struct shoali_text_records *records)
{
    shoal_status status = SHOAL_OK;
    bool joins = !records->first;
    for (int32_t k = 0; k < records->jsonl.key_count; k++) {
        const struct shoali_jsonl_value *value = &records->jsonl.value[k];
        size_t begin = 0;
        for (int32_t i = 0; i < value->count; begin = value->end[i++]) {
            if (joins)
                SHOAL_TRY(status, put(records, "\n", 1), done);
            joins = true;
            SHOAL_TRY(status, put(records, value->text + begin, value->end[i] - begin), done);
            records->first = false;
        }
    }
done:
    return status;
}

/* SHOAL_END: there are no more records. */
static shoal_status next_record(struct shoali_text *text)
{
    shoal_status status;
    struct shoali_text_records *records = text->records;
    const char *line = NULL;
    size_t bytes = 0;
    records->next = records->filled = 0;
    do {
        SHOAL_TRY(status, next_line(text, &line, &bytes), done);
        if (status == SHOAL_END)
            return SHOAL_END;
        const size_t bom = records->line == 1 ? shoali_bom_bytes(line, bytes) : 0;
        line += bom;
        bytes -= bom;
        status = shoali_jsonl_read(&records->jsonl, line, bytes);
        if (status < 0)
            return shoali_error_prefix(status, "%s:%lld", text->file->path,
                                       (long long)records->line);
    } while (status == SHOAL_END);
    SHOAL_TRY(status, put_texts(records), done);
done:
    return status;
}

shoal_status shoali_text_next_records(struct shoali_text *text)
{
    shoal_status status = SHOAL_OK;
    if (!text->records)
        SHOAL_TRY(status, make_records(text), done);
    struct shoali_text_records *records = text->records;
    while (!text->end && text->have < SHOALI_TEXT_BYTES) {
        const size_t left = records->filled - records->next;
        const size_t room = SHOALI_TEXT_BYTES - text->have, piece = left < room ? left : room;
        if (piece > 0)
            memcpy(text->piece + text->have, records->decoded + records->next, piece);
        text->have += piece;
        records->next += piece;
        if (piece < left)
            break;
        if (text->have < SHOALI_TEXT_BYTES) {
            SHOAL_TRY(status, next_record(text), done);
            text->end = status == SHOAL_END;
        }
    }
    status = SHOAL_OK;
done:
    return status;
}
