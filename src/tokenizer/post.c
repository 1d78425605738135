/* Post-processors: what is put before and behind the ids of a text. Templates for pairs of texts
 * are read over: texts come one by one here. */
#include "tokenizer/pipeline.h"

#include <jansson.h>
#include <string.h>

/* Puts ids around what is there already: `before` before, `after` behind. */
static shoal_status wrap(struct shoali_pipeline *pipeline, const int32_t *before, int32_t befores,
                         const int32_t *after, int32_t afters)
{
    struct shoali_around *around = &pipeline->around;
    const int32_t before_count = befores + around->before_count;
    const int32_t after_count = afters + around->after_count;
    int32_t *new_before =
        shoali_arena_alloc(&pipeline->arena, ((size_t)before_count + 1) * sizeof *new_before);
    int32_t *new_after =
        shoali_arena_alloc(&pipeline->arena, ((size_t)after_count + 1) * sizeof *new_after);
    if (!new_before || !new_after)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < before_count; i++)
        new_before[i] = i < befores ? before[i] : around->before[i - befores];
    for (int32_t i = 0; i < after_count; i++)
        new_after[i] = i < around->after_count ? around->after[i] : after[i - around->after_count];
    *around = (struct shoali_around){.before = new_before,
                                     .after = new_after,
                                     .before_count = before_count,
                                     .after_count = after_count};
    return SHOAL_OK;
}

/* ["[SEP]", 102] */
static shoal_status read_pair(const struct shoali_spec *spec, const char *key, int32_t *id)
{
    shoal_status status;
    struct shoali_spec pair;
    SHOAL_TRY(status, shoali_spec_list(spec, key, &pair), done);
    const json_t *number = json_array_get(pair.json, 1);
    const json_int_t value = json_integer_value(number);
    if (!json_is_integer(number) || value < 0 || value >= spec->pipeline->size)
        return shoali_spec_fail(&pair, "[\"token\", number in the vocabulary] is expected here");
    *id = (int32_t)value;
done:
    return status;
}

static shoal_status create_bert(const struct shoali_spec *spec)
{
    shoal_status status;
    int32_t cls, sep;
    SHOAL_TRY(status, read_pair(spec, "cls", &cls), done);
    SHOAL_TRY(status, read_pair(spec, "sep", &sep), done);
    SHOAL_TRY(status, wrap(spec->pipeline, &cls, 1, &sep, 1), done);
done:
    return status;
}

static shoal_status create_byte_level(const struct shoali_spec *spec)
{
    (void)spec; /* offsets, which are not kept here */
    return SHOAL_OK;
}

/* ---- TemplateProcessing ---- */

enum { TEMPLATE_MAX = 256 };
struct template
{
    int32_t id[2][TEMPLATE_MAX]; /* before, after */
    int32_t count[2];
    int sequences;
};

/* The ids of one special token of the template. */
static shoal_status read_special(const struct shoali_spec *table, const char *name,
                                 struct template *template)
{
    shoal_status status;
    struct shoali_spec token, ids;
    const int side = template->sequences > 0;
    SHOAL_TRY(status, shoali_spec_member(table, name, &token), done);
    if (!token.json)
        return shoali_spec_fail(table, "there is no `%s`, which the template names", name);
    SHOAL_TRY(status, shoali_spec_list(&token, "ids", &ids), done);
    for (size_t i = 0; i < shoali_spec_count(&ids); i++) {
        const json_t *number = json_array_get(ids.json, i);
        const json_int_t value = json_integer_value(number);
        if (!json_is_integer(number) || value < 0 || value >= table->pipeline->size)
            return shoali_spec_fail(&ids, "element %zu is no number of the vocabulary", i);
        if (template->count[side] == TEMPLATE_MAX)
            return shoali_spec_fail(&ids, "a template of more than %d tokens", TEMPLATE_MAX);
        template->id[side][template->count[side]++] = (int32_t)value;
    }
done:
    return status;
}

static shoal_status create_template(const struct shoali_spec *spec)
{
    shoal_status status;
    struct shoali_spec single, table, item, part;
    struct template template = {.sequences = 0};
    SHOAL_TRY(status, shoali_spec_list(spec, "single", &single), done);
    SHOAL_TRY(status, shoali_spec_member(spec, "special_tokens", &table), done);
    for (size_t i = 0; i < shoali_spec_count(&single); i++) {
        const char *name;
        SHOAL_TRY(status, shoali_spec_element(&single, i, &item), done);
        SHOAL_TRY(status, shoali_spec_member(&item, "SpecialToken", &part), done);
        if (!part.json) {
            SHOAL_TRY(status, shoali_spec_member(&item, "Sequence", &part), done);
            if (!part.json)
                return shoali_spec_fail(&item, "`SpecialToken` or `Sequence` is expected here");
            template.sequences++;
            continue;
        }
        SHOAL_TRY(status, shoali_spec_text(&part, "id", NULL, &name), done);
        SHOAL_TRY(status, read_special(&table, name, &template), done);
    }
    if (template.sequences != 1)
        return shoali_spec_fail(&single,
                                "the text occurs %d times in the template; it must occur once",
                                template.sequences);
    SHOAL_TRY(
        status,
        wrap(spec->pipeline, template.id[0], template.count[0], template.id[1], template.count[1]),
        done);
done:
    return status;
}

shoal_status shoali_post_create(const struct shoali_spec *spec, int depth)
{
    static const struct {
        const char *type;
        shoal_status (*create)(const struct shoali_spec *spec);
    } rows[] = {
        {"TemplateProcessing", create_template},
        {"BertProcessing", create_bert},
        {"RobertaProcessing", create_bert},
        {"ByteLevel", create_byte_level},
    };
    shoal_status status;
    const char *type;
    SHOAL_TRY(status, shoali_spec_text(spec, "type", NULL, &type), done);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].create(spec);
    if (strcmp(type, "Sequence") != 0 || depth >= SHOALI_DEPTH_MAX)
        return shoali_spec_fail(spec, "there is no post-processor of type `%s` here", type);
    struct shoali_spec list, element;
    SHOAL_TRY(status, shoali_spec_list(spec, "processors", &list), done);
    for (size_t i = 0; i < shoali_spec_count(&list); i++) {
        SHOAL_TRY(status, shoali_spec_element(&list, i, &element), done);
        SHOAL_TRY(status, shoali_post_create(&element, depth + 1), done);
    }
done:
    return status;
}
