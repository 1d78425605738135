#include "flags/tokenizer.h"

#include "base/error.h"

#include <string.h>

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct tokenizer_flags, key, type, member, __VA_ARGS__)

static const struct shoali_option rows[] = {
    OPTION("tokenizer-type", STRING, type, .flags = SHOALI_OPTION_COMMON,
           .help = "type: byte, char (one token per character), HuggingFaceTokenizer, "
                   "SentencePieceTokenizer, TikTokenizer (--tokenizer-model), GPT2BPETokenizer "
                   "(--vocab-file, --merge-file), NullTokenizer (--vocab-size); default: byte for "
                   "text, as .tokens.json says for data files"),
    OPTION("tokenizer-model", STRING, model, .flags = SHOALI_OPTION_COMMON | SHOALI_OPTION_BY_RANK,
           .help =
               "file or folder of the tokenizer: tokenizer.json, a SentencePiece model, tiktoken "
               "ranks"),
    OPTION("vocab-file", STRING, vocab_file, .flags = SHOALI_OPTION_BY_RANK,
           .help = "vocab.json of GPT2BPETokenizer, vocab.txt of BertWordPieceLowerCase"),
    OPTION("merge-file", STRING, merge_file, .flags = SHOALI_OPTION_BY_RANK,
           .help = "merges.txt of GPT2BPETokenizer"),
    OPTION(
        "tiktoken-pattern", STRING, tiktoken_pattern,
        .help =
            "pattern that splits text into words for TikTokenizer: v1, v2, gpt2, cl100k or o200k"),
};
const struct shoali_section tokenizer_flags_section = {
    .name = "tokenizer",
    .rows = SHOALI_ROWS(rows),
    .struct_bytes = sizeof(struct tokenizer_flags),
    .given_offset = offsetof(struct tokenizer_flags, given)};

static bool is_type(const struct tokenizer_flags *flags, const char *type)
{
    return flags->type && strcmp(flags->type, type) == 0;
}

shoal_status tokenizer_flags_load(const struct tokenizer_flags *flags, int64_t vocab_size,
                                  shoal_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    if (flags->type && !is_type(flags, "byte") && !is_type(flags, "char"))
        return shoal_tokenizer_load(&(shoal_tokenizer_args){.type = flags->type,
                                                            .path = flags->model,
                                                            .vocab_file = flags->vocab_file,
                                                            .merge_file = flags->merge_file,
                                                            .vocab_size = vocab_size,
                                                            .pattern = flags->tiktoken_pattern},
                                    tokenizer);
    if (flags->model || flags->vocab_file || flags->merge_file)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--tokenizer-type %s reads no files: name the type of the files, such as "
                          "HuggingFaceTokenizer or GPT2BPETokenizer",
                          flags->type ? flags->type : "byte");
    return SHOAL_OK;
}

bool tokenizer_flags_take_vocab_size(const struct tokenizer_flags *flags)
{
    return is_type(flags, "NullTokenizer") || is_type(flags, "TikTokenizer");
}
