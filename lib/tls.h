/* SPDX-License-Identifier: MIT */
/*
 * Mutual TLS 1.3 and the deployment's own CA (OpenSSL, Ed25519 keys).
 *
 * A certificate names its role in the subject's OU ("orchestrator" or "agent") and its node in the
 * CN. An agent accepts only the orchestrator's role; the orchestrator accepts only the agent role
 * with the CN of the node it called. Both sides refuse anything that the CA did not sign, that has
 * expired or is not valid yet, and any protocol below TLS 1.3.
 *
 * A PKI folder holds ca.crt, ca.key, and NAME.crt, NAME.key for each name issued (keys 0600).
 */
#ifndef ORDEAL_LIB_TLS_H
#define ORDEAL_LIB_TLS_H

#include <openssl/ssl.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/error.h"

enum tls_role { TLS_ORCHESTRATOR, TLS_AGENT };

struct tls_files {
    const char *ca, *certificate, *key; /* PEM files */
};

/* The side of `role`; SSL_CTX_free() it. Refuses a key file that others can read. */
MUST_CHECK enum status tls_context(enum tls_role role, const struct tls_files *files,
                                   SSL_CTX **ret_context, struct error *err);
/* After the handshake: is the peer of this role, and is its CN `name` (NULL: any)? */
MUST_CHECK enum status tls_check_peer(SSL *ssl, enum tls_role role, const char *name,
                                      struct error *err);
/* What went wrong in the last call on this thread, in a person's words ("certificate expired"). */
enum status tls_error(SSL *ssl, int result, struct error *err, const char *doing);

/* Create the folder (0700) with a new CA; STATUS_EXISTS when there is one. */
MUST_CHECK enum status pki_init(const char *folder, int64_t valid_days, struct error *err);
/* Issue NAME.crt and NAME.key, replacing older ones. */
MUST_CHECK enum status pki_issue(const char *folder, const char *name, enum tls_role role,
                                 int64_t valid_days, struct error *err);
/* A server certificate for PostgreSQL with the CA's signature: CN name, SAN IP address. */
MUST_CHECK enum status pki_issue_server(const char *folder, const char *name, const char *address,
                                        int64_t valid_days, struct error *err);
/* "subject, role, serial, not before, not after, fingerprint" lines for `ordeal pki show`. */
MUST_CHECK enum status pki_show(const char *path, struct buffer *text, struct error *err);

#endif
