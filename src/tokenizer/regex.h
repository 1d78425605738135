/* regex - the format's patterns, through PCRE2 with its JIT.
 *
 * The format's patterns are written for Oniguruma (tokenizer.json) or Rust (tiktoken). Where these
 * mean another set of characters than PCRE2 by \s, \w and \d, the pattern is rewritten: \s is
 * White_Space, \w is alphabetic, marks, decimal numbers and connectors, \d is \p{Nd}.
 */
#ifndef SHOALI_TOKENIZER_REGEX_H
#define SHOALI_TOKENIZER_REGEX_H

#include "base/base.h"

struct shoali_regex;
/* SHOAL_ECONFIG says where the pattern is wrong. `literal`: the pattern is a text to be found. */
SHOAL_CHECKED shoal_status shoali_regex_create(const char *pattern, bool literal,
                                               struct shoali_regex **regex);
void shoali_regex_destroy(struct shoali_regex *regex);              /* NULL is fine */
const char *shoali_regex_pattern(const struct shoali_regex *regex); /* as it was given */

/* What matching needs; of one thread at a time, for all patterns. */
struct shoali_matcher;
SHOAL_CHECKED shoal_status shoali_matcher_create(struct shoali_matcher **matcher);
void shoali_matcher_destroy(struct shoali_matcher *matcher); /* NULL is fine */
/* All matches of text that is UTF-8, one after the other from `at` on: an empty one that begins
 * where the last one ended is none. SHOAL_END: there is no more. SHOAL_EINVAL: the pattern needs
 * more steps than allowed. */
struct shoali_matches {
    size_t at, last_end;
    bool any;
};
SHOAL_CHECKED shoal_status shoali_regex_next(const struct shoali_regex *regex,
                                             struct shoali_matcher *matcher, const char *text,
                                             size_t bytes, struct shoali_matches *matches,
                                             size_t *begin, size_t *end);

#endif
