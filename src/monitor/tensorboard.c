#include "monitor/tensorboard.h"
#include "base/base.h"
#include "monitor/append.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct shoali_event_file {
    char *path;
    int64_t bytes; /* of whole records */
};

/* ---- records --------------------------------------------------------------------------------- */

/* Bit by bit: a batch is a few hundred bytes. */
static uint32_t crc32c(const char *data, size_t bytes)
{
    enum { POLYNOMIAL = (int)0x82F63B78u }; /* Castagnoli's, reversed */
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= (unsigned char)data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? (uint32_t)POLYNOMIAL : 0);
    }
    return ~crc;
}

/* So that the checksum of a text with a checksum in it is an ordinary one. */
static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_fixed(struct shoali_str *out, uint64_t value, int bytes)
{
    char text[8];
    for (int i = 0; i < bytes; i++)
        text[i] = (char)(value >> 8 * i);
    shoali_str_append_bytes(out, text, (size_t)bytes);
}

static void put_record(struct shoali_str *out, const struct shoali_str *event)
{
    const size_t begin = out->length;
    put_fixed(out, event->length, 8);
    if (out->failed || event->failed) {
        out->failed = true;
        return;
    }
    put_fixed(out, masked(crc32c(out->text + begin, 8)), 4);
    shoali_str_append_bytes(out, shoali_str_get(event), event->length);
    put_fixed(out, masked(crc32c(shoali_str_get(event), event->length)), 4);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* How a field's value is written. */
enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* Numbers of fields. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRINGS = 8, DTYPE_STRING = 7 };
enum { SHAPE_DIMENSION = 2, DIMENSION_SIZE = 1 };

static void put_varint(struct shoali_str *out, uint64_t value)
{
    for (; value > 127; value >>= 7)
        put_fixed(out, (value & 127) | 128, 1);
    put_fixed(out, value, 1);
}

static void put_key(struct shoali_str *out, int field, enum wire wire)
{
    put_varint(out, (uint64_t)field << 3 | wire);
}

/* A number that is 0 is left out. */
static void put_number(struct shoali_str *out, int field, uint64_t value)
{
    if (value == 0)
        return;
    put_key(out, field, VARINT);
    put_varint(out, value);
}

static void put_text(struct shoali_str *out, int field, const char *text)
{
    const size_t bytes = strlen(text);
    put_key(out, field, BYTES);
    put_varint(out, bytes);
    shoali_str_append_bytes(out, text, bytes);
}

/* A message inside another; `inner` is emptied. */
static void put_message(struct shoali_str *out, int field, struct shoali_str *inner)
{
    put_key(out, field, BYTES);
    put_varint(out, inner->length);
    shoali_str_append_bytes(out, shoali_str_get(inner), inner->length);
    out->failed |= inner->failed;
    shoali_str_fini(inner);
}

static void begin_event(struct shoali_str *event, int64_t x)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    put_key(event, EVENT_TIME, FIXED64);
    put_fixed(event, bits, 8);
    put_number(event, EVENT_STEP, (uint64_t)x);
}

static void put_scalar(struct shoali_str *summary, const shoal_event *scalar)
{
    struct shoali_str value = {0};
    const float number = (float)scalar->value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    put_text(&value, VALUE_TAG, scalar->name);
    put_key(&value, VALUE_SIMPLE, FIXED32);
    put_fixed(&value, bits, 4);
    put_message(summary, SUMMARY_VALUE, &value);
}

/* A tensor of one string, and which of TensorBoard's pages shows it. */
static void put_page(struct shoali_str *summary, const char *name, const char *text)
{
    struct shoali_str value = {0}, plugin = {0}, metadata = {0}, dimension = {0}, shape = {0},
                      tensor = {0};
    put_text(&value, VALUE_TAG, name);
    put_text(&plugin, PLUGIN_NAME, "text");
    put_message(&metadata, METADATA_PLUGIN, &plugin);
    put_number(&dimension, DIMENSION_SIZE, 1);
    put_message(&shape, SHAPE_DIMENSION, &dimension);
    put_number(&tensor, TENSOR_DTYPE, DTYPE_STRING);
    put_message(&tensor, TENSOR_SHAPE, &shape);
    put_text(&tensor, TENSOR_STRINGS, text);
    put_message(&value, VALUE_TENSOR, &tensor);
    put_message(&value, VALUE_METADATA, &metadata);
    put_message(summary, SUMMARY_VALUE, &value);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Appends an event; frees its text. */
static shoal_status append_event(struct shoali_event_file *file, struct shoali_str *event,
                                 bool fresh)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str records = {0};
    put_record(&records, event);
    const struct shoali_append batch = {
        .path = file->path, .fresh = fresh, .whole_bytes = file->bytes, .text = &records};
    if (records.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate an event of %s", file->path);
    else if (!shoali_append(&batch))
        status = SHOAL_FAIL(SHOAL_EIO, "cannot write the monitor file %s: %s", file->path,
                            strerror(errno));
    else
        file->bytes += (int64_t)records.length;
    shoali_str_fini(&records);
    shoali_str_fini(event);
    return status;
}

static shoal_status append_summary(struct shoali_event_file *file, int64_t x,
                                   struct shoali_str *summary)
{
    struct shoali_str event = {0};
    begin_event(&event, x);
    put_message(&event, EVENT_SUMMARY, summary);
    return append_event(file, &event, false);
}

/* The first name in the folder that no file has. */
static char *new_path(const char *folder)
{
    struct shoali_str path = {0};
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1);
    for (int n = 0; n == 0 || (!path.failed && access(path.text, F_OK) == 0); n++) {
        shoali_str_fini(&path);
        shoali_str_append(&path, "%s/events.out.tfevents.%010lld.%s.%lld.%d", folder,
                          (long long)time(NULL), host, (long long)getpid(), n);
    }
    if (!path.failed)
        return path.text;
    shoali_str_fini(&path);
    return NULL;
}

shoal_status shoali_event_file_create(const char *folder, struct shoali_event_file **file)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str event = {0};
    struct shoali_event_file *made = shoali_calloc(1, sizeof *made, "an event file");
    *file = NULL;
    if (!made)
        return SHOAL_ENOMEM;
    made->path = new_path(folder);
    if (!made->path) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the name of an event file");
        goto done;
    }
    begin_event(&event, 0);
    put_text(&event, EVENT_VERSION, "brain.Event:2");
    SHOAL_TRY(status, append_event(made, &event, true), done);
    *file = made;
    made = NULL;
done:
    shoali_event_file_destroy(made);
    return status;
}

void shoali_event_file_destroy(struct shoali_event_file *file)
{
    if (!file)
        return;
    free(file->path);
    shoali_free(file);
}

shoal_status shoali_event_file_write(struct shoali_event_file *file, int64_t x,
                                     const shoal_event *events, int32_t count)
{
    struct shoali_str summary = {0};
    for (int32_t i = 0; i < count; i++)
        put_scalar(&summary, &events[i]);
    return append_summary(file, x, &summary);
}

shoal_status shoali_event_file_write_text(struct shoali_event_file *file, int64_t x,
                                          const char *name, const char *text)
{
    struct shoali_str summary = {0};
    put_page(&summary, name, text);
    return append_summary(file, x, &summary);
}
