/* Samples of masked tokens. */
#include "data/masked.h"
#include "data/indexed/indexed.h"

#include <math.h>
#include <string.h>

/* ---- what is known of the tokens ---- */

static shoal_status find_token(const shoal_tokenizer *tokenizer, const char *token, int32_t *id)
{
    struct shoali_tokenizer_facts facts;
    *id = shoali_data_tokenizers[0]->id(tokenizer, token);
    if (*id >= 0)
        return SHOAL_OK;
    shoali_data_tokenizers[0]->get_facts(tokenizer, &facts);
    return SHOAL_FAIL(
        SHOAL_EINVAL,
        "the tokenizer `%s` of the data has no token %s, which masked samples need: use a "
        "tokenizer of BERT, such as --tokenizer-type BertWordPieceLowerCase --vocab-file vocab.txt",
        facts.name, token);
}

static shoal_status find_inside(struct shoali_masked *masked, const shoal_tokenizer *tokenizer)
{
    struct shoali_tokenizer_facts facts;
    shoali_data_tokenizers[0]->get_facts(tokenizer, &facts);
    masked->inside = shoali_calloc((size_t)masked->vocab_size / 8 + 1, 1, "the parts of words");
    if (!masked->inside)
        return SHOAL_ENOMEM;
    for (int32_t id = 0; id < facts.vocab_size && id < masked->vocab_size; id++) {
        const char *text = shoali_data_tokenizers[0]->token(tokenizer, id);
        if (text && strncmp(text, "##", 2) == 0)
            masked->inside[id >> 3] |= (uint8_t)(1u << (id & 7));
    }
    return SHOAL_OK;
}

/* The sums of probabilities that are as 1, 1/2, 1/3, rounded as NumPy rounds them: made to have the
 * sum 1, again in the choice, added up, and divided by the last sum. */
static void find_lengths(struct shoali_masked *masked)
{
    double p[SHOALI_MASKED_NGRAM], sum = 0;
    for (int i = 0; i < SHOALI_MASKED_NGRAM; i++)
        sum += p[i] = 1.0 / (double)(i + 1);
    for (int round = 0; round < 2; round++) {
        double next = 0;
        for (int i = 0; i < SHOALI_MASKED_NGRAM; i++)
            next += p[i] /= sum;
        sum = next;
    }
    sum = 0;
    for (int i = 0; i < SHOALI_MASKED_NGRAM; i++)
        masked->below[i] = sum += p[i];
    for (int i = 0; i < SHOALI_MASKED_NGRAM; i++)
        masked->below[i] /= sum;
}

shoal_status shoali_masked_init(struct shoali_masked *masked, const shoal_tokenizer *tokenizer)
{
    shoal_status status = SHOAL_OK;
    find_lengths(masked);
    masked->inside = NULL;
    if (!tokenizer) {
        masked->pad = 0;
        masked->cls = 1;
        masked->sep = 2;
        masked->mask = 3;
        return SHOAL_OK;
    }
    SHOAL_TRY(status, find_token(tokenizer, "[CLS]", &masked->cls), done);
    SHOAL_TRY(status, find_token(tokenizer, "[SEP]", &masked->sep), done);
    SHOAL_TRY(status, find_token(tokenizer, "[MASK]", &masked->mask), done);
    SHOAL_TRY(status, find_token(tokenizer, "[PAD]", &masked->pad), done);
    SHOAL_TRY(status, find_inside(masked, tokenizer), done);
done:
    return status;
}

void shoali_masked_fini(struct shoali_masked *masked)
{
    shoali_free(masked->inside);
    masked->inside = NULL;
}

/* ---- the two texts ---- */

struct span {
    const int32_t *token;
    int64_t count;
};

static bool draw_half(struct shoali_mt19937 *generator)
{
    return shoali_mt19937_real(generator) < 0.5;
}

/* Text A and B, cut to the target. */
static bool take_texts(const struct shoali_masked *masked, const struct shoali_masked_text *text,
                       struct shoali_mt19937 *generator, struct span span[2])
{
    const int64_t all = text->end[text->sentence_count - 1];
    int64_t pivot = text->sentence_count;
    bool changed = false;
    if (masked->pairs) {
        pivot = 1;
        if (text->sentence_count >= 3)
            pivot += (int64_t)shoali_mt19937_draw(generator, (uint64_t)text->sentence_count - 2);
        changed = draw_half(generator);
    }
    const int64_t cut = text->end[pivot - 1];
    span[changed] = (struct span){text->tokens, cut};
    span[!changed] = (struct span){text->tokens + cut, all - cut};
    while (span[0].count + span[1].count > text->target) {
        struct span *longer = &span[span[0].count > span[1].count ? 0 : 1];
        longer->token += draw_half(generator);
        longer->count--;
    }
    return changed;
}

/* Returns the number of tokens. */
static int64_t join_texts(const struct shoali_masked *masked, const struct span span[2],
                          const struct shoali_masked_sample *sample)
{
    int64_t at = 0;
    sample->tokens[at++] = masked->cls;
    for (int b = 0; b < 2; b++) {
        if (b == 1 && span[1].count == 0)
            break;
        const int64_t begin = at;
        memcpy(sample->tokens + at, span[b].token, (size_t)span[b].count * sizeof(int32_t));
        at += span[b].count;
        sample->tokens[at++] = masked->sep;
        for (int64_t i = b == 0 ? 0 : begin; i < at; i++)
            sample->types[i] = b;
    }
    return at;
}

/* ---- hiding ---- */

struct words {
    int32_t *position; /* of tokens that may be hidden, in order */
    int32_t *begin;    /* of each word in `position`, and the last one's end */
    int32_t *order;
    int64_t count;
};

static bool is_inside(const struct shoali_masked *masked, int32_t token)
{
    return masked->inside && masked->inside[token >> 3] >> (token & 7) & 1;
}

static void find_words(const struct shoali_masked *masked, const int32_t *token, int64_t count,
                       struct words *words)
{
    int32_t positions = 0;
    words->count = 0;
    for (int32_t i = 0; i < count; i++) {
        if (token[i] == masked->cls || token[i] == masked->sep)
            continue;
        if (words->count == 0 || !is_inside(masked, token[i]))
            words->begin[words->count++] = positions;
        words->position[positions++] = i;
    }
    words->begin[words->count] = positions;
    for (int32_t i = 0; i < words->count; i++)
        words->order[i] = i;
}

static int draw_run(const struct shoali_masked *masked, struct shoali_mt19937 *generator)
{
    const double real = shoali_mt19937_real(generator);
    int n = 0;
    while (n < SHOALI_MASKED_NGRAM - 1 && masked->below[n] <= real)
        n++;
    return n + 1;
}

static int32_t draw_token(const struct shoali_masked *masked, struct shoali_mt19937 *generator,
                          int32_t token)
{
    if (shoali_mt19937_real(generator) < 0.8)
        return masked->mask;
    if (draw_half(generator))
        return token;
    return (int32_t)shoali_mt19937_draw(generator, (uint64_t)masked->vocab_size - 1);
}

/* Positions [*first, end) of the longest run at the word with which no more than `most` are hidden;
 * empty: there is none. */
static int32_t choose_run(const struct words *words, int32_t word, int n, double hidden,
                          double most, int32_t *first)
{
    *first = words->begin[word];
    for (; n > 0; n--) {
        const int64_t last = word + n < words->count ? word + n : words->count;
        if (hidden + (double)(words->begin[last] - *first) <= most)
            return words->begin[last];
    }
    return *first;
}

/* Whether none is hidden yet. */
static bool is_free(const struct words *words, int32_t first, int32_t end, const int32_t *targets)
{
    for (int32_t i = first; i < end; i++)
        if (targets[words->position[i]] >= 0)
            return false;
    return true;
}

static void hide(const struct shoali_masked *masked, struct shoali_mt19937 *generator,
                 const struct words *words, double most, const struct shoali_masked_sample *sample)
{
    double hidden = 0;
    shoali_mt19937_shuffle_i32(generator, words->order, words->count);
    for (int64_t w = 0; w < words->count && hidden < most; w++) {
        int32_t first;
        const int n = draw_run(masked, generator);
        const int32_t end = choose_run(words, words->order[w], n, hidden, most, &first);
        if (!is_free(words, first, end, sample->targets))
            continue;
        for (int32_t i = first; i < end; i++) {
            const int32_t at = words->position[i], token = sample->tokens[at];
            sample->tokens[at] = draw_token(masked, generator, token);
            sample->targets[at] = token;
            hidden++;
        }
    }
}

void shoali_masked_empty(const struct shoali_masked *masked,
                         const struct shoali_masked_sample *sample)
{
    for (int64_t t = 0; t < masked->seq_length; t++) {
        sample->tokens[t] = masked->pad;
        sample->types[t] = 0;
        sample->targets[t] = -1;
    }
    *sample->key_count = 1; /* attention to nothing is no mean */
    *sample->is_random = -1;
}

shoal_status shoali_masked_make(const struct shoali_masked *masked,
                                const struct shoali_masked_text *text,
                                const struct shoali_masked_sample *sample)
{
    struct shoali_mt19937 generator;
    struct span span[2];
    SHOAL_ASSERT(text->target >= 2 && text->target + SHOALI_MASKED_EXTRA <= masked->seq_length);
    const size_t room = (size_t)masked->seq_length + 1;
    int32_t *memory = shoali_malloc(3 * room * sizeof *memory, "the words of a sample");
    if (!memory)
        return SHOAL_ENOMEM;
    struct words words = {memory, memory + room, memory + 2 * room, 0};
    shoali_mt19937_init(&generator, text->seed);
    shoali_masked_empty(masked, sample);
    *sample->is_random = take_texts(masked, text, &generator, span);
    const int64_t count = join_texts(masked, span, sample);
    *sample->key_count = (int32_t)count;
    find_words(masked, sample->tokens, count, &words);
    const double rounded = rint((double)count * masked->mask_prob);
    hide(masked, &generator, &words,
         fmin(masked->mask_prob * (double)text->target, rounded > 1 ? rounded : 1), sample);
    shoali_free(memory);
    return SHOAL_OK;
}
