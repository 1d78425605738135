/* UTF-8 as RFC 3629 defines it: shortest form, no surrogates, at most U+10FFFF. */
#include "base/str.h"

int shoali_utf8_decode(const char *text, size_t bytes, uint32_t *code_point)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (bytes == 0)
        return 0;
    unsigned char lead = (unsigned char)text[0];
    int length = lead < 0x80   ? 1
                 : lead < 0xc0 ? 0
                 : lead < 0xe0 ? 2
                 : lead < 0xf0 ? 3
                 : lead < 0xf8 ? 4
                               : 0;
    if (length == 0 || (size_t)length > bytes)
        return 0;
    if (length == 1) {
        *code_point = lead;
        return 1;
    }
    uint32_t value = lead & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3fu);
    }
    if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *code_point = value;
    return length;
}

int shoali_utf8_encode(uint32_t code_point, char out[4])
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    int length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3f));
        code_point >>= 6;
    }
    out[0] = (char)((0xf00 >> length & 0xff) | code_point);
    return length;
}

size_t shoali_utf8_check(const char *text, size_t bytes)
{
    size_t at = 0;
    uint32_t code_point;
    while (at < bytes) {
        int length = shoali_utf8_decode(text + at, bytes - at, &code_point);
        if (length == 0)
            return at;
        at += (size_t)length;
    }
    return bytes;
}
