#include "tokenizer/bpe.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- BPE: ranks of pairs ---- */

static void put_pair(struct shoali_bpe *bpe, uint64_t key, uint32_t rank, int32_t id)
{
    uint32_t at = (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
    while (bpe->pair[at & bpe->mask].key != UINT64_MAX && bpe->pair[at & bpe->mask].key != key)
        at++;
    bpe->pair[at & bpe->mask] = (struct shoali_pair){.key = key, .rank = rank, .id = id};
}

/* The halves of one merge: "left right" or ["left", "right"]. */
static bool halves_of(const json_t *merge, const char **left, size_t *left_bytes,
                      const char **right)
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left = json_string_value(json_array_get(merge, 0));
        *right = json_string_value(json_array_get(merge, 1));
        *left_bytes = *left ? strlen(*left) : 0;
        return *left && *right;
    }
    const char *text = json_string_value(merge);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (!space || strchr(space + 1, ' '))
        return false;
    *left = text;
    *left_bytes = (size_t)(space - text);
    *right = space + 1;
    return true;
}

/* The id of a string as the file writes it. */
static int32_t id_of(const struct shoali_word_model *model, struct shoali_str *work,
                     const char *text, size_t bytes)
{
    if (!model->raw)
        return shoali_vocab_find(&model->vocab, text, bytes);
    size_t raw;
    work->length = 0;
    shoali_str_append_bytes(work, text, bytes);
    if (work->failed || !shoali_byte_chars_bytes(text, bytes, work->text, &raw))
        return -1;
    return shoali_vocab_find(&model->vocab, work->text, raw);
}

static shoal_status read_merge(const struct shoali_spec *merges,
                               const struct shoali_word_model *model, size_t i,
                               struct shoali_str work[2])
{
    struct shoali_bpe *bpe = model->state;
    const char *left, *right;
    size_t left_bytes;
    if (!halves_of(json_array_get(merges->json, i), &left, &left_bytes, &right))
        return shoali_spec_fail(merges, "element %zu is not \"left right\"", i);
    const size_t right_bytes = strlen(right), skip = strlen(bpe->prefix);
    const int32_t a = id_of(model, &work[0], left, left_bytes);
    const int32_t b = id_of(model, &work[0], right, right_bytes);
    if (a < 0 || b < 0)
        return shoali_spec_fail(merges, "`%.*s` of element %zu is not in the vocabulary",
                                (int)(a < 0 ? left_bytes : right_bytes), a < 0 ? left : right, i);
    work[1].length = 0;
    shoali_str_append_bytes(&work[1], left, left_bytes);
    if (right_bytes >= skip)
        shoali_str_append(&work[1], "%s", right + skip);
    const int32_t joined = id_of(model, &work[0], shoali_str_get(&work[1]), work[1].length);
    if (work[0].failed || work[1].failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a merge");
    if (joined < 0)
        return shoali_spec_fail(merges, "`%s`, which element %zu makes, is not in the vocabulary",
                                shoali_str_get(&work[1]), i);
    put_pair(bpe, (uint64_t)(uint32_t)a << 32 | (uint32_t)b, (uint32_t)i, joined);
    return SHOAL_OK;
}

static shoal_status read_merges(const struct shoali_spec *spec, struct shoali_word_model *model)
{
    shoal_status status;
    struct shoali_bpe *bpe = model->state;
    struct shoali_spec merges;
    struct shoali_str work[2] = {{0}, {0}};
    SHOAL_TRY(status, shoali_spec_list(spec, "merges", &merges), done);
    const size_t count = shoali_spec_count(&merges);
    uint32_t slots = 16;
    while (slots < 2 * count && slots < 1u << 30)
        slots *= 2;
    bpe->pair = shoali_malloc(slots * sizeof *bpe->pair, "merges");
    if (!bpe->pair)
        return SHOAL_ENOMEM;
    memset(bpe->pair, 0xff, slots * sizeof *bpe->pair);
    bpe->mask = slots - 1;
    for (size_t i = 0; i < count; i++)
        SHOAL_TRY(status, read_merge(&merges, model, i, work), done);
done:
    shoali_str_fini(&work[0]);
    shoali_str_fini(&work[1]);
    return status;
}

static void find_bytes(struct shoali_word_model *model, struct shoali_bpe *bpe)
{
    if (!model->raw) {
        shoali_word_model_byte_tokens(model, bpe->byte_id);
        return;
    }
    for (int byte = 0; byte < 256; byte++) {
        const char text = (char)byte;
        bpe->byte_id[byte] = shoali_vocab_find(&model->vocab, &text, 1);
    }
}

static shoal_status create_bpe(const struct shoali_spec *spec, struct shoali_word_model *model)
{
    shoal_status status;
    struct shoali_spec dropout;
    const char *unk;
    struct shoali_bpe *bpe = shoali_arena_alloc(spec->arena, sizeof *bpe);
    model->state = bpe;
    if (!bpe)
        return SHOAL_ENOMEM;
    bpe->vocab = &model->vocab;
    SHOAL_TRY(status, shoali_spec_member(spec, "dropout", &dropout), done);
    if (dropout.json && json_number_value(dropout.json) != 0)
        return shoali_spec_fail(&dropout, "dropout makes another encoding each time, which a "
                                          "training cannot repeat; set it to null");
    SHOAL_TRY(status, shoali_spec_optional(spec, "unk_token", &unk), done);
    SHOAL_TRY(status, shoali_spec_text(spec, "continuing_subword_prefix", "", &bpe->prefix), done);
    SHOAL_TRY(status, shoali_spec_text(spec, "end_of_word_suffix", "", &bpe->suffix), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "byte_fallback", false, &bpe->byte_fallback), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "fuse_unk", false, &bpe->fuse_unk), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "ignore_merges", false, &bpe->ignore_merges), done);
    model->raw = model->raw && !bpe->byte_fallback && !*bpe->prefix && !*bpe->suffix;
    SHOAL_TRY(status, shoali_word_model_read_vocab(spec, model), done);
    SHOAL_TRY(status, read_merges(spec, model), done);
    bpe->unk = unk ? shoali_pipeline_id(spec->pipeline, unk) : -1;
    if (unk && bpe->unk < 0)
        bpe->unk = shoali_vocab_find(&model->vocab, unk, strlen(unk));
    find_bytes(model, bpe);
done:
    return status;
}

static void destroy(struct shoali_word_model *model)
{
    struct shoali_bpe *bpe = model->state;
    if (bpe)
        shoali_free(bpe->pair);
}

/* ---- the symbols that a word begins as ---- */

struct symbols {
    struct shoali_symbol *symbol;
    int64_t count;
};

static void add(struct symbols *symbols, int32_t id, size_t start)
{
    symbols->symbol[symbols->count++] = (struct shoali_symbol){.id = id, .start = (uint32_t)start};
}

/* The string of one character with prefix and suffix, where the model has them. */
static int32_t find_character(const struct shoali_bpe *bpe, struct shoali_str *work,
                              const char *word, size_t bytes, size_t at, size_t length)
{
    const bool first = at == 0, last = at + length == bytes;
    if ((first || !*bpe->prefix) && (!last || !*bpe->suffix))
        return shoali_vocab_find(bpe->vocab, word + at, length);
    work->length = 0;
    shoali_str_append(work, "%s%.*s%s", first ? "" : bpe->prefix, (int)length, word + at,
                      last ? bpe->suffix : "");
    return shoali_vocab_find(bpe->vocab, shoali_str_get(work), work->length);
}

static bool has_bytes(const struct shoali_bpe *bpe, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (bpe->byte_id[(unsigned char)text[i]] < 0)
            return false;
    return true;
}

/* Characters; what the vocabulary lacks becomes bytes, the unknown token, or nothing. An unknown
 * token waits for others to join it, and is not flushed by bytes. */
static void begin_characters(const struct shoali_bpe *bpe, struct shoali_str *work,
                             const char *word, size_t bytes, struct symbols *symbols)
{
    bool waits = false;
    size_t waits_at = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        length = (size_t)shoali_length(word[at]);
        const int32_t id = find_character(bpe, work, word, bytes, at, length);
        if (id >= 0) {
            if (waits)
                add(symbols, bpe->unk, waits_at);
            waits = false;
            add(symbols, id, at);
        } else if (bpe->byte_fallback && has_bytes(bpe, word + at, length)) {
            for (size_t i = at; i < at + length; i++)
                add(symbols, bpe->byte_id[(unsigned char)word[i]], i);
        } else if (bpe->unk >= 0) {
            if (waits && !bpe->fuse_unk)
                add(symbols, bpe->unk, waits_at);
            waits_at = waits && bpe->fuse_unk ? waits_at : at;
            waits = true;
        }
    }
    if (waits)
        add(symbols, bpe->unk, waits_at);
}

/* Bytes, each of which has a token as a rule. */
static void begin_bytes(const struct shoali_bpe *bpe, const char *word, size_t bytes,
                        struct symbols *symbols)
{
    bool waits = false;
    size_t waits_at = 0;
    for (size_t at = 0; at < bytes; at++) {
        const int32_t id = bpe->byte_id[(unsigned char)word[at]];
        if (waits && (id >= 0 || !bpe->fuse_unk)) {
            add(symbols, bpe->unk, waits_at);
            waits = false;
        }
        if (id >= 0)
            add(symbols, id, at);
        else if (bpe->unk >= 0 && !waits) {
            waits = true;
            waits_at = at;
        }
    }
    if (waits)
        add(symbols, bpe->unk, waits_at);
}

static shoal_status room(struct shoali_run *run, size_t bytes, struct symbols *symbols)
{
    symbols->count = 0;
    if (bytes > UINT32_MAX / 2)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a word has %zu bytes, which is too long for byte-pair encoding", bytes);
    symbols->symbol =
        shoali_scratch_symbols(run->scratch, (5 * bytes + 2) * sizeof *symbols->symbol);
    return symbols->symbol ? SHOAL_OK : SHOAL_ENOMEM;
}

static shoal_status encode_bpe(const struct shoali_word_model *model, struct shoali_run *run,
                               const char *word, size_t bytes, struct shoali_ids *ids)
{
    const struct shoali_bpe *bpe = model->state;
    struct symbols symbols = {0};
    if (bpe->ignore_merges) {
        const int32_t id = shoali_vocab_find(&model->vocab, word, bytes);
        if (id >= 0) {
            shoali_ids_add(ids, id);
            return SHOAL_OK;
        }
    }
    const shoal_status status = room(run, bytes, &symbols);
    if (status < 0)
        return status;
    if (model->raw)
        begin_bytes(bpe, word, bytes, &symbols);
    else
        begin_characters(bpe, &run->scratch->work, word, bytes, &symbols);
    if (run->scratch->work.failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a word");
    symbols.symbol[symbols.count].start = (uint32_t)bytes;
    const int64_t count = shoali_bpe_merge(bpe, word, symbols.symbol, symbols.count);
    for (int64_t i = 0; i < count; i++)
        shoali_ids_add(ids, symbols.symbol[i].id);
    return SHOAL_OK;
}

static int32_t byte_id(const struct shoali_word_model *model, unsigned char byte)
{
    const struct shoali_bpe *bpe = model->state;
    return model->raw || bpe->byte_fallback ? bpe->byte_id[byte] : -1;
}

/* ---- TikToken: the rank is the number of the joined string ---- */

static shoal_status create_tiktoken(const struct shoali_spec *spec, struct shoali_word_model *model)
{
    shoal_status status;
    struct shoali_bpe *bpe = shoali_arena_alloc(spec->arena, sizeof *bpe);
    model->state = bpe;
    if (!bpe)
        return SHOAL_ENOMEM;
    if (!model->raw)
        return shoali_spec_fail(spec, "a TikToken model needs ByteLevel as its only pre-tokenizer");
    bpe->vocab = &model->vocab;
    bpe->prefix = bpe->suffix = "";
    bpe->ignore_merges = true;
    bpe->unk = -1;
    SHOAL_TRY(status, shoali_word_model_read_vocab(spec, model), done);
    uint32_t *rank = shoali_arena_alloc(spec->arena, (size_t)model->vocab.size * sizeof *rank);
    if (!rank)
        return SHOAL_ENOMEM;
    for (int32_t id = 0; id < model->vocab.size; id++)
        rank[id] = (uint32_t)id;
    bpe->rank = rank;
    find_bytes(model, bpe);
    for (int byte = 0; byte < 256; byte++)
        if (bpe->byte_id[byte] < 0)
            return shoali_spec_fail(spec, "there is no token for the byte 0x%02x", (unsigned)byte);
done:
    return status;
}

const struct shoali_word_model_kind shoali_word_model_bpe = {
    .type = "BPE",
    .create = create_bpe,
    .destroy = destroy,
    .encode = encode_bpe,
    .byte_id = byte_id,
    .takes_bytes = true,
};
const struct shoali_word_model_kind shoali_word_model_tiktoken = {
    .type = "TikToken",
    .create = create_tiktoken,
    .encode = encode_bpe,
    .byte_id = byte_id,
    .takes_bytes = true,
};
