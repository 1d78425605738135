/* Where sentences end. */
#include "preprocess/preprocess.h"

#include <string.h>
#include <utf8proc.h>

#define WORD_BYTES 16 /* of a word that is looked up */

/* Words that go on behind their period. */
static const char *const abbreviations[] = {
    "mr",   "mrs", "ms",  "dr",  "prof", "rev", "hon", "gen", "col", "maj", "capt",   "cmdr",
    "lt",   "sgt", "cpl", "adm", "gov",  "sen", "rep", "st",  "mt",  "ft",  "messrs", "mme",
    "mlle", "sr",  "sra", "hr",  "fr",   "vs",  "cf",  "al",  "viz", "ca",  "approx", "bzw",
};
/* ... when a number follows. */
static const char *const before_numbers[] = {
    "no",   "nos", "nr",  "vol", "vols", "fig", "figs", "eq",  "eqs", "sec",   "ch",  "p",
    "pp",   "art", "par", "ex",  "jan",  "feb", "mar",  "apr", "jun", "jul",   "aug", "sep",
    "sept", "oct", "nov", "dec", "abb",  "bd",  "s",    "n",   "c",   "circa",
};

static uint32_t decode(const char *text, size_t bytes, size_t *length)
{
    uint32_t code_point = 0;
    const int got = shoali_utf8_decode(text, bytes, &code_point);
    *length = got > 0 ? (size_t)got : 1; /* the reader of records has seen to it that it is UTF-8 */
    return code_point;
}

static bool is_space(uint32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x85 || c == 0x2028 || c == 0x2029 ||
           utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ZS;
}

/* Ends a sentence without a space behind it. */
static bool is_wide_end(uint32_t c)
{
    return c == 0x3002 || c == 0xff01 || c == 0xff1f || c == 0xff61; /* 。！？｡ */
}

static bool is_end(uint32_t c)
{
    return c == '.' || c == '!' || c == '?' || c == 0x2026 || c == 0x203c || c == 0x203d ||
           c == 0x0964 || c == 0x061f || c == 0x06d4 || is_wide_end(c); /* … ‼ ‽ । ؟ ۔ */
}

/* Quotes and brackets that close; those that do both do so here. */
static bool is_closer(uint32_t c)
{
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return c == '"' || c == '\'' || kind == UTF8PROC_CATEGORY_PE || kind == UTF8PROC_CATEGORY_PF;
}

static bool is_opener(uint32_t c)
{
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return c == '"' || c == '\'' || kind == UTF8PROC_CATEGORY_PS || kind == UTF8PROC_CATEGORY_PI;
}

static bool is_letter(uint32_t c)
{
    const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

static bool is_number(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

static bool is_listed(const char *const *list, size_t count, const char *word, size_t bytes)
{
    char lower[WORD_BYTES];
    if (bytes >= sizeof lower)
        return false;
    for (size_t i = 0; i < bytes; i++)
        lower[i] = (char)(word[i] >= 'A' && word[i] <= 'Z' ? word[i] - 'A' + 'a' : word[i]);
    lower[bytes] = '\0';
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], lower) == 0)
            return true;
    return false;
}
#define LISTED(list, word, bytes) is_listed((list), sizeof(list) / sizeof((list)[0]), word, bytes)

/* The word that ends at `end`, without what opens before it. */
static size_t word_begin(const char *text, size_t begin, size_t end)
{
    size_t at = begin, word = begin, length;
    /* forward, because UTF-8 is read that way; sentences are short */
    for (; at < end; at += length) {
        const uint32_t c = decode(text + at, end - at, &length);
        if (is_space(c) || (at == word && is_opener(c)))
            word = at + length;
    }
    return word;
}

/* "e.g", "U.S", "Ph.D": periods between parts of at most two letters. */
static bool has_periods_inside(const char *word, size_t bytes)
{
    size_t length, part = 0, most = 0;
    bool found = false;
    for (size_t i = 0; i < bytes; i += length) {
        const uint32_t c = decode(word + i, bytes - i, &length);
        if (c != '.' && !is_letter(c))
            return false;
        found = found || c == '.';
        part = c == '.' ? 0 : part + 1;
        most = part > most ? part : most;
    }
    return found && most <= 2;
}

/* Whether a single period behind text[begin, at) is one of an abbreviation. `next`: the first
 * character that follows, past quotes and brackets. */
static bool is_abbreviation(const char *text, size_t begin, size_t at, uint32_t next)
{
    size_t length;
    bool letters = false;
    for (size_t i = begin; i < at && !letters; i += length)
        letters = is_letter(decode(text + i, at - i, &length));
    if (!letters)
        return true; /* "1." at the beginning counts something */
    const size_t word = word_begin(text, begin, at), bytes = at - word;
    if (bytes == 0)
        return false;
    const uint32_t first = decode(text + word, bytes, &length);
    if (length == bytes && utf8proc_category((utf8proc_int32_t)first) == UTF8PROC_CATEGORY_LU)
        return true; /* an initial */
    return has_periods_inside(text + word, bytes) || LISTED(abbreviations, text + word, bytes) ||
           (is_number(next) && LISTED(before_numbers, text + word, bytes));
}

/* What follows a run of ends and closers: where the text goes on, and with what. */
struct after {
    size_t end;    /* of the run */
    size_t resume; /* of what follows it and the space between; `bytes` where nothing does */
    uint32_t next; /* its first character past openers; 0: nothing follows */
    int ends;      /* characters of the run that end */
    bool wide, spaced;
};

static struct after look_behind(const char *text, size_t bytes, size_t at)
{
    struct after after = {.end = at};
    size_t length, look;
    for (; after.end < bytes; after.end += length) {
        const uint32_t c = decode(text + after.end, bytes - after.end, &length);
        if (!is_end(c) && !is_closer(c))
            break;
        after.ends += is_end(c);
        after.wide = after.wide || is_wide_end(c);
    }
    for (after.resume = after.end; after.resume < bytes; after.resume += length)
        if (!is_space(decode(text + after.resume, bytes - after.resume, &length)))
            break;
    after.spaced = after.resume > after.end || after.end == bytes;
    for (look = after.resume; look < bytes; look += length) {
        after.next = decode(text + look, bytes - look, &length);
        if (!is_opener(after.next))
            break;
    }
    return after;
}

static bool ends_sentence(const struct shoali_sentences *sentences, size_t begin, size_t at,
                          const struct after *after)
{
    const char *text = sentences->text;
    if (after->wide || after->resume == sentences->bytes)
        return true;
    if (!after->spaced || utf8proc_category((utf8proc_int32_t)after->next) == UTF8PROC_CATEGORY_LL)
        return false;
    return !(text[at] == '.' && after->ends == 1 && is_abbreviation(text, begin, at, after->next));
}

/* The end of the space at `at`; whether a line in it is empty. */
static size_t pass_space(const struct shoali_sentences *sentences, size_t at, bool *paragraph)
{
    size_t length;
    int lines = 0;
    for (; at < sentences->bytes; at += length) {
        const uint32_t c = decode(sentences->text + at, sentences->bytes - at, &length);
        if (!is_space(c))
            break;
        lines += c == '\n';
        if (c == 0x2029)
            lines = 2;
    }
    *paragraph = lines > 1;
    return at;
}

bool shoali_sentence_next(struct shoali_sentences *sentences, size_t *begin, size_t *end)
{
    const size_t bytes = sentences->bytes, from = sentences->at;
    size_t length;
    bool paragraph;
    const size_t first = pass_space(sentences, from, &paragraph);
    size_t at = first, stop = bytes, resume = bytes;
    if (first == bytes)
        return false;
    while (at < bytes) {
        const uint32_t c = decode(sentences->text + at, bytes - at, &length);
        if (is_space(c)) {
            const size_t next = pass_space(sentences, at, &paragraph);
            if (paragraph || next == bytes) {
                stop = at;
                resume = next;
                break;
            }
            at = next;
        } else if (is_end(c)) {
            const struct after after = look_behind(sentences->text, bytes, at);
            if (ends_sentence(sentences, first, at, &after)) {
                stop = after.end;
                resume = after.resume;
                break;
            }
            at = after.end;
        } else {
            at += length;
        }
    }
    *begin = sentences->keep_space ? from : first;
    *end = sentences->keep_space ? resume : stop;
    sentences->at = resume;
    return true;
}
