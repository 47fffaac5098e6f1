/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <limits.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/owned.h"
#include "lib/process.h"
#include "lib/tls.h"
#include "tests/support/suite.h"

enum { DAYS = 10 };

static char folder[64];

static void setup(void)
{
    struct error err;

    strcpy(folder, "/tmp/ordeal-tls-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(pki_init(folder, DAYS, &err), STATUS_OK);
}

static void teardown(void)
{
    const char *argv[] = {"rm", "-rf", folder, NULL};
    struct error err;

    ck_assert_int_eq(
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, NULL, &err),
        STATUS_OK);
}

static const char *in_folder(const char *of, const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, PATH_MAX, "%s/%s", of, name);
    return path;
}

static enum status context_of(const char *ca, const char *of, const char *name, enum tls_role role,
                              SSL_CTX **ret_context, struct error *err)
{
    char certificate[80], key[80];

    snprintf(certificate, sizeof certificate, "%s.crt", name);
    snprintf(key, sizeof key, "%s.key", name);
    return tls_context(role,
                       &(struct tls_files){.ca = in_folder(ca, "ca.crt"),
                                           .certificate = in_folder(of, certificate),
                                           .key = in_folder(of, key)},
                       ret_context, err);
}

/* Both ends in this process, joined by a BIO pair, until both are done or one has failed. */
struct handshake {
    SSL *client, *server;
    int client_result, server_result;
    struct error client_error, server_error;
    bool client_failed, server_failed;
};

static bool step(SSL *ssl, int *result, struct error *err, const char *doing, bool *failed)
{
    char byte;

    /* SSL_read() also takes in what comes after the handshake: the alert of a server that refuses
     */
    *result = SSL_is_init_finished(ssl) ? SSL_read(ssl, &byte, 1) : SSL_do_handshake(ssl);
    int kind = SSL_get_error(ssl, *result);
    if (*result > 0 || kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
        return true;
    tls_error(ssl, *result, err, doing);
    *failed = true;
    return false;
}

static void shake(SSL_CTX *client, SSL_CTX *server, struct handshake *hands)
{
    BIO *one, *other;

    *hands = (struct handshake){.client = SSL_new(client), .server = SSL_new(server)};
    ck_assert_int_eq(BIO_new_bio_pair(&one, 0, &other, 0), 1);
    SSL_set_bio(hands->client, one, one);
    SSL_set_bio(hands->server, other, other);
    SSL_set_connect_state(hands->client);
    SSL_set_accept_state(hands->server);
    for (int i = 0; i < 20; i++) {
        if (!hands->client_failed)
            step(hands->client, &hands->client_result, &hands->client_error, "calling n1",
                 &hands->client_failed);
        if (!hands->server_failed)
            step(hands->server, &hands->server_result, &hands->server_error, "answering",
                 &hands->server_failed);
    }
}

static void done(struct handshake *hands)
{
    SSL_free(hands->client);
    SSL_free(hands->server);
}

static void issue(const char *name, enum tls_role role, int64_t days)
{
    struct error err;

    ck_assert_int_eq(pki_issue(folder, name, role, days, &err), STATUS_OK);
}

static SSL_CTX *context(const char *name, enum tls_role role)
{
    SSL_CTX *made = NULL;
    struct error err = {0};

    ck_assert_msg(context_of(folder, folder, name, role, &made, &err) == STATUS_OK, "%s",
                  err.message);
    return made;
}

START_TEST(right_roles_meet)
{
    struct handshake hands;
    struct error err = {0};

    issue("n1", TLS_AGENT, DAYS);
    issue("control", TLS_ORCHESTRATOR, DAYS);
    SSL_CTX *server = context("n1", TLS_AGENT);
    SSL_CTX *client = context("control", TLS_ORCHESTRATOR);
    shake(client, server, &hands);
    ck_assert_msg(!hands.client_failed, "%s", hands.client_error.message);
    ck_assert_msg(!hands.server_failed, "%s", hands.server_error.message);
    ck_assert(SSL_is_init_finished(hands.client) && SSL_is_init_finished(hands.server));
    ck_assert_str_eq(SSL_get_version(hands.client), "TLSv1.3");
    ck_assert_int_eq(tls_check_peer(hands.client, TLS_AGENT, "n1", &err), STATUS_OK);
    ck_assert_int_eq(tls_check_peer(hands.server, TLS_ORCHESTRATOR, NULL, &err), STATUS_OK);
    ck_assert_int_eq(tls_check_peer(hands.client, TLS_AGENT, "n2", &err), STATUS_REFUSED);
    ck_assert_str_eq(err.message, "the peer's certificate is that of 'n1', not of 'n2'");
    ck_assert_int_eq(tls_check_peer(hands.client, TLS_ORCHESTRATOR, NULL, &err), STATUS_REFUSED);
    ck_assert_str_eq(err.message, "the peer's certificate has role 'agent', not 'orchestrator'");
    done(&hands);
    SSL_CTX_free(server);
    SSL_CTX_free(client);
}
END_TEST

START_TEST(a_client_of_the_wrong_role_is_refused_and_told)
{
    struct handshake hands;

    issue("n1", TLS_AGENT, DAYS);
    issue("n2", TLS_AGENT, DAYS);
    SSL_CTX *server = context("n1", TLS_AGENT);
    SSL_CTX *client = context("n2", TLS_ORCHESTRATOR); /* acts as one, has no such certificate */
    shake(client, server, &hands);
    ck_assert(hands.server_failed && hands.client_failed);
    ck_assert_int_eq(hands.server_error.code, STATUS_REFUSED);
    ck_assert_str_eq(hands.server_error.message,
                     "answering: the peer's certificate has the wrong role");
    ck_assert_str_eq(hands.client_error.message,
                     "calling n1: the peer refused our certificate: it has the wrong role");
    done(&hands);
    SSL_CTX_free(server);
    SSL_CTX_free(client);
}
END_TEST

START_TEST(a_server_of_the_wrong_role_is_refused)
{
    struct handshake hands;
    struct error err = {0};

    issue("control", TLS_ORCHESTRATOR, DAYS);
    ck_assert_int_eq(pki_issue_server(folder, "database", "127.0.0.1", DAYS, &err), STATUS_OK);
    SSL_CTX *client = context("control", TLS_ORCHESTRATOR);
    SSL_CTX *server = context("control", TLS_AGENT);
    shake(client, server, &hands);
    ck_assert(hands.client_failed);
    ck_assert_str_eq(hands.client_error.message,
                     "calling n1: the peer's certificate has the wrong role");
    done(&hands);
    SSL_CTX_free(server);
    server = context("database", TLS_AGENT);
    shake(client, server, &hands);
    ck_assert(hands.client_failed);
    ck_assert_int_eq(hands.client_error.code, STATUS_REFUSED);
    done(&hands);
    SSL_CTX_free(server);
    SSL_CTX_free(client);
}
END_TEST

START_TEST(an_expired_certificate_is_refused_on_both_sides)
{
    struct handshake hands;

    issue("n1", TLS_AGENT, DAYS);
    issue("late", TLS_AGENT, -1);
    issue("control", TLS_ORCHESTRATOR, DAYS);
    issue("old", TLS_ORCHESTRATOR, -1);
    SSL_CTX *server = context("n1", TLS_AGENT);
    SSL_CTX *client = context("old", TLS_ORCHESTRATOR);
    shake(client, server, &hands);
    ck_assert_str_eq(hands.server_error.message, "answering: the peer's certificate has expired");
    ck_assert_str_eq(hands.client_error.message,
                     "calling n1: the peer refused our certificate: it has expired");
    done(&hands);
    SSL_CTX_free(server);
    SSL_CTX_free(client);
    server = context("late", TLS_AGENT);
    client = context("control", TLS_ORCHESTRATOR);
    shake(client, server, &hands);
    ck_assert_str_eq(hands.client_error.message, "calling n1: the peer's certificate has expired");
    done(&hands);
    SSL_CTX_free(server);
    SSL_CTX_free(client);
}
END_TEST

START_TEST(a_foreign_ca_is_refused)
{
    struct handshake hands;
    struct error err = {0};
    char foreign[PATH_MAX];
    SSL_CTX *client = NULL;

    snprintf(foreign, sizeof foreign, "%s/foreign", folder);
    ck_assert_int_eq(pki_init(foreign, DAYS, &err), STATUS_OK);
    ck_assert_int_eq(pki_issue(foreign, "control", TLS_ORCHESTRATOR, DAYS, &err), STATUS_OK);
    issue("n1", TLS_AGENT, DAYS);
    SSL_CTX *server = context("n1", TLS_AGENT);
    /* trusts our agent, so that it is the server that has to refuse */
    ck_assert_int_eq(context_of(folder, foreign, "control", TLS_ORCHESTRATOR, &client, &err),
                     STATUS_OK);
    shake(client, server, &hands);
    ck_assert_str_eq(hands.server_error.message,
                     "answering: the peer's certificate is of a foreign CA");
    ck_assert_ptr_nonnull(strstr(hands.client_error.message, "it is of a foreign CA"));
    done(&hands);
    SSL_CTX_free(client);
    ck_assert_int_eq(context_of(foreign, foreign, "control", TLS_ORCHESTRATOR, &client, &err),
                     STATUS_OK);
    shake(client, server, &hands);
    ck_assert_str_eq(hands.client_error.message,
                     "calling n1: the peer's certificate is of a foreign CA");
    ck_assert_ptr_nonnull(strstr(hands.client_error.hint, "ordeal pki show"));
    done(&hands);
    SSL_CTX_free(server);
    SSL_CTX_free(client);
}
END_TEST

START_TEST(older_protocols_and_anonymous_peers_are_refused)
{
    struct handshake hands;

    issue("n1", TLS_AGENT, DAYS);
    SSL_CTX *server = context("n1", TLS_AGENT);
    SSL_CTX *client = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(client, SSL_VERIFY_NONE, NULL);
    shake(client, server, &hands);
    ck_assert_str_eq(hands.server_error.message, "answering: the peer gave no certificate");
    ck_assert_ptr_nonnull(strstr(hands.client_error.message, "demands a certificate"));
    done(&hands);
    SSL_CTX_set_max_proto_version(client, TLS1_2_VERSION);
    shake(client, server, &hands);
    ck_assert_str_eq(hands.server_error.message, "answering: the peer offers no TLS 1.3");
    done(&hands);
    SSL_CTX_free(client);
    SSL_CTX_free(server);
}
END_TEST

START_TEST(keys_are_private_and_belong_to_their_certificate)
{
    SSL_CTX *made = NULL;
    struct stat info;
    struct error err = {0};

    issue("n1", TLS_AGENT, DAYS);
    issue("n2", TLS_AGENT, DAYS);
    ck_assert_int_eq(stat(in_folder(folder, "n1.key"), &info), 0);
    ck_assert_int_eq(info.st_mode & 07777, 0600);
    ck_assert_int_eq(stat(in_folder(folder, "ca.key"), &info), 0);
    ck_assert_int_eq(info.st_mode & 07777, 0600);
    ck_assert_int_eq(chmod(in_folder(folder, "n1.key"), 0640), 0);
    ck_assert_int_eq(context_of(folder, folder, "n1", TLS_AGENT, &made, &err), STATUS_REFUSED);
    ck_assert_ptr_nonnull(strstr(err.message, "n1.key can be read by others (mode 0640)"));
    ck_assert_int_eq(rename(in_folder(folder, "n2.key"), in_folder(folder, "n1.key")), 0);
    ck_assert_int_eq(context_of(folder, folder, "n1", TLS_AGENT, &made, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, "is not that of certificate"));
    ck_assert_int_eq(context_of(folder, folder, "n3", TLS_AGENT, &made, &err), STATUS_SYSTEM);
    ck_assert_ptr_null(made);
}
END_TEST

START_TEST(a_second_ca_and_bad_names_are_refused)
{
    static const char *const names[] = {"", "ca", "../n1", "N1", "-n", ".n", "a/b", "n1 ", NULL};
    struct error err = {0};

    ck_assert_int_eq(pki_init(folder, DAYS, &err), STATUS_EXISTS);
    ck_assert_str_ne(err.hint, "");
    for (size_t i = 0; names[i] != NULL; i++)
        ck_assert_msg(pki_issue(folder, names[i], TLS_AGENT, DAYS, &err) == STATUS_INVALID, "'%s'",
                      names[i]);
    ck_assert_int_eq(pki_issue_server(folder, "db", "127.0.0.1,IP:1.1.1.1", DAYS, &err),
                     STATUS_INVALID);
    ck_assert_int_eq(pki_issue("/nonexistent", "n1", TLS_AGENT, DAYS, &err), STATUS_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.hint, "ordeal pki init"));
}
END_TEST

START_TEST(show_names_subject_role_and_dates)
{
    OWNED_BUFFER struct buffer text = BUFFER(4096);
    struct error err = {0};

    issue("n1", TLS_AGENT, DAYS);
    ck_assert_int_eq(pki_show(in_folder(folder, "n1.crt"), &text, &err), STATUS_OK);
    ck_assert_ptr_nonnull(strstr(text.data, "CN = n1"));
    ck_assert_ptr_nonnull(strstr(text.data, "role         agent\n"));
    ck_assert_ptr_nonnull(strstr(text.data, "not after"));
    ck_assert_ptr_nonnull(strstr(text.data, "sha256"));
    ck_assert_int_eq(pki_show(in_folder(folder, "n1.key"), &text, &err), STATUS_INVALID);
}
END_TEST

/* What libpq does with sslmode=verify-full, and a digest for SCRAM's channel binding. */
START_TEST(a_server_certificate_verifies_and_has_a_digest)
{
    const char *argv[] = {"openssl",
                          "verify",
                          "-CAfile",
                          in_folder(folder, "ca.crt"),
                          "-untrusted",
                          in_folder(folder, "db.crt"),
                          "-purpose",
                          "sslserver",
                          "-verify_ip",
                          "10.77.0.1",
                          in_folder(folder, "db.crt"),
                          NULL};
    struct error err = {0};
    int digest = NID_undef;

    ck_assert_int_eq(pki_issue_server(folder, "db", "10.77.0.1", DAYS, &err), STATUS_OK);
    enum status status =
        process_run(&(struct process_spec){.argv = argv, .timeout_ms = 5000}, NULL, &err);
    ck_assert_msg(status == STATUS_OK, "%s %s", err.message, err.detail);
    FILE *file = fopen(in_folder(folder, "db.crt"), "re");
    ck_assert_ptr_nonnull(file);
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    ck_assert_int_eq(OBJ_find_sigid_algs(X509_get_signature_nid(certificate), &digest, NULL), 1);
    ck_assert_int_eq(digest, NID_sha256);
    X509_free(certificate);
}
END_TEST

TEST_MAIN("tls", 20, setup, teardown, right_roles_meet,
          a_client_of_the_wrong_role_is_refused_and_told, a_server_of_the_wrong_role_is_refused,
          an_expired_certificate_is_refused_on_both_sides, a_foreign_ca_is_refused,
          older_protocols_and_anonymous_peers_are_refused,
          keys_are_private_and_belong_to_their_certificate, a_second_ca_and_bad_names_are_refused,
          show_names_subject_role_and_dates, a_server_certificate_verifies_and_has_a_digest)
