/* Whole sections: defaults, given bits, environment, and what a row's state does with a value. */
#include "base/config_internal.h"

#include "base/log.h"

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

bool shoali_config_is_marked(const struct shoali_section *section, const void *config, int32_t row)
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
    return row >= 0 && shoali_config_is_marked(section, config, row);
}

static shoal_status write_defaults(const struct shoali_section *section, bool supported,
                                   char *config, struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        if ((row->state == SHOALI_SUPPORTED) != supported)
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

/* A section that is not supported may be mentioned as long as it is off. */
static bool section_is_off(json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           json_is_false(json_object_get(value, "enabled"));
}

static bool is_default(const struct shoali_option *row, const struct shoali_config_input *input,
                       struct shoali_arena *arena)
{
    union any_value value, standard;
    if (row->type == SHOALI_SECTION)
        return section_is_off(input->json);
    /* A default may lie outside the range that users can give. */
    struct shoali_option unbounded = *row;
    unbounded.min = unbounded.max = 0.0;
    return shoali_config_store(&unbounded, input, &value, arena) == SHOAL_OK &&
           shoali_config_store_default(row, &standard, arena) == SHOAL_OK &&
           same_values(row, &value, &standard);
}

shoal_status shoali_config_take(const struct shoali_option *row, const char *shown,
                                const struct shoali_config_input *input, void *config,
                                struct shoali_arena *arena)
{
    union any_value ignored;
    shoal_status status = SHOAL_OK;
    const char *help = row->help ? row->help : "";
    switch (row->state) {
    case SHOALI_DEAD:
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s is no longer used; %s", shown, help);
    case SHOALI_PENDING:
        if (is_default(row, input, arena))
            return SHOAL_OK;
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "%s is known but not supported yet; remove it",
                          shown);
    case SHOALI_ELSEWHERE:
        if (is_default(row, input, arena))
            return SHOAL_OK;
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s does not belong here; %s", shown, help);
    case SHOALI_NOEFFECT:
        if (row->type != SHOALI_SECTION)
            status = shoali_config_store(row, input, &ignored, arena);
        if (status == SHOAL_OK)
            SHOALI_INFO("config", "%s has no effect: %s", shown, help);
        break;
    case SHOALI_SUPPORTED:
        status = shoali_config_store(row, input, (char *)config + row->offset, arena);
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
        if (!input.text || shoali_config_is_marked(section, config, i))
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
