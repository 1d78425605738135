/* The printable characters that stand for bytes in byte-level vocabularies: a byte that is
 * printable in Latin-1 is itself, the others are U+0100 and on, in order. */
#include "tokenizer/pipeline.h"

static bool is_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           (byte >= 0xae && byte <= 0xff);
}

/* ByteLevel: each byte as a printable character. */
static uint32_t byte_char(unsigned char byte)
{
    if (is_itself(byte))
        return byte;
    /* 00-20 are 33 bytes, 7f-a0 are 34 */
    return 0x100u + (byte <= 0x20 ? byte : byte <= 0xa0 ? 33u + byte - 0x7fu : 67u);
}

int shoali_char_byte(uint32_t c)
{
    if (c < 0x100)
        return is_itself(c) ? (int)c : -1;
    if (c < 0x121)
        return (int)c - 0x100;
    if (c < 0x143)
        return (int)c - 0x121 + 0x7f;
    return c == 0x143 ? 0xad : -1;
}

void shoali_append_byte_chars(const char *bytes, size_t count, struct shoali_str *out)
{
    for (size_t i = 0; i < count; i++)
        shoali_append_code_point(byte_char((unsigned char)bytes[i]), out);
}

bool shoali_byte_chars_bytes(const char *text, size_t bytes, char *out, size_t *count)
{
    *count = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        at += (size_t)shoali_next(text + at, &c);
        const int byte = shoali_char_byte(c);
        if (byte < 0)
            return false;
        out[(*count)++] = (char)byte;
    }
    return true;
}
