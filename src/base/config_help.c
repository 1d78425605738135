/* Help and documentation from the same rows that the readers use. */
#include "base/config_internal.h"

#include "base/str.h"

#include <string.h>

/* A command of at most FEW_FLAGS flags has one help for --help and --help-all. */
enum { COLUMNS = 100, HELP_COLUMN = 34, FEW_FLAGS = 25, GROUPS_MAX = 32 };

/* Names of the groups that have flags, in the order of the help. */
struct groups {
    const char *name[GROUPS_MAX];
    int32_t count;
    int32_t listed; /* the first ones, which the short help has */
};

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
    else if (row->default_text)
        shoali_str_append(out, "%s",
                          strcmp(row->default_text, "\n") ? row->default_text : "a newline");
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

/* A word, or as much of a list of choices (a|b|c) as fits into a line. */
static size_t piece_length(const char *text, size_t room)
{
    const size_t word = strcspn(text, " ");
    size_t length = word;
    while (length > room) {
        size_t cut = length - 1;
        while (cut > 0 && text[cut - 1] != '|')
            cut--;
        if (cut == 0)
            return word;
        length = cut;
    }
    return length;
}

/* Appends words, broken at spaces so that lines stay within the columns; `column` is where the
 * cursor is, `indent` where further lines begin. */
static void append_wrapped(const char *text, size_t column, size_t indent, struct shoali_str *out)
{
    bool first = true;
    while (*text) {
        const size_t length = piece_length(text, COLUMNS - indent);
        if (!first && column + 1 + length > COLUMNS) {
            shoali_str_append(out, "\n%*s", (int)indent, "");
            column = indent;
            first = true;
        }
        if (!first)
            shoali_str_append(out, " ");
        shoali_str_append_bytes(out, text, length);
        column += length + !first;
        text += length;
        first = *text != ' ' && *text != '\0'; /* the rest of a list goes on */
        if (first) {
            shoali_str_append(out, "\n%*s", (int)indent, "");
            column = indent;
        }
        text += strspn(text, " ");
    }
}

/* "(one of a, b; from 1 to 4 GiB; default 2; variable SHOAL_X)", or nothing. The range is for the
 * full help. */
static void append_facts(const struct shoali_option *row, bool full, struct shoali_str *out)
{
    struct shoali_str facts = {0};
    const char *between = "";
    if (row->type == SHOALI_ENUM) {
        for (int32_t i = 0; row->choices[i]; i++)
            shoali_str_append(&facts, "%s%s", i ? "|" : "", row->choices[i]);
        between = "; ";
    }
    if (full && (row->min != 0.0 || row->max != 0.0)) {
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

static void append_flag(const struct shoali_option *row, bool full, struct shoali_str *out)
{
    struct shoali_str head = {0}, tail = {0};
    bool negatable = row->type == SHOALI_BOOL && (row->flags & SHOALI_OPTION_NO_PREFIX);
    shoali_str_append(&head, "  --%s%s", negatable ? "[no-]" : "", row->key);
    if (row->alias)
        shoali_str_append(&head, ", %s%s", row->alias[1] ? "--" : "-", row->alias);
    shoali_str_append(&head, "%s", placeholder(row));
    shoali_str_append(&tail, "%s", row->help ? row->help : "");
    append_facts(row, full, &tail);
    shoali_str_append(out, "%s", shoali_str_get(&head));
    if (head.length + 2 > HELP_COLUMN)
        shoali_str_append(out, "\n%*s", HELP_COLUMN, "");
    else
        shoali_str_append(out, "%*s", (int)(HELP_COLUMN - head.length), "");
    append_wrapped(shoali_str_get(&tail), HELP_COLUMN, HELP_COLUMN, out);
    shoali_str_append(out, "\n");
    out->failed |= head.failed || tail.failed;
    shoali_str_fini(&head);
    shoali_str_fini(&tail);
}

static bool is_shown(const struct shoali_option *row)
{
    return (row->state == SHOALI_SUPPORTED || row->state == SHOALI_NOEFFECT) &&
           !(row->flags & SHOALI_OPTION_HIDDEN) && row->type != SHOALI_SECTION &&
           row->type != SHOALI_JSON;
}

static bool is_common(const struct shoali_option *row)
{
    return row->flags & (SHOALI_OPTION_COMMON | SHOALI_OPTION_REQUIRED);
}

static const char *group_of(const struct shoali_section *section, const struct shoali_option *row)
{
    return row->group ? row->group : section->help ? section->help : section->name;
}

/* Appends the group's flags, all or the common ones, below a heading where there is any. Returns
 * how many. */
static int32_t append_group(const struct shoali_flag_args *args, const char *group, bool full,
                            struct shoali_str *out)
{
    int32_t count = 0;
    for (int32_t i = 0; i < args->table_count; i++) {
        const struct shoali_section *section = args->tables[i].section;
        for (int32_t k = 0; k < section->row_count; k++) {
            const struct shoali_option *row = &section->rows[k];
            if (!is_shown(row) || !(full || is_common(row)) ||
                strcmp(group_of(section, row), group) != 0)
                continue;
            if (count++ == 0)
                shoali_str_append(out, "%s:\n", group);
            append_flag(row, full, out);
        }
    }
    return count;
}

static bool has_group(const struct groups *groups, const char *name)
{
    for (int32_t i = 0; i < groups->count; i++)
        if (strcmp(groups->name[i], name) == 0)
            return true;
    return false;
}

/* Finds the groups of the tables, those of args->groups first. Returns the number of flags. */
static int32_t find_groups(const struct shoali_flag_args *args, struct groups *groups)
{
    int32_t flags = 0;
    *groups = (struct groups){0};
    for (int32_t i = 0; args->groups && args->groups[i]; i++)
        groups->name[groups->count++] = args->groups[i];
    groups->listed = args->groups ? groups->count : GROUPS_MAX;
    for (int32_t i = 0; i < args->table_count; i++) {
        const struct shoali_section *section = args->tables[i].section;
        for (int32_t k = 0; k < section->row_count; k++) {
            if (!is_shown(&section->rows[k]))
                continue;
            flags++;
            if (has_group(groups, group_of(section, &section->rows[k])))
                continue;
            SHOAL_ASSERT(groups->count < GROUPS_MAX);
            groups->name[groups->count++] = group_of(section, &section->rows[k]);
        }
    }
    return flags;
}

static void append_names(const struct groups *groups, struct shoali_str *out)
{
    for (int32_t i = 0; i < groups->count; i++)
        shoali_str_append(out, "%s%s", i ? ", " : "", groups->name[i]);
}

/* The end of the short help: how to see the other flags. */
static void append_rest(const struct groups *groups, int32_t shown, int32_t flags,
                        struct shoali_str *out)
{
    struct shoali_str names = {0};
    shoali_str_append(&names, "Groups: ");
    append_names(groups, &names);
    shoali_str_append(out,
                      "\nThis is the short help: %d of %d flags. --help-all shows all of them, "
                      "--help GROUP one group.\n",
                      (int)shown, (int)flags);
    append_wrapped(shoali_str_get(&names), 0, 8, out);
    shoali_str_append(out, "\n");
    out->failed |= names.failed;
    shoali_str_fini(&names);
}

static shoal_status fail_no_group(const struct shoali_flag_args *args, const struct groups *groups)
{
    struct shoali_str names = {0};
    append_names(groups, &names);
    const shoal_status status =
        SHOAL_FAIL(SHOAL_ECONFIG, "%s: --help %s: there is no such group of flags; groups are: %s",
                   args->command, args->help->group, shoali_str_get(&names));
    shoali_str_fini(&names);
    return status;
}

shoal_status shoali_flags_help(const struct shoali_flag_args *args, struct shoali_str *out)
{
    struct groups groups;
    const struct shoali_help none = {0}, *help = args->help ? args->help : &none;
    const int32_t flags = find_groups(args, &groups);
    if (help->group && !has_group(&groups, help->group))
        return fail_no_group(args, &groups);
    if (help->group) {
        append_group(args, help->group, true, out);
        return SHOAL_OK;
    }
    const bool full = help->all || flags <= FEW_FLAGS;
    int32_t shown = 0;
    for (int32_t i = 0; i < groups.count && (full || i < groups.listed); i++) {
        struct shoali_str part = {0};
        const int32_t count = append_group(args, groups.name[i], full, &part);
        shoali_str_append(out, "%s%s", count && shown ? "\n" : "", shoali_str_get(&part));
        shown += count;
        out->failed |= part.failed;
        shoali_str_fini(&part);
    }
    if (shown < flags)
        append_rest(&groups, shown, flags, out);
    return SHOAL_OK;
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
    static const char *const states[] = {
        "", "Not supported yet. ", "Deprecated: ",         "No effect: ", "Belongs elsewhere: ",
        "", "Old name: ",          "Accepted, no effect: "};
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
    if (row->auto_help)
        shoali_str_append(out, " `\"auto\"`: %s.", row->auto_help);
    if (row->env)
        shoali_str_append(out, " Variable `%s`.", row->env);
    if (row->flags & SHOALI_OPTION_BY_RANK)
        shoali_str_append(out, " Ranks may differ.");
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
