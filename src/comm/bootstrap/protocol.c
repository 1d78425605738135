#include "comm/bootstrap/protocol.h"
#include "comm/bootstrap/tree.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[SHOALI_MAGIC_BYTES + 1] = "SHOAL01\n", refusal[] = "SHOALno\n";
enum { FAMILY_BYTES = 5, FIRST_BYTES = 512 };

/* MAC with the secret of a label and of what both sides have said. */
static void make_mac(const struct shoali_credentials *credentials, const char *label,
                     const unsigned char *greeting, const unsigned char *nonce, unsigned char *mac)
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, credentials->key, SHOALI_KEY_BYTES, SHOALI_MAC_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)label, strlen(label) + 1);
    crypto_generichash_update(&state, credentials->job, SHOALI_JOB_TAG_BYTES);
    crypto_generichash_update(&state, greeting, SHOALI_GREETING_BYTES);
    crypto_generichash_update(&state, nonce, SHOALI_NONCE_BYTES);
    crypto_generichash_final(&state, mac, SHOALI_MAC_BYTES);
    sodium_memzero(&state, sizeof(state));
}

static void start_session(const struct shoali_credentials *credentials,
                          const unsigned char *greeting, const unsigned char *nonce,
                          struct shoali_session *session)
{
    *session = (struct shoali_session){0};
    make_mac(credentials, "questions", greeting, nonce, session->key[SHOALI_QUESTIONS]);
    make_mac(credentials, "answers", greeting, nonce, session->key[SHOALI_ANSWERS]);
}

bool shoali_mac_equal(const unsigned char a[SHOALI_MAC_BYTES],
                      const unsigned char b[SHOALI_MAC_BYTES])
{
    return sodium_memcmp(a, b, SHOALI_MAC_BYTES) == 0;
}

void shoali_session_seal(struct shoali_session *session, enum shoali_direction direction,
                         const void *message, size_t bytes, unsigned char mac[SHOALI_MAC_BYTES])
{
    crypto_generichash_state state;
    unsigned char number[8];
    for (int i = 0; i < 8; i++)
        number[i] = (unsigned char)(session->number[direction] >> (8 * i));
    session->number[direction]++;
    crypto_generichash_init(&state, session->key[direction], SHOALI_KEY_BYTES, SHOALI_MAC_BYTES);
    crypto_generichash_update(&state, number, sizeof(number));
    crypto_generichash_update(&state, message, bytes);
    crypto_generichash_final(&state, mac, SHOALI_MAC_BYTES);
    sodium_memzero(&state, sizeof(state));
}

bool shoali_session_check(struct shoali_session *session, enum shoali_direction direction,
                          const void *message, size_t bytes,
                          const unsigned char mac[SHOALI_MAC_BYTES])
{
    unsigned char expected[SHOALI_MAC_BYTES];
    shoali_session_seal(session, direction, message, bytes, expected);
    return shoali_mac_equal(mac, expected);
}

/* At most five digits, without signs, spaces or leading zeros: one way to write each line. */
static bool parse_size(const char *text, size_t digits, size_t *size)
{
    *size = 0;
    if (digits == 0 || digits > 5 || (digits > 1 && text[0] == '0'))
        return false;
    for (size_t i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *size = *size * 10 + (size_t)(text[i] - '0');
    }
    return *size <= SHOALI_STORE_VALUE_BYTES;
}

bool shoali_line_parse(const char *text, size_t bytes, struct shoali_line *line)
{
    size_t at = 2, length = 0;
    if (bytes < 6 || text[0] < 'A' || text[0] > 'Z' || text[1] != ' ' || text[bytes - 1] != '\n')
        return false;
    while (at < bytes && text[at] > ' ' && text[at] <= '~' && length + 1 < SHOALI_STORE_KEY_BYTES)
        line->key[length++] = text[at++];
    line->key[length] = '\0';
    line->letter = text[0];
    return length > 0 && at < bytes && text[at] == ' ' &&
           parse_size(text + at + 1, bytes - at - 2, &line->bytes);
}

enum shoali_greeting shoali_greeting_read(const unsigned char greeting[SHOALI_GREETING_BYTES],
                                          const struct shoali_credentials *credentials)
{
    if (memcmp(greeting, refusal, SHOALI_MAGIC_BYTES) == 0)
        return SHOALI_NO_DESCRIPTORS;
    if (memcmp(greeting, magic, SHOALI_MAGIC_BYTES) != 0)
        return memcmp(greeting, magic, FAMILY_BYTES) == 0 ? SHOALI_OTHER_VERSION : SHOALI_NO_STORE;
    return memcmp(greeting + SHOALI_MAGIC_BYTES, credentials->job, SHOALI_JOB_TAG_BYTES) == 0
               ? SHOALI_GREETED
               : SHOALI_OTHER_JOB;
}

void shoali_proof_make(const unsigned char greeting[SHOALI_GREETING_BYTES],
                       const unsigned char nonce[SHOALI_NONCE_BYTES],
                       const struct shoali_credentials *credentials,
                       unsigned char proof[SHOALI_PROOF_BYTES],
                       unsigned char expected[SHOALI_MAC_BYTES], struct shoali_session *session)
{
    memcpy(proof, nonce, SHOALI_NONCE_BYTES);
    make_mac(credentials, "client", greeting, nonce, proof + SHOALI_NONCE_BYTES);
    make_mac(credentials, "server", greeting, nonce, expected);
    start_session(credentials, greeting, nonce, session);
}

void shoali_refusal_make(unsigned char greeting[SHOALI_GREETING_BYTES])
{
    memset(greeting, 0, SHOALI_GREETING_BYTES);
    memcpy(greeting, refusal, SHOALI_MAGIC_BYTES);
}

/* ---- the server's side ---------------------------------------------------------------------- */

static bool reserve(struct shoali_bytes *bytes, size_t more)
{
    if (bytes->begin == bytes->end)
        bytes->begin = bytes->end = 0;
    if (bytes->capacity - bytes->end >= more)
        return true;
    size_t capacity = bytes->end + more > FIRST_BYTES ? bytes->end + more : FIRST_BYTES;
    unsigned char *data = shoali_malloc(capacity, "a connection's buffer");
    if (!data)
        return false;
    if (bytes->end > 0)
        memcpy(data, bytes->data, bytes->end);
    shoali_free(bytes->data);
    bytes->data = data;
    bytes->capacity = capacity;
    return true;
}

static bool append(struct shoali_bytes *bytes, const void *data, size_t count)
{
    if (!reserve(bytes, count))
        return false;
    if (count > 0)
        memcpy(bytes->data + bytes->end, data, count);
    bytes->end += count;
    return true;
}

shoal_status shoali_conversation_init(struct shoali_conversation *conversation,
                                      const struct shoali_credentials *credentials,
                                      struct shoali_table *table, const unsigned char *nonce)
{
    *conversation = (struct shoali_conversation){.credentials = credentials, .table = table};
    memcpy(conversation->greeting, magic, SHOALI_MAGIC_BYTES);
    memcpy(conversation->greeting + SHOALI_MAGIC_BYTES, credentials->job, SHOALI_JOB_TAG_BYTES);
    memcpy(conversation->greeting + SHOALI_MAGIC_BYTES + SHOALI_JOB_TAG_BYTES, nonce,
           SHOALI_NONCE_BYTES);
    return append(&conversation->out, conversation->greeting, SHOALI_GREETING_BYTES) ? SHOAL_OK
                                                                                     : SHOAL_ENOMEM;
}

void shoali_conversation_fini(struct shoali_conversation *conversation)
{
    if (conversation->seat > 0 && !conversation->left)
        shoali_seats_lose(conversation->table, conversation->seat);
    shoali_free(conversation->in.data);
    shoali_free(conversation->out.data);
    sodium_memzero(conversation, sizeof(*conversation));
}

const void *shoali_conversation_pending(const struct shoali_conversation *conversation,
                                        size_t *bytes)
{
    *bytes = conversation->out.end - conversation->out.begin;
    return *bytes ? conversation->out.data + conversation->out.begin : NULL;
}

void shoali_conversation_sent(struct shoali_conversation *conversation, size_t bytes)
{
    SHOAL_ASSERT(bytes <= conversation->out.end - conversation->out.begin);
    conversation->out.begin += bytes;
}

static bool is_pending(const struct shoali_conversation *conversation)
{
    return conversation->out.begin < conversation->out.end;
}

/* The bytes of the first message in the inbox as far as they are known: its line, then all of it;
 * 0: it is nonsense. */
static size_t message_bytes(const struct shoali_conversation *conversation,
                            struct shoali_line *line)
{
    const struct shoali_bytes *in = &conversation->in;
    const char *text = (const char *)in->data;
    const size_t used = in->end < SHOALI_STORE_LINE_BYTES ? in->end : SHOALI_STORE_LINE_BYTES;
    const char *newline = used > 0 ? memchr(text, '\n', used) : NULL;
    *line = (struct shoali_line){0};
    if (!newline)
        return used < SHOALI_STORE_LINE_BYTES ? SHOALI_STORE_LINE_BYTES : 0;
    const size_t length = (size_t)(newline - text) + 1;
    return shoali_line_parse(text, length, line) ? length + line->bytes + SHOALI_MAC_BYTES : 0;
}

size_t shoali_conversation_room(const struct shoali_conversation *conversation)
{
    struct shoali_line line;
    size_t wanted = 0;
    if (conversation->state == SHOALI_STRANGER)
        wanted = SHOALI_PROOF_BYTES;
    else if (conversation->state == SHOALI_MEMBER && !is_pending(conversation))
        wanted = message_bytes(conversation, &line);
    return wanted > conversation->in.end ? wanted - conversation->in.end : 0;
}

static void forget(struct shoali_bytes *in, size_t bytes)
{
    memmove(in->data, in->data + bytes, in->end - bytes);
    in->end -= bytes;
}

/* Is the proof right? Zeros are an answer that no key gives. */
static bool receive_proof(struct shoali_conversation *conversation)
{
    const struct shoali_credentials *credentials = conversation->credentials;
    const unsigned char *proof = conversation->in.data, *nonce = proof;
    unsigned char expected[SHOALI_MAC_BYTES], answer[SHOALI_MAC_BYTES] = {0};
    if (conversation->in.end < SHOALI_PROOF_BYTES)
        return true;
    make_mac(credentials, "client", conversation->greeting, nonce, expected);
    const bool right = shoali_mac_equal(proof + SHOALI_NONCE_BYTES, expected);
    sodium_memzero(expected, sizeof(expected));
    conversation->state = right ? SHOALI_MEMBER : SHOALI_UNPROVEN;
    if (right) {
        make_mac(credentials, "server", conversation->greeting, nonce, answer);
        start_session(credentials, conversation->greeting, nonce, &conversation->session);
    }
    forget(&conversation->in, SHOALI_PROOF_BYTES);
    return append(&conversation->out, answer, sizeof(answer)) && right;
}

static bool reply(struct shoali_conversation *conversation, char letter, const void *payload,
                  size_t bytes)
{
    char line[32];
    unsigned char mac[SHOALI_MAC_BYTES];
    struct shoali_bytes *out = &conversation->out;
    const int length = snprintf(line, sizeof(line), "%c - %zu\n", letter, bytes);
    if (!reserve(out, (size_t)length + bytes + sizeof(mac)))
        return false;
    const size_t begin = out->end; /* reserve may have moved it */
    if (!append(out, line, (size_t)length) || !append(out, payload, bytes))
        return false;
    shoali_session_seal(&conversation->session, SHOALI_ANSWERS, out->data + begin,
                        (size_t)length + bytes, mac);
    return append(out, mac, sizeof(mac));
}

static bool reply_value(struct shoali_conversation *conversation, const char *key,
                        shoal_status *status)
{
    size_t bytes = SHOALI_STORE_VALUE_BYTES;
    void *value = shoali_malloc(bytes, "a value of the store");
    if (!value)
        return false;
    *status = shoali_table_get(conversation->table, key, value, &bytes);
    const bool sent = *status != SHOAL_OK || reply(conversation, 'V', value, bytes);
    shoali_free(value);
    return sent;
}

static bool answer_join(struct shoali_conversation *conversation, const unsigned char *payload,
                        size_t bytes)
{
    char text[SHOALI_STORE_SENTENCE_BYTES];
    const struct shoali_guest guest = {.payload = payload,
                                       .bytes = bytes,
                                       .here = conversation->here,
                                       .there = conversation->there};
    const char letter =
        shoali_seats_join(conversation->table, &guest, &conversation->seat, text, sizeof(text));
    return reply(conversation, letter, text, strlen(text));
}

static bool answer(struct shoali_conversation *conversation, const struct shoali_line *line,
                   const unsigned char *payload)
{
    char sentence[SHOALI_STORE_SENTENCE_BYTES];
    shoal_status status = SHOAL_OK;
    const bool seats = conversation->table->seats != NULL;
    if (line->letter == 'J' && seats && conversation->seat == 0)
        return answer_join(conversation, payload, line->bytes);
    if (line->letter == 'L' && seats && conversation->seat > 0)
        conversation->left = true;
    else if (line->letter == 'A' && line->bytes < sizeof(sentence)) {
        memcpy(sentence, payload, line->bytes);
        sentence[line->bytes] = '\0';
        shoali_table_abort(conversation->table, sentence);
    } else if (line->letter == 'P') {
        status = shoali_table_put(conversation->table, line->key, payload, line->bytes);
    } else if (line->letter == 'G' && line->bytes == 0) {
        if (!reply_value(conversation, line->key, &status))
            return false;
        if (status == SHOAL_OK)
            return true;
    } else {
        return false;
    }
    if (status < 0) {
        snprintf(sentence, sizeof(sentence), "%s", shoal_error_message());
        return reply(conversation, 'F', sentence, strlen(sentence));
    }
    return reply(conversation, status == SHOAL_IN_PROGRESS ? 'N' : 'O', "", 0);
}

/* Answers the first message when it is complete. */
static bool receive_message(struct shoali_conversation *conversation, bool *received)
{
    struct shoali_line line;
    struct shoali_bytes *in = &conversation->in;
    const size_t bytes = message_bytes(conversation, &line);
    *received = line.letter && bytes > 0 && in->end >= bytes;
    if (bytes == 0)
        return false;
    if (!*received)
        return true;
    const size_t sealed = bytes - SHOALI_MAC_BYTES;
    if (!shoali_session_check(&conversation->session, SHOALI_QUESTIONS, in->data, sealed,
                              in->data + sealed) ||
        !answer(conversation, &line, in->data + sealed - line.bytes))
        return false;
    forget(in, bytes);
    return true;
}

bool shoali_store_serve_bytes(struct shoali_conversation *conversation, const void *data,
                              size_t bytes)
{
    bool received = true, sane = true;
    SHOAL_ASSERT(bytes <= shoali_conversation_room(conversation));
    if (!append(&conversation->in, data, bytes)) {
        conversation->state = SHOALI_OVER;
        return false;
    }
    if (conversation->state == SHOALI_STRANGER)
        return receive_proof(conversation);
    while (sane && received && conversation->state == SHOALI_MEMBER && !is_pending(conversation))
        sane = receive_message(conversation, &received);
    if (!sane)
        conversation->state = SHOALI_OVER;
    return conversation->state == SHOALI_MEMBER;
}
