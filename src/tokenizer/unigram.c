/* Unigram: of all ways to cut a word into pieces the one of the largest sum of scores (Viterbi).
 *
 *   Unigram               as `tokenizers`: scores are doubles, what is unknown is joined
 *   SentencePieceUnigram  as SentencePiece: floats, summed over the whole text; pieces of the
 * user's
 *                         are always taken, control pieces never
 *
 * Ties go to the piece that begins earlier, which is the order of comparison in both. */
#include "tokenizer/unigram.h"

#include "base/plain.h"

#include <float.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN_PENALTY = 10 };

struct unigram {
    struct shoali_trie trie;
    double *score;       /* as doubles, also where floats are added */
    const uint8_t *type; /* SentencePiece: of each piece; NULL */
    double unknown;      /* score of what is in no piece */
    double best;         /* SentencePiece: the largest score */
    int32_t unk;         /* -1 none */
    int32_t byte_id[256];
    bool byte_fallback, has_bytes, floats;
};

/* A score as `tokenizers` reads it: the digits as an integer, divided by a power of ten, which is
 * up to two units off the number that they say. Ties between ways depend on it. The digits are
 * those of the shortest text of the number, which is how such files are written. */
static double as_read(double score)
{
    char text[40];
    int digits = 15;
    do
        shoali_snprintf(text, sizeof text, "%.*e", digits - 1, score);
    while (++digits <= 17 && shoali_strtod(text, NULL) != score);
    double whole = 0, power = 1;
    uint64_t number = 0;
    int places = 0;
    const char *at = text + (*text == '-');
    for (; *at && *at != 'e'; at++)
        if (*at != '.')
            number = 10 * number + (uint64_t)(*at - '0');
    for (const char *dot = strchr(text, '.'); dot && dot[1] != 'e'; dot++)
        places++;
    int exponent = *at ? atoi(at + 1) - places : 0;
    while (number > 0 && number % 10 == 0 && exponent < 0) {
        number /= 10;
        exponent++;
    }
    whole = (double)number;
    snprintf(text, sizeof text, "1e%d", exponent < 0 ? -exponent : exponent);
    power = shoali_strtod(text, NULL);
    whole = exponent < 0 ? whole / power : whole * power;
    return score < 0 ? -whole : whole;
}

static double user_score(const struct unigram *unigram, size_t bytes)
{
    return (double)(float)((double)((float)bytes * (float)unigram->best) - 0.1);
}

static shoal_status fill(struct shoali_word_model *model, struct unigram *unigram)
{
    shoal_status status;
    double least = DBL_MAX;
    unigram->best = -DBL_MAX;
    SHOAL_TRY(status, shoali_trie_init(&unigram->trie), done);
    for (int32_t id = 0; id < model->vocab.size; id++) {
        const struct shoali_string *string = &model->vocab.string[id];
        const bool normal = !unigram->type || unigram->type[id] == SHOALI_PIECE_NORMAL;
        if (normal && unigram->score[id] < least)
            least = unigram->score[id];
        if (normal && unigram->score[id] > unigram->best)
            unigram->best = unigram->score[id];
        if (normal || unigram->type[id] == SHOALI_PIECE_USER)
            SHOAL_TRY(status, shoali_trie_add(&unigram->trie, string->text, string->bytes, id),
                      done);
    }
    if (least == DBL_MAX) /* no normal piece */
        least = unigram->best = 0;
    unigram->unknown =
        unigram->floats ? (double)((float)least - (float)UNKNOWN_PENALTY) : least - UNKNOWN_PENALTY;
    shoali_word_model_byte_tokens(model, unigram->byte_id);
    for (int32_t id = 0; unigram->type && id < model->vocab.size; id++)
        if (unigram->type[id] == SHOALI_PIECE_USER)
            unigram->score[id] = user_score(unigram, model->vocab.string[id].bytes);
    unigram->has_bytes = true;
    for (int byte = 0; byte < 256; byte++)
        unigram->has_bytes = unigram->has_bytes && unigram->byte_id[byte] >= 0;
done:
    return status;
}

static shoal_status create(const struct shoali_spec *spec, struct shoali_word_model *model,
                           bool sentencepiece)
{
    shoal_status status;
    double *score;
    int64_t unk;
    struct unigram *unigram = shoali_arena_alloc(spec->arena, sizeof *unigram);
    model->state = unigram;
    if (!unigram)
        return SHOAL_ENOMEM;
    unigram->floats = sentencepiece;
    SHOAL_TRY(status, shoali_spec_int(spec, "unk_id", -1, -1, SHOALI_ID_MAX, &unk), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "byte_fallback", false, &unigram->byte_fallback),
              done);
    SHOAL_TRY(status, shoali_word_model_read_scores(spec, model, &score), done);
    unigram->score = score;
    if (unk >= model->vocab.size)
        return shoali_spec_fail(spec, "`unk_id` is %lld, outside the vocabulary of %d",
                                (long long)unk, model->vocab.size);
    unigram->unk = (int32_t)unk;
    for (int32_t id = 0; !sentencepiece && id < model->vocab.size; id++)
        score[id] = as_read(score[id]);
    if (sentencepiece)
        SHOAL_TRY(status, shoali_sentencepiece_types(spec, model, &unigram->type), done);
    SHOAL_TRY(status, fill(model, unigram), done);
done:
    return status;
}

static shoal_status create_unigram(const struct shoali_spec *spec, struct shoali_word_model *model)
{
    return create(spec, model, false);
}

static shoal_status create_sentencepiece(const struct shoali_spec *spec,
                                         struct shoali_word_model *model)
{
    return create(spec, model, true);
}

static void destroy(struct shoali_word_model *model)
{
    struct unigram *unigram = model->state;
    if (unigram)
        shoali_trie_fini(&unigram->trie);
}

/* ---- the best way ---- */

struct node {
    double score; /* of the best way to here */
    uint32_t from;
    int32_t id; /* of the last piece; -1: nothing ends here */
};

static inline double sum(bool floats, double a, double b)
{
    return floats ? (double)((float)a + (float)b) : a + b;
}

static void reach(struct node *node, size_t from, int32_t id, double score)
{
    if (node->id == -1 || score > node->score)
        *node = (struct node){.score = score, .from = (uint32_t)from, .id = id};
}

/* Where nothing is known, one character is. `unk` -2 stands for it where there is no token. */
static inline void find_way(const struct unigram *unigram, const char *word, size_t bytes,
                            bool floats, struct node *node)
{
    const int32_t unk = unigram->unk >= 0 ? unigram->unk : -2;
    for (size_t i = 0; i <= bytes; i++)
        node[i] = (struct node){.id = -1};
    for (size_t at = 0, length; at < bytes; at += length) {
        const double here = node[at].score;
        bool single = false;
        length = (size_t)shoali_length(word[at]);
        const struct shoali_trie_edge *edge = NULL;
        for (size_t i = at; i < bytes && (!edge || edge->goes_on); i++) {
            edge =
                shoali_trie_step(&unigram->trie, edge ? edge->target : 0, (unsigned char)word[i]);
            if (!edge->target)
                break;
            if (edge->value < 0)
                continue;
            reach(&node[i + 1], at, edge->value, sum(floats, unigram->score[edge->value], here));
            single = single || i + 1 - at == length;
        }
        if (!single)
            reach(&node[at + length], at, unk, sum(floats, unigram->unknown, here));
    }
}

/* The ids of text that is unknown, or of a piece. */
static shoal_status put(const struct shoali_word_model *model, const char *text, size_t bytes,
                        int32_t id, struct shoali_ids *ids)
{
    const struct unigram *unigram = model->state;
    if (id >= 0 && id != unigram->unk) {
        shoali_ids_add(ids, id);
        return SHOAL_OK;
    }
    const int32_t whole = unigram->type ? -1 : shoali_vocab_find(&model->vocab, text, bytes);
    if (whole >= 0) {
        shoali_ids_add(ids, whole);
        return SHOAL_OK;
    }
    bool all = unigram->byte_fallback;
    for (size_t i = 0; all && i < bytes; i++)
        all = unigram->byte_id[(unsigned char)text[i]] >= 0;
    for (size_t i = 0; all && i < bytes; i++)
        shoali_ids_add(ids, unigram->byte_id[(unsigned char)text[i]]);
    if (all)
        return SHOAL_OK;
    if (unigram->unk < 0)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "`%.*s` is in no piece of the vocabulary, which has no token for unknown text",
            (int)(bytes > 60 ? 60 : bytes), text);
    shoali_ids_add(ids, unigram->unk);
    return SHOAL_OK;
}

static shoal_status encode(const struct shoali_word_model *model, struct shoali_run *run,
                           const char *word, size_t bytes, struct shoali_ids *ids)
{
    shoal_status status = SHOAL_OK;
    const struct unigram *unigram = model->state;
    if (bytes > UINT32_MAX - 2)
        return SHOAL_FAIL(SHOAL_EINVAL, "a word has %zu bytes, which is too long", bytes);
    struct node *node = shoali_scratch_symbols(run->scratch, (bytes + 1) * sizeof *node);
    if (!node)
        return SHOAL_ENOMEM;
    if (unigram->floats)
        find_way(unigram, word, bytes, true, node);
    else
        find_way(unigram, word, bytes, false, node);
    /* The way is known backwards: each node on it is made to say where the way goes on. */
    uint32_t next = (uint32_t)bytes;
    int32_t id = node[bytes].id;
    for (uint32_t at = node[bytes].from; next > 0;) {
        const struct node here = node[at];
        node[at].from = next;
        node[at].id = id;
        next = at;
        at = here.from;
        id = here.id;
    }
    for (size_t at = 0, end; at < bytes; at = end) {
        end = node[at].from;
        id = node[at].id;
        const bool unknown = id == -2 || id == unigram->unk;
        while (unknown && id != -2 && end < bytes && node[end].id == id)
            end = node[end].from;
        SHOAL_TRY(status, put(model, word + at, end - at, id, ids), done);
    }
done:
    return status;
}

static int32_t byte_id(const struct shoali_word_model *model, unsigned char byte)
{
    const struct unigram *unigram = model->state;
    return unigram->byte_fallback ? unigram->byte_id[byte] : -1;
}

const struct shoali_word_model_kind shoali_word_model_unigram = {
    .type = "Unigram",
    .create = create_unigram,
    .destroy = destroy,
    .encode = encode,
    .byte_id = byte_id,
};
const struct shoali_word_model_kind shoali_word_model_sentencepiece_unigram = {
    .type = "SentencePieceUnigram",
    .create = create_sentencepiece,
    .destroy = destroy,
    .encode = encode,
    .byte_id = byte_id,
};
