/* SentencePiece models: the protobuf message ModelProto. Fields are numbered as in its description;
 * fields that do not change the encoding are passed over. */
#include "tokenizer/formats.h"
#include "tokenizer/unigram.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- protobuf ---- */

struct message {
    const unsigned char *at, *end;
    bool damaged;
};
struct field {
    uint32_t number;
    uint64_t value;        /* of a varint, or the bits of a fixed one */
    struct message inside; /* of a text or a message */
    bool is_inside;
};

static uint64_t varint(struct message *message)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && message->at < message->end; shift += 7) {
        const unsigned char byte = *message->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    message->damaged = true;
    return 0;
}

static uint64_t fixed(struct message *message, int bytes)
{
    uint64_t value = 0;
    if (message->end - message->at < bytes) {
        message->damaged = true;
        return 0;
    }
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)message->at[i] << 8 * i;
    message->at += bytes;
    return value;
}

/* false: the end, or damaged. */
static bool next(struct message *message, struct field *field)
{
    if (message->damaged || message->at == message->end)
        return false;
    const uint64_t tag = varint(message);
    *field = (struct field){.number = (uint32_t)(tag >> 3)};
    switch (tag & 7) {
    case 0:
        field->value = varint(message);
        break;
    case 1:
        field->value = fixed(message, 8);
        break;
    case 5:
        field->value = fixed(message, 4);
        break;
    case 2:
        field->value = varint(message);
        if (field->value > (uint64_t)(message->end - message->at)) {
            message->damaged = true;
            break;
        }
        field->is_inside = true;
        field->inside = (struct message){.at = message->at, .end = message->at + field->value};
        message->at += field->value;
        break;
    default:
        message->damaged = true;
    }
    return !message->damaged;
}

/* ---- ModelProto ---- */

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct proto {
    json_t *vocab;
    int64_t model_type, unk, eos, pieces;
    bool byte_fallback, dummy_prefix, remove_spaces, escape, suffix, has_trainer;
    bool inner_space; /* a piece has a space behind another character */
    bool has_space;   /* a piece is one space */
    struct message charsmap;
    json_t *added;
};

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a vocabulary");
}

/* ▁ behind something else. */
static bool has_inner_space(const char *text, size_t length)
{
    bool other = false;
    for (size_t i = 0; i < length; i++) {
        const bool space = length - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0;
        if (space && other)
            return true;
        other = other || !space;
        i += space ? 2 : 0;
    }
    return false;
}

static shoal_status read_piece(const char *path, struct message message, struct proto *proto)
{
    struct field field;
    const char *text = "";
    size_t length = 0;
    float score = 0;
    uint64_t type = SHOALI_PIECE_NORMAL;
    while (next(&message, &field)) {
        const uint32_t bits = (uint32_t)field.value;
        if (field.number == 1 && field.is_inside) {
            text = (const char *)field.inside.at;
            length = (size_t)(field.inside.end - field.inside.at);
        } else if (field.number == 2) {
            memcpy(&score, &bits, sizeof score);
        } else if (field.number == 3) {
            type = field.value;
        }
    }
    if (message.damaged || length == 0 || memchr(text, 0, length) ||
        shoali_utf8_check(text, length) < length || score != score || score - score != 0)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s: piece %lld is damaged: a text in UTF-8 and a score are expected",
                          path, (long long)proto->pieces);
    if (type == SHOALI_PIECE_UNKNOWN)
        proto->unk = proto->pieces;
    if (type == SHOALI_PIECE_NORMAL || type == SHOALI_PIECE_USER) {
        proto->inner_space = proto->inner_space || has_inner_space(text, length);
        proto->has_space =
            proto->has_space || (length == 3 && memcmp(text, "\xe2\x96\x81", 3) == 0);
    }
    if (json_array_append_new(proto->vocab, json_pack("[s%,f,I]", text, length, (double)score,
                                                      (json_int_t)type)) != 0)
        return no_memory();
    proto->pieces++;
    return SHOAL_OK;
}

static void read_trainer(struct message message, struct proto *proto)
{
    struct field field;
    proto->has_trainer = true;
    while (next(&message, &field)) {
        if (field.number == 3)
            proto->model_type = (int64_t)field.value;
        else if (field.number == 24)
            proto->suffix = field.value != 0;
        else if (field.number == 35)
            proto->byte_fallback = field.value != 0;
        else if (field.number == 42)
            proto->eos = (int32_t)field.value;
    }
}

static void read_normalizer(struct message message, struct proto *proto)
{
    struct field field;
    while (next(&message, &field)) {
        if (field.number == 2 && field.is_inside)
            proto->charsmap = field.inside;
        else if (field.number == 3)
            proto->dummy_prefix = field.value != 0;
        else if (field.number == 4)
            proto->remove_spaces = field.value != 0;
        else if (field.number == 5)
            proto->escape = field.value != 0;
    }
}

static shoal_status read_proto(const char *path, struct message message, struct proto *proto)
{
    shoal_status status = SHOAL_OK;
    struct field field;
    while (next(&message, &field)) {
        if (!field.is_inside)
            continue;
        if (field.number == 1)
            SHOAL_TRY(status, read_piece(path, field.inside, proto), done);
        else if (field.number == 2)
            read_trainer(field.inside, proto);
        else if (field.number == 3)
            read_normalizer(field.inside, proto);
    }
    if (message.damaged || proto->pieces == 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s is not a SentencePiece model, or is truncated: %s",
                          path, proto->pieces ? "its last field is damaged" : "it has no pieces");
    if (proto->model_type != MODEL_UNIGRAM && proto->model_type != MODEL_BPE)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s is a SentencePiece model of type %lld; unigram (1) and bpe (2) are "
                          "read",
                          path, (long long)proto->model_type);
    if (proto->unk < 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s has no piece for unknown text", path);
done:
    return status;
}

/* ---- to tokenizer.json ---- */

static void base64(const struct message *data, struct shoali_str *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (const unsigned char *at = data->at; at < data->end; at += 3) {
        const int64_t left = data->end - at;
        const uint32_t bits =
            (uint32_t)at[0] << 16 | (left > 1 ? (uint32_t)at[1] << 8 : 0) | (left > 2 ? at[2] : 0);
        const char text[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                              left > 1 ? digits[bits >> 6 & 63] : '=',
                              left > 2 ? digits[bits & 63] : '='};
        shoali_str_append_bytes(out, text, 4);
    }
}

/* What is put together again: spaces, bytes, without the space that was put before the text. */
static json_t *decoder_of(const struct proto *proto)
{
    const int strip = proto->dummy_prefix;
    return json_pack("{s:s,s:[{s:s,s:{s:s},s:s},{s:s},{s:s},{s:s,s:s,s:i,s:i}]}", "type",
                     "Sequence", "decoders", "type", "Replace", "pattern", "String", "\xe2\x96\x81",
                     "content", " ", "type", "ByteFallback", "type", "Fuse", "type", "Strip",
                     "content", " ", "start", proto->suffix ? 0 : strip, "stop",
                     proto->suffix ? strip : 0);
}

static shoal_status build(const struct proto *proto, json_t **root)
{
    struct shoali_str map = {0};
    base64(&proto->charsmap, &map);
    const bool bpe = proto->model_type == MODEL_BPE;
    /* Merges never join what stands on both sides of a word's begin when no piece does. Sums of
     * floats are those of the whole text: a unigram model gets it in one. */
    const bool cut = bpe && !proto->inner_space && proto->has_space && proto->escape;
    json_t *normalizer =
        json_pack("{s:s,s:s,s:b,s:b,s:b,s:b}", "type", "SentencePiece", "precompiled_charsmap",
                  shoali_str_get(&map), "add_dummy_prefix", (int)proto->dummy_prefix,
                  "remove_extra_whitespaces", (int)proto->remove_spaces, "escape_whitespaces",
                  (int)proto->escape, "treat_whitespace_as_suffix", (int)proto->suffix);
    json_t *model = json_pack(
        "{s:s,s:I,s:b,s:O}", "type", bpe ? "SentencePieceBPE" : "SentencePieceUnigram", "unk_id",
        (json_int_t)proto->unk, "byte_fallback", (int)proto->byte_fallback, "vocab", proto->vocab);
    json_t *pre_tokenizer = cut ? shoali_typed("SentencePiece") : json_null();
    *root = json_pack("{s:s,s:o,s:o,s:o,s:o}", "version", "1.0", "normalizer", normalizer,
                      "pre_tokenizer", pre_tokenizer, "model", model, "decoder", decoder_of(proto));
    const bool failed = map.failed || !*root ||
                        (proto->eos >= 0 && proto->eos < proto->pieces &&
                         json_object_set_new(*root, "eod", json_integer(proto->eos)) != 0);
    shoali_str_fini(&map);
    return failed ? no_memory() : SHOAL_OK;
}

shoal_status shoali_read_sentencepiece(const char *path, const char *data, size_t bytes,
                                       json_t **root)
{
    shoal_status status;
    struct proto proto = {.vocab = json_array(),
                          .model_type = MODEL_UNIGRAM,
                          .unk = -1,
                          .eos = 2,
                          .dummy_prefix = true,
                          .remove_spaces = true,
                          .escape = true};
    const unsigned char *begin = (const unsigned char *)data;
    *root = NULL;
    SHOAL_TRY(status, read_proto(path, (struct message){.at = begin, .end = begin + bytes}, &proto),
              done);
    SHOAL_TRY(status, build(&proto, root), done);
done:
    json_decref(proto.vocab);
    return status;
}
