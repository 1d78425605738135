/* protocol - what is said on a connection to a tcp store, as bytes: no sockets, no clocks.
 *
 * First both sides prove that they know the job's secret; before that no command is read.
 *   greeting  server  "SHOAL01\n", the job's tag, 32 random bytes
 *             or      "SHOALno\n" and zeros: no descriptors left, try again
 *   proof     client  32 random bytes and MAC(secret, "client", tag, both random texts)
 *   answer    server  MAC(secret, "server", tag, both random texts), or zeros: your proof is wrong
 * The random texts are fresh on both sides, so nothing that was said once is good again, and the
 * labels differ, so that nobody can be used to answer his own question. Two keys of the session are
 * made of the same parts.
 *
 * Then questions and answers. A message is a line "LETTER KEY BYTES\n", BYTES of payload and a MAC
 * of all that with the session's key of its direction and its number on the connection: whoever
 * carries the bytes can neither change, repeat, leave out nor add a message. Questions: P put, G
 * get, A abort, and where ranks meet in a tree (tree.h) J join and L leave. Answers (key "-"): V
 * value, N absent, O done, R ask at HOST PORT, F aborted or refused (payload: the sentence). Values
 * are not encrypted.
 *
 * All MACs are BLAKE2b with a key of 32 bytes, compared in constant time (libsodium).
 *
 * A conversation is the server's side of one connection. It never holds more than one message of
 * its peer and takes no other before its answer has been sent, so that neither a slow nor a fast
 * peer costs more than that.
 */
#ifndef SHOALI_PROTOCOL_H
#define SHOALI_PROTOCOL_H

#include "comm/bootstrap/secret.h"
#include "comm/bootstrap/store.h"

enum {
    SHOALI_MAC_BYTES = 32,
    SHOALI_NONCE_BYTES = 32,
    SHOALI_MAGIC_BYTES = 8,
    SHOALI_GREETING_BYTES = SHOALI_MAGIC_BYTES + SHOALI_JOB_TAG_BYTES + SHOALI_NONCE_BYTES,
    SHOALI_PROOF_BYTES = SHOALI_NONCE_BYTES + SHOALI_MAC_BYTES,
    SHOALI_STORE_LINE_BYTES = 256,
    SHOALI_MESSAGE_BYTES = SHOALI_STORE_LINE_BYTES + SHOALI_STORE_VALUE_BYTES + SHOALI_MAC_BYTES
};

/* ---- both sides ----------------------------------------------------------------------------- */

enum shoali_direction { SHOALI_QUESTIONS, SHOALI_ANSWERS };
struct shoali_session {
    unsigned char key[2][SHOALI_KEY_BYTES]; /* by direction */
    uint64_t number[2];                     /* of the next message */
};
/* Seals or checks the next message of a direction: `bytes` of it without the MAC. */
void shoali_session_seal(struct shoali_session *session, enum shoali_direction direction,
                         const void *message, size_t bytes, unsigned char mac[SHOALI_MAC_BYTES]);
SHOAL_CHECKED bool shoali_session_check(struct shoali_session *session,
                                        enum shoali_direction direction, const void *message,
                                        size_t bytes, const unsigned char mac[SHOALI_MAC_BYTES]);

struct shoali_line {
    char letter;
    char key[SHOALI_STORE_KEY_BYTES];
    size_t bytes; /* of the payload */
};
/* Parses the line of a message, newline included; false when it is none. */
SHOAL_CHECKED bool shoali_line_parse(const char *text, size_t bytes, struct shoali_line *line);

/* ---- the client's side ---------------------------------------------------------------------- */

enum shoali_greeting {
    SHOALI_GREETED,
    SHOALI_NO_DESCRIPTORS,
    SHOALI_OTHER_JOB,
    SHOALI_OTHER_VERSION,
    SHOALI_NO_STORE /* something else answers at the port */
};
enum shoali_greeting shoali_greeting_read(const unsigned char greeting[SHOALI_GREETING_BYTES],
                                          const struct shoali_credentials *credentials);
/* The proof for a greeting with the own nonce; the session and the answer to expect. */
void shoali_proof_make(const unsigned char greeting[SHOALI_GREETING_BYTES],
                       const unsigned char nonce[SHOALI_NONCE_BYTES],
                       const struct shoali_credentials *credentials,
                       unsigned char proof[SHOALI_PROOF_BYTES],
                       unsigned char expected[SHOALI_MAC_BYTES], struct shoali_session *session);
/* Constant time. */
SHOAL_CHECKED bool shoali_mac_equal(const unsigned char a[SHOALI_MAC_BYTES],
                                    const unsigned char b[SHOALI_MAC_BYTES]);

/* ---- the server's side ---------------------------------------------------------------------- */

struct shoali_bytes {
    unsigned char *data;
    size_t begin, end, capacity;
};
enum shoali_conversation_state {
    SHOALI_STRANGER, /* has not proved anything */
    SHOALI_MEMBER,
    SHOALI_UNPROVEN, /* was wrong about the secret */
    SHOALI_OVER      /* sent what no member sends */
};
struct shoali_conversation {
    const struct shoali_credentials *credentials; /* borrowed */
    struct shoali_table *table;                   /* borrowed */
    enum shoali_conversation_state state;
    unsigned char greeting[SHOALI_GREETING_BYTES];
    struct shoali_session session;
    struct shoali_bytes in, out;
    /* Of a table with seats: the addresses of both ends as numbers, and which one the peer has. */
    char here[SHOALI_ADDRESS_BYTES], there[SHOALI_ADDRESS_BYTES];
    int32_t seat; /* from 1; 0: none */
    bool left;
};
/* `nonce`: SHOALI_NONCE_BYTES that were never used before. The greeting is the first to be sent. */
SHOAL_CHECKED shoal_status shoali_conversation_init(struct shoali_conversation *conversation,
                                                    const struct shoali_credentials *credentials,
                                                    struct shoali_table *table,
                                                    const unsigned char *nonce);
void shoali_conversation_fini(struct shoali_conversation *conversation);
/* How many bytes it takes now; 0 while an answer waits to be sent. */
size_t shoali_conversation_room(const struct shoali_conversation *conversation);
/* Takes `bytes` (at most the room) from the peer and answers what is complete. False: close the
 * connection once what is pending has been sent. */
SHOAL_CHECKED bool shoali_store_serve_bytes(struct shoali_conversation *conversation,
                                            const void *data, size_t bytes);
/* What waits to be sent; 0 bytes: nothing. */
const void *shoali_conversation_pending(const struct shoali_conversation *conversation,
                                        size_t *bytes);
/* `bytes` of it have been sent. Serve again, with nothing, when all has: a message may be complete.
 */
void shoali_conversation_sent(struct shoali_conversation *conversation, size_t bytes);
/* The greeting of a server that has no descriptors left. */
void shoali_refusal_make(unsigned char greeting[SHOALI_GREETING_BYTES]);

#endif
