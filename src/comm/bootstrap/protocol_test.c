/* What a server says to every kind of peer, as bytes. */
#include "base/test_cmocka.h"
#include "comm/bootstrap/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A server's conversation, and a client that knows `credentials`. */
struct talk {
    struct shoali_credentials own, credentials;
    struct shoali_table table;
    struct shoali_conversation server;
    unsigned char greeting[SHOALI_GREETING_BYTES], proof[SHOALI_PROOF_BYTES];
    unsigned char expected[SHOALI_MAC_BYTES];
    struct shoali_session session;
};

static void open_talk(struct talk *talk, const char *secret, unsigned char nonce)
{
    unsigned char server_nonce[SHOALI_NONCE_BYTES], client_nonce[SHOALI_NONCE_BYTES];
    size_t bytes = 0;
    memset(server_nonce, nonce, sizeof(server_nonce));
    memset(client_nonce, 9, sizeof(client_nonce));
    talk->own = talk->credentials =
        (struct shoali_credentials){.key = "the job's own secret", .job = "job"};
    snprintf((char *)talk->credentials.key, sizeof(talk->credentials.key), "%s", secret);
    shoali_table_init(&talk->table);
    assert_int_equal(
        shoali_conversation_init(&talk->server, &talk->own, &talk->table, server_nonce), SHOAL_OK);
    const void *greeting = shoali_conversation_pending(&talk->server, &bytes);
    assert_int_equal(bytes, SHOALI_GREETING_BYTES);
    memcpy(talk->greeting, greeting, bytes);
    shoali_conversation_sent(&talk->server, bytes);
    assert_int_equal(shoali_greeting_read(talk->greeting, &talk->credentials), SHOALI_GREETED);
    shoali_proof_make(talk->greeting, client_nonce, &talk->credentials, talk->proof, talk->expected,
                      &talk->session);
}

static void close_talk(struct talk *talk)
{
    shoali_conversation_fini(&talk->server);
    shoali_table_fini(&talk->table);
}

/* Feeds all bytes as the room allows; false: the server gave the connection up. Answers are
 * appended to `received`. */
static bool feed(struct talk *talk, const void *data, size_t bytes, unsigned char *received,
                 size_t *received_bytes)
{
    const unsigned char *at = data;
    bool more = true, goes_on = true;
    while (goes_on && (bytes > 0 || more)) {
        size_t room = shoali_conversation_room(&talk->server), pending;
        const size_t given = bytes < room ? bytes : room;
        goes_on = shoali_store_serve_bytes(&talk->server, at, given);
        at += given;
        bytes -= given;
        const void *answer = shoali_conversation_pending(&talk->server, &pending);
        if (pending > 0)
            memcpy(received + *received_bytes, answer, pending);
        *received_bytes += pending;
        shoali_conversation_sent(&talk->server, pending);
        more = pending > 0;
        assert_true(!goes_on || given > 0 || more || bytes == 0);
    }
    return goes_on;
}

static size_t seal(struct talk *talk, const char *text, size_t bytes, unsigned char *message)
{
    memcpy(message, text, bytes);
    shoali_session_seal(&talk->session, SHOALI_QUESTIONS, message, bytes, message + bytes);
    return bytes + SHOALI_MAC_BYTES;
}

static void become_member(struct talk *talk)
{
    unsigned char received[256];
    size_t bytes = 0;
    assert_true(feed(talk, talk->proof, sizeof(talk->proof), received, &bytes));
    assert_int_equal(bytes, SHOALI_MAC_BYTES);
    assert_memory_equal(received, talk->expected, SHOALI_MAC_BYTES);
    assert_int_equal(talk->server.state, SHOALI_MEMBER);
}

static bool is_aborted(struct talk *talk)
{
    char value[8];
    size_t bytes = sizeof(value);
    return shoali_table_get(&talk->table, "k", value, &bytes) == SHOAL_EPEER;
}

static void members_are_served(void **state)
{
    (void)state;
    struct talk talk;
    unsigned char message[512], received[512];
    size_t bytes = 0;
    open_talk(&talk, "the job's own secret", 1);
    become_member(&talk);
    /* Three questions at once, cut anywhere. */
    size_t used = seal(&talk, "P k 3\nabc", 9, message);
    used += seal(&talk, "G k 0\n", 6, message + used);
    used += seal(&talk, "G other 0\n", 10, message + used);
    for (size_t i = 0; i < used; i++)
        assert_true(feed(&talk, message + i, 1, received, &bytes));
    assert_int_equal(bytes, 6 + 9 + 6 + 3 * SHOALI_MAC_BYTES);
    const unsigned char *at = received;
    assert_memory_equal(at, "O - 0\n", 6);
    assert_true(shoali_session_check(&talk.session, SHOALI_ANSWERS, at, 6, at + 6));
    at += 6 + SHOALI_MAC_BYTES;
    assert_memory_equal(at, "V - 3\nabc", 9);
    assert_true(shoali_session_check(&talk.session, SHOALI_ANSWERS, at, 9, at + 9));
    at += 9 + SHOALI_MAC_BYTES;
    assert_memory_equal(at, "N - 0\n", 6);
    assert_true(shoali_session_check(&talk.session, SHOALI_ANSWERS, at, 6, at + 6));
    bytes = 0;
    assert_true(feed(&talk, message, seal(&talk, "A - 3\nwhy", 9, message), received, &bytes));
    assert_true(is_aborted(&talk));
    assert_string_equal(shoal_error_message(), "why");
    close_talk(&talk);
}

static void wrong_secret_is_told(void **state)
{
    (void)state;
    struct talk talk;
    unsigned char received[256];
    const unsigned char zeros[SHOALI_MAC_BYTES] = {0};
    size_t bytes = 0;
    open_talk(&talk, "another secret", 1);
    assert_false(feed(&talk, talk.proof, sizeof(talk.proof), received, &bytes));
    assert_int_equal(talk.server.state, SHOALI_UNPROVEN);
    assert_int_equal(bytes, SHOALI_MAC_BYTES);
    assert_memory_equal(received, zeros, sizeof(zeros));
    assert_int_equal(shoali_conversation_room(&talk.server), 0);
    close_talk(&talk);
}

/* A proof of another connection, the server's own words, and each single bit that is wrong. */
static void no_proof_is_good_twice(void **state)
{
    (void)state;
    struct talk first, second;
    unsigned char received[256];
    size_t bytes = 0;
    open_talk(&first, "the job's own secret", 1);
    become_member(&first);
    open_talk(&second, "the job's own secret", 2);
    assert_false(feed(&second, first.proof, sizeof(first.proof), received, &bytes));
    close_talk(&second);
    open_talk(&second, "the job's own secret", 1);
    memcpy(second.proof + SHOALI_NONCE_BYTES, first.expected, SHOALI_MAC_BYTES);
    assert_false(feed(&second, second.proof, sizeof(second.proof), received, &bytes));
    close_talk(&second);
    for (size_t bit = 0; bit < 8 * SHOALI_PROOF_BYTES; bit++) {
        open_talk(&second, "the job's own secret", 1);
        second.proof[bit / 8] ^= (unsigned char)(1u << bit % 8);
        bytes = 0;
        assert_false(feed(&second, second.proof, sizeof(second.proof), received, &bytes));
        close_talk(&second);
    }
    close_talk(&first);
}

static void strangers_are_not_heard(void **state)
{
    (void)state;
    const char *const words[] = {"A - 3\nwhy", "P k 3\nabc", "G k 0\n", "GET / HTTP/1.1\r\n\r\n",
                                 "\n"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct talk talk;
        unsigned char received[256], value[8];
        size_t bytes = 0, size = sizeof(value);
        open_talk(&talk, "the job's own secret", 1);
        assert_int_equal(shoali_conversation_room(&talk.server), SHOALI_PROOF_BYTES);
        assert_true(feed(&talk, words[i], strlen(words[i]), received, &bytes));
        assert_int_equal(bytes, 0); /* it waits for the rest of a proof, and not for more */
        assert_int_equal(shoali_conversation_room(&talk.server),
                         SHOALI_PROOF_BYTES - strlen(words[i]));
        assert_int_equal(shoali_table_get(&talk.table, "k", value, &size), SHOAL_IN_PROGRESS);
        close_talk(&talk);
    }
}

/* Messages of a member that somebody on the way has changed, repeated or left out. */
static void messages_cannot_be_forged(void **state)
{
    (void)state;
    enum { CHANGED, REPEATED, LEFT_OUT, OTHER_WAY, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        struct talk talk;
        unsigned char first[128], second[128], received[512];
        size_t bytes = 0;
        open_talk(&talk, "the job's own secret", 1);
        become_member(&talk);
        size_t first_bytes = seal(&talk, "G k 0\n", 6, first);
        size_t second_bytes = seal(&talk, "A - 3\nwhy", 9, second);
        if (kind != LEFT_OUT && kind != OTHER_WAY)
            assert_true(feed(&talk, first, first_bytes, received, &bytes));
        if (kind == CHANGED)
            second[7] ^= 1;
        if (kind == OTHER_WAY) /* the server's own key is not good for questions */
            shoali_session_seal(&talk.session, SHOALI_ANSWERS, second, 9, second + 9);
        if (kind == REPEATED)
            assert_false(feed(&talk, first, first_bytes, received, &bytes));
        else
            assert_false(feed(&talk, second, second_bytes, received, &bytes));
        assert_int_equal(talk.server.state, SHOALI_OVER);
        assert_int_equal(shoali_conversation_room(&talk.server), 0);
        assert_false(is_aborted(&talk));
        close_talk(&talk);
    }
}

static void nonsense_of_members_ends_it(void **state)
{
    (void)state;
    char longest[300];
    memset(longest, 'k', sizeof(longest));
    const char *const words[] = {"Z k 0\n", "G k 65537\n", "G k -1\n",          "G k 1\nx",
                                 "G  0\n",  "G k 00\n",    "P k 99999999999\n", "G k\x01 0\n",
                                 "g k 0\n", "\n",          "A - 1024\n"};
    for (size_t i = 0; i <= sizeof(words) / sizeof(words[0]); i++) {
        struct talk talk;
        unsigned char message[2048] = {0}, received[512];
        size_t bytes = 0, length = 0;
        const bool is_long = i == sizeof(words) / sizeof(words[0]);
        open_talk(&talk, "the job's own secret", 1);
        become_member(&talk);
        memcpy(message, is_long ? longest : words[i], is_long ? sizeof(longest) : strlen(words[i]));
        length = is_long ? sizeof(longest) : strlen(words[i]);
        if (strcmp(words[i < 11 ? i : 0], "A - 1024\n") == 0 && !is_long)
            length += 1024;
        shoali_session_seal(&talk.session, SHOALI_QUESTIONS, message, length, message + length);
        bool goes_on = true;
        for (size_t at = 0; at < length + SHOALI_MAC_BYTES && goes_on; at++)
            goes_on = shoali_conversation_room(&talk.server) > 0 &&
                      feed(&talk, message + at, 1, received, &bytes);
        assert_false(goes_on);
        assert_int_equal(talk.server.state, SHOALI_OVER); /* not a member of whom nothing is read */
        assert_int_equal(bytes, 0);
        assert_false(is_aborted(&talk));
        close_talk(&talk);
    }
}

/* Nothing more is taken while an answer waits, and what is held is one message. */
static void slow_readers_are_not_read(void **state)
{
    (void)state;
    struct talk talk;
    unsigned char message[128];
    char *value = calloc(1, SHOALI_STORE_VALUE_BYTES);
    size_t bytes = 0;
    open_talk(&talk, "the job's own secret", 1);
    assert_int_equal(shoali_table_put(&talk.table, "k", value, SHOALI_STORE_VALUE_BYTES), SHOAL_OK);
    become_member(&talk);
    size_t used = seal(&talk, "G k 0\n", 6, message);
    used += seal(&talk, "G k 0\n", 6, message + used);
    assert_true(shoali_store_serve_bytes(&talk.server, message, used));
    shoali_conversation_pending(&talk.server, &bytes);
    assert_int_equal(bytes, strlen("V - 65536\n") + SHOALI_STORE_VALUE_BYTES + SHOALI_MAC_BYTES);
    assert_int_equal(shoali_conversation_room(&talk.server), 0);
    shoali_conversation_sent(&talk.server, bytes - 1);
    assert_int_equal(shoali_conversation_room(&talk.server), 0);
    shoali_conversation_sent(&talk.server, 1);
    assert_true(shoali_store_serve_bytes(&talk.server, NULL, 0));
    shoali_conversation_pending(&talk.server, &used);
    assert_int_equal(used, bytes); /* the second question's answer */
    assert_true(talk.server.in.capacity <= 512 && talk.server.out.capacity < 66000);
    free(value);
    close_talk(&talk);
}

static void greetings_are_told_apart(void **state)
{
    (void)state;
    struct talk talk;
    const struct shoali_credentials other = {.key = "the job's own secret", .job = "another job"};
    unsigned char greeting[SHOALI_GREETING_BYTES] = "HTTP/1.1 400 Bad Request";
    open_talk(&talk, "the job's own secret", 1);
    assert_int_equal(shoali_greeting_read(talk.greeting, &other), SHOALI_OTHER_JOB);
    assert_int_equal(shoali_greeting_read(greeting, &other), SHOALI_NO_STORE);
    talk.greeting[6]++;
    assert_int_equal(shoali_greeting_read(talk.greeting, &other), SHOALI_OTHER_VERSION);
    shoali_refusal_make(greeting);
    assert_int_equal(shoali_greeting_read(greeting, &other), SHOALI_NO_DESCRIPTORS);
    close_talk(&talk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_served),        cmocka_unit_test(wrong_secret_is_told),
        cmocka_unit_test(no_proof_is_good_twice),    cmocka_unit_test(strangers_are_not_heard),
        cmocka_unit_test(messages_cannot_be_forged), cmocka_unit_test(nonsense_of_members_ends_it),
        cmocka_unit_test(slow_readers_are_not_read), cmocka_unit_test(greetings_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
