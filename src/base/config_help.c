/* Help and documentation from the same rows that the readers use. */
#include "base/config_internal.h"

#include "base/str.h"

#include <string.h>

enum { COLUMNS = 100, HELP_COLUMN = 34 };

static bool has_default(const struct shoali_option *row)
{
    if (row->flags & SHOALI_OPTION_NO_DEFAULT)
        return false;
    switch (row->type) {
    case SHOALI_BOOL:
        return row->default_number != 0.0;
    case SHOALI_INT:
    case SHOALI_FLOAT: /* outside the range it stands for "not given" */
        return !(row->flags & SHOALI_OPTION_REQUIRED) &&
               ((row->min == 0.0 && row->max == 0.0) ||
                (row->default_number >= row->min && row->default_number <= row->max));
    case SHOALI_ENUM:
        return !(row->flags & SHOALI_OPTION_REQUIRED);
    case SHOALI_SECTION:
    case SHOALI_JSON:
        return false;
    default:
        return row->default_text && *row->default_text;
    }
}

static void append_default(const struct shoali_option *row, struct shoali_str *out)
{
    if (row->type == SHOALI_BOOL)
        shoali_str_append(out, "%s", row->default_number != 0.0 ? "true" : "false");
    else if (row->type == SHOALI_ENUM)
        shoali_str_append(out, "%s", row->choices[(int32_t)row->default_number]);
    else if (row->type == SHOALI_INT || row->type == SHOALI_FLOAT)
        shoali_config_append_number(row->default_number, out);
    else if (row->default_text) /* a text of its own may be a line's end */
        shoali_str_append(out, "%s", strcmp(row->default_text, "\n") ? row->default_text : "\\n");
}

static const char *placeholder(const struct shoali_option *row)
{
    switch (row->type) {
    case SHOALI_BOOL:
        return "";
    case SHOALI_INT:
        return " N";
    case SHOALI_FLOAT:
        return " X";
    case SHOALI_ENUM:
        return " NAME";
    case SHOALI_FLOATS:
        return " X,X,...";
    case SHOALI_INTS:
        return " N,N,...";
    case SHOALI_STRINGS:
        return " TEXT ...";
    default:
        return " TEXT";
    }
}

/* Appends words, broken at spaces so that lines stay within the columns; `column` is where the
 * cursor is. */
static void append_wrapped(const char *text, size_t column, struct shoali_str *out)
{
    bool first = true;
    while (*text) {
        size_t length = strcspn(text, " ");
        if (!first && column + 1 + length > COLUMNS) {
            shoali_str_append(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            first = true;
        }
        if (!first)
            shoali_str_append(out, " ");
        shoali_str_append_bytes(out, text, length);
        column += length + !first;
        first = false;
        text += length;
        text += strspn(text, " ");
    }
}

/* "(one of a, b; from 1 to 4 GiB; default 2; variable SHOAL_X)", or nothing. */
static void append_facts(const struct shoali_option *row, struct shoali_str *out)
{
    struct shoali_str facts = {0};
    const char *between = "";
    if (row->type == SHOALI_ENUM) {
        for (int32_t i = 0; row->choices[i]; i++)
            shoali_str_append(&facts, "%s%s", i ? "|" : "", row->choices[i]);
        between = "; ";
    }
    if (row->min != 0.0 || row->max != 0.0) {
        shoali_str_append(&facts, "%s", between);
        shoali_config_append_range(row, &facts);
        between = "; ";
    }
    if (row->unit) {
        shoali_str_append(&facts, "%sin %s", between, row->unit);
        between = "; ";
    }
    if (row->flags & SHOALI_OPTION_REQUIRED) {
        shoali_str_append(&facts, "%srequired", between);
        between = "; ";
    }
    if (has_default(row)) {
        shoali_str_append(&facts, "%sdefault ", between);
        append_default(row, &facts);
        between = "; ";
    }
    if (row->env) {
        shoali_str_append(&facts, "%svariable %s", between, row->env);
        between = "; ";
    }
    if (row->state == SHOALI_NOEFFECT)
        shoali_str_append(&facts, "%sno effect", between);
    if (facts.length > 0)
        shoali_str_append(out, " (%s)", shoali_str_get(&facts));
    out->failed |= facts.failed;
    shoali_str_fini(&facts);
}

static void append_flag(const struct shoali_option *row, struct shoali_str *out)
{
    struct shoali_str head = {0}, tail = {0};
    bool negatable = row->type == SHOALI_BOOL && (row->flags & SHOALI_OPTION_NO_PREFIX);
    shoali_str_append(&head, "  --%s%s", negatable ? "[no-]" : "", row->key);
    if (row->alias)
        shoali_str_append(&head, ", %s%s", row->alias[1] ? "--" : "-", row->alias);
    shoali_str_append(&head, "%s", placeholder(row));
    shoali_str_append(&tail, "%s", row->help ? row->help : "");
    append_facts(row, &tail);
    shoali_str_append(out, "%s", shoali_str_get(&head));
    if (head.length + 2 > HELP_COLUMN)
        shoali_str_append(out, "\n%*s", HELP_COLUMN, "");
    else
        shoali_str_append(out, "%*s", (int)(HELP_COLUMN - head.length), "");
    append_wrapped(shoali_str_get(&tail), HELP_COLUMN, out);
    shoali_str_append(out, "\n");
    out->failed |= head.failed || tail.failed;
    shoali_str_fini(&head);
    shoali_str_fini(&tail);
}

void shoali_flags_help(const struct shoali_flag_args *args, struct shoali_str *out)
{
    for (int32_t i = 0; i < args->table_count; i++) {
        const struct shoali_section *section = args->tables[i].section;
        shoali_str_append(out, "%s%s:\n", i ? "\n" : "",
                          section->help ? section->help : section->name);
        for (int32_t k = 0; k < section->row_count; k++) {
            const struct shoali_option *row = &section->rows[k];
            bool usable = row->state == SHOALI_SUPPORTED || row->state == SHOALI_NOEFFECT;
            if (usable && !(row->flags & SHOALI_OPTION_HIDDEN) && row->type != SHOALI_SECTION &&
                row->type != SHOALI_JSON)
                append_flag(row, out);
        }
    }
}

static const char *type_name(const struct shoali_option *row)
{
    static const char *const names[] = {
        "boolean",         "integer",          "number",          "string",  "name",
        "list of numbers", "list of integers", "list of strings", "section", "object",
    };
    return row->flags & SHOALI_OPTION_LIST ? "list of sections" : names[row->type];
}

/* '|' would end a cell. */
static void append_cell(const char *text, struct shoali_str *out)
{
    for (; *text; text++) {
        if (*text == '|')
            shoali_str_append_bytes(out, "\\", 1);
        shoali_str_append_bytes(out, text, 1);
    }
}

static void append_row(const struct shoali_option *row, struct shoali_str *out)
{
    static const char *const states[] = {"", "Not supported yet. ",
                                         "No longer used: ", "No effect: ", "Of something else: "};
    shoali_str_append(out, "| `%s`", row->key);
    if (row->alias)
        shoali_str_append(out, " or `%s`", row->alias);
    shoali_str_append(out, " | %s | ", type_name(row));
    if (row->flags & SHOALI_OPTION_REQUIRED) {
        shoali_str_append(out, "required");
    } else if (has_default(row) ||
               (row->type == SHOALI_BOOL && !(row->flags & SHOALI_OPTION_NO_DEFAULT))) {
        shoali_str_append(out, "`");
        append_default(row, out);
        shoali_str_append(out, "`");
    }
    shoali_str_append(out, " | ");
    if (row->type == SHOALI_ENUM)
        shoali_config_append_choices(row, '`', out);
    else
        shoali_config_append_range(row, out);
    if (row->unit)
        shoali_str_append(out, " %s", row->unit);
    shoali_str_append(out, " | %s", states[row->state]);
    append_cell(row->help ? row->help : "", out);
    if (row->env)
        shoali_str_append(out, " Variable `%s`.", row->env);
    shoali_str_append(out, " |\n");
}

static bool is_documented(const struct shoali_option *row)
{
    return !(row->flags & SHOALI_OPTION_HIDDEN);
}

static void append_table(const struct shoali_section *section, struct shoali_str *out)
{
    if (section->help)
        shoali_str_append(out, "%s\n\n", section->help);
    shoali_str_append(out, "| key | type | default | values | meaning |\n|---|---|---|---|---|\n");
    for (int32_t i = 0; i < section->row_count; i++)
        if (is_documented(&section->rows[i]))
            append_row(&section->rows[i], out);
    shoali_str_append(out, "\n");
}

/* One table per different section; neighbours that share one are named together. */
static void append_variants(const struct shoali_option *row, const char *path,
                            struct shoali_str *out)
{
    struct shoali_variant variant, next;
    bool more = row->variant(0, &variant);
    for (int32_t i = 0; more;) {
        const char *between = "";
        const struct shoali_section *section = variant.section;
        shoali_str_append(out, "## `%s` of ", path);
        for (; more && variant.section == section; variant = next) {
            shoali_str_append(out, "%s%s", between, variant.name);
            between = " and ";
            more = row->variant(++i, &next);
        }
        shoali_str_append(out, "\n\n");
        append_table(section, out);
    }
}

void shoali_config_markdown(const struct shoali_section *section, const char *path,
                            struct shoali_str *out)
{
    shoali_str_append(out, "## `%s`\n\n", *path ? path : section->name);
    append_table(section, out);
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        const bool nested = row->type == SHOALI_SECTION && row->section;
        if (!is_documented(row) || (!nested && !row->variant))
            continue;
        struct shoali_str inner = {0};
        shoali_str_append(&inner, "%s%s%s", path, *path ? "." : "", row->key);
        if (nested)
            shoali_config_markdown(row->section, shoali_str_get(&inner), out);
        else
            append_variants(row, shoali_str_get(&inner), out);
        out->failed |= inner.failed;
        shoali_str_fini(&inner);
    }
}
