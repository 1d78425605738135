#include "tokenizer_flags.h"

#include "base/error.h"

#include <string.h>

#define O(member) offsetof(struct tokenizer_flags, member)

static const struct shoali_option rows[] = {
    {.key = "tokenizer-type",
     .type = SHOALI_STRING,
     .offset = O(type),
     .help = "byte, char (one token per character of the text), GPT2BPETokenizer (--vocab-file, "
             "--merge-file), HuggingFaceTokenizer, SentencePieceTokenizer, TikTokenizer "
             "(--tokenizer-model), NullTokenizer (--vocab-size); default: byte, and of data files "
             "what their .tokens.json says"},
    {.key = "tokenizer-model",
     .type = SHOALI_STRING,
     .offset = O(model),
     .help = "file or folder of the tokenizer: tokenizer.json, a SentencePiece model, tiktoken "
             "ranks"},
    {.key = "vocab-file",
     .type = SHOALI_STRING,
     .offset = O(vocab_file),
     .help = "vocab.json of GPT2BPETokenizer, vocab.txt of BertWordPieceLowerCase"},
    {.key = "merge-file",
     .type = SHOALI_STRING,
     .offset = O(merge_file),
     .help = "merges.txt of GPT2BPETokenizer"},
    {.key = "tiktoken-pattern",
     .type = SHOALI_STRING,
     .offset = O(tiktoken_pattern),
     .help = "how TikTokenizer cuts words: v1, v2, gpt2, cl100k, o200k"},
};
const struct shoali_section tokenizer_flags_section = {.name = "tokenizer",
                                                       .rows = SHOALI_ROWS(rows),
                                                       .struct_bytes =
                                                           sizeof(struct tokenizer_flags),
                                                       .given_offset = O(given)};

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
