/* Command-line flags read into the structs of several tables. */
#include "base/config_internal.h"
#include "base/plain.h"

#include "base/str.h"

#include <string.h>

enum { NAME_BYTES = 128, SHOWN_BYTES = NAME_BYTES + 4, WORDS_MAX = 8 };
enum { BY_KEY = 1, BY_ALIAS = 2 };

struct parser {
    const struct shoali_flag_args *args;
    struct shoali_arena *arena;
    char *const *argv;
    int argc, at;             /* at: the word that is read next */
    unsigned char *spellings; /* of all rows of all tables: BY_KEY, BY_ALIAS as it was given */
    struct shoali_strings *rest;
};

/* A flag that was recognised. */
struct found {
    const struct shoali_flags *table;
    const struct shoali_option *row;
    int32_t index;
    bool by_alias, negated;
};

static bool is_flag_row(const struct shoali_option *row)
{
    return row->type != SHOALI_SECTION && row->type != SHOALI_JSON;
}

/* `key` may end in '*', which stands for any letters. */
bool shoali_flags_same_name(const char *key, const char *name)
{
    for (; *key && *name; key++, name++)
        if (*key != *name && !(strchr("-_", *key) && strchr("-_", *name)))
            return *key == '*';
    return *key == *name || (*key == '*' && !*name);
}

/* How a name is looked for. */
struct search {
    const char *name, *value; /* value: NULL none */
    bool exact;               /* '-' and '_' differ */
    bool by_value;            /* rows about one value, or the others */
};

static bool matches(const struct search *search, const char *key)
{
    if (!key)
        return false;
    return search->exact ? strcmp(key, search->name) == 0
                         : shoali_flags_same_name(key, search->name);
}

static bool find_row(const struct parser *parser, const struct search *search, struct found *found)
{
    for (int32_t i = 0; i < parser->args->table_count; i++) {
        const struct shoali_flags *table = &parser->args->tables[i];
        for (int32_t k = 0; k < table->section->row_count; k++) {
            const struct shoali_option *row = &table->section->rows[k];
            found->by_alias = !matches(search, row->key);
            if (!is_flag_row(row) || (found->by_alias && !matches(search, row->alias)) ||
                search->by_value != (row->when != NULL) ||
                (row->when && (!search->value || strcmp(search->value, row->when) != 0)))
                continue;
            found->table = table;
            found->row = row;
            found->index = k;
            return true;
        }
    }
    return false;
}

/* Rows about this value come first, then exact spellings. */
static bool find_name(const struct parser *parser, const char *name, const char *value,
                      struct found *found)
{
    struct search search = {.name = name, .value = value, .by_value = true};
    if (find_row(parser, &search, found))
        return true;
    search.by_value = false;
    search.exact = true;
    if (find_row(parser, &search, found))
        return true;
    search.exact = false;
    return find_row(parser, &search, found);
}

/* Finds "key", or "no-key" of a bool row that has the prefix. */
static bool find_flag(const struct parser *parser, const char *name, const char *equal,
                      struct found *found)
{
    const char *value = equal ? equal : parser->at < parser->argc ? parser->argv[parser->at] : NULL;
    *found = (struct found){0};
    if (find_name(parser, name, value, found))
        return true;
    if (strncmp(name, "no-", 3) != 0 && strncmp(name, "no_", 3) != 0)
        return false;
    found->negated = true;
    return find_name(parser, name + 3, NULL, found) && found->row->type == SHOALI_BOOL &&
           (found->row->flags & SHOALI_OPTION_NO_PREFIX);
}

static shoal_status fail_unknown(const struct parser *parser, const char *shown, const char *name)
{
    size_t count = 0, capacity = 0;
    for (int32_t i = 0; i < parser->args->table_count; i++)
        capacity += (size_t)parser->args->tables[i].section->row_count;
    const char **candidates = shoali_arena_alloc(parser->arena, capacity * sizeof(char *));
    if (!candidates)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < parser->args->table_count; i++) {
        const struct shoali_section *section = parser->args->tables[i].section;
        for (int32_t k = 0; k < section->row_count; k++)
            if (is_flag_row(&section->rows[k]) && section->rows[k].state != SHOALI_DEAD &&
                !section->rows[k].when && !strchr(section->rows[k].key, '*'))
                candidates[count++] = section->rows[k].key;
    }
    const char *nearest = shoali_nearest(name, candidates, count);
    if (nearest)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s: unknown flag %s; nearest flag is --%s",
                          parser->args->command, shown, nearest);
    return SHOAL_FAIL(SHOAL_ECONFIG, "%s: unknown flag %s; see %s --help-all",
                      parser->args->command, shown, parser->args->command);
}

static const char *kind_of_value(const struct shoali_option *row)
{
    switch (row->type) {
    case SHOALI_INT:
        return "an integer";
    case SHOALI_FLOAT:
        return "a number";
    case SHOALI_FLOATS:
        return "numbers, as in 1,2,3";
    case SHOALI_INTS:
        return "integers, as in 1,2,3";
    case SHOALI_STRINGS:
        return "one or more words";
    default:
        return "a value";
    }
}

static bool begins_flag(const char *word)
{
    return word[0] == '-' && word[1] == '-';
}

/* A word with a blank is no flag but flags for another program: --launcher_args "--mca btl tcp". */
static bool is_value(const char *word)
{
    return !begins_flag(word) || strchr(word, ' ');
}

/* Collects what the flag needs from "=value" and the words that follow. */
static shoal_status take_input(struct parser *parser, const struct found *found, const char *shown,
                               const char *equal, struct shoali_config_input *input)
{
    const char *command = parser->args->command;
    *input = (struct shoali_config_input){.text = equal};
    if (found->row->type == SHOALI_BOOL) {
        input->text = found->negated ? "false" : "true";
        if (!equal)
            return SHOAL_OK;
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s: %s takes no value: give it alone, without \"=%s\"",
                          command, shown, equal);
    }
    int first = parser->at;
    if (found->row->type == SHOALI_STRINGS) {
        while (!equal && parser->at < parser->argc && !begins_flag(parser->argv[parser->at]))
            parser->at++;
        input->text = NULL;
        input->words = equal ? &equal : (const char *const *)(parser->argv + first);
        input->word_count = equal ? 1 : parser->at - first;
        if (equal) {
            const char **word = shoali_arena_alloc(parser->arena, sizeof(char *));
            if (!word)
                return SHOAL_ENOMEM;
            *word = equal;
            input->words = word;
        }
        if (input->word_count > 0)
            return SHOAL_OK;
    } else if (equal) {
        return SHOAL_OK;
    } else if (first < parser->argc && is_value(parser->argv[first])) {
        input->text = parser->argv[parser->at++];
        return SHOAL_OK;
    }
    return SHOAL_FAIL(SHOAL_ECONFIG, "%s: %s needs a value: give %s", command, shown,
                      kind_of_value(found->row));
}

/* Rows of the tables before this one. */
static size_t rows_before(const struct shoali_flag_args *args, int32_t table)
{
    size_t count = 0;
    for (int32_t i = 0; i < table; i++)
        count += (size_t)args->tables[i].section->row_count;
    return count;
}

static shoal_status note_spelling(struct parser *parser, const struct found *found)
{
    const size_t before = rows_before(parser->args, (int32_t)(found->table - parser->args->tables));
    unsigned char *spelling = &parser->spellings[before + (size_t)found->index];
    *spelling |= found->by_alias ? BY_ALIAS : BY_KEY;
    if (*spelling != (BY_KEY | BY_ALIAS))
        return SHOAL_OK;
    const char *alias = found->row->alias;
    return SHOAL_FAIL(SHOAL_ECONFIG, "%s: --%s and %s%s mean the same; give only one of them",
                      parser->args->command, found->row->key, alias[1] ? "--" : "-", alias);
}

/* Whether the word asks for help; a word behind --help that is no flag names a group. */
static bool take_help(struct parser *parser, const char *shown, const char *equal)
{
    struct shoali_help help = {.all = strcmp(shown, "--help-all") == 0 && !equal};
    if (!help.all && strcmp(shown, "--help") != 0 && strcmp(shown, "-h") != 0)
        return false;
    if (!help.all)
        help.group = equal ? equal
                     : parser->at < parser->argc && parser->argv[parser->at][0] != '-'
                         ? parser->argv[parser->at]
                         : NULL;
    if (parser->args->help)
        *parser->args->help = help;
    return true;
}

/* "" is often a variable that is not set: where it is not the default, it must not pass for "not
 * given". */
static shoal_status check_empty(const struct parser *parser, const struct found *found,
                                const char *shown, const struct shoali_config_input *input)
{
    const char *standard = found->row->default_text;
    if (found->row->type != SHOALI_STRING || *input->text || (standard && !*standard))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_ECONFIG, "%s: %s is empty: give a value, or leave the flag out",
                      parser->args->command, shown);
}

static shoal_status take_all(struct parser *parser);

/* The words of `becomes`, with the value in place of each $. */
static shoal_status split_words(const struct parser *parser, const char *becomes, const char *value,
                                const char **words, int *count)
{
    *count = 0;
    for (const char *at = becomes; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " "), head = strcspn(at, " $");
        const size_t tail = head < length ? length - head - 1 : 0;
        SHOAL_ASSERT(*count < WORDS_MAX);
        words[*count] =
            shoali_arena_printf(parser->arena, "%.*s%s%.*s", (int)head, at,
                                head < length ? value : "", (int)tail, at + length - tail);
        if (!words[(*count)++])
            return SHOAL_ENOMEM;
        at += length;
    }
    return SHOAL_OK;
}

/* Takes the flags that this one stands for. */
static shoal_status replace(struct parser *parser, const struct found *found, const char *shown,
                            const struct shoali_config_input *input)
{
    shoal_status status;
    const char *words[WORDS_MAX];
    struct parser inner = *parser;
    SHOAL_TRY(status,
              split_words(parser, found->row->becomes, input->text ? input->text : "", words,
                          &inner.argc),
              done);
    inner.argv = (char *const *)words;
    inner.at = 0;
    status = take_all(&inner);
    if (status < 0)
        shoali_error_prefix(status, "%s stands for \"%s\"", shown, found->row->becomes);
done:
    return status;
}

/* One flag: `name` is without dashes, `equal` the text behind '=' or NULL. */
static shoal_status take_flag(struct parser *parser, const char *shown, const char *name,
                              const char *equal)
{
    shoal_status status;
    struct found found;
    struct shoali_config_input input;
    if (!find_flag(parser, name, equal, &found))
        return take_help(parser, shown, equal) ? SHOAL_END : fail_unknown(parser, shown, name);
    SHOAL_TRY(status, note_spelling(parser, &found), done);
    SHOAL_TRY(status, take_input(parser, &found, shown, equal, &input), done);
    SHOAL_TRY(status, check_empty(parser, &found, shown, &input), done);
    if (found.row->state == SHOALI_REPLACED)
        return replace(parser, &found, shown, &input);
    status = shoali_config_take(found.row, shown, &input, found.table->config, parser->arena);
    if (status < 0)
        shoali_error_prefix(status, "%s", parser->args->command);
    else
        shoali_config_mark(found.table->section, found.table->config, found.index);
done:
    return status;
}

static shoal_status take_long(struct parser *parser, const char *word)
{
    char shown[SHOWN_BYTES];
    size_t length = strcspn(word, "=");
    if (length >= NAME_BYTES)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s: unknown flag %.40s...; see %s --help-all",
                          parser->args->command, word, parser->args->command);
    memcpy(shown, word, length);
    shown[length] = '\0';
    return take_flag(parser, shown, shown + 2, word[length] ? word + length + 1 : NULL);
}

/* "-x" is a short flag, known or not; "-", "-1" and "-.5" are words. */
static bool is_short_flag(const char *word)
{
    return word[0] == '-' && shoali_ascii_letter(word[1]) && word[2] == '\0';
}

static shoal_status take_word(struct parser *parser, const char *word)
{
    if (!parser->rest)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s: unexpected word \"%s\": flags begin with --",
                          parser->args->command, word);
    parser->rest->value[parser->rest->count++] = word;
    return SHOAL_OK;
}

static shoal_status take_all(struct parser *parser)
{
    shoal_status status = SHOAL_OK;
    bool words_only = false;
    while (parser->at < parser->argc && status == SHOAL_OK) {
        const char *word = parser->argv[parser->at++];
        if (words_only)
            status = take_word(parser, word);
        else if (strcmp(word, "--") == 0)
            words_only = true;
        else if (begins_flag(word))
            status = take_long(parser, word);
        else if (is_short_flag(word))
            status = take_flag(parser, word, word + 1, NULL);
        else {
            words_only = parser->args->stop_at_word;
            status = take_word(parser, word);
        }
    }
    return status;
}

static shoal_status check_required(const struct parser *parser, const struct shoali_flags *table,
                                   const unsigned char *spellings)
{
    for (int32_t i = 0; i < table->section->row_count; i++) {
        const struct shoali_option *row = &table->section->rows[i];
        if ((row->flags & SHOALI_OPTION_REQUIRED) && !spellings[i] && !shoali_config_env_text(row))
            return SHOAL_FAIL(SHOAL_ECONFIG, "%s: --%s must be given: %s%s%s",
                              parser->args->command, row->key, row->help,
                              table->section->instead ? "; instead: " : "",
                              table->section->instead ? table->section->instead : "");
    }
    return SHOAL_OK;
}

/* What is left to do for a table when all words are read. */
static shoal_status finish_table(const struct parser *parser, int32_t i)
{
    shoal_status status;
    const struct shoali_flags *table = &parser->args->tables[i];
    const unsigned char *spellings = parser->spellings + rows_before(parser->args, i);
    SHOAL_TRY(status, check_required(parser, table, spellings), done);
    SHOAL_TRY(status, shoali_config_read_env(table->section, table->config, parser->arena), done);
    if (table->section->validate && (status = table->section->validate(table->config)) < 0)
        shoali_error_prefix(status, "%s", parser->args->command);
done:
    return status;
}

shoal_status shoali_flags_parse(const struct shoali_flag_args *args, int argc, char *const *argv,
                                struct shoali_arena *arena, struct shoali_strings *rest)
{
    shoal_status status = SHOAL_ENOMEM;
    struct parser parser = {
        .args = args, .arena = arena, .argv = argv, .argc = argc, .at = 1, .rest = rest};
    parser.spellings = shoali_arena_alloc(arena, rows_before(args, args->table_count) + 1);
    if (!parser.spellings)
        goto done;
    if (rest) {
        *rest = (struct shoali_strings){0};
        rest->value = shoali_arena_alloc(arena, ((size_t)argc + 1) * sizeof(char *));
        if (!rest->value)
            goto done;
    }
    SHOAL_TRY(status, take_all(&parser), done);
    for (int32_t i = 0; i < args->table_count && status == SHOAL_OK; i++)
        SHOAL_TRY(status, finish_table(&parser, i), done);
done:
    return status;
}
