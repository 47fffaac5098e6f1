/* SPDX-License-Identifier: MIT */
#include "lib/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/owned.h"

static const char *const role_names[] = {
    [TLS_ORCHESTRATOR] = "orchestrator",
    [TLS_AGENT] = "agent",
};

static inline void owned_ssl_ctx(SSL_CTX **context)
{
    SSL_CTX_free(*context);
}

static inline void owned_x509(X509 **certificate)
{
    X509_free(*certificate);
}

static inline void owned_pkey(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}

/* What the verification of a peer's certificate can say, in a person's words. */
static const struct {
    long code;
    const char *words, *hint;
} verify_words[] = {
    {X509_V_ERR_CERT_HAS_EXPIRED, "the peer's certificate has expired",
     "Issue a new one with 'ordeal pki issue', or look at the clocks."},
    {X509_V_ERR_CERT_NOT_YET_VALID, "the peer's certificate is not valid yet",
     "Compare the clocks of the two hosts."},
    {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, "the peer's certificate is of a foreign CA",
     "Both sides need certificates of the same CA ('ordeal pki show FILE')."},
    {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, "the peer's certificate is of a foreign CA",
     "Both sides need certificates of the same CA ('ordeal pki show FILE')."},
    {X509_V_ERR_CERT_SIGNATURE_FAILURE, "the peer's certificate is of a foreign CA",
     "Both sides need certificates of the same CA ('ordeal pki show FILE')."},
    {X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, "the peer's certificate is self-signed",
     "Issue one with 'ordeal pki issue'."},
    {X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, "the peer's certificate is of a foreign CA",
     "Both sides need certificates of the same CA ('ordeal pki show FILE')."},
    {X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, "the peer's certificate is of a foreign CA",
     "Both sides need certificates of the same CA ('ordeal pki show FILE')."},
    {X509_V_ERR_CERT_CHAIN_TOO_LONG, "the peer's certificate is not issued by the CA itself",
     "Issue one with 'ordeal pki issue'."},
    {X509_V_ERR_INVALID_PURPOSE, "the peer's certificate has the wrong role",
     "Agents need '--role agent', the orchestrator '--role orchestrator'."},
};

/* What a peer's alert or our own library can say. */
static const struct {
    int reason;
    enum status status;
    const char *words, *hint;
} reason_words[] = {
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, STATUS_REFUSED,
     "the peer refused our certificate: it has expired",
     "Issue a new one with 'ordeal pki issue', or look at the clocks."},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, STATUS_REFUSED,
     "the peer refused our certificate: it is of a foreign CA",
     "Both sides need certificates of the same CA ('ordeal pki show FILE')."},
    {SSL_R_TLSV1_ALERT_DECRYPT_ERROR, STATUS_REFUSED,
     "the peer refused our certificate: it is of a foreign CA",
     "Both sides need certificates of the same CA ('ordeal pki show FILE')."},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, STATUS_REFUSED,
     "the peer refused our certificate: it has the wrong role",
     "Agents need '--role agent', the orchestrator '--role orchestrator'."},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, STATUS_REFUSED,
     "the peer refused our certificate: it is not valid (yet)",
     "Compare the clocks of the two hosts, and look at 'ordeal pki show FILE'."},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, STATUS_REFUSED,
     "the peer refused us: it demands a certificate", "Give the certificate and key files."},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, STATUS_REFUSED, "the peer gave no certificate",
     "It must speak as the orchestrator, with a certificate of the CA."},
    {SSL_R_WRONG_VERSION_NUMBER, STATUS_PROTOCOL, "the peer does not speak TLS",
     "Look whether address and port are those of an agent."},
    {SSL_R_HTTP_REQUEST, STATUS_PROTOCOL, "the peer speaks HTTP, not TLS", ""},
    {SSL_R_UNSUPPORTED_PROTOCOL, STATUS_PROTOCOL, "the peer offers no TLS 1.3", ""},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, STATUS_PROTOCOL, "the peer refuses TLS 1.3", ""},
    {SSL_R_UNEXPECTED_EOF_WHILE_READING, STATUS_UNREACHABLE, "the peer closed the connection", ""},
};

/* Read from the descriptor, so that the file that was checked is the file that is read. */
static enum status read_key(const char *path, EVP_PKEY **ret_key, struct error *err)
{
    OWNED_FILE FILE *file = fopen(path, "re");
    struct stat info;

    if (file == NULL || fstat(fileno(file), &info) != 0)
        return error_system(err, "opening key %s", path);
    if ((info.st_mode & 077) != 0) {
        error_set(err, STATUS_REFUSED, "key %s can be read by others (mode %04o)", path,
                  (unsigned) info.st_mode & 07777);
        error_hint(err, "Run: chmod 600 %s", path);
        return STATUS_REFUSED;
    }
    /* an empty passphrase, so that nothing ever asks on a terminal */
    char no_passphrase[] = "";
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, NULL, no_passphrase);
    if (key == NULL) {
        ERR_clear_error();
        return error_set(err, STATUS_INVALID, "%s holds no private key without a passphrase", path);
    }
    *ret_key = key;
    return STATUS_OK;
}

static enum status read_certificate(const char *path, X509 **ret_certificate, struct error *err)
{
    OWNED_FILE FILE *file = fopen(path, "re");

    if (file == NULL)
        return error_system(err, "opening certificate %s", path);
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    if (certificate == NULL) {
        ERR_clear_error();
        return error_set(err, STATUS_INVALID, "%s holds no certificate", path);
    }
    *ret_certificate = certificate;
    return STATUS_OK;
}

static enum status check_role(X509 *certificate, enum tls_role role, struct error *err)
{
    char unit[64] = "";

    if (certificate == NULL)
        return error_set(err, STATUS_REFUSED, "the peer gave no certificate");
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_organizationalUnitName, unit,
                              sizeof unit);
    if (strcmp(unit, role_names[role]) == 0)
        return STATUS_OK;
    error_set(err, STATUS_REFUSED, "the peer's certificate has role '%s', not '%s'", unit,
              role_names[role]);
    error_hint(err, "Issue one with 'ordeal pki issue --role %s'.", role_names[role]);
    return STATUS_REFUSED;
}

/* The role is part of the verification, so that a wrong one ends in an alert that says so. */
static int verify_peer(int accepted, X509_STORE_CTX *store, enum tls_role peer)
{
    if (!accepted || X509_STORE_CTX_get_error_depth(store) > 0)
        return accepted;
    if (check_role(X509_STORE_CTX_get_current_cert(store), peer, NULL) == STATUS_OK)
        return 1;
    X509_STORE_CTX_set_error(store, X509_V_ERR_INVALID_PURPOSE);
    return 0;
}

static int verify_orchestrator(int accepted, X509_STORE_CTX *store)
{
    return verify_peer(accepted, store, TLS_ORCHESTRATOR);
}

static int verify_agent(int accepted, X509_STORE_CTX *store)
{
    return verify_peer(accepted, store, TLS_AGENT);
}

/*
 * Nothing is resumed: a resumed session would skip the look at the certificate. The chain is the
 * leaf and the CA, nothing between.
 */
static bool harden(SSL_CTX *context, enum tls_role role)
{
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       role == TLS_AGENT ? verify_orchestrator : verify_agent);
    SSL_CTX_set_verify_depth(context, 0);
    return SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_num_tickets(context, 0) == 1;
}

static enum status use_files(SSL_CTX *context, const struct tls_files *files, struct error *err)
{
    __attribute__((cleanup(owned_pkey))) EVP_PKEY *key = NULL;
    __attribute__((cleanup(owned_x509))) X509 *ca = NULL;
    __attribute__((cleanup(owned_x509))) X509 *certificate = NULL;
    enum status status = read_key(files->key, &key, err);

    if (status == STATUS_OK)
        status = read_certificate(files->ca, &ca, err);
    if (status == STATUS_OK)
        status = read_certificate(files->certificate, &certificate, err);
    if (status != STATUS_OK)
        return status;
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca) != 1 ||
        SSL_CTX_use_certificate(context, certificate) != 1)
        return tls_error(NULL, 0, err, "taking the certificates");
    if (SSL_CTX_use_PrivateKey(context, key) != 1 || SSL_CTX_check_private_key(context) != 1) {
        ERR_clear_error();
        return error_set(err, STATUS_INVALID, "key %s is not that of certificate %s", files->key,
                         files->certificate);
    }
    return STATUS_OK;
}

enum status tls_context(enum tls_role role, const struct tls_files *files, SSL_CTX **ret_context,
                        struct error *err)
{
    __attribute__((cleanup(owned_ssl_ctx))) SSL_CTX *context =
        SSL_CTX_new(role == TLS_AGENT ? TLS_server_method() : TLS_client_method());

    if (context == NULL || !harden(context, role))
        return tls_error(NULL, 0, err, "preparing TLS");
    enum status status = use_files(context, files, err);
    if (status != STATUS_OK)
        return status;
    *ret_context = context;
    context = NULL;
    return STATUS_OK;
}

enum status tls_check_peer(SSL *ssl, enum tls_role role, const char *name, struct error *err)
{
    __attribute__((cleanup(owned_x509))) X509 *certificate = SSL_get1_peer_certificate(ssl);
    long verified = SSL_get_verify_result(ssl);
    char common[256] = "";

    if (certificate != NULL && verified != X509_V_OK)
        return error_set(err, STATUS_REFUSED, "the peer's certificate: %s",
                         X509_verify_cert_error_string(verified));
    enum status status = check_role(certificate, role, err);
    if (status != STATUS_OK || name == NULL)
        return status;
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, common,
                              sizeof common);
    if (strcmp(common, name) != 0)
        return error_set(err, STATUS_REFUSED, "the peer's certificate is that of '%s', not of '%s'",
                         common, name);
    return STATUS_OK;
}

static enum status verify_error(long code, struct error *err, const char *doing)
{
    for (size_t i = 0; i < sizeof verify_words / sizeof verify_words[0]; i++) {
        if (verify_words[i].code != code)
            continue;
        error_set(err, STATUS_REFUSED, "%s: %s", doing, verify_words[i].words);
        error_hint(err, "%s", verify_words[i].hint);
        return STATUS_REFUSED;
    }
    return error_set(err, STATUS_REFUSED, "%s: the peer's certificate: %s", doing,
                     X509_verify_cert_error_string(code));
}

static enum status queue_error(struct error *err, const char *doing)
{
    unsigned long code = ERR_peek_error();
    const char *text = ERR_reason_error_string(code);
    int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;

    ERR_clear_error();
    for (size_t i = 0; reason != 0 && i < sizeof reason_words / sizeof reason_words[0]; i++) {
        if (reason_words[i].reason != reason)
            continue;
        error_set(err, reason_words[i].status, "%s: %s", doing, reason_words[i].words);
        error_hint(err, "%s", reason_words[i].hint);
        return reason_words[i].status;
    }
    return error_set(err, STATUS_PROTOCOL, "%s: TLS: %s", doing,
                     text == NULL ? "no reason is known" : text);
}

enum status tls_error(SSL *ssl, int result, struct error *err, const char *doing)
{
    int errnum = errno;
    int kind = ssl == NULL ? SSL_ERROR_SSL : SSL_get_error(ssl, result);

    if (kind == SSL_ERROR_ZERO_RETURN || (kind == SSL_ERROR_SYSCALL && errnum == 0)) {
        ERR_clear_error();
        return error_set(err, STATUS_UNREACHABLE, "%s: the peer closed the connection", doing);
    }
    if (kind == SSL_ERROR_SYSCALL && ERR_peek_error() == 0) {
        errno = errnum;
        error_system(err, "%s", doing);
        if (err != NULL)
            err->code = STATUS_UNREACHABLE;
        return STATUS_UNREACHABLE;
    }
    if (ssl != NULL && ERR_GET_REASON(ERR_peek_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        ERR_clear_error();
        return verify_error(SSL_get_verify_result(ssl), err, doing);
    }
    return queue_error(err, doing);
}
