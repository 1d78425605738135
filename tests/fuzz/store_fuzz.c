/* The store's protocol, both sides. The first byte says who speaks: a stranger, whose bytes are the
 * rest of the input, or a member, who has proved that it knows the secret and then sends records:
 * flags, two bytes of length, a message of that length. A record is sealed with the session's key
 * where its flags say so, and cut into single bytes where they say that. */
#include "fuzz.h"

#include "comm/bootstrap/protocol.h"

#include <string.h>

enum { MEMBER_BIT = 1, SEALED_BIT = 1, SINGLY_BIT = 2, RECORD_HEAD = 3 };

struct peer {
    struct shoali_conversation server;
    struct shoali_session session; /* the client's */
    bool member, open;
};

/* Takes all answers, which only a member gets, and which are sealed. */
static void take_answers(struct peer *peer)
{
    size_t bytes;
    for (;;) {
        const unsigned char *answer = shoali_conversation_pending(&peer->server, &bytes);
        if (bytes == 0)
            return;
        const unsigned char *end = memchr(answer, '\n', bytes);
        struct shoali_line line;
        FUZZ_CHECK(peer->member && end);
        const size_t head = (size_t)(end - answer) + 1;
        FUZZ_CHECK(shoali_line_parse((const char *)answer, head, &line));
        FUZZ_CHECK(strchr("VNOF", line.letter) && bytes >= head + line.bytes + SHOALI_MAC_BYTES);
        FUZZ_CHECK(shoali_session_check(&peer->session, SHOALI_ANSWERS, answer, head + line.bytes,
                                        answer + head + line.bytes));
        shoali_conversation_sent(&peer->server, head + line.bytes + SHOALI_MAC_BYTES);
        if (peer->open)
            peer->open = shoali_store_serve_bytes(&peer->server, "", 0);
    }
}

static void send_bytes(struct peer *peer, const uint8_t *data, size_t size, bool singly)
{
    while (size > 0 && peer->open) {
        const size_t room = shoali_conversation_room(&peer->server);
        FUZZ_CHECK(room > 0 && room <= SHOALI_MESSAGE_BYTES);
        size_t part = singly ? 1 : size;
        part = part < room ? part : room;
        peer->open = shoali_store_serve_bytes(&peer->server, data, part);
        FUZZ_CHECK(peer->member || peer->server.state != SHOALI_MEMBER);
        if (peer->member)
            take_answers(peer);
        data += part;
        size -= part;
    }
}

/* The greeting is read, and, by a member, answered with the right proof. */
static void meet(struct peer *peer, const struct shoali_credentials *credentials)
{
    static const unsigned char nonce[SHOALI_NONCE_BYTES] = {7};
    unsigned char proof[SHOALI_PROOF_BYTES], expected[SHOALI_MAC_BYTES];
    size_t bytes;
    const unsigned char *greeting = shoali_conversation_pending(&peer->server, &bytes);
    FUZZ_CHECK(bytes == SHOALI_GREETING_BYTES);
    FUZZ_CHECK(shoali_greeting_read(greeting, credentials) == SHOALI_GREETED);
    shoali_proof_make(greeting, nonce, credentials, proof, expected, &peer->session);
    shoali_conversation_sent(&peer->server, bytes);
    if (!peer->member)
        return;
    FUZZ_CHECK(shoali_store_serve_bytes(&peer->server, proof, sizeof proof));
    const unsigned char *answer = shoali_conversation_pending(&peer->server, &bytes);
    FUZZ_CHECK(bytes == SHOALI_MAC_BYTES && shoali_mac_equal(answer, expected));
    shoali_conversation_sent(&peer->server, bytes);
}

static void send_records(struct peer *peer, const uint8_t *data, size_t size)
{
    static uint8_t message[65536 + SHOALI_MAC_BYTES];
    while (size >= RECORD_HEAD && peer->open) {
        const uint8_t flags = data[0];
        size_t bytes = (size_t)data[1] << 8 | data[2];
        data += RECORD_HEAD;
        size -= RECORD_HEAD;
        bytes = bytes < size ? bytes : size;
        memcpy(message, data, bytes);
        if (flags & SEALED_BIT)
            shoali_session_seal(&peer->session, SHOALI_QUESTIONS, message, bytes, message + bytes);
        send_bytes(peer, message, bytes + (flags & SEALED_BIT ? SHOALI_MAC_BYTES : 0),
                   flags & SINGLY_BIT);
        data += bytes;
        size -= bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char nonce[SHOALI_NONCE_BYTES] = {1, 2, 3};
    const struct shoali_credentials credentials = {.key = "a secret of the harness", .job = "job"};
    struct shoali_table table;
    struct shoali_line line;
    if (size < 1)
        return 0;
    struct peer peer = {.member = data[0] & MEMBER_BIT, .open = true};
    shoali_table_init(&table);
    FUZZ_CHECK(shoali_conversation_init(&peer.server, &credentials, &table, nonce) == SHOAL_OK);
    meet(&peer, &credentials);
    if (peer.member)
        send_records(&peer, data + 1, size - 1);
    else
        send_bytes(&peer, data + 1, size - 1, data[0] & SINGLY_BIT);
    shoali_conversation_fini(&peer.server);
    shoali_table_fini(&table);
    /* and what a client makes of such bytes */
    if (size > SHOALI_GREETING_BYTES)
        FUZZ_CHECK(shoali_greeting_read(data + 1, &credentials) <= SHOALI_NO_STORE);
    if (shoali_line_parse((const char *)data, size, &line))
        FUZZ_CHECK(line.bytes <= SHOALI_STORE_VALUE_BYTES && *line.key);
    return 0;
}
