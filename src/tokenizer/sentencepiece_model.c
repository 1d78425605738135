/* SentencePieceBPE, the pre-tokenizer that cuts texts for SentencePiece's models, and the types of
 * pieces. */
#include "tokenizer/bpe.h"
#include "tokenizer/unigram.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static shoal_status create_user(const struct shoali_spec *spec,
                                const struct shoali_word_model *model, const uint8_t *type)
{
    shoal_status status = SHOAL_OK;
    struct shoali_trie *user = NULL;
    for (int32_t id = 0; id < model->vocab.size; id++) {
        if (type[id] != SHOALI_PIECE_USER)
            continue;
        if (!user) {
            user = &spec->pipeline->user_trie;
            SHOAL_TRY(status, shoali_trie_init(user), done);
            spec->pipeline->user = user;
        }
        const struct shoali_string *string = &model->vocab.string[id];
        SHOAL_TRY(status, shoali_trie_add(user, string->text, string->bytes, id), done);
    }
done:
    return status;
}

shoal_status shoali_sentencepiece_types(const struct shoali_spec *spec,
                                        const struct shoali_word_model *model, const uint8_t **type)
{
    shoal_status status;
    struct shoali_spec vocab;
    uint8_t *types = shoali_arena_alloc(spec->arena, (size_t)model->vocab.size + 1);
    *type = types;
    if (!types)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_list(spec, "vocab", &vocab), done);
    for (int32_t id = 0; id < model->vocab.size; id++) {
        const json_t *element = json_array_get(vocab.json, (size_t)id);
        const json_t *number = json_array_get(element, 2);
        const json_int_t value = number ? json_integer_value(number) : SHOALI_PIECE_NORMAL;
        if (value < SHOALI_PIECE_NORMAL || value > SHOALI_PIECE_BYTE)
            return shoali_spec_fail(&vocab, "element %d has no type from 1 to 6", id);
        if (value == SHOALI_PIECE_UNUSED)
            return shoali_spec_fail(&vocab,
                                    "piece %d, `%s`, is marked as unused: vocabularies "
                                    "restricted after training are not read",
                                    id, model->vocab.string[id].text);
        types[id] = (uint8_t)value;
        if (value == SHOALI_PIECE_CONTROL || value == SHOALI_PIECE_UNKNOWN)
            spec->pipeline->flags[id] |= SHOALI_TOKEN_SPECIAL;
    }
    SHOAL_TRY(status, create_user(spec, model, types), done);
done:
    return status;
}

/* ---- SentencePieceBPE ---- */

static int by_score(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

/* The rank of each id: how many larger scores there are. */
static shoal_status rank_scores(const struct shoali_spec *spec,
                                const struct shoali_word_model *model, const double *score,
                                const uint8_t *type, const uint32_t **ranks)
{
    const size_t size = (size_t)model->vocab.size;
    uint32_t *rank = shoali_arena_alloc(spec->arena, (size + 1) * sizeof *rank);
    double *sorted = shoali_malloc((size + 1) * sizeof *sorted, "scores");
    *ranks = rank;
    if (!rank || !sorted) {
        shoali_free(sorted);
        return SHOAL_ENOMEM;
    }
    memcpy(sorted, score, size * sizeof *sorted);
    qsort(sorted, size, sizeof *sorted, by_score);
    for (size_t id = 0; id < size; id++) {
        size_t low = 0, high = size;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (sorted[middle] > score[id])
                low = middle + 1;
            else
                high = middle;
        }
        const bool joins = type[id] == SHOALI_PIECE_NORMAL || type[id] == SHOALI_PIECE_USER;
        rank[id] = joins ? (uint32_t)low : SHOALI_RANK_NONE;
    }
    shoali_free(sorted);
    return SHOAL_OK;
}

static shoal_status create(const struct shoali_spec *spec, struct shoali_word_model *model)
{
    shoal_status status;
    double *score;
    int64_t unk;
    const uint8_t *type;
    struct shoali_bpe *bpe = shoali_arena_alloc(spec->arena, sizeof *bpe);
    model->state = bpe;
    if (!bpe)
        return SHOAL_ENOMEM;
    bpe->vocab = &model->vocab;
    bpe->prefix = bpe->suffix = "";
    SHOAL_TRY(status, shoali_spec_int(spec, "unk_id", -1, 0, SHOALI_ID_MAX, &unk), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "byte_fallback", false, &bpe->byte_fallback), done);
    SHOAL_TRY(status, shoali_word_model_read_scores(spec, model, &score), done);
    if (unk >= model->vocab.size)
        return shoali_spec_fail(spec, "`unk_id` is %lld, outside the vocabulary of %d",
                                (long long)unk, model->vocab.size);
    bpe->unk = (int32_t)unk;
    SHOAL_TRY(status, shoali_sentencepiece_types(spec, model, &type), done);
    SHOAL_TRY(status, rank_scores(spec, model, score, type, &bpe->rank), done);
    shoali_word_model_byte_tokens(model, bpe->byte_id);
done:
    return status;
}

/* Characters, and the user's pieces, which stay as they are. */
static int64_t begin(const struct shoali_bpe *bpe, const struct shoali_trie *user, const char *word,
                     size_t bytes, struct shoali_symbol *symbol)
{
    int64_t count = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        int32_t id = user ? shoali_trie_longest(user, word + at, bytes - at, &length) : -1;
        if (id >= 0) {
            id |= SHOALI_SYMBOL_FROZEN;
        } else {
            length = (size_t)shoali_length(word[at]);
            id = shoali_vocab_find(bpe->vocab, word + at, length);
            if (id < 0 || bpe->rank[id] == SHOALI_RANK_NONE)
                id = SHOALI_SYMBOL_UNKNOWN;
        }
        symbol[count++] = (struct shoali_symbol){.id = id, .start = (uint32_t)at};
    }
    symbol[count].start = (uint32_t)bytes;
    return count;
}

static shoal_status encode(const struct shoali_word_model *model, struct shoali_run *run,
                           const char *word, size_t bytes, struct shoali_ids *ids)
{
    const struct shoali_bpe *bpe = model->state;
    if (bytes > UINT32_MAX / 2)
        return SHOAL_FAIL(SHOAL_EINVAL, "a text of %zu bytes is too long", bytes);
    struct shoali_symbol *symbol =
        shoali_scratch_symbols(run->scratch, (5 * bytes + 2) * sizeof *symbol);
    if (!symbol)
        return SHOAL_ENOMEM;
    int64_t count = begin(bpe, run->pipeline->user, word, bytes, symbol);
    count = shoali_bpe_merge(bpe, word, symbol, count);
    bool was_unknown = false;
    for (int64_t i = 0; i < count; i++) {
        const bool unknown = symbol[i].id & SHOALI_SYMBOL_UNKNOWN;
        if (!unknown) {
            shoali_ids_add(ids, symbol[i].id & ~SHOALI_SYMBOL_FROZEN);
        } else if (bpe->byte_fallback) {
            for (uint32_t b = symbol[i].start; b < symbol[i + 1].start; b++) {
                const int32_t id = bpe->byte_id[(unsigned char)word[b]];
                shoali_ids_add(ids, id >= 0 ? id : bpe->unk);
            }
        } else if (!was_unknown) {
            shoali_ids_add(ids, bpe->unk);
        }
        was_unknown = unknown;
    }
    return SHOAL_OK;
}

static int32_t byte_id(const struct shoali_word_model *model, unsigned char byte)
{
    const struct shoali_bpe *bpe = model->state;
    return bpe->byte_fallback ? bpe->byte_id[byte] : -1;
}

const struct shoali_word_model_kind shoali_word_model_sentencepiece_bpe = {
    .type = "SentencePieceBPE",
    .create = create,
    .encode = encode,
    .byte_id = byte_id,
};
