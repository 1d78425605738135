/* The table of normalizers, and their order. */
#include "tokenizer/pipeline.h"

#include <string.h>

static const struct shoali_normalizer_kind *find(const char *type)
{
    const struct shoali_normalizer_kind *const tables[] = {
        shoali_normalizers_unicode, shoali_normalizers_text, shoali_normalizers_precompiled};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct shoali_normalizer_kind *row = tables[t]; row->type; row++)
            if (strcmp(row->type, type) == 0)
                return row;
    return NULL;
}

shoal_status shoali_normalizers_create(const struct shoali_spec *spec, int depth)
{
    shoal_status status;
    const char *type;
    struct shoali_pipeline *pipeline = spec->pipeline;
    SHOAL_TRY(status, shoali_spec_text(spec, "type", NULL, &type), done);
    if (strcmp(type, "Sequence") == 0 && depth < SHOALI_DEPTH_MAX) {
        struct shoali_spec list, element;
        SHOAL_TRY(status, shoali_spec_list(spec, "normalizers", &list), done);
        for (size_t i = 0; i < shoali_spec_count(&list); i++) {
            SHOAL_TRY(status, shoali_spec_element(&list, i, &element), done);
            SHOAL_TRY(status, shoali_normalizers_create(&element, depth + 1), done);
        }
        return SHOAL_OK;
    }
    const struct shoali_normalizer_kind *kind = find(type);
    if (!kind)
        return shoali_spec_fail(spec, "there is no normalizer of type `%s` here", type);
    if (pipeline->normalizer_count == SHOALI_STAGES_MAX)
        return shoali_spec_fail(spec, "more than %d normalizers", SHOALI_STAGES_MAX);
    struct shoali_normalizer *made = &pipeline->normalizer[pipeline->normalizer_count];
    if (kind->create)
        SHOAL_TRY(status, kind->create(spec, &made->state), done);
    made->kind = kind;
    pipeline->normalizer_count++;
done:
    return status;
}

shoal_status shoali_normalize(struct shoali_run *run, struct shoali_normal *in,
                              struct shoali_normal *spare)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_pipeline *pipeline = run->pipeline;
    for (int32_t i = 0; i < pipeline->normalizer_count; i++) {
        const struct shoali_normalizer *normalizer = &pipeline->normalizer[i];
        spare->text.length = 0;
        spare->starts = in->starts;
        SHOAL_TRY(status,
                  normalizer->kind->apply(normalizer->state, run, shoali_str_get(&in->text),
                                          in->text.length, spare),
                  done);
        const struct shoali_normal old = *in;
        *in = *spare;
        *spare = old;
    }
    if (in->text.failed || spare->text.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a normalized text");
done:
    return status;
}
