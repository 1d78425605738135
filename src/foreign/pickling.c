/* Pickles of protocol 2, value by value. */
#include "foreign/torch_write.h"

#include <stdio.h>
#include <string.h>

static void put(struct shoali_pickling *pickling, const char *bytes, size_t count)
{
    shoali_str_append_bytes(&pickling->text, bytes, count);
}

static void put_number(struct shoali_pickling *pickling, uint64_t number, int bytes)
{
    char raw[8];
    for (int i = 0; i < bytes; i++)
        raw[i] = (char)(number >> (8 * i) & 0xffu);
    put(pickling, raw, (size_t)bytes);
}

static void put_global(struct shoali_pickling *pickling, const char *module, const char *name)
{
    put(pickling, "c", 1);
    put(pickling, module, strlen(module));
    put(pickling, "\n", 1);
    put(pickling, name, strlen(name));
    put(pickling, "\n", 1);
}

void shoali_pickling_begin(struct shoali_pickling *pickling)
{
    put(pickling, "\x80\x02", 2);
}

void shoali_pickling_end(struct shoali_pickling *pickling)
{
    put(pickling, ".", 1);
}

void shoali_pickling_fini(struct shoali_pickling *pickling)
{
    shoali_str_fini(&pickling->text);
}

void shoali_pickling_none(struct shoali_pickling *pickling)
{
    put(pickling, "N", 1);
}

void shoali_pickling_bool(struct shoali_pickling *pickling, bool truth)
{
    put(pickling, truth ? "\x88" : "\x89", 1);
}

void shoali_pickling_int(struct shoali_pickling *pickling, int64_t number)
{
    if (number >= INT32_MIN && number <= INT32_MAX) {
        put(pickling, "J", 1);
        put_number(pickling, (uint64_t)number, 4);
    } else {
        put(pickling, "\x8a\x08", 2);
        put_number(pickling, (uint64_t)number, 8);
    }
}

void shoali_pickling_real(struct shoali_pickling *pickling, double number)
{
    uint64_t bits;
    char raw[8];
    memcpy(&bits, &number, sizeof bits);
    for (int i = 0; i < 8; i++)
        raw[i] = (char)(bits >> (8 * (7 - i)) & 0xffu);
    put(pickling, "G", 1);
    put(pickling, raw, sizeof raw);
}

void shoali_pickling_text(struct shoali_pickling *pickling, const char *text)
{
    put(pickling, "X", 1);
    put_number(pickling, strlen(text), 4);
    put(pickling, text, strlen(text));
}

void shoali_pickling_dict(struct shoali_pickling *pickling)
{
    put(pickling, "}", 1);
}

void shoali_pickling_list(struct shoali_pickling *pickling)
{
    put(pickling, "]", 1);
}

void shoali_pickling_item(struct shoali_pickling *pickling)
{
    put(pickling, "s", 1);
}

void shoali_pickling_append(struct shoali_pickling *pickling)
{
    put(pickling, "a", 1);
}

static void put_shape(struct shoali_pickling *pickling, const shoal_shape *shape)
{
    put(pickling, "(", 1);
    for (int32_t d = 0; d < shape->ndim; d++)
        shoali_pickling_int(pickling, shape->dim[d]);
    put(pickling, "t", 1);
}

void shoali_pickling_size(struct shoali_pickling *pickling, const shoal_shape *shape)
{
    put_global(pickling, "torch", "Size");
    put(pickling, "(", 1);
    put_shape(pickling, shape);
    put(pickling, "tR", 2);
}

void shoali_pickling_tensor(struct shoali_pickling *pickling, shoal_dtype dtype,
                            const shoal_shape *shape)
{
    shoal_shape stride = *shape;
    char key[24];
    int64_t step = 1;
    for (int32_t d = shape->ndim; d-- > 0;) {
        stride.dim[d] = step;
        step *= shape->dim[d] > 0 ? shape->dim[d] : 1;
    }
    snprintf(key, sizeof key, "%lld", (long long)pickling->storages++);
    put_global(pickling, "torch._utils", "_rebuild_tensor_v2");
    put(pickling, "((", 2);
    shoali_pickling_text(pickling, "storage");
    put_global(pickling, "torch",
               dtype == SHOAL_BF16  ? "BFloat16Storage"
               : dtype == SHOAL_F16 ? "HalfStorage"
                                    : "FloatStorage");
    shoali_pickling_text(pickling, key);
    shoali_pickling_text(pickling, "cpu");
    shoali_pickling_int(pickling, shoal_shape_count(shape));
    put(pickling, "tQ", 2);
    shoali_pickling_int(pickling, 0);
    put_shape(pickling, shape);
    put_shape(pickling, &stride);
    shoali_pickling_bool(pickling, false);
    put_global(pickling, "collections", "OrderedDict");
    put(pickling, ")RtR", 4);
}

void shoali_pickling_int_item(struct shoali_pickling *pickling, const char *key, int64_t number)
{
    shoali_pickling_text(pickling, key);
    shoali_pickling_int(pickling, number);
    shoali_pickling_item(pickling);
}

void shoali_pickling_text_item(struct shoali_pickling *pickling, const char *key, const char *text)
{
    shoali_pickling_text(pickling, key);
    shoali_pickling_text(pickling, text);
    shoali_pickling_item(pickling);
}
