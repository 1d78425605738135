/* tokenizer - Megatron's flags that name a tokenizer, of every subcommand that encodes text.
 *
 * Tokenizers of the types byte and char are not in files: data sets and preprocessing make them
 * from the type's name. All others are read.
 */
#ifndef SHOAL_TOKENIZER_FLAGS_H
#define SHOAL_TOKENIZER_FLAGS_H

#include "base/config_table.h"
#include "shoal/tokenizer.h"

struct tokenizer_flags {
    const char *type; /* NULL: not given */
    const char *model, *vocab_file, *merge_file, *tiktoken_pattern;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
extern const struct shoali_section tokenizer_flags_section;

/* The tokenizer of the flags where it is read from files, owned; NULL: byte or char. vocab_size: of
 * the types that are told it, 0 where there is no flag. SHOAL_EINVAL: flags that exclude each
 * other. */
SHOAL_CHECKED shoal_status tokenizer_flags_load(const struct tokenizer_flags *flags,
                                                int64_t vocab_size, shoal_tokenizer **tokenizer);
/* --vocab-size is an argument of the tokenizer, not a size that data may contradict. */
bool tokenizer_flags_take_vocab_size(const struct tokenizer_flags *flags);

#endif
