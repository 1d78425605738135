/* The models that look words up: WordPiece, by the longest beginning, and WordLevel, as a whole. */
#include "tokenizer/pipeline.h"

#include <string.h>

struct words {
    const char *unk_token, *prefix;
    int64_t max_chars;
    int32_t unk;             /* -1: not in the vocabulary */
    struct shoali_trie trie; /* WordPiece: of the vocabulary */
    uint32_t prefix_node;    /* where `prefix` ends in it; 0: no token has it */
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

static shoal_status create_piece(const struct shoali_spec *spec, struct shoali_word_model *model)
{
    shoal_status status;
    SHOAL_TRY(status, create_words(spec, model), done);
    struct words *words = model->state;
    SHOAL_TRY(status, shoali_trie_init(&words->trie), done);
    for (int32_t id = 0; id < model->vocab.size; id++) {
        const struct shoali_string *string = &model->vocab.string[id];
        if (string->text)
            SHOAL_TRY(status, shoali_trie_add(&words->trie, string->text, string->bytes, id), done);
    }
    words->prefix_node = shoali_trie_node(&words->trie, words->prefix, strlen(words->prefix));
done:
    return status;
}

static void destroy_piece(struct shoali_word_model *model)
{
    struct words *words = model->state;
    if (words)
        shoali_trie_fini(&words->trie);
}

static int64_t characters(const char *word, size_t bytes)
{
    int64_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)word[i] & 0xc0) != 0x80;
    return count;
}

static shoal_status encode_piece(const struct shoali_word_model *model, struct shoali_run *run,
                                 const char *word, size_t bytes, struct shoali_ids *ids)
{
    const struct words *words = model->state;
    (void)run;
    if (characters(word, bytes) > words->max_chars)
        return add_unk(words, word, bytes, ids);
    const int64_t before = ids->count;
    for (size_t start = 0, used = 0; start < bytes; start += used) {
        const bool goes_on = start > 0 && *words->prefix;
        const int32_t id =
            goes_on && !words->prefix_node
                ? -1
                : shoali_trie_longest_from(&words->trie, goes_on ? words->prefix_node : 0,
                                           word + start, bytes - start, &used);
        if (id < 0) { /* then the whole word is unknown */
            ids->count = before;
            return add_unk(words, word, bytes, ids);
        }
        shoali_ids_add(ids, id);
    }
    return SHOAL_OK;
}

const struct shoali_word_model_kind shoali_word_model_wordpiece = {
    .type = "WordPiece", .create = create_piece, .destroy = destroy_piece, .encode = encode_piece};
const struct shoali_word_model_kind shoali_word_model_wordlevel = {
    .type = "WordLevel", .create = create_words, .encode = encode_level};
