/* The models that look words up: WordPiece, by the longest beginning, and WordLevel, as a whole. */
#include "tokenizer/pipeline.h"

#include <string.h>

struct words {
    const char *unk_token, *prefix;
    int64_t max_chars;
    int32_t unk; /* -1: not in the vocabulary */
};

static shoal_status create_words(const struct shoali_spec *spec, struct shoali_word_model *model)
{
    shoal_status status;
    struct words *words = shoali_arena_alloc(spec->arena, sizeof *words);
    model->state = words;
    if (!words)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_text(spec, "unk_token", "[UNK]", &words->unk_token), done);
    SHOAL_TRY(status, shoali_spec_text(spec, "continuing_subword_prefix", "##", &words->prefix),
              done);
    SHOAL_TRY(
        status,
        shoali_spec_int(spec, "max_input_chars_per_word", 100, 0, INT32_MAX, &words->max_chars),
        done);
    SHOAL_TRY(status, shoali_word_model_read_vocab(spec, model), done);
    words->unk = shoali_vocab_find(&model->vocab, words->unk_token, strlen(words->unk_token));
done:
    return status;
}

static shoal_status add_unk(const struct words *words, const char *word, size_t bytes,
                            struct shoali_ids *ids)
{
    if (words->unk < 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the word `%.*s` is not in the vocabulary, and neither is its token for "
                          "unknown words, `%s`",
                          (int)(bytes > 60 ? 60 : bytes), word, words->unk_token);
    shoali_ids_add(ids, words->unk);
    return SHOAL_OK;
}

static shoal_status encode_level(const struct shoali_word_model *model, struct shoali_run *run,
                                 const char *word, size_t bytes, struct shoali_ids *ids)
{
    const int32_t id = shoali_vocab_find(&model->vocab, word, bytes);
    (void)run;
    if (id < 0)
        return add_unk(model->state, word, bytes, ids);
    shoali_ids_add(ids, id);
    return SHOAL_OK;
}

static int64_t characters(const char *word, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)word[i] & 0xc0) != 0x80;
    return count;
}

/* The longest part from `start` on that is a token; -1: none. `prefixed` is the rest of the word
 * behind the prefix of parts that go on. */
static int32_t longest(const struct shoali_vocab *vocab, const char *prefixed, size_t prefix_bytes,
                       size_t rest, size_t *used)
{
    for (size_t end = rest; end > 0;) {
        const int32_t id = shoali_vocab_find(vocab, prefixed, prefix_bytes + end);
        if (id >= 0) {
            *used = end;
            return id;
        }
        end--;
        while (end > 0 && ((unsigned char)prefixed[prefix_bytes + end] & 0xc0) == 0x80)
            end--;
    }
    return -1;
}

static shoal_status encode_piece(const struct shoali_word_model *model, struct shoali_run *run,
                                 const char *word, size_t bytes, struct shoali_ids *ids)
{
    const struct words *words = model->state;
    if (characters(word, bytes) > words->max_chars)
        return add_unk(words, word, bytes, ids);
    const size_t prefix_bytes = strlen(words->prefix);
    char *text = shoali_scratch_symbols(run->scratch, bytes + prefix_bytes);
    if (!text)
        return SHOAL_ENOMEM;
    const int64_t before = ids->count;
    for (size_t start = 0, used = 0; start < bytes; start += used) {
        const size_t prefix = start > 0 ? prefix_bytes : 0;
        memcpy(text, words->prefix, prefix);
        memcpy(text + prefix, word + start, bytes - start);
        const int32_t id = longest(&model->vocab, text, prefix, bytes - start, &used);
        if (id < 0) { /* then the whole word is unknown */
            ids->count = before;
            return add_unk(words, word, bytes, ids);
        }
        shoali_ids_add(ids, id);
    }
    return SHOAL_OK;
}

const struct shoali_word_model_kind shoali_word_model_wordpiece = {
    .type = "WordPiece", .create = create_words, .encode = encode_piece};
const struct shoali_word_model_kind shoali_word_model_wordlevel = {
    .type = "WordLevel", .create = create_words, .encode = encode_level};
