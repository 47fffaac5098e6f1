/* SPDX-License-Identifier: MIT */
/*
 * The deployment's CA: Ed25519 keys, one level, role in the subject's OU.
 *
 * The certificates of PostgreSQL are the exception. libpq binds SCRAM to the channel with a hash of
 * the server's certificate, by the digest of its signature; Ed25519 has none, and the connection
 * fails. So each of them has an ECDSA key and is signed by an ECDSA CA of its own, made for that
 * one signature, signed by the Ed25519 CA and stored behind the certificate; its key is thrown
 * away.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/owned.h"
#include "lib/tls.h"

enum { SECONDS_PER_DAY = 86400, CLOCK_SLACK_SECONDS = 3600, NAME_MAX_LENGTH = 63 };

static inline void owned_x509(X509 **certificate)
{
    X509_free(*certificate);
}

static inline void owned_pkey(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}

static inline void owned_extension(X509_EXTENSION **extension)
{
    X509_EXTENSION_free(*extension);
}

#define OWNED_X509 __attribute__((cleanup(owned_x509)))
#define OWNED_PKEY __attribute__((cleanup(owned_pkey)))

/* A certificate and its key. */
struct pair {
    X509 *certificate;
    EVP_PKEY *key;
};

static void pair_done(struct pair *pair)
{
    X509_free(pair->certificate);
    EVP_PKEY_free(pair->key);
    *pair = (struct pair){0};
}

#define OWNED_PAIR __attribute__((cleanup(pair_done)))

static struct pair take_pair(struct pair *pair)
{
    struct pair taken = *pair;

    *pair = (struct pair){0};
    return taken;
}

struct extension {
    int nid; /* 0 ends a list */
    const char *value;
};

struct wanted {
    const char *common, *unit;
    const char *usage, *extended_usage; /* extended_usage NULL: a CA */
    const char *names;                  /* subjectAltName, or NULL */
    const char *constraints;
    bool ecdsa;
    int64_t valid_days;
};

static enum status check_name(const char *name, struct error *err)
{
    size_t length = strlen(name);
    bool fine = length > 0 && length <= NAME_MAX_LENGTH && isalnum((unsigned char) name[0]) &&
                strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == length;

    if (!fine)
        return error_set(err, STATUS_INVALID,
                         "name '%s': 1 to 63 of a-z, 0-9, '.' and '-' are allowed", name);
    if (strcmp(name, "ca") == 0)
        return error_set(err, STATUS_INVALID, "name 'ca' is that of the CA itself");
    return STATUS_OK;
}

static EVP_PKEY *new_key(bool ecdsa)
{
    return ecdsa ? EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256")
                 : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
}

static bool set_serial(X509 *certificate)
{
    unsigned char bytes[16];
    BIGNUM *number = NULL;
    bool done = RAND_bytes(bytes, sizeof bytes) == 1;

    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and of one length */
    if (done)
        number = BN_bin2bn(bytes, sizeof bytes, NULL);
    done = number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
    BN_free(number);
    return done;
}

/* Valid from an hour ago, so that a clock that is a little behind does no harm. */
static bool set_validity(X509 *certificate, int64_t valid_days)
{
    time_t now = time(NULL);
    time_t end = now + valid_days * SECONDS_PER_DAY;
    time_t start = (end < now ? end : now) - CLOCK_SLACK_SECONDS;

    return ASN1_TIME_set(X509_getm_notBefore(certificate), start) != NULL &&
           ASN1_TIME_set(X509_getm_notAfter(certificate), end) != NULL;
}

static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;

    if (value == NULL)
        return true;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    __attribute__((cleanup(owned_extension))) X509_EXTENSION *extension =
        X509V3_EXT_conf_nid(NULL, &context, nid, value);
    return extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
}

static bool add_extensions(X509 *certificate, X509 *issuer, const struct wanted *wanted)
{
    return add_extension(certificate, issuer, NID_basic_constraints, wanted->constraints) &&
           add_extension(certificate, issuer, NID_key_usage, wanted->usage) &&
           add_extension(certificate, issuer, NID_ext_key_usage, wanted->extended_usage) &&
           add_extension(certificate, issuer, NID_subject_alt_name, wanted->names) &&
           add_extension(certificate, issuer, NID_subject_key_identifier, "hash") &&
           add_extension(certificate, issuer, NID_authority_key_identifier, "keyid:always");
}

static bool set_subject(X509 *certificate, const struct wanted *wanted)
{
    X509_NAME *name = X509_get_subject_name(certificate);
    const unsigned char *common = (const unsigned char *) wanted->common;
    const unsigned char *unit = (const unsigned char *) wanted->unit;

    return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8, (const unsigned char *) "Ordeal",
                                      -1, -1, 0) == 1 &&
           X509_NAME_add_entry_by_txt(name, "OU", MBSTRING_UTF8, unit, -1, -1, 0) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, common, -1, -1, 0) == 1;
}

/* issuer NULL: signs itself. */
static enum status make_pair(const struct wanted *wanted, const struct pair *issuer,
                             struct pair *ret_pair, struct error *err)
{
    OWNED_PAIR struct pair pair = {.certificate = X509_new(), .key = new_key(wanted->ecdsa)};
    const struct pair *signer = issuer == NULL ? &pair : issuer;

    if (pair.certificate == NULL || pair.key == NULL)
        return tls_error(NULL, 0, err, "making a key");
    const EVP_MD *digest = EVP_PKEY_get_base_id(signer->key) == EVP_PKEY_EC ? EVP_sha256() : NULL;
    bool done =
        X509_set_version(pair.certificate, X509_VERSION_3) == 1 && set_serial(pair.certificate) &&
        set_validity(pair.certificate, wanted->valid_days) &&
        set_subject(pair.certificate, wanted) && X509_set_pubkey(pair.certificate, pair.key) == 1 &&
        X509_set_issuer_name(pair.certificate, X509_get_subject_name(signer->certificate)) == 1 &&
        add_extensions(pair.certificate, signer->certificate, wanted) &&
        X509_sign(pair.certificate, signer->key, digest) > 0;
    if (!done)
        return tls_error(NULL, 0, err, "making a certificate");
    *ret_pair = take_pair(&pair);
    return STATUS_OK;
}

/* "FOLDER/NAME.SUFFIX" */
static enum status pki_path(char *path, size_t size, const char *folder, const char *name,
                            const char *suffix, struct error *err)
{
    int length = snprintf(path, size, "%s/%s.%s", folder, name, suffix);

    if (length < 0 || (size_t) length >= size)
        return error_set(err, STATUS_INVALID, "folder name is too long: %s", folder);
    return STATUS_OK;
}

struct pem {
    EVP_PKEY *key;            /* either a key */
    X509 *certificate, *also; /* or one or two certificates */
};

static bool write_pem(FILE *file, const struct pem *pem)
{
    bool done = pem->key != NULL
                    ? PEM_write_PKCS8PrivateKey(file, pem->key, NULL, NULL, 0, NULL, NULL) == 1
                    : PEM_write_X509(file, pem->certificate) == 1;

    if (done && pem->also != NULL)
        done = PEM_write_X509(file, pem->also) == 1;
    return done && fflush(file) == 0 && fsync(fileno(file)) == 0;
}

/* Whole or not at all: written beside, then renamed. */
static enum status write_file(const char *path, const struct pem *pem, struct error *err)
{
    char temporary[4096 + 8];

    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    unlink(temporary);
    int fd =
        open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, pem->key != NULL ? 0600 : 0644);
    if (fd < 0)
        return error_system(err, "creating %s", temporary);
    OWNED_FILE FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        close(fd);
        return error_system(err, "creating %s", temporary);
    }
    if (write_pem(file, pem) && rename(temporary, path) == 0)
        return STATUS_OK;
    enum status status = error_system(err, "writing %s", path);
    unlink(temporary);
    ERR_clear_error();
    return status;
}

static enum status write_pair(const char *folder, const char *name, const struct pair *pair,
                              X509 *also, struct error *err)
{
    char path[4096];
    enum status status = pki_path(path, sizeof path, folder, name, "key", err);

    if (status == STATUS_OK)
        status = write_file(path, &(struct pem){.key = pair->key}, err);
    if (status == STATUS_OK)
        status = pki_path(path, sizeof path, folder, name, "crt", err);
    if (status == STATUS_OK)
        status =
            write_file(path, &(struct pem){.certificate = pair->certificate, .also = also}, err);
    return status;
}

static enum status refuse_existing(const char *folder, struct error *err)
{
    static const char *const suffixes[] = {"crt", "key"};
    char path[4096];

    for (size_t i = 0; i < 2; i++) {
        enum status status = pki_path(path, sizeof path, folder, "ca", suffixes[i], err);
        if (status != STATUS_OK)
            return status;
        if (access(path, F_OK) == 0) {
            error_set(err, STATUS_EXISTS, "%s exists", path);
            error_hint(err, "A new CA makes every certificate of the old one worthless; choose "
                            "another folder or remove this one.");
            return STATUS_EXISTS;
        }
    }
    return STATUS_OK;
}

enum status pki_init(const char *folder, int64_t valid_days, struct error *err)
{
    OWNED_PAIR struct pair ca = {0};
    static const struct wanted shape = {.common = "Ordeal CA",
                                        .unit = "ca",
                                        .usage = "critical,keyCertSign,cRLSign",
                                        .constraints = "critical,CA:TRUE,pathlen:1"};
    struct wanted wanted = shape;

    wanted.valid_days = valid_days;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return error_system(err, "creating folder %s", folder);
    enum status status = refuse_existing(folder, err);
    if (status == STATUS_OK)
        status = make_pair(&wanted, NULL, &ca, err);
    if (status == STATUS_OK)
        status = write_pair(folder, "ca", &ca, NULL, err);
    return status;
}

static enum status read_certificate(const char *path, X509 **ret_certificate, struct error *err)
{
    OWNED_FILE FILE *file = fopen(path, "re");

    if (file == NULL)
        return error_system(err, "opening %s", path);
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    if (certificate == NULL) {
        ERR_clear_error();
        return error_set(err, STATUS_INVALID, "%s holds no certificate", path);
    }
    *ret_certificate = certificate;
    return STATUS_OK;
}

static enum status read_key(const char *path, EVP_PKEY **ret_key, struct error *err)
{
    OWNED_FILE FILE *file = fopen(path, "re");
    char no_passphrase[] = "";

    if (file == NULL)
        return error_system(err, "opening %s", path);
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, NULL, no_passphrase);
    if (key == NULL) {
        ERR_clear_error();
        return error_set(err, STATUS_INVALID, "%s holds no private key", path);
    }
    *ret_key = key;
    return STATUS_OK;
}

static enum status read_ca(const char *folder, struct pair *ret_ca, struct error *err)
{
    OWNED_PAIR struct pair ca = {0};
    char path[4096];
    enum status status = pki_path(path, sizeof path, folder, "ca", "crt", err);

    if (status == STATUS_OK)
        status = read_certificate(path, &ca.certificate, err);
    if (status == STATUS_OK)
        status = pki_path(path, sizeof path, folder, "ca", "key", err);
    if (status == STATUS_OK)
        status = read_key(path, &ca.key, err);
    if (status != STATUS_OK) {
        error_hint(err, "Make a CA with 'ordeal pki init %s'.", folder);
        return status;
    }
    *ret_ca = take_pair(&ca);
    return STATUS_OK;
}

enum status pki_issue(const char *folder, const char *name, enum tls_role role, int64_t valid_days,
                      struct error *err)
{
    OWNED_PAIR struct pair ca = {0};
    OWNED_PAIR struct pair leaf = {0};
    char names[NAME_MAX_LENGTH + 8];
    enum status status = check_name(name, err);

    if (status == STATUS_OK)
        status = read_ca(folder, &ca, err);
    if (status != STATUS_OK)
        return status;
    snprintf(names, sizeof names, "DNS:%s", name);
    const struct wanted wanted = {
        .common = name,
        .unit = role == TLS_AGENT ? "agent" : "orchestrator",
        .usage = "critical,digitalSignature",
        .extended_usage = role == TLS_AGENT ? "serverAuth" : "clientAuth",
        .names = names,
        .constraints = "critical,CA:FALSE",
        .valid_days = valid_days,
    };
    status = make_pair(&wanted, &ca, &leaf, err);
    if (status == STATUS_OK)
        status = write_pair(folder, name, &leaf, NULL, err);
    return status;
}

/* See the top of this file. */
static enum status one_signature_ca(const struct pair *ca, int64_t valid_days,
                                    struct pair *ret_between, struct error *err)
{
    const struct wanted wanted = {
        .common = "Ordeal PostgreSQL CA",
        .unit = "postgresql-ca",
        .usage = "critical,keyCertSign",
        .constraints = "critical,CA:TRUE,pathlen:0",
        .ecdsa = true,
        .valid_days = valid_days,
    };

    return make_pair(&wanted, ca, ret_between, err);
}

enum status pki_issue_server(const char *folder, const char *name, const char *address,
                             int64_t valid_days, struct error *err)
{
    OWNED_PAIR struct pair ca = {0};
    OWNED_PAIR struct pair between = {0};
    OWNED_PAIR struct pair leaf = {0};
    char names[2 * NAME_MAX_LENGTH + 16];
    enum status status = check_name(name, err);

    if (status == STATUS_OK && strspn(address, "0123456789abcdefABCDEF.:") != strlen(address))
        status = error_set(err, STATUS_INVALID, "'%s' is no IP address", address);
    if (status == STATUS_OK)
        status = read_ca(folder, &ca, err);
    if (status == STATUS_OK)
        status = one_signature_ca(&ca, valid_days, &between, err);
    if (status != STATUS_OK)
        return status;
    snprintf(names, sizeof names, "IP:%.63s,DNS:%s", address, name);
    const struct wanted wanted = {
        .common = name,
        .unit = "postgresql",
        .usage = "critical,digitalSignature",
        .extended_usage = "serverAuth",
        .names = names,
        .constraints = "critical,CA:FALSE",
        .ecdsa = true,
        .valid_days = valid_days,
    };
    status = make_pair(&wanted, &between, &leaf, err);
    if (status == STATUS_OK)
        status = write_pair(folder, name, &leaf, between.certificate, err);
    return status;
}

static void show_bio(BIO *bio, const char *label, struct buffer *text)
{
    char *data;
    long length = BIO_get_mem_data(bio, &data);

    buffer_printf(text, "%-12s ", label);
    buffer_append(text, data, (size_t) length);
    buffer_puts(text, "\n");
    (void) BIO_reset(bio);
}

static void show_serial(X509 *certificate, struct buffer *text)
{
    BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), NULL);
    char *hexadecimal = number == NULL ? NULL : BN_bn2hex(number);

    buffer_printf(text, "%-12s %s\n", "serial", hexadecimal == NULL ? "?" : hexadecimal);
    OPENSSL_free(hexadecimal);
    BN_free(number);
}

static void show_fingerprint(X509 *certificate, struct buffer *text)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;

    buffer_printf(text, "%-12s ", "sha256");
    if (X509_digest(certificate, EVP_sha256(), digest, &length) == 1)
        for (unsigned i = 0; i < length; i++)
            buffer_printf(text, "%02x", digest[i]);
    buffer_puts(text, "\n");
}

enum status pki_show(const char *path, struct buffer *text, struct error *err)
{
    OWNED_X509 X509 *certificate = NULL;
    char unit[64] = "";
    enum status status = read_certificate(path, &certificate, err);

    if (status != STATUS_OK)
        return status;
    BIO *bio = BIO_new(BIO_s_mem());
    if (bio == NULL)
        return tls_error(NULL, 0, err, "showing a certificate");
    X509_NAME *subject = X509_get_subject_name(certificate);
    X509_NAME_get_text_by_NID(subject, NID_organizationalUnitName, unit, sizeof unit);
    X509_NAME_print_ex(bio, subject, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
    show_bio(bio, "subject", text);
    buffer_printf(text, "%-12s %s\n", "role", unit);
    show_serial(certificate, text);
    ASN1_TIME_print(bio, X509_get0_notBefore(certificate));
    show_bio(bio, "not before", text);
    ASN1_TIME_print(bio, X509_get0_notAfter(certificate));
    show_bio(bio, "not after", text);
    show_fingerprint(certificate, text);
    BIO_free(bio);
    return STATUS_OK;
}
