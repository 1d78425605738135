/* The description as lines. */
#include "inspect/inspect.h"

#include "base/plain.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 11, CELL_BYTES = 1500, INDENT_MAX = 64, LINE_WIDTH = 90 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Characters, for columns. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

/* ---- the table of tensors ---- */

static void shape_text(const json_t *shape, char *out)
{
    size_t used = (size_t)snprintf(out, CELL_BYTES, "["), i;
    const json_t *dim;
    json_array_foreach(shape, i, dim)
    {
        used += (size_t)snprintf(out + used, CELL_BYTES - used, i > 0 ? ", %lld" : "%lld",
                                 (long long)json_integer_value(dim));
    }
    (void)snprintf(out + used, CELL_BYTES - used, "]");
}

static int64_t element_count(const json_t *tensor)
{
    int64_t count = 1;
    size_t i;
    const json_t *dim;
    json_array_foreach(json_object_get(tensor, "shape"), i, dim)
    {
        count *= json_integer_value(dim);
    }
    return count;
}

static const char *const headings[COLUMNS] = {"name", "dtype", "shape", "size", "min", "max",
                                              "mean", "std",   "zeros", "NaN",  "Inf"};

/* One cell; a column beyond the third is right-aligned. */
static void cell_text(const json_t *tensor, int column, char *out)
{
    static const char *const keys[COLUMNS] = {"name", "dtype", "shape", "bytes", "min", "max",
                                              "mean", "std",   "zeros", "nan",   "inf"};
    char size[32];
    const json_t *value =
        column < 4 ? json_object_get(tensor, keys[column])
                   : json_object_get(json_object_get(tensor, "statistics"), keys[column]);
    if (column == 2)
        shape_text(value, out);
    else if (column == 3)
        snprintf(out, CELL_BYTES, "%s",
                 shoali_format_bytes((double)json_integer_value(value), size));
    else if (json_is_string(value))
        snprintf(out, CELL_BYTES, "%s", json_string_value(value));
    else if (json_is_real(value))
        shoali_snprintf(out, CELL_BYTES, "%.6g", json_real_value(value));
    else if (json_is_integer(value))
        snprintf(out, CELL_BYTES, "%lld", (long long)json_integer_value(value));
    else
        snprintf(out, CELL_BYTES, "-");
}

static void print_cell(struct shoali_str *out, const char *text, int column, int columns, int width)
{
    const int pad = width - width_of(text);
    const char *gap = column > 0 ? "  " : "";
    if (column >= 3)
        shoali_str_append(out, "%s%*s%s", gap, pad, "", text);
    else
        shoali_str_append(out, "%s%s%*s", gap, text, column + 1 < columns ? pad : 0, "");
}

static void print_tensors(const json_t *tensors, struct shoali_str *out)
{
    char text[CELL_BYTES];
    int width[COLUMNS];
    size_t i;
    const json_t *tensor;
    bool statistics = false;
    json_array_foreach(tensors, i, tensor)
    {
        statistics = statistics || json_object_get(tensor, "statistics");
    }
    const int columns = statistics ? COLUMNS : 4;
    for (int c = 0; c < columns; c++)
        width[c] = width_of(headings[c]);
    json_array_foreach(tensors, i, tensor)
    {
        for (int c = 0; c < columns; c++) {
            cell_text(tensor, c, text);
            if (width_of(text) > width[c])
                width[c] = width_of(text);
        }
    }
    shoali_str_append(out, "  ");
    for (int c = 0; c < columns; c++)
        print_cell(out, headings[c], c, columns, width[c]);
    shoali_str_append(out, "\n");
    json_array_foreach(tensors, i, tensor)
    {
        shoali_str_append(out, "  ");
        for (int c = 0; c < columns; c++) {
            cell_text(tensor, c, text);
            print_cell(out, text, c, columns, width[c]);
        }
        shoali_str_append(out, "\n");
    }
}

/* ---- values ---- */

/* A value that needs no lines of its own; false: it does. */
static bool plain_text(const json_t *value, struct shoali_str *out)
{
    char number[40];
    if (json_is_object(value)) {
        const json_t *only =
            json_object_size(value) == 1
                ? json_object_iter_value(json_object_iter((json_t *)(uintptr_t)value))
                : NULL;
        if (json_object_size(value) == 0)
            shoali_str_append(out, "{}");
        else if (only && json_object_get(value, "@tensor"))
            shoali_str_append(out, "tensor %s", json_string_value(only));
        else if (only && json_object_get(value, "@global"))
            shoali_str_append(out, "%s", json_string_value(only));
        else if (only && json_object_get(value, "@object"))
            shoali_str_append(out, "%s()", json_string_value(only));
        else if (only && json_object_get(value, "@bytes"))
            shoali_str_append(out, "%lld bytes", (long long)json_integer_value(only));
        else if (only && json_object_get(value, "@tensors"))
            shoali_str_append(out, "%lld tensors", (long long)json_integer_value(only));
        else if (only && json_object_get(value, "@seen"))
            shoali_str_append(out, "(shown above, or nested too deep)");
        else
            return false;
        return true;
    }
    if (json_is_array(value)) {
        struct shoali_str line = {0};
        size_t i;
        const json_t *item;
        bool plain = true;
        shoali_str_append(&line, "[");
        json_array_foreach(value, i, item)
        {
            shoali_str_append(&line, i > 0 ? ", " : "");
            plain = plain && line.length < LINE_WIDTH && plain_text(item, &line);
        }
        if (plain)
            shoali_str_append(out, "%s]", shoali_str_get(&line));
        shoali_str_fini(&line);
        return plain;
    }
    shoali_snprintf(number, sizeof number, "%.9g", json_real_value(value));
    if (json_is_string(value))
        shoali_str_append(out, "\"%s\"", json_string_value(value));
    else if (json_is_integer(value))
        shoali_str_append(out, "%lld", (long long)json_integer_value(value));
    else
        shoali_str_append(out, "%s",
                          json_is_real(value)    ? number
                          : json_is_true(value)  ? "True"
                          : json_is_false(value) ? "False"
                                                 : "None");
    return true;
}

static void print_value(const char *key, const json_t *value, int indent, struct shoali_str *out)
{
    const int next = indent < INDENT_MAX ? indent + 2 : indent;
    const char *type = json_string_value(json_object_get(value, "@object")), *name;
    size_t i;
    json_t *item;
    shoali_str_append(out, "%*s%s%s", indent, "", key, strcmp(key, "-") == 0 ? " " : ": ");
    if (plain_text(value, out)) {
        shoali_str_append(out, "\n");
        return;
    }
    if (type)
        shoali_str_append(out, "%s\n", type);
    else
        shoali_str_append(out, "%s\n", json_is_array(value) ? "list" : "dict");
    json_array_foreach(value, i, item)
    {
        print_value("-", item, next, out);
    }
    if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, name, item)
        {
            if (strcmp(name, "@object") != 0)
                print_value(name[0] == '@' && type ? name + 1 : name, item, next, out);
        }
    }
}

/* ---- files and folders ---- */

static void print_facts(const json_t *facts, int indent, struct shoali_str *out)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)facts, name, value)
    {
        print_value(name, value, indent, out);
    }
}

static void print_head(const json_t *file, struct shoali_str *out)
{
    const json_t *tensors = json_object_get(file, "tensors"), *tensor;
    const size_t count = json_array_size(tensors);
    int64_t elements = 0;
    size_t i;
    char size[32];
    json_array_foreach(tensors, i, tensor)
    {
        elements += element_count(tensor);
    }
    shoali_str_append(out, "%s: %s", text_of(file, "name"), text_of(file, "kind"));
    if (tensors) {
        shoali_str_append(out, ", %zu tensor%s, ", count, count == 1 ? "" : "s");
        shoali_str_append_count(out, elements);
        shoali_str_append(out, " element%s", elements == 1 ? "" : "s");
    }
    shoali_str_append(
        out, ", %s\n",
        shoali_format_bytes((double)json_integer_value(json_object_get(file, "bytes")), size));
}

static void print_file(const json_t *file, struct shoali_str *out)
{
    const json_t *tensors = json_object_get(file, "tensors"),
                 *values = json_object_get(file, "values"),
                 *imports = json_object_get(file, "imports"), *name;
    size_t i;
    print_head(file, out);
    print_facts(json_object_get(file, "facts"), 2, out);
    if (json_array_size(tensors) > 0)
        print_tensors(tensors, out);
    if (values)
        print_value("values", values, 2, out);
    if (imports)
        shoali_str_append(out, "  unpickling would import (nothing was imported):\n");
    json_array_foreach(imports, i, name)
    {
        shoali_str_append(out, "    %s\n", json_string_value(name));
    }
}

shoal_status shoali_inspect_print(const json_t *description, struct shoali_str *out)
{
    const json_t *files = json_object_get(description, "files"), *file;
    size_t i;
    if (!files) {
        print_file(description, out);
    } else {
        shoali_str_append(out, "%s: %s\n", text_of(description, "path"),
                          text_of(description, "kind"));
        print_facts(json_object_get(description, "facts"), 2, out);
    }
    json_array_foreach(files, i, file)
    {
        shoali_str_append(out, "\n");
        print_file(file, out);
    }
    return out->failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate lines of text") : SHOAL_OK;
}
