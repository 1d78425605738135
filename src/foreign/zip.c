/* The directory at an archive's end (APPNOTE.TXT of PKWARE, sections 4.3.7 to 4.3.16). What differs
 * between the directory and a member's own header is refused: two readers would see two files. */
#include "foreign/foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22,
    COMMENT_MAX = 65535,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30
};
static const int64_t directory_bytes_max = (int64_t)256 << 20;

static uint64_t number(const unsigned char *from, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | from[i];
    return value;
}

static bool has_sign(const unsigned char *at, char a, char b)
{
    return at[0] == 'P' && at[1] == 'K' && at[2] == (unsigned char)a && at[3] == (unsigned char)b;
}

/* Where the directory lies, and how many members it lists. */
struct extent {
    uint64_t count, bytes, at;
    int64_t end; /* the first byte behind it */
};

/* The end record is the last one whose comment reaches the file's end. */
static shoal_status find_end(const struct shoali_input *input, struct extent *extent)
{
    shoal_status status = SHOAL_OK;
    const int64_t room = END_BYTES + COMMENT_MAX;
    const int64_t bytes = input->bytes < room ? input->bytes : room;
    unsigned char *tail = shoali_malloc((size_t)bytes + 1, "the end of an archive");
    int64_t i = bytes - END_BYTES;
    if (!tail)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_input_read(input, input->bytes - bytes, bytes, tail), done);
    while (i >= 0 && !(has_sign(tail + i, 5, 6) &&
                       (int64_t)number(tail + i + 20, 2) == bytes - END_BYTES - i))
        i--;
    if (i < 0) {
        status = shoali_input_fail(
            input, -1, "the archive has no directory at its end: it is truncated or damaged");
        goto done;
    }
    extent->count = number(tail + i + 10, 2);
    extent->bytes = number(tail + i + 12, 4);
    extent->at = number(tail + i + 16, 4);
    extent->end = input->bytes - bytes + i;
done:
    shoali_free(tail);
    return status;
}

/* In front of it, where a number is too large for it, another record. */
static shoal_status find_end64(const struct shoali_input *input, struct extent *extent)
{
    shoal_status status = SHOAL_OK;
    unsigned char locator[LOCATOR_BYTES], end[END64_BYTES];
    const bool wide =
        extent->count == 0xffff || extent->bytes == 0xffffffffu || extent->at == 0xffffffffu;
    if (extent->end < LOCATOR_BYTES)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_input_read(input, extent->end - LOCATOR_BYTES, LOCATOR_BYTES, locator),
              done);
    if (!has_sign(locator, 6, 7))
        return SHOAL_OK;
    const uint64_t at = number(locator + 8, 8);
    if (at > (uint64_t)input->bytes || input->bytes - (int64_t)at < END64_BYTES)
        return shoali_input_fail(input, extent->end - LOCATOR_BYTES,
                                 "the archive's directory is outside of the file");
    SHOAL_TRY(status, shoali_input_read(input, (int64_t)at, END64_BYTES, end), done);
    if (!has_sign(end, 6, 6))
        return shoali_input_fail(input, (int64_t)at, "there is no directory of an archive here");
    if (wide) {
        extent->count = number(end + 32, 8);
        extent->bytes = number(end + 40, 8);
        extent->at = number(end + 48, 8);
    }
    extent->end = (int64_t)at;
done:
    return status;
}

/* Numbers that do not fit into an entry stand in its extra field 1, in this order. */
static bool read_wide(const unsigned char *extra, size_t bytes, uint64_t *const value[3])
{
    size_t at = 0;
    while (bytes - at >= 4) {
        const size_t id = number(extra + at, 2), length = number(extra + at + 2, 2);
        if (length > bytes - at - 4)
            return false;
        size_t used = 0;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*value[i] != 0xffffffffu)
                continue;
            if (length - used < 8)
                return false;
            *value[i] = number(extra + at + 4 + used, 8);
            used += 8;
        }
        if (id == 1)
            return true;
        at += 4 + length;
    }
    return true;
}

/* Reads one entry of the directory; *used: its bytes. */
static shoal_status read_entry(const struct shoali_input *input, const unsigned char *at,
                               size_t left, int64_t place, struct shoali_arena *arena,
                               struct shoali_zip_entry *entry, size_t *used)
{
    if (left < ENTRY_BYTES || !has_sign(at, 1, 2))
        return shoali_input_fail(input, place, "this is not an entry of an archive's directory");
    const size_t name = number(at + 28, 2), extra = number(at + 30, 2),
                 comment = number(at + 32, 2);
    *used = ENTRY_BYTES + name + extra + comment;
    if (*used > left)
        return shoali_input_fail(input, place, "an entry of the archive's directory is truncated");
    uint64_t packed = number(at + 20, 4), bytes = number(at + 24, 4), header = number(at + 42, 4);
    char *text = shoali_arena_alloc(arena, name + 1);
    if (!text)
        return SHOAL_ENOMEM;
    memcpy(text, at + ENTRY_BYTES, name);
    entry->name = text;
    entry->method = (uint16_t)number(at + 10, 2);
    if (strlen(text) != name || shoali_utf8_check(text, name) < name)
        return shoali_input_fail(input, place, "a member's name is not text");
    if (number(at + 8, 2) & 1)
        return shoali_input_fail(input, place, "the member `%s` is encrypted", text);
    if (!read_wide(at + ENTRY_BYTES + name, extra, (uint64_t *const[3]){&bytes, &packed, &header}))
        return shoali_input_fail(input, place, "the member `%s` has a damaged extra field", text);
    if ((entry->method == 0 && packed != bytes) || packed > (uint64_t)input->bytes ||
        header > (uint64_t)input->bytes || bytes > INT64_MAX / 2)
        return shoali_input_fail(
            input, place,
            "the member `%s` should have %llu bytes from %llu on, which are outside of the file",
            text, (unsigned long long)packed, (unsigned long long)header);
    entry->bytes = (int64_t)bytes;
    entry->header = (int64_t)header;
    return SHOAL_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct shoali_zip_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static shoal_status sort(const struct shoali_input *input, struct shoali_arena *arena,
                         struct shoali_zip *zip)
{
    zip->sorted = shoali_arena_alloc(arena, (size_t)(zip->count + 1) * sizeof *zip->sorted);
    if (!zip->sorted)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < zip->count; i++)
        zip->sorted[i] = &zip->entry[i];
    qsort(zip->sorted, (size_t)zip->count, sizeof *zip->sorted, by_name);
    for (int32_t i = 1; i < zip->count; i++)
        if (strcmp(zip->sorted[i - 1]->name, zip->sorted[i]->name) == 0)
            return shoali_input_fail(input, -1, "the archive has the member `%s` twice",
                                     zip->sorted[i]->name);
    return SHOAL_OK;
}

shoal_status shoali_zip_open(const struct shoali_input *input, struct shoali_arena *arena,
                             struct shoali_zip *zip)
{
    shoal_status status;
    struct extent extent = {0};
    unsigned char *directory = NULL;
    size_t at = 0, used = 0;
    *zip = (struct shoali_zip){.input = input};
    SHOAL_TRY(status, find_end(input, &extent), done);
    SHOAL_TRY(status, find_end64(input, &extent), done);
    if (extent.at > (uint64_t)extent.end || extent.bytes > (uint64_t)extent.end - extent.at ||
        extent.bytes > (uint64_t)directory_bytes_max || extent.count > extent.bytes / ENTRY_BYTES) {
        status = shoali_input_fail(input, extent.end,
                                   "the archive's directory should have %llu members in %llu bytes "
                                   "from %llu on, where they do not fit",
                                   (unsigned long long)extent.count,
                                   (unsigned long long)extent.bytes, (unsigned long long)extent.at);
        goto done;
    }
    zip->entry = shoali_arena_alloc(arena, (size_t)(extent.count + 1) * sizeof *zip->entry);
    directory = shoali_malloc((size_t)extent.bytes + 1, "an archive's directory");
    if (!zip->entry || !directory) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status,
              shoali_input_read(input, (int64_t)extent.at, (int64_t)extent.bytes, directory), done);
    for (; (uint64_t)zip->count < extent.count; zip->count++, at += used)
        SHOAL_TRY(status,
                  read_entry(input, directory + at, (size_t)extent.bytes - at,
                             (int64_t)(extent.at + at), arena, &zip->entry[zip->count], &used),
                  done);
    SHOAL_TRY(status, sort(input, arena, zip), done);
done:
    shoali_free(directory);
    return status;
}

const struct shoali_zip_entry *shoali_zip_find(const struct shoali_zip *zip, const char *name)
{
    const struct shoali_zip_entry key = {.name = name}, *pointer = &key;
    const struct shoali_zip_entry **found =
        zip->count == 0
            ? NULL
            : bsearch(&pointer, zip->sorted, (size_t)zip->count, sizeof *zip->sorted, by_name);
    return found ? *found : NULL;
}

shoal_status shoali_zip_locate(const struct shoali_zip *zip, const struct shoali_zip_entry *entry,
                               int64_t *at)
{
    shoal_status status;
    unsigned char head[LOCAL_BYTES];
    const struct shoali_input *input = zip->input;
    const size_t length = strlen(entry->name);
    char name[UINT16_MAX + 1];
    if (entry->method != 0)
        return shoali_input_fail(input, entry->header,
                                 "the member `%s` is compressed: save it again without compression",
                                 entry->name);
    SHOAL_TRY(status, shoali_input_read(input, entry->header, LOCAL_BYTES, head), done);
    if (!has_sign(head, 3, 4) || number(head + 8, 2) != 0 || number(head + 26, 2) != length)
        return shoali_input_fail(input, entry->header,
                                 "the header of the member `%s` is not what the directory says",
                                 entry->name);
    SHOAL_TRY(status, shoali_input_read(input, entry->header + LOCAL_BYTES, (int64_t)length, name),
              done);
    *at = entry->header + LOCAL_BYTES + (int64_t)length + (int64_t)number(head + 28, 2);
    if (memcmp(name, entry->name, length) != 0 || *at > input->bytes ||
        entry->bytes > input->bytes - *at)
        status = shoali_input_fail(input, entry->header,
                                   "the member `%s` of %lld bytes is not where the directory says",
                                   entry->name, (long long)entry->bytes);
done:
    return status;
}
