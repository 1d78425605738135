/* Whole sections: defaults, given bits, environment, and what a row's state does with a value. */
#include "base/config_internal.h"

#include "base/log.h"
#include "base/plain.h"

#include <stdlib.h>
#include <string.h>

union any_value {
    bool flag;
    int64_t number;
    double real;
    const char *text;
    int32_t choice;
    struct shoali_floats floats;
    struct shoali_ints ints;
    struct shoali_strings strings;
    json_t *json;
};

int32_t shoali_config_find(const struct shoali_section *section, const char *key, bool *by_alias)
{
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        bool alias = row->alias && strcmp(row->alias, key) == 0;
        if (alias || strcmp(row->key, key) == 0) {
            if (by_alias)
                *by_alias = alias;
            return i;
        }
    }
    return -1;
}

void shoali_config_mark(const struct shoali_section *section, void *config, int32_t row)
{
    if (section->given_offset == SIZE_MAX)
        return;
    SHOAL_ASSERT(row < 64 * SHOALI_GIVEN_WORDS);
    uint64_t *given = (uint64_t *)(void *)((char *)config + section->given_offset);
    given[row / 64] |= UINT64_C(1) << (row % 64);
}

static bool is_marked(const struct shoali_section *section, const void *config, int32_t row)
{
    if (section->given_offset == SIZE_MAX)
        return false;
    const uint64_t *given =
        (const uint64_t *)(const void *)((const char *)config + section->given_offset);
    return given[row / 64] >> (row % 64) & 1;
}

bool shoali_config_given(const struct shoali_section *section, const void *config, const char *key)
{
    int32_t row = shoali_config_find(section, key, NULL);
    return row >= 0 && is_marked(section, config, row);
}

static shoal_status write_defaults(const struct shoali_section *section, bool supported,
                                   char *config, struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        /* a pointer's default is what was cleared */
        if ((row->state == SHOALI_SUPPORTED) != supported || row->type == SHOALI_JSON)
            continue;
        if (row->type != SHOALI_SECTION)
            SHOAL_TRY(status, shoali_config_store_default(row, config + row->offset, arena), done);
        else if (supported)
            SHOAL_TRY(status, shoali_config_defaults(row->section, config + row->offset, arena),
                      done);
    }
done:
    return status;
}

shoal_status shoali_config_defaults(const struct shoali_section *section, void *config,
                                    struct shoali_arena *arena)
{
    shoal_status status;
    memset(config, 0, section->struct_bytes);
    /* Rows that only say what happened to a key may have no member, hence offset 0: the supported
     * rows come last and have the last word there. */
    SHOAL_TRY(status, write_defaults(section, false, config, arena), done);
    SHOAL_TRY(status, write_defaults(section, true, config, arena), done);
    if (section->given_offset != SIZE_MAX)
        memset((char *)config + section->given_offset, 0, SHOALI_GIVEN_WORDS * sizeof(uint64_t));
done:
    return status;
}

static bool same_strings(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_lists(const struct shoali_option *row, const union any_value *a,
                       const union any_value *b)
{
    /* The three list structs have the same shape. */
    if (a->floats.count != b->floats.count)
        return false;
    for (int32_t i = 0; i < a->floats.count; i++) {
        bool same = row->type == SHOALI_FLOATS ? a->floats.value[i] == b->floats.value[i]
                    : row->type == SHOALI_INTS
                        ? a->ints.value[i] == b->ints.value[i]
                        : same_strings(a->strings.value[i], b->strings.value[i]);
        if (!same)
            return false;
    }
    return true;
}

static bool same_values(const struct shoali_option *row, const union any_value *a,
                        const union any_value *b)
{
    switch (row->type) {
    case SHOALI_BOOL:
        return a->flag == b->flag;
    case SHOALI_INT:
        return a->number == b->number;
    case SHOALI_FLOAT:
        return a->real == b->real;
    case SHOALI_STRING:
        return same_strings(a->text, b->text);
    case SHOALI_ENUM:
        return a->choice == b->choice;
    case SHOALI_FLOATS:
    case SHOALI_INTS:
    case SHOALI_STRINGS:
        return same_lists(row, a, b);
    case SHOALI_JSON:
        return a->json == b->json;
    case SHOALI_SECTION:
        break;
    }
    return false;
}

/* Published files copy a template whose innermost sections are empty, such as compression's. */
bool shoali_config_is_off(const json_t *value)
{
    const json_t *enabled = json_object_get(value, "enabled");
    const json_t *shared = json_object_get(value, "shared_parameters");
    const char *text = json_string_value(enabled);
    const char *key;
    json_t *inner;
    if (enabled)
        return json_is_false(enabled) ||
               (json_is_integer(enabled) && !json_integer_value(enabled)) ||
               (text && (strcmp(text, "auto") == 0 || shoali_strcasecmp(text, "false") == 0));
    if (shared)
        return shoali_config_is_off(shared);
    if (!json_is_object(value))
        return json_is_null(value) || json_is_false(value);
    json_object_foreach((json_t *)(uintptr_t)value, key, inner)
    {
        if (!json_is_object(inner) || !shoali_config_is_off(inner))
            return false;
    }
    return true;
}

static bool is_default(const struct shoali_option *row, const struct shoali_config_input *input,
                       struct shoali_arena *arena)
{
    union any_value value, standard;
    if (row->type == SHOALI_SECTION || (row->type == SHOALI_JSON && input->json))
        return shoali_config_is_off(input->json);
    /* A default may lie outside the range that users can give. */
    struct shoali_option unbounded = *row;
    unbounded.min = unbounded.max = 0.0;
    return shoali_config_store(&unbounded, input, &value, arena) == SHOAL_OK &&
           shoali_config_store_default(row, &standard, arena) == SHOAL_OK &&
           same_values(row, &value, &standard);
}

/* Warns of what was taken as a bool and is none. */
static void warn_bool(const struct shoali_option *row, const char *shown,
                      const struct shoali_config_input *input, const void *member)
{
    if (row->type == SHOALI_BOOL && input->json && !json_is_boolean(input->json))
        SHOALI_WARN_FIRST("config", "%s is no boolean: it is taken as %s", shown,
                          *(const bool *)member ? "true" : "false");
}

/* Warns of a number that was read from words, or lost its fraction. */
static void warn_number(const struct shoali_option *row, const char *shown,
                        const struct shoali_config_input *input, const void *member)
{
    const int64_t *number = member;
    if (row->type == SHOALI_INT && json_is_real(input->json) &&
        json_real_value(input->json) != (double)*number)
        SHOALI_WARN_FIRST("config", "%s is no whole number: it is taken as %lld", shown,
                          (long long)*number);
    else if ((row->type == SHOALI_INT || row->type == SHOALI_FLOAT) && json_is_string(input->json))
        SHOALI_WARN_FIRST("config", "%s is text: its number is taken", shown);
}

shoal_status shoali_config_take(const struct shoali_option *row, const char *shown,
                                const struct shoali_config_input *input, void *config,
                                struct shoali_arena *arena)
{
    union any_value ignored;
    shoal_status status = SHOAL_OK;
    const char *help = row->help ? row->help : "";
    char *member = (char *)config + row->offset;
    switch (row->state) {
    case SHOALI_DEAD:
        if (input->json && shoali_config_is_off(input->json)) {
            SHOALI_INFO("config", "%s is ignored, because it is off; %s", shown, help);
            return SHOAL_OK;
        }
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s is deprecated; %s", shown, help);
    case SHOALI_PENDING:
        if (is_default(row, input, arena))
            return SHOAL_OK;
        if (row->see)
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "%s is not supported, see %s: %s", shown,
                              row->see, help);
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "%s is known but not supported yet; remove it",
                          shown);
    case SHOALI_ELSEWHERE:
        if (is_default(row, input, arena))
            return SHOAL_OK;
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s does not belong here; %s", shown, help);
    case SHOALI_IDLE:
        if (row->type != SHOALI_SECTION && row->type != SHOALI_JSON)
            status = shoali_config_store(row, input, &ignored, arena);
        if (status == SHOAL_OK && !is_default(row, input, arena))
            SHOALI_WARN_FIRST("config", "%s has no effect: %s", shown, help);
        break;
    case SHOALI_NOEFFECT: /* of a file whatever its value, as in "torch_adam": "torch_impl" */
        if (row->type != SHOALI_SECTION && row->type != SHOALI_JSON && !input->json)
            status = shoali_config_store(row, input, &ignored, arena);
        if (status == SHOAL_OK)
            SHOALI_INFO("config", "%s has no effect: %s", shown, help);
        break;
    case SHOALI_REPLACED: /* by the parser of flags */
        SHOAL_ASSERT(false);
        break;
    case SHOALI_RENAMED:
    case SHOALI_SUPPORTED:
        status = shoali_config_store(row, input, member, arena);
        if (status == SHOAL_OK && row->state == SHOALI_RENAMED)
            SHOALI_WARN_FIRST("config", "%s is an old name: %s", shown, help);
        else if (status == SHOAL_OK) {
            warn_bool(row, shown, input, member);
            warn_number(row, shown, input, member);
        }
        break;
    }
    return status < 0 ? shoali_error_prefix(status, "%s", shown) : status;
}

const char *shoali_config_env_text(const struct shoali_option *row)
{
    const char *text = row->env ? getenv(row->env) : NULL;
    return text && *text ? text : NULL;
}

shoal_status shoali_config_read_env(const struct shoali_section *section, void *config,
                                    struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        if (row->state != SHOALI_SUPPORTED)
            continue;
        char *member = (char *)config + row->offset;
        if (row->type == SHOALI_SECTION) {
            SHOAL_TRY(status, shoali_config_read_env(row->section, member, arena), done);
            continue;
        }
        if (!row->env)
            continue;
        SHOAL_ASSERT(section->given_offset != SIZE_MAX);
        struct shoali_config_input input = {.text = shoali_config_env_text(row)};
        if (!input.text || is_marked(section, config, i))
            continue;
        status = shoali_config_store(row, &input, member, arena);
        if (status < 0) {
            shoali_error_prefix(status, "variable %s (for `%s`)", row->env, row->key);
            goto done;
        }
    }
done:
    return status;
}
