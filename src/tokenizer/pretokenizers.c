/* The table of pre-tokenizers, their order, and what the behaviours do. */
#include "tokenizer/pipeline.h"

#include <string.h>

const char *const shoali_behaviors[] = {"Removed",        "Isolated",   "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};

static const struct shoali_pretokenizer_kind *find(const char *type)
{
    const struct shoali_pretokenizer_kind *const tables[] = {shoali_pretokenizers_split,
                                                             shoali_pretokenizers_words};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const struct shoali_pretokenizer_kind *row = tables[t]; row->type; row++)
            if (strcmp(row->type, type) == 0)
                return row;
    return NULL;
}

shoal_status shoali_pretokenizers_create(const struct shoali_spec *spec, int depth)
{
    shoal_status status;
    const char *type;
    struct shoali_pipeline *pipeline = spec->pipeline;
    SHOAL_TRY(status, shoali_spec_text(spec, "type", NULL, &type), done);
    if (strcmp(type, "Sequence") == 0 && depth < SHOALI_DEPTH_MAX) {
        struct shoali_spec list, element;
        SHOAL_TRY(status, shoali_spec_list(spec, "pretokenizers", &list), done);
        for (size_t i = 0; i < shoali_spec_count(&list); i++) {
            SHOAL_TRY(status, shoali_spec_element(&list, i, &element), done);
            SHOAL_TRY(status, shoali_pretokenizers_create(&element, depth + 1), done);
        }
        return SHOAL_OK;
    }
    const struct shoali_pretokenizer_kind *kind = find(type);
    if (!kind)
        return shoali_spec_fail(spec, "there is no pre-tokenizer of type `%s` here", type);
    if (pipeline->pretokenizer_count == SHOALI_STAGES_MAX)
        return shoali_spec_fail(spec, "more than %d pre-tokenizers", SHOALI_STAGES_MAX);
    struct shoali_pretokenizer *made = &pipeline->pretokenizer[pipeline->pretokenizer_count];
    if (kind->create)
        SHOAL_TRY(status, kind->create(spec, &made->state), done);
    made->kind = kind;
    pipeline->pretokenizer_count++;
done:
    return status;
}

shoal_status shoali_emit(struct shoali_run *run, int32_t level, const struct shoali_piece *piece)
{
    if (piece->bytes == 0)
        return SHOAL_OK;
    if (level >= run->pipeline->pretokenizer_count)
        return shoali_encode_word(run, piece->text, piece->bytes);
    const struct shoali_pretokenizer *stage = &run->pipeline->pretokenizer[level];
    return stage->kind->apply(stage->state, run, level, piece);
}

/* ---- behaviours ---- */

static shoal_status emit_held(struct shoali_splitter *splitter)
{
    if (!splitter->held)
        return SHOAL_OK;
    splitter->held = false;
    const struct shoali_piece part = {.text = splitter->piece->text + splitter->begin,
                                      .bytes = splitter->end - splitter->begin,
                                      .starts = splitter->piece->starts && splitter->begin == 0};
    return shoali_emit(splitter->run, splitter->level + 1, &part);
}

/* Whether a part joins the one that waits. Nothing waiting counts as text between matches. */
static bool joins(const struct shoali_splitter *splitter, bool match)
{
    switch (splitter->behavior) {
    case SHOALI_MERGED_WITH_PREVIOUS:
        return match && !splitter->matched;
    case SHOALI_MERGED_WITH_NEXT:
        return !match && splitter->matched;
    case SHOALI_CONTIGUOUS:
        return match == splitter->matched;
    default:
        return false;
    }
}

shoal_status shoali_splitter_add(struct shoali_splitter *splitter, size_t begin, size_t end,
                                 bool match)
{
    shoal_status status = SHOAL_OK;
    if (splitter->behavior == SHOALI_REMOVED && match)
        return SHOAL_OK;
    if (splitter->held && joins(splitter, match)) {
        splitter->end = end;
    } else {
        SHOAL_TRY(status, emit_held(splitter), done);
        splitter->held = true;
        splitter->begin = begin;
        splitter->end = end;
    }
    splitter->matched = match;
done:
    return status;
}

shoal_status shoali_splitter_end(struct shoali_splitter *splitter)
{
    return emit_held(splitter);
}
